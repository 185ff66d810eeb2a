//! What an incident looked like in time: for each tier of its chain, the windows around it, one value per 50 ms. Computed while
//! the windows are in memory and kept with the incident, so that it can be explained after a restart.

use crate::live::series::Series;
use crate::live::view::Query;
use serde::{Deserialize, Serialize};
use tailwater_model::Incident;
use tailwater_model::incident::Resource;
use tailwater_model::window::{WINDOW_NS, WindowIndex};

/// Windows before the first sign and after the end.
const MARGIN_WINDOWS: u64 = 4;
/// At most: a minute and its margins. Of a longer incident it shows how it began; /api/v1/series has the rest.
const WINDOWS_MAX: u64 = 1240;
/// An incident that is longer than this is shown by its begin.
pub const SPAN_NS: u64 = (WINDOWS_MAX - 2 * MARGIN_WINDOWS) * WINDOW_NS;

/// Metrics of a tier's listener, as the fields of its row follow each other.
const QUEUES: [&str; 5] =
    ["queued_requests", "accept_queue_depth", "workers_busy", "drops", "calls_in_flight"];

/// All rows share one axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Start of the first window.
    pub start_unix_ns: u64,
    /// Length of each.
    pub window_ns: u64,
    /// One per hop of the chain, in its order.
    pub tiers: Vec<TierRow>,
    /// The root's resource, if it is one that is measured.
    pub resource: Option<ResourceRow>,
}

/// One tier. A value is `null` where its window is missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the metrics of /api/v1/series")]
pub struct TierRow {
    pub host: String,
    pub workload: String,
    pub tier: String,
    pub listener: String,
    pub queued_requests: Vec<Option<f64>>,
    pub accept_queue_depth: Vec<Option<f64>>,
    pub workers_busy: Vec<Option<f64>>,
    pub drops: Vec<Option<f64>>,
    pub calls_in_flight: Vec<Option<f64>>,
    /// The metric of the root's resource, of this tier's workload. Empty if no metric shows it, and in timelines of older collectors.
    #[serde(default)]
    pub resource: Vec<Option<f64>>,
    /// Connections begun in the window that had to send their SYN again, as far as their clients are observed. Empty if none is.
    #[serde(default)]
    pub retried: Vec<Option<f64>>,
}

/// What the root ran out of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceRow {
    /// Metric of /api/v1/series.
    pub metric: String,
    /// One per window.
    pub values: Vec<Option<f64>>,
}

/// The metric that shows a resource; `None`: no metric does.
#[must_use]
pub fn metric(resource: Resource) -> Option<&'static str> {
    match resource {
        Resource::Cpu => Some("cpu_busy_ratio"),
        Resource::CpuNeighbour => Some("run_queue_wait_tasks"),
        Resource::CpuThrottled => Some("cpu_throttled_ratio"),
        Resource::CpuSteal => Some("cpu_steal_ratio"),
        Resource::Io => Some("blocked_io_tasks"),
        Resource::Memory => Some("memory_stall_tasks"),
        Resource::Lock | Resource::Pause | Resource::EventLoop | Resource::Dns | Resource::Network => {
            Some("requests_answered")
        }
        Resource::Burst => Some("requests_received"),
        Resource::Unexplained => None,
    }
}

/// The windows that [`of`] reads, to be read without the lock that the analysis and readers wait for; `None` where not all are in memory that ever
/// were. What is not is on the disk, where it is read when somebody asks: a timeline without its begin would be kept for good.
#[must_use]
pub fn cut(incident: &Incident, series: &Series) -> Option<Series> {
    let (first, _) = span(incident);
    let whole =
        incident.hops.iter().all(|hop| series.span(&hop.host).is_none_or(|(oldest, _)| oldest <= first));
    let hosts = incident.hops.iter().map(|hop| hop.host.as_str()).chain([incident.root.host.as_str()]);
    let called = incident.drops.iter().map(|drop| (drop.host.as_str(), drop.listener.as_str()));
    whole.then(|| series.since(hosts, called, first))
}

