//! Who calls whom: tiers, and the connections observed between them. Owns matching a dialled address to a listener, where no connection was seen at both
//! ends (`meetings`), and ways along calls; knows nothing of time.

use super::groups::Groups;
use super::meetings::Meetings;
use super::tier::{ListenerName, Tier, TierKey, name_tier};
use crate::config::TierRule;
use crate::frame::align::Frame;
use crate::frame::history::{History, HostHistory};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use tailwater_model::address::{is_unix, place};
use tailwater_model::topology::{EdgeView, NodeView, TopologyView};
use tailwater_model::window::{EntityId, Host};

/// The connections of one workload to one address and port. Behind a virtual address there may be several tiers: then there is a link to each, and of
/// none it is known which of their calls are its own.
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
    /// Its end is known by connections that were seen at both ends, and not by the address.
    pub(crate) met: bool,
}

/// Links by where they end: who calls, and what is dialled.
type Ending = BTreeMap<TierKey, BTreeSet<(TierKey, IpAddr, u16)>>;

/// What was seen, ready to walk. Kept up to date host by host: names come and go all the time, mostly of what nobody calls.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub(crate) tiers: BTreeMap<TierKey, Tier>,
    /// Of these, once more, those that listen: what each frame asks of. Names stay when what they name is gone, and after some hours most tiers
    /// are jobs that called somebody once.
    pub(crate) servers: BTreeMap<TierKey, Tier>,
    /// By host, those of each by caller, then by address and port: in one list of all, each change moved what stands behind it. A host that
    /// calls nobody is not in it.
    links: BTreeMap<Host, Vec<Link>>,
    ending: Ending,
    meetings: Meetings,
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
        topology.update(history, rules, &history.hosts.keys().cloned().collect(), &BTreeSet::new());
        topology
    }

    /// Takes what a frame tells of connections' ends; the hosts whose links end elsewhere now.
    pub(crate) fn meet(&mut self, frame: &Frame) -> BTreeSet<Host> {
        self.meetings.take(frame)
    }

    /// Hosts that are `changed` have other names than before, or are new, or gone. Of those that `met` somebody the links end elsewhere.
    pub(crate) fn update(
        &mut self,
        history: &History,
        rules: &[TierRule],
        changed: &BTreeSet<Host>,
        met: &BTreeSet<Host>,
    ) {
        // Whose links are made anew: also theirs that reach a host of which other listeners are known now.
        let mut linking: BTreeSet<Host> = changed.union(met).cloned().collect();
        let mut dialled: HashSet<IpAddr> = HashSet::new();
        for name in changed {
            let now = history.hosts.get(name).map(|host| Face::of(name, host));
            if self.faces.get(name) == now.as_ref() {
                continue;
            }
            linking.extend(self.meetings.callers(name).cloned());
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
            let host = history.hosts.get(name);
            let tiers = host.map(|host| tiers_of(name, host, rules)).unwrap_or_default();
            let servers = tiers.iter().filter(|(_, tier)| !tier.listeners.is_empty());
            let servers = servers.map(|(key, tier)| (key.clone(), tier.clone())).collect();
            replace(&mut self.servers, name, servers);
            replace(&mut self.tiers, name, tiers);
            match host {
                Some(host) => self.meetings.keep(name, |edge| host.edges.contains_key(&edge)),
                None => self.meetings.forget(name),
            }
        }
        for name in &linking {
            let host = history.hosts.get(name);
            let links = host.map(|host| self.links_of(name, host, history)).unwrap_or_default();
            // Mostly one of them comes or goes.
            let before = self.links.remove(name).unwrap_or_default();
            let gone = before.iter().filter(|link| !is_among(&links, link));
            gone.for_each(|link| ended(&mut self.ending, &mut self.groups, link));
            let new = links.iter().filter(|link| !is_among(&before, link));
            new.for_each(|link| ends(&mut self.ending, &mut self.groups, link));
            if !links.is_empty() {
                self.links.insert(name.clone(), links);
            }
        }
        if !dialled.is_empty() {
            self.resolve_again(&dialled, &linking);
        }
        let calls = self.links.values().flatten().filter_map(|link| Some((&link.from, link.to.as_ref()?)));
        self.groups.renew(self.links.values().map(Vec::len).sum(), calls);
    }

    /// Where links end that dial one of these addresses, of all hosts but those whose links are new.
    fn resolve_again(&mut self, dialled: &HashSet<IpAddr>, new: &BTreeSet<Host>) {
        let others = self.links.iter_mut().filter(|(host, _)| !new.contains(*host));
        for link in others.flat_map(|(_, links)| links) {
            if link.met || !dialled.contains(&link.remote.0) {
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

    /// A host's links, by caller, address and port, and by where they end.
    fn links_of(&self, name: &str, host: &HostHistory, history: &History) -> Vec<Link> {
        let mut dials: BTreeMap<(EntityId, IpAddr, u16), Link> = BTreeMap::new();
        for edge in host.edges.values() {
            let remote = (edge.remote_address.to_canonical(), edge.remote_port);
            let link = dials.entry((edge.workload, remote.0, remote.1)).or_insert_with(|| Link {
                from: TierKey { host: name.to_owned(), workload: edge.workload, listener: 0 },
                edges: Vec::new(),
                remote,
                path: edge.path.clone(),
                to: None,
                met: false,
            });
            link.edges.push(edge.id);
        }
        let mut links = Vec::with_capacity(dials.len());
        for link in dials.into_values() {
            let ends = self.meetings.ends(name, &link.edges);
            let tiers = ends.filter_map(|(host, id)| {
                let listener = history.hosts.get(host)?.listener(id)?;
                Some(TierKey::of(host, listener))
            });
            let tiers: BTreeSet<TierKey> = tiers.collect();
            if tiers.is_empty() {
                let to = self.listening.resolve(&self.faces, name, link.remote);
                links.push(Link { to, ..link });
            } else {
                links.extend(tiers.into_iter().map(|to| Link { to: Some(to), met: true, ..link.clone() }));
            }
        }
        links
    }

    /// Links of a caller, also to itself.
    fn calls(&self, key: &TierKey) -> &[Link] {
        let of_host = self.calls_of(&key.host);
        let caller = |link: &Link| (link.from.workload, link.from.listener);
        let begin = of_host.partition_point(|link| caller(link) < (key.workload, key.listener));
        let rest = &of_host[begin..];
        &rest[..rest.partition_point(|link| caller(link) == (key.workload, key.listener))]
    }

    /// Links of a host's callers.
    pub(crate) fn calls_of(&self, host: &str) -> &[Link] {
        self.links.get(host).map(Vec::as_slice).unwrap_or_default()
    }

    /// All links, by caller, then by address and port.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values().flatten()
    }

    /// Links of a caller.
    pub(crate) fn down<'a, 'k>(&'a self, key: &'k TierKey) -> impl Iterator<Item = &'a Link> + use<'a, 'k> {
        self.calls(key).iter().filter(move |l| l.to.as_ref() != Some(key))
    }

    /// A caller's links to the address of this one, with it.
    pub(crate) fn to_same_address<'a>(&'a self, link: &'a Link) -> impl Iterator<Item = &'a Link> {
        self.calls(&link.from).iter().filter(|other| other.remote == link.remote)
    }

    /// To how many tiers the connections of a link lead, at least one: its calls are those to all of them.
    pub(crate) fn ends(&self, link: &Link) -> usize {
        self.to_same_address(link).count().max(1)
    }

    /// Links that end at a tier, also its own.
    pub(crate) fn ending(&self, key: &TierKey) -> impl Iterator<Item = &Link> {
        let callers = self.ending.get(key).into_iter().flatten();
        callers.filter_map(move |(from, address, port)| {
            let is = |link: &&Link| link.remote == (*address, *port) && link.to.as_ref() == Some(key);
            self.calls(from).iter().find(is)
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

    /// Whether there is a [`Topology::path`] along calls.
    pub(crate) fn leads(&self, from: &TierKey, to: &TierKey) -> bool {
        self.groups.leads(from, to)
    }

    /// Whether one calls the other, at any depth. Asked of every open case and whatever a queue felt, mostly of systems that have nothing to do
    /// with each other: between these no way is searched for.
    pub(crate) fn related(&self, a: &TierKey, b: &TierKey) -> bool {
        self.groups.are_related(a, b)
    }

    /// What people call a workload of a host: its command, else as its tier. Of several tiers of such a workload the last one says it.
    pub(crate) fn called(&self, host: &str, workload: &str) -> Option<&str> {
        let mut tiers = self.tiers.range(span(host));
        let (_, tier) = tiers.rfind(|(_, tier)| tier.workload == workload)?;
        let called = if tier.comm.is_empty() { &tier.name } else { &tier.comm };
        Some(called.as_str())
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
        // The host is what edges are told by first, and links stand by it.
        let mut edges = Vec::new();
        for links in self.links.values() {
            // Links of a caller stand one after the other, and all of them nearly as they are told.
            let mut caller: Option<(&TierKey, Option<&Tier>)> = None;
            let of_host = links.iter().map(|link| {
                let from = match caller {
                    Some((key, tier)) if *key == link.from => tier,
                    _ => self.tiers.get(&link.from),
                };
                caller = Some((&link.from, from));
                EdgeView {
                    from_host: link.from.host.clone(),
                    from_workload: from.map(|t| t.workload.clone()).unwrap_or_default(),
                    remote: place(link.path.as_deref(), link.remote.0, link.remote.1),
                    to_host: link.to.as_ref().map(|t| t.host.clone()),
                    to_workload: link.to.as_ref().and_then(|t| self.tiers.get(t)).map(|t| t.workload.clone()),
                }
            });
            let mut of_host: Vec<EdgeView> = of_host.collect();
            of_host.sort();
            of_host.dedup();
            edges.append(&mut of_host);
        }
        TopologyView { nodes: nodes.collect(), edges }
    }
}

/// Whether a link of the same host dials from the same caller to the same place, and ends where this one does. Both are in order.
fn is_among(links: &[Link], link: &Link) -> bool {
    let dials = |of: &Link| (of.from.workload, of.remote);
    let alike = &links[links.partition_point(|other| dials(other) < dials(link))..];
    alike.iter().take_while(|other| dials(other) == dials(link)).any(|other| other.to == link.to)
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
        groups.ended(&link.from, to);
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

/// Puts a host's tiers where those are that it had.
fn replace(all: &mut BTreeMap<TierKey, Tier>, host: &str, tiers: BTreeMap<TierKey, Tier>) {
    let old: Vec<TierKey> = all.range(span(host)).map(|(key, _)| key.clone()).collect();
    old.iter().for_each(|key| drop(all.remove(key)));
    all.extend(tiers);
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
mod tests;
