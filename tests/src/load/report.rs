//! What a load says afterwards: one line for each request, and the sums. The formats are read by tests, so both directions
//! are here.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use std::fmt::Write;
use std::path::Path;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A whole answer came (whatever its status).
    Answered,
    /// No whole answer within the plan's timeout.
    TimedOut,
    /// The connection was refused, reset or closed early.
    Broken,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When the plan wanted it sent. Its time counts from here.
    pub start_unix_ns: u64,
    /// When it was: the difference is the generator's own lateness (its timer ticks each millisecond).
    pub issued_unix_ns: u64,
    /// When its connection stood; 0 if it never did, the time of issue on a connection used again.
    pub connected_unix_ns: u64,
    /// When the last byte came, or it was given up.
    pub end_unix_ns: u64,
    /// HTTP status; 0 without an answer.
    pub status: u16,
    /// Bytes received, headers and all.
    pub bytes: u32,
    /// How it ended.
    pub outcome: Outcome,
}

impl Request {
    /// From planned arrival to the end.
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.end_unix_ns.saturating_sub(self.start_unix_ns)
    }
}

/// Sums over a load. Times in µs, from planned arrival to last byte.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// Requests begun.
    pub sent: u64,
    /// Answered with status 200.
    pub ok: u64,
    /// Timed out, broken, or answered with another status.
    pub failed: u64,
    /// Took more than one second: the mark of a resent packet.
    pub vlrt: u64,
    /// From the first planned arrival to the last end, ms.
    pub duration_ms: u64,
    /// Median.
    pub p50_us: u64,
    /// 95th percentile.
    pub p95_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// Longest.
    pub max_us: u64,
    /// 99th percentile of the generator's own lateness.
    pub lateness_p99_us: u64,
}

impl Summary {
    /// Of these requests.
    pub fn of(requests: &[Request]) -> Result<Self> {
        let mut times = Histogram::<u64>::new_with_bounds(1, 600_000_000, 3)?;
        let mut lateness = times.clone();
        let mut summary = Self::default();
        for request in requests {
            times.saturating_record((request.time_ns() / 1000).max(1));
            let late_ns = request.issued_unix_ns.saturating_sub(request.start_unix_ns);
            lateness.saturating_record((late_ns / 1000).max(1));
            summary.sent += 1;
            if request.outcome == Outcome::Answered && request.status == 200 {
                summary.ok += 1;
            } else {
                summary.failed += 1;
            }
            summary.vlrt += u64::from(request.time_ns() > 1_000_000_000);
        }
        let first = requests.iter().map(|request| request.start_unix_ns).min().unwrap_or(0);
        let last = requests.iter().map(|request| request.end_unix_ns).max().unwrap_or(0);
        summary.duration_ms = last.saturating_sub(first) / 1_000_000;
        summary.p50_us = times.value_at_quantile(0.5);
        summary.p95_us = times.value_at_quantile(0.95);
        summary.p99_us = times.value_at_quantile(0.99);
        summary.p999_us = times.value_at_quantile(0.999);
        summary.max_us = times.max();
        summary.lateness_p99_us = lateness.value_at_quantile(0.99);
        Ok(summary)
    }
}

/// A finished load.
#[derive(Debug, Clone)]
pub struct LoadReport {
    /// Sums.
    pub summary: Summary,
    /// Every request, in the order they ended.
    pub requests: Vec<Request>,
}

const HEADER: &str = "start_unix_ns,issued_unix_ns,connected_unix_ns,end_unix_ns,status,bytes,outcome";

impl LoadReport {
    /// Writes `requests.csv` and `summary.json`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let mut text = String::with_capacity(100 * (self.requests.len() + 1));
        text.push_str(HEADER);
        text.push('\n');
        for request in &self.requests {
            let Request {
                start_unix_ns,
                issued_unix_ns,
                connected_unix_ns,
                end_unix_ns,
                status,
                bytes,
                outcome,
            } = request;
            let outcome = match outcome {
                Outcome::Answered => "answered",
                Outcome::TimedOut => "timed_out",
                Outcome::Broken => "broken",
            };
            writeln!(
                text,
                "{start_unix_ns},{issued_unix_ns},{connected_unix_ns},{end_unix_ns},{status},{bytes},{outcome}"
            )?;
        }
        std::fs::write(folder.join("requests.csv"), text)?;
        std::fs::write(folder.join("summary.json"), serde_json::to_vec_pretty(&self.summary)?)?;
        Ok(())
    }

    /// Reads what [`LoadReport::write`] wrote.
    pub fn read(folder: &Path) -> Result<Self> {
        let summary = serde_json::from_slice(&std::fs::read(folder.join("summary.json"))?)?;
        let text = std::fs::read_to_string(folder.join("requests.csv"))?;
        let requests = text
            .lines()
            .skip(1)
            .map(|line| parse(line).with_context(|| format!("line {line:?} of requests.csv")))
            .collect::<Result<_>>()?;
        Ok(Self { summary, requests })
    }
}

fn parse(line: &str) -> Option<Request> {
    let mut fields = line.split(',');
    Some(Request {
        start_unix_ns: fields.next()?.parse().ok()?,
        issued_unix_ns: fields.next()?.parse().ok()?,
        connected_unix_ns: fields.next()?.parse().ok()?,
        end_unix_ns: fields.next()?.parse().ok()?,
        status: fields.next()?.parse().ok()?,
        bytes: fields.next()?.parse().ok()?,
        outcome: match fields.next()? {
            "answered" => Outcome::Answered,
            "timed_out" => Outcome::TimedOut,
            "broken" => Outcome::Broken,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(time_ns: u64, status: u16, outcome: Outcome) -> Request {
        let start_unix_ns = 1_700_000_000_000_000_000;
        Request {
            start_unix_ns,
            issued_unix_ns: start_unix_ns + 1000,
            connected_unix_ns: 0,
            end_unix_ns: start_unix_ns + time_ns,
            status,
            bytes: 10,
            outcome,
        }
    }

    #[test]
    fn sums_and_lines_survive_the_files() {
        let requests = vec![
            request(2_000_000, 200, Outcome::Answered),
            request(1_000_000_001, 200, Outcome::Answered),
            request(5_000_000, 503, Outcome::Answered),
            request(20_000_000_000, 0, Outcome::TimedOut),
            request(1_000, 0, Outcome::Broken),
        ];
        let summary = Summary::of(&requests).unwrap();
        assert_eq!((summary.sent, summary.ok, summary.failed, summary.vlrt), (5, 2, 3, 2));
        let folder = tempfile::tempdir().unwrap();
        let report = LoadReport { summary, requests };
        report.write(folder.path()).unwrap();
        let read = LoadReport::read(folder.path()).unwrap();
        assert_eq!(read.requests, report.requests);
        assert_eq!(read.summary.vlrt, 2);
    }
}
