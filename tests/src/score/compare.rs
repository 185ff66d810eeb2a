//! Two results side by side: what became better and what worse. Pure.

use crate::score::model::{Plan, Row};
use crate::score::results::Results;
use crate::score::totals::Share;
use anyhow::Result;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Smaller differences are called the same: shares to a tenth of a percent, times to a millisecond.
const SHARE_SAME: f64 = 0.001;
const TIME_SAME_MS: f64 = 1.0;

fn word(difference: f64, same: f64) -> &'static str {
    if difference.abs() < same {
        "same"
    } else if difference > 0.0 {
        "better"
    } else {
        "worse"
    }
}

/// Everything about it is right.
fn right(row: &Row) -> bool {
    row.kind_right
        && row.root_right
        && row.resource_right
        && row.culprit_right != Some(false)
        && row.drops_right
        && row.extra.is_empty()
}

fn of_cell(results: &Results, cell: &str) -> Share {
    let rows = results.rows.iter().filter(|row| row.cell == cell && row.plan == Plan::AsPlanned);
    rows.fold(Share::default(), |share, row| Share {
        right: share.right + u64::from(right(row)),
        of: share.of + 1,
    })
}

/// A Markdown table of totals, then one of the cells whose share of wholly right injections differs.
pub fn compare(old: &Results, new: &Results) -> Result<String> {
    let mut out = String::new();
    writeln!(out, "| total | {} | {} | |\n|---|---|---|---|", old.label, new.label)?;
    let (a, b) = (&old.totals, &new.totals);
    for (name, a, b) in [
        ("recall", a.recall, b.recall),
        ("precision", a.precision, b.precision),
        ("kind", a.kind, b.kind),
        ("root", a.root, b.root),
        ("resource", a.resource, b.resource),
        ("culprit", a.culprit, b.culprit),
        ("dropping tier", a.drops_at, b.drops_at),
    ] {
        let (a, b) = (a.ratio(), b.ratio());
        writeln!(out, "| {name} | {a:.3} | {b:.3} | {} |", word(b - a, SHARE_SAME))?;
    }
    for (name, a, b) in [
        ("drops, relative error", a.dropped, b.dropped),
        ("connections, relative error", a.connections, b.connections),
        ("VLRT, relative error", a.vlrt, b.vlrt),
    ] {
        let error = |[counted, real]: [u64; 2]| (counted as f64 / real.max(1) as f64 - 1.0).abs();
        let (a, b) = (error(a), error(b));
        writeln!(out, "| {name} | {a:.3} | {b:.3} | {} |", word(a - b, SHARE_SAME))?;
    }
    for (name, a, b) in [
        ("onset error, ms, median", a.onset_error_ms.median, b.onset_error_ms.median),
        ("onset error, ms, p95", a.onset_error_ms.p95, b.onset_error_ms.p95),
        ("alert, ms, median", a.alert_ms.median, b.alert_ms.median),
        ("verdict, ms, p95", a.verdict_ms.p95, b.verdict_ms.p95),
    ] {
        writeln!(out, "| {name} | {a:.0} | {b:.0} | {} |", word(a - b, TIME_SAME_MS))?;
    }
    writeln!(out, "\n| cell, wholly right | {} | {} | |\n|---|---|---|---|", old.label, new.label)?;
    let cells: BTreeSet<&str> = old.rows.iter().chain(&new.rows).map(|row| row.cell.as_str()).collect();
    for cell in cells {
        let (a, b) = (of_cell(old, cell), of_cell(new, cell));
        let change = word(b.ratio() - a.ratio(), SHARE_SAME);
        if change != "same" || a.of == 0 || b.of == 0 {
            writeln!(out, "| {cell} | {}/{} | {}/{} | {change} |", a.right, a.of, b.right, b.of)?;
        }
    }
    Ok(out)
}
