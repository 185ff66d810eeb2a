//! Which windows reach a curve, what is kept of how many listeners, and what is shown.

use super::*;
use crate::frame::align::Frame;
use crate::frame::history::Update;
use proptest::prelude::*;
use std::sync::Arc;
use tailwater_model::congestion::CongestionState;
use tailwater_model::window::{
    Coverage, EntityId, HostInfo, ListenerInfo, ListenerWindow, WINDOW_NS, WindowIndex, WorkloadInfo,
};

struct Fixture {
    history: History,
    topology: Topology,
    congestion: Congestion,
}

impl Fixture {
    fn new(covered: bool) -> Self {
        let mut history = History::default();
        let coverage = Coverage { requests: covered, ..Coverage::default() };
        let info = HostInfo { host: "web".into(), coverage, ..HostInfo::default() };
        history.update("web", 0, Update::Host(info));
        Self { history, topology: Topology::default(), congestion: Congestion::default() }
    }

    fn names(&mut self, ids: &[(EntityId, u16)]) {
        let listener = |(id, port): &(EntityId, u16)| ListenerInfo {
            id: *id,
            workload: 1,
            address: "0.0.0.0".parse().unwrap(),
            port: *port,
            path: None,
            comm: String::new(),
            pool: None,
            started_with: 0,
            pid: 0,
        };
        let update = Update::Entities {
            workloads: vec![WorkloadInfo {
                id: 1,
                name: "apache2.service".into(),
                ..WorkloadInfo::default()
            }],
            listeners: ids.iter().map(listener).collect(),
            edges: Vec::new(),
        };
        self.history.update("web", self.history.next, update);
    }

    /// One frame, with (id, queued requests, answers) of each listener.
    fn frame(&mut self, listeners: &[(EntityId, u64, u64)]) {
        let index = WindowIndex(self.history.next);
        let of = |(id, queued, answered): &(EntityId, u64, u64)| {
            let window = ListenerWindow {
                in_flight_ns: queued * WINDOW_NS,
                answered: *answered,
                ..Default::default()
            };
            (*id, window)
        };
        let window = HostWindow {
            host: "web".into(),
            index,
            listeners: listeners.iter().map(of).collect(),
            ..Default::default()
        };
        self.push(index, Some(window));
    }

    fn push(&mut self, index: WindowIndex, window: Option<HostWindow>) {
        let hosts = window.into_iter().map(|w| (w.host.clone(), Arc::new(w))).collect();
        let changed = self.history.push(Frame { index, hosts });
        if !changed.is_empty() {
            self.topology = Topology::build(&self.history, &[]);
        }
        self.congestion.observe(&self.history, &self.topology, &changed, index.0);
    }

    fn windows_of(&self, listener: &str) -> f64 {
        let view = self.congestion.view();
        let curve = view.listeners.iter().find(|l| l.listener == listener).unwrap();
        curve.intervals.iter().map(|i| i.windows).sum()
    }
}

#[test]
fn sockets_that_share_an_address_and_a_restarted_agent_are_one_listener() {
    let mut f = Fixture::new(true);
    f.names(&[(1, 80), (2, 80), (3, 443)]);
    (0..100).for_each(|_| f.frame(&[(1, 2, 10), (2, 3, 20), (3, 1, 10)]));
    f.names(&[(11, 80), (12, 443)]);
    (0..50).for_each(|_| f.frame(&[(11, 5, 30), (12, 1, 10)]));
    let view = f.congestion.view();
    assert_eq!(
        view.listeners.iter().map(|l| l.listener.as_str()).collect::<Vec<_>>(),
        ["0.0.0.0:80", "0.0.0.0:443"]
    );
    assert_eq!((f.windows_of("0.0.0.0:80"), f.windows_of("0.0.0.0:443")), (150.0, 150.0));
    let web = &view.listeners[0];
    assert_eq!((web.intervals[0].load, web.intervals[0].answered), (5.0, 30.0), "both sockets together");
    assert_eq!((web.state, web.congestion_point), (CongestionState::TooFewWindows, None));
    let json = serde_json::to_value(web).unwrap();
    assert!(json["congestion_point"].is_null() && json["state"] == "too_few_windows", "{json}");
}

#[test]
fn missing_and_uncovered_windows_teach_nothing() {
    let mut f = Fixture::new(true);
    f.names(&[(1, 80)]);
    (0..50).for_each(|_| f.frame(&[(1, 2, 10)]));
    let next = f.history.next;
    (next..next + 50).for_each(|i| f.push(WindowIndex(i), None));
    assert_eq!(f.windows_of("0.0.0.0:80"), 50.0);
    let mut blind = Fixture::new(false);
    blind.names(&[(1, 80)]);
    (0..50).for_each(|_| blind.frame(&[(1, 2, 10)]));
    assert!(
        blind.congestion.view().listeners.is_empty(),
        "no requests are seen there: no curve, not an empty one"
    );
}

