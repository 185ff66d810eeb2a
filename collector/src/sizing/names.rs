//! What a host's ids mean, as far as learning needs it: whose a listener is, which calls a workload makes, and which signals are
//! measured. Owns the bound of names; knows no window.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use tailwater_model::address::is_unix;
use tailwater_model::names::Names;
use tailwater_model::window::{EntityId, Input, ListenerInfo, PoolSize, SignalSet, WorkloadInfo};

/// Entities of a kind of one host; the oldest go first, whose ids no window uses any more.
const ENTITIES_MAX: usize = 8192;
/// What must be measured by hooks before a second can be said to be the tier's own. Without one of them it is not known what else
/// decided it.
const NEEDED: [&str; 7] = ["cpu", "run_queue", "block_io", "memory", "requests", "calls", "throttling"];

/// One host by name.
#[derive(Debug, Default)]
pub(super) struct HostNames {
    names: Names,
    by_name: BTreeMap<String, EntityId>,
    edges_of: BTreeMap<EntityId, BTreeSet<EntityId>>,
    listeners_of: BTreeMap<EntityId, BTreeSet<EntityId>>,
}

/// A listener with its owner.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Owned {
    pub(super) workload: EntityId,
    /// Under which CPU, I/O, memory and calls are told: itself, or the cgroup that it shares with other servers.
    pub(super) measured: EntityId,
    pub(super) name: String,
    pub(super) comm: String,
    pub(super) address: IpAddr,
    pub(super) port: u16,
    /// CPU ns per window that its quota allows.
    pub(super) quota_ns: Option<u64>,
    /// What it is set up for, by its own configuration.
    pub(super) pool: Option<PoolSize>,
}

impl HostNames {
    /// Takes over what an agent said of this host.
    pub(super) fn said(&mut self, input: Input) {
        match input {
            Input::Entities { workloads, listeners, edges, .. } => {
                for w in workloads {
                    self.by_name.insert(w.name.clone(), w.id);
                    self.names.workloads.insert(w.id, w);
                }
                for l in listeners {
                    self.forget_listener(l.id);
                    self.listeners_of.entry(l.workload).or_default().insert(l.id);
                    self.names.listeners.insert(l.id, l);
                }
                for e in edges {
                    self.forget_edge(e.id);
                    self.edges_of.entry(e.workload).or_default().insert(e.id);
                    self.names.edges.insert(e.id, e);
                }
                self.trim();
            }
            Input::Gone { gone, .. } => {
                gone.listeners.into_iter().for_each(|id| self.forget_listener(id));
                gone.edges.into_iter().for_each(|id| self.forget_edge(id));
                gone.workloads.into_iter().for_each(|id| self.forget_workload(id));
            }
            _ => {}
        }
    }

    fn forget_workload(&mut self, id: EntityId) {
        if let Some(w) = self.names.workloads.remove(&id)
            && self.by_name.get(&w.name) == Some(&id)
        {
            self.by_name.remove(&w.name);
        }
    }

    fn forget_listener(&mut self, id: EntityId) {
        if let Some(l) = self.names.listeners.remove(&id) {
            leave(&mut self.listeners_of, l.workload, id);
        }
    }

    fn forget_edge(&mut self, id: EntityId) {
        if let Some(e) = self.names.edges.remove(&id) {
            leave(&mut self.edges_of, e.workload, id);
        }
    }

    fn trim(&mut self) {
        while self.names.workloads.len() > ENTITIES_MAX {
            let Some(id) = self.names.workloads.keys().next().copied() else { break };
            self.forget_workload(id);
        }
        while self.names.listeners.len() > ENTITIES_MAX {
            let Some(id) = self.names.listeners.keys().next().copied() else { break };
            self.forget_listener(id);
        }
        while self.names.edges.len() > ENTITIES_MAX {
            let Some(id) = self.names.edges.keys().next().copied() else { break };
            self.forget_edge(id);
        }
    }

    /// A listener whose owner is known. Unix sockets have none here: how many of their connections are open is not measured, and without that
    /// what waits inside is not told from what works.
    pub(super) fn owned(&self, listener: EntityId) -> Option<Owned> {
        let ListenerInfo { workload, address, port, comm, pool, .. } = self.names.listeners.get(&listener)?;
        if is_unix(*address) {
            return None;
        }
        let owner = self.names.workloads.get(workload)?;
        let comm = if comm.is_empty() { &owner.comm } else { comm };
        Some(Owned {
            workload: *workload,
            measured: measured(owner),
            name: owner.name.clone(),
            comm: comm.clone(),
            address: address.to_canonical(),
            port: *port,
            quota_ns: self.quota_ns(*workload),
            pool: pool.clone(),
        })
    }

    /// Ids of a workload by its name: its own, and the one under which CPU, I/O, memory and calls are told.
    pub(super) fn workload(&self, name: &str) -> Option<(EntityId, EntityId)> {
        let id = *self.by_name.get(name)?;
        self.names.workloads.get(&id).map(|w| (id, measured(w)))
    }

    /// Path of a workload's cgroup, and its name.
    pub(super) fn called(&self, workload: EntityId) -> Option<(&str, &str)> {
        self.names.workloads.get(&workload).map(|w| (w.cgroup.as_str(), w.name.as_str()))
    }

    /// Under which id CPU, I/O and memory of a workload are told.
    pub(super) fn measured(&self, workload: EntityId) -> Option<EntityId> {
        self.names.workloads.get(&workload).map(measured)
    }

