//! What can be said about remote write: the `[[remote_write]]` tables, and the rules between their keys.

use crate::fault::Fault;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resolution {
    /// Every second: the roll-ups, counters and limits that `/metrics` shows.
    #[serde(rename = "1s")]
    Second,
    /// The 50 ms windows from 30 s before an incident to 30 s after it, of the hosts in its chain.
    #[serde(rename = "incidents")]
    Incidents,
    /// Every 50 ms window.
    #[serde(rename = "50ms")]
    Window,
}

/// One receiver: a `[[remote_write]]` table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteWrite {
    /// http:// or https://; the whole path, such as `/api/v1/write`.
    pub url: String,
    /// What is sent.
    #[serde(default = "resolution")]
    pub resolution: Resolution,
    /// Its name in the log and the metrics. Default: `remote_write`, with a number if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A file that holds the value of the Authorization header, such as "Bearer abc".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_file: Option<PathBuf>,
    /// PEM: the authorities to trust for https, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// What one request may take, s.
    #[serde(default = "timeout_s")]
    pub timeout_s: u64,
    /// What may wait for the receiver, MiB as sent; the oldest goes first.
    #[serde(default = "queue_mib_max")]
    pub queue_mib_max: usize,
}

fn resolution() -> Resolution {
    Resolution::Second
}
fn timeout_s() -> u64 {
    10
}
fn queue_mib_max() -> usize {
    16
}

impl RemoteWrite {
    /// Its name, as the `index`th table of several.
    #[must_use]
    pub fn name(&self, index: usize) -> String {
        self.name.clone().unwrap_or_else(|| match index {
            0 => "remote_write".to_owned(),
            n => format!("remote_write-{}", n + 1),
        })
    }
}

/// The first rule that is broken.
pub fn check(all: &[RemoteWrite]) -> Result<(), Fault> {
    for (index, one) in all.iter().enumerate() {
        let fault = |key: &'static str, what: String, remedy: &str| Fault {
            table: "remote_write",
            index,
            key,
            what,
            remedy: remedy.to_owned(),
        };
        if let Err(why) = crate::send::http::address(&one.url) {
            return Err(fault("url", why, "give it as http://host:port/api/v1/write or https://host/path"));
        }
        if !(1..=300).contains(&one.timeout_s) {
            return Err(fault("timeout_s", "must be 1 to 300".into(), "leave it out for 10"));
        }
        if !(1..=1024).contains(&one.queue_mib_max) {
            return Err(fault("queue_mib_max", "must be 1 to 1024".into(), "leave it out for 16"));
        }
        let name = one.name(index);
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)) {
            return Err(fault(
                "name",
                "must be letters, digits, _, . and -".into(),
                "leave it out for the default",
            ));
        }
        if all.iter().enumerate().take(index).any(|(n, other)| other.name(n) == name) {
            return Err(fault("name", format!("\"{name}\" is the name of another"), "give each its own"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_cannot_be_is_named_with_its_key() {
        #[derive(serde::Deserialize)]
        struct File {
            remote_write: Vec<RemoteWrite>,
        }
        let of = |text: &str| {
            let all: File = toml::from_str(text).unwrap();
            check(&all.remote_write).map_err(|fault| (fault.index, fault.key))
        };
        let one = "[[remote_write]]\nurl = \"http://h/api/v1/write\"\n";
        assert_eq!(of(&format!("{one}{one}resolution = \"50ms\"\n")), Ok(()));
        assert_eq!(of(&format!("{one}[[remote_write]]\nurl = \"h\"\n")), Err((1, "url")));
        assert_eq!(of(&format!("{one}timeout_s = 0\n")), Err((0, "timeout_s")));
        assert_eq!(of(&format!("{one}queue_mib_max = 0\n")), Err((0, "queue_mib_max")));
        assert_eq!(of(&format!("{one}name = \"a\\\"b\"\n")), Err((0, "name")));
        assert_eq!(of(&format!("{one}name = \"a\"\n{one}name = \"a\"\n")), Err((1, "name")));
        assert!(
            toml::from_str::<File>(&format!("{one}resolution = \"2s\"\n"))
                .is_err_and(|e| e.message().contains("incidents"))
        );
    }
}
