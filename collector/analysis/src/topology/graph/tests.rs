//! Who is seen to serve and to call: by addresses of one machine and of several, Unix sockets, names that go, and what comes back.

use super::*;
use crate::frame::align::Frame;
use crate::frame::history::Update;
use proptest::prelude::*;
use std::sync::Arc;
use tailwater_model::address::{is_path, of_path};
use tailwater_model::window::{
    ConnectionEnd, EdgeInfo, HostInfo, HostWindow, ListenerInfo, Meeting, WindowIndex, WorkloadInfo,
};

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
        started_with: 0,
        pid: 0,
    };
    let edge = |(i, (a, port)): (usize, &(&str, u16))| EdgeInfo {
        id: i as u32 + 1,
        workload: 1,
        remote_address: place_of(a),
        remote_port: *port,
        path: is_path(a).then(|| (*a).to_owned()),
    };
    let names = Update::Entities {
        workloads: vec![WorkloadInfo { id: 1, name: format!("{name}.service"), ..WorkloadInfo::default() }],
        listeners: listens.iter().enumerate().map(listener).collect(),
        edges: dials.iter().enumerate().map(edge).collect(),
    };
    history.update(name, 0, names);
    let window = Arc::new(HostWindow { host: name.into(), ..HostWindow::default() });
    history.push(Frame { index: WindowIndex(history.next), hosts: BTreeMap::from([(name.into(), window)]) })
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
    let ends: Vec<_> = view.edges.iter().map(|e| (&*e.from_host, &*e.remote, e.to_host.as_deref())).collect();
    assert_eq!(ends, [("a", SOCKET, Some("a")), ("b", SOCKET, Some("b")), ("c", SOCKET, None)]);
    assert_eq!(view.nodes[1].listeners, [SOCKET, "0.0.0.0:80"]);
}

/// Takes the ends of one connection: the caller's first edge, and a listener.
fn meet(
    topology: &mut Topology,
    history: &mut History,
    caller: &str,
    server: (&str, EntityId),
) -> BTreeSet<Host> {
    let pair = history.next;
    let window = |host: &str, end| {
        let window =
            HostWindow { host: host.into(), meetings: vec![Meeting { pair, end }], ..HostWindow::default() };
        (host.to_owned(), Arc::new(window))
    };
    let ends =
        [window(caller, ConnectionEnd::Connected(1)), window(server.0, ConnectionEnd::Accepted(server.1))];
    let frame = Frame { index: WindowIndex(history.next), hosts: BTreeMap::from(ends) };
    let met = topology.meet(&frame);
    let changed = history.push(frame);
    topology.update(history, &[], &changed, &met);
    met
}

fn reached(topology: &Topology) -> Vec<(&str, Option<TierKey>)> {
    topology.links().map(|link| (link.from.host.as_str(), link.to.clone())).collect()
}