    /// The name under which calls of the workload of this name are told; `None`: there is none of this name.
    pub(super) fn caller(&self, name: &str) -> Option<&str> {
        let (_, measured) = self.workload(name)?;
        self.called(measured).map(|(_, name)| name)
    }

    /// Where the workload of this name listens.
    pub(super) fn listens(&self, name: &str) -> Vec<(IpAddr, u16)> {
        let own = self.by_name.get(name).into_iter().flat_map(|id| self.listeners(*id));
        own.filter_map(|id| self.names.listeners.get(&id)).map(|l| (l.address, l.port)).collect()
    }

    /// Who listens at one of these now, by the id under which CPU is told. `None`: nobody, or several.
    pub(super) fn who_listens(&self, at: &[(IpAddr, u16)]) -> Option<EntityId> {
        let there = self.names.listeners.values().filter(|l| at.contains(&(l.address, l.port)));
        let mut all = there.filter_map(|l| self.names.workloads.get(&l.workload)).map(measured);
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }

    /// CPU ns per window that a workload's quota allows, or that of the cgroup that it shares; `None`: no quota.
    pub(super) fn quota_ns(&self, workload: EntityId) -> Option<u64> {
        let owner = self.names.workloads.get(&workload)?;
        let cgroup = self.names.workloads.get(&measured(owner)).unwrap_or(owner);
        [owner.cpu_quota_ns, cgroup.cpu_quota_ns].into_iter().filter(|quota| *quota > 0).min()
    }

    /// All listeners of a workload.
    pub(super) fn listeners(&self, workload: EntityId) -> impl Iterator<Item = EntityId> {
        self.listeners_of.get(&workload).into_iter().flatten().copied()
    }

    /// Calls that are told of a workload: the edge's id, and whom it dials.
    pub(super) fn calls(&self, measured: EntityId) -> impl Iterator<Item = (EntityId, String)> {
        let edges = self.edges_of.get(&measured).into_iter().flatten();
        let edges = edges.filter_map(|id| self.names.edges.get(id));
        edges.map(|e| (e.id, e.socket()))
    }
}

/// Under which id CPU, I/O, memory and calls of a workload are told.
fn measured(workload: &WorkloadInfo) -> EntityId {
    if workload.shares == 0 { workload.id } else { workload.shares }
}

fn leave(of: &mut BTreeMap<EntityId, BTreeSet<EntityId>>, workload: EntityId, id: EntityId) {
    if let Some(all) = of.get_mut(&workload) {
        all.remove(&id);
        if all.is_empty() {
            of.remove(&workload);
        }
    }
}

/// The signals without which a second is not known to be a tier's own.
pub(super) fn needed() -> SignalSet {
    SignalSet::of(NEEDED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_model::window::{EdgeInfo, Gone};

    fn host() -> HostNames {
        let workload = |id, name: &str, shares, cpu_quota_ns| WorkloadInfo {
            id,
            name: name.into(),
            comm: "java".into(),
            shares,
            cpu_quota_ns,
            ..WorkloadInfo::default()
        };
        let listener = |id, workload, port| ListenerInfo {
            id,
            workload,
            address: "::ffff:10.0.0.2".parse().unwrap(),
            port,
            path: None,
            comm: String::new(),
            pool: None,
            started_with: 0,
            pid: 0,
        };
        let mut host = HostNames::default();
        host.said(Input::Entities {
            host: "app".into(),
            workloads: vec![
                workload(1, "session", 0, 25_000_000),
                workload(2, "session/redis-server", 1, 0),
                workload(3, "tomcat10.service", 0, 0),
            ],
            listeners: vec![listener(1, 2, 6379), listener(2, 3, 8080), listener(3, 9, 99)],
            edges: vec![EdgeInfo {
                id: 7,
                workload: 3,
                remote_address: "10.0.0.3".parse().unwrap(),
                remote_port: 3306,
                path: None,
            }],
            devices: Vec::new(),
        });
        host
    }

    #[test]
    fn a_server_that_shares_its_cgroup_is_measured_under_it() {
        let host = host();
        let redis = host.owned(1).unwrap();
        assert_eq!((redis.workload, redis.measured, redis.quota_ns), (2, 1, Some(25_000_000)));
        let tomcat = host.owned(2).unwrap();
        assert_eq!((tomcat.workload, tomcat.measured, tomcat.quota_ns), (3, 3, None));
        assert_eq!((tomcat.address.to_string(), tomcat.comm.as_str()), ("10.0.0.2".into(), "java"));
        assert_eq!(host.owned(3), None, "nobody said whose it is");
        assert_eq!(host.workload("tomcat10.service"), Some((3, 3)));
        assert_eq!(host.calls(3).collect::<Vec<_>>(), [(7, "10.0.0.3:3306".to_owned())]);
    }

    #[test]
    fn what_is_gone_is_forgotten_and_a_name_goes_on_with_its_newest_id() {
        let mut host = host();
        let again = WorkloadInfo { id: 9, name: "tomcat10.service".into(), ..WorkloadInfo::default() };
        host.said(Input::Entities {
            host: "app".into(),
            workloads: vec![again],
            listeners: Vec::new(),
            edges: Vec::new(),
            devices: Vec::new(),
        });
        let gone = Gone { workloads: vec![3], listeners: vec![2], edges: vec![7], devices: Vec::new() };
        host.said(Input::Gone { host: "app".into(), gone });
        assert_eq!(host.workload("tomcat10.service"), Some((9, 9)));
        assert_eq!((host.calls(3).count(), host.listeners(3).count()), (0, 0));
        assert_eq!(host.owned(2), None);
    }
}
