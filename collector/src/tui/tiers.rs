//! What each tier does now, from the API's answers: depths against limits, who waits for what, and why nothing is known where
//! nothing is. Pure.

use super::answers::{Agent, Coverage, Key, Now};
use super::state::{Page, Sort, State};
use crate::live::metric;
use std::cmp::Reverse;
use tailwater_model::topology::NodeView;

/// Windows that end longer ago than this are old: agents send each within a fraction of a second.
pub(crate) const STALE_NS: u64 = 2_000_000_000;

/// Something that fills up. `None`: not known, which is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Depth {
    pub(crate) worst: Option<f64>,
    pub(crate) limit: Option<f64>,
}

impl Depth {
    /// 1: at its limit. The kernel's accept queue holds one more than that.
    pub(crate) fn ratio(self) -> Option<f64> {
        let limit = self.limit.filter(|limit| *limit > 0.0)?;
        Some(self.worst? / limit)
    }
}

/// What most tasks waited for, in the worst window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Waits {
    /// Mean tasks in that window.
    pub(crate) tasks: f64,
    pub(crate) on: &'static str,
}

/// What tasks wait for: the metric, and its word in a narrow column.
const WAITS: [(&str, &str); 3] =
    [("run_queue_wait_tasks", "cpu"), ("blocked_io_tasks", "disk"), ("memory_stall_tasks", "mem")];

/// One line of the overview.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) tier: String,
    pub(crate) listens: bool,
    pub(crate) accept: Depth,
    pub(crate) workers: Depth,
    /// Calls in flight, of the connections that were open.
    pub(crate) pool: Depth,
    pub(crate) cpu: Option<f64>,
    pub(crate) waits: Option<Waits>,
    /// Waiting tasks per window, oldest first.
    pub(crate) saturation: Vec<Option<f64>>,
    /// CPUs of its host: as many waiting tasks fill the sparkline.
    pub(crate) cpus: u32,
    /// In all windows together.
    pub(crate) drops: Option<f64>,
    /// Why nothing is known.
    pub(crate) silent: Option<String>,
}

impl Row {
    /// How full its fullest queue is.
    pub(crate) fn fullness(&self) -> f64 {
        [self.accept, self.workers, self.pool].iter().filter_map(|d| d.ratio()).fold(0.0, f64::max)
    }
}

/// All tiers, in the order in which they are shown.
pub(crate) fn rows(state: &State) -> Vec<Row> {
    let nodes = state.topology.as_ref().map_or(&[][..], |t| &t.nodes);
    // Listeners whose owner is not known are several nodes of one name.
    let mut seen = std::collections::BTreeSet::new();
    let mut rows: Vec<Row> =
        nodes.iter().filter(|n| seen.insert((&n.host, &n.workload))).map(|node| row(state, node)).collect();
    match state.sort {
        // Tenths, so that lines do not change places for nothing.
        Sort::Fullness => rows.sort_by_cached_key(|r| {
            let dropped = r.drops.is_some_and(|n| n > 0.0);
            let tenths = (r.fullness() * 10.0) as u64;
            (Reverse(dropped), Reverse(tenths), !r.listens, r.tier.clone(), r.key.clone())
        }),
        Sort::Name => rows.sort_by_cached_key(|r| (r.tier.clone(), r.key.clone())),
    }
    rows
}

fn row(state: &State, node: &NodeView) -> Row {
    let key = Key { host: node.host.clone(), workload: node.workload.clone() };
    let workloads = state.now.as_ref().map_or(&[][..], |n| &n.workloads);
    let now = workloads.iter().find(|n| n.host == key.host && n.workload.as_deref() == Some(&key.workload));
    let agent = state.agent(&key.host);
    let told = |metric: &str| agent.is_none_or(|a| untold(a, metric).is_none());
    let read = |metric: &str| now.filter(|_| told(metric)).and_then(|n| n.worst(metric));
    let limit = read("accept_queue_limit").filter(|limit| *limit > 0.0);
    let calls = read("calls_in_flight");
    let open = read("connections_open").filter(|open| *open > 0.0);
    let listens = !node.listeners.is_empty();
    Row {
        tier: if node.tier.is_empty() { key.workload.clone() } else { node.tier.clone() },
        listens,
        accept: Depth { worst: read("accept_queue_depth").filter(|_| listens), limit },
        workers: Depth {
            worst: read("workers_busy").filter(|_| listens),
            limit: node.workers_limit.map(f64::from),
        },
        pool: Depth { worst: calls.filter(|calls| open.is_some() || *calls > 0.0), limit: open },
        cpu: read("cpu_busy_ratio"),
        waits: WAITS
            .into_iter()
            .filter_map(|(metric, on)| Some(Waits { tasks: read(metric)?, on }))
            .max_by(|a, b| a.tasks.total_cmp(&b.tasks)),
        saturation: now.map(|n| n.saturation.clone()).unwrap_or_default(),
        cpus: agent.map_or(0, |a| a.cpus),
        drops: now.filter(|_| told("drops") && listens).and_then(|n| n.metrics.get("drops")?.sum),
        silent: silent(state, agent, now),
        key,
    }
}

