//! Who calls whom: tiers, and the connections observed between them. Owns matching a dialled address to a listener, and ways along
//! calls; knows nothing of time.

use super::groups::Groups;
use super::tier::{ListenerName, Tier, TierKey, name_tier};
use crate::config::TierRule;
use crate::frame::history::{History, HostHistory};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use tailwater_model::address::{is_unix, place};
use tailwater_model::topology::{EdgeView, NodeView, TopologyView};
use tailwater_model::window::{EntityId, Host};

/// The connections of one workload to one address and port.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) from: TierKey,
    /// The caller's ids for it.
    pub(crate) edges: Vec<EntityId>,
    pub(crate) remote: (IpAddr, u16),
    /// What the Unix socket there is bound to.
    pub(crate) path: Option<String>,
    /// Who listens there, if observed.
    pub(crate) to: Option<TierKey>,
}

/// Links by where they end: who calls, and what is dialled.
type Ending = BTreeMap<TierKey, BTreeSet<(TierKey, IpAddr, u16)>>;

/// What was seen, ready to walk. Kept up to date host by host: names come and go all the time, mostly of what nobody calls.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub(crate) tiers: BTreeMap<TierKey, Tier>,
    /// By caller, then by address and port.
    pub(crate) links: Vec<Link>,
    ending: Ending,
    groups: Groups,
    listening: Listening,
    faces: BTreeMap<Host, Face>,
}

/// What others can see of a host: where links of all hosts end depends on it.
#[derive(Debug, Clone, PartialEq)]
struct Face {
    /// The machine that it is, or is a scope of.
    machine: String,
    /// Nothing was heard of it for a while: who has its addresses now, has them.
    away: bool,
    addresses: Vec<IpAddr>,
    /// By id: whose it is, and where it listens.
    listeners: Vec<(EntityId, TierKey, IpAddr, u16)>,
}

impl Face {
    fn of(name: &str, host: &HostHistory) -> Self {
        let listeners = host.listeners.values();
        // What is not known to share a machine has one of its own.
        let machine = if host.info.machine.is_empty() { name } else { &host.info.machine };
        Self {
            machine: machine.to_owned(),
            away: host.away,
            addresses: host.info.addresses.iter().map(IpAddr::to_canonical).collect(),
            listeners: listeners
                .map(|l| (l.id, TierKey::of(name, l), l.address.to_canonical(), l.port))
                .collect(),
        }
    }

    /// Addresses that others may dial to get there.
    fn dialled(&self) -> impl Iterator<Item = IpAddr> {
        let exact = self.listeners.iter().map(|(_, _, address, _)| *address);
        self.addresses.iter().copied().chain(exact).filter(|address| !is_own_only(*address))
    }
}

/// Whoever dials it gets to its own host.
fn is_own_only(address: IpAddr) -> bool {
    address.is_loopback() || is_unix(address)
}

/// Who listens where, and who owns which address: what a dialled address is looked up in.
#[derive(Debug, Default)]
struct Listening {
    /// By port and address, in the order of hosts and ids.
    at: HashMap<(u16, IpAddr), Vec<(EntityId, TierKey)>>,
    /// Wildcards by port, then by host.
    everywhere: HashMap<u16, HashMap<Host, Vec<(EntityId, TierKey)>>>,
    /// Hosts by address, in order.
    owners: HashMap<IpAddr, Vec<Host>>,
    /// Hosts by machine, in order: several only where an agent watches scopes.
    machines: HashMap<String, Vec<Host>>,
}

impl Topology {
    /// From the beginning.
    #[cfg(test)]
    pub(crate) fn build(history: &History, rules: &[TierRule]) -> Self {
        let mut topology = Self::default();
        topology.update(history, rules, &history.hosts.keys().cloned().collect());
        topology
    }

