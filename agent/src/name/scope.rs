//! One cgroup subtree observed as if it were a host: which cgroups, listeners and edges belong to it. Owns that decision; knows no
//! wire format.

use crate::name::cgroup::is_within;
use crate::name::workload::Entities;
use crate::window::{CgroupId, ConnectionEnd, ListenerKey, Window};
use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;

/// Processes per cgroup that are asked for their network namespace.
const PROCESSES_ASKED: usize = 16;

/// The part of the machine that this agent speaks for.
#[derive(Debug, Clone)]
pub struct Scope {
    path: String,
    namespaces: BTreeSet<u32>,
    known: HashMap<CgroupId, bool>,
}

impl Scope {
    /// `path` as in the configuration, e.g. `/lab/web`.
    pub fn new(path: &str) -> Self {
        Self { path: path.to_owned(), namespaces: BTreeSet::new(), known: HashMap::new() }
    }

    /// The path below the cgroup root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Looks up the scope's network namespaces again. One that the machine or this agent itself uses belongs to no scope.
    pub fn refresh(&mut self, entities: &Entities) {
        let machine = [netns_of(1), netns_of(std::process::id())];
        let tree = entities.tree();
        self.namespaces = tree
            .subtree(&self.path)
            .flat_map(|path| tree.processes(path, PROCESSES_ASKED))
            .filter_map(netns_of)
            .filter(|ns| !machine.contains(&Some(*ns)))
            .collect();
        self.known.clear();
    }

    /// Whether a cgroup lies in the scope. A cgroup that is not known yet does not, until the tree is walked again.
    pub fn holds(&mut self, cgroup: CgroupId, entities: &mut Entities) -> bool {
        if let Some(holds) = self.known.get(&cgroup) {
            return *holds;
        }
        let Some(path) = entities.path(cgroup) else {
            return false;
        };
        let holds = is_within(&path, &self.path);
        self.known.insert(cgroup, holds);
        holds
    }

    /// Leaves in `window` what belongs to the scope. A socket in one of its namespaces belongs to it whoever owns it; with an
    /// owner outside, it is attributed to the scope's own cgroup.
    pub fn narrow(&mut self, window: &mut Window, entities: &mut Entities) {
        let own = entities.tree().id(&self.path);
        // Without `..`: a new section does not compile before it is said here what of it belongs to the scope. Names of whoever is told
        // by a section that nobody narrowed would be taken for tiers of this host.
        let Window {
            index: _,
            clock_corrected: _,
            late: _,
            machine_cpu: _,
            tasks,
            stopped,
            throttled: _, // told of workloads that another section names
            io,
            memory,
            devices: _,
            accept_queues,
            requests,
            calls,
            retransmits,
            connections,
            unix_paths: _, // names of listeners and edges that are narrowed themselves
            meetings,
            states,
            blocked_loops,
            cpu_shares,
            blockings: _,      // told after this
            locked_threads: _, // the same
            lookups,
            slow_requests,
            code_paths,
            kernel_counts: _, // of namespaces of the listeners that are left, or of the machine
            culprits,
            polled: _,
        } = window;
        macro_rules! by_cgroup {
            ($($section:ident),*) => {
                $(if let Some(rows) = $section {
                    rows.retain(|(cgroup, _)| self.holds(*cgroup, entities));
                })*
            };
        }
        by_cgroup!(tasks, io, memory);
        if let Some(rows) = stopped {
            rows.retain(|(process, _)| self.holds(process.cgroup, entities));
        }
        culprits.retain(|c| self.holds(c.workload, entities));
        code_paths.retain(|path| self.holds(path.workload, entities));
        cpu_shares.retain(|shares| self.holds(shares.cgroup, entities));
        let states = states.as_mut().map(|of| &mut of.listeners);
        macro_rules! by_socket {
            ($($section:ident: $owner:ident),*) => {
                $(if let Some(rows) = $section {
                    rows.retain_mut(|(key, _)| self.takes(&mut key.$owner, key.netns, own, entities));
                })*
            };
        }
        by_socket!(accept_queues: owner, requests: owner, states: owner);
        by_socket!(calls: workload, retransmits: workload, connections: workload);
        lookups.retain_mut(|(key, _)| self.takes(&mut key.workload, key.netns, own, entities));
        slow_requests.retain_mut(|request| {
            if let Some(calls) = &mut request.calls {
                calls.retain_mut(|c| self.takes(&mut c.edge.workload, c.edge.netns, own, entities));
            }
            self.takes(&mut request.listener.owner, request.listener.netns, own, entities)
        });
        blocked_loops.retain_mut(|l| self.takes(&mut l.listener.owner, l.listener.netns, own, entities));
        meetings.retain_mut(|m| match &mut m.end {
            ConnectionEnd::Accepted(key) => self.takes(&mut key.owner, key.netns, own, entities),
            ConnectionEnd::Connected(key) => self.takes(&mut key.workload, key.netns, own, entities),
        });
    }

    /// Whether a listener belongs to the scope; if only by its namespace, it is attributed to the scope's own cgroup.
    pub fn narrow_listener(&mut self, key: &mut ListenerKey, entities: &mut Entities) -> bool {
        let own = entities.tree().id(&self.path);
        self.takes(&mut key.owner, key.netns, own, entities)
    }

    /// Whether a socket of that owner and namespace belongs to the scope; if only by its namespace, its owner becomes `own`.
    fn takes(
        &mut self,
        owner: &mut CgroupId,
        netns: u32,
        own: Option<CgroupId>,
        entities: &mut Entities,
    ) -> bool {
        if self.holds(*owner, entities) {
            return true;
        }
        if !self.namespaces.contains(&netns) {
            return false;
        }
        *owner = own.unwrap_or_default();
        true
    }
}

