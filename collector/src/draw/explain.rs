//! `tailwater explain`: one incident as a person reads it at three in the morning, in 80 columns. Pure: incident and timeline in,
//! text out.

use super::resource::{SHORT_MAX, Shown, shown};
use crate::live::timeline::{TierRow, Timeline};
use crate::text::lines;
use std::fmt::Write;
use tailwater_model::civil::Civil;
use tailwater_model::incident::{Code, DropReason, Hop, HopCongestion, HopLife, Order, Role, State};
use tailwater_model::place::place;
use tailwater_model::window::{Doing, carries_several};
use tailwater_model::{CongestionState, Incident};

const WIDTH: usize = 80;
/// Functions that are shown of one place in the code of a root, the innermost ones.
const FUNCTIONS: usize = 8;
/// Before a sparkline: name of the row and its scale.
const LABEL: usize = 20;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The whole text.
#[must_use]
pub fn text(incident: &Incident, timeline: &Timeline) -> String {
    let mut out = String::new();
    let state = format!("{:?}", incident.state).to_lowercase();
    let severity = format!("{:?}", incident.severity).to_lowercase();
    let kind = incident.kind.name();
    let _ = writeln!(
        out,
        "{}  {severity}  {kind}  {state}  {}",
        incident.id,
        Civil::of(incident.start_unix_ns).date()
    );
    wrap(&mut out, &incident.title, "");
    out.push('\n');
    cause(&mut out, incident);
    sustained(&mut out, incident);
    chain(&mut out, incident);
    axis(&mut out, incident, timeline);
    rest(&mut out, incident);
    lines(&out)
}

fn cause(out: &mut String, i: &Incident) {
    let root = &i.root;
    let _ = writeln!(
        out,
        "Root      {} at {}, {} to {} ({} ms), confidence {:.2}",
        root.resource.name(),
        root.place().short(),
        Civil::of(root.start_unix_ns).time_ms(),
        Civil::of(root.end_unix_ns).time_ms(),
        root.end_unix_ns.saturating_sub(root.start_unix_ns) / 1_000_000,
        i.confidence,
    );
    if !root.evidence.is_empty() {
        wrap(out, &root.evidence, "          ");
    }
    if let Some(now) = &i.do_now {
        labelled(out, if i.state == State::Open { "Do now" } else { "To do" }, &format!("{now}."));
    }
    for c in &root.culprits {
        let who = if c.pid == 0 { c.comm.clone() } else { format!("{} [{}]", c.comm, c.pid) };
        let _ = writeln!(out, "Culprit   {:>3.0} %  {who}  in {}", c.share * 100.0, c.workload);
    }
    for code in &root.code {
        labelled(out, "Code", &ran_or_waited(code));
    }
    out.push('\n');
}

/// Where in its code a process ran, or its threads waited: the innermost function first.
fn ran_or_waited(code: &Code) -> String {
    let whose = match code.doing {
        Doing::Running => "CPU samples",
        Doing::Waiting => "waiting threads",
    };
    let mut way: Vec<&str> = code.frames.iter().take(FUNCTIONS).map(String::as_str).collect();
    if way.is_empty() {
        way.push("the kernel");
    }
    if code.cut || code.frames.len() > FUNCTIONS {
        way.push("…");
    }
    format!("{} % of the {whose} of {} [{}]: {}", code.percent, code.comm, code.pid, way.join(" < "))
}

/// What keeps it alive now that the root is over.
fn sustained(out: &mut String, i: &Incident) {
    let Some(s) = &i.sustained else { return };
    let line = format!(
        "kept alive by {} since {}, when the root was over: {:.0} % of what comes at {} of {} came before",
        s.by.name(),
        Civil::of(s.since_unix_ns).time_ms(),
        s.retry_share * 100.0,
        s.listener,
        s.place().short()
    );
    labelled(out, "Sustained", &line);
    wrap(out, &s.evidence, "          ");
    labelled(out, "Way out", &s.way_out);
    out.push('\n');
}

