//! The overview: every tier in one line, and the last incidents. Pure.

use super::ink::{self, BAD, CURSOR, FAINT, PLAIN, Pen, TITLE, WARN};
use crate::tui::feed::SECONDS;
use crate::tui::state::{Focus, Sort, State};
use crate::tui::tiers::{self, Depth, Row};
use tailwater_model::Incident;
use tailwater_model::civil::Civil;
use tailwater_model::incident::{DropReason, Severity, State as IncidentState};

/// Where each column of the table begins, and how wide it is.
struct Columns {
    name: (usize, usize),
    bar: (usize, usize),
    depth: (usize, usize),
    workers: (usize, usize),
    pool: (usize, usize),
    cpu: (usize, usize),
    waits: (usize, usize),
    spark: (usize, usize),
    drops: (usize, usize),
}

impl Columns {
    /// At 80 columns everything has its least width; what is left goes to names, bars and windows.
    fn of(columns: usize) -> Self {
        let extra = columns.saturating_sub(80);
        let name = 16 + (extra / 4).min(24);
        let bar = 5 + (extra / 5).min(15);
        let spark = (12 + extra - (extra / 4).min(24) - (extra / 5).min(15)).min(100);
        let mut next = 1;
        let mut column = |width: usize| {
            let begin = next;
            next += width + 1;
            (begin, width)
        };
        Self {
            name: column(name),
            bar: column(bar),
            depth: column(7),
            workers: column(7),
            pool: column(7),
            cpu: column(4),
            waits: column(8),
            spark: column(spark),
            drops: column(5),
        }
    }
}

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let rows = tiers::rows(state);
    let incidents = state.incidents();
    // A third for incidents, more where tiers leave room, and always some.
    let lines = pen.lines();
    let least = (lines / 3).min(incidents.len().max(1) + 1);
    let tier_lines = (rows.len().max(1) + 2).min(lines - least.max(2));
    tier_table(pen, state, &rows, tier_lines);
    incident_list(pen, state, incidents, tier_lines);
}

fn heading(pen: &mut Pen<'_>, line: usize, name: &str, about: &str, focus: bool) {
    let columns = pen.columns();
    pen.at(0, line, columns, &"─".repeat(columns), FAINT);
    pen.at(1, line, name.len() + 2, &format!(" {name} "), if focus { TITLE } else { PLAIN });
    if !about.is_empty() {
        let about = format!(" {about} ");
        pen.right(name.len() + 4, line, columns - name.len() - 6, &about, FAINT);
    }
}

/// ` 12 to 20 of 40`, when not all are seen.
fn part(first: usize, lines: usize, count: usize) -> String {
    if count <= lines {
        String::new()
    } else {
        format!("{} to {} of {count}", first + 1, (first + lines).min(count))
    }
}

fn tier_table(pen: &mut Pen<'_>, state: &State, rows: &[Row], lines: usize) {
    let focus = state.focus == Focus::Tiers;
    let (cursor, body) = (state.tier_at(rows), lines.saturating_sub(2));
    let top = ink::first(cursor, body, rows.len());
    let order = if state.sort == Sort::Fullness { "fullest first" } else { "by name" };
    let about =
        [part(top, body, rows.len()), order.to_owned(), format!("worst 50 ms of the last {SECONDS} s")];
    let about: Vec<String> = about.into_iter().filter(|text| !text.is_empty()).collect();
    heading(pen, 0, "Tiers", &about.join(", "), focus);
    let at = Columns::of(pen.columns());
    let titles = [
        (at.name, "TIER@HOST"),
        ((at.bar.0, at.bar.1 + 8), "ACCEPT QUEUE"),
        (at.workers, "WORKERS"),
        (at.pool, "POOL"),
        (at.cpu, "CPU"),
        (at.waits, "WAITING"),
        (at.spark, "EVERY 50 ms"),
        (at.drops, "DROPS"),
    ];
    for ((column, width), title) in titles {
        pen.at(column, 1, width, title, FAINT);
    }
    if rows.is_empty() {
        let text = if state.topology.is_some() { "No tier is known." } else { "Tiers are not known yet." };
        pen.at(1, 2, 70, text, FAINT);
    }
    for (n, row) in rows.iter().enumerate().skip(top).take(body) {
        let line = 2 + n - top;
        tier_line(pen, &at, row, line);
        if focus && n == cursor {
            pen.line(line, CURSOR);
            pen.at(0, line, 1, ">", CURSOR);
        }
    }
}

