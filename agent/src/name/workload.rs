//! The entities of this host: small ids for cgroups, listeners, edges and devices, and the names behind them. Owns the ids, which
//! are never reused in one run of the agent, and when the cgroup tree is walked again (`forgetting` has what they are forgotten by); knows
//! no wire format and no kernel map.

mod forgetting;

use crate::clock::{Pace, timed};
use crate::name::aside::Aside;
use crate::name::cgroup::{CgroupTree, Mounts};
use crate::name::naming::{self, Names, names};
use crate::name::pool::{Listen, Pool};
use crate::name::servers::{Place, Process, Servers};
use crate::window::{CgroupId, EdgeKey, ListenerKey, ProcessKey, WINDOW_NS, Window};
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

/// A walk that somebody asked for comes no sooner after the one before than so many times what that one took: where cgroups come in every
/// window, walks take a fiftieth of one CPU however large the tree is.
const WALK_RESTS: u64 = 50;

/// Windows between two readings of the quotas: 1 s.
const QUOTA_PERIOD_WINDOWS: u64 = 20;

/// Windows between two readings of a server's configuration: a minute.
const POOL_PERIOD_WINDOWS: u64 = 1200;

/// How often a cgroup that was met before its name was there is asked again: for a minute, each second when quotas are read.
const ASKED_AGAIN: u32 = 60;

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
    pub path: Option<Arc<str>>,
    pub comm: String,
    pub pool: Option<Pool>,
    pub started_with: u64,
}