/// Root first, drop last: the order in which it happened.
pub(super) fn from_root(hops: &[Hop]) -> Vec<&Hop> {
    let mut all: Vec<&Hop> = hops.iter().collect();
    if hops.first().is_some_and(|h| h.role == Role::Drop) && hops.len() > 1 {
        all.reverse();
    }
    all
}

fn chain(out: &mut String, i: &Incident) {
    for (n, hop) in from_root(&i.hops).into_iter().enumerate() {
        let arrow = if n == 0 { "Chain     " } else { "       -> " };
        let role = format!("{:?}", hop.role).to_lowercase();
        let _ = writeln!(
            out,
            "{arrow}{role:<8} {} {} {}",
            Civil::of(hop.onset_unix_ns).time_ms(),
            hop.place().short(),
            hop.listener
        );
        if !hop.observed {
            let calls = format!(
                "unpaired: no agent sees its other end; its caller had {} calls to it in flight",
                hop.queued_max
            );
            wrap(out, &calls, "                   ");
            continue;
        }
        let mut facts = if hop.requests_unknown {
            vec!["requests not measured".to_owned()]
        } else if hop.connections_only {
            vec![format!("connections only, {} pieces unanswered", hop.queued_max)]
        } else {
            vec![format!("queued {}", hop.queued_max)]
        };
        if hop.workers_busy_max > 0 {
            facts.push(format!("workers {}", against(hop.workers_busy_max, hop.workers_limit)));
        }
        facts.push(format!("accept queue {}", against(hop.accept_queue_max, hop.accept_queue_limit)));
        if let Some(calls) = hop.pool_in_flight_max {
            facts.push(format!("calls in flight {}", against(calls, pool(hop))));
        }
        if hop.order_to_root == Some(Order::Unknown) {
            facts.push("order to the root unknown".to_owned());
        }
        wrap(out, &facts.join(", "), "                   ");
        if let Some(life) = hop.life.filter(|_| lasted_long(i)) {
            wrap(out, &lived(&life, hop), "                   ");
        }
        if let Some(congestion) = &hop.congestion {
            wrap(out, &congested(congestion), "                   ");
        }
        if let Some(slowest) = hop.slowest.first() {
            let of = match hop.slowest.len() {
                1 => "slowest request".to_owned(),
                n => format!("slowest of {n} requests"),
            };
            wrap(out, &format!("{of}: {}", slowest.told()), "                   ");
        }
    }
    out.push('\n');
}

/// The connections by which its calls are limited: none where each carries several.
fn pool(hop: &Hop) -> Option<u32> {
    let calls = hop.pool_in_flight_max.unwrap_or(0);
    hop.pool_open.filter(|open| !carries_several(calls, *open))
}

/// A number and its limit, as far as that is known.
pub(super) fn against(value: u32, limit: Option<u32>) -> String {
    limit.map_or_else(|| value.to_string(), |limit| format!("{value}/{limit}"))
}

/// Its later numbers are others than those of its onset.
fn lasted_long(i: &Incident) -> bool {
    const LONG_NS: u64 = 10_000_000_000;
    i.end_unix_ns.saturating_sub(i.start_unix_ns) >= LONG_NS
}

/// What a tier went through since its onset.
fn lived(life: &HopLife, hop: &Hop) -> String {
    let now = life.now.map_or_else(String::new, |now| {
        let served = if hop.requests_unknown || hop.connections_only {
            String::new()
        } else {
            format!(" queued {}, workers {},", now.queued, against(now.workers_busy, hop.workers_limit))
        };
        format!(
            "; at {}{served} accept queue {}",
            Civil::of(now.start_unix_ns).time_ms(),
            against(now.accept_queue, hop.accept_queue_limit)
        )
    });
    if hop.requests_unknown || hop.connections_only {
        return format!("over its whole life {} packets dropped{now}", life.dropped);
    }
    format!(
        "over its whole life queued {}, {} requests received, {} answered, {} packets dropped{now}",
        life.queued_max, life.received, life.answered, life.dropped
    )
}

