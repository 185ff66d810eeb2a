//! Machines of 96 CPUs that serve 100,000 requests a second: what is told of them is what is told of the small ones, whose every number is a
//! hundredth of theirs, and each number that is told is theirs.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::{Config, Pipeline};
use tailwater_model::Incident;
use tailwater_model::congestion::{CongestionCurve, CongestionInterval};
use tailwater_model::incident::{Kind, Resource};
use tailwater_model::window::{HostCpu, HostWindow, Input};

const TIMES: u32 = 100;
const CPUS: u32 = 96;
const WINDOW_NS: u64 = tailwater_model::window::WINDOW_NS;

/// What happens a hundred times as often, to a hundred times as many, in the same time. How long one of them takes is as it was.
fn enlarged(window: &mut HostWindow) {
    let many = |values: &mut [&mut u64]| values.iter_mut().for_each(|v| **v *= u64::from(TIMES));
    let much = |values: &mut [&mut u32]| values.iter_mut().for_each(|v| **v *= TIMES);
    if let Some(cpu) = &mut window.cpu {
        many(&mut [
            &mut cpu.capacity_ns,
            &mut cpu.busy_ns,
            &mut cpu.idle_ns,
            &mut cpu.iowait_ns,
            &mut cpu.wait_ns,
        ]);
        cpu.throttled_ns = cpu.throttled_ns.map(|ns| ns * u64::from(TIMES));
        much(&mut [&mut cpu.waiting_max]);
    }
    for of in window.workloads.values_mut() {
        many(&mut [&mut of.busy_ns, &mut of.wait_ns, &mut of.blocked_io_ns, &mut of.io_bytes]);
        much(&mut [&mut of.waiting_max, &mut of.blocked_io_max]);
    }
    for of in window.listeners.values_mut() {
        much(&mut [
            &mut of.depth_last,
            &mut of.depth_max,
            &mut of.limit,
            &mut of.in_flight_last,
            &mut of.in_flight_max,
        ]);
        much(&mut [&mut of.unread_max, &mut of.workers_busy_max, &mut of.workers_seen]);
        many(&mut [&mut of.depth_ns, &mut of.in_flight_ns, &mut of.unread_ns, &mut of.response_ns]);
        many(&mut [&mut of.arrivals, &mut of.accepts, &mut of.received, &mut of.answered]);
        many(&mut [&mut of.drops, &mut of.drops_syn, &mut of.sk_drops]);
    }
    for of in window.edges.values_mut() {
        much(&mut [&mut of.in_flight_last, &mut of.in_flight_max, &mut of.open_last, &mut of.open_max]);
        many(&mut [&mut of.in_flight_ns, &mut of.started, &mut of.answered, &mut of.response_ns]);
        many(&mut [&mut of.connects, &mut of.established, &mut of.syn_retransmits]);
    }
    for of in window.devices.values_mut() {
        many(&mut [&mut of.in_flight_ns]);
    }
    window.culprits.iter_mut().for_each(|culprit| culprit.amount *= u64::from(TIMES));
}

/// The same on machines of 96 CPUs.
fn on_large_machines(trace: &Trace, windows: impl Fn(&mut HostWindow)) -> Trace {
    let mut large =
        Trace { names: trace.names.clone(), windows: trace.windows.clone(), dropped: trace.dropped };
    for input in &mut large.names {
        if let Input::Host(host) = input {
            host.cpus = CPUS;
        }
    }
    large.windows.iter_mut().for_each(windows);
    large
}

fn diagnosed(trace: &Trace) -> Vec<Incident> {
    last_versions(&outputs(&Config::default(), inputs(trace)))
}

/// What names the cause, and the way to it.
fn verdict(incident: &Incident) -> impl PartialEq + std::fmt::Debug + use<> {
    let culprit = incident.root.culprits.first().map(|culprit| culprit.comm.clone());
    let hops: Vec<_> = incident.hops.iter().map(|hop| (hop.host.clone(), hop.role)).collect();
    (incident.severity, incident.kind, incident.root.host.clone(), incident.root.resource, culprit, hops)
}