/// The timeline of `incident` as far as its windows are in memory.
#[must_use]
pub fn of(incident: &Incident, series: &Series) -> Timeline {
    let mut timeline = read(incident, |queries, first, last| series.several(queries, first, last));
    let first = WindowIndex::at(timeline.start_unix_ns);
    for row in &mut timeline.tiers {
        if incident.drops.iter().any(|d| d.host == row.host && d.listener == row.listener) {
            let last = WindowIndex(first.0 + (row.drops.len() as u64).saturating_sub(1));
            row.retried = series.retried(&row.host, &row.listener, first, last).unwrap_or_default();
        }
    }
    timeline
}

/// The timeline of `incident` from what `values` says of each window, for several queries of one host at a time. Connections that were
/// tried again are not in it: they are of no one entity.
pub fn read(
    incident: &Incident,
    values: impl Fn(&[Query<'_>], WindowIndex, WindowIndex) -> Vec<Vec<Option<f64>>>,
) -> Timeline {
    let (first, last) = span(incident);
    let shown = metric(incident.root.resource);
    let tiers = incident
        .hops
        .iter()
        .map(|hop| {
            let of =
                |listener, metric| Query { host: &hop.host, workload: Some(&hop.workload), listener, metric };
            let queries = QUEUES.map(|metric| of(Some(hop.listener.as_str()), metric));
            let queries: Vec<_> = queries.into_iter().chain(shown.map(|metric| of(None, metric))).collect();
            let mut rows = values(&queries, first, last).into_iter();
            let mut row = || rows.next().unwrap_or_default();
            TierRow {
                host: hop.host.clone(),
                workload: hop.workload.clone(),
                tier: hop.tier.clone(),
                listener: hop.listener.clone(),
                queued_requests: row(),
                accept_queue_depth: row(),
                workers_busy: row(),
                drops: row(),
                calls_in_flight: row(),
                resource: row(),
                retried: Vec::new(),
            }
        })
        .collect();
    let root = &incident.root;
    let resource = shown.filter(|_| !root.workload.is_empty()).map(|metric| {
        let query = Query { host: &root.host, workload: Some(&root.workload), listener: None, metric };
        let values = values(&[query], first, last).pop().unwrap_or_default();
        ResourceRow { metric: metric.to_owned(), values }
    });
    Timeline { start_unix_ns: first.start_unix_ns(), window_ns: WINDOW_NS, tiers, resource }
}

/// Its first window and its last one.
fn span(incident: &Incident) -> (WindowIndex, WindowIndex) {
    let begin = incident.start_unix_ns.min(match incident.root.start_unix_ns {
        0 => incident.start_unix_ns,
        root => root,
    });
    let first = WindowIndex(WindowIndex::at(begin).0.saturating_sub(MARGIN_WINDOWS));
    let end = WindowIndex::at(incident.end_unix_ns.max(begin)).0 + MARGIN_WINDOWS;
    (first, WindowIndex(end.min(first.0 + WINDOWS_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tailwater_model::window::{HostWindow, Input};

    #[test]
    fn a_timeline_whose_begin_has_left_the_memory_is_not_kept_for_good() {
        let incident = crate::fixture::incident("01A", 1);
        let (first, _) = span(&incident);
        let mut series = Series::new(10, usize::MAX);
        assert!(
            cut(&incident, &series).is_some(),
            "of hosts that nobody saw there is nothing on a disk, either"
        );
        let window = |index| {
            Input::Window(Arc::new(HostWindow { host: "web-1".into(), index, ..HostWindow::default() }))
        };
        series.add(window(WindowIndex(first.0 + 3)));
        assert!(cut(&incident, &series).is_none(), "the first three windows may be on the disk");
        series.add(window(first));
        let cut = cut(&incident, &series).expect("its begin is there");
        assert_eq!(of(&incident, &cut), of(&incident, &series));
    }
}