    /// These hosts have other names than before, or are new, or gone.
    pub(crate) fn update(&mut self, history: &History, rules: &[TierRule], changed: &BTreeSet<Host>) {
        let mut dialled: HashSet<IpAddr> = HashSet::new();
        for name in changed {
            let now = history.hosts.get(name).map(|host| Face::of(name, host));
            if self.faces.get(name) == now.as_ref() {
                continue;
            }
            if let Some(before) = self.faces.remove(name) {
                self.listening.remove(name, &before);
                dialled.extend(before.dialled());
            }
            if let Some(now) = now {
                self.listening.add(name, &now);
                dialled.extend(now.dialled());
                self.faces.insert(name.clone(), now);
            }
        }
        for name in changed {
            let old: Vec<TierKey> = self.tiers.range(span(name)).map(|(key, _)| key.clone()).collect();
            old.iter().for_each(|key| drop(self.tiers.remove(key)));
            let host = history.hosts.get(name);
            self.tiers.extend(host.map(|host| tiers_of(name, host, rules)).unwrap_or_default());
            let begin = self.links.partition_point(|link| link.from.host < *name);
            let end = begin + self.calls_of(name).len();
            let links = host.map(|host| self.links_of(name, host)).unwrap_or_default();
            self.links[begin..end].iter().for_each(|link| ended(&mut self.ending, &mut self.groups, link));
            links.iter().for_each(|link| ends(&mut self.ending, &mut self.groups, link));
            self.links.splice(begin..end, links);
        }
        if !dialled.is_empty() {
            self.resolve_again(&dialled, changed);
        }
        let calls = self.links.iter().filter_map(|link| Some((&link.from, link.to.as_ref()?)));
        self.groups.renew(self.links.len(), calls);
    }

    /// Where links end that dial one of these addresses, of all hosts but those whose links are new.
    fn resolve_again(&mut self, dialled: &HashSet<IpAddr>, new: &BTreeSet<Host>) {
        for link in &mut self.links {
            if !dialled.contains(&link.remote.0) || new.contains(&link.from.host) {
                continue;
            }
            let to = self.listening.resolve(&self.faces, &link.from.host, link.remote);
            if to != link.to {
                ended(&mut self.ending, &mut self.groups, link);
                link.to = to;
                ends(&mut self.ending, &mut self.groups, link);
            }
        }
    }

    /// A host's links, by caller, address and port.
    fn links_of(&self, name: &str, host: &HostHistory) -> Vec<Link> {
        let mut links: BTreeMap<(EntityId, IpAddr, u16), Link> = BTreeMap::new();
        for edge in host.edges.values() {
            let remote = (edge.remote_address.to_canonical(), edge.remote_port);
            let link = links.entry((edge.workload, remote.0, remote.1)).or_insert_with(|| Link {
                to: self.listening.resolve(&self.faces, name, remote),
                from: TierKey { host: name.to_owned(), workload: edge.workload, listener: 0 },
                edges: Vec::new(),
                remote,
                path: edge.path.clone(),
            });
            link.edges.push(edge.id);
        }
        links.into_values().collect()
    }

    /// Links of a caller, also to itself.
    fn calls(&self, key: &TierKey) -> &[Link] {
        let begin = self.links.partition_point(|link| link.from < *key);
        let rest = &self.links[begin..];
        &rest[..rest.partition_point(|link| link.from == *key)]
    }

    /// Links of a host's callers.
    pub(crate) fn calls_of(&self, host: &str) -> &[Link] {
        let begin = self.links.partition_point(|link| link.from.host.as_str() < host);
        let rest = &self.links[begin..];
        &rest[..rest.partition_point(|link| link.from.host == host)]
    }