#[test]
fn a_hundred_times_as_much_is_told_as_the_same() {
    let acts = [
        (At::App, Do::Neighbour(0.95)),
        (At::App, Do::Squeeze(0.05)),
        (At::App, Do::Costly(20.0)),
        (At::App, Do::Pause),
        (At::Db, Do::Pause),
        (At::Db, Do::Lock),
        (At::Db, Do::Disk),
        (At::Db, Do::Neighbour(0.98)),
        (At::Web, Do::Neighbour(0.95)),
    ];
    let burst = Sim { bursts: vec![(6000..6300, 8.0)], ..Sim::default() };
    let sims = acts.into_iter().map(|(at, act)| Sim::default().act(at, 6000..6700, act));
    for sim in sims.chain([burst]) {
        let small = sim.run();
        let large = on_large_machines(&small, enlarged);
        let (small, large) = (diagnosed(&small), diagnosed(&large));
        let verdicts = |of: &[Incident]| of.iter().map(verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&large), verdicts(&small), "{:?} {:?}", sim.acts, sim.bursts);
        for (large, small) in large.iter().zip(&small) {
            let of = |value: u32| value * TIMES;
            for (large, small) in large.hops.iter().zip(&small.hops) {
                assert_eq!(large.accept_queue_max, of(small.accept_queue_max), "{large:#?}");
                // Of the small one's a mean of less than one was cut off.
                let more = large.queued_max.checked_sub(small.queued_max * u64::from(TIMES));
                assert!(more.is_some_and(|more| more < u64::from(TIMES)), "{large:#?}");
                assert_eq!(large.workers_busy_max, of(small.workers_busy_max), "{large:#?}");
                assert_eq!(large.pool_open, small.pool_open.map(of), "{large:#?}");
            }
            let drops = |of: &Incident| of.drops.iter().map(|drop| drop.count).sum::<u64>();
            assert_eq!(drops(large), drops(small) * u64::from(TIMES));
            // Times are the same ones.
            let span = |of: &Incident| (of.root.start_unix_ns, of.root.end_unix_ns);
            assert_eq!(span(large), span(small), "{}", large.title);
        }
    }
}

#[test]
fn load_and_throughput_are_a_hundred_times_as_much_to_one_percent() {
    let small = Sim { seconds: 60, ..Sim::default() }.run();
    let curves = |trace: &Trace| {
        let mut pipeline = Pipeline::new(Config::default());
        inputs(trace).into_iter().for_each(|input| drop(pipeline.feed(input)));
        pipeline.congestion().listeners
    };
    let (large, small) = (curves(&on_large_machines(&small, enlarged)), curves(&small));
    assert_eq!((large.len(), small.len()), (3, 3));
    for (large, small) in large.iter().zip(&small) {
        let sum = |of: &CongestionCurve, what: fn(&CongestionInterval) -> f64| -> f64 {
            of.intervals.iter().map(|interval| what(interval) * interval.windows).sum()
        };
        for what in [|of: &CongestionInterval| of.load, |of: &CongestionInterval| of.answered] {
            let ratio = sum(large, what) / sum(small, what) / f64::from(TIMES);
            assert!((0.99..1.01).contains(&ratio), "{ratio}: {large:?} {small:?}");
        }
        assert_eq!(large.state, small.state, "{large:?} {small:?}");
    }
}

/// A server that needs a tenth of a CPU, among 96 of which a neighbour takes all but that.
#[test]
fn a_small_server_on_a_large_machine_that_somebody_fills_waits_for_its_neighbour() {
    let small = Sim::default().act(At::App, 6000..6700, Do::Neighbour(0.95)).run();
    let from = small.windows.first().unwrap().index.0;
    let large = on_large_machines(&small, |window| {
        let Some(cpu) = &mut window.cpu else { return };
        let more = u64::from(CPUS) * WINDOW_NS - cpu.capacity_ns;
        cpu.capacity_ns += more;
        let hurt = window.host == "app-1" && (120..134).contains(&(window.index.0 - from));
        if hurt {
            cpu.busy_ns += more;
            window.workloads.get_mut(&2).unwrap().busy_ns += more;
            window.culprits.iter_mut().filter(|of| of.comm == "burner").for_each(|of| of.amount += more);
        } else {
            *cpu = HostCpu { idle_ns: cpu.idle_ns + more, ..*cpu };
        }
    });
    let incidents = diagnosed(&large);
    let [incident] = &incidents[..] else { panic!("{incidents:#?}") };
    let root = (incident.kind, incident.root.host.as_str(), incident.root.resource);
    assert_eq!(root, (Kind::UpstreamCtqo, "app-1", Resource::CpuNeighbour), "{incident:#?}");
    assert_eq!(incident.root.culprits[0].comm, "burner");
}
