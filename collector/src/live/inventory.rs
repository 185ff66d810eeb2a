//! What the kept windows know by name: workloads of a host with what listens and what is called, and what each of them did in the
//! last moments. Reads the series; owns no bound.

use super::limits::LIMIT;
use super::recent::Recent;
use super::series::Series;
use super::view::{Query, Selected};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tailwater_model::names::Seen;
use tailwater_model::window::{WINDOW_NS, WindowIndex};

/// A limit is not in every window of a quiet queue: it is looked for this far back (a minute).
const LIMIT_WINDOWS: u64 = 1200;

/// One host by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostInventory {
    /// Its name.
    pub host: String,
    /// Start of the oldest window in memory, Unix ns; of a host without any, when it was first seen.
    pub oldest_unix_ns: u64,
    /// End of the newest one, Unix ns; of a host without any, when it was last seen.
    pub newest_unix_ns: u64,
    /// By name.
    pub workloads: Vec<WorkloadInventory>,
}

/// One workload by name.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct WorkloadInventory {
    /// As everywhere.
    pub name: String,
    /// Path of its cgroup.
    pub cgroup: String,
    /// Command of its main process.
    pub comm: String,
    /// CPU ns per window that its quota allows; 0: none. `None`: not known, its windows are not in memory.
    pub cpu_quota_ns: Option<u64>,
    /// `address:port` that it listens on.
    pub listeners: Vec<String>,
    /// `address:port` that it calls. `None`: not known, its windows are not in memory.
    pub remotes: Option<Vec<String>>,
}

impl HostInventory {
    /// From what was seen of `host`, which is less than its windows say: neither quotas nor whom it calls. `None`: nothing was.
    #[must_use]
    pub fn of(host: &str, seen: &[Seen]) -> Option<Self> {
        let itself = seen.iter().find(|s| s.kind == "host" && s.host == host)?;
        let own = |kind: &'static str| seen.iter().filter(move |s| s.kind == kind && s.host == host);
        let workloads = own("workload").map(|w| WorkloadInventory {
            name: w.name.clone(),
            cgroup: w.detail.clone(),
            listeners: own("listener").filter(|l| l.detail == w.name).map(|l| l.name.clone()).collect(),
            ..WorkloadInventory::default()
        });
        Some(Self {
            host: host.to_owned(),
            oldest_unix_ns: itself.first_unix_ns,
            newest_unix_ns: itself.last_unix_ns,
            workloads: workloads.collect(),
        })
    }
}

/// A host, or a workload of it, in the last moments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Now {
    /// Its host.
    pub host: String,
    /// Its name; `None`: the host itself.
    pub workload: Option<String>,
    /// Start of the first window of `trail`, Unix ns.
    pub start_unix_ns: u64,
    /// By name of the metric.
    pub metrics: BTreeMap<&'static str, Recent>,
    /// What shows it at a glance, per window: queued requests of a workload, CPU of a host.
    pub trail: Vec<Option<f64>>,
    /// Mean tasks that waited for CPU, disk or memory together, per window: work that the resources did not take on.
    pub saturation: Vec<Option<f64>>,
}

/// What [`Now::saturation`] sums.
const WAITS: [&str; 3] = ["run_queue_wait_tasks", "blocked_io_tasks", "memory_stall_tasks"];
const HOST_METRICS: &[&str] =
    &["cpu_busy_ratio", "cpu_steal_ratio", "run_queue_wait_tasks", "blocked_io_tasks", "drops"];
const WORKLOAD_METRICS: &[&str] = &[
    "cpu_busy_ratio",
    "run_queue_wait_tasks",
    "blocked_io_tasks",
    "memory_stall_tasks",
    "queued_requests",
    "accept_queue_depth",
    "workers_busy",
    "multiplexed_connections",
    "unanswered_pieces",
    "drops",
    "requests_answered",
    "response_time_ms",
    "calls_in_flight",
    "connections_open",
];

