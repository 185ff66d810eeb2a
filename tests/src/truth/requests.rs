//! Which requests were very long, by the load generators' own logs.

use crate::load::LoadReport;
use anyhow::{Context, Result};
use std::path::Path;

/// Longer than this is a very long response time, as in the literature.
const VLRT_NS: u64 = 1_000_000_000;

/// Starts of all requests, of every load below `folder`, that took more than a second, in order of time.
pub fn slow_requests(folder: &Path) -> Result<Vec<u64>> {
    let mut slow = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let load = entry?.path();
        if load.join("requests.csv").exists() {
            let report = LoadReport::read(&load)?;
            let very_long = report.requests.iter().filter(|request| request.time_ns() > VLRT_NS);
            slow.extend(very_long.map(|request| request.start_unix_ns));
        }
    }
    slow.sort_unstable();
    Ok(slow)
}
