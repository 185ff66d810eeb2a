//! From a case and its diagnosis to the incident that users read: kind, root, hops, drops, confidence and evidence, and a sentence. Owns how
//! findings are said and when; decides nothing about the root. Here is what its parts ask alike: how places, listeners and moments are
//! called.

mod calibrated;
mod code;
mod confidence;
mod context;
mod drops;
pub(crate) mod early_alert;
mod hops;
mod incident;
mod now;
mod root;
mod title;
pub(crate) mod version;

use crate::baseline::Baseline;
use crate::case::Case;
use crate::path::chain::Diagnosis;
use crate::path::order::Between;
use crate::path::step::Place;
use crate::path::view::View;
use crate::topology::tier::{Tier, TierKey};
use std::cell::RefCell;
use std::collections::BTreeMap;
use tailwater_model::address;
use tailwater_model::window::{EntityId, Host, ListenerInfo, WINDOW_NS};

/// Everything needed to say what a case is.
struct Report<'a> {
    view: View<'a>,
    baselines: &'a BTreeMap<TierKey, Baseline>,
    case: &'a Case,
    diagnosis: &'a Diagnosis,
    now: u64,
    /// What [`Report::between`] found so far, by the two hosts.
    clocks: RefCell<Vec<(Host, Host, Between)>>,
}

impl Report<'_> {
    /// When a host's window began, by the collector's clock.
    fn start_ns(&self, host: &str, window: u64) -> u64 {
        self.view.history.start_unix_ns(host, window)
    }

    /// And ended.
    fn end_ns(&self, host: &str, window: u64) -> u64 {
        self.start_ns(host, window).saturating_add(WINDOW_NS)
    }

    /// The window in which a host may have seen at the latest what the first tier saw when the case began.
    fn at(&self, host: &str) -> u64 {
        self.case.at.saturating_add(self.view.slack(&self.case.start.host, host, self.case.at))
    }

    /// Whose windows a place's times are in: an unobserved one's are those of its caller.
    fn clock_host<'b>(&'b self, place: &'b Place) -> &'b str {
        match place {
            Place::Tier(key) | Place::Missing(key) => key.host.as_str(),
            Place::Unobserved(..) => {
                let path = &self.diagnosis.path;
                let above =
                    path.iter().position(|s| s.place == *place).and_then(|p| path.get(p.checked_sub(1)?));
                match above.map(|s| &s.place) {
                    Some(Place::Tier(key) | Place::Missing(key)) => key.host.as_str(),
                    _ => self.case.start.host.as_str(),
                }
            }
        }
    }

    /// How the clocks at two places stand to each other. Each alternative and each hop asks, and hundreds of windows are looked at to say it.
    fn between(&self, first: &Place, second: &Place) -> Between {
        let (first, second) = (self.clock_host(first), self.clock_host(second));
        let known = |(a, b, _): &&(Host, Host, Between)| a == first && b == second;
        if let Some((_, _, between)) = self.clocks.borrow().iter().find(known) {
            return *between;
        }
        let between = self.view.between(first, second, self.case.at);
        self.clocks.borrow_mut().push((first.to_owned(), second.to_owned(), between));
        between
    }

    fn tier(&self, key: &TierKey) -> Option<&Tier> {
        self.view.topology.tiers.get(key)
    }

    /// Host, workload and tier of a place.
    fn place(&self, place: &Place) -> (Host, String, String) {
        match place {
            Place::Tier(key) | Place::Missing(key) => {
                let tier = self.tier(key);
                (
                    key.host.clone(),
                    tier.map(|t| t.workload.clone()).unwrap_or_default(),
                    tier.map(|t| t.name.clone()).unwrap_or_default(),
                )
            }
            Place::Unobserved(address, port) => {
                let link = self.view.topology.links().find(|link| link.remote == (*address, *port));
                let at = address::place(link.and_then(|link| link.path.as_deref()), *address, *port);
                (address.to_canonical().to_string(), String::new(), at)
            }
        }
    }

    /// `address:port`, or the path of a Unix socket.
    fn listener(&self, key: &TierKey, id: EntityId) -> String {
        let listener = self.view.history.hosts.get(&key.host).and_then(|h| h.listeners.get(&id));
        listener.map_or_else(String::new, ListenerInfo::socket)
    }
}
