//! Applications of hosts that call each other, and what each host is called, names and tells when. Pure: a fleet of the same size
//! is the same fleet. Knows no socket.

use super::script::{MORE_FROM, ROLES, Role, Script, WINDOW_NS};
use super::size::{More, Size};
use std::ops::Range;
use std::sync::Arc;
use tailwater_proto::v1::{Device, DropEvent, Edge, Entities, Hello, Listener, Workload};
use tailwater_proto::{PROTOCOL_MAX, PROTOCOL_MIN};

/// Every so many applications one has episodes, …
const TROUBLED_EVERY: usize = 3;
/// … which begin this far apart in each, and this long after the fleet: what is usual has to be known before.
const EPISODE_EVERY_S: u64 = 20;
const FIRST_EPISODE_S: u64 = 12;
/// Port of the first of the servers that the recording does not have.
const MORE_PORT: u32 = 9101;
/// A name comes and another goes this often on each host, seconds: what is started for a moment and calls somebody once.
pub const NAME_EVERY_S: u64 = 10;

/// Hosts that call each other.
#[derive(Debug)]
pub struct Application {
    /// What its hosts tell.
    pub script: Arc<Script>,
    /// Its hosts, by number in the fleet.
    pub hosts: Range<usize>,
    /// Whether it has episodes.
    pub troubled: bool,
    /// Where in [`EPISODE_EVERY_S`] they begin, windows.
    phase: u64,
}

/// One host.
#[derive(Debug)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Which application it is of.
    pub application: usize,
    /// Which role of the script it tells.
    pub role: usize,
    /// Whether it is one that the recording has.
    pub recorded: bool,
    /// Its batches begin so many windows later than the fleet's time: agents begin when they begin.
    pub later: u64,
    number: usize,
}

/// All of them.
#[derive(Debug)]
pub struct Fleet {
    /// In order of their hosts.
    pub applications: Vec<Application>,
    /// In order.
    pub hosts: Vec<Host>,
    /// Index of the window from which its time counts.
    first_window: u64,
    /// Windows of one batch.
    pub per_batch: u64,
    more: More,
}

/// An episode of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Episode {
    /// Whose.
    pub application: usize,
    /// Its first window.
    pub window: u64,
}

fn address(number: usize) -> Vec<u8> {
    // Below 65,536 hosts.
    vec![10, 64 + (number >> 14) as u8, (number >> 6) as u8, 1 + ((number & 63) as u8)]
}

impl Fleet {
    /// Of `count` hosts of a size, from a window on, with so many windows in a batch.
    #[must_use]
    pub fn new(count: usize, size: Size, scripts: &[Arc<Script>], first_window: u64, per_batch: u64) -> Self {
        let sizes = size.applications();
        let (mut applications, mut hosts): (Vec<Application>, Vec<Host>) = (Vec::new(), Vec::new());
        while hosts.len() < count {
            let n = applications.len();
            let left = count - hosts.len();
            let wanted = sizes[n % sizes.len()].min(left);
            // What would be left is too few for another one.
            let of = if left - wanted < sizes[0] { left } else { wanted };
            let begin = hosts.len();
            hosts.extend((0..of).map(|place| {
                let recorded = ROLES.get(place);
                let own = recorded.map_or_else(|| format!("more-{place}"), |role| (*role).to_owned());
                let number = begin + place;
                Host {
                    name: format!("a{n:03}-{own}"),
                    application: n,
                    role: place.min(ROLES.len() - 1),
                    recorded: recorded.is_some(),
                    later: number as u64 % per_batch,
                    number,
                }
            }));
            applications.push(Application {
                script: Arc::clone(&scripts[n % scripts.len()]),
                hosts: begin..hosts.len(),
                troubled: n % TROUBLED_EVERY == 0 && of >= ROLES.len(),
                phase: (n as u64 * 7) % EPISODE_EVERY_S * (1_000_000_000 / WINDOW_NS),
            });
        }
        Self { applications, hosts, first_window, per_batch, more: size.more() }
    }

    /// The first window of the fleet's time.
    #[must_use]
    pub fn first_window(&self) -> u64 {
        self.first_window
    }

    /// The episode that a window of an application is in.
    #[must_use]
    pub fn episode(&self, application: usize, window: u64) -> Option<Episode> {
        let of = &self.applications[application];
        let second = 1_000_000_000 / WINDOW_NS;
        let since = window.checked_sub(self.first_window + FIRST_EPISODE_S * second + of.phase)?;
        let (every, length) = (EPISODE_EVERY_S * second, of.script.episode_windows());
        (of.troubled && since % every < length)
            .then(|| Episode { application, window: window - since % every })
    }

