//! The servers that share a cgroup: which process belongs to which, so that each is a workload of its own. Owns that rule and what
//! it reads of a process; knows no id of the wire and no window.
//!
//! A cgroup of one server is that server. In one that holds whatever was started there (the root, a session's scope), and in one where
//! a second server listens, a server is told by the program that listens and, where the same program runs twice, by its process.

use crate::name::naming;
use crate::name::started::started_with;
use crate::window::CgroupId;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Parents that are asked for their program: a server forks its workers once or twice.
const ANCESTORS_MAX: usize = 8;
/// Servers of one cgroup; what is beyond stays with the cgroup.
const SERVERS_MAX: usize = 256;

/// What is read of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// What a person calls its program.
    pub program: String,
    /// The eldest of it and its ancestors that runs this program without another between: a pool's master.
    pub head: u32,
}

impl Process {
    /// From `proc` of the file system at `root`; `None`: it is gone, or not ours to look at.
    pub fn read(root: &Path, pid: u32) -> Option<Self> {
        let folder = |pid: u32| root.join("proc").join(pid.to_string());
        let program = program(&folder(pid))?;
        let mut head = pid;
        for _ in 0..ANCESTORS_MAX {
            let Some(parent) = parent(&folder(head)).filter(|p| *p > 1) else { break };
            if self::program(&folder(parent)).as_ref() != Some(&program) {
                break;
            }
            head = parent;
        }
        Some(Self { program, head })
    }
}

fn program(folder: &Path) -> Option<String> {
    let comm = std::fs::read_to_string(folder.join("comm")).ok()?;
    let command = std::fs::read(folder.join("cmdline")).unwrap_or_default();
    Some(naming::program(comm.trim_end(), &naming::words(&command)))
}

/// The second field after the command, which is in brackets and may hold any character.
fn parent(folder: &Path) -> Option<u32> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A server in a cgroup of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The workload's id; 0: it has none yet.
    pub workload: u32,
    /// Its program, with its port where another process of the same program was there first.
    pub name: String,
    program: String,
    head: u32,
}

/// Where a listening process belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Its cgroup holds no other server.
    Alone,
    /// The n-th server of its cgroup.
    Server(usize),
    /// As before; with this process its cgroup turned out to hold several.
    SharedNow(usize),
}

#[derive(Debug, Default)]
struct Shared {
    /// The only server so far.
    only: Option<Process>,
    several: bool,
    servers: Vec<Server>,
}

/// The servers of all cgroups.
#[derive(Debug)]
pub struct Servers {
    root: PathBuf,
    cgroups: HashMap<CgroupId, Shared>,
}

