//! The entities of this host: small ids for cgroups, listeners, edges and devices, and the names behind them. Owns the ids, which
//! are never reused in one run of the agent, what is forgotten, and when the cgroup tree is walked again; knows no wire format and no
//! kernel map.

use crate::name::cgroup::{CgroupTree, Mounts};
use crate::name::naming::{self, Names, container_name, names};
use crate::name::servers::{Place, Process, Servers};
use crate::window::{CgroupId, EdgeKey, ListenerKey, ProcessKey, Window};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Entities of one kind at a time; further ones are not named, their values are left out and counted.
pub const ENTITIES_MAX: usize = tailwater_proto::columnar::ENTITIES_MAX;

/// The workload of what has no room of its own in the kernel's tables or among the ids: its values are summed there.
const OTHER: &str = "~other";

/// Windows between two walks that nobody asked for: 10 s. A cgroup that has never been seen asks for one at once: the neighbour
/// that takes the CPU is often new, and its first windows are the ones that matter.
const WALK_PERIOD_WINDOWS: u64 = 200;

/// Windows between two readings of the quotas: 1 s.
const QUOTA_PERIOD_WINDOWS: u64 = 20;

/// How often a cgroup that was met before its name was there is asked again: for a minute, each second when quotas are read.
const ASKED_AGAIN: u32 = 60;

/// Windows without a value after which an entity may be forgotten: ten minutes. A batch that waited longer is not taken by the
/// collector, so none that uses the id can come later.
const FORGOTTEN_AFTER_WINDOWS: u64 = 12_000;

/// Entities of a kind from which on also what is there and idle is forgotten.
const CROWDED: usize = ENTITIES_MAX / 2;

/// Processes of a cgroup that are asked for their command.
const PROCESSES_ASKED: usize = 8;

/// A cgroup, or one of several servers in it, with its names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Workload")]
pub struct Workload {
    pub id: u32,
    pub cgroup: Arc<str>,
    pub names: Names,
    pub comm: String,
    pub cpu_quota_ns: u64,
    pub shares: u32,
}

/// A listening socket's address with its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Listener")]
pub struct Listener {
    pub id: u32,
    pub workload: u32,
    pub key: ListenerKey,
    pub comm: String,
}

/// A workload's connections to one address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Edge")]
pub struct Edge {
    pub id: u32,
    pub workload: u32,
    pub key: EdgeKey,
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Device")]
pub struct Device {
    pub id: u32,
    pub name: String,
}

/// Kinds of entities; each counts its ids by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    Workload,
    Device,
    Listener,
    Edge,
}

/// Something that was named, renamed or forgotten, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Named {
    Workload(Workload),
    Listener(Listener),
    Edge(Edge),
    Device(Device),
    Gone(Kind, u32),
}

/// A listener without what may be learned about it later: its owner and process.
type Socket = (u32, std::net::Ipv6Addr, u16);

/// All entities of this run.
#[derive(Debug)]
pub struct Entities {
    tree: CgroupTree,
    root: std::path::PathBuf,
    workloads: HashMap<CgroupId, Workload>,
    /// Workloads whose names may still come, and how often they are asked again.
    unsettled: HashMap<CgroupId, u32>,
    /// Servers that share a cgroup.
    sharing: Vec<Workload>,
    servers: Servers,
    /// Whose workload an id is.
    by_id: HashMap<u32, CgroupId>,
    /// Ids given out so far.
    ids: HashMap<Kind, u32>,
    /// In which window each was used last.
    seen: HashMap<(Kind, u32), u64>,
    /// The newest window.
    now: u64,
    /// Id of `~other`; 0: it was not needed yet.
    other: u32,
    /// Whose a process was when it was last asked; forgotten at every walk, and when a listener is named.
    processes: HashMap<ProcessKey, u32>,
    listeners: HashMap<Socket, Listener>,
    edges: HashMap<EdgeKey, Edge>,
    devices: HashMap<String, Device>,
    changed: Vec<Named>,
    walked: Option<u64>,
    quotas_read: u64,
    names_asked: u64,
    /// Never seen in the tree, asked for since the last walk.
    unknown: HashSet<CgroupId>,
    /// Not in the tree when it was walked for them: gone before they were named. Not walked for again until the next period.
    gone: HashSet<CgroupId>,
    refused: u64,
}