    /// The episodes that begin in a span of windows.
    #[must_use]
    pub fn episodes(&self, windows: Range<u64>) -> Vec<Episode> {
        let mut all = Vec::new();
        for application in 0..self.applications.len() {
            let begins = |w: &u64| self.episode(application, *w).is_some_and(|e| e.window == *w);
            all.extend(windows.clone().filter(begins).map(|window| Episode { application, window }));
        }
        all
    }

    fn place(&self, host: &Host, window: u64) -> usize {
        match self.episode(host.application, window) {
            Some(episode) if host.recorded => (window - episode.window) as usize,
            _ => Script::quiet_at(window),
        }
    }

    /// What a host tells of the windows of a batch, without its number and their index.
    #[must_use]
    pub fn batch(&self, host: &Host, window: u64) -> prost::bytes::Bytes {
        let script = &self.applications[host.application].script;
        let windows = window..window + self.per_batch;
        script.batch(host.role, windows.map(|window| self.place(host, window)).collect())
    }

    /// Its drop events in the windows of a batch, dated.
    #[must_use]
    pub fn drops(&self, host: &Host, window: u64) -> Vec<DropEvent> {
        // A batch may begin before the episode, and end after it.
        let last = window + self.per_batch - 1;
        let of = |window| self.episode(host.application, window);
        let Some(episode) = of(window).or_else(|| of(last)).filter(|_| host.recorded) else {
            return Vec::new();
        };
        let from = episode.window * WINDOW_NS;
        let span = window * WINDOW_NS..(window + self.per_batch) * WINDOW_NS;
        let role = &self.applications[host.application].script.roles[host.role];
        let dated = role.drops.iter().filter(|(at, _)| span.contains(&(from + at)));
        dated
            .map(|(at, drop)| {
                let later = |then: u64| if then == 0 { 0 } else { then - drop.unix_ns + from + at };
                DropEvent {
                    read_unix_ns: later(drop.read_unix_ns),
                    sent_unix_ns: later(drop.sent_unix_ns),
                    unix_ns: from + at,
                    ..*drop
                }
            })
            .collect()
    }

    /// Who an agent says it is.
    #[must_use]
    pub fn hello(&self, host: &Host) -> Hello {
        let role = &self.applications[host.application].script.roles[host.role];
        Hello {
            host: host.name.clone(),
            boot_id: format!("boot of {}", host.name),
            agent_instance: format!("instance of {}", host.name),
            addresses: vec![address(host.number)],
            scope_cgroup: String::new(),
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            window_ns: WINDOW_NS,
            ..role.hello.clone()
        }
    }

    /// Everything that a host names, as in its second `second`.
    #[must_use]
    pub fn names(&self, host: &Host, second: u64) -> Entities {
        let of = &self.applications[host.application];
        let known = &of.script.roles[host.role];
        let mut names = known.entities.clone();
        names.devices.truncate(self.more.devices);
        let taken = names.devices.len();
        names
            .devices
            .extend((taken..self.more.devices).map(|n| Device { id: 1 + n as u32, name: format!("vd{n}") }));
        // The addresses of the recording become those of this application; each of its servers has a port of its own.
        for l in names.listeners.iter_mut().filter(|l| l.address.iter().any(|byte| *byte != 0)) {
            l.address = address(host.number);
        }
        for e in &mut names.edges {
            let listens = |role: &Role| role.entities.listeners.iter().any(|l| l.port == e.remote_port);
            if let Some(role) = of.script.roles.iter().position(listens) {
                e.remote_address = address(of.hosts.start + role);
            }
        }
        names.workloads.extend((0..self.more.workloads.0).map(|n| Workload {
            id: MORE_FROM + n,
            cgroup: format!("/system.slice/service-{n}.service"),
            name: format!("service-{n}"),
            unit: format!("service-{n}.service"),
            comm: format!("service-{n}"),
            ..Workload::default()
        }));
        names.listeners.extend((0..self.more.listeners.0).map(|n| Listener {
            id: MORE_FROM + n,
            workload: MORE_FROM + n,
            address: vec![0; 4],
            port: MORE_PORT + n,
            comm: format!("service-{n}"),
            pid: 1000 + n,
            ..Listener::default()
        }));
        names.edges.extend((0..self.more.edges.0).map(|n| Edge {
            id: MORE_FROM + n,
            workload: MORE_FROM + n % self.more.workloads.0,
            remote_address: address(self.neighbour(host, n)),
            remote_port: MORE_PORT + n % self.more.listeners.0,
            ..Edge::default()
        }));
        let passing = self.passing(host, second / NAME_EVERY_S);
        names.workloads.extend(passing.workloads);
        names.edges.extend(passing.edges);
        names
    }

