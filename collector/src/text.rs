//! What is written to a terminal: lengths of time as people say them, and text that others named; and patterns of names.

use serde::Serialize;
use std::fmt::Write;
use tailwater_model::civil::Civil;

/// A length of time as people say it: `3 h 12 min`, `4 min 10 s`, `17 s`.
#[must_use]
pub fn span(seconds: f64) -> String {
    // `as` saturates.
    let s = seconds.round() as u64;
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s} s"),
        (0, h, min, _) => format!("{h} h {min} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

/// A moment to the minute: `2026-11-06 21:20 UTC`.
#[must_use]
pub fn minute(unix_ns: u64) -> String {
    let civil = Civil::of(unix_ns);
    let time = civil.time_ms();
    format!("{} {} UTC", civil.date(), time.get(..5).unwrap_or(&time))
}

/// As a part of a query (RFC 3986, 2.1): names of workloads hold what they like.
#[must_use]
pub fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, b| {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(b)),
            // Writing to a String cannot fail.
            _ => drop(write!(out, "%{b:02X}")),
        }
        out
    })
}

/// One line. Whoever may name a process, a cgroup or a host may not write to the operator's terminal: control characters are shown,
/// not sent.
#[must_use]
pub fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The same of several lines.
#[must_use]
pub fn lines(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// A value as one line of JSON for a terminal. JSON escapes the control characters below the space and none of the others (RFC 8259, 7), which a
/// terminal may take for the beginning of a command, too: they stand in strings only, where this writes them in JSON's other way.
///
/// # Errors
/// A value that JSON cannot say.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    let json = serde_json::to_string(value)?;
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Ok(shown)
}

/// Whether a text fits a pattern, in which `*` stands for any text, also none. Without a pattern everything fits.
#[must_use]
pub fn like(pattern: Option<&str>, text: &str) -> bool {
    let Some(pattern) = pattern else { return true };
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_query() {
        assert_eq!(encoded("a-b_c.service"), "a-b_c.service");
        assert_eq!(encoded("x&host=y z/é"), "x%26host%3Dy%20z%2F%C3%A9");
    }

    #[test]
    fn what_others_named_does_not_reach_the_terminal_as_a_command() {
        assert_eq!(line("a\u{1b}]0;owned\u{7}\n\u{9b}2Jb ü"), "a\\u{1b}]0;owned\\u{7}\\n\\u{9b}2Jb ü");
        assert_eq!(lines("a\r\nb\tc\n"), "a\\r\nb\\tc\n");
    }

    #[test]
    fn nor_does_it_as_json() {
        let names = ["a\u{1b}]0;owned\u{7}\n", "\u{9b}2Jb\u{7f} ü"];
        let json = json_line(&names).unwrap();
        assert!(!json.contains(char::is_control), "{json:?}");
        assert_eq!(serde_json::from_str::<[String; 2]>(&json).unwrap(), names);
    }

    #[test]
    fn lengths_of_time_have_two_units() {
        let said = [0.4, 17.0, 59.6, 250.0, 11_531.0, 90_000.0].map(span);
        assert_eq!(said, ["0 s", "17 s", "1 min 0 s", "4 min 10 s", "3 h 12 min", "1 d 1 h"]);
    }
}