impl Entities {
    /// Walks the tree once. `root` is the root of the file system, for the names of containers.
    pub fn new(mounts: Mounts, root: &Path) -> Self {
        let mut tree = CgroupTree::new(mounts);
        tree.walk();
        Self {
            tree,
            root: root.to_owned(),
            workloads: HashMap::new(),
            unsettled: HashMap::new(),
            sharing: Vec::new(),
            servers: Servers::new(root),
            by_id: HashMap::new(),
            ids: HashMap::new(),
            seen: HashMap::new(),
            now: 0,
            other: 0,
            processes: HashMap::new(),
            listeners: HashMap::new(),
            edges: HashMap::new(),
            devices: HashMap::new(),
            changed: Vec::new(),
            walked: None,
            quotas_read: 0,
            names_asked: 0,
            unknown: HashSet::new(),
            gone: HashSet::new(),
            refused: 0,
        }
    }

    /// The cgroup tree as last walked.
    pub fn tree(&self) -> &CgroupTree {
        &self.tree
    }

    /// Entities that got no id because there were [`ENTITIES_MAX`] of their kind.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Call once per window, before its values are named: walks the tree and reads quotas when their time has come. Returns
    /// whether either happened.
    pub fn refresh(&mut self, window: u64, scope: Option<&str>) -> bool {
        self.now = window;
        let walked = *self.walked.get_or_insert(window);
        let since = window.saturating_sub(walked);
        let period_over = since >= WALK_PERIOD_WINDOWS;
        if period_over || !self.unknown.is_empty() {
            self.tree.walk();
            self.walked = Some(window);
            self.processes.clear();
            if period_over {
                self.gone.clear();
                self.forget();
            }
            let tree = &self.tree;
            self.gone.extend(self.unknown.drain().filter(|id| tree.path(*id).is_none()));
        } else if window.saturating_sub(self.quotas_read) >= QUOTA_PERIOD_WINDOWS {
            self.tree.refresh_quotas(scope);
        } else {
            return false;
        }
        self.quotas_read = window;
        self.renew_quotas();
        // A walk for a cgroup that was never seen may come in every window; names are asked for by the second.
        if window.saturating_sub(self.names_asked) >= QUOTA_PERIOD_WINDOWS {
            self.names_asked = window;
            self.ask_again();
        }
        true
    }

    /// A new id of a kind of which there are `known`.
    fn next_id(&mut self, kind: Kind, known: usize) -> Option<u32> {
        if known >= ENTITIES_MAX {
            self.refused += 1;
            return None;
        }
        let last = self.ids.entry(kind).or_default();
        *last += 1;
        let id = *last;
        self.saw(kind, id);
        Some(id)
    }

    fn saw(&mut self, kind: Kind, id: u32) {
        self.seen.insert((kind, id), self.now);
    }

    fn stale(&self, kind: Kind, id: u32) -> bool {
        let seen = self.seen.get(&(kind, id)).copied().unwrap_or(0);
        self.now.saturating_sub(seen) > FORGOTTEN_AFTER_WINDOWS
    }

    /// Whether the cgroup was there at the last walk.
    fn lives(&self, cgroup: CgroupId) -> bool {
        self.tree.path(cgroup).is_some_and(|path| self.tree.id(&path) == Some(cgroup))
    }