impl Series {
    /// Names and span of a host; `None`: nothing of it is in memory.
    #[must_use]
    pub fn inventory(&self, host: &str) -> Option<HostInventory> {
        let (oldest, newest) = self.span(host)?;
        let known = &self.hosts.get(host)?.names;
        let mut by_name: BTreeMap<&str, (WorkloadInventory, BTreeSet<String>, BTreeSet<String>)> =
            BTreeMap::new();
        for w in known.workloads.values() {
            // A workload that was started again has a higher id: its facts replace the older ones.
            let entry = &mut by_name.entry(&w.name).or_default().0;
            entry.name.clone_from(&w.name);
            entry.cgroup.clone_from(&w.cgroup);
            entry.comm.clone_from(&w.comm);
            entry.cpu_quota_ns = Some(w.cpu_quota_ns);
        }
        let name = |id| known.workloads.get(&id).map(|w| w.name.as_str());
        for l in known.listeners.values() {
            if let Some((_, listeners, _)) = name(l.workload).and_then(|n| by_name.get_mut(n)) {
                listeners.insert(l.socket());
            }
        }
        for e in known.edges.values() {
            if let Some((_, _, remotes)) = name(e.workload).and_then(|n| by_name.get_mut(n)) {
                remotes.insert(e.socket());
            }
        }
        let workloads = by_name
            .into_values()
            .map(|(workload, listeners, remotes)| WorkloadInventory {
                listeners: listeners.into_iter().collect(),
                remotes: Some(remotes.into_iter().collect()),
                ..workload
            })
            .collect();
        Some(HostInventory {
            host: host.to_owned(),
            oldest_unix_ns: oldest.start_unix_ns(),
            newest_unix_ns: newest.start_unix_ns().saturating_add(WINDOW_NS),
            workloads,
        })
    }

    /// The last `windows` windows before `now_unix_ns` of `workload`, or of the host itself. A host that went silent has none of them:
    /// its values are `None`.
    #[must_use]
    pub fn now(&self, host: &str, workload: Option<&str>, now_unix_ns: u64, windows: u64) -> Now {
        let (first, last) = Now::shows(now_unix_ns, windows);
        let of = |metric| Query { host, workload, listener: None, metric };
        // All that is asked of the same windows at once; a limit is looked for further back, by itself.
        let together: Vec<Query<'_>> =
            Now::metrics(workload.is_some()).filter(|metric| *metric != LIMIT).map(of).collect();
        let rows = self.several(&together, first, last);
        let limit = |back| {
            let Some(of_host) = self.hosts.get(host) else { return Recent::default() };
            let listeners = Selected::of(&of_host.names, of(LIMIT)).ids.map(|ids| ids.listeners);
            of_host.limits.of(&listeners.unwrap_or_default(), back, last)
        };
        Now::of(host, workload, (now_unix_ns, windows), limit, |metric| {
            let found = together.iter().position(|query| query.metric == metric);
            found.map(|n| rows[n].clone()).unwrap_or_default()
        })
    }

    /// What [`now`](Self::now) reads of one host, to be read without the lock that the analysis waits for: the windows of that time, and
    /// limits of longer.
    #[must_use]
    pub fn moment(&self, host: &str, until_unix_ns: u64, windows: u64) -> Self {
        let shown = Now::shows(until_unix_ns, windows);
        self.cut(host, shown, Now::reads(until_unix_ns, windows))
    }

    /// Hosts with windows or names, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(String::as_str)
    }
}

fn last_before(unix_ns: u64) -> WindowIndex {
    WindowIndex(WindowIndex::at(unix_ns).0.saturating_sub(1))
}

impl Now {
    /// The windows that it shows, first and last.
    #[must_use]
    pub fn shows(until_unix_ns: u64, windows: u64) -> (WindowIndex, WindowIndex) {
        let last = last_before(until_unix_ns);
        (WindowIndex(last.0.saturating_sub(windows.saturating_sub(1))), last)
    }