/// Where a hop was on its curve of load against throughput.
fn congested(c: &HopCongestion) -> String {
    let now = format!("load {:.0}, {} answers in 50 ms", c.load_max, c.throughput);
    match (c.state, c.congestion_point, c.throughput_usual) {
        (CongestionState::Known, Some(point), Some(usual)) => {
            let frozen = match c.windows_frozen {
                None | Some(0) => String::new(),
                Some(1) => ", stood still in 1 window".to_owned(),
                Some(n) => format!(", stood still in {n} windows"),
            };
            format!("N* {point:.0} requests: {now} where {usual:.0} are usual{frozen}")
        }
        (CongestionState::TooFewAnswers, ..) => format!("N* unknown, too few answers in 50 ms: {now}"),
        (CongestionState::StillRising, ..) => format!("N* unknown, never congested before: {now}"),
        _ => format!("N* unknown, too few windows yet: {now}"),
    }
}

fn axis(out: &mut String, i: &Incident, t: &Timeline) {
    let rows: Vec<&[Option<f64>]> = t
        .tiers
        .iter()
        .flat_map(|r| [&r.queued_requests, &r.accept_queue_depth, &r.workers_busy, &r.drops])
        .chain(t.resource.iter().map(|r| &r.values))
        .map(Vec::as_slice)
        .collect();
    let windows = rows.iter().map(|r| r.len()).max().unwrap_or(0);
    if windows == 0 || rows.iter().all(|r| r.iter().all(Option::is_none)) {
        let _ = writeln!(out, "(The windows of this incident are no longer in the collector's memory.)\n");
        return;
    }
    // Several windows share a column when they do not fit; the column shows the worst of them.
    let step = windows.div_ceil(WIDTH - LABEL);
    let columns = windows.div_ceil(step);
    let ms = t.window_ns / 1_000_000 * step as u64;
    let end = t.start_unix_ns + t.window_ns * windows as u64;
    let (from, to) = (Civil::of(t.start_unix_ns).time_ms(), Civil::of(end).time_ms());
    let gap = columns.saturating_sub(from.len() + to.len()).max(1);
    let _ = writeln!(out, "{:<LABEL$}{from}{:gap$}{to}", format!("{ms} ms per column"), "");
    let mut tiers: Vec<&TierRow> = t.tiers.iter().collect();
    if i.hops.first().is_some_and(|h| h.role == Role::Drop) {
        tiers.reverse();
    }
    if let Some(resource) = &t.resource {
        let _ = writeln!(out, "{}", i.root.place().short());
        let known = shown(&resource.metric);
        let name = known.map_or(resource.metric.as_str(), |known| known.short);
        let ratio = known.map_or(resource.metric.ends_with("ratio"), Shown::is_percent);
        row(out, name, &resource.values, None, step, ratio);
    }
    for tier in tiers {
        let Some(hop) = i.hops.iter().find(|h| h.host == tier.host && h.listener == tier.listener) else {
            continue;
        };
        let _ = writeln!(out, "{} {}", place(&tier.workload, &tier.host).short(), tier.listener);
        row(out, "queued", &tier.queued_requests, None, step, false);
        row(out, "accept q.", &tier.accept_queue_depth, hop.accept_queue_limit, step, false);
        if tier.workers_busy.iter().flatten().any(|v| *v > 0.0) {
            row(out, "workers", &tier.workers_busy, hop.workers_limit, step, false);
        }
        if tier.calls_in_flight.iter().flatten().any(|v| *v > 0.0) {
            row(out, "calls", &tier.calls_in_flight, pool(hop), step, false);
        }
        if tier.drops.iter().flatten().any(|v| *v > 0.0) {
            row(out, "drops", &tier.drops, None, step, false);
        }
    }
    if rows.iter().any(|r| r.iter().any(Option::is_none)) {
        let _ = writeln!(out, "{:LABEL$}· window missing or not covered", "");
    }
    out.push('\n');
}

