//! What a picture shows: panels of rows of values over windows, with limits and units. Pure: incident and timeline in, a figure out.
//! A value that is missing stays missing: what draws it leaves a gap.

use crate::draw::resource::shown;
use crate::live::timeline::{TierRow, Timeline};
use tailwater_model::Incident;
use tailwater_model::civil::Civil;
use tailwater_model::incident::{Hop, Resource};
use tailwater_model::place::place;

/// One picture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// Name of the axis of time, with its origin.
    pub(crate) time: String,
    /// Start of the first window, in seconds of that axis.
    pub(crate) first: f64,
    /// Length of a window, s.
    pub(crate) window: f64,
    pub(crate) windows: usize,
    /// Begin, end and name of the root's episode, s.
    pub(crate) band: Option<(f64, f64, String)>,
    pub(crate) panels: Vec<Panel>,
    pub(crate) notes: Vec<String>,
}

/// Rows that share an axis of values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// What the axis of values counts, with the unit.
    pub(crate) unit: String,
    pub(crate) top: f64,
    pub(crate) rows: Vec<Row>,
}

/// One line or set of bars.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Second line of the legend.
    pub(crate) detail: String,
    /// Which tier: the same colour in every panel.
    pub(crate) tier: usize,
    pub(crate) style: Style,
    pub(crate) values: Vec<Option<f64>>,
    /// A line across, if it lies within the panel.
    pub(crate) limit: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Line,
    Bars,
    Marks,
}

/// A limit this many times the largest value is named and not drawn: it would press the curve flat.
const LIMIT_TIMES: f64 = 4.0;

/// The picture of an incident; `None`: none of its windows is there.
pub(crate) fn figure(incident: &Incident, t: &Timeline) -> Option<Figure> {
    let rows = || t.tiers.iter().flat_map(|r| [&r.queued_requests, &r.drops, &r.resource]);
    let windows = rows().map(Vec::len).chain(t.resource.iter().map(|r| r.values.len())).max()?;
    let known = |values: &[Option<f64>]| values.iter().any(Option::is_some);
    if !rows().any(|r| known(r)) && !t.resource.as_ref().is_some_and(|r| known(&r.values)) {
        return None;
    }
    let root = &incident.root;
    let zero = if root.start_unix_ns == 0 { incident.start_unix_ns } else { root.start_unix_ns };
    let seconds = |unix_ns: u64| (i128::from(unix_ns) - i128::from(zero)) as f64 / 1e9;
    let mut notes = Vec::new();
    let panels: Vec<Panel> =
        [resource(incident, t, &mut notes), queued(incident, t), dropped(incident, t, &mut notes)]
            .into_iter()
            .flatten()
            .collect();
    if panels
        .iter()
        .flat_map(|p| &p.rows)
        .any(|r| r.values.len() < windows || r.values.iter().any(Option::is_none))
    {
        notes.push("Gaps: the window is missing or was not covered.".to_owned());
    }
    let band = (root.end_unix_ns > root.start_unix_ns && root.resource != Resource::Unexplained).then(|| {
        let name = format!("{} at {}", root.resource.name().replace('_', " "), root.place().short());
        (seconds(root.start_unix_ns), seconds(root.end_unix_ns), name)
    });
    Some(Figure {
        title: incident.title.clone(),
        time: format!(
            "seconds since {} {} UTC, the onset of the root",
            Civil::of(zero).date(),
            Civil::of(zero).time_ms()
        ),
        first: seconds(t.start_unix_ns),
        window: t.window_ns as f64 / 1e9,
        windows,
        band,
        panels,
        notes,
    })
}

/// `apache2@web-1`
fn named(tier: &TierRow) -> String {
    place(&tier.workload, &tier.host).short().to_string()
}

/// MaxSysQDepth: worker limit and accept queue limit together; `None`: one of them is not known.
fn limits(hop: &Hop) -> Option<u64> {
    Some(u64::from(hop.workers_limit?) + u64::from(hop.accept_queue_limit?))
}

fn hop_of<'a>(incident: &'a Incident, tier: &TierRow) -> Option<&'a Hop> {
    incident.hops.iter().find(|h| h.host == tier.host && h.listener == tier.listener)
}

fn largest<'a>(rows: impl IntoIterator<Item = &'a Row>) -> f64 {
    rows.into_iter().flat_map(|r| r.values.iter().flatten()).copied().fold(0.0, f64::max)
}