fn tier_line(pen: &mut Pen<'_>, at: &Columns, row: &Row, line: usize) {
    let host = &row.key.host;
    pen.at(at.name.0, line, at.name.1, &ink::place(&row.tier, host, at.name.1), PLAIN);
    if let Some(why) = &row.silent {
        let room = pen.columns() - at.bar.0;
        pen.at(at.bar.0, line, room, why, WARN);
        return;
    }
    let ratio = row.accept.ratio();
    if let Some(ratio) = ratio {
        pen.at(at.bar.0, line, at.bar.1, &ink::bar(ratio, at.bar.1), ink::tone(Some(ratio)));
    }
    for ((column, width), depth) in [(at.depth, row.accept), (at.workers, row.workers), (at.pool, row.pool)] {
        pen.at(column, line, width, &of_limit(depth, width), ink::tone(depth.ratio()));
    }
    pen.right(at.cpu.0, line, at.cpu.1, &row.cpu.map_or("-".to_owned(), ink::percent), cpu_tone(row.cpu));
    let waits = row.waits.map_or("-".to_owned(), |w| match ink::number(w.tasks) {
        zero if zero == "0" => zero,
        tasks => format!("{tasks} {}", w.on),
    });
    pen.at(at.waits.0, line, at.waits.1, &waits, PLAIN);
    // As many waiting tasks as CPUs fill it: from there on more waits than runs.
    let worst = row.saturation.iter().flatten().copied().fold(0.0, f64::max);
    let newest = row.saturation.len().saturating_sub(at.spark.1);
    let windows = &row.saturation[newest..];
    pen.at(at.spark.0, line, at.spark.1, &ink::spark(windows, worst.max(f64::from(row.cpus.max(1)))), PLAIN);
    let (drops, tone) = match row.drops {
        None => ("-".to_owned(), FAINT),
        Some(n) if n > 0.0 => (ink::number(n), BAD),
        Some(_) => ("0".to_owned(), FAINT),
    };
    pen.right(at.drops.0, line, at.drops.1, &drops, tone);
}

/// Full CPU with nobody waiting is busy, not saturated: it is never red.
fn cpu_tone(ratio: Option<f64>) -> ratatui::style::Style {
    if ratio.is_some_and(|r| r >= 0.9) { WARN } else { PLAIN }
}

/// `129/128`, `7/?` where no limit is known, `-` where nothing is.
fn of_limit(depth: Depth, columns: usize) -> String {
    let Some(worst) = depth.worst else { return "-".to_owned() };
    let Some(limit) = depth.limit else { return format!("{}/?", ink::number(worst)) };
    let exact = format!("{worst:.0}/{limit:.0}");
    if exact.len() <= columns {
        return exact;
    }
    let short = |v: f64| if v < 999.5 { format!("{v:.0}") } else { format!("{:.0}k", v / 1e3) };
    format!("{}/{}", short(worst), short(limit))
}

fn incident_list(pen: &mut Pen<'_>, state: &State, incidents: &[Incident], from: usize) {
    let focus = state.focus == Focus::Incidents;
    let body = pen.lines().saturating_sub(from + 1);
    let cursor = state.incident_at();
    // Newest first, so without the cursor the newest are seen.
    let top = if focus { ink::first(cursor, body, incidents.len()) } else { 0 };
    heading(pen, from, "Incidents", &part(top, body, incidents.len()), focus);
    if incidents.is_empty() {
        let text = if state.incidents.is_some() { "None yet." } else { "Not known yet." };
        pen.at(1, from + 1, 60, text, FAINT);
    }
    for (n, incident) in incidents.iter().enumerate().skip(top).take(body) {
        let line = from + 1 + n - top;
        let (mark, tone) = severity(incident.severity);
        pen.at(1, line, 1, mark, tone);
        let time = Civil::of(incident.start_unix_ns).time_ms();
        pen.at(3, line, 8, &time[..8], PLAIN);
        let open = if incident.state == IncidentState::Open { "open: " } else { "" };
        let columns = pen.columns() - 13;
        pen.at(12, line, columns, &format!("{open}{}", brief(incident)), PLAIN);
        pen.at(12, line, open.len(), open, BAD);
        if focus && n == cursor {
            pen.line(line, CURSOR);
            pen.at(0, line, 1, ">", CURSOR);
        }
    }
}

fn severity(severity: Severity) -> (&'static str, ratatui::style::Style) {
    match severity {
        Severity::Critical => ("!", BAD),
        Severity::Warning => ("*", WARN),
        Severity::Info => ("-", FAINT),
    }
}

/// What happened where, and because of what, in the width of a line.
pub(super) fn brief(i: &Incident) -> String {
    let dropped: u64 = i.drops.iter().map(|d| d.connections).sum();
    let refused = !i.drops.is_empty() && i.drops.iter().all(|d| d.reason == DropReason::Refused);
    let did = if refused { "refused" } else { "dropped" };
    let kind = i.kind.name().replace('_', " ");
    let what = match (i.drops.first(), i.hops.first()) {
        (Some(first), _) if i.drops.len() > 1 => {
            format!("{} and {} more {did} {dropped}", first.place().short(), i.drops.len() - 1)
        }
        (Some(first), _) => format!("{} {did} {dropped}", first.place().short()),
        (None, Some(hop)) => format!("{} {kind}", hop.place().short()),
        (None, None) => kind,
    };
    if i.version == 0 {
        return format!("{what} ← cause not known yet");
    }
    let resource = i.root.resource.name().replace('_', " ");
    let culprit = i.root.culprits.first().map(|c| {
        let who = if c.comm.is_empty() { &c.workload } else { &c.comm };
        format!(" {who} {}", ink::percent(c.share))
    });
    let culprit = culprit.unwrap_or_default();
    format!("{what} ← {} {resource}{culprit}", i.root.place().short())
}
