//! The congestion point N* of every listener: load (mean queued requests) against throughput (answers) per window, kept online.
//! Owns which windows count, how many listeners are kept, and the points of interest: load beyond N* with throughput near zero,
//! which is a server that stands still while requests wait. `knee` owns the estimate and names its source.
//!
//! A listener is a socket address of a workload: what it learned outlives the ids of an agent, and sockets that share an address
//! (`SO_REUSEPORT`) are one. Memory: at most [`LISTENERS_MAX`] x [`curve::BINS_MAX`] x 32 bytes (75 MB), a tenth of it in practice.

mod curve;
mod knee;

use crate::frame::history::{History, LOOK_WINDOWS};
use crate::series::{Series, mean};
use crate::topology::graph::{Topology, span};
use crate::topology::tier::{ListenerName, Tier, TierKey};
use curve::Curve;
pub(crate) use curve::NEAR_ZERO;
pub(crate) use knee::{Estimate, Knee};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use tailwater_model::congestion::{CongestionCurve, CongestionView};
use tailwater_model::incident::socket;
use tailwater_model::window::{EntityId, Host, HostWindow, ListenerWindow};

/// Listeners that are kept: sixteen of each of a thousand hosts; in tests what one host can name.
const LISTENERS_MAX: usize = if cfg!(test) { 1024 } else { 16_384 };
/// One that had no window for so long makes room, windows (10 minutes).
const STALE_WINDOWS: u64 = 12_000;

/// A socket address of a workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ListenerKey {
    host: Host,
    workload: String,
    address: IpAddr,
    port: u16,
}

#[derive(Debug, Default)]
struct Kept {
    curve: Curve,
    tier: String,
    /// As people write it.
    socket: String,
    last: u64,
}

/// All listeners' curves.
#[derive(Debug, Default)]
pub(crate) struct Congestion {
    /// Of each host, what its tiers listen at, in their order: what a frame needs of it, until the host's names change.
    sockets: BTreeMap<Host, Vec<Socket>>,
    curves: Curves,
}

/// What a tier listens at.
#[derive(Debug)]
struct Socket {
    of: ListenerKey,
    tier: String,
    /// As people write it.
    written: String,
    /// Of the listeners that share it, in the order of the tier's.
    ids: Vec<EntityId>,
    /// Where its curve is kept, and what [`Curves::moved`] was then; `None`: it was not asked for yet, or found no room.
    place: Option<(u64, usize)>,
}

/// Curves by their listeners. With thousands of them one is searched for by comparing some twenty names: whoever comes in each frame keeps its
/// place.
#[derive(Debug, Default)]
struct Curves {
    places: BTreeMap<ListenerKey, usize>,
    kept: Vec<Kept>,
    /// How often places became others, as some made room.
    moved: u64,
    refused: u64,
    /// When room was looked for in vain.
    looked: Option<u64>,
}

/// One window of a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Serving {
    /// Mean queued requests.
    pub(crate) load: f64,
    pub(crate) answered: f64,
}

/// What a listener's curve says of some windows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judged {
    pub(crate) estimate: Estimate,
    pub(crate) windows: Series<Serving>,
}

impl Curves {
    /// Where a listener's curve is kept, which begins if there is none; `None`: there is no room.
    fn place(&mut self, of: &ListenerKey, now: u64) -> Option<usize> {
        if let Some(at) = self.places.get(of) {
            return Some(*at);
        }
        if self.kept.len() >= LISTENERS_MAX {
            // Where there is room nothing is searched for twice.
            let looked = |at: u64| now.saturating_sub(at) < LOOK_WINDOWS;
            if !self.looked.is_some_and(looked) {
                self.looked = Some(now);
                self.forget_stale(now);
            }
            if self.kept.len() >= LISTENERS_MAX {
                self.refused = self.refused.saturating_add(1);
                return None;
            }
        }
        let at = self.kept.len();
        self.kept.push(Kept { last: now, ..Kept::default() });
        self.places.insert(of.clone(), at);
        Some(at)
    }

    fn forget_stale(&mut self, now: u64) {
        let mut before: Vec<Option<Kept>> = std::mem::take(&mut self.kept).into_iter().map(Some).collect();
        self.places.retain(|_, at| {
            let stays = |kept: &Kept| kept.last.saturating_add(STALE_WINDOWS) >= now;
            let Some(kept) = before.get_mut(*at).and_then(Option::take).filter(stays) else { return false };
            *at = self.kept.len();
            self.kept.push(kept);
            true
        });
        self.moved = self.moved.wrapping_add(1);
    }

    fn get(&self, of: &ListenerKey) -> Option<&Kept> {
        self.kept.get(*self.places.get(of)?)
    }
}