/// Fixes the axis and drops the limits that lie far beyond it.
fn panel(title: &str, unit: &str, mut rows: Vec<Row>, least: f64) -> Panel {
    let most = largest(&rows).max(least);
    for row in &mut rows {
        row.limit = row.limit.filter(|limit| *limit <= LIMIT_TIMES * most);
    }
    let top = rows.iter().filter_map(|r| r.limit).fold(most, f64::max);
    Panel { title: title.to_owned(), unit: unit.to_owned(), top: top * 1.12, rows }
}

fn resource(incident: &Incident, t: &Timeline, notes: &mut Vec<String>) -> Option<Panel> {
    let Some(of_root) = &t.resource else {
        notes.push("No resource that is measured explains this incident.".to_owned());
        return None;
    };
    let (title, unit, factor) = match shown(&of_root.metric) {
        Some(known) => (known.title, known.unit, if known.is_percent() { 100.0 } else { 1.0 }),
        None => ("Resource per tier", "", 1.0),
    };
    let scaled = |values: &[Option<f64>]| values.iter().map(|v| v.map(|v| v * factor)).collect();
    let root = &incident.root;
    let row = |tier: usize, name: String, detail: &str, values| Row {
        name,
        detail: detail.to_owned(),
        tier,
        style: Style::Line,
        values,
        limit: (factor > 1.0 && tier == 0).then_some(100.0),
    };
    let mut rows = Vec::new();
    for (n, tier) in t.tiers.iter().enumerate() {
        let is_root = tier.host == root.host && tier.workload == root.workload;
        let values = if is_root { &of_root.values } else { &tier.resource };
        if !values.is_empty() {
            let detail = if is_root { "root" } else { "" };
            rows.push(row(n, named(tier), detail, scaled(values)));
        }
    }
    if !t.tiers.iter().any(|r| r.host == root.host && r.workload == root.workload) {
        rows.push(row(t.tiers.len(), root.place().short().to_string(), "root", scaled(&of_root.values)));
    }
    Some(panel(title, unit, rows, if factor > 1.0 { 100.0 } else { 1.0 }))
}

fn queued(incident: &Incident, t: &Timeline) -> Option<Panel> {
    let row = |(n, tier): (usize, &TierRow)| {
        let limit = hop_of(incident, tier).and_then(limits);
        Row {
            name: named(tier),
            detail: limit.map_or_else(|| "MaxSysQDepth unknown".to_owned(), |l| format!("MaxSysQDepth {l}")),
            tier: n,
            style: Style::Line,
            values: tier.queued_requests.clone(),
            limit: limit.map(|l| l as f64),
        }
    };
    let rows: Vec<Row> = t.tiers.iter().enumerate().map(row).collect();
    (!rows.is_empty()).then(|| panel("Queued requests per tier", "requests (most)", rows, 1.0))
}

fn dropped(incident: &Incident, t: &Timeline, notes: &mut Vec<String>) -> Option<Panel> {
    let mut rows = Vec::new();
    let of = |name: String, detail: String, tier, style, values: &[Option<f64>]| Row {
        name,
        detail,
        tier,
        style,
        values: values.to_vec(),
        limit: None,
    };
    let sum = |values: &[Option<f64>]| values.iter().flatten().sum::<f64>();
    for (n, tier) in t.tiers.iter().enumerate().filter(|(_, r)| sum(&r.drops) > 0.0) {
        let who = named(tier);
        rows.push(of(
            format!("Drops at {who}"),
            format!("{:.0} packets", sum(&tier.drops)),
            n,
            Style::Bars,
            &tier.drops,
        ));
        if !tier.retried.is_empty() {
            let detail = format!("{:.0} begun, SYN sent again", sum(&tier.retried));
            rows.push(of("VLRT (wait 1 s or more)".to_owned(), detail, n, Style::Marks, &tier.retried));
        }
    }
    if rows.is_empty() {
        notes.push("Nothing was dropped.".to_owned());
        return None;
    }
    if !rows.iter().any(|r| r.style == Style::Marks) && incident.vlrt.expected > 0 {
        notes.push(format!(
            "Very long requests (VLRT, 1 s or more): about {}, from the drops; no client is observed, so not by window.",
            incident.vlrt.expected
        ));
    }
    Some(panel("Dropped packets and very long requests", "per 50 ms", rows, 4.0))
}
