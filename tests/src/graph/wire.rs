//! What services of a graph ask servers that do not speak HTTP, byte for byte, and when an answer is whole. Knows no socket.
//!
//! Sources: the Redis serialization protocol (RESP2); memcached's `doc/protocol.txt`; PostgreSQL's documentation, "Frontend/Backend Protocol", version 3.0;
//! MariaDB's documentation, "Clients & Utilities: Client/Server Protocol", whose initial handshake has version 10.

use crate::graph::part::Protocol;
use anyhow::{Context, Result, bail};

/// The key that is asked for.
pub(super) const KEY: &str = "story";
/// A message of PostgreSQL, after its first byte: its length, which counts itself.
const LENGTH_BYTES: usize = 4;

/// A packet of MariaDB: the length of what it carries, in three bytes, and its number.
const HEAD_BYTES: usize = 4;
/// A client that speaks version 4.1 of it, and says in which way it is known: `CLIENT_PROTOCOL_41`, `CLIENT_SECURE_CONNECTION`, `CLIENT_PLUGIN_AUTH`.
const CAPABILITIES: u32 = 0x0200 | 0x8000 | 0x0008_0000;
const PACKET_BYTES_MAX: u32 = 1 << 24;
/// `utf8mb4_general_ci`.
const CHARACTER_SET: u8 = 45;
/// Of the server's first packet, and of those that end something.
const VERSION: u8 = 10;
const OK: u8 = 0;
const ERROR: u8 = 0xff;
const END: u8 = 0xfe;
/// A packet that begins as an end does, and is as long as this, is a row.
const END_BYTES_MAX: usize = 8;

/// What is said on a new connection before anything is asked, one after the other; each is answered as a request is. The first of MariaDB is empty: the
/// server begins.
pub(super) fn greetings(protocol: Protocol) -> Vec<Vec<u8>> {
    match protocol {
        Protocol::Postgres => {
            let words = b"user\0postgres\0database\0postgres\0\0";
            let length = (2 * LENGTH_BYTES + words.len()) as u32;
            vec![[&length.to_be_bytes()[..], &0x0003_0000_u32.to_be_bytes(), words].concat()]
        }
        Protocol::Mysql => {
            let (capabilities, most) = (CAPABILITIES.to_le_bytes(), PACKET_BYTES_MAX.to_le_bytes());
            let words = b"root\0\0mysql_native_password\0";
            let login = [&capabilities[..], &most, &[CHARACTER_SET], &[0; 23], words].concat();
            vec![Vec::new(), packet(1, &login)]
        }
        Protocol::Http | Protocol::Redis | Protocol::Memcached => Vec::new(),
    }
}

/// A packet to MariaDB.
fn packet(number: u8, carries: &[u8]) -> Vec<u8> {
    let length = (carries.len() as u32).to_le_bytes();
    [&length[..HEAD_BYTES - 1], &[number], carries].concat()
}

/// What is asked; nothing of HTTP.
pub(super) fn question(protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Http => Vec::new(),
        Protocol::Redis => command(&["GET", KEY]),
        Protocol::Memcached => format!("get {KEY}\r\n").into_bytes(),
        Protocol::Postgres | Protocol::Mysql => {
            statement(protocol, &format!("SELECT note FROM {} WHERE id = 1", table(protocol)))
        }
    }
}

/// The table of a database that is asked, by a name that a new connection understands.
pub(super) fn table(protocol: Protocol) -> &'static str {
    if protocol == Protocol::Mysql { "graph.story" } else { "story" }
}

/// A command to Redis.
pub(super) fn command(words: &[&str]) -> Vec<u8> {
    let told: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{told}", words.len()).into_bytes()
}