    /// Links of a caller.
    pub(crate) fn down<'a, 'k>(&'a self, key: &'k TierKey) -> impl Iterator<Item = &'a Link> + use<'a, 'k> {
        self.calls(key).iter().filter(move |l| l.to.as_ref() != Some(key))
    }

    /// Links that end at a tier, also its own.
    pub(crate) fn ending(&self, key: &TierKey) -> impl Iterator<Item = &Link> {
        let callers = self.ending.get(key).into_iter().flatten();
        callers.filter_map(|(from, address, port)| {
            self.calls(from).iter().find(|link| link.remote == (*address, *port))
        })
    }

    /// Links that end at a tier.
    pub(crate) fn up<'a>(&'a self, key: &'a TierKey) -> impl Iterator<Item = &'a Link> {
        self.ending(key).filter(move |l| &l.from != key)
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
            for link in self.calls(at) {
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
        let mut seen: BTreeSet<&TierKey> = BTreeSet::new();
        let mut next = 0;
        let mut at = from.clone();
        loop {
            for to in self.calls(&at).iter().filter_map(|l| l.to.as_ref()) {
                if to != from && seen.insert(to) {
                    found.push(to.clone());
                }
            }
            let Some(following) = found.get(next) else { return found };
            at = following.clone();
            next += 1;
        }
    }

    /// Whether one calls the other, at any depth. Asked of every open case and whatever a queue felt, mostly of systems that have nothing to do
    /// with each other: between these no way is searched for.
    pub(crate) fn related(&self, a: &TierKey, b: &TierKey) -> bool {
        !self.groups.are_apart(a, b) && (self.path(a, b).is_some() || self.path(b, a).is_some())
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
                .map(ListenerName::socket)
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
                remote: place(link.path.as_deref(), link.remote.0, link.remote.1),
                to_host: link.to.as_ref().map(|t| t.host.clone()),
                to_workload: link.to.as_ref().and_then(|t| self.tiers.get(t)).map(|t| t.workload.clone()),
            })
            .collect();
        TopologyView { nodes: nodes.collect(), edges: edges.into_iter().collect() }
    }
}

/// A link ends where it says.
fn ends(ending: &mut Ending, groups: &mut Groups, link: &Link) {
    if let Some(to) = &link.to {
        groups.join(&link.from, to);
        let callers = ending.entry(to.clone()).or_default();
        callers.insert((link.from.clone(), link.remote.0, link.remote.1));
    }
}

/// It does no longer.
fn ended(ending: &mut Ending, groups: &mut Groups, link: &Link) {
    if let Some(to) = &link.to
        && let Some(callers) = ending.get_mut(to)
    {
        groups.ended();
        callers.remove(&(link.from.clone(), link.remote.0, link.remote.1));
        if callers.is_empty() {
            ending.remove(to);
        }
    }
}

/// The keys of a host's tiers.
pub(crate) fn span(host: &str) -> RangeInclusive<TierKey> {
    let key = |id| TierKey { host: host.to_owned(), workload: id, listener: id };
    key(0)..=key(EntityId::MAX)
}

/// A host's tiers: workloads that listen or call.
fn tiers_of(name: &str, host: &HostHistory, rules: &[TierRule]) -> BTreeMap<TierKey, Tier> {
    let mut tiers: BTreeMap<TierKey, Tier> = BTreeMap::new();
    for listener in host.listeners.values() {
        let owner = host.workloads.get(&listener.workload);
        let tier =
            tiers.entry(TierKey::of(name, listener)).or_insert_with(|| Tier::of_listener(listener, owner));
        tier.listeners.push(listener.into());
    }
    for edge in host.edges.values() {
        let key = TierKey { host: name.to_owned(), workload: edge.workload, listener: 0 };
        let info = host.workloads.get(&edge.workload);
        tiers.entry(key).or_insert_with(|| Tier {
            workload: info.map(|w| w.name.clone()).unwrap_or_default(),
            comm: info.map(|w| w.comm.clone()).unwrap_or_default(),
            name: String::new(),
            listeners: Vec::new(),
            workers_limit: None,
        });
    }
    for (key, tier) in &mut tiers {
        name_tier(key, tier, rules);
    }
    tiers
}

impl Listening {
    /// A host that is not in it.
    fn add(&mut self, name: &str, face: &Face) {
        insert(self.machines.entry(face.machine.clone()).or_default(), name);
        for address in &face.addresses {
            insert(self.owners.entry(*address).or_default(), name);
        }
        for (id, key, address, port) in &face.listeners {
            if address.is_unspecified() {
                let hosts = self.everywhere.entry(*port).or_default();
                hosts.entry(name.to_owned()).or_default().push((*id, key.clone()));
            }
            let all = self.at.entry((*port, *address)).or_default();
            let at = all.partition_point(|(other, of)| (of.host.as_str(), *other) < (name, *id));
            all.insert(at, (*id, key.clone()));
        }
    }

    /// A host as it was added.
    fn remove(&mut self, name: &str, face: &Face) {
        take_out(&mut self.machines, &face.machine, |host| host == name);
        for address in &face.addresses {
            take_out(&mut self.owners, address, |owner| owner == name);
        }
        for (_, _, address, port) in &face.listeners {
            if let Some(hosts) = self.everywhere.get_mut(port) {
                hosts.remove(name);
            }
            if self.everywhere.get(port).is_some_and(HashMap::is_empty) {
                self.everywhere.remove(port);
            }
            take_out(&mut self.at, &(*port, *address), |(_, key)| key.host == name);
        }
    }