impl Servers {
    /// `root`: the file system whose `proc` is read.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), cgroups: HashMap::new() }
    }

    /// What a process runs.
    pub fn look(&self, pid: u32) -> Option<Process> {
        if pid == 0 { None } else { Process::read(&self.root, pid) }
    }

    /// See [`started_with`].
    pub fn started_with(&self, pid: u32) -> u64 {
        started_with(&self.root, pid)
    }

    /// Whether processes of this cgroup are told apart.
    pub fn told_apart(&self, cgroup: CgroupId) -> bool {
        self.cgroups.get(&cgroup).is_some_and(|c| c.several)
    }

    /// A server by its number.
    pub fn server(&mut self, cgroup: CgroupId, number: usize) -> Option<&mut Server> {
        self.cgroups.get_mut(&cgroup)?.servers.get_mut(number)
    }

    /// A server's workload is forgotten: it gets another when it is placed again.
    pub fn forget(&mut self, cgroup: CgroupId, workload: u32) {
        let servers = self.cgroups.get_mut(&cgroup).into_iter().flat_map(|shared| &mut shared.servers);
        servers.filter(|server| server.workload == workload).for_each(|server| server.workload = 0);
    }

    /// A cgroup is gone.
    pub fn forget_all(&mut self, cgroup: CgroupId) {
        self.cgroups.remove(&cgroup);
    }

    /// Places a process that listens on `port`. `collects`: the cgroup holds whatever was started there. `before`: the workload that
    /// listened on this socket before; 0: nobody.
    pub fn listens(
        &mut self,
        cgroup: CgroupId,
        process: &Process,
        port: u16,
        collects: bool,
        before: u32,
    ) -> Place {
        let root = &self.root;
        let shared = self.cgroups.entry(cgroup).or_default();
        let mut fresh = false;
        if !shared.several {
            let other = |only: &Process| {
                only.program != process.program || (only.head != process.head && runs(root, only))
            };
            if !collects && !shared.only.as_ref().is_some_and(other) {
                shared.only = Some(process.clone());
                return Place::Alone;
            }
            shared.several = true;
            fresh = !collects;
        }
        let same = |s: &&Server| s.program == process.program;
        let known = shared
            .servers
            .iter()
            .position(|s| same(&s) && s.head == process.head)
            .or_else(|| shared.servers.iter().position(|s| same(&s) && before != 0 && s.workload == before))
            // Started again, on another port perhaps.
            .or_else(|| shared.servers.iter().position(|s| same(&s) && !s.runs(root)));
        let number = match known {
            Some(number) => number,
            None if shared.servers.len() >= SERVERS_MAX => return Place::Alone,
            None => {
                let first = !shared.servers.iter().any(|s| same(&s));
                let name =
                    if first { process.program.clone() } else { format!("{}:{port}", process.program) };
                shared.servers.push(Server {
                    workload: 0,
                    name,
                    program: process.program.clone(),
                    head: process.head,
                });
                shared.servers.len() - 1
            }
        };
        if let Some(server) = shared.servers.get_mut(number) {
            server.head = process.head;
        }
        if fresh { Place::SharedNow(number) } else { Place::Server(number) }
    }

    /// The workload of the server that a process belongs to; 0: to none.
    pub fn workload_of(&self, cgroup: CgroupId, pid: u32) -> u32 {
        let Some(shared) = self.cgroups.get(&cgroup).filter(|c| c.several) else { return 0 };
        let Some(process) = self.look(pid) else { return 0 };
        let mut same = shared.servers.iter().filter(|s| s.program == process.program);
        let by_head = same.clone().find(|s| s.head == process.head);
        // A master that is gone left its workers behind.
        let alone = || same.next().filter(|_| same.next().is_none()).filter(|s| !s.runs(&self.root));
        by_head.or_else(alone).map_or(0, |s| s.workload)
    }
}

impl Server {
    fn runs(&self, root: &Path) -> bool {
        runs(root, &Process { program: self.program.clone(), head: self.head })
    }
}

