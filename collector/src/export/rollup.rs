//! Windows of one host as a second: max, mean and 90th percentile per row and signal, and the OpenMetrics text of it. A window that is
//! missing is left out; an entity that is missing in a window that is there did nothing, and counts as zero. Pure but for the text.

use super::rows::{Row, Rows};
use super::signals::{Combine, Form, Level, SIGNALS, each};
use super::{HostState, PER_SECOND, State, fresh};
use std::collections::BTreeMap;
use std::fmt::Write;
use tailwater_model::window::HostWindow;

/// One row and signal over several windows.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rolled {
    pub max: f64,
    pub mean: f64,
    /// Nine of ten windows were at or below.
    pub p90: f64,
}

/// Numerator and denominator of each window, and of the means.
#[derive(Debug, Clone)]
struct Sums {
    windows: Vec<(f64, f64)>,
    mean: (f64, f64),
}

/// Values of one window by row number and place in [`SIGNALS`]; counters as their increase.
#[must_use]
pub fn of_window(host: &HostState, window: &HostWindow) -> BTreeMap<(u32, usize), f64> {
    let mut sums: BTreeMap<(u32, usize), (f64, f64)> = BTreeMap::new();
    each(window, |level, id, seen| {
        let Some((row, seen)) = host.rows.of(level, id, seen) else { return };
        for (at, signal) in SIGNALS.iter().enumerate() {
            if signal.form == Form::Limit || !(signal.covered)(&host.coverage) {
                continue;
            }
            if let Some(parts) = signal.read.of(seen) {
                let sum = sums.entry((row, at)).or_default();
                *sum = signal.combine.with(*sum, parts);
            }
        }
    });
    // What did nothing did so in every signal that is a sum.
    for (number, row) in &host.rows.by_number {
        for (at, signal) in of_level(row.key.0) {
            if signal.combine == Combine::Sum
                && signal.form != Form::Limit
                && (signal.covered)(&host.coverage)
                && row.key.0 != Level::Host
            {
                sums.entry((*number, at)).or_insert((0.0, 1.0));
            }
        }
    }
    sums.into_iter().map(|(key, (over, under))| (key, over / under)).collect()
}

fn of_level(level: Level) -> impl Iterator<Item = (usize, &'static super::signals::Signal)> {
    SIGNALS.iter().enumerate().filter(move |(_, s)| s.read.level() == level)
}

/// The roll-up of these windows by row number and place in [`SIGNALS`].
#[must_use]
pub fn roll<'a>(
    host: &HostState,
    windows: impl Iterator<Item = &'a HostWindow>,
) -> BTreeMap<(u32, usize), Rolled> {
    let mut sums: BTreeMap<(u32, usize), Sums> = BTreeMap::new();
    let mut count = 0;
    for (n, window) in windows.enumerate() {
        count = n + 1;
        each(window, |level, id, seen| {
            let Some((row, seen)) = host.rows.of(level, id, seen) else { return };
            for (at, signal) in of_level(level) {
                if signal.form != Form::Level || !(signal.covered)(&host.coverage) {
                    continue;
                }
                let Some(parts) = signal.read.of(seen) else { continue };
                let sum =
                    sums.entry((row, at)).or_insert_with(|| Sums { windows: Vec::new(), mean: (0.0, 0.0) });
                sum.windows.resize(n + 1, (0.0, 0.0));
                let cell = &mut sum.windows[n];
                *cell = signal.combine.with(*cell, parts);
                let mean = signal.mean.as_ref().map_or(Some(parts), |read| read.of(seen));
                let mean = mean.unwrap_or_default();
                sum.mean = (sum.mean.0 + mean.0, sum.mean.1 + mean.1);
            }
        });
    }
    if count == 0 {
        return BTreeMap::new();
    }
    for (number, row) in &host.rows.by_number {
        for (at, signal) in of_level(row.key.0) {
            let idle =
                row.key.0 != Level::Host && signal.form == Form::Level && signal.combine == Combine::Sum;
            if idle && (signal.covered)(&host.coverage) {
                sums.entry((*number, at)).or_insert_with(|| Sums { windows: Vec::new(), mean: (0.0, 0.0) });
            }
        }
    }
    sums.into_iter()
        .filter_map(|((row, at), mut sum)| {
            sum.windows.resize(count, (0.0, 0.0));
            Some(((row, at), rolled(&sum, SIGNALS[at].combine, row_is_host(&host.rows, row))?))
        })
        .collect()
}

fn row_is_host(rows: &Rows, number: u32) -> bool {
    rows.by_number.get(&number).is_some_and(|row| row.key.0 == Level::Host)
}

