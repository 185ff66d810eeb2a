//! Who calls whom: tiers, and the connections observed between them. Owns matching a dialled address to a listener, and ways along
//! calls; knows nothing of time.

use super::tier::{Tier, TierKey, name_tier};
use crate::config::TierRule;
use crate::frame::history::History;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use tailwater_model::incident::socket;
use tailwater_model::topology::{EdgeView, NodeView, TopologyView};
use tailwater_model::window::EntityId;

/// The connections of one workload to one address and port.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) from: TierKey,
    /// The caller's ids for it.
    pub(crate) edges: Vec<EntityId>,
    pub(crate) remote: (IpAddr, u16),
    /// Who listens there, if observed.
    pub(crate) to: Option<TierKey>,
}

/// What was seen, ready to walk.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub(crate) tiers: BTreeMap<TierKey, Tier>,
    pub(crate) links: Vec<Link>,
}

impl Topology {
    pub(crate) fn build(history: &History, rules: &[TierRule]) -> Self {
        let mut topology = Self::default();
        let mut by_port: BTreeMap<u16, Vec<(&str, IpAddr, EntityId, TierKey)>> = BTreeMap::new();
        for (name, host) in &history.hosts {
            for listener in host.listeners.values() {
                let key = TierKey::of(name, listener);
                let owner = host.workloads.get(&listener.workload);
                let tier =
                    topology.tiers.entry(key.clone()).or_insert_with(|| Tier::of_listener(listener, owner));
                tier.listeners.push(listener.into());
                by_port.entry(listener.port).or_default().push((
                    name,
                    listener.address.to_canonical(),
                    listener.id,
                    key,
                ));
            }
            for edge in host.edges.values() {
                let key = TierKey { host: name.clone(), workload: edge.workload, listener: 0 };
                let info = host.workloads.get(&edge.workload);
                topology.tiers.entry(key).or_insert_with(|| Tier {
                    workload: info.map(|w| w.name.clone()).unwrap_or_default(),
                    comm: info.map(|w| w.comm.clone()).unwrap_or_default(),
                    name: String::new(),
                    listeners: Vec::new(),
                    workers_limit: None,
                });
            }
        }
        for (key, tier) in &mut topology.tiers {
            name_tier(key, tier, rules);
        }
        let mut links: BTreeMap<(TierKey, IpAddr, u16), Link> = BTreeMap::new();
        for (name, host) in &history.hosts {
            for edge in host.edges.values() {
                let from = TierKey { host: name.clone(), workload: edge.workload, listener: 0 };
                let remote = (edge.remote_address.to_canonical(), edge.remote_port);
                let link = links.entry((from.clone(), remote.0, remote.1)).or_insert_with(|| Link {
                    to: by_port.get(&remote.1).and_then(|at| resolve(history, name, remote.0, at)),
                    from,
                    edges: Vec::new(),
                    remote,
                });
                link.edges.push(edge.id);
            }
        }
        topology.links = links.into_values().collect();
        topology
    }

    /// Links of a caller.
    pub(crate) fn down<'a>(&'a self, key: &'a TierKey) -> impl Iterator<Item = &'a Link> {
        self.links.iter().filter(move |l| &l.from == key && l.to.as_ref() != Some(key))
    }

    /// Links that end at a tier.
    pub(crate) fn up<'a>(&'a self, key: &'a TierKey) -> impl Iterator<Item = &'a Link> {
        self.links.iter().filter(move |l| l.to.as_ref() == Some(key) && &l.from != key)
    }

    /// Whether an observed tier that serves requests itself calls this one.
    pub(crate) fn has_upstream(&self, key: &TierKey) -> bool {
        self.up(key).any(|l| self.tiers.get(&l.from).is_some_and(|t| !t.listeners.is_empty()))
    }

