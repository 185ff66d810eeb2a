//! The signals of a recording as one table: a row for each window, a column for each host, kind of entity and metric. What a method that
//! knows nothing of queues and calls can be given. Owns how entities of a host become one column; knows no injection and no method.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::BufRead;
use tailwater_proto::columnar::TableValues;
use tailwater_proto::trace::TraceReader;
use tailwater_proto::v1::{EntityKind, Metric, agent_message::Body as Said, trace_record::Body};

/// Length of a window, ns.
const WINDOW_NS: u64 = 50_000_000;

/// A table of numbers over time.
#[derive(Debug, Default)]
pub struct Signals {
    /// By index of the window since the epoch, then by column. A metric that its agent did not measure in a window has no value there.
    windows: BTreeMap<u64, BTreeMap<String, u64>>,
    hosts: BTreeSet<String>,
}

/// Whether values of several entities of a host are added, or the largest of them counts.
fn adds(metric: Metric) -> bool {
    !metric.as_str_name().contains("_MAX")
}

/// A moment, and no quantity.
fn is_moment(metric: Metric) -> bool {
    metric.as_str_name().ends_with("_UNIX_NS")
}

impl Signals {
    /// Of a recording.
    pub fn read(trace: impl BufRead) -> Result<Self> {
        let mut all = Self::default();
        for record in TraceReader::new(trace)? {
            let Some(Body::Arrival(arrival)) = record?.body else { continue };
            let shift = arrival.window_shift.unwrap_or(0);
            let Some(Said::Batch(batch)) = arrival.message.and_then(|message| message.body) else { continue };
            all.hosts.insert(arrival.host.clone());
            for table in &batch.tables {
                let kind = EntityKind::try_from(table.kind).context("a kind of entity that is not known")?;
                let values = TableValues::decode(table, batch.window_count)?;
                for n in 0..u64::from(batch.window_count) {
                    let window = batch.first_window.saturating_add_signed(shift) + n;
                    all.take(window, &arrival.host, kind, &values, n as usize);
                }
            }
        }
        ensure!(!all.windows.is_empty(), "the recording has no window");
        Ok(all)
    }

    fn take(&mut self, window: u64, host: &str, kind: EntityKind, values: &TableValues, at: usize) {
        let row = self.windows.entry(window).or_default();
        for (metric, bucket, column) in values.columns() {
            let Ok(metric) = Metric::try_from(metric) else { continue };
            // What a histogram's buckets hold is in the sums beside it.
            if bucket != 0 || metric.as_str_name().ends_with("_HIST") || is_moment(metric) {
                continue;
            }
            let of = values.rows().map(|(_, row)| column[row * values.windows() + at]);
            let value = if adds(metric) { of.sum() } else { of.max().unwrap_or(0) };
            // The methods take what is before the first `_` for the service, and what is before the second for the metric.
            let short =
                |name: &str, prefix: &str| name.trim_start_matches(prefix).to_lowercase().replace('_', "-");
            let kind = short(kind.as_str_name(), "ENTITY_KIND_");
            row.insert(format!("{host}_{kind}-{}", short(metric.as_str_name(), "METRIC_")), value);
        }
    }

    /// How many hosts tell something.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Comma separated, with a column `time` in seconds since the epoch at which a window begins. A column that lacks in some window stays
    /// empty there; one that never changes is left out, as it tells nothing.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut seen: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
        for (name, value) in self.windows.values().flatten() {
            let (first, changes) = seen.entry(name).or_insert((*value, false));
            *changes |= first != value;
        }
        let columns: Vec<&str> =
            seen.iter().filter(|(_, (_, changes))| *changes).map(|(name, _)| *name).collect();
        let mut out = format!("time,{}\n", columns.join(","));
        for (window, row) in &self.windows {
            let begin_ms = window * (WINDOW_NS / 1_000_000);
            let _ = write!(out, "{}.{:03}", begin_ms / 1000, begin_ms % 1000);
            for column in &columns {
                let _ = match row.get(*column) {
                    Some(value) => write!(out, ",{value}"),
                    None => write!(out, ","),
                };
            }
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::golden::Golden;
    use std::path::Path;

    #[test]
    fn a_recording_becomes_a_table_with_a_row_each_50_ms_and_the_hosts_in_its_columns() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
        let golden = Golden::of(&folder, "nx0-db-cpu");
        let csv = Signals::read(golden.read().unwrap().as_slice()).unwrap().csv();
        let mut lines = csv.lines();
        let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(columns[0], "time");
        for wanted in
            ["db-1_host-cpu-busy-ns", "web-1_listener-accept-queue-depth-max", "app-1_edge-calls-started"]
        {
            assert!(columns.contains(&wanted), "{wanted} is not in {columns:?}");
        }
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        assert!(rows.len() > 100, "{} windows", rows.len());
        assert!(rows.iter().all(|row| row.len() == columns.len()));
        let ms: Vec<u64> = rows.iter().map(|row| row[0].replace('.', "").parse().unwrap()).collect();
        assert!(ms.windows(2).all(|pair| pair[1] - pair[0] == 50), "no window lacks");
        // The injected neighbour fills the database's CPU, and nobody else's: the column says so at the injection's begin and not before.
        let at = columns.iter().position(|c| *c == "db-1_host-cpu-busy-ns").unwrap();
        let begin_ms = golden.injection().unwrap().truth.start_unix_ns / 1_000_000;
        let busy = |from: u64, to: u64| -> f64 {
            let of: Vec<f64> = (0..rows.len())
                .filter(|n| (from..to).contains(&ms[*n]))
                .map(|n| rows[n][at].parse::<f64>().unwrap_or(0.0))
                .collect();
            of.iter().sum::<f64>() / of.len() as f64
        };
        let (before, during) = (busy(begin_ms - 2000, begin_ms - 100), busy(begin_ms + 100, begin_ms + 600));
        assert!(during > before * 1.3, "{before} before, {during} during");
    }
}
