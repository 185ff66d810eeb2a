//! The slowest requests of a tier in an incident, each with the way that it took through the tiers below. Owns which are kept, and which request of a
//! tier was the call of another: that on the same connection which ended with it. Knows no cause.

use crate::frame::history::Windows;
use crate::path::view::View;
use crate::topology::graph::Link;
use crate::topology::tier::{Tier, TierKey};
use tailwater_model::address::place;
use tailwater_model::incident::{CallLeg, Exemplar, Spent};
use tailwater_model::window::{Host, HostWindow, SlowCall, SlowRequest, WINDOW_NS};

/// Requests of a tier that are kept.
const SLOWEST: usize = 20;
/// Calls on the way of one, with those below them, …
const LEGS_MAX: usize = 16;
/// … and of all that are kept of a tier.
const LEGS_OF_TIER: usize = 64;
/// Tiers below each other that a way is followed through.
const DEPTH_MAX: u32 = 8;
/// The other end of a call is looked for so many windows before and after that in which it ended, as clocks differ and an agent may tell it late (200 ms); …
const AROUND: u64 = 4;
/// … and until so many windows have come since the request was told (1 s). Between its end there and that of the call are at most so many: exchanges of 200 ms
/// that follow each other on a connection end four windows apart.
const LOOKED_FOR: u64 = 20;
const APART: u64 = 2;
/// By so much longer than its call may it be there, as clocks of hooks differ and a request may be sent before its connection is accepted.
const LONGER_NS: u64 = WINDOW_NS;
/// What took as long in so many windows before the incident does so anyway (16 s).
const BEFORE_WINDOWS: u64 = 320;

/// Of one tier.
#[derive(Debug, Clone, Default)]
pub(super) struct Slowest {
    /// As long as the slowest took before.
    usual_ns: u64,
    /// Slowest first.
    kept: Vec<Kept>,
}

/// A request, and what is known of its way.
#[derive(Debug, Clone)]
struct Kept {
    /// The window that told it.
    at: u64,
    request: SlowRequest,
    legs: Vec<CallLeg>,
    legs_left_out: u32,
    /// Its way is not looked for any more.
    found: bool,
}

impl Slowest {
    /// Of a tier whose incident begins at window `from`. `is_of_another`: of which nothing is asked.
    pub(super) fn before(
        windows: Windows<'_>,
        tier: &Tier,
        from: u64,
        is_of_another: impl Fn(u64) -> bool,
    ) -> Self {
        let asked = (from.saturating_sub(BEFORE_WINDOWS)..from).filter(|index| !is_of_another(*index));
        let told = asked.filter_map(|index| windows.at(index)).flat_map(|window| of_tier(window, tier));
        Self { usual_ns: told.map(SlowRequest::took_ns).max().unwrap_or(0), kept: Vec::new() }
    }

    /// Takes what a window tells of the tier.
    pub(super) fn take(&mut self, at: u64, window: &HostWindow, tier: &Tier) {
        for request in of_tier(window, tier) {
            let took_ns = request.took_ns();
            let place = self.kept.partition_point(|kept| kept.request.took_ns() >= took_ns);
            if took_ns <= self.usual_ns || place >= SLOWEST {
                continue;
            }
            let kept =
                Kept { at, request: request.clone(), legs: Vec::new(), legs_left_out: 0, found: false };
            self.kept.insert(place, kept);
            self.kept.truncate(SLOWEST);
        }
    }

    /// Looks for the ways that are not known yet.
    pub(super) fn follow(&mut self, view: View<'_>, key: &TierKey, now: u64) {
        let mut known: usize = self.kept.iter().filter(|kept| kept.found).map(|kept| kept.legs.len()).sum();
        for kept in self.kept.iter_mut().filter(|kept| !kept.found) {
            let room = LEGS_OF_TIER.saturating_sub(known).min(LEGS_MAX);
            let mut way = Way { view, legs: Vec::new(), room, left_out: 0, missed: false };
            way.follow(key, &kept.request, kept.at, 1);
            kept.found = !way.missed || now >= kept.at.saturating_add(LOOKED_FOR);
            known += way.legs.len();
            (kept.legs, kept.legs_left_out) = (way.legs, way.left_out);
        }
    }

    /// As it is told.
    pub(super) fn told(&self, view: View<'_>, host: &str) -> Vec<Exemplar> {
        self.kept.iter().map(|kept| kept.told(view, host)).collect()
    }
}

impl Kept {
    fn told(&self, view: View<'_>, host: &str) -> Exemplar {
        let request = &self.request;
        let end_unix_ns = view.history.start_unix_ns(host, self.at.saturating_add(1));
        Exemplar {
            end_unix_ns: end_unix_ns.saturating_sub(request.ended_ago_ns),
            took_ms: ms(request.took_ns()),
            spent: spent(request),
            aborted: request.aborted,
            calls_known: request.calls.is_some(),
            calls: self.legs.clone(),
            calls_left_out: request.calls_left_out.saturating_add(self.legs_left_out),
        }
    }
}

