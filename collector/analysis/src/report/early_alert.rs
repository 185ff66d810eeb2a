//! The early alert: a drop notice that belongs to no open incident, told before its window comes. Owns which notices were told and
//! whether windows confirmed them; the id is the one that the windows will give.

use crate::case::Case;
use crate::config::Config;
use crate::path::view::View;
use crate::topology::tier::{Tier, TierKey};
use std::collections::VecDeque;
use tailwater_model::address::is_path;
use tailwater_model::civil::Civil;
use tailwater_model::incident::{
    DropReason, Drops, Hop, Incident, Kind, Resource, Role, Root, Severity, State, Vlrt, identity,
};
use tailwater_model::place::place;
use tailwater_model::window::{DropNotice, WINDOW_NS, WindowIndex};

/// Alerts that wait for their windows.
const WAITING_MAX: usize = 256;
/// Windows after which an alert without a drop in the frames was wrong.
const CONFIRM_WINDOWS: u64 = 20;

#[derive(Debug)]
struct Waiting {
    window: u64,
    tier: TierKey,
    confirmed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Alerts {
    waiting: VecDeque<Waiting>,
}

impl Alerts {
    /// An alert, unless an open incident or an earlier alert covers the notice.
    pub(crate) fn notice(
        &mut self,
        view: View<'_>,
        config: &Config,
        cases: &[Case],
        notice: &DropNotice,
    ) -> Option<Incident> {
        let host = view.history.hosts.get(&notice.host)?;
        // A listener's first window may be the one that it overflows in.
        let listener = host.listener_heard_of(notice.listener)?;
        let window = WindowIndex::at(notice.unix_ns);
        let quiet = config.quiet_ns / WINDOW_NS;
        let tier = TierKey::of(&notice.host, listener);
        if cases.iter().any(|c| c.covers(view, config, &tier, window.0)) {
            return None;
        }
        let near = |w: &Waiting| {
            window.0 <= w.window.saturating_add(quiet)
                && (w.tier == tier || view.topology.related(&w.tier, &tier))
        };
        if self.waiting.iter().any(near) {
            return None;
        }
        // The windows have spoken: no drop there, or an incident that is closed.
        if view.history.window(&notice.host, window.0).is_some() {
            return None;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Waiting { window: window.0, tier: tier.clone(), confirmed: false });
        let id = identity(window, &notice.host, listener.address, listener.port);
        let tier = view.topology.tiers.get(&tier).cloned().unwrap_or_else(|| {
            let owner = host.workload_heard_of(listener.workload);
            Tier::heard_of(&tier, listener, owner, &config.tiers)
        });
        Some(provisional(notice, id, tier.workload, tier.name, listener.socket()))
    }

    /// A tier dropped in a frame.
    pub(crate) fn confirm(&mut self, view: View<'_>, tier: &TierKey, window: u64) {
        for waiting in self.waiting.iter_mut().filter(|w| window.abs_diff(w.window) <= CONFIRM_WINDOWS) {
            waiting.confirmed |= waiting.tier == *tier || view.topology.related(&waiting.tier, tier);
        }
    }

