//! One tier: every signal over its last seconds, each column the worst of its windows. Pure.

use super::ink::{self, BAD, FAINT, PLAIN, Pen, TITLE, WARN};
use crate::tui::answers::Key;
use crate::tui::signals::{SIGNALS, Signal, Unit, Values};
use crate::tui::state::State;
use crate::tui::tiers::{self, Row};
use std::collections::BTreeSet;
use tailwater_model::civil::Civil;
use tailwater_model::responses::{COARSE_US, OPEN_US};

const NAME: usize = 17;
const VALUE: usize = 9;

/// Columns of a sparkline.
pub(super) fn columns(screen: usize) -> usize {
    screen.saturating_sub(1 + NAME + 1 + 2 * (VALUE + 1) + 1).clamp(1, 400)
}

pub(super) fn draw(pen: &mut Pen<'_>, state: &State, key: &Key) {
    let rows = tiers::rows(state);
    let row = rows.iter().find(|r| r.key == *key);
    head(pen, state, key, row);
    let screen = pen.columns();
    let wide = columns(screen);
    let values_at = 1 + NAME + 1;
    let spark_at = values_at + 2 * (VALUE + 1);
    if let Some(why) = &state.refused {
        return pen.at(1, 3, screen - 2, &format!("The collector says: {why}"), WARN);
    }
    let Some(signals) = state.signals.as_ref().filter(|s| s.ask.tier == *key) else {
        return pen.at(1, 3, screen - 2, "Asking for its signals …", FAINT);
    };
    let ms = signals.column_ns / 1_000_000;
    pen.at(1, 2, NAME, &format!("{ms} ms a column"), FAINT);
    pen.right(values_at, 2, VALUE, "NEWEST", FAINT);
    pen.right(values_at + VALUE + 1, 2, VALUE, "WORST", FAINT);
    let end = signals.start_unix_ns + signals.column_ns * signals.ask.columns as u64;
    pen.at(spark_at, 2, wide, &Civil::of(signals.start_unix_ns).time_ms(), FAINT);
    pen.right(spark_at, 2, wide, &Civil::of(end).time_ms(), FAINT);
    let agent = state.agent(&key.host);
    for (n, (signal, values)) in SIGNALS.iter().zip(&signals.values).enumerate() {
        let line = 3 + n;
        pen.at(1, line, NAME, signal.name, PLAIN);
        if let Some(why) = agent.and_then(|a| tiers::untold(a, signal.metric)) {
            pen.at(values_at + 2, line, screen - values_at - 3, &why, FAINT);
            continue;
        }
        let limit = row.and_then(|r| limit(signal, r));
        let worst = values.worst.iter().flatten().copied().reduce(f64::max);
        let newest = values.worst.iter().rev().flatten().next().copied();
        let tone = match (signal.unit, worst) {
            (Unit::Events, Some(n)) if n > 0.0 => BAD,
            (_, Some(worst)) if limit.is_some() => ink::tone(limit.map(|l| worst / l)),
            _ => PLAIN,
        };
        pen.right(values_at, line, VALUE, &newest.map_or("-".into(), |v| value(signal.unit, v)), PLAIN);
        pen.right(values_at + VALUE + 1, line, VALUE, &told(signal, values, worst, limit), tone);
        let least = if signal.unit == Unit::Ratio { 1.0 } else { 0.0 };
        let full = worst.unwrap_or(0.0).max(limit.unwrap_or(0.0)).max(least);
        pen.at(spark_at, line, wide, &ink::spark(&values.worst, full), tone);
    }
}

fn head(pen: &mut Pen<'_>, state: &State, key: &Key, row: Option<&Row>) {
    let screen = pen.columns();
    let name = if key.workload.is_empty() { "(no workload known)" } else { &key.workload };
    pen.at(1, 0, screen - 2, &ink::place(name, &key.host, screen - 2), TITLE);
    let view = state.topology.as_ref();
    let node = view.and_then(|v| v.nodes.iter().find(|n| n.host == key.host && n.workload == key.workload));
    let mut facts = Vec::new();
    if let Some(node) = node {
        facts.push(format!("tier {}", node.tier));
        facts.push(if node.listeners.is_empty() {
            "calls only".to_owned()
        } else {
            node.listeners.join(" ")
        });
    }
    let calls: BTreeSet<&str> = view
        .map_or(&[][..], |v| &v.edges)
        .iter()
        .filter(|e| e.from_host == key.host && e.from_workload == key.workload)
        .map(|e| e.remote.as_str())
        .collect();
    if !calls.is_empty() {
        facts.push(format!("→ {}", calls.into_iter().collect::<Vec<_>>().join(" ")));
    }
    if let Some(why) = row.and_then(|r| r.silent.as_ref()) {
        return pen.at(1, 1, screen - 2, &format!("{why}: what follows is old"), WARN);
    }
    pen.at(1, 1, screen - 2, &facts.join("   "), FAINT);
}

fn limit(signal: &Signal, row: &Row) -> Option<f64> {
    match signal.metric {
        "accept_queue_depth" => row.accept.limit,
        "workers_busy" => row.workers.limit,
        "calls_in_flight" => row.pool.limit,
        _ => None,
    }
}

/// The worst window, against its limit; of events, all of them.
fn told(signal: &Signal, values: &Values, worst: Option<f64>, limit: Option<f64>) -> String {
    match (worst, limit) {
        (None, _) => "-".to_owned(),
        (Some(_), _) if signal.unit == Unit::Events => format!("{} all", ink::number(values.total)),
        (Some(worst), Some(limit)) => format!("{worst:.0}/{limit:.0}"),
        (Some(worst), None) => value(signal.unit, worst),
    }
}

fn value(unit: Unit, value: f64) -> String {
    /// Windows in a second.
    const PER_SECOND: f64 = 20.0;
    /// Where only a bound is known, what is told is a hair above it.
    const BOUNDS_MS: [f64; 2] = [COARSE_US as f64 / 1e3, OPEN_US as f64 / 1e3];
    let bound = BOUNDS_MS.into_iter().find(|bound| value > *bound && value <= bound.next_up());
    if matches!(unit, Unit::Quantile)
        && let Some(bound) = bound
    {
        return format!(">{bound:.0} ms");
    }
    match unit {
        Unit::Ratio => ink::percent(value),
        Unit::Count | Unit::Events => ink::number(value),
        Unit::Rate => format!("{}/s", ink::number(value * PER_SECOND)),
        Unit::Bytes => format!("{}B/s", ink::number(value * PER_SECOND)),
        Unit::Ms | Unit::Quantile => format!("{} ms", ink::number(value)),
    }
}