    /// Whom its edge calls: the hosts of its application in turn.
    fn neighbour(&self, host: &Host, n: u32) -> usize {
        let of = &self.applications[host.application].hosts;
        let own = host.number - of.start;
        of.start + (own + 1 + n as usize % (of.len() - 1).max(1)) % of.len()
    }

    /// What comes with a turn of names, and what goes.
    #[must_use]
    pub fn passing(&self, host: &Host, turn: u64) -> Entities {
        if !self.more.jobs {
            return Entities::default();
        }
        let id = |turn: u64| MORE_FROM + 100 + turn as u32;
        Entities {
            workloads: vec![Workload {
                id: id(turn),
                cgroup: format!("/system.slice/job-{turn}.service"),
                name: format!("job-{turn}"),
                comm: "job".to_owned(),
                ..Workload::default()
            }],
            edges: vec![Edge {
                id: id(turn),
                workload: id(turn),
                remote_address: address(self.neighbour(host, turn as u32)),
                remote_port: MORE_PORT,
                ..Edge::default()
            }],
            gone_workloads: turn.checked_sub(1).map(id).into_iter().collect(),
            gone_edges: turn.checked_sub(1).map(id).into_iter().collect(),
            ..Entities::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn fleet(count: usize) -> Fleet {
        of(count, Size::Realistic)
    }

    fn of(count: usize, size: Size) -> Fleet {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
        Fleet::new(count, size, &[Arc::new(Script::load(&folder, "nx0-db-cpu", size).unwrap())], 1000, 4)
    }

    #[test]
    fn small_hosts_are_in_groups_of_three_and_name_what_the_recording_has() {
        let fleet = of(300, Size::Small);
        assert!(fleet.applications.iter().all(|a| a.hosts.len() == 3));
        for host in &fleet.hosts[..3] {
            let names = fleet.names(host, 0);
            let counts =
                [names.workloads.len(), names.listeners.len(), names.edges.len(), names.devices.len()];
            assert!(counts.iter().all(|n| *n <= 3), "{}: {counts:?}", host.name);
            assert_eq!(fleet.passing(host, 7), Entities::default());
        }
    }

    #[test]
    fn hosts_have_names_and_addresses_of_their_own_in_applications_of_3_to_32() {
        for size in [5, 10, 100, 300, 1000] {
            let fleet = fleet(size);
            assert_eq!(fleet.hosts.len(), size);
            let names: BTreeSet<_> = fleet.hosts.iter().map(|h| &h.name).collect();
            let addresses: BTreeSet<_> = (0..size).map(address).collect();
            assert_eq!((names.len(), addresses.len()), (size, size));
            for of in &fleet.applications {
                assert!((3..=32).contains(&of.hosts.len()), "{:?}", of.hosts);
            }
        }
    }

    #[test]
    fn a_host_names_ten_workloads_and_calls_only_its_own_application() {
        let fleet = fleet(20);
        for host in &fleet.hosts {
            let names = fleet.names(host, 0);
            assert!(names.workloads.len() >= 10 && names.listeners.len() == 6 && names.edges.len() >= 12);
            let own = &fleet.applications[host.application].hosts;
            let allowed: BTreeSet<_> = own.clone().map(address).collect();
            for edge in &names.edges {
                assert!(allowed.contains(&edge.remote_address), "{}: {edge:?}", host.name);
            }
        }
    }

    #[test]
    fn the_recorded_tiers_call_each_other_in_every_application() {
        let fleet = fleet(20);
        for of in &fleet.applications {
            let names: Vec<Entities> =
                of.hosts.clone().take(3).map(|n| fleet.names(&fleet.hosts[n], 0)).collect();
            for (caller, called) in [(0, 1), (1, 2)] {
                let own = |port: u32| port < MORE_PORT;
                let listener = names[called].listeners.iter().find(|l| own(l.port)).unwrap();
                let edge = names[caller].edges.iter().find(|e| own(e.remote_port)).unwrap();
                assert_eq!(edge.remote_port, listener.port);
                assert_eq!(edge.remote_address, address(of.hosts.start + called));
            }
        }
    }

    #[test]
    fn drops_are_told_once_each_and_in_their_windows() {
        let fleet = fleet(5);
        let host = &fleet.hosts[0];
        let second = 20;
        let windows = 1000..1000 + 32 * second;
        let told: Vec<DropEvent> = windows.step_by(4).flat_map(|window| fleet.drops(host, window)).collect();
        let script = &fleet.applications[0].script;
        assert_eq!(told.len(), script.roles[0].drops.len(), "one episode");
        assert!(told.is_sorted_by_key(|d| d.unix_ns));
    }
}
