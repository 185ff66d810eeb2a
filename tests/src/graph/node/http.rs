//! HTTP/1.1 as far as services of a graph need it of each other and of the load generator: requests without bodies, answers with a length; what
//! they ask other servers is `wire`'s. Knows no socket.

use crate::graph::part::Protocol;
use crate::graph::wire;
use crate::load::engine::answer_length;
use anyhow::{Result, bail, ensure};
use std::borrow::Cow;

/// A longer head is none of ours.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// A longer answer is none of ours.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Of every answer.
const BODY: &str = "{\"served\":true,\"note\":\"a body of about two hundred bytes, as small answers of services have it, so that an answer is one segment and no more than that\"}\n";

/// The head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of it, with the empty line.
    pub(super) length: usize,
    /// The client wants the connection closed after the answer.
    pub(super) close: bool,
}

/// The first request in what came so far, if its head is whole.
///
/// # Errors
/// What is no request of HTTP/1.1, or longer than a head may be.
pub(super) fn head(bytes: &[u8]) -> Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        ensure!(bytes.len() <= HEAD_BYTES_MAX, "a head of more than {HEAD_BYTES_MAX} bytes");
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..end])?;
    if !text.starts_with("GET ") {
        bail!("not a GET of HTTP");
    }
    Ok(Some(Head { length: end + 4, close: closes(text) }))
}

/// A request to another service.
pub(super) fn request(protocol: Protocol, close: bool) -> Cow<'static, [u8]> {
    match (protocol, close) {
        (Protocol::Http, true) => {
            Cow::Borrowed(b"GET /call HTTP/1.1\r\nHost: graph\r\nConnection: close\r\n\r\n")
        }
        (Protocol::Http, false) => Cow::Borrowed(b"GET /call HTTP/1.1\r\nHost: graph\r\n\r\n"),
        _ => Cow::Owned(wire::question(protocol)),
    }
}

/// An answer.
pub(super) fn answer(status: u16, close: bool) -> Vec<u8> {
    let reason = if status == 200 { "OK" } else { "Service Unavailable" };
    let connection = if close { "Connection: close\r\n" } else { "" };
    format!("HTTP/1.1 {status} {reason}\r\nContent-Length: {}\r\n{connection}\r\n{BODY}", BODY.len())
        .into_bytes()
}

/// The status of an answer, once it is whole; a value is one of 200.
///
/// # Errors
/// What is no answer in this protocol, or longer than an answer may be.
pub(super) fn status(protocol: Protocol, answer: &[u8]) -> Result<Option<u16>> {
    ensure!(answer.len() <= ANSWER_BYTES_MAX, "an answer of more than {ANSWER_BYTES_MAX} bytes");
    if protocol != Protocol::Http {
        return Ok(wire::is_whole(protocol, answer)?.then_some(200));
    }
    match answer_length(answer)? {
        Some(length) if answer.len() >= length => Ok(Some(std::str::from_utf8(&answer[9..12])?.parse()?)),
        _ => Ok(None),
    }
}

/// Whether an answer says that its connection ends with it.
pub(super) fn ends(protocol: Protocol, answer: &[u8]) -> bool {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let head = end.and_then(|end| std::str::from_utf8(&answer[..end]).ok());
    protocol == Protocol::Http && head.is_some_and(closes)
}

fn closes(head: &str) -> bool {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.any(|(name, value)| name.eq_ignore_ascii_case("connection") && value.trim() == "close")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_taken_when_it_is_whole_and_says_whether_the_connection_ends() {
        assert_eq!(head(b"GET /x HTTP/1.1\r\nHost: a\r\n").unwrap(), None);
        let whole = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET";
        assert_eq!(head(whole).unwrap(), Some(Head { length: whole.len() - 3, close: true }));
        assert!(
            !head(&request(Protocol::Http, false)).unwrap().unwrap().close
                && head(&request(Protocol::Http, true)).unwrap().unwrap().close
        );
        assert!(head(b"SSH-2.0\r\n\r\n").is_err() && head(&[b'a'; 9 << 10]).is_err());
    }

    #[test]
    fn an_answer_is_read_back_when_its_body_is_whole() {
        for (code, close) in [(200, false), (503, true)] {
            let bytes = answer(code, close);
            assert_eq!(status(Protocol::Http, &bytes).unwrap(), Some(code));
            assert_eq!(ends(Protocol::Http, &bytes), close);
            assert_eq!(status(Protocol::Http, &bytes[..bytes.len() - 1]).unwrap(), None);
        }
        assert!(status(Protocol::Http, &[b'a'; 65 << 10]).is_err());
    }
}