/// A workload's connections to one address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Edge")]
pub struct Edge {
    pub id: u32,
    pub workload: u32,
    pub key: EdgeKey,
    pub path: Option<Arc<str>>,
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
    aside: Aside,
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
    /// What Unix sockets are bound to, by the address that stands for each.
    paths: HashMap<std::net::Ipv6Addr, Arc<str>>,
    changed: Vec<Named>,
    walked: Option<u64>,
    /// Of walks that are asked for.
    walk_pace: Pace,
    quotas_read: u64,
    names_asked: u64,
    pools_read: u64,
    /// First processes of cgroups whose listening process is not known, since pools were read last; 0: none.
    servers_found: HashMap<CgroupId, u32>,
    /// The tree is walked as soon as it may be, whatever its period says.
    walk_next: bool,
    /// Never seen in the tree, asked for since the last walk: so is it for them.
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
            aside: Aside::new(root),
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
            paths: HashMap::new(),
            changed: Vec::new(),
            walked: None,
            walk_pace: Pace::default(),
            quotas_read: 0,
            names_asked: 0,
            pools_read: 0,
            servers_found: HashMap::new(),
            walk_next: false,
            unknown: HashSet::new(),
            gone: HashSet::new(),
            refused: 0,
        }
    }

    /// The cgroup tree as last walked.
    pub fn tree(&self) -> &CgroupTree {
        &self.tree
    }

    /// Who reads what may take long.
    pub fn aside(&self) -> &Aside {
        &self.aside
    }

    /// Entities that got no id because there were [`ENTITIES_MAX`] of their kind.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Walks the tree as soon as it may be: there are cgroups that no value is told of yet.
    pub fn walk_next(&mut self) {
        self.walk_next = true;
    }

    /// Call once per window, before its values are named: walks the tree and reads quotas when their time has come. Returns
    /// whether either happened.
    pub fn refresh(&mut self, window: u64, scope: Option<&str>) -> bool {
        self.now = window;
        let walked = *self.walked.get_or_insert(window);
        // A clock that was set back says nothing about when that was.
        let since = window.checked_sub(walked).unwrap_or(WALK_PERIOD_WINDOWS);
        let period_over = since >= WALK_PERIOD_WINDOWS;
        let asked_for = self.walk_next || !self.unknown.is_empty();
        let now_ns = window.saturating_mul(WINDOW_NS);
        if period_over || (asked_for && self.walk_pace.is_due(now_ns)) {
            let ((), cpu_ns) = timed(|| self.tree.walk());
            self.walk_pace.took(now_ns, cpu_ns, WALK_RESTS);
            self.walked = Some(window);
            self.walk_next = false;
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
            self.renew_pools();
        }
        true
    }

    /// Takes over what was read of the servers' configurations, and has it read again when its time has come: a server may be set up
    /// anew without another process.
    fn renew_pools(&mut self) {
        let again = self.now.saturating_sub(self.pools_read) >= POOL_PERIOD_WINDOWS;
        if again {
            self.pools_read = self.now;
            self.servers_found.clear();
        }
        for listener in self.listeners.values_mut() {
            let ListenerKey { pid, port, owner, .. } = listener.key;
            let at = Listen::at(port, listener.path.as_ref());
            // A process is known when it has accepted a connection. Until then, and where nobody comes any more because all connections stay
            // open, it is the first one of a cgroup that holds one server.
            let pid = if pid == 0 && !self.servers.told_apart(owner) {
                *self.servers_found.entry(owner).or_insert_with(|| {
                    let path = self.workloads.get(&owner).map(|workload| &workload.cgroup);
                    let path = path.filter(|path| !naming::collects(path));
                    let all = path.map(|path| self.tree.processes(path, PROCESSES_ASKED));
                    all.and_then(|all| all.into_iter().min()).unwrap_or(0)
                })
            } else {
                pid
            };
            let pool = if pid == 0 { None } else { self.aside.pool(pid, &at, again) };
            if pool != listener.pool {
                listener.pool = pool;
                self.changed.push(Named::Listener(listener.clone()));
            }
        }
    }

    /// A new id of a kind of which there are `known`.
    fn next_id(&mut self, kind: Kind, known: usize) -> Option<u32> {
        if known >= ENTITIES_MAX {
            self.refused += 1;
            return None;
        }
        let id = self.fresh_id(kind);
        self.saw(kind, id);
        Some(id)
    }

    /// Ids count from 1; 0 means "not known" on the wire.
    fn fresh_id(&mut self, kind: Kind) -> u32 {
        let last = self.ids.entry(kind).or_default();
        *last += 1;
        *last
    }

    fn saw(&mut self, kind: Kind, id: u32) {
        self.seen.insert((kind, id), self.now);
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
            && let Some(name) = self.aside.container(&names.container)
        {
            names.name = name;
        }
        (names, comm)
    }

    fn renew_quotas(&mut self) {
        for workload in self.workloads.values_mut().chain(&mut self.sharing) {
            // Of a cgroup that is gone nobody has set another: what is found now is that of those above it.
            if self.tree.id(&workload.cgroup).is_none() {
                continue;
            }
            let quota = self.tree.nearest_quota(&workload.cgroup).map_or(0, |q| q.per_window_ns);
            if quota != workload.cpu_quota_ns {
                workload.cpu_quota_ns = quota;
                self.changed.push(Named::Workload(workload.clone()));
            }
        }
    }

    /// Looks whether a window holds cgroups that were never seen, and learns what its Unix sockets are bound to; call before [`Entities::refresh`].
    pub fn meet(&mut self, window: &Window) {
        let tasks = window.tasks.iter().flatten().map(|(cgroup, _)| *cgroup);
        let submitters = window.io.iter().flatten().map(|(cgroup, _)| *cgroup);
        for cgroup in tasks.chain(submitters) {
            self.path(cgroup);
        }
        for (address, path) in &window.unix_paths {
            // Of what is not remembered the names are told again: by the next windows of those that are still there.
            if self.paths.len() >= ENTITIES_MAX && !self.paths.contains_key(address) {
                self.paths.clear();
            }
            self.paths.insert(*address, Arc::clone(path));
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

    /// Id of the workload whose row a cgroup's values belong to: its own, or that of `~other` until the tree is walked for it. 0 if it was gone
    /// before its path was known.
    pub fn row(&mut self, cgroup: CgroupId) -> u32 {
        match self.workload(cgroup) {
            0 if self.unknown.contains(&cgroup) => self.other(),
            id => id,
        }
    }

    /// Id of the workload of all that is not told apart; there is always room for this one.
    fn other(&mut self) -> u32 {
        if self.other == 0 {
            self.other = self.fresh_id(Kind::Workload);
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

    /// Whether a listener of this cgroup is known.
    pub fn listens(&self, cgroup: CgroupId) -> bool {
        self.listeners.values().any(|listener| listener.key.owner == cgroup)
    }

    /// Whether the servers of a cgroup are told apart.
    pub fn told_apart(&self, cgroup: CgroupId) -> bool {
        self.servers.told_apart(cgroup)
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
        let socket = (key.netns, key.address, key.port);
        // Of another process it is read anew.
        let same = self.listeners.get(&socket).filter(|known| known.key.pid == key.pid);
        let pool = same.and_then(|known| known.pool.clone());
        let started_with = match same.map(|known| known.started_with).filter(|of| *of != 0) {
            Some(known) => known,
            None => self.servers.started_with(key.pid),
        };
        let path = self.paths.get(&key.address).cloned();
        let listener = Listener { id, workload, key, path, comm, pool, started_with };
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

    /// Cgroups of the quotas by which something with an id is bound.
    pub fn binding_quotas(&self) -> HashSet<CgroupId> {
        let named = self.workloads.values();
        named.filter_map(|w| self.tree.nearest_quota(&w.cgroup)).map(|quota| quota.cgroup).collect()
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
            && (known.path.is_some() || !self.paths.contains_key(&key.address))
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
            let path = self.paths.get(&key.remote_address).cloned();
            let edge = Edge { id, workload, key, path };
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
mod tests;