    /// The windows that [`Now::of`] reads, first and last.
    #[must_use]
    pub fn reads(until_unix_ns: u64, windows: u64) -> (WindowIndex, WindowIndex) {
        let last = last_before(until_unix_ns);
        (WindowIndex(last.0.saturating_sub(windows.max(LIMIT_WINDOWS))), last)
    }

    /// The metrics that it reads, of a workload or of a host.
    pub fn metrics(of_workload: bool) -> impl Iterator<Item = &'static str> {
        let names = if of_workload { WORKLOAD_METRICS } else { HOST_METRICS };
        let more = WAITS.into_iter().chain(of_workload.then_some(LIMIT));
        names.iter().copied().chain(more.filter(|name| !names.contains(name)))
    }

    /// Of so many windows before a moment (Unix ns): from what `read` says of a metric in each of them, and `limit` of the accept
    /// queues' limit from a window on.
    pub fn of(
        host: &str,
        workload: Option<&str>,
        (until_unix_ns, windows): (u64, u64),
        limit: impl FnOnce(WindowIndex) -> Recent,
        read: impl Fn(&'static str) -> Vec<Option<f64>>,
    ) -> Self {
        let (first, last) = Self::shows(until_unix_ns, windows);
        let names = if workload.is_some() { WORKLOAD_METRICS } else { HOST_METRICS };
        let mut metrics: BTreeMap<_, _> =
            names.iter().map(|metric| (*metric, Recent::of(&read(metric)))).collect();
        if workload.is_some() {
            let back = WindowIndex(last.0.saturating_sub(LIMIT_WINDOWS));
            let limit = limit(back);
            if limit.max.is_some_and(|limit| limit > 0.0) {
                metrics.insert(LIMIT, limit);
            }
        }
        let waits = WAITS.map(&read);
        // Of those that are known.
        let known = |n: usize| {
            waits.iter().filter_map(|values| values.get(n).copied().flatten()).reduce(|a, b| a + b)
        };
        let saturation = (0..waits[0].len()).map(known).collect();
        let glance = if workload.is_some() { "queued_requests" } else { "cpu_busy_ratio" };
        Now {
            host: host.to_owned(),
            workload: workload.map(str::to_owned),
            start_unix_ns: first.start_unix_ns(),
            metrics,
            trail: read(glance),
            saturation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use std::sync::Arc;
    use tailwater_model::window::{
        EdgeInfo, HostCpu, HostWindow, Input, ListenerInfo, ListenerWindow, SignalSet, WorkloadInfo,
    };

    fn series() -> Series {
        let mut series = Series::new(10, 1 << 24);
        let address: IpAddr = [10, 0, 0, 1].into();
        let workload = |id, quota| WorkloadInfo {
            id,
            name: "apache2.service".into(),
            cpu_quota_ns: quota,
            ..WorkloadInfo::default()
        };
        let listener = |id, workload| ListenerInfo {
            id,
            workload,
            address,
            port: 80,
            path: None,
            comm: String::new(),
            pool: None,
            started_with: 0,
            pid: 0,
        };
        series.saw(&Input::Entities {
            host: "web-1".into(),
            workloads: vec![workload(1, 10), workload(2, 20)],
            listeners: vec![listener(5, 1), listener(6, 2)],
            edges: vec![EdgeInfo {
                id: 7,
                workload: 2,
                remote_address: address,
                remote_port: 8080,
                path: None,
            }],
            devices: vec![],
        });
        series
    }

    fn window(series: &mut Series, index: u64, depth_max: u32, limit: u32) {
        let mut w = HostWindow { host: "web-1".into(), index: WindowIndex(index), ..HostWindow::default() };
        w.cpu = Some(HostCpu { capacity_ns: 100, busy_ns: 50, ..HostCpu::default() });
        w.listeners.insert(6, ListenerWindow { depth_max, limit, ..ListenerWindow::default() });
        series.saw(&Input::Window(Arc::new(w)));
    }

    #[test]
    fn a_workload_that_was_started_again_is_one_with_the_newest_facts() {
        let mut s = series();
        assert_eq!(s.inventory("web-1"), None, "names alone are no windows");
        window(&mut s, 100, 1, 128);
        let inventory = s.inventory("web-1").unwrap();
        assert_eq!(inventory.newest_unix_ns - inventory.oldest_unix_ns, WINDOW_NS);
        let [apache] = &inventory.workloads[..] else { panic!("{inventory:?}") };
        assert_eq!((apache.cpu_quota_ns, apache.listeners.len()), (Some(20), 1));
        assert_eq!(apache.remotes.as_deref(), Some(&["10.0.0.1:8080".to_owned()][..]));
    }

    #[test]
    fn a_silent_host_has_no_values_and_a_quiet_queue_keeps_its_limit() {
        let mut s = series();
        window(&mut s, 100, 9, 128);
        window(&mut s, 119, 3, 0);
        let after = |index: u64| WindowIndex(index + 1).start_unix_ns();
        let now = s.now("web-1", Some("apache2.service"), after(119), 20);
        let depth = now.metrics["accept_queue_depth"];
        assert_eq!((depth.last, depth.max, depth.mean), (Some(3.0), Some(9.0), Some(6.0)));
        assert_eq!(now.trail.len(), 20);
        assert_eq!((now.trail[0], now.trail[1]), (Some(9.0), None), "a missing window is missing");
        let later = s.now("web-1", Some("apache2.service"), after(200), 20);
        assert_eq!(later.metrics["accept_queue_depth"], Recent::default());
        assert_eq!(later.metrics["accept_queue_limit"].max, Some(128.0));
        assert_eq!(s.now("web-1", None, after(119), 20).metrics["cpu_busy_ratio"].last, Some(0.5));
    }

    #[test]
    fn limits_that_are_kept_apart_say_what_whole_windows_say() {
        let mut s = series();
        let known = |s: &mut Series, index: u64, uncovered: bool| {
            let mut w =
                HostWindow { host: "web-1".into(), index: WindowIndex(index), ..HostWindow::default() };
            if uncovered {
                w.uncovered = SignalSet::of(["accept_queue"]);
            }
            for (id, limit) in [(5, 128), (6, 256 * u32::from(index % 7 < 3)), (9, 4096)] {
                w.listeners.insert(id, ListenerWindow { limit, depth_max: 1, ..ListenerWindow::default() });
            }
            s.saw(&Input::Window(Arc::new(w)));
        };
        // Some are missing, some are not covered, some come late, and one comes twice.
        let late = |index: &u64| index.is_multiple_of(11);
        let all: Vec<u64> = (5_000..7_000_u64).filter(|index| !index.is_multiple_of(13)).collect();
        all.iter().filter(|n| !late(n)).for_each(|n| known(&mut s, *n, n.is_multiple_of(17)));
        all.iter().filter(|n| late(n)).for_each(|n| known(&mut s, *n, false));
        known(&mut s, 6_990, true);
        for until in [5_900, 6_500, 7_000, 7_500] {
            let (unix_ns, last) = (WindowIndex(until).start_unix_ns(), WindowIndex(until - 1));
            let query =
                Query { host: "web-1", workload: Some("apache2.service"), listener: None, metric: LIMIT };
            let of_windows = Recent::of(&s.values(query, WindowIndex(until - 1 - LIMIT_WINDOWS), last));
            assert!(of_windows.max.is_some(), "{until}");
            let now = s.now("web-1", Some("apache2.service"), unix_ns, 100);
            assert_eq!(now.metrics.get(LIMIT), Some(&of_windows), "{until}");
            let part = s.moment("web-1", unix_ns, 100);
            assert_eq!(part.now("web-1", Some("apache2.service"), unix_ns, 100), now, "{until}");
        }
        // What left the windows for its age left the limits.
        (20_000..20_010).for_each(|n| known(&mut s, n, false));
        assert_eq!(s.hosts["web-1"].limits.len(), s.hosts["web-1"].windows.len());
    }
}