/// Fails where an address that is dialled says more than connections whose both ends were seen, or where what becomes known of a listener later is not
/// known of those who reach it.
#[test]
fn who_was_reached_is_known_by_connections_whatever_was_dialled() {
    let mut history = History::default();
    host(&mut history, "web", &["10.0.0.1"], &[], &[("10.96.0.1", 80)]);
    for app in ["app-1", "app-2"] {
        host(&mut history, app, &["172.17.0.2"], &[("0.0.0.0", 8080)], &[]);
    }
    let mut topology = Topology::build(&history, &[]);
    let tier = |host: &str| Some(TierKey { host: host.into(), workload: 1, listener: 0 });
    assert_eq!(reached(&topology), [("web", None)]);
    assert_eq!(meet(&mut topology, &mut history, "web", ("app-2", 1)), BTreeSet::from(["web".into()]));
    assert_eq!(reached(&topology), [("web", tier("app-2"))]);
    meet(&mut topology, &mut history, "web", ("app-1", 1));
    assert_eq!(reached(&topology), [("web", tier("app-1")), ("web", tier("app-2"))]);
    assert!(meet(&mut topology, &mut history, "web", ("app-1", 1)).is_empty());
    let [link, _] = topology.calls_of("web") else { panic!("{:?}", topology.calls_of("web")) };
    assert_eq!(topology.ends(link), 2);
    let up = topology.up(&tier("app-2").unwrap()).map(|link| link.to.clone()).collect::<Vec<_>>();
    assert_eq!(up, [tier("app-2")]);
    // Somebody has the address that was dialled: a redirection took the connections elsewhere all the same.
    let changed = host(&mut history, "other", &["10.96.0.1"], &[("0.0.0.0", 80)], &[]);
    topology.update(&history, &[], &changed, &BTreeSet::new());
    assert_eq!(reached(&topology), [("web", tier("app-1")), ("web", tier("app-2"))]);
    // Its owner becomes known.
    let listener = ListenerInfo { workload: 7, ..history.hosts["app-1"].listeners[&1].clone() };
    let (workloads, edges) = (Vec::new(), Vec::new());
    history.update("app-1", 0, Update::Entities { workloads, listeners: vec![listener], edges });
    let changed = history.push(Frame { index: WindowIndex(history.next), hosts: BTreeMap::new() });
    topology.update(&history, &[], &changed, &BTreeSet::new());
    let owned = Some(TierKey { host: "app-1".into(), workload: 7, listener: 0 });
    assert_eq!(reached(&topology), [("web", owned), ("web", tier("app-2"))]);
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
    assert_eq!(to("web", "10.0.0.2:8080").as_deref(), Some("app"), "wildcard on the owner of the address");
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
        topology.update(&history, &[], &changed, &BTreeSet::new());
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
    topology.update(&history, &[], &BTreeSet::from(["b".to_owned()]), &BTreeSet::new());
    assert!(!apart(&topology, "a", "c"), "they call the same, at some depth");
    assert!(!topology.related(&key("a"), &key("c")) && topology.related(&key("a"), &key("d")));
}

/// All that follows from it: also what is looked up, as far as it is asked.
fn whole(topology: &Topology) -> String {
    let listening = topology.tiers.iter().filter(|(_, tier)| !tier.listeners.is_empty());
    let listening: BTreeMap<&TierKey, &Tier> = listening.collect();
    assert_eq!(format!("{:?}", topology.servers), format!("{listening:?}"));
    format!("{:?}", (&topology.tiers, &topology.links, &topology.ending, &topology.faces))
}

#[test]
fn names_that_come_and_go_change_nobody_else() {
    let mut history = History::default();
    let mut kept = Topology::default();
    let mut step = |history: &mut History, changed: &[&str]| {
        let changed = changed.iter().map(|name| (*name).to_owned()).collect();
        kept.update(history, &[], &changed, &BTreeSet::new());
        assert_eq!(whole(&kept), whole(&Topology::build(history, &[])), "{changed:?}");
        kept.links().count()
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
                kept.update(&history, &[], &changed, &BTreeSet::new());
                prop_assert_eq!(whole(&kept), whole(&Topology::build(&history, &[])), "{:?}", &changed);
                for (a, b) in kept.tiers.keys().flat_map(|a| kept.tiers.keys().map(move |b| (a, b))) {
                    let way = kept.path(a, b).is_some() || kept.path(b, a).is_some();
                    prop_assert_eq!(kept.related(a, b), way, "{:?} and {:?}", a, b);
                    prop_assert_eq!(kept.leads(a, b), kept.path(a, b).is_some(), "{:?} to {:?}", a, b);
                }
                let short = |tier: &Tier| if tier.comm.is_empty() { tier.name.clone() } else { tier.comm.clone() };
                let all = kept.tiers.iter().map(|(key, tier)| ((key.host.clone(), tier.workload.clone()), short(tier)));
                let called: BTreeMap<(Host, String), String> = all.collect();
                for host in NAMES {
                    for workload in ["", "a.service", "b.service", "c.service", "d.service"] {
                        let plain = called.get(&(host.to_owned(), workload.to_owned()));
                        prop_assert_eq!(kept.called(host, workload), plain.map(String::as_str));
                    }
                }
                changed.clear();
            }
        }
    }
}