/// Inode of a process's network namespace.
pub fn netns_of(pid: u32) -> Option<u32> {
    let meta = std::fs::metadata(format!("/proc/{pid}/ns/net")).ok()?;
    u32::try_from(meta.ino()).ok()
}

/// A process to ask for the addresses: one of the scope, else this one.
pub fn process_to_ask(scope: Option<&Scope>, entities: &Entities) -> u32 {
    let tree = entities.tree();
    scope
        .and_then(|s| tree.subtree(&s.path).find_map(|path| tree.processes(path, 1).first().copied()))
        .unwrap_or_else(std::process::id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::cgroup::Mounts;
    use crate::window::{
        AcceptQueueSample, CallSample, CpuShares, CulpritResource, CulpritSample, EdgeKey, ListenerKey,
        Meeting, States, TaskSample,
    };
    use std::net::Ipv6Addr;

    const HOST_NETNS: u32 = 1;
    const SCOPE_NETNS: u32 = 2;

    struct World {
        _folder: tempfile::TempDir,
        entities: Entities,
        scope: Scope,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for path in ["lab/web/apache", "lab/web2", "system.slice"] {
                std::fs::create_dir_all(folder.path().join(path)).unwrap();
            }
            let mounts = Mounts { unified: Some(folder.path().to_owned()), ..Mounts::default() };
            let entities = Entities::new(mounts, folder.path());
            let mut scope = Scope::new("/lab/web");
            scope.namespaces = BTreeSet::from([SCOPE_NETNS]);
            Self { _folder: folder, entities, scope }
        }

        fn id(&self, path: &str) -> CgroupId {
            self.entities.tree().id(path).unwrap()
        }
    }

    fn listener(owner: CgroupId, netns: u32, port: u16) -> (ListenerKey, AcceptQueueSample) {
        let address = Ipv6Addr::UNSPECIFIED;
        let key = ListenerKey { netns, address, port, owner, pid: 0 };
        (key, AcceptQueueSample::default())
    }

    #[test]
    fn only_the_subtree_its_sockets_and_its_culprits_remain() {
        let mut world = World::new();
        let inside = world.id("/lab/web/apache");
        let own = world.id("/lab/web");
        let neighbour = world.id("/lab/web2");
        let unknown = CgroupId(u64::MAX);
        let edge = |workload| {
            let key =
                EdgeKey { workload, netns: HOST_NETNS, remote_address: Ipv6Addr::LOCALHOST, remote_port: 1 };
            (key, CallSample::default())
        };
        let culprit = |workload| CulpritSample {
            resource: CulpritResource::Cpu,
            pid: 1,
            comm: String::new(),
            workload,
            amount: 1,
        };
        let shares = |cgroup| CpuShares { cgroup, windows_ago: 0, span_ns: 1, processes: Vec::new() };
        let mut window = Window {
            tasks: Some([inside, own, neighbour, unknown].map(|c| (c, TaskSample::default())).to_vec()),
            accept_queues: Some(vec![
                listener(inside, HOST_NETNS, 80),
                listener(neighbour, HOST_NETNS, 81),
                listener(neighbour, SCOPE_NETNS, 82),
                listener(CgroupId(0), SCOPE_NETNS, 83),
            ]),
            calls: Some([inside, neighbour].map(edge).to_vec()),
            states: Some(States {
                windows: 20,
                listeners: [
                    listener(inside, HOST_NETNS, 80),
                    listener(neighbour, HOST_NETNS, 81),
                    listener(neighbour, SCOPE_NETNS, 82),
                ]
                .map(|(key, _)| (key, Vec::new()))
                .to_vec(),
            }),
            meetings: vec![
                Meeting { pair: 1, end: ConnectionEnd::Connected(edge(inside).0) },
                Meeting { pair: 2, end: ConnectionEnd::Connected(edge(neighbour).0) },
                Meeting { pair: 3, end: ConnectionEnd::Accepted(listener(neighbour, HOST_NETNS, 81).0) },
                Meeting { pair: 4, end: ConnectionEnd::Accepted(listener(neighbour, SCOPE_NETNS, 82).0) },
            ],
            culprits: [inside, neighbour].map(culprit).to_vec(),
            cpu_shares: [inside, neighbour, unknown].map(shares).to_vec(),
            ..Window::default()
        };
        world.scope.narrow(&mut window, &mut world.entities);
        let tasks: Vec<CgroupId> = window.tasks.unwrap().into_iter().map(|t| t.0).collect();
        assert_eq!(tasks, [inside, own]);
        let listeners: Vec<(u16, CgroupId)> =
            window.accept_queues.unwrap().into_iter().map(|(k, _)| (k.port, k.owner)).collect();
        assert_eq!(listeners, [(80, inside), (82, own), (83, own)]);
        let states: Vec<(u16, CgroupId)> =
            window.states.unwrap().listeners.into_iter().map(|(k, _)| (k.port, k.owner)).collect();
        assert_eq!(states, [(80, inside), (82, own)]);
        assert_eq!(window.calls.unwrap().len(), 1);
        let own_listener = ConnectionEnd::Accepted(listener(own, SCOPE_NETNS, 82).0);
        let met: Vec<(u64, ConnectionEnd)> = window.meetings.iter().map(|m| (m.pair, m.end)).collect();
        assert_eq!(met, [(1, ConnectionEnd::Connected(edge(inside).0)), (4, own_listener)]);
        assert_eq!(window.culprits.len(), 1);
        assert_eq!(window.cpu_shares, [shares(inside)]);
        assert_eq!(window.io, None, "not covered stays not covered");
    }
}