/// A statement to a database: to MariaDB a query in text, to PostgreSQL a simple one.
pub(super) fn statement(protocol: Protocol, text: &str) -> Vec<u8> {
    if protocol == Protocol::Mysql {
        const COM_QUERY: u8 = 3;
        return packet(0, &[&[COM_QUERY], text.as_bytes()].concat());
    }
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
        Protocol::Mysql => is_whole_of_mariadb(answer),
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

/// The server's first packet, or its word on a login or a statement; or a table: how many columns, each of them, an end, rows, an end.
fn is_whole_of_mariadb(mut answer: &[u8]) -> Result<bool> {
    let (mut packets, mut ends) = (0_u32, 0);
    while let Some((head, rest)) = answer.split_first_chunk::<HEAD_BYTES>() {
        let [a, b, c, number] = *head;
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        let Some(carries) = rest.get(..length) else { return Ok(false) };
        let kind = carries.first().copied().context("MariaDB sent an empty packet")?;
        match (kind, packets) {
            (ERROR, _) => {
                let text = carries.get(9..).unwrap_or_default();
                bail!("MariaDB said {:?}", String::from_utf8_lossy(text));
            }
            (VERSION, 0) if number == 0 => return Ok(true),
            (OK, 0) => return Ok(true),
            (END, 0) => bail!("MariaDB wants to know who comes in another way"),
            (END, _) if length <= END_BYTES_MAX => {
                if ends == 1 {
                    // How many columns, the one that is asked for, and its end were before it.
                    let rows = packets.saturating_sub(3);
                    if rows == 0 {
                        bail!("MariaDB has no row where one was asked for");
                    }
                    return Ok(true);
                }
                ends += 1;
            }
            _ => {}
        }
        packets += 1;
        answer = &rest[length..];
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

    /// What MariaDB answers with these rows of one column.
    fn rows(rows: &[u8]) -> Vec<u8> {
        let [first, second] = [3, 5].map(|number| [5, 0, 0, number, END, 0, 0, 2, 0]);
        [&b"\x01\0\0\x01\x01\x04\0\0\x02\x03def"[..], &first, rows, &second].concat()
    }

    #[test]
    fn answers_are_read_when_they_are_whole() {
        each_part_is_not_whole(Protocol::Redis, b"$3\r\nabc\r\n");
        each_part_is_not_whole(Protocol::Memcached, b"VALUE story 0 3\r\nabc\r\nEND\r\n");
        let ready = b"Z\0\0\0\x05I";
        let greeted = [&b"R\0\0\0\x08\0\0\0\0S\0\0\0\x09a\0b\0\0"[..], ready].concat();
        each_part_is_not_whole(Protocol::Postgres, &greeted);
        each_part_is_not_whole(Protocol::Postgres, &[&b"D\0\0\0\x04C\0\0\0\x04"[..], ready].concat());
        each_part_is_not_whole(Protocol::Mysql, b"\x03\0\0\0\x0a15");
        each_part_is_not_whole(Protocol::Mysql, b"\x07\0\0\x02\0\0\0\x02\0\0\0");
        each_part_is_not_whole(Protocol::Mysql, &rows(b"\x04\0\0\x04\x03abc"));
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
            (Protocol::Mysql, &rows(b""), "no row"),
            (Protocol::Mysql, b"\x0b\0\0\x01\xff\x7a\x04#42S02no", "no"),
            (Protocol::Mysql, b"\x02\0\0\x02\xfea", "another way"),
        ] {
            let error = is_whole(protocol, said).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn what_is_asked_has_the_length_that_it_says() {
        assert_eq!(question(Protocol::Redis), b"*2\r\n$3\r\nGET\r\n$5\r\nstory\r\n");
        let greeting = &greetings(Protocol::Postgres)[0];
        assert_eq!(u32::from_be_bytes(*greeting.first_chunk().unwrap()) as usize, greeting.len());
        let said = greetings(Protocol::Mysql).into_iter().chain([question(Protocol::Mysql)]);
        for packet in said.filter(|packet| !packet.is_empty()) {
            assert_eq!(usize::from(packet[0]) + HEAD_BYTES, packet.len());
        }
        let asked = question(Protocol::Postgres);
        assert_eq!(u32::from_be_bytes(*asked[1..].first_chunk().unwrap()) as usize, asked.len() - 1);
    }
}
