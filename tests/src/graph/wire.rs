//! What services of a graph ask servers that do not speak HTTP, byte for byte, and when an answer is whole. Knows no socket.
//!
//! Sources: the Redis serialization protocol (RESP2); memcached's `doc/protocol.txt`; PostgreSQL's documentation, "Frontend/Backend Protocol", version 3.0.

use crate::graph::part::Protocol;
use anyhow::{Context, Result, bail};

/// The key that is asked for.
pub(super) const KEY: &str = "story";
/// A message of PostgreSQL, after its first byte: its length, which counts itself.
const LENGTH_BYTES: usize = 4;

/// What a new connection says before it asks anything, if there is such a thing; it is answered as a request is.
pub(super) fn greeting(protocol: Protocol) -> Option<Vec<u8>> {
    let words = b"user\0postgres\0database\0postgres\0\0";
    (protocol == Protocol::Postgres).then(|| {
        let length = (2 * LENGTH_BYTES + words.len()) as u32;
        [&length.to_be_bytes()[..], &0x0003_0000_u32.to_be_bytes(), words].concat()
    })
}

/// What is asked; nothing of HTTP.
pub(super) fn question(protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Http => Vec::new(),
        Protocol::Redis => command(&["GET", KEY]),
        Protocol::Memcached => format!("get {KEY}\r\n").into_bytes(),
        Protocol::Postgres => statement("SELECT note FROM story WHERE id = 1"),
    }
}

/// A command to Redis.
pub(super) fn command(words: &[&str]) -> Vec<u8> {
    let told: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{told}", words.len()).into_bytes()
}

/// A statement to PostgreSQL, as a simple query.
pub(super) fn statement(text: &str) -> Vec<u8> {
    let length = (LENGTH_BYTES + text.len() + 1) as u32;
    [&b"Q"[..], &length.to_be_bytes(), text.as_bytes(), b"\0"].concat()
}

/// Whether what came is a whole answer to a question, or to a greeting.
///
/// # Errors
/// An answer without the value that was asked for.
pub(super) fn is_whole(protocol: Protocol, answer: &[u8]) -> Result<bool> {
    match protocol {
        Protocol::Http => bail!("HTTP is read elsewhere"),
        Protocol::Redis => value_of_redis(answer),
        Protocol::Memcached => value_of_memcached(answer),
        Protocol::Postgres => is_ready_for_query(answer),
    }
}

fn line(answer: &[u8]) -> Result<Option<(&str, usize)>> {
    let Some(end) = answer.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    Ok(Some((std::str::from_utf8(&answer[..end])?, end + 2)))
}

/// A bulk string: its length, then so many bytes, each ended by CR LF.
fn value_of_redis(answer: &[u8]) -> Result<bool> {
    let Some((head, end)) = line(answer)? else { return Ok(false) };
    let length = head.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
    let Some(length) = length else { bail!("Redis said {head:?} where a value was asked for") };
    Ok(answer.len() >= end + length + 2)
}

/// `VALUE key flags bytes`, the bytes, and `END`.
fn value_of_memcached(answer: &[u8]) -> Result<bool> {
    let Some((head, end)) = line(answer)? else { return Ok(false) };
    let length = head.strip_prefix("VALUE ").and_then(|rest| rest.split(' ').nth(2)?.parse::<usize>().ok());
    let Some(length) = length else { bail!("memcached said {head:?} where a value was asked for") };
    Ok(answer.len() >= end + length + b"\r\nEND\r\n".len())
}

/// Messages up to the one that says that the next query may come.
fn is_ready_for_query(mut answer: &[u8]) -> Result<bool> {
    while let Some((kind, rest)) = answer.split_first() {
        let Some((length, _)) = rest.split_first_chunk::<LENGTH_BYTES>() else { return Ok(false) };
        let length = u32::from_be_bytes(*length) as usize;
        let Some(body) = rest.get(LENGTH_BYTES..length.max(LENGTH_BYTES)) else { return Ok(false) };
        match kind {
            b'Z' => return Ok(true),
            b'C' if body == b"SELECT 0\0" => bail!("PostgreSQL has no row where one was asked for"),
            b'E' => bail!("PostgreSQL said {:?}", message(body)),
            b'R' => {
                let asked = body.first_chunk().map(|code| u32::from_be_bytes(*code));
                let asked = asked.context("PostgreSQL's word on who may come is cut")?;
                if asked != 0 {
                    bail!("PostgreSQL wants to know who comes, in its way {asked}");
                }
            }
            _ => {}
        }
        answer = &rest[length.max(LENGTH_BYTES)..];
    }
    Ok(false)
}

/// The text of an error's fields, which each begin with a letter and end with 0.
fn message(fields: &[u8]) -> String {
    let text = fields.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(text.unwrap_or(fields)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each_part_is_not_whole(protocol: Protocol, answer: &[u8]) {
        for cut in 0..answer.len() {
            assert!(!is_whole(protocol, &answer[..cut]).unwrap(), "{protocol:?} at {cut}");
        }
        assert!(is_whole(protocol, answer).unwrap(), "{protocol:?}");
    }

    #[test]
    fn answers_are_read_when_they_are_whole() {
        each_part_is_not_whole(Protocol::Redis, b"$3\r\nabc\r\n");
        each_part_is_not_whole(Protocol::Memcached, b"VALUE story 0 3\r\nabc\r\nEND\r\n");
        let ready = b"Z\0\0\0\x05I";
        let greeted = [&b"R\0\0\0\x08\0\0\0\0S\0\0\0\x09a\0b\0\0"[..], ready].concat();
        each_part_is_not_whole(Protocol::Postgres, &greeted);
        each_part_is_not_whole(Protocol::Postgres, &[&b"D\0\0\0\x04C\0\0\0\x04"[..], ready].concat());
    }

    #[test]
    fn an_answer_without_the_value_is_an_error_that_says_so() {
        for (protocol, said, word) in [
            (Protocol::Redis, &b"$-1\r\n"[..], "$-1"),
            (Protocol::Redis, b"-LOADING\r\n", "LOADING"),
            (Protocol::Memcached, b"END\r\n", "END"),
            (Protocol::Memcached, b"SERVER_ERROR out of memory\r\n", "out of memory"),
            (Protocol::Postgres, b"E\0\0\0\x0eSFATAL\0Mno\0\0", "no"),
            (Protocol::Postgres, b"R\0\0\0\x08\0\0\0\x05", "in its way 5"),
            (Protocol::Postgres, b"C\0\0\0\x0dSELECT 0\0Z\0\0\0\x05I", "no row"),
        ] {
            let error = is_whole(protocol, said).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn what_is_asked_has_the_length_that_it_says() {
        assert_eq!(question(Protocol::Redis), b"*2\r\n$3\r\nGET\r\n$5\r\nstory\r\n");
        let greeting = greeting(Protocol::Postgres).unwrap();
        assert_eq!(u32::from_be_bytes(*greeting.first_chunk().unwrap()) as usize, greeting.len());
        let asked = question(Protocol::Postgres);
        assert_eq!(u32::from_be_bytes(*asked[1..].first_chunk().unwrap()) as usize, asked.len() - 1);
    }
}