/// One line: name, maximum (against its limit), bars scaled to the larger of limit and maximum.
fn row(out: &mut String, name: &str, values: &[Option<f64>], limit: Option<u32>, step: usize, ratio: bool) {
    let max = values.iter().flatten().copied().fold(0.0, f64::max);
    let full = limit.map_or(max, |limit| max.max(f64::from(limit))).max(if ratio { 1.0 } else { 0.0 });
    let label = match limit {
        Some(limit) => format!("{max:.0}/{limit}"),
        None if ratio => format!("{:.0} %", max * 100.0),
        None if max < 10.0 && max.fract() > 0.0 => format!("{max:.1}"),
        None => format!("{max:.0}"),
    };
    let bars: String = values
        .chunks(step)
        .map(|chunk| match chunk.iter().flatten().copied().reduce(f64::max) {
            None => '·',
            Some(v) if v <= 0.0 || full <= 0.0 => ' ',
            Some(v) => BARS[((v / full * 8.0).ceil() as usize).clamp(1, 8) - 1],
        })
        .collect();
    let _ = writeln!(out, "  {name:<SHORT_MAX$} {label:>7} {}", bars.trim_end());
}

fn rest(out: &mut String, i: &Incident) {
    for d in &i.drops {
        let reason = serde_json::to_value(d.reason)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
            .unwrap_or_default();
        let at = format!("{} of {}", d.listener, d.place().short());
        let when = [d.first_unix_ns, d.last_unix_ns].map(|ns| Civil::of(ns).time_ms()).join(" to ");
        if d.reason == DropReason::Refused {
            labelled(out, "Refused", &format!("{} connections at {at} (accept queue full), {when}", d.count));
            continue;
        }
        let line = format!(
            "{} packets dropped at {at} ({reason}), about {} connections, {when}",
            d.count, d.connections
        );
        labelled(out, "Drops", &line);
    }
    let seen = i
        .vlrt
        .syn_retransmits
        .map_or_else(String::new, |n| format!("; {n} SYNs sent again by observed clients"));
    if let Some(kinds) = i.vlrt.by_kind.filter(|kinds| kinds.all() > 0) {
        let told = format!("{} requests took a second or more: {}{seen}", kinds.all(), kinds.told());
        labelled(out, "Slow", &told);
    } else if i.vlrt.expected > 0 {
        labelled(
            out,
            "Slow",
            &format!("{} requests wait a second or more for a retry{seen}", i.vlrt.expected),
        );
    }
    if !i.against.is_empty() {
        labelled(out, "Against", &i.against.join("; "));
    }
    for other in &i.also {
        let line = format!(
            "{} at {}, {} to {}, for {:.0} % of what waited: {}",
            other.root.resource.name(),
            other.root.place().short(),
            Civil::of(other.root.start_unix_ns).time_ms(),
            Civil::of(other.root.end_unix_ns).time_ms(),
            100.0 * other.share,
            other.root.evidence
        );
        labelled(out, "Also", &line);
    }
    if !i.context.is_empty() {
        labelled(out, "Meanwhile", &i.context.join("; "));
    }
    for a in &i.alternatives {
        let line = format!(
            "{} at {}, confidence {:.2}: {}",
            a.root.resource.name(),
            a.root.place().short(),
            a.confidence,
            a.root.evidence
        );
        labelled(out, "Or", &line);
    }
    let error_ms = i.clock_error_ns as f64 / 1e6;
    let decided = if i.order_unknown {
        "; here nor have the root's and the first queue's: the flow of requests decided"
    } else {
        ""
    };
    labelled(
        out,
        "Clocks",
        &format!("agree within {error_ms:.1} ms; onsets closer than that have no known order{decided}"),
    );
}

pub(super) fn labelled(out: &mut String, label: &str, text: &str) {
    let mut block = String::new();
    wrap(&mut block, text, "          ");
    let _ = write!(out, "{label:<10}{}", block.trim_start());
}

/// Breaks at spaces so that no line is longer than the terminal; a single longer word stays whole.
pub(super) fn wrap(out: &mut String, text: &str, indent: &str) {
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let used = line.chars().count();
        if used > indent.chars().count() && used + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{}", line.trim_end());
            line = indent.to_owned();
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
