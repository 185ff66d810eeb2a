//! Which listeners there are, who owns them, and who calls whom: a thread that looks through the network namespaces every two seconds.
//! Owns the namespaces' sockets and what was found last; knows no window.
//!
//! A listener belongs to the process that has it open, the eldest but init; where no process can be looked at, to the cgroup in which
//! the kernel says that its socket was made.

use super::sock_diag::{Diag, Found};
use crate::attach::privilege;
use crate::name::cgroup::{Mounts, below};
use crate::sample::namespaces::{in_every_namespace, processes};
use crate::sample::repeated::Repeated;
use crate::window::{CgroupId, EdgeKey, ListenerKey};
use netlink_packet_sock_diag::inet::{SocketId, StateFlags};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two looks: so long a new listener is not told.
const EVERY: Duration = Duration::from_secs(2);
/// Looks for the process of a socket before it is left with the cgroup that the kernel says.
const OWNER_ASKED: u32 = 3;
/// Descriptors looked at in one search for owners.
const DESCRIPTORS_MAX: usize = 200_000;
/// Connections of a namespace after which they are looked at only every so many times: their list is long.
const CONNECTIONS_MANY: usize = 5_000;
const MANY_EVERY: u64 = 10;
/// Pairs of workload and remote address that are told; what is beyond is left out, and counted.
const EDGES_MAX: usize = 128;

/// What the one who asks in each window needs of a namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) diag: Diag,
    /// Its counters, `ListenDrops` among them.
    pub(super) netstat: File,
}

/// By inode.
pub(super) type Namespaces = BTreeMap<u32, Arc<Mutex<Namespace>>>;

/// A listening socket.
#[derive(Debug, Clone)]
pub(super) struct Listening {
    pub(super) key: ListenerKey,
    pub(super) family: u8,
    pub(super) id: SocketId,
    /// Several sockets share its address: the kernel cannot be asked for one of them.
    pub(super) shared: bool,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    /// Counts looks.
    pub(super) number: u64,
    pub(super) listeners: Vec<Listening>,
    pub(super) edges: Vec<(EdgeKey, u32)>,
    pub(super) edges_left_out: u64,
    /// Why not everything can be seen.
    pub(super) trouble: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    namespaces: Namespaces,
    snapshot: Arc<Snapshot>,
}

/// The thread; ends with this value.
#[derive(Debug)]
pub(super) struct Discovery {
    _thread: Repeated,
    shared: Arc<Mutex<Shared>>,
}

impl Discovery {
    /// Looks once, and then from its own thread. An error: not even the own namespace can be looked into.
    pub(super) fn start(mounts: &Mounts) -> std::io::Result<Self> {
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let mut look = Look {
            mounts: mounts.clone(),
            shared: shared.clone(),
            walked: BTreeMap::new(),
            owners: HashMap::new(),
            number: 0,
        };
        let (looked, first_look) = sync_channel(1);
        let mut begun = false;
        let thread = Repeated::start("socket-discovery", EVERY, move || {
            let result = look.around();
            if !std::mem::replace(&mut begun, true)
                && let Err(error) = privilege::drop_unneeded_of_walker()
            {
                tracing::warn!("socket-discovery: {error}");
            }
            let _ = looked.try_send(result);
        })?;
        first_look.recv().map_err(|_| std::io::Error::other("the thread that looks for sockets ended"))??;
        Ok(Self { _thread: thread, shared })
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        locked(&self.shared).snapshot.clone()
    }

    pub(super) fn namespaces(&self) -> Namespaces {
        locked(&self.shared).namespaces.clone()
    }
}

struct Owner {
    process: u32,
    cgroup: Option<CgroupId>,
    asked: u32,
}

struct Look {
    mounts: Mounts,
    shared: Arc<Mutex<Shared>>,
    /// This thread's own way into each namespace, and connections counted there last.
    walked: BTreeMap<u32, (Diag, usize)>,
    /// By inode of the socket.
    owners: HashMap<u32, Owner>,
    number: u64,
}