/// The way of one request.
struct Way<'a> {
    view: View<'a>,
    legs: Vec<CallLeg>,
    /// For so many.
    room: usize,
    left_out: u32,
    /// The other end of some call may still come.
    missed: bool,
}

impl<'a> Way<'a> {
    /// Adds the calls of a request that a tier's host told in window `at`, and of what they were there.
    fn follow(&mut self, key: &TierKey, request: &SlowRequest, at: u64, depth: u32) {
        for call in request.calls.iter().flatten() {
            if self.legs.len() >= self.room {
                self.left_out = self.left_out.saturating_add(1);
                continue;
            }
            let all = self.view.topology.calls_of(&key.host).iter();
            let links: Vec<&Link> =
                all.filter(|link| link.from == *key && link.edges.contains(&call.edge)).collect();
            // The request ended so long after it.
            let since = request.inside_ns.saturating_sub(call.after_ns).saturating_sub(call.took_ns);
            let ended = at.saturating_sub(request.ended_ago_ns.saturating_add(since) / WINDOW_NS);
            let there = self.other_end(&links, call, ended);
            let to = match &there {
                Some(there) => Some(there.key),
                // Which of several that an address leads to is not known.
                None => links.first().and_then(|link| link.to.as_ref()).filter(|_| links.len() == 1),
            };
            self.missed |= there.is_none() && !call.connecting && links.iter().any(|link| link.to.is_some());
            self.legs.push(self.leg(to, links.first().copied(), call, depth, there.as_ref()));
            if let Some(There { key, request, at }) = there
                && depth < DEPTH_MAX
            {
                self.follow(key, request, at, depth + 1);
            }
        }
    }

    /// What a call was for the tier that was called; `None`: it took less than 200 ms there, or is not told yet.
    fn other_end(&self, links: &[&'a Link], call: &SlowCall, ended: u64) -> Option<There<'a>> {
        if call.pair == 0 || call.connecting {
            return None;
        }
        let mut best: Option<(u64, There<'a>)> = None;
        for key in links.iter().filter_map(|link| link.to.as_ref()) {
            let Some(tier) = self.view.topology.tiers.get(key) else { continue };
            let windows = self.view.history.windows_of(&key.host);
            for at in ended.saturating_sub(AROUND)..=ended.saturating_add(AROUND) {
                let Some(window) = windows.at(at) else { continue };
                let longest_ns = call.took_ns.saturating_add(LONGER_NS);
                let may_be = |r: &&SlowRequest| r.pair == call.pair && r.took_ns() <= longest_ns;
                for request in of_tier(window, tier).filter(may_be) {
                    let end = at.saturating_sub(request.ended_ago_ns / WINDOW_NS);
                    let apart = end.abs_diff(ended);
                    if apart <= APART && best.as_ref().is_none_or(|(least, _)| apart < *least) {
                        best = Some((apart, There { key, request, at }));
                    }
                }
            }
        }
        best.map(|(_, there)| there)
    }

    fn leg(
        &self,
        to: Option<&TierKey>,
        link: Option<&Link>,
        call: &SlowCall,
        depth: u32,
        there: Option<&There<'_>>,
    ) -> CallLeg {
        let tier = to.and_then(|key| self.view.topology.tiers.get(key));
        let remote = || {
            link.map_or_else(String::new, |link| place(link.path.as_deref(), link.remote.0, link.remote.1))
        };
        let host: Host = to.map_or_else(remote, |key| key.host.clone());
        CallLeg {
            depth,
            host,
            workload: tier.map_or_else(String::new, |tier| tier.workload.clone()),
            tier: tier.map_or_else(String::new, |tier| tier.name.clone()),
            after_ms: ms(call.after_ns),
            took_ms: ms(call.took_ns),
            connecting: call.connecting,
            aborted: call.aborted,
            there: there.map(|there| spent(there.request)),
            calls_unknown: there.is_some_and(|there| there.request.calls.is_none()),
        }
    }
}

/// A request that was a call of another tier.
struct There<'a> {
    key: &'a TierKey,
    request: &'a SlowRequest,
    at: u64,
}

fn of_tier<'a>(window: &'a HostWindow, tier: &Tier) -> impl Iterator<Item = &'a SlowRequest> {
    let is_of = move |request: &&SlowRequest| tier.listeners.iter().any(|l| l.id == request.listener);
    window.slow_requests.iter().filter(is_of)
}

fn spent(request: &SlowRequest) -> Spent {
    Spent {
        retried_ms: ms(request.retried_ns),
        unread_ms: ms(request.unread_ns),
        queued: request.queued,
        inside_ms: ms(request.inside_ns),
    }
}

/// To the nearest.
fn ms(ns: u64) -> u64 {
    ns.saturating_add(500_000) / 1_000_000
}
