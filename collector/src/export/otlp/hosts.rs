//! The hosts' roll-ups as data points: one interval of a host at a time, in order, each once. Runs on the export thread; knows no
//! receiver.
//!
//! An interval is told once its windows are there and the tiers of new workloads are known, or once no more of them come. Gauges are of the
//! interval; counters and limits are as the newest window left them, and say so by their time.

use super::message::{Batch, Head, Kind, point, text, ucum};
use crate::export::queue::Queue;
use crate::export::rollup::{self, labels};
use crate::export::rows::Row;
use crate::export::signals::{Form, SIGNALS};
use crate::export::{HostState, PER_SECOND, STALE_NS, State};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tailwater_model::window::WindowIndex;

/// An interval is told this long after its end: by then the tier of a workload that is new is known. A host of which no further window came
/// for as long has no more of them to wait for.
const DELAY_NS: u64 = 2_000_000_000;
/// An end comes this much after the last value, so that no two points of a series have one time.
const AFTER_NS: u64 = 1_000_000;
/// Values of `agg`.
const AGGREGATES: [&str; 3] = ["max", "mean", "p90"];

/// How far a host is told.
#[derive(Debug)]
struct Progress {
    /// Its newest window, and when that came, Unix ns.
    newest: WindowIndex,
    since_unix_ns: u64,
    /// The newest interval that was told.
    told: Option<u64>,
    /// The window that what lasts was told as of: nothing is told twice with one time.
    lasting: Option<WindowIndex>,
    /// Its series were ended because nothing more came.
    silent: bool,
}

/// When series end, Unix ns.
#[derive(Debug, Clone, Copy)]
struct Ended {
    levels: u64,
    /// Counters and limits; `None`: they do not.
    totals: Option<u64>,
}

/// What goes into the queue of metrics.
#[derive(Debug)]
pub struct Sink {
    /// Windows of an interval.
    per: u64,
    batch: Batch,
    queue: Arc<Queue>,
    hosts: BTreeMap<String, Progress>,
    /// As [`SIGNALS`].
    heads: Vec<Head>,
    present: Head,
}

impl Sink {
    pub(super) fn new(interval_seconds: u64, common: Vec<KeyValue>, queue: Arc<Queue>) -> Self {
        let head = |name: &str, about: &str, unit: &str, counter: bool| Head {
            name: format!("tailwater_{name}"),
            about: about.to_owned(),
            unit: ucum(unit),
            kind: if counter { Kind::Counter } else { Kind::Gauge },
        };
        let about = "Windows behind the host's roll-up, of those that there should be.";
        Self {
            per: interval_seconds.max(1) * PER_SECOND,
            batch: Batch::new(common),
            queue,
            hosts: BTreeMap::new(),
            heads: SIGNALS.iter().map(|s| head(s.name, s.about, s.unit, s.form == Form::Counter)).collect(),
            present: head("windows_present_ratio", about, "ratio", false),
        }
    }

    /// Queues what is due at `now_unix_ns`.
    ///
    /// `last`: there will be no other turn, so all that is there is due.
    pub fn turn(&mut self, state: &State, now_unix_ns: u64, last: bool) {
        self.hosts.retain(|name, _| state.hosts.contains_key(name));
        for (name, host) in &state.hosts {
            self.host(state, name, host, (now_unix_ns, last));
        }
        for request in self.batch.requests() {
            self.queue.push(request);
        }
    }

    fn host(&mut self, state: &State, name: &str, host: &HostState, (now_unix_ns, last): (u64, bool)) {
        let Some(newest) = host.history.back().map(|w| w.index) else { return };
        let fresh =
            || Progress { newest, since_unix_ns: now_unix_ns, told: None, lasting: None, silent: false };
        let mut of = self.hosts.remove(name).unwrap_or_else(fresh);
        if newest != of.newest {
            (of.newest, of.since_unix_ns) = (newest, now_unix_ns);
        }
        let due = WindowIndex::at(now_unix_ns.saturating_sub(DELAY_NS)).0;
        let quiet = now_unix_ns.saturating_sub(of.since_unix_ns) >= DELAY_NS;
        let before = of.told;
        loop {
            let next =
                host.history.partition_point(|w| of.told.is_some_and(|told| w.index.0 / self.per <= told));
            let Some(step) = host.history.get(next).map(|w| w.index.0 / self.per) else { break };
            let end = self.end(step).0;
            if !last && (end > due || (newest.0 + 1 < end && !quiet)) {
                break;
            }
            let missed = of.told.filter(|told| step > told + 1 && !of.silent);
            if let Some(told) = missed {
                // Totals go on.
                self.ended(
                    state,
                    name,
                    host,
                    Ended { levels: self.end(told + 1).start_unix_ns(), totals: None },
                );
            }
            self.interval(state, name, host, step);
            (of.told, of.silent) = (Some(step), false);
        }
        if of.told != before && of.lasting != Some(newest) {
            of.lasting = Some(newest);
            self.lasting(state, name, host, newest.end_unix_ns());
        }
        let gone = now_unix_ns.saturating_sub(newest.end_unix_ns()) > STALE_NS;
        if gone && !of.silent && of.told == Some(newest.0 / self.per) {
            of.silent = true;
            // Just after what was told last: windows that come later all the same are told with their own, later times.
            let levels = self.end(of.told.unwrap_or_default()).start_unix_ns().saturating_add(AFTER_NS);
            let totals = Some(newest.end_unix_ns().saturating_add(AFTER_NS));
            self.ended(state, name, host, Ended { levels, totals });
        }
        self.hosts.insert(name.to_owned(), of);
    }