impl Look {
    fn around(&mut self) -> std::io::Result<()> {
        self.number += 1;
        let mut there = HashSet::new();
        let own = std::fs::metadata("/proc/thread-self/ns/net").map(|m| m.ino()).unwrap_or(0);
        self.enter(own, &mut there)?;
        let (_, mut trouble) = in_every_namespace(&mut |inode| self.enter(inode, &mut there));
        self.walked.retain(|inode, _| there.contains(inode));
        let mut snapshot = Snapshot { number: self.number, ..Snapshot::default() };
        let mut listening: Vec<(u32, Found)> = Vec::new();
        let mut connected: Vec<(u32, Found)> = Vec::new();
        for (inode, (diag, before)) in &mut self.walked {
            let mut listed = |states: StateFlags| {
                let found = diag.dump(&states);
                found.unwrap_or_else(|error| {
                    trouble = Some(format!("sockets of network namespace {inode}: {error}"));
                    Vec::new()
                })
            };
            listening.extend(listed(StateFlags::LISTEN).into_iter().map(|f| (*inode, f)));
            if *before < CONNECTIONS_MANY || self.number.is_multiple_of(MANY_EVERY) {
                let found = listed(StateFlags::ESTABLISHED | StateFlags::SYN_SENT);
                *before = found.len();
                connected.extend(found.into_iter().map(|f| (*inode, f)));
            }
        }
        self.find_owners(&listening);
        let edges = self.edges(&listening, &connected);
        snapshot.edges_left_out = edges.len().saturating_sub(EDGES_MAX) as u64;
        snapshot.edges = edges.into_iter().take(EDGES_MAX).collect();
        let mut sockets: HashMap<(u32, u8, IpAddr, u16), u32> = HashMap::new();
        for (netns, f) in &listening {
            *sockets.entry((*netns, f.family, f.id.source_address, f.id.source_port)).or_default() += 1;
        }
        snapshot.listeners = listening
            .into_iter()
            .map(|(netns, f)| Listening {
                key: self.key(netns, &f),
                family: f.family,
                shared: sockets.get(&(netns, f.family, f.id.source_address, f.id.source_port)) > Some(&1),
                id: f.id,
            })
            .collect();
        snapshot.trouble = trouble;
        let mut shared = locked(&self.shared);
        shared.namespaces.retain(|inode, _| there.contains(inode));
        shared.snapshot = Arc::new(snapshot);
        Ok(())
    }

    /// In the namespace that the thread is in: opens what is needed of it, once.
    fn enter(&mut self, inode: u64, there: &mut HashSet<u32>) -> std::io::Result<()> {
        let inode = u32::try_from(inode).unwrap_or(0);
        there.insert(inode);
        if self.walked.contains_key(&inode) {
            return Ok(());
        }
        let netstat = File::open("/proc/thread-self/net/netstat")?;
        let mut diag = Diag::open()?;
        // A kernel that does not answer is found out here, where it is an error.
        diag.dump(&StateFlags::LISTEN)?;
        let namespace = Namespace { diag, netstat };
        self.walked.insert(inode, (Diag::open()?, 0));
        locked(&self.shared).namespaces.insert(inode, Arc::new(Mutex::new(namespace)));
        Ok(())
    }

    fn key(&self, netns: u32, found: &Found) -> ListenerKey {
        let owner = self.owners.get(&found.inode);
        let made_in = found.cgroup.filter(|_| self.mounts.unified.is_some()).map(CgroupId);
        ListenerKey {
            netns,
            address: mapped(found.id.source_address),
            port: found.id.source_port,
            owner: owner.and_then(|o| o.cgroup).or(made_in).unwrap_or_default(),
            pid: owner.map_or(0, |o| o.process),
        }
    }