    /// Makes room: what has had no value for ten minutes goes if its cgroup is gone, or if its kind is crowded. What refers to others
    /// goes before them, so that no id is forgotten that something still belongs to.
    fn forget(&mut self) {
        let crowded = self.listeners.len() > CROWDED;
        let idle = |l: &Listener| self.stale(Kind::Listener, l.id);
        let orphan = |owner: CgroupId| owner.0 != 0 && !self.lives(owner);
        let listeners: Vec<(Socket, u32)> = self
            .listeners
            .iter()
            .filter(|(_, l)| idle(l) && (crowded || orphan(l.key.owner)))
            .map(|(socket, l)| (*socket, l.id))
            .collect();
        let crowded = self.edges.len() > CROWDED;
        let edges: Vec<(EdgeKey, u32)> = self
            .edges
            .values()
            .filter(|e| self.stale(Kind::Edge, e.id) && (crowded || orphan(e.key.workload)))
            .map(|e| (e.key, e.id))
            .collect();
        let crowded = self.devices.len() > CROWDED;
        let devices: Vec<(String, u32)> = self
            .devices
            .values()
            .filter(|d| crowded && self.stale(Kind::Device, d.id))
            .map(|d| (d.name.clone(), d.id))
            .collect();
        for (socket, id) in listeners {
            self.listeners.remove(&socket);
            self.gone(Kind::Listener, id);
        }
        for (key, id) in edges {
            self.edges.remove(&key);
            self.gone(Kind::Edge, id);
        }
        for (name, id) in devices {
            self.devices.remove(&name);
            self.gone(Kind::Device, id);
        }
        self.forget_workloads();
    }