    /// The shortest way along calls, both ends included.
    pub(crate) fn path(&self, from: &TierKey, to: &TierKey) -> Option<Vec<TierKey>> {
        let mut before: BTreeMap<&TierKey, &TierKey> = BTreeMap::new();
        let mut seen: BTreeSet<&TierKey> = BTreeSet::from([from]);
        let mut queue: VecDeque<&TierKey> = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                let mut path = vec![at.clone()];
                let mut step = at;
                while let Some(previous) = before.get(step) {
                    path.push((*previous).clone());
                    step = previous;
                }
                path.reverse();
                return Some(path);
            }
            for link in self.links.iter().filter(|l| &l.from == at) {
                if let Some(next) = &link.to
                    && seen.insert(next)
                {
                    before.insert(next, at);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    /// Every observed tier that this one calls, at any depth, nearest first.
    pub(crate) fn reachable(&self, from: &TierKey) -> Vec<TierKey> {
        let mut found: Vec<TierKey> = Vec::new();
        let mut next = 0;
        let mut at = from.clone();
        loop {
            for to in self.links.iter().filter(|l| l.from == at).filter_map(|l| l.to.as_ref()) {
                if to != from && !found.contains(to) {
                    found.push(to.clone());
                }
            }
            let Some(following) = found.get(next) else { return found };
            at = following.clone();
            next += 1;
        }
    }

    /// Whether one calls the other, at any depth.
    pub(crate) fn related(&self, a: &TierKey, b: &TierKey) -> bool {
        self.path(a, b).is_some() || self.path(b, a).is_some()
    }

    /// For people and pages.
    pub(crate) fn view(&self, workers_limit: impl Fn(&TierKey, &Tier) -> Option<u32>) -> TopologyView {
        let nodes = self.tiers.iter().map(|(key, tier)| NodeView {
            host: key.host.clone(),
            workload: tier.workload.clone(),
            tier: tier.name.clone(),
            listeners: tier
                .listeners
                .iter()
                .map(|l| socket(l.address, l.port))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            workers_limit: workers_limit(key, tier),
        });
        let edges: BTreeSet<EdgeView> = self
            .links
            .iter()
            .map(|link| EdgeView {
                from_host: link.from.host.clone(),
                from_workload: self.tiers.get(&link.from).map(|t| t.workload.clone()).unwrap_or_default(),
                remote: socket(link.remote.0, link.remote.1),
                to_host: link.to.as_ref().map(|t| t.host.clone()),
                to_workload: link.to.as_ref().and_then(|t| self.tiers.get(t)).map(|t| t.workload.clone()),
            })
            .collect();
        TopologyView { nodes: nodes.collect(), edges: edges.into_iter().collect() }
    }
}

/// The listener behind a dialled address: the exact address first, then a wildcard on a host that owns the address, the caller's
/// own host last among equals (a scope may list its machine's addresses). A listener that was opened again has a higher id.
fn resolve(
    history: &History,
    caller: &str,
    remote: IpAddr,
    at_port: &[(&str, IpAddr, EntityId, TierKey)],
) -> Option<TierKey> {
    let owns = |host: &str| {
        if remote.is_loopback() {
            return host == caller;
        }
        history.hosts.get(host).is_some_and(|h| h.info.addresses.iter().any(|a| a.to_canonical() == remote))
    };
    let exact = |host: &str, address: IpAddr| address == remote && (!remote.is_loopback() || host == caller);
    at_port
        .iter()
        .filter(|(host, address, _, _)| exact(host, *address) || (address.is_unspecified() && owns(host)))
        .max_by_key(|(host, address, id, _)| {
            (exact(host, *address), remote.is_loopback() || *host != caller, *id)
        })
        .map(|(_, _, _, key)| key.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::align::Frame;
    use crate::frame::history::Update;
    use tailwater_model::window::{EdgeInfo, HostInfo, HostWindow, ListenerInfo, WindowIndex, WorkloadInfo};

    fn host(
        history: &mut History,
        name: &str,
        addresses: &[&str],
        listens: &[(&str, u16)],
        dials: &[(&str, u16)],
    ) {
        let info = HostInfo {
            host: name.into(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            ..HostInfo::default()
        };
        history.update(name, 0, Update::Host(info));
        let listener = |(i, (a, port)): (usize, &(&str, u16))| ListenerInfo {
            id: i as u32 + 1,
            workload: 1,
            address: a.parse().unwrap(),
            port: *port,
            comm: String::new(),
            pool: None,
        };
        let edge = |(i, (a, port)): (usize, &(&str, u16))| EdgeInfo {
            id: i as u32 + 1,
            workload: 1,
            remote_address: a.parse().unwrap(),
            remote_port: *port,
        };
        let names = Update::Entities {
            workloads: vec![WorkloadInfo {
                id: 1,
                name: format!("{name}.service"),
                ..WorkloadInfo::default()
            }],
            listeners: listens.iter().enumerate().map(listener).collect(),
            edges: dials.iter().enumerate().map(edge).collect(),
        };
        history.update(name, 0, names);
        let window = Arc::new(HostWindow { host: name.into(), ..HostWindow::default() });
        history
            .push(Frame { index: WindowIndex(history.next), hosts: BTreeMap::from([(name.into(), window)]) });
    }

    #[test]
    fn dialled_addresses_find_their_listeners() {
        let mut history = History::default();
        host(
            &mut history,
            "web",
            &["10.0.0.1", "127.0.0.1"],
            &[("0.0.0.0", 80)],
            &[("10.0.0.2", 8080), ("10.0.0.9", 3306), ("127.0.0.1", 80)],
        );
        host(
            &mut history,
            "app",
            &["10.0.0.2", "127.0.0.1"],
            &[("::", 8080), ("127.0.0.1", 8005)],
            &[("::ffff:10.0.0.3", 3306)],
        );
        host(
            &mut history,
            "db",
            &["10.0.0.3", "127.0.0.1"],
            &[("10.0.0.3", 3306), ("0.0.0.0", 80)],
            &[("127.0.0.1", 8005)],
        );
        let topology = Topology::build(
            &history,
            &[TierRule { port: Some(3306), name: Some("sql".into()), ..TierRule::default() }],
        );
        let to = |from: &str, remote: &str| {
            let view = topology.view(|_, tier| tier.workers_limit);
            view.edges.iter().find(|e| e.from_host == from && e.remote == remote).unwrap().to_host.clone()
        };
        assert_eq!(
            to("web", "10.0.0.2:8080").as_deref(),
            Some("app"),
            "wildcard on the owner of the address"
        );
        assert_eq!(to("app", "10.0.0.3:3306").as_deref(), Some("db"), "IPv4-mapped is IPv4");
        assert_eq!(to("web", "10.0.0.9:3306"), None, "nobody owns it");
        assert_eq!(to("web", "127.0.0.1:80").as_deref(), Some("web"), "loopback stays in the host");
        assert_eq!(to("db", "127.0.0.1:8005"), None);
        let key = |h: &str| TierKey { host: h.into(), workload: 1, listener: 0 };
        assert_eq!(topology.path(&key("web"), &key("db")).unwrap(), [key("web"), key("app"), key("db")]);
        assert_eq!(topology.path(&key("db"), &key("web")), None);
        assert!(topology.related(&key("db"), &key("web")));
        assert!(topology.has_upstream(&key("app")) && !topology.has_upstream(&key("web")));
        assert_eq!(topology.tiers[&key("db")].name, "sql");
        assert_eq!(topology.tiers[&key("app")].name, "app");
    }
}
    use std::sync::Arc;
