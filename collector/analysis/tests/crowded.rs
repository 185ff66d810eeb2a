//! More going on at a time than there may be open incidents: drops come before queues that only grew, and what finds no place is told.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use support::last_versions;
use tailwater_analysis::{Config, FindingKind, Output, Pipeline};
use tailwater_model::window::{
    HostInfo, HostWindow, Input, ListenerInfo, ListenerWindow, WINDOW_NS, WindowIndex, WorkloadInfo,
};

/// A multiple of what a minute has: what found no place is told again from then on.
const MINUTE: u64 = 34_000_000_800;
/// Incidents that may be open.
const MOST: usize = 64;

fn name(host: usize) -> String {
    format!("host-{host:02}")
}

/// What a host's listener says in a window: connections that wait in its accept queue of 128, and packets that it dropped.
type Said = (u32, u64);

/// Hosts that know nothing of each other, each with one server, from window `first` on: what each said in each window.
fn run(first: u64, windows: u64, hosts: usize, said: impl Fn(u64, usize) -> Said) -> Vec<Output> {
    let mut pipeline = Pipeline::new(Config::default());
    let mut outputs = Vec::new();
    for host in 0..hosts {
        let info = HostInfo { host: name(host), ..HostInfo::default() };
        outputs.extend(pipeline.feed(Input::Host(info)));
        outputs.extend(pipeline.feed(Input::Entities {
            host: name(host),
            workloads: vec![WorkloadInfo { id: 1, name: "shop.service".into(), ..WorkloadInfo::default() }],
            listeners: vec![ListenerInfo {
                id: 1,
                workload: 1,
                address: [10, 0, 0, host as u8 + 1].into(),
                port: 80,
                path: None,
                comm: "shop".into(),
                pool: None,
                started_with: 0,
                pid: 0,
            }],
            edges: vec![],
            devices: vec![],
        }));
    }
    for at in 0..windows {
        let index = WindowIndex(first + at);
        outputs.extend(pipeline.feed(Input::Tick { unix_ns: index.end_unix_ns() }));
        for host in 0..hosts {
            let (depth, drops) = said(at, host);
            let listener = ListenerWindow {
                depth_last: depth,
                depth_max: depth,
                depth_ns: u64::from(depth) * WINDOW_NS,
                limit: 128,
                arrivals: 20,
                accepts: 20,
                received: 20,
                answered: 20,
                drops,
                sk_drops: drops,
                ..ListenerWindow::default()
            };
            let window = HostWindow {
                host: name(host),
                index,
                listeners: [(1, listener)].into(),
                ..HostWindow::default()
            };
            outputs.extend(pipeline.feed(Input::Window(Arc::new(window))));
        }
    }
    outputs.extend(pipeline.finish());
    outputs
}

/// Of which hosts it was told that something found no place, in order; dropped, or felt by a queue.
fn refused(outputs: &[Output], dropped: bool) -> Vec<String> {
    let told = outputs.iter().filter_map(|output| match output {
        Output::Note(finding) if finding.kind == FindingKind::LimitReached => Some(finding),
        _ => None,
    });
    told.filter(|f| f.detail.contains("dropped") == dropped).map(|f| f.host.clone()).collect()
}

/// Hosts of which an incident tells drops.
fn dropping(outputs: &[Output]) -> BTreeSet<String> {
    last_versions(outputs).iter().flat_map(|i| &i.drops).map(|d| d.host.clone()).collect()
}

fn names(hosts: std::ops::Range<usize>) -> Vec<String> {
    hosts.map(name).collect()
}

#[test]
fn drops_take_the_places_of_queues_that_only_grew() {
    // 64 queues are half full, then 16 others drop.
    let outputs = run(MINUTE + 10, 60, MOST + 16, |at, host| match host {
        0..MOST if (20..30).contains(&at) => (70, 0),
        MOST.. if (22..26).contains(&at) => (129, 5),
        _ => (0, 0),
    });
    assert_eq!(dropping(&outputs).into_iter().collect::<Vec<_>>(), names(MOST..MOST + 16));
    assert_eq!(refused(&outputs, true), [""; 0]);
    assert_eq!(refused(&outputs, false), names(0..16), "which queues made room is told, once");
}

#[test]
fn drops_that_find_no_place_are_told_of_each_host_once_a_minute() {
    // They begin ten windows before a minute does.
    let outputs =
        run(MINUTE - 30, 50, MOST + 6, |at, _| if (20..40).contains(&at) { (129, 5) } else { (0, 0) });
    assert_eq!(dropping(&outputs).into_iter().collect::<Vec<_>>(), names(0..MOST));
    let twice = [names(MOST..MOST + 6), names(MOST..MOST + 6)].concat();
    assert_eq!(refused(&outputs, true), twice);
    assert_eq!(refused(&outputs, false), [""; 0]);
}

#[test]
fn as_many_as_there_may_be_are_told_without_a_word_of_a_limit() {
    let outputs = run(MINUTE + 10, 40, MOST, |at, _| if at == 20 { (129, 5) } else { (0, 0) });
    assert_eq!(dropping(&outputs).len(), MOST);
    assert!(outputs.iter().all(|o| !matches!(o, Output::Note(_))), "{outputs:?}");
}