    /// The listener behind a dialled address: the exact address first, then a wildcard on a host that owns the address, the caller's
    /// own host last among equals (a scope may list its machine's addresses). A listener that was opened again has a higher id.
    fn resolve(
        &self,
        faces: &BTreeMap<Host, Face>,
        caller: &str,
        (remote, port): (IpAddr, u16),
    ) -> Option<TierKey> {
        let own_only = is_own_only(remote);
        // Of equals the last, in the order of hosts and ids.
        let best = |all: &mut dyn Iterator<Item = &(EntityId, TierKey)>| {
            all.max_by_key(|(id, key)| (own_only || key.host != caller, *id)).map(|(_, key)| key.clone())
        };
        let exact = self.at.get(&(port, remote)).map(Vec::as_slice).unwrap_or_default();
        if own_only {
            return best(&mut of_host(exact, caller))
                .or_else(|| best(&mut self.everywhere.get(&port)?.get(caller)?.iter()));
        }
        let owners = self.owners.get(&remote).map(Vec::as_slice).unwrap_or_default();
        let having = || owners.iter().chain(exact.iter().map(|(_, key)| &key.host));
        let hosts = self.machines.get(machine_of(faces, caller, having)?)?;
        best(&mut hosts.iter().flat_map(|host| of_host(exact, host))).or_else(|| {
            let everywhere = self.everywhere.get(&port)?;
            let owning = hosts.iter().filter(|host| owners.binary_search(host).is_ok());
            best(&mut owning.filter_map(|host| everywhere.get(host)).flatten())
        })
    }
}

/// The machine that a dialled address is of, by the hosts that have it. What several machines have, each has for itself: a bridge to its
/// containers, the virtual addresses of services, a cache of names. It is the caller's, if it is anybody's. Hosts that are away have given
/// up what another has now.
fn machine_of<'a, I: Iterator<Item = &'a Host>>(
    faces: &'a BTreeMap<Host, Face>,
    caller: &str,
    having: impl Fn() -> I,
) -> Option<&'a str> {
    let only = |away: bool| {
        let faces_of = having().filter_map(|host| faces.get(host)).filter(|face| face.away == away);
        let mut machines = faces_of.map(|face| face.machine.as_str());
        let first = machines.next()?;
        let one = machines.all(|machine| machine == first);
        if one { Some(first) } else { faces.get(caller).map(|face| face.machine.as_str()) }
    };
    only(false).or_else(|| only(true))
}

/// Of listeners in the order of hosts and ids, those of one host.
fn of_host<'a>(
    all: &'a [(EntityId, TierKey)],
    host: &'a str,
) -> impl Iterator<Item = &'a (EntityId, TierKey)> {
    let begin = all.partition_point(|(_, key)| key.host.as_str() < host);
    all[begin..].iter().take_while(move |(_, key)| key.host == host)
}

/// Takes what is gone out of a place, and the place with the last of it.
fn take_out<K: Eq + Hash, T>(map: &mut HashMap<K, Vec<T>>, key: &K, is_gone: impl Fn(&T) -> bool) {
    let Some(all) = map.get_mut(key) else { return };
    all.retain(|one| !is_gone(one));
    if all.is_empty() {
        map.remove(key);
    }
}

