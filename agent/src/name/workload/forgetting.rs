//! What is forgotten, so that there is room for what comes. Owns that rule; knows no name.

use super::{ENTITIES_MAX, Entities, Kind, Named};
use crate::window::CgroupId;
use std::collections::{HashMap, HashSet};

/// Windows without a value after which an entity may be forgotten: ten minutes. A batch that waited longer is not taken by the
/// collector, so none that uses the id can come later.
pub(super) const FORGOTTEN_AFTER_WINDOWS: u64 = 12_000;

/// Entities of a kind from which on also what is there and idle is forgotten.
pub(super) const CROWDED: usize = ENTITIES_MAX / 2;

impl Entities {
    /// Makes room: what has had no value for ten minutes goes if its cgroup is gone, or if its kind is crowded. What refers to others
    /// goes before them, so that no id is forgotten that something still belongs to.
    pub(super) fn forget(&mut self) {
        for (socket, id) in self.leaving(Kind::Listener, &self.listeners, |l| (l.id, l.key.owner)) {
            self.listeners.remove(&socket);
            self.gone(Kind::Listener, id);
        }
        for (key, id) in self.leaving(Kind::Edge, &self.edges, |e| (e.id, e.key.workload)) {
            self.edges.remove(&key);
            self.gone(Kind::Edge, id);
        }
        for (name, id) in self.leaving(Kind::Device, &self.devices, |d| (d.id, CgroupId::default())) {
            self.devices.remove(&name);
            self.gone(Kind::Device, id);
        }
        self.forget_workloads();
    }

    fn forget_workloads(&mut self) {
        let crowded = self.by_id.len() > CROWDED;
        let mut needed: HashSet<u32> = self.listeners.values().map(|l| l.workload).collect();
        needed.extend(self.edges.values().map(|e| e.workload));
        let leaves = |entities: &Self, id: u32, needed: &HashSet<u32>| {
            let cgroup = entities.by_id.get(&id).copied().filter(|_| !needed.contains(&id));
            cgroup.is_some_and(|cgroup| entities.leaves(Kind::Workload, id, cgroup, crowded))
        };
        // Servers in a cgroup of several go before the cgroup that they share.
        let servers: Vec<u32> =
            self.sharing.iter().map(|w| w.id).filter(|id| leaves(self, *id, &needed)).collect();
        for id in servers {
            self.sharing.retain(|w| w.id != id);
            if let Some(cgroup) = self.by_id.remove(&id) {
                self.servers.forget(cgroup, id);
            }
            self.gone(Kind::Workload, id);
        }
        needed.extend(self.sharing.iter().map(|w| w.shares));
        let cgroups: Vec<(CgroupId, u32)> = self
            .workloads
            .iter()
            .map(|(cgroup, w)| (*cgroup, w.id))
            .filter(|(_, id)| leaves(self, *id, &needed))
            .collect();
        for (cgroup, id) in cgroups {
            self.workloads.remove(&cgroup);
            self.unsettled.remove(&cgroup);
            self.by_id.remove(&id);
            if !self.lives(cgroup) {
                self.servers.forget_all(cgroup);
            }
            self.gone(Kind::Workload, id);
        }
    }

    /// Keys and ids of those of a kind that are forgotten; `who`: id and cgroup of one.
    fn leaving<K: Clone, V>(
        &self,
        kind: Kind,
        all: &HashMap<K, V>,
        who: impl Fn(&V) -> (u32, CgroupId),
    ) -> Vec<(K, u32)> {
        let crowded = all.len() > CROWDED;
        let ids = all.iter().map(|(key, entity)| (key, who(entity)));
        ids.filter(|(_, (id, cgroup))| self.leaves(kind, *id, *cgroup, crowded))
            .map(|(key, (id, _))| (key.clone(), id))
            .collect()
    }

    /// Whether an entity had no value for long, and is of a cgroup that is gone or of a crowd. A cgroup of 0 is not known.
    fn leaves(&self, kind: Kind, id: u32, cgroup: CgroupId, crowded: bool) -> bool {
        let seen = self.seen.get(&(kind, id)).copied().unwrap_or(0);
        self.now.saturating_sub(seen) > FORGOTTEN_AFTER_WINDOWS
            && (crowded || (cgroup != CgroupId::default() && !self.lives(cgroup)))
    }

    /// Whether the cgroup was there at the last walk.
    fn lives(&self, cgroup: CgroupId) -> bool {
        self.tree.path(cgroup).is_some_and(|path| self.tree.id(&path) == Some(cgroup))
    }

    fn gone(&mut self, kind: Kind, id: u32) {
        self.seen.remove(&(kind, id));
        self.changed.push(Named::Gone(kind, id));
    }
}