    /// Forgets what is settled; returns the window and tier of alerts that no window confirmed.
    pub(crate) fn settle(&mut self, now: u64, quiet_windows: u64) -> Vec<(u64, TierKey)> {
        let mut wrong = Vec::new();
        self.waiting.retain(|w| {
            let late = now > w.window.saturating_add(CONFIRM_WINDOWS);
            if late && !w.confirmed {
                wrong.push((w.window, w.tier.clone()));
                return false;
            }
            now <= w.window.saturating_add(CONFIRM_WINDOWS.max(quiet_windows))
        });
        wrong
    }
}

fn provisional(
    notice: &DropNotice,
    id: String,
    workload: String,
    tier: String,
    listener: String,
) -> Incident {
    let window = WindowIndex::at(notice.unix_ns);
    let by_collector = |unix_ns: u64| unix_ns.saturating_add_signed(notice.phase_ns);
    let (start, end) = (by_collector(window.start_unix_ns()), by_collector(window.end_unix_ns()));
    let full = notice.limit > 0 && notice.depth >= notice.limit;
    let refused = is_path(&listener);
    let lost = if refused { "refused {} connections" } else { "dropped {} packets" }
        .replace("{}", &notice.count.to_string());
    Incident {
        id,
        version: 0,
        state: State::Open,
        kind: Kind::LocalOverflow,
        severity: Severity::Critical,
        confidence: 0.0,
        title: format!(
            "{} {} {listener} {lost} (accept queue {}/{}); the cause is being determined.",
            Civil::of(by_collector(notice.unix_ns)).time_ms(),
            place(&workload, &notice.host),
            notice.depth,
            notice.limit
        ),
        start_unix_ns: start,
        end_unix_ns: end,
        clock_error_ns: 0,
        order_unknown: false,
        root: Root {
            host: notice.host.clone(),
            workload: workload.clone(),
            tier: tier.clone(),
            resource: Resource::Unexplained,
            start_unix_ns: start,
            end_unix_ns: end,
            peak: 0.0,
            unit: "ratio".to_owned(),
            culprits: Vec::new(),
            event_loop: None,
            lookups: None,
            lost: None,
            locks: None,
            lock: None,
            replicas: None,
            saturated: None,
            code: Vec::new(),
            evidence: "cause being determined".to_owned(),
        },
        hops: vec![Hop {
            host: notice.host.clone(),
            workload: workload.clone(),
            tier: tier.clone(),
            listener: listener.clone(),
            role: Role::Drop,
            observed: true,
            connections_only: false,
            requests_unknown: false,
            onset_unix_ns: start,
            order_to_root: None,
            queued_max: u64::from(notice.depth),
            workers_busy_max: 0,
            workers_limit: None,
            accept_queue_max: notice.depth,
            accept_queue_limit: (notice.limit > 0).then_some(notice.limit),
            pool_in_flight_max: None,
            pool_open: None,
            congestion: None,
            life: None,
            slowest: Vec::new(),
        }],
        drops: vec![Drops {
            host: notice.host.clone(),
            workload,
            tier,
            listener,
            count: notice.count,
            sk_drops: Some(notice.sk_drops),
            connections: notice.count,
            reason: match (refused, full) {
                (true, _) => DropReason::Refused,
                (false, true) => DropReason::AcceptQueueFull,
                (false, false) => DropReason::Other,
            },
            first_unix_ns: start,
            last_unix_ns: end,
        }],
        vlrt: Vlrt {
            by_kind: None,
            syn_retransmits: None,
            expected: if refused { 0 } else { notice.count },
            clients: Vec::new(),
        },
        sustained: None,
        alternatives: Vec::new(),
        against: Vec::new(),
        context: Vec::new(),
        also: Vec::new(),
        do_now: None,
        numbers: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::congestion::Congestion;
    use crate::config::Thresholds;
    use crate::frame::history::History;
    use crate::topology::graph::Topology;

    /// What is said of an alert about window 1000 when its tier dropped in the frame of `dropped` and the frame of 1200 has come.
    fn wrong(dropped: u64) -> Vec<(u64, TierKey)> {
        let tier = TierKey { host: "web".into(), workload: 1, listener: 1 };
        let mut alerts = Alerts::default();
        alerts.waiting.push_back(Waiting { window: 1000, tier: tier.clone(), confirmed: false });
        let (history, topology) = (History::default(), Topology::default());
        let (congestion, thresholds) = (Congestion::default(), Thresholds::default());
        alerts.confirm(View::of(&history, &topology, &congestion, &thresholds), &tier, dropped);
        alerts.settle(1200, 40)
    }

    #[test]
    fn a_drop_within_a_second_confirms_an_alert_and_a_later_one_does_not() {
        assert_eq!(wrong(1000), []);
        assert_eq!(wrong(1015), [], "750 ms");
        assert_eq!(wrong(1030).len(), 1, "1.5 s");
    }

    #[test]
    fn an_alert_of_a_workload_that_has_no_name_yet_is_told_by_its_host() {
        let notice = DropNotice {
            host: "web-1".into(),
            listener: 1,
            unix_ns: 1_700_000_000_999_500_000,
            phase_ns: 0,
            count: 3,
            sk_drops: 3,
            depth: 129,
            limit: 128,
        };
        let title = |workload: &str| {
            provisional(&notice, "01".into(), workload.into(), String::new(), "10.0.0.1:80".into()).title
        };
        let rest = "10.0.0.1:80 dropped 3 packets (accept queue 129/128); the cause is being determined.";
        assert_eq!(title(""), format!("22:13:21.000 web-1 {rest}"));
        assert_eq!(title("apache2"), format!("22:13:21.000 apache2@web-1 {rest}"));
    }
}