/// Puts a host into its place among others.
fn insert(hosts: &mut Vec<Host>, name: &str) {
    let at = hosts.partition_point(|host| host.as_str() < name);
    if hosts.get(at).is_none_or(|host| host != name) {
        hosts.insert(at, name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::align::Frame;
    use crate::frame::history::Update;
    use proptest::prelude::*;
    use std::sync::Arc;
    use tailwater_model::address::{is_path, of_path};
    use tailwater_model::window::{EdgeInfo, HostInfo, HostWindow, ListenerInfo, WindowIndex, WorkloadInfo};

    fn host(
        history: &mut History,
        name: &str,
        addresses: &[&str],
        listens: &[(&str, u16)],
        dials: &[(&str, u16)],
    ) -> BTreeSet<Host> {
        let info = HostInfo {
            host: name.into(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            ..HostInfo::default()
        };
        history.update(name, 0, Update::Host(info));
        let listener = |(i, (a, port)): (usize, &(&str, u16))| ListenerInfo {
            id: i as u32 + 1,
            workload: 1,
            address: place_of(a),
            port: *port,
            path: is_path(a).then(|| (*a).to_owned()),
            comm: String::new(),
            pool: None,
        };
        let edge = |(i, (a, port)): (usize, &(&str, u16))| EdgeInfo {
            id: i as u32 + 1,
            workload: 1,
            remote_address: place_of(a),
            remote_port: *port,
            path: is_path(a).then(|| (*a).to_owned()),
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
            .push(Frame { index: WindowIndex(history.next), hosts: BTreeMap::from([(name.into(), window)]) })
    }

    /// An address, or that of a Unix socket's path.
    fn place_of(a: &str) -> IpAddr {
        if is_path(a) { of_path(a) } else { a.parse().unwrap() }
    }

    #[test]
    fn a_unix_socket_is_called_on_its_own_host_only() {
        const SOCKET: &str = "/run/shop.sock";
        let mut history = History::default();
        host(&mut history, "a", &["10.0.0.1"], &[(SOCKET, 0)], &[(SOCKET, 0)]);
        host(&mut history, "b", &["10.0.0.2"], &[(SOCKET, 0), ("0.0.0.0", 80)], &[(SOCKET, 0)]);
        host(&mut history, "c", &["10.0.0.3"], &[], &[(SOCKET, 0)]);
        let view = Topology::build(&history, &[]).view(|_, _| None);
        let ends: Vec<_> =
            view.edges.iter().map(|e| (&*e.from_host, &*e.remote, e.to_host.as_deref())).collect();
        assert_eq!(ends, [("a", SOCKET, Some("a")), ("b", SOCKET, Some("b")), ("c", SOCKET, None)]);
        assert_eq!(view.nodes[1].listeners, [SOCKET, "0.0.0.0:80"]);
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

    /// Where a host's call to `remote` ends.
    fn ends_at(topology: &Topology, from: &str, remote: &str) -> Option<Host> {
        let view = topology.view(|_, _| None);
        view.edges.iter().find(|e| e.from_host == from && e.remote == remote).unwrap().to_host.clone()
    }

    #[test]
    fn what_every_machine_has_for_itself_is_dialled_on_its_own_machine_or_not_known() {
        // The bridge to containers, a virtual address of a service, and a cache of names that listens at one of its own.
        const OWN: [&str; 3] = ["172.17.0.1", "10.96.0.10", "169.254.20.10"];
        const DIALS: [(&str, u16); 4] =
            [("172.17.0.1", 8080), ("10.96.0.10", 443), ("169.254.20.10", 53), ("172.17.0.1", 9000)];
        let mut history = History::default();
        for (name, own, listens) in [
            ("a", "10.0.0.1", &[("0.0.0.0", 8080), ("169.254.20.10", 53)][..]),
            ("b", "10.0.0.2", &[("0.0.0.0", 8080), ("0.0.0.0", 443), ("172.17.0.1", 9000)][..]),
            ("c", "10.0.0.3", &[("169.254.20.10", 53), ("172.17.0.1", 9000)][..]),
        ] {
            host(&mut history, name, &[&OWN[..], &[own]].concat(), listens, &DIALS);
        }
        // It has none of them, and dials one all the same.
        host(&mut history, "d", &["10.0.0.4"], &[], &[("10.96.0.10", 443), ("10.0.0.2", 8080)]);
        let topology = Topology::build(&history, &[]);
        let to = |from: &str| DIALS.map(|(a, port)| ends_at(&topology, from, &format!("{a}:{port}")));
        let [a, b, c] = ["a", "b", "c"].map(|host| Some(host.to_owned()));
        assert_eq!(to("a"), [a.clone(), None, a, None]);
        assert_eq!(to("b"), [b.clone(), b.clone(), None, b.clone()]);
        assert_eq!(to("c"), [None, None, c.clone(), c]);
        assert_eq!(ends_at(&topology, "d", "10.96.0.10:443"), None);
        assert_eq!(ends_at(&topology, "d", "10.0.0.2:8080"), b, "that is of one");
    }

    #[test]
    fn scopes_of_one_machine_that_list_its_addresses_find_each_other_also_where_another_machine_has_them() {
        const ALL: [&str; 2] = ["10.0.0.1", "172.17.0.1"];
        let mut history = History::default();
        host(&mut history, "web", &ALL, &[("0.0.0.0", 80)], &[("10.0.0.1", 8080), ("172.17.0.1", 8080)]);
        host(&mut history, "app", &ALL, &[("0.0.0.0", 8080)], &[]);
        host(&mut history, "other", &["10.0.0.2", "172.17.0.1"], &[("0.0.0.0", 8080)], &[]);
        let to = |history: &History| {
            let topology = Topology::build(history, &[]);
            ["10.0.0.1:8080", "172.17.0.1:8080"].map(|remote| ends_at(&topology, "web", remote))
        };
        assert_eq!(to(&history), [None, None], "two machines, as far as is known");
        for scope in ["web", "app"] {
            history.hosts.get_mut(scope).unwrap().info.machine = "boot".into();
        }
        let app = Some("app".to_owned());
        assert_eq!(to(&history), [app.clone(), app]);
    }

    #[test]
    fn an_address_that_a_host_took_over_from_one_that_is_away_is_its_own() {
        let mut history = History::default();
        host(&mut history, "caller", &["10.0.0.1"], &[], &[("10.0.0.9", 80)]);
        host(&mut history, "new", &["10.0.0.9"], &[("0.0.0.0", 80)], &[]);
        host(&mut history, "old", &["10.0.0.9"], &[("0.0.0.0", 80)], &[]);
        let mut topology = Topology::build(&history, &[]);
        assert_eq!(ends_at(&topology, "caller", "10.0.0.9:80"), None);
        let mut hear = |hosts: &[&str], index: u64| {
            let window = |name: &str| Arc::new(HostWindow { host: name.into(), ..HostWindow::default() });
            let hosts = hosts.iter().map(|name| ((*name).to_owned(), window(name))).collect();
            let changed = history.push(Frame { index: WindowIndex(index), hosts });
            topology.update(&history, &[], &changed);
            ends_at(&topology, "caller", "10.0.0.9:80")
        };
        let all = ["caller", "new", "old"];
        assert_eq!(hear(&all, 3), None);
        assert_eq!(hear(&all[..2], 1000), None, "50 s");
        assert_eq!(hear(&all[..2], 1400).as_deref(), Some("new"), "70 s");
        assert_eq!(hear(&all, 1401), None, "it is back");
        assert_eq!(hear(&all[2..], 4000).as_deref(), Some("old"));
        assert_eq!(hear(&[], 8000), None);
    }

    #[test]
    fn between_systems_of_which_none_calls_the_other_no_way_is_searched_for() {
        let mut history = History::default();
        host(&mut history, "a", &["10.0.0.1"], &[], &[("10.0.0.2", 80)]);
        host(&mut history, "b", &["10.0.0.2"], &[("0.0.0.0", 80)], &[]);
        host(&mut history, "c", &["10.0.0.3"], &[], &[("10.0.0.4", 80)]);
        host(&mut history, "d", &["10.0.0.4"], &[("0.0.0.0", 80)], &[]);
        let key = |h: &str| TierKey { host: h.into(), workload: 1, listener: 0 };
        let mut topology = Topology::build(&history, &[]);
        let apart = |topology: &Topology, a, b| topology.groups.are_apart(&key(a), &key(b));
        assert!(apart(&topology, "a", "c") && apart(&topology, "b", "d"));
        assert!(!apart(&topology, "a", "b") && topology.related(&key("b"), &key("a")));
        host(&mut history, "b", &["10.0.0.2"], &[("0.0.0.0", 80)], &[("10.0.0.4", 80)]);
        topology.update(&history, &[], &BTreeSet::from(["b".to_owned()]));
        assert!(!apart(&topology, "a", "c"), "they call the same, at some depth");
        assert!(!topology.related(&key("a"), &key("c")) && topology.related(&key("a"), &key("d")));
    }

    /// All that follows from it: also what is looked up, as far as it is asked.
    fn whole(topology: &Topology) -> String {
        format!("{:?}", (&topology.tiers, &topology.links, &topology.ending, &topology.faces))
    }

    #[test]
    fn names_that_come_and_go_change_nobody_else() {
        let mut history = History::default();
        let mut kept = Topology::default();
        let mut step = |history: &mut History, changed: &[&str]| {
            kept.update(history, &[], &changed.iter().map(|name| (*name).to_owned()).collect());
            assert_eq!(whole(&kept), whole(&Topology::build(history, &[])), "{changed:?}");
            kept.links.len()
        };
        host(&mut history, "a", &["10.0.0.1"], &[("0.0.0.0", 80)], &[("10.0.0.2", 81), ("10.0.0.3", 82)]);
        host(&mut history, "b", &["10.0.0.2"], &[("0.0.0.0", 81)], &[("10.0.0.1", 80)]);
        step(&mut history, &["a", "b"]);
        let job = |id: u32, to: &str| Update::Entities {
            workloads: vec![WorkloadInfo { id, name: format!("job-{id}"), ..WorkloadInfo::default() }],
            listeners: vec![],
            edges: vec![EdgeInfo {
                id,
                workload: id,
                remote_address: to.parse().unwrap(),
                remote_port: 81,
                path: None,
            }],
        };
        let frame = |history: &mut History| {
            let index = WindowIndex(history.next);
            history.push(Frame { index, hosts: BTreeMap::new() })
        };
        history.update("a", 0, job(7, "10.0.0.2"));
        history.update("b", 0, job(8, "10.0.0.9"));
        assert_eq!(frame(&mut history).into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(step(&mut history, &["a", "b"]), 5);
        assert!(frame(&mut history).is_empty());
        // A host that the others dial already: where their links end is another.
        host(&mut history, "c", &["10.0.0.3"], &[("0.0.0.0", 82)], &[]);
        step(&mut history, &["c"]);
        history.hosts.remove("b");
        step(&mut history, &["b"]);
    }

    proptest! {
        /// Hosts come, change what they own, where they listen and what they dial, and go, several at a time.
        #[test]
        fn host_by_host_it_becomes_what_it_is_when_it_is_built_anew(
            changes in prop::collection::vec(
                (
                    0usize..4,
                    prop::bool::weighted(0.8),
                    prop::collection::vec(0usize..4, 0..3),
                    prop::collection::vec((0usize..6, 80u16..82), 0..3),
                    prop::collection::vec((0usize..6, 80u16..82), 0..4),
                    prop::bool::ANY,
                    0usize..3,
                    prop::bool::ANY,
                ),
                1..12,
            )
        ) {
            const ADDRESSES: [&str; 6] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "127.0.0.1", "0.0.0.0"];
            const NAMES: [&str; 4] = ["a", "b", "c", "d"];
            let mut history = History::default();
            let (mut kept, mut changed) = (Topology::default(), BTreeSet::new());
            for (which, there, owns, listens, dials, look, machine, away) in changes {
                history.hosts.remove(NAMES[which]);
                if there {
                    let owns: Vec<&str> = owns.iter().map(|a| ADDRESSES[*a]).collect();
                    let socket = |all: Vec<(usize, u16)>| -> Vec<(&str, u16)> {
                        all.into_iter().map(|(a, port)| (ADDRESSES[a], port)).collect()
                    };
                    changed.extend(host(&mut history, NAMES[which], &owns, &socket(listens), &socket(dials)));
                    let host = history.hosts.get_mut(NAMES[which]).unwrap();
                    (host.info.machine, host.away) = (["", "m", "n"][machine].to_owned(), away);
                }
                changed.insert(NAMES[which].to_owned());
                if look {
                    kept.update(&history, &[], &changed);
                    prop_assert_eq!(whole(&kept), whole(&Topology::build(&history, &[])), "{:?}", &changed);
                    for (a, b) in kept.tiers.keys().flat_map(|a| kept.tiers.keys().map(move |b| (a, b))) {
                        let way = kept.path(a, b).is_some() || kept.path(b, a).is_some();
                        prop_assert_eq!(kept.related(a, b), way, "{:?} and {:?}", a, b);
                    }
                    changed.clear();
                }
            }
        }
    }
}