    fn forget_workloads(&mut self) {
        let crowded = self.by_id.len() > CROWDED;
        let mut needed: HashSet<u32> = self.listeners.values().map(|l| l.workload).collect();
        needed.extend(self.edges.values().map(|e| e.workload));
        let leaves = |entities: &Self, cgroup: &CgroupId, id: u32, needed: &HashSet<u32>| {
            !needed.contains(&id)
                && entities.stale(Kind::Workload, id)
                && (crowded || !entities.lives(*cgroup))
        };
        // Servers in a cgroup of several go before the cgroup that they share.
        let servers: Vec<u32> = self
            .sharing
            .iter()
            .map(|w| w.id)
            .filter(|id| self.by_id.get(id).is_some_and(|cgroup| leaves(self, cgroup, *id, &needed)))
            .collect();
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
            .filter(|(cgroup, id)| leaves(self, cgroup, *id, &needed))
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

    fn gone(&mut self, kind: Kind, id: u32) {
        self.seen.remove(&(kind, id));
        self.changed.push(Named::Gone(kind, id));
    }

    /// Container engines write a container's name some moments after its cgroup runs, and a process is called after whoever starts it
    /// until it becomes what it was started for.
    fn ask_again(&mut self) {
        for (cgroup, left) in std::mem::take(&mut self.unsettled) {
            let Some(path) = self.workloads.get(&cgroup).map(|w| w.cgroup.clone()) else { continue };
            let (names, comm) = self.called(&path);
            if left > 1 && !naming::is_settled(&names, &comm) {
                self.unsettled.insert(cgroup, left - 1);
            }
            let Some(workload) = self.workloads.get_mut(&cgroup) else { continue };
            // Whoever has ended by now leaves the name that it had.
            if !comm.is_empty() && (workload.names != names || workload.comm != comm) {
                (workload.names, workload.comm) = (names, comm);
                self.changed.push(Named::Workload(workload.clone()));
            }
        }
    }

    /// What a cgroup is called now, and what it runs.
    fn called(&self, path: &str) -> (Names, String) {
        let comms: Vec<String> = self.tree.processes(path, PROCESSES_ASKED).into_iter().map(comm).collect();
        let first = comms.first().cloned().unwrap_or_default();
        // A cgroup without a name of its own is called after its command only where it runs no other.
        let common = if comms.iter().all(|c| *c == first) { first.as_str() } else { "" };
        let comm = if naming::collects(path) { common.to_owned() } else { first.clone() };
        let mut names = names(path, common);
        if !names.container.is_empty()
            && let Some(name) = container_name(&names.container, &self.root)
        {
            names.name = name;
        }
        (names, comm)
    }

    fn renew_quotas(&mut self) {
        for workload in self.workloads.values_mut().chain(&mut self.sharing) {
            let quota = self.tree.nearest_quota(&workload.cgroup).map_or(0, |q| q.per_window_ns);
            if quota != workload.cpu_quota_ns {
                workload.cpu_quota_ns = quota;
                self.changed.push(Named::Workload(workload.clone()));
            }
        }
    }

    /// Looks whether a window holds cgroups that were never seen; call before [`Entities::refresh`].
    pub fn meet(&mut self, window: &Window) {
        let tasks = window.tasks.iter().flatten().map(|(cgroup, _)| *cgroup);
        let submitters = window.io.iter().flatten().map(|(cgroup, _)| *cgroup);
        for cgroup in tasks.chain(submitters) {
            self.path(cgroup);
        }
    }

    /// Path of a cgroup; asks for a walk if it is not known.
    pub fn path(&mut self, cgroup: CgroupId) -> Option<Arc<str>> {
        let path = self.tree.path(cgroup);
        if path.is_none() && cgroup != CgroupId::default() && !self.gone.contains(&cgroup) {
            self.unknown.insert(cgroup);
        }
        path
    }

    /// Id of a cgroup's workload, which is that of `~other` where there are too many; 0 if its path is not known yet.
    pub fn workload(&mut self, cgroup: CgroupId) -> u32 {
        if cgroup == CgroupId::default() {
            return self.other();
        }
        if let Some(id) = self.workloads.get(&cgroup).map(|known| known.id) {
            self.saw(Kind::Workload, id);
            return id;
        }
        let Some(path) = self.path(cgroup) else {
            return 0;
        };
        let Some(id) = self.next_id(Kind::Workload, self.by_id.len()) else {
            return self.other();
        };
        let (names, comm) = self.called(&path);
        if !naming::is_settled(&names, &comm) {
            self.unsettled.insert(cgroup, ASKED_AGAIN);
        }
        let workload = Workload {
            id,
            names,
            comm,
            cpu_quota_ns: self.tree.nearest_quota(&path).map_or(0, |q| q.per_window_ns),
            cgroup: path,
            shares: 0,
        };
        self.changed.push(Named::Workload(workload.clone()));
        self.workloads.insert(cgroup, workload);
        self.by_id.insert(id, cgroup);
        id
    }

    /// Id of the workload of all that is not told apart; there is always room for this one.
    fn other(&mut self) -> u32 {
        if self.other == 0 {
            let last = self.ids.entry(Kind::Workload).or_default();
            *last += 1;
            self.other = *last;
            self.changed.push(Named::Workload(Workload {
                id: self.other,
                cgroup: Arc::from(""),
                names: Names { name: OTHER.to_owned(), ..Names::default() },
                comm: String::new(),
                cpu_quota_ns: 0,
                shares: 0,
            }));
        }
        self.other
    }

    /// Id of the workload that a process belongs to: its server's where several share its cgroup, else its cgroup's.
    pub fn process(&mut self, process: ProcessKey) -> u32 {
        if !self.servers.told_apart(process.cgroup) {
            return self.workload(process.cgroup);
        }
        if let Some(known) = self.processes.get(&process).copied() {
            self.saw(Kind::Workload, known);
            return known;
        }
        let id = match self.servers.workload_of(process.cgroup, process.pid) {
            0 => self.workload(process.cgroup),
            server => {
                self.saw(Kind::Workload, server);
                server
            }
        };
        self.processes.insert(process, id);
        id
    }

    /// Id of the workload that owns a listener, and what its process runs if that is what names it. `before`: the workload that the
    /// socket was known to be of.
    fn owner(&mut self, key: &ListenerKey, before: u32) -> (u32, Option<Process>) {
        let own = if key.owner.0 == 0 { 0 } else { self.workload(key.owner) };
        let Some(path) = self.workloads.get(&key.owner).map(|w| w.cgroup.clone()).filter(|_| own != 0) else {
            return (0, None);
        };
        let Some(process) = self.servers.look(key.pid) else {
            // Who listens may be gone by now: a daemon forks after it listened. What was known of the socket holds.
            let same = self.sharing.iter().any(|w| w.id == before && w.shares == own);
            return (if same { before } else { own }, None);
        };
        let place = self.servers.listens(key.owner, &process, key.port, naming::collects(&path), before);
        let (Place::Server(number) | Place::SharedNow(number)) = place else { return (own, None) };
        let id = self.sharing(key.owner, own, number);
        if matches!(place, Place::SharedNow(_)) {
            self.part(key.owner, own);
        }
        if id == 0 { (own, None) } else { (id, Some(process)) }
    }

    /// Id of a server that shares its cgroup; 0 if there are too many.
    fn sharing(&mut self, cgroup: CgroupId, own: u32, number: usize) -> u32 {
        let known = self.servers.server(cgroup, number).map(|server| server.workload);
        if let Some(known) = known.filter(|id| *id != 0) {
            self.saw(Kind::Workload, known);
            return known;
        }
        let Some(id) = self.next_id(Kind::Workload, self.by_id.len()) else { return 0 };
        let (Some(server), Some(all)) = (self.servers.server(cgroup, number), self.workloads.get(&cgroup))
        else {
            return 0;
        };
        server.workload = id;
        let name = if naming::collects(&all.cgroup) {
            server.name.clone()
        } else {
            format!("{}/{}", all.names.name, server.name)
        };
        let comm = server.name.clone();
        let workload =
            Workload { id, names: Names { name, ..all.names.clone() }, comm, shares: own, ..all.clone() };
        self.changed.push(Named::Workload(workload.clone()));
        self.sharing.push(workload);
        self.by_id.insert(id, cgroup);
        id
    }

    /// A cgroup turned out to hold several servers: those that were taken for the whole of it get workloads of their own.
    fn part(&mut self, cgroup: CgroupId, own: u32) {
        let known: Vec<Listener> =
            self.listeners.values().filter(|l| l.key.owner == cgroup && l.workload == own).cloned().collect();
        for listener in known {
            self.place(listener.id, listener.key, own);
        }
    }

    fn place(&mut self, id: u32, key: ListenerKey, before: u32) {
        let (workload, process) = self.owner(&key, before);
        let comm = process.map_or_else(|| comm(key.pid), |p| p.program);
        let listener = Listener { id, workload, key, comm };
        let socket = (key.netns, key.address, key.port);
        if self.listeners.get(&socket) != Some(&listener) {
            self.changed.push(Named::Listener(listener.clone()));
            self.listeners.insert(socket, listener);
            self.processes.clear();
        }
    }

    /// The workload behind an id of [`workload`](Self::workload).
    pub fn workload_of(&self, cgroup: CgroupId) -> Option<&Workload> {
        self.workloads.get(&cgroup)
    }

    /// A cgroup's workload, also for a server in it.
    fn by_id(&self, id: u32) -> Option<&Workload> {
        self.workloads.get(self.by_id.get(&id)?)
    }

    /// CPU ns per window that the nearest quota allows a workload; 0: none.
    pub fn quota_ns(&self, id: u32) -> u64 {
        self.by_id(id).map_or(0, |w| w.cpu_quota_ns)
    }

    /// How long a workload was throttled in `window`, by the quota that is nearest to it.
    pub fn throttled_ns(&self, id: u32, window: &Window) -> u64 {
        let quota = self.by_id(id).and_then(|w| self.tree.nearest_quota(&w.cgroup));
        let Some(quota) = quota else {
            return 0;
        };
        let rows = window.throttled.iter().flatten();
        rows.filter(|(cgroup, _)| *cgroup == quota.cgroup).map(|(_, ns)| ns).sum()
    }

    /// Id of a listener; 0 if there are too many. Learns its owner and process when they become known.
    pub fn listener(&mut self, key: ListenerKey) -> u32 {
        let socket = (key.netns, key.address, key.port);
        let known = self.listeners.get(&socket);
        if let Some(known) = known
            && (known.key == key || key.owner.0 == 0)
            && (known.workload != 0 || key.owner.0 == 0)
        {
            let id = known.id;
            self.saw(Kind::Listener, id);
            return id;
        }
        let (id, before) = known.map_or((None, 0), |k| (Some(k.id), k.workload));
        let Some(id) = id.or_else(|| self.next_id(Kind::Listener, self.listeners.len())) else {
            return 0;
        };
        self.saw(Kind::Listener, id);
        self.place(id, key, before);
        id
    }

    /// Id of an edge; 0 if there are too many.
    pub fn edge(&mut self, key: EdgeKey) -> u32 {
        let known = self.edges.get(&key).map(|e| (e.id, e.workload));
        if let Some((id, workload)) = known
            && workload != 0
        {
            self.saw(Kind::Edge, id);
            return id;
        }
        let Some(id) = known.map(|(id, _)| id).or_else(|| self.next_id(Kind::Edge, self.edges.len())) else {
            return 0;
        };
        self.saw(Kind::Edge, id);
        let workload = if key.workload == CgroupId::default() { 0 } else { self.workload(key.workload) };
        if known != Some((id, workload)) {
            let edge = Edge { id, workload, key };
            self.changed.push(Named::Edge(edge.clone()));
            self.edges.insert(key, edge);
        }
        id
    }

    /// Id of a device; 0 if there are too many.
    pub fn device(&mut self, name: &str) -> u32 {
        if let Some(id) = self.devices.get(name).map(|known| known.id) {
            self.saw(Kind::Device, id);
            return id;
        }
        let Some(id) = self.next_id(Kind::Device, self.devices.len()) else {
            return 0;
        };
        let device = Device { id, name: name.to_owned() };
        self.changed.push(Named::Device(device.clone()));
        self.devices.insert(device.name.clone(), device);
        id
    }

    /// What was named, renamed or forgotten since the call before.
    pub fn take_changed(&mut self) -> Vec<Named> {
        std::mem::take(&mut self.changed)
    }
}

/// Command name of a process; empty if it is gone.
pub fn comm(pid: u32) -> String {
    if pid == 0 {
        return String::new();
    }
    std::fs::read_to_string(format!("/proc/{pid}/comm")).map(|c| c.trim_end().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;
    use std::os::unix::fs::MetadataExt;

    fn entities(folder: &Path) -> Entities {
        let mounts = Mounts { unified: Some(folder.to_owned()), ..Mounts::default() };
        Entities::new(mounts, folder)
    }

    fn cgroup(folder: &Path, path: &str) -> CgroupId {
        std::fs::create_dir_all(folder.join(path)).unwrap();
        CgroupId(std::fs::metadata(folder.join(path)).unwrap().ino())
    }

    fn listener(owner: CgroupId) -> ListenerKey {
        ListenerKey { netns: 1, address: Ipv6Addr::UNSPECIFIED, port: 80, owner, pid: 0 }
    }

    #[test]
    fn a_cgroup_made_later_is_found_by_the_next_walk() {
        let folder = tempfile::tempdir().unwrap();
        let first = cgroup(folder.path(), "a.service");
        let mut entities = entities(folder.path());
        assert!(!entities.refresh(100, None) || entities.workload(first) == 1);
        assert_eq!(entities.workload(first), 1);
        let later = cgroup(folder.path(), "b.service");
        assert_eq!(entities.workload(later), 0);
        entities.refresh(101, None);
        assert_eq!(entities.workload(later), 2);
        assert_eq!(entities.workload(first), 1, "ids stay");
        let names: Vec<String> = entities
            .take_changed()
            .into_iter()
            .filter_map(|c| match c {
                Named::Workload(w) => Some(w.names.name),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["a.service", "b.service"]);
        assert_eq!(entities.take_changed(), []);
    }

    #[test]
    fn a_listener_keeps_its_id_when_its_owner_becomes_known() {
        let folder = tempfile::tempdir().unwrap();
        let owner = cgroup(folder.path(), "web");
        let mut entities = entities(folder.path());
        let id = entities.listener(listener(CgroupId(0)));
        assert_eq!(entities.listener(listener(owner)), id);
        assert_eq!(entities.listener(listener(CgroupId(0))), id);
        let changed = entities.take_changed();
        let owners: Vec<u32> = changed
            .iter()
            .filter_map(|c| match c {
                Named::Listener(l) => Some(l.workload),
                _ => None,
            })
            .collect();
        assert_eq!(owners, [0, 1], "told twice, with and without owner");
    }

    #[test]
    fn a_container_that_was_met_before_its_name_gets_it_and_keeps_its_id() {
        const ID: &str = "4bca1a6ad5e9ff4ba5a8cf6bb62e6eb9b0f0e3d24ff1a0b6a3c5d7e9f1234567";
        let folder = tempfile::tempdir().unwrap();
        let pod = cgroup(folder.path(), &format!("kubepods/{ID}"));
        std::fs::write(
            folder.path().join(format!("kubepods/{ID}/cgroup.procs")),
            format!("{}\n", std::process::id()),
        )
        .unwrap();
        let mut entities = entities(folder.path());
        entities.refresh(100, None);
        let id = entities.workload(pod);
        let name = |entities: &Entities| entities.workload_of(pod).unwrap().names.name.clone();
        assert_eq!(name(&entities), ID[..12]);
        entities.take_changed();
        entities.refresh(100 + QUOTA_PERIOD_WINDOWS, None);
        assert_eq!(entities.take_changed(), [], "no name yet, and nothing to tell");
        let logs = folder.path().join("var/log/containers");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join(format!("shop-1_default_web-{ID}.log")), "").unwrap();
        entities.refresh(100 + 2 * QUOTA_PERIOD_WINDOWS, None);
        assert_eq!(name(&entities), "default/shop-1/web");
        assert_eq!((entities.take_changed().len(), entities.workload(pod)), (1, id));
        assert!(entities.unsettled.is_empty(), "it is not asked for ever");
    }

    /// So many windows later.
    fn wait(entities: &mut Entities, window: &mut u64, windows: u64) {
        *window += windows;
        entities.refresh(*window, None);
    }

    #[test]
    fn a_hundred_thousand_restarted_services_leave_room_for_the_next() {
        const AT_A_TIME: u64 = 125;
        let folder = tempfile::tempdir().unwrap();
        let keeper = cgroup(folder.path(), "keeper.service");
        let mut entities = entities(folder.path());
        let mut window = 100;
        entities.refresh(window, None);
        let kept = entities.workload(keeper);
        let kept_listener = entities.listener(listener(keeper));
        let (mut last, mut told) = (0, 0);
        // A service lives for a minute, and is another cgroup with another port after it. Inodes come from a counter, as cgroups' do.
        for round in 0..100_000 / AT_A_TIME {
            let now: Vec<CgroupId> =
                (0..AT_A_TIME).map(|n| CgroupId(1_000_000 + round * AT_A_TIME + n)).collect();
            for (n, id) in now.iter().enumerate() {
                entities.tree.pretend(*id, &format!("/job-{n}.service"));
            }
            for (n, id) in now.iter().enumerate() {
                let workload = entities.workload(*id);
                assert!(workload > last, "ids are never used again");
                let socket = ListenerKey { port: 1 + n as u16, netns: 2 + round as u32, ..listener(*id) };
                assert_ne!(entities.listener(socket), 0, "round {round}");
                last = workload;
            }
            assert_eq!(entities.workload(keeper), kept);
            wait(&mut entities, &mut window, 1200);
            told += entities.take_changed().iter().filter(|n| matches!(n, Named::Gone(..))).count();
        }
        assert_eq!(entities.refused(), 0);
        assert!(told > 190_000, "{told} of 200,000 are told as gone");
        assert!(entities.seen.len() < 3_000 && entities.by_id.len() < 1_500, "{}", entities.seen.len());
        assert_eq!(entities.listener(listener(keeper)), kept_listener, "idle for days, and still there");
    }

    #[test]
    fn what_belongs_to_something_keeps_it_and_a_server_that_shares_goes_with_its_cgroup() {
        let folder = tempfile::tempdir().unwrap();
        let owner = cgroup(folder.path(), "web");
        let mut entities = entities(folder.path());
        let mut window = 100;
        entities.refresh(window, None);
        let (workload, socket) = (entities.workload(owner), entities.listener(listener(owner)));
        std::fs::remove_dir(folder.path().join("web")).unwrap();
        wait(&mut entities, &mut window, FORGOTTEN_AFTER_WINDOWS - 10);
        assert_eq!(entities.listener(listener(owner)), socket, "it has a value again");
        entities.take_changed();
        wait(&mut entities, &mut window, FORGOTTEN_AFTER_WINDOWS - 10);
        assert_eq!(entities.take_changed(), [], "the workload had none for long, but its listener had");
        wait(&mut entities, &mut window, WALK_PERIOD_WINDOWS);
        assert_eq!(
            entities.take_changed(),
            [Named::Gone(Kind::Listener, socket), Named::Gone(Kind::Workload, workload)]
        );
        let again = cgroup(folder.path(), "web");
        wait(&mut entities, &mut window, WALK_PERIOD_WINDOWS);
        assert_eq!(
            (entities.workload(again), entities.listener(listener(again))),
            (workload + 1, socket + 1)
        );
    }

    #[test]
    fn a_crowd_of_idle_listeners_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let owner = cgroup(folder.path(), "runner");
        let mut entities = entities(folder.path());
        let mut window = 100;
        entities.refresh(window, None);
        for port in 1..=u16::try_from(CROWDED).unwrap() + 1 {
            entities.listener(ListenerKey { port, ..listener(owner) });
        }
        entities.take_changed();
        wait(&mut entities, &mut window, FORGOTTEN_AFTER_WINDOWS / 2);
        entities.listener(ListenerKey { port: 1, ..listener(owner) });
        wait(&mut entities, &mut window, FORGOTTEN_AFTER_WINDOWS / 2 + 1);
        assert_eq!(entities.take_changed().len(), CROWDED, "all but the one that was in use");
        assert_eq!(entities.listeners.len(), 1);
    }

    #[test]
    fn what_has_no_room_is_one_workload_with_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut entities = entities(folder.path());
        entities.refresh(100, None);
        for n in 0..ENTITIES_MAX as u64 {
            entities.tree.pretend(CgroupId(1_000_000 + n), &format!("/job-{n}.service"));
            assert_ne!(entities.workload(CgroupId(1_000_000 + n)), 0);
        }
        entities.take_changed();
        let more = CgroupId(3_000_000);
        entities.tree.pretend(more, "/late.service");
        let other = entities.workload(more);
        assert_ne!(other, 0);
        assert_eq!(entities.workload(CgroupId::default()), other, "what the kernel's tables had no room for");
        assert_eq!((entities.refused(), entities.workload(CgroupId(4_000_000))), (1, 0), "not walked to yet");
        let named = entities.take_changed();
        let [Named::Workload(w)] = &named[..] else { panic!("{named:?}") };
        assert_eq!((w.id, w.names.name.as_str()), (other, "~other"));
        let edge = EdgeKey {
            netns: 1,
            workload: CgroupId::default(),
            remote_address: Ipv6Addr::LOCALHOST,
            remote_port: 80,
        };
        let id = entities.edge(edge);
        let named = entities.take_changed();
        assert!(matches!(&named[..], [Named::Edge(e)] if e.id == id && e.workload == 0), "{named:?}");
    }

    #[test]
    fn entities_are_bounded_and_the_rest_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut entities = entities(folder.path());
        for i in 0..ENTITIES_MAX + 3 {
            entities.device(&format!("d{i}"));
        }
        assert_eq!(entities.refused(), 3);
        assert_eq!(entities.device("d0"), 1);
    }
}
