//! A tier: a workload that listens or calls. Owns by what it is known, and how it is called; knows no connection.

use crate::config::TierRule;
use std::net::IpAddr;
use tailwater_model::address::{is_unix, place};
use tailwater_model::place::bare;
use tailwater_model::window::{EntityId, Host, ListenerInfo, WorkloadInfo};

/// One server of a tier: a workload of a host, or a listener whose owner is not known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TierKey {
    pub(crate) host: Host,
    pub(crate) workload: EntityId,
    /// Only where `workload` is 0.
    pub(crate) listener: EntityId,
}

impl TierKey {
    /// Whose tier a listener is.
    pub(crate) fn of(host: &str, listener: &ListenerInfo) -> Self {
        let ListenerInfo { id, workload, .. } = *listener;
        Self { host: host.to_owned(), workload, listener: if workload == 0 { id } else { 0 } }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ListenerName {
    pub(crate) id: EntityId,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// What a Unix socket is bound to.
    pub(crate) path: Option<String>,
    /// How many requests at a time the server behind a Unix socket is set up for.
    pub(crate) pool: Option<u32>,
}

impl ListenerName {
    /// As it is written.
    pub(crate) fn socket(&self) -> String {
        place(self.path.as_deref(), self.address, self.port)
    }
}

impl From<&ListenerInfo> for ListenerName {
    fn from(listener: &ListenerInfo) -> Self {
        let pool = listener.pool.as_ref().filter(|_| is_unix(listener.address));
        Self {
            id: listener.id,
            address: listener.address,
            port: listener.port,
            path: listener.path.clone(),
            pool: pool.map(|pool| pool.size),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Tier {
    pub(crate) workload: String,
    /// Command of the server, for people.
    pub(crate) comm: String,
    pub(crate) name: String,
    pub(crate) listeners: Vec<ListenerName>,
    pub(crate) workers_limit: Option<u32>,
}

impl Tier {
    /// Not called anything yet, see [`name_tier`].
    pub(super) fn of_listener(listener: &ListenerInfo, owner: Option<&WorkloadInfo>) -> Self {
        Self {
            workload: owner.map_or_else(|| listener.comm.clone(), |w| w.name.clone()),
            comm: if listener.comm.is_empty() {
                owner.map(|w| w.comm.clone()).unwrap_or_default()
            } else {
                listener.comm.clone()
            },
            name: String::new(),
            listeners: Vec::new(),
            workers_limit: None,
        }
    }

    /// How many requests at a time it is set up for, by the configuration of the server behind its Unix socket.
    pub(crate) fn pool(&self) -> Option<u32> {
        self.listeners.iter().filter_map(|l| l.pool).max()
    }

    /// The tier of a listener that no frame knows yet.
    pub(crate) fn heard_of(
        key: &TierKey,
        listener: &ListenerInfo,
        owner: Option<&WorkloadInfo>,
        rules: &[TierRule],
    ) -> Self {
        let mut tier = Self::of_listener(listener, owner);
        tier.listeners.push(listener.into());
        name_tier(key, &mut tier, rules);
        tier
    }
}

/// Calls a tier what the first rule that matches says, else what its workload is called. Its limit of workers is that of the rule, else
/// that of the pool behind a Unix socket, by its own configuration.
pub(super) fn name_tier(key: &TierKey, tier: &mut Tier, rules: &[TierRule]) {
    let rule = rules.iter().find(|rule| {
        rule.host.as_ref().is_none_or(|h| *h == key.host)
            && rule.workload.as_ref().is_none_or(|w| *w == tier.workload)
            && rule.port.is_none_or(|p| tier.listeners.iter().any(|l| l.port == p))
    });
    tier.workers_limit = rule.and_then(|r| r.workers_limit).or(tier.pool());
    tier.name = rule.and_then(|r| r.name.clone()).unwrap_or_else(|| {
        let unit = bare(tier.workload.rsplit('/').next().unwrap_or_default());
        if unit.is_empty() { tier.comm.clone() } else { unit.to_owned() }
    });
}
