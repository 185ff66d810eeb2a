//! `/metrics`: OpenMetrics text of the roll-ups (`export`), the counters and what stands at this moment. `?seconds=15` rolls
//! up as much as lies between two scrapes, so that no peak falls between them. Every label's values are bounded by the configuration,
//! by the code, or by a limit here.

use super::{App, Problem, Source, lock};
use crate::counters::{counter, gauge, labels};
use crate::export::SECONDS_MAX;
use crate::ingest::feed::QUEUE_MAX;
use crate::ingest::registry::{AgentView, CoverageView};
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::collections::BTreeMap;
use tailwater_model::Incident;
use tailwater_model::incident::State as IncidentState;

/// An incident is told until this long after its end: longer than a scrape interval.
const INCIDENT_NS: u64 = 60_000_000_000;
/// Sets of labels of incidents at once; the newest stay.
const INCIDENT_ROWS_MAX: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    seconds: Option<u64>,
}

pub(super) async fn metrics(State(app): State<App>, Query(q): Query<Wanted>) -> Result<Response, Problem> {
    if app.recording().is_some() {
        let text =
            "this shows a recording, whose values are not of now: scrape the collector of running agents";
        return Err(Problem(StatusCode::CONFLICT, text.into()));
    }
    let seconds = q.seconds.unwrap_or(1);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        let text =
            format!("seconds must be 1 to {SECONDS_MAX}: the roll-up's length, at least the scrape interval");
        return Err(Problem(StatusCode::BAD_REQUEST, text));
    }
    let work = tokio::task::spawn_blocking(move || text(&app, seconds));
    let text = work
        .await
        .map_err(|_| Problem(StatusCode::SERVICE_UNAVAILABLE, "the collector is stopping".into()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn text(app: &App, seconds: u64) -> String {
    let now = app.clock.unix_ns();
    let mut out = String::new();
    app.export.render(&mut out, seconds, now);
    own(&mut out, app, now);
    out.push_str("# EOF\n");
    out
}

impl App {
    /// What the collector says of itself, its agents and incidents, without the roll-ups: OpenMetrics text.
    #[must_use]
    pub fn own_metrics(&self) -> String {
        let mut out = String::new();
        own(&mut out, self, self.clock.unix_ns());
        out
    }
}

fn own(out: &mut String, app: &App, now: u64) {
    // Of tiers, not of the collector: their hosts are added up here, so it is the collector that tells them.
    app.export.render_responses(out);
    agents(out, &app.registry.view(), now);
    incidents(out, app, now);
    collector(out, app, now);
    out.push_str(&app.metrics.render());
    app.alerts.render(out);
    app.export.writes.render(out);
    app.export.otlp.render(out);
    app.sizing.render(out);
    app.traces.render(out);
}

fn agents(out: &mut String, agents: &[AgentView], now: u64) {
    let rows = |value: &dyn Fn(&AgentView) -> f64| -> Vec<(String, f64)> {
        agents.iter().map(|a| (labels(&[("host", &a.host)]), value(a))).collect()
    };
    let connected = rows(&|a| f64::from(u8::from(a.connected)));
    gauge(out, "agent_connected", "1: its stream is open.", &connected);
    let proof = agents.iter().map(|a| (labels(&[("host", &a.host), ("identity", a.identity.name())]), 1.0));
    gauge(
        out,
        "agent_identity",
        "1: by what its newest stream proved whose it is: joined, a certificate that names the host (named), one that a fleet shares (shared), or being of the collector's machine (local).",
        &proof.collect::<Vec<_>>(),
    );
    let life = |value: &dyn Fn(u64, u64) -> f64| -> Vec<(String, f64)> {
        let of = |a: &AgentView| {
            let (issued, expires) = (a.certificate_issued_unix_s?, a.certificate_expires_unix_s?);
            Some((labels(&[("host", &a.host)]), value(issued, expires)))
        };
        agents.iter().filter_map(of).collect()
    };
    let left = life(&|_, expires| expires as f64 - now as f64 / 1e9);
    gauge(
        out,
        "agent_identity_expires_seconds",
        "Until the certificate ends that the agent shows and got when it joined; it is renewed when a third of its life is left.",
        &left,
    );
    let lasts = life(&|issued, expires| expires.saturating_sub(issued) as f64);
    gauge(out, "agent_identity_lifetime_seconds", "How long that certificate lasts in all.", &lasts);
    let offset = rows(&|a| a.clock.offset_ns as f64 / 1e9);
    gauge(out, "agent_clock_offset_seconds", "The collector's clock less the agent's.", &offset);
    let error = rows(&|a| a.clock.error_ns as f64 / 1e9);
    gauge(out, "agent_clock_error_seconds", "Bound of the clock error.", &error);
    let age = rows(&|a| now.saturating_sub(a.newest_window_end_unix_ns) as f64 / 1e9);
    gauge(out, "agent_window_age_seconds", "Age of the newest window.", &age);
    let cpu = rows(&|a| a.cpu_ratio);
    gauge(out, "agent_cpu_ratio", "CPU that the agent uses, of one core.", &cpu);
    let kernel: Vec<_> =
        agents.iter().filter_map(|a| Some((labels(&[("host", &a.host)]), a.kernel_cpu_ratio?))).collect();
    gauge(
        out,
        "agent_kernel_cpu_ratio",
        "CPU that its kernel programs take, of one core, by samples.",
        &kernel,
    );
    let resident = rows(&|a| a.resident_bytes as f64);
    gauge(out, "agent_resident_bytes", "Memory that the agent has resident.", &resident);
    let lost = rows(&|a| a.windows_lost as f64);
    counter(out, "agent_windows_lost", "Windows lapped in the kernel before the agent read them.", &lost);
    let batches = rows(&|a| a.batches as f64);
    counter(out, "agent_batches", "Batches of windows taken from the agent.", &batches);
    let refused = rows(&|a| a.batches_refused as f64);
    counter(
        out,
        "agent_batches_refused",
        "Batches of the agent refused: late, early, absurd or damaged.",
        &refused,
    );
    let dropped = rows(&|a| a.batches_dropped as f64);
    counter(
        out,
        "agent_batches_dropped",
        "Batches that the agent gave up because the collector was away.",
        &dropped,
    );
    let losses: Vec<_> = agents
        .iter()
        .flat_map(|a| {
            a.losses.iter().map(|(what, count)| (labels(&[("host", &a.host), ("what", what)]), *count as f64))
        })
        .collect();
    counter(
        out,
        "agent_losses",
        "What the agent could not keep or name, since it began; troubleshooting.md says what to do.",
        &losses,
    );
    let signals = |is: fn(&CoverageView) -> bool| -> Vec<_> {
        let of = |a: &AgentView| {
            let told = |c: &CoverageView| {
                (labels(&[("host", &a.host), ("signal", &c.signal)]), f64::from(u8::from(is(c))))
            };
            a.coverage.iter().map(told).collect::<Vec<_>>()
        };
        agents.iter().flat_map(of).collect()
    };
    gauge(
        out,
        "agent_signal_covered",
        "1: the agent measures this signal; 0: /api/v1/agents says why not.",
        &signals(|c| c.covered),
    );
    gauge(
        out,
        "agent_signal_sampled",
        "1: polled every 50 ms, because the agent can load no kernel program for it; peaks in between are missed.",
        &signals(|c| c.sampled),
    );
}

fn incidents(out: &mut String, app: &App, now: u64) {
    let (open, recent) = {
        let store = lock(&app.shown.store);
        let recent = store.list((now.saturating_sub(INCIDENT_NS), u64::MAX), None, 10 * INCIDENT_ROWS_MAX);
        (store.list((0, u64::MAX), Some(IncidentState::Open), usize::MAX).len(), recent)
    };
    gauge(out, "incidents_open", "Incidents open now.", &[(String::new(), open as f64)]);
    // Newest first: of the same labels the newest is told.
    let mut rows: BTreeMap<String, f64> = BTreeMap::new();
    let mut left_out = 0_usize;
    for incident in &recent {
        let labels = incident_labels(incident);
        if rows.contains_key(&labels) {
            continue;
        }
        if rows.len() >= INCIDENT_ROWS_MAX {
            left_out += 1;
            continue;
        }
        rows.insert(labels, incident.start_unix_ns as f64 / 1e9);
    }
    let rows: Vec<_> = rows.into_iter().collect();
    gauge(
        out,
        "incident_start_timestamp_seconds",
        "Begin of an incident that is open or ended within the last minute, Unix time; of several with the same labels, the newest.",
        &rows,
    );
    gauge(
        out,
        "incident_rows_left_out",
        "Incidents of the last minute without a row, because of its limit.",
        &[(String::new(), left_out as f64)],
    );
}

fn incident_labels(incident: &Incident) -> String {
    let root = &incident.root;
    let dropped = incident.drops.first();
    labels(&[
        ("kind", incident.kind.name()),
        ("severity", &json_name(&incident.severity)),
        ("resource", &json_name(&root.resource)),
        ("root_host", &root.host),
        ("root_tier", &root.tier),
        ("host", dropped.map_or("", |d| &d.host)),
        ("tier", dropped.map_or("", |d| &d.tier)),
    ])
}

/// The JSON name of an enum, without its quotes.
fn json_name(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default().trim_matches('"').to_owned()
}

fn collector(out: &mut String, app: &App, now: u64) {
    let one = |value: f64| vec![(String::new(), value)];
    let past = &app.shown.past;
    let waiting = match &app.source {
        Source::Agents(feed) => feed.waiting(),
        Source::Recording(_) => 0,
    };
    let (export, store, sizing) = (app.export.fill(), past.queue.fill(), app.sizing.fill());
    let part = |(used, limit): (usize, usize)| used as f64 / limit.max(1) as f64;
    let queue = |name: &str, fill: (usize, usize)| (labels(&[("queue", name)]), part(fill));
    let fills = [
        queue("analysis", (waiting, QUEUE_MAX)),
        queue("store", store),
        queue("export", export),
        queue("sizing", sizing),
    ];
    gauge(
        out,
        "queue_fill_ratio",
        "How full a queue of the collector is: 1 loses something, and counts it.",
        &fills,
    );
    let (rows, folded) = app.export.cardinality();
    gauge(
        out,
        "export_rows",
        "Workloads, listeners, remotes and devices with labels of their own.",
        &one(rows as f64),
    );
    gauge(
        out,
        "export_folded_entities",
        "Those told together as ~other, because of the limits in [metrics].",
        &one(folded as f64),
    );
    let dropped = app.export.windows_dropped.get() as f64;
    counter(
        out,
        "export_windows_dropped",
        "Windows missing in roll-ups because their thread was behind.",
        &one(dropped),
    );
    let late = app.export.windows_late.get() as f64;
    counter(
        out,
        "export_windows_late",
        "Windows that came after later ones of their host: in counters, in no roll-up.",
        &one(late),
    );
    let lost = crate::log::lost() as f64;
    counter(
        out,
        "log_lines_dropped",
        "Lines of the log dropped because standard error was behind.",
        &one(lost),
    );
    let (bytes, reach) = {
        let series = lock(&app.shown.series);
        (series.bytes(), series.reach())
    };
    gauge(out, "series_bytes", "Memory of kept windows, about.", &one(bytes as f64));
    let back = "How far back the windows in memory reach: less than a minute is too little for `explain` and timelines.";
    gauge(out, "series_seconds", back, &one(reach.span_ns as f64 / 1e9));
    let cut = "Windows that left memory before `series_minutes`, because of `series_mib_max`.";
    counter(out, "series_windows_cut", cut, &one(reach.cut as f64));
    let names = app.registry.names(now);
    gauge(out, "hosts_known", "Host names that are remembered, of 4,096.", &one(names.known as f64));
    let gone = "Hosts forgotten: gone for a day, or for longest where there was no room for a new name.";
    counter(out, "hosts_forgotten", gone, &one(names.forgotten as f64));
    let degraded = f64::from(u8::from(past.health.problem().is_some()));
    gauge(out, "store_degraded", "1: the disk refuses what is written; /readyz says why.", &one(degraded));
    let (oldest, recent, kept) = past.totals();
    let parts = [("recent", recent), ("incidents", kept)];
    let parts: Vec<_> =
        parts.iter().map(|(part, bytes)| (labels(&[("part", part)]), *bytes as f64)).collect();
    gauge(out, "store_bytes", "Segments on disk.", &parts);
    let age = oldest.map(|oldest| now.saturating_sub(oldest.start_unix_ns()) as f64 / 1e9);
    let age: Vec<_> = age.into_iter().map(|age| (String::new(), age)).collect();
    gauge(out, "store_age_seconds", "Age of the oldest window on disk.", &age);
}