/// Why an agent does not tell a metric; `None`: it does, or never said.
pub(crate) fn untold(agent: &Agent, name: &str) -> Option<String> {
    let metric = metric::find(name)?;
    let why = |c: &Coverage| {
        let reason = if c.reason.is_empty() { "the agent gave no reason" } else { &c.reason };
        let how = match (c.covered, c.sampled && metric.only_hooks) {
            (false, _) => "not covered",
            (true, true) => "not told by polling",
            (true, false) => return None,
        };
        Some(format!("{how}: {reason}"))
    };
    agent.coverage.iter().filter(|c| metric.signals.contains(&c.signal.as_str())).find_map(why)
}

fn silent(state: &State, agent: Option<&Agent>, now: Option<&Now>) -> Option<String> {
    let answer = state.now.as_ref()?;
    // The limit is looked for a minute back: it says nothing of these seconds.
    let told = |n: &Now| n.metrics.iter().any(|(name, m)| name != "accept_queue_limit" && m.max.is_some());
    if now.is_some_and(told) {
        return None;
    }
    Some(match agent {
        Some(agent) if !agent.connected => {
            format!(
                "no agent connected for {}",
                length(answer.now_unix_ns.saturating_sub(agent.since_unix_ns))
            )
        }
        Some(agent) if agent.newest_window_end_unix_ns > 0 => {
            let behind = answer.now_unix_ns.saturating_sub(agent.newest_window_end_unix_ns);
            format!("no windows for {}", length(behind))
        }
        _ => "no windows have come".to_owned(),
    })
}

/// `850 ms`, `12 s`, `3 min`, `5 h`, `2 d`.
pub(crate) fn length(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    match s {
        0 => format!("{} ms", ns / 1_000_000),
        1..60 => format!("{s} s"),
        60..3600 => format!("{} min", s / 60),
        3600..86_400 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

/// What a reader must know before any number: newest answer, agents, windows. Worst first.
pub(crate) fn notices(state: &State, now: std::time::Duration) -> Vec<String> {
    let mut out = Vec::new();
    if let Some((why, since)) = &state.away {
        let ago = u64::try_from(now.saturating_sub(*since).as_nanos()).unwrap_or(u64::MAX);
        let values = if state.now.is_some() { "; what is shown is old" } else { "" };
        out.push(format!("Away for {}, trying again{values}. Collector {}: {why}.", length(ago), state.url));
    }
    if state.frozen {
        out.push("Frozen: space goes on.".to_owned());
    }
    if let (Page::Overview, Some(why)) = (&state.page, &state.refused) {
        out.push(format!("The collector says: {why}."));
    }
    let (Some(agents), Some(answer)) = (&state.agents, &state.now) else {
        if out.is_empty() {
            out.push(format!("Asking {} …", state.url));
        }
        return out;
    };
    let behind = |a: &Agent| answer.now_unix_ns.saturating_sub(a.newest_window_end_unix_ns);
    if agents.is_empty() {
        out.push(
            "No agent has connected. Start `tailwater-agent run --collector URL` on each tier's host.".into(),
        );
        return out;
    }
    let gone: Vec<&Agent> = agents.iter().filter(|a| !a.connected).collect();
    if let Some(first) = gone.first() {
        let ago = length(answer.now_unix_ns.saturating_sub(first.since_unix_ns));
        let others = if gone.len() > 1 { format!(" and {} more", gone.len() - 1) } else { String::new() };
        out.push(format!("No agent connected: {} (for {ago}){others}. Not zero: unknown.", first.host));
    }
    let connected = || agents.iter().filter(|a| a.connected);
    let stale: Vec<&Agent> = connected().filter(|a| behind(a) > STALE_NS).collect();
    if let Some(first) = stale.first() {
        let others = if stale.len() > 1 { format!(" and {} more", stale.len() - 1) } else { String::new() };
        let since = match first.newest_window_end_unix_ns {
            0 => "has sent none yet".to_owned(),
            _ => format!("is {} behind", length(behind(first))),
        };
        out.push(format!("Windows are stale: {} {since}{others}.", first.host));
    }
    if let Some(agent) = connected().find(|a| !a.shed_signals.is_empty()) {
        out.push(format!(
            "{} sheds {} to stay within its budget.",
            agent.host,
            agent.shed_signals.join(", ")
        ));
    }
    if connected().next().is_some() && state.topology.as_ref().is_some_and(|t| t.nodes.is_empty()) {
        out.push("Nobody listens or calls yet; tiers appear as agents see connections.".to_owned());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_untold_where_a_signal_of_it_is_not_measured_or_only_polled() {
        let of = |signal: &str, covered, sampled| Coverage {
            signal: signal.to_owned(),
            covered,
            sampled,
            reason: "no BTF".to_owned(),
        };
        let agent = Agent {
            coverage: vec![
                of("cpu", true, true),
                of("requests", true, false),
                of("accept_queue", false, false),
            ],
            ..Agent::default()
        };
        let told = |metric| untold(&agent, metric);
        assert_eq!(told("cpu_busy_ratio"), None, "polling tells it");
        assert_eq!(told("stopped_threads").as_deref(), Some("not told by polling: no BTF"));
        assert_eq!(told("workers_busy"), None);
        assert_eq!(
            told("queued_requests").as_deref(),
            Some("not covered: no BTF"),
            "a part of a sum is not the sum"
        );
        assert_eq!(told("calls_in_flight"), None, "the agent said nothing of calls");
    }
}
