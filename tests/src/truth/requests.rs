//! Which requests were very long, by the load generators' own logs.

use crate::load::LoadReport;
use anyhow::{Context, Result};
use std::path::Path;

/// Longer than this is a very long response time, as in the literature.
const VLRT_NS: u64 = 1_000_000_000;

/// What the loads' logs say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlowRequests {
    /// Starts of the requests that took more than a second, Unix ns, in order of time.
    pub starts: Vec<u64>,
    /// Loads whose log is not whole, each with why: none of their requests is in `starts`.
    pub unread: Vec<String>,
}

/// Those of every load below `folder` that has a log.
pub fn slow_requests(folder: &Path) -> Result<SlowRequests> {
    let mut slow = SlowRequests::default();
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let load = entry?.path();
        if !load.join("requests.csv").exists() {
            continue;
        }
        match LoadReport::read(&load) {
            Ok(report) => {
                let very_long = report.requests.iter().filter(|request| request.time_ns() > VLRT_NS);
                slow.starts.extend(very_long.map(|request| request.start_unix_ns));
            }
            Err(error) => {
                let name = load.file_name().unwrap_or_default().to_string_lossy();
                slow.unread.push(format!("{name}: {error:#}"));
            }
        }
    }
    slow.starts.sort_unstable();
    slow.unread.sort_unstable();
    Ok(slow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Outcome, Request, Summary};

    #[test]
    fn a_log_that_is_not_whole_takes_nothing_from_those_that_are_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let request = |start_unix_ns: u64, ms: u64| Request {
            start_unix_ns,
            issued_unix_ns: start_unix_ns,
            connected_unix_ns: start_unix_ns,
            end_unix_ns: start_unix_ns + ms * 1_000_000,
            status: 200,
            bytes: 1,
            outcome: Outcome::Answered,
        };
        let requests = vec![request(9_000, 1_200), request(7_000, 5), request(5_000, 3_000)];
        let whole = LoadReport { summary: Summary::of(&requests).unwrap(), requests };
        for name in ["load-0", "load-1", "load-2"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        whole.write(&folder.path().join("load-0")).unwrap();
        // It was killed while it wrote; of the third there is nothing yet.
        std::fs::write(folder.path().join("load-1/requests.csv"), "start_unix_ns\n12").unwrap();
        let slow = slow_requests(folder.path()).unwrap();
        assert_eq!(slow.starts, [5_000, 9_000]);
        assert_eq!(slow.unread.len(), 1);
        assert!(slow.unread[0].starts_with("load-1: "), "{:?}", slow.unread);
    }
}
