//! Windows and seconds as samples, gathered into one request: labels, names and times of series. Knows no receiver.

use super::config::Resolution;
use super::message::{Label, Sample, TimeSeries, WriteRequest, encode};
use crate::export::queue::Request;
use crate::export::rollup::{self, labels};
use crate::export::signals::{Form, SIGNALS, Signal};
use crate::export::{HostState, State};
use std::collections::HashMap;
use std::sync::Arc;
use tailwater_model::window::{HostWindow, WindowIndex};

/// Prometheus' marker of a series' end: this NaN, bit for bit.
pub(super) const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Values of `agg` in a second.
const AGGREGATES: [&str; 3] = ["max", "mean", "p90"];

/// Series of a request in the making: host, row, signal and `agg`.
type SeriesKey = (Arc<str>, u32, usize, &'static str);

/// See above.
#[derive(Debug, Default)]
pub(super) struct Batch {
    series: HashMap<SeriesKey, TimeSeries>,
    samples: usize,
}

impl Batch {
    /// How many are gathered.
    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    /// As it is sent.
    pub(super) fn request(self) -> Request {
        let request = WriteRequest { timeseries: self.series.into_values().collect() };
        Request { body: encode(&request).into(), samples: self.samples as u64 }
    }

    fn add(
        &mut self,
        (state, name, host): (&State, &Arc<str>, &HostState),
        (row, at): (u32, usize),
        agg: &'static str,
        sample: Sample,
    ) {
        let series = self.series.entry((Arc::clone(name), row, at, agg)).or_insert_with(|| TimeSeries {
            labels: host
                .rows
                .by_number
                .get(&row)
                .map(|row| series_labels(&SIGNALS[at], agg, labels(state, name, row)))
                .unwrap_or_default(),
            samples: Vec::new(),
        });
        series.samples.push(sample);
        self.samples += 1;
    }

    /// One window's values, at its start.
    pub(super) fn window(&mut self, state: &State, window: &HostWindow) {
        let Some(host) = state.hosts.get(&window.host) else { return };
        let name: Arc<str> = window.host.as_str().into();
        let timestamp = ms(window.index.start_unix_ns());
        for (key, value) in rollup::of_window(host, window) {
            self.add((state, &name, host), key, "window", Sample { value, timestamp });
        }
    }

    /// Says that a host's series end at this step (a window or a second), as the specification asks: else the last value is shown for
    /// minutes, and what is missing looks like what was measured.
    pub(super) fn stale(&mut self, state: &State, name: &str, resolution: Resolution, step: u64) {
        let Some(host) = state.hosts.get(name) else { return };
        let name: Arc<str> = name.into();
        let second = resolution == Resolution::Second;
        let timestamp = if second { end_of_second_ms(step) } else { ms(WindowIndex(step).start_unix_ns()) };
        let sample = Sample { value: STALE, timestamp };
        for (number, row) in &host.rows.by_number {
            for (at, signal) in SIGNALS.iter().enumerate() {
                if signal.read.level() != row.key.0 || !(signal.covered)(&host.coverage) {
                    continue;
                }
                let series: &[&'static str] = match (second, signal.form) {
                    (true, Form::Level) => &AGGREGATES,
                    (true, _) => &[""],
                    (false, Form::Limit) => &[],
                    (false, _) => &["window"],
                };
                for &agg in series {
                    self.add((state, &name, host), (*number, at), agg, sample);
                }
            }
        }
    }

    /// A second's roll-up, and counters and limits as they are, at its end.
    pub(super) fn second<'a>(
        &mut self,
        state: &State,
        name: &str,
        host: &HostState,
        windows: impl Iterator<Item = &'a HostWindow>,
        second: u64,
    ) {
        let name: Arc<str> = name.into();
        let timestamp = end_of_second_ms(second);
        for (key, rolled) in rollup::roll(host, windows) {
            for (agg, value) in AGGREGATES.into_iter().zip([rolled.max, rolled.mean, rolled.p90]) {
                self.add((state, &name, host), key, agg, Sample { value, timestamp });
            }
        }
        for (number, row) in &host.rows.by_number {
            for (at, signal) in SIGNALS.iter().enumerate() {
                let told = match signal.form {
                    Form::Level => false,
                    Form::Counter => true,
                    Form::Limit => row.kept[at] > 0.0,
                };
                if told && signal.read.level() == row.key.0 && (signal.covered)(&host.coverage) {
                    let sample = Sample { value: row.kept[at], timestamp };
                    self.add((state, &name, host), (*number, at), "", sample);
                }
            }
        }
    }
}

fn end_of_second_ms(second: u64) -> i64 {
    ms(second.saturating_add(1).saturating_mul(1_000_000_000))
}

fn ms(unix_ns: u64) -> i64 {
    i64::try_from(unix_ns / 1_000_000).unwrap_or(i64::MAX)
}

/// Sorted, with the name, as the specification asks.
fn series_labels(signal: &Signal, agg: &str, own: Vec<(&'static str, String)>) -> Vec<Label> {
    let name = match (signal.form, agg) {
        (Form::Counter, "window") => format!("tailwater_{}_delta", signal.name),
        _ => signal.exposed_name(),
    };
    let label = |name: &str, value: String| Label { name: name.to_owned(), value };
    let mut labels: Vec<Label> = own.into_iter().map(|(name, value)| label(name, value)).collect();
    labels.push(label("__name__", name));
    labels.extend(signal.label.map(|(name, value)| label(name, value.to_owned())));
    if !agg.is_empty() && signal.form == Form::Level {
        labels.push(label("agg", agg.to_owned()));
    }
    // No label is empty: an empty one is none.
    labels.retain(|l| !l.value.is_empty());
    labels.sort();
    labels
}