impl Congestion {
    /// Takes the windows of one frame, before which the names of the hosts that are `changed` became others.
    pub(crate) fn observe(
        &mut self,
        history: &History,
        topology: &Topology,
        changed: &BTreeSet<Host>,
        now: u64,
    ) {
        for host in changed {
            let servers = topology.servers.range(span(host));
            let sockets: Vec<Socket> = servers.flat_map(|(key, tier)| Socket::all_of(key, tier)).collect();
            if sockets.is_empty() {
                self.sockets.remove(host);
            } else {
                self.sockets.insert(host.clone(), sockets);
            }
        }
        let Self { sockets, curves } = self;
        let mut windows = history.windows_in_order(now);
        for (host, sockets) in sockets {
            let found = windows.of(host).filter(|(host, _)| host.info.coverage.requests);
            let Some((_, window)) = found else { continue };
            for socket in sockets {
                // Neither load nor throughput is known of connections that carry several exchanges at once.
                if rows(window, &socket.ids).any(ListenerWindow::connections_only) {
                    continue;
                }
                let Serving { load, answered } = serving(window, &socket.ids);
                let at = match socket.place {
                    Some((moved, at)) if moved == curves.moved => Some(at),
                    _ => curves.place(&socket.of, now),
                };
                socket.place = at.map(|at| (curves.moved, at));
                let Some(kept) = at.and_then(|at| curves.kept.get_mut(at)) else { continue };
                kept.seen(socket, now);
                kept.curve.observe(load, answered);
            }
        }
    }

    /// A tier's busiest listener in `[first, last]`, judged by its curve; `None`: no curve is kept of it.
    pub(crate) fn judge(
        &self,
        history: &History,
        key: &TierKey,
        tier: &Tier,
        first: u64,
        last: u64,
    ) -> Option<Judged> {
        let all = sockets(tier).into_iter().filter_map(|(address, port)| {
            let kept = self.curves.get(&listener_key(key, tier, address, port))?;
            let ids: Vec<EntityId> = at(tier, address, port).collect();
            let windows = Series::draw(history, &key.host, first, last, |w| serving(w, &ids));
            Some((windows.range(first, last).map(|(_, s)| s.load).sum::<f64>(), kept, windows))
        });
        let (_, kept, windows) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Judged { estimate: knee::estimate(&kept.curve), windows })
    }

    /// For people and pages.
    pub(crate) fn view(&self) -> CongestionView {
        let Curves { places, kept, refused, .. } = &self.curves;
        let all = places.iter().filter_map(|(key, at)| Some((key, kept.get(*at)?)));
        let listeners = all.map(|(key, kept)| {
            let estimate = knee::estimate(&kept.curve);
            CongestionCurve {
                host: key.host.clone(),
                workload: key.workload.clone(),
                tier: kept.tier.clone(),
                listener: kept.socket.clone(),
                state: estimate.state,
                congestion_point: estimate.knee.map(|k| tenth(k.load)),
                throughput: estimate.knee.map(|k| tenth(k.answered)),
                coverage: estimate.coverage,
                frozen_windows: tenth(kept.curve.frozen()),
                intervals: estimate.intervals,
            }
        });
        CongestionView { listeners: listeners.collect(), refused: *refused }
    }
}

impl Socket {
    /// What a tier listens at, in order.
    fn all_of(key: &TierKey, tier: &Tier) -> Vec<Self> {
        let all = sockets(tier).into_iter().map(|(address, port)| {
            let of = tier.listeners.iter().find(|l| l.port == port && l.address.to_canonical() == address);
            Self {
                of: listener_key(key, tier, address, port),
                tier: tier.name.clone(),
                written: of.map_or_else(|| socket(address, port), ListenerName::socket),
                ids: at(tier, address, port).collect(),
                place: None,
            }
        });
        all.collect()
    }
}

impl Kept {
    /// It had a window, and is called as its socket is.
    fn seen(&mut self, socket: &Socket, now: u64) {
        if self.tier != socket.tier {
            self.tier.clone_from(&socket.tier);
        }
        if self.socket.is_empty() {
            self.socket.clone_from(&socket.written);
        }
        self.last = now;
    }
}

impl Knee {
    /// A point of interest: more requests than N*, and hardly an answer.
    pub(crate) fn is_frozen(&self, s: &Serving) -> bool {
        s.load > self.load && s.answered <= NEAR_ZERO * self.answered
    }
}

fn listener_key(key: &TierKey, tier: &Tier, address: IpAddr, port: u16) -> ListenerKey {
    ListenerKey { host: key.host.clone(), workload: tier.workload.clone(), address, port }
}

/// The distinct addresses of a tier, in order.
fn sockets(tier: &Tier) -> Vec<(IpAddr, u16)> {
    let mut all: Vec<(IpAddr, u16)> =
        tier.listeners.iter().map(|l| (l.address.to_canonical(), l.port)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn at(tier: &Tier, address: IpAddr, port: u16) -> impl Iterator<Item = EntityId> {
    let of = tier.listeners.iter().filter(move |l| l.port == port && l.address.to_canonical() == address);
    of.map(|l| l.id)
}

/// What a window has of these listeners.
fn rows<'a>(window: &'a HostWindow, ids: &'a [EntityId]) -> impl Iterator<Item = &'a ListenerWindow> {
    ids.iter().filter_map(move |id| window.listeners.get(id))
}

fn serving(window: &HostWindow, ids: &[EntityId]) -> Serving {
    let mut sum = Serving::default();
    for l in rows(window, ids).filter(|l| !l.connections_only()) {
        sum.load += mean(l.in_flight_ns) + mean(l.unread_ns) + mean(l.depth_ns);
        sum.answered += l.answered as f64;
    }
    sum
}

/// Rounded for output.
pub(crate) fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