    /// The window after an interval.
    fn end(&self, step: u64) -> WindowIndex {
        WindowIndex(step.saturating_add(1).saturating_mul(self.per))
    }

    /// What is rolled up: gauges of an interval.
    fn interval(&mut self, state: &State, name: &str, host: &HostState, step: u64) {
        let end = self.end(step);
        let time = (WindowIndex(end.0.saturating_sub(self.per)).start_unix_ns(), end.start_unix_ns());
        let per = self.per;
        let windows = host.history.iter().map(AsRef::as_ref).filter(|w| w.index.0 / per == step);
        let ratio = windows.clone().count() as f64 / per as f64;
        let own = vec![text("host", name)];
        self.batch.add(name, &self.present, point(own, time, Some(Value::AsDouble(ratio))));
        let mut row: Option<(u32, Vec<KeyValue>)> = None;
        for ((number, at), rolled) in rollup::roll(host, windows) {
            if row.as_ref().is_none_or(|(known, _)| *known != number) {
                let Some(found) = host.rows.by_number.get(&number) else { continue };
                row = Some((number, attributes(state, name, found)));
            }
            let Some((_, own)) = &row else { continue };
            for (agg, value) in AGGREGATES.into_iter().zip([rolled.max, rolled.mean, rolled.p90]) {
                let point = point(with(own, ("agg", agg)), time, Some(Value::AsDouble(value)));
                self.batch.add(name, &self.heads[at], point);
            }
        }
    }

    /// What lasts: counters and limits, as they are at `to_unix_ns`.
    fn lasting(&mut self, state: &State, name: &str, host: &HostState, to_unix_ns: u64) {
        for row in host.rows.by_number.values() {
            let own = attributes(state, name, row);
            for (at, signal) in SIGNALS.iter().enumerate() {
                if signal.read.level() != row.key.0 || !(signal.covered)(&host.coverage) {
                    continue;
                }
                let kept = row.kept[at];
                let (from, value, all) = match signal.form {
                    Form::Counter => {
                        let from = WindowIndex(row.first).start_unix_ns();
                        // Sums of whole numbers: exact up to 2^53, which no window adds up to.
                        (from, Value::AsInt(kept as i64), labelled(&own, signal.label))
                    }
                    Form::Limit if kept > 0.0 => (0, Value::AsDouble(kept), own.clone()),
                    Form::Limit | Form::Level => continue,
                };
                self.batch.add(name, &self.heads[at], point(all, (from, to_unix_ns), Some(value)));
            }
        }
    }

    /// Says that series of a host end, so that what is missing does not look like what was measured last.
    fn ended(&mut self, state: &State, name: &str, host: &HostState, ended: Ended) {
        let time = (0, ended.levels);
        self.batch.add(name, &self.present, point(vec![text("host", name)], time, None));
        for row in host.rows.by_number.values() {
            let own = attributes(state, name, row);
            for (at, signal) in SIGNALS.iter().enumerate() {
                if signal.read.level() != row.key.0 || !(signal.covered)(&host.coverage) {
                    continue;
                }
                if signal.form == Form::Level {
                    for agg in AGGREGATES {
                        self.batch.add(name, &self.heads[at], point(with(&own, ("agg", agg)), time, None));
                    }
                } else if let Some(totals) = ended.totals {
                    let point = point(labelled(&own, signal.label), (0, totals), None);
                    self.batch.add(name, &self.heads[at], point);
                }
            }
        }
    }
}

/// The labels of a row.
fn attributes(state: &State, host: &str, row: &Row) -> Vec<KeyValue> {
    let all = labels(state, host, row).into_iter().filter(|(_, value)| !value.is_empty());
    all.map(|(name, value)| text(name, value)).collect()
}

fn with(own: &[KeyValue], (name, value): (&str, &str)) -> Vec<KeyValue> {
    let more = text(name, value);
    own.iter().cloned().chain([more]).collect()
}

fn labelled(own: &[KeyValue], label: Option<(&str, &str)>) -> Vec<KeyValue> {
    label.map_or_else(|| own.to_vec(), |label| with(own, label))
}

#[cfg(test)]
#[path = "hosts_tests.rs"]
mod tests;
