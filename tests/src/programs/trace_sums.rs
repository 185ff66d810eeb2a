//! Sums over a recorded trace: what one listener's column adds up to, and which windows of a host are there. Reads the wire
//! messages themselves, so that it judges the agent and not the collector.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use tailwater_proto::columnar::TableValues;
use tailwater_proto::trace::{TraceError, TraceReader};
use tailwater_proto::v1::{Arrival, EntityKind, Metric, agent_message, trace_record};

/// What a trace says of one listening port of one host.
#[derive(Debug, Default)]
pub struct ListenerSums {
    /// Value of each metric number, summed over windows.
    pub sums: BTreeMap<i32, u64>,
    /// Largest value of each metric number.
    pub maxima: BTreeMap<i32, u64>,
}

impl ListenerSums {
    /// Sum of a metric; 0 if it never came.
    #[must_use]
    pub fn sum(&self, metric: Metric) -> u64 {
        self.sums.get(&(metric as i32)).copied().unwrap_or(0)
    }

    /// Maximum of a metric; 0 if it never came.
    #[must_use]
    pub fn max(&self, metric: Metric) -> u64 {
        self.maxima.get(&(metric as i32)).copied().unwrap_or(0)
    }
}

/// Windows and listeners of every host in a trace.
#[derive(Debug, Default)]
pub struct TraceSums {
    /// By host and port.
    pub listeners: BTreeMap<(String, u32), ListenerSums>,
    /// Window indices by host.
    pub windows: BTreeMap<String, BTreeSet<u64>>,
    /// Windows that agents reported as lost, by host.
    pub lost: BTreeMap<String, u64>,
}

impl TraceSums {
    /// Reads the trace at `path`, which may still be growing.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let mut sums = Self::default();
        let mut ports: BTreeMap<(String, u32), u32> = BTreeMap::new();
        for record in TraceReader::new(BufReader::new(file))? {
            let record = match record {
                Err(TraceError::TornTail { .. }) => break,
                other => other?,
            };
            let Some(trace_record::Body::Arrival(arrival)) = record.body else { continue };
            sums.add(&arrival, &mut ports)?;
        }
        Ok(sums)
    }

    fn add(&mut self, arrival: &Arrival, ports: &mut BTreeMap<(String, u32), u32>) -> Result<()> {
        let host = &arrival.host;
        match arrival.message.as_ref().and_then(|message| message.body.as_ref()) {
            Some(agent_message::Body::Entities(entities)) => {
                for listener in &entities.listeners {
                    ports.insert((host.clone(), listener.id), listener.port);
                }
            }
            Some(agent_message::Body::Batch(batch)) => {
                let windows = self.windows.entry(host.clone()).or_default();
                let last = batch.first_window + u64::from(batch.window_count);
                windows.extend(batch.first_window..last);
                *self.lost.entry(host.clone()).or_default() += batch.windows_lost;
                for table in &batch.tables {
                    if table.kind != EntityKind::Listener as i32 {
                        continue;
                    }
                    let values = TableValues::decode(table, batch.window_count)?;
                    for id in &table.entities {
                        let Some(port) = ports.get(&(host.clone(), *id)) else { continue };
                        let kept = self.listeners.entry((host.clone(), *port)).or_default();
                        for column in &table.columns {
                            let Ok(metric) = Metric::try_from(column.metric) else { continue };
                            for window in 0..batch.window_count as usize {
                                let value = values.bucket(*id, window, metric, column.bucket).unwrap_or(0);
                                *kept.sums.entry(column.metric).or_default() += value;
                                let max = kept.maxima.entry(column.metric).or_default();
                                *max = value.max(*max);
                            }
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
