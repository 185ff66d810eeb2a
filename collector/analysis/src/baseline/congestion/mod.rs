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
use crate::topology::graph::Topology;
use crate::topology::tier::{ListenerName, Tier, TierKey};
use curve::Curve;
pub(crate) use curve::NEAR_ZERO;
pub(crate) use knee::{Estimate, Knee};
use std::collections::BTreeMap;
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
    kept: BTreeMap<ListenerKey, Kept>,
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

impl Congestion {
    /// Takes the windows of one frame.
    pub(crate) fn observe(&mut self, history: &History, topology: &Topology, now: u64) {
        let mut windows = history.windows_in_order(now);
        for (key, tier) in topology.tiers.iter().filter(|(_, t)| !t.listeners.is_empty()) {
            let found = windows.of(&key.host).filter(|(host, _)| host.info.coverage.requests);
            let Some((_, window)) = found else { continue };
            for (address, port) in sockets(tier) {
                // Neither load nor throughput is known of connections that carry several exchanges at once.
                if at(tier, address, port)
                    .any(|id| window.listeners.get(&id).is_some_and(ListenerWindow::connections_only))
                {
                    continue;
                }
                let Serving { load, answered } = serving(window, tier, address, port);
                let at = self.kept(key, tier, address, port, now);
                if let Some(kept) = at {
                    kept.curve.observe(load, answered);
                }
            }
        }
    }

    fn kept(
        &mut self,
        key: &TierKey,
        tier: &Tier,
        address: IpAddr,
        port: u16,
        now: u64,
    ) -> Option<&mut Kept> {
        let key = listener_key(key, tier, address, port);
        // Where there is room nothing is searched for twice.
        if self.kept.len() >= LISTENERS_MAX && !self.kept.contains_key(&key) {
            let looked = |at: u64| now.saturating_sub(at) < LOOK_WINDOWS;
            if !self.looked.is_some_and(looked) {
                self.looked = Some(now);
                self.kept.retain(|_, kept| kept.last.saturating_add(STALE_WINDOWS) >= now);
            }
            if self.kept.len() >= LISTENERS_MAX {
                self.refused = self.refused.saturating_add(1);
                return None;
            }
        }
        let kept = self.kept.entry(key).or_default();
        if kept.tier != tier.name {
            kept.tier.clone_from(&tier.name);
        }
        if kept.socket.is_empty() {
            let of = tier.listeners.iter().find(|l| l.port == port && l.address.to_canonical() == address);
            kept.socket = of.map_or_else(|| socket(address, port), ListenerName::socket);
        }
        kept.last = now;
        Some(kept)
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
            let kept = self.kept.get(&listener_key(key, tier, address, port))?;
            let windows = Series::draw(history, &key.host, first, last, |w| serving(w, tier, address, port));
            Some((windows.range(first, last).map(|(_, s)| s.load).sum::<f64>(), kept, windows))
        });
        let (_, kept, windows) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Judged { estimate: knee::estimate(&kept.curve), windows })
    }

    /// For people and pages.
    pub(crate) fn view(&self) -> CongestionView {
        let listeners = self.kept.iter().map(|(key, kept)| {
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
        CongestionView { listeners: listeners.collect(), refused: self.refused }
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

fn serving(window: &HostWindow, tier: &Tier, address: IpAddr, port: u16) -> Serving {
    let mut sum = Serving::default();
    let of = at(tier, address, port).filter_map(|id| window.listeners.get(&id));
    for l in of.filter(|l| !l.connections_only()) {
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