    /// Looks for the processes of sockets that are new.
    fn find_owners(&mut self, listening: &[(u32, Found)]) {
        let there: HashSet<u32> = listening.iter().map(|(_, f)| f.inode).collect();
        self.owners.retain(|inode, _| there.contains(inode));
        let known = |owners: &HashMap<u32, Owner>, inode: &u32| {
            owners.get(inode).is_some_and(|o| o.process != 0 || o.asked >= OWNER_ASKED)
        };
        let wanted: HashSet<u32> = there.into_iter().filter(|inode| !known(&self.owners, inode)).collect();
        if wanted.is_empty() {
            return;
        }
        let mut looked = 0;
        let mut found: HashMap<u32, u32> = HashMap::new();
        for process in processes() {
            let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/fd")) else { continue };
            for entry in entries.flatten() {
                looked += 1;
                let Ok(target) = std::fs::read_link(entry.path()) else { continue };
                let Some(inode) = socket_inode(&target).filter(|inode| wanted.contains(inode)) else {
                    continue;
                };
                let eldest = found.entry(inode).or_insert(process);
                // Init holds the sockets of services that it starts when somebody connects.
                if *eldest == 1 || (process != 1 && process < *eldest) {
                    *eldest = process;
                }
            }
            if looked > DESCRIPTORS_MAX {
                break;
            }
        }
        for inode in wanted {
            let process = found.get(&inode).copied().unwrap_or(0);
            let cgroup = if process == 0 { None } else { cgroup_of(process, &self.mounts) };
            let owner = self.owners.entry(inode).or_insert(Owner { process, cgroup, asked: 0 });
            (owner.process, owner.cgroup) = (process, cgroup);
            owner.asked += 1;
        }
    }

    /// Connections that were made from here, by who made them and to where.
    fn edges(&self, listening: &[(u32, Found)], connected: &[(u32, Found)]) -> Vec<(EdgeKey, u32)> {
        let ports: HashSet<(u32, u16)> = listening.iter().map(|(n, f)| (*n, f.id.source_port)).collect();
        let mut edges: BTreeMap<EdgeKey, u32> = BTreeMap::new();
        for (netns, f) in connected {
            let accepted = ports.contains(&(*netns, f.id.source_port));
            let Some(cgroup) = f.cgroup.filter(|_| !accepted && self.mounts.unified.is_some()) else {
                continue;
            };
            let key = EdgeKey {
                workload: CgroupId(cgroup),
                netns: *netns,
                remote_address: mapped(f.id.destination_address),
                remote_port: f.id.destination_port,
            };
            *edges.entry(key).or_default() += 1;
        }
        edges.into_iter().collect()
    }
}

/// IPv4 as v4-mapped, but for the wildcard, which is one of both families.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv6Addr::UNSPECIFIED,
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Of `socket:[1234]`.
fn socket_inode(target: &Path) -> Option<u32> {
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The cgroup of a process in the hierarchy that ids come from.
fn cgroup_of(process: u32, mounts: &Mounts) -> Option<CgroupId> {
    let root = mounts.identity()?;
    let process = procfs::process::Process::new(i32::try_from(process).ok()?).ok()?;
    let cgroups = process.cgroups().ok()?;
    let wanted = |c: &&procfs::ProcessCGroup| match mounts.unified {
        Some(_) => c.hierarchy == 0,
        None => c.controllers.iter().any(|name| name == "cpu"),
    };
    let path = cgroups.0.iter().find(wanted)?.pathname.clone();
    let meta = std::fs::metadata(below(root, &path)).ok()?;
    Some(CgroupId(meta.ino()))
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn sockets_have_inodes() {
        assert_eq!(socket_inode(Path::new("socket:[77]")), Some(77));
        assert_eq!(socket_inode(Path::new("/dev/null")), None);
    }

    #[test]
    fn a_listener_is_found_with_its_process_and_a_connection_with_its_remote() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let calls = TcpStream::connect(address).unwrap();
        let mounts = Mounts::read().unwrap();
        let discovery = Discovery::start(&mounts).unwrap();
        let snapshot = discovery.snapshot();
        let found = snapshot.listeners.iter().find(|l| l.key.port == address.port()).unwrap();
        assert_eq!(found.key.pid, std::process::id());
        assert_eq!(found.key.address, Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert!(!found.shared);
        assert_eq!(found.key.owner, cgroup_of(std::process::id(), &mounts).unwrap_or_default());
        if mounts.unified.is_some() {
            let edge = snapshot.edges.iter().find(|(e, _)| e.remote_port == address.port()).unwrap();
            assert_eq!((edge.0.remote_address, edge.1), (found.key.address, 1));
        }
        assert!(discovery.namespaces().contains_key(&found.key.netns));
        drop(calls);
    }
}