fn rolled(sum: &Sums, combine: Combine, host: bool) -> Option<Rolled> {
    // Without a denominator: nothing happened to the entity in the window, or there is no value.
    let zero = combine == Combine::Sum && !host;
    let value =
        |(over, under): &(f64, f64)| if *under > 0.0 { Some(over / under) } else { zero.then_some(0.0) };
    let mut values: Vec<f64> = sum.windows.iter().filter_map(value).collect();
    values.sort_by(f64::total_cmp);
    let max = *values.last()?;
    let at = (values.len() * 9).div_ceil(10).saturating_sub(1);
    let count = if combine == Combine::Sum { values.len() as f64 } else { sum.mean.1 };
    Some(Rolled { max, mean: sum.mean.0 / count, p90: values.get(at).copied().unwrap_or(max) })
}

/// Labels of a row, without `agg` and `reason`, in the order in which they are told.
#[must_use]
pub fn labels(state: &State, host: &str, row: &Row) -> Vec<(&'static str, String)> {
    let (level, first, second) = &row.key;
    let mut labels = vec![("host", host.to_owned())];
    match level {
        Level::Host => {}
        Level::Device => labels.push(("device", first.clone())),
        Level::Workload | Level::Listener | Level::Call => {
            labels.push(("workload", first.clone()));
            if let Some(tier) = state.tiers.get(&(host.to_owned(), first.clone())) {
                labels.push(("tier", tier.clone()));
            }
        }
    }
    match level {
        Level::Listener => labels.push(("listener", second.clone())),
        Level::Call => labels.push(("remote", second.clone())),
        _ => {}
    }
    labels
}

fn text(own: &[(&'static str, String)], more: &[(&str, &str)]) -> String {
    let all: Vec<(&str, &str)> =
        own.iter().map(|(name, value)| (*name, value.as_str())).chain(more.iter().copied()).collect();
    crate::counters::labels(&all)
}

/// Appends the roll-up of the last `seconds` of every host.
pub fn render(state: &State, out: &mut String, seconds: u64, now_unix_ns: u64) {
    let mut families: Vec<String> = vec![String::new(); SIGNALS.len()];
    let mut windows_there = String::new();
    for (name, host) in &state.hosts {
        let newest = fresh(host, now_unix_ns);
        let first = newest.map_or(u64::MAX, |n| n.0.saturating_sub(seconds * PER_SECOND - 1));
        let windows = host.history.iter().map(AsRef::as_ref).filter(|w| w.index.0 >= first);
        if newest.is_some() {
            let count = windows.clone().count();
            let host = text(&[("host", name.clone())], &[]);
            let ratio = count as f64 / (seconds * PER_SECOND) as f64;
            let _ = writeln!(windows_there, "tailwater_windows_present_ratio{host} {ratio}");
        }
        let rolled = roll(host, windows);
        for (number, row) in &host.rows.by_number {
            let labels = labels(state, name, row);
            for (at, signal) in of_level(row.key.0) {
                let out = &mut families[at];
                if !(signal.covered)(&host.coverage) {
                    continue;
                }
                let exposed = signal.exposed_name();
                match signal.form {
                    Form::Counter => {
                        let more: Vec<_> = signal.label.into_iter().collect();
                        let _ = writeln!(out, "{exposed}{} {}", text(&labels, &more), row.kept[at]);
                    }
                    Form::Limit if newest.is_some() && row.kept[at] > 0.0 => {
                        let _ = writeln!(out, "{exposed}{} {}", text(&labels, &[]), row.kept[at]);
                    }
                    Form::Limit => {}
                    Form::Level => {
                        let Some(r) = rolled.get(&(*number, at)) else { continue };
                        for (agg, value) in [("max", r.max), ("mean", r.mean), ("p90", r.p90)] {
                            let _ = writeln!(out, "{exposed}{} {value}", text(&labels, &[("agg", agg)]));
                        }
                    }
                }
            }
        }
    }
    let _ = write!(
        out,
        "# TYPE tailwater_windows_present_ratio gauge\n# HELP tailwater_windows_present_ratio Windows behind the host's roll-up, of those that there should be.\n{windows_there}"
    );
    let mut before = "";
    for (signal, samples) in SIGNALS.iter().zip(families) {
        if signal.name != before {
            let kind = if signal.form == Form::Counter { "counter" } else { "gauge" };
            let _ = write!(
                out,
                "# TYPE tailwater_{0} {kind}\n# HELP tailwater_{0} {1}\n",
                signal.name, signal.about
            );
        }
        before = signal.name;
        out.push_str(&samples);
    }
}