/// Whether the process is there and still runs this program.
fn runs(root: &Path, process: &Process) -> bool {
    program(&root.join("proc").join(process.head.to_string())).as_ref() == Some(&process.program)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: CgroupId = CgroupId(7);

    struct Host {
        root: tempfile::TempDir,
        servers: Servers,
    }

    impl Host {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let servers = Servers::new(root.path());
            Self { root, servers }
        }

        fn run(&self, pid: u32, parent: u32, comm: &str, command: &[&str]) {
            let folder = self.root.path().join("proc").join(pid.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
            std::fs::write(folder.join("cmdline"), command.join("\0")).unwrap();
            std::fs::write(folder.join("stat"), format!("{pid} ({comm} (x) S) S {parent} 1 1 0")).unwrap();
        }

        fn end(&self, pid: u32) {
            std::fs::remove_dir_all(self.root.path().join("proc").join(pid.to_string())).unwrap();
        }

        /// Place and, if it is a server's, its name.
        fn listens(&mut self, pid: u32, port: u16, collects: bool, before: u32) -> (Place, String) {
            let process = self.servers.look(pid).unwrap();
            let place = self.servers.listens(HERE, &process, port, collects, before);
            let name = match place {
                Place::Alone => String::new(),
                Place::Server(n) | Place::SharedNow(n) => {
                    let server = self.servers.server(HERE, n).unwrap();
                    server.workload = 10 + u32::try_from(n).unwrap();
                    server.name.clone()
                }
            };
            (place, name)
        }
    }

    fn http_server(host: &Host, pid: u32, port: &str) {
        host.run(pid, 50, "python3", &["python3", "-m", "http.server", port]);
    }

    #[test]
    fn where_anything_is_started_every_server_is_its_own() {
        let mut host = Host::new();
        http_server(&host, 100, "8099");
        host.run(200, 50, "redis-server", &["redis-server", "*:6379"]);
        assert_eq!(host.listens(100, 8099, true, 0), (Place::Server(0), "http.server".into()));
        assert_eq!(host.listens(200, 6379, true, 0), (Place::Server(1), "redis-server".into()));
        assert_eq!(host.servers.workload_of(HERE, 100), 10);
        assert_eq!(host.servers.workload_of(HERE, 200), 11);
        host.run(300, 50, "vim", &["vim"]);
        assert_eq!(host.servers.workload_of(HERE, 300), 0, "no server");
        assert_eq!(host.servers.workload_of(HERE, 400), 0, "gone");
    }

    #[test]
    fn a_server_started_again_is_the_same_and_a_second_one_is_not() {
        let mut host = Host::new();
        http_server(&host, 100, "8099");
        assert_eq!(host.listens(100, 8099, true, 0).1, "http.server");
        http_server(&host, 101, "8098");
        assert_eq!(host.listens(101, 8098, true, 0), (Place::Server(1), "http.server:8098".into()));
        host.end(101);
        http_server(&host, 102, "8098");
        assert_eq!(host.listens(102, 8098, true, 11), (Place::Server(1), "http.server:8098".into()));
        host.end(100);
        http_server(&host, 103, "8100");
        assert_eq!(host.listens(103, 8100, true, 0), (Place::Server(0), "http.server".into()));
    }

    #[test]
    fn a_cgroup_of_one_server_is_that_server_until_another_listens() {
        let mut host = Host::new();
        host.run(100, 1, "nginx", &["nginx: master process"]);
        host.run(101, 100, "nginx", &["nginx: worker process"]);
        assert_eq!(host.listens(100, 80, false, 0).0, Place::Alone);
        assert_eq!(host.listens(101, 443, false, 0).0, Place::Alone, "a worker is the same server");
        host.end(100);
        host.end(101);
        host.run(110, 1, "nginx", &["nginx: master process"]);
        assert_eq!(host.listens(110, 80, false, 0).0, Place::Alone, "started again");
        assert!(!host.servers.told_apart(HERE));
        host.run(120, 1, "php-fpm8.2", &["php-fpm: master process"]);
        assert_eq!(host.listens(120, 9000, false, 0), (Place::SharedNow(0), "php-fpm8.2".into()));
        assert_eq!(host.listens(110, 80, false, 0), (Place::Server(1), "nginx".into()));
        assert!(host.servers.told_apart(HERE));
    }

    #[test]
    fn workers_belong_to_their_master_also_when_it_is_gone() {
        let mut host = Host::new();
        host.run(100, 50, "gunicorn", &["python3", "/usr/bin/gunicorn"]);
        host.run(101, 100, "gunicorn: worke", &["gunicorn: worker"]);
        assert_eq!(host.listens(100, 8000, true, 0).1, "gunicorn");
        assert_eq!(host.servers.workload_of(HERE, 101), 10);
        host.run(200, 50, "nginx", &["nginx"]);
        assert_eq!(host.listens(200, 80, true, 0).1, "nginx");
        // The process that listened made itself a daemon.
        host.end(200);
        host.run(201, 1, "nginx", &["nginx: master process"]);
        assert_eq!(host.servers.workload_of(HERE, 201), 11);
    }
}