#[test]
fn listeners_are_bounded_counted_and_make_room_when_stale() {
    let mut f = Fixture::new(true);
    let most = LISTENERS_MAX as u32;
    let ports: Vec<(EntityId, u16)> = (1..=most + 5).map(|i| (i, i as u16)).collect();
    f.names(&ports);
    f.frame(&[]);
    f.frame(&[]);
    let view = f.congestion.view();
    assert_eq!((view.listeners.len(), view.refused), (LISTENERS_MAX, 10), "five, twice");
    // All are there in every frame: nobody makes room for the others, however long it lasts.
    f.history.next += 20 * 60 * 20;
    f.frame(&[]);
    assert_eq!(f.congestion.view().listeners.len(), LISTENERS_MAX);
    let key = f.topology.tiers.keys().next().unwrap().clone();
    let other = Tier { workload: "other".into(), ..f.topology.tiers[&key].clone() };
    let mut asked = |seconds: u64| {
        let now = f.history.next + seconds * 20;
        let of = listener_key(&key, &other, "10.0.0.1".parse().unwrap(), 1);
        f.congestion.curves.place(&of, now).is_some()
    };
    assert!(!asked(570), "those that were silent for nine and a half minutes may come again");
    assert!(!asked(615), "those of ten do not, but who they are was looked for 45 s ago");
    assert!(asked(645));
    assert_eq!(f.congestion.view().listeners.len(), 1, "the stale ones went");
}

#[test]
fn a_frozen_window_is_one_beyond_the_point_with_hardly_an_answer() {
    let knee = Knee { load: 16.0, answered: 160.0 };
    for (load, answered, expect) in
        [(17.0, 0.0, true), (17.0, 16.0, true), (17.0, 20.0, false), (15.0, 0.0, false)]
    {
        assert_eq!(knee.is_frozen(&Serving { load, answered }), expect, "{load} {answered}");
    }
}

/// The plain way: each listener of a frame is looked up by its name.
fn by_name(curves: &mut BTreeMap<ListenerKey, Curve>, history: &History, topology: &Topology, now: u64) {
    for (key, tier) in topology.tiers.iter().filter(|(_, t)| !t.listeners.is_empty()) {
        let Some(window) = history.window(&key.host, now) else { continue };
        for (address, port) in sockets(tier) {
            let ids: Vec<EntityId> = at(tier, address, port).collect();
            if rows(window, &ids).any(ListenerWindow::connections_only) {
                continue;
            }
            let Serving { load, answered } = serving(window, &ids);
            curves.entry(listener_key(key, tier, address, port)).or_default().observe(load, answered);
        }
    }
}

proptest! {
    /// Names come and go between frames, agents start again with other ids, and some connections carry several exchanges.
    #[test]
    fn a_listener_that_keeps_its_place_learns_what_it_learns_when_it_is_looked_up(
        frames in prop::collection::vec(
            (
                prop::option::weighted(0.3, prop::collection::vec((1u32..6, 80u16..83), 0..4)),
                prop::option::weighted(0.9, prop::collection::vec((1u32..6, 0u64..9, 0u64..40, prop::bool::weighted(0.1)), 0..5)),
                prop::bool::weighted(0.05),
            ),
            1..40,
        )
    ) {
        let mut f = Fixture::new(true);
        let mut plain = BTreeMap::new();
        for (names, listeners, moved) in frames {
            if let Some(names) = names {
                f.names(&names);
            }
            if moved {
                let now = f.history.next;
                f.congestion.curves.forget_stale(now);
            }
            let index = WindowIndex(f.history.next);
            let window = listeners.map(|listeners| {
                let mut window = HostWindow { host: "web".into(), index, ..HostWindow::default() };
                for (id, queued, answered, multiplexed) in listeners {
                    *window.listeners.entry(id).or_default() = ListenerWindow {
                        in_flight_ns: queued * WINDOW_NS,
                        answered,
                        multiplexed_connections: u32::from(multiplexed),
                        pieces_in: 99 * u64::from(multiplexed),
                        ..ListenerWindow::default()
                    };
                }
                window
            });
            f.push(index, window);
            by_name(&mut plain, &f.history, &f.topology, index.0);
        }
        let curves = &f.congestion.curves;
        let kept: BTreeMap<&ListenerKey, &Curve> =
            curves.places.iter().map(|(of, at)| (of, &curves.kept[*at].curve)).collect();
        prop_assert_eq!(kept, plain.iter().collect::<BTreeMap<_, _>>());
    }
}
