//! A proxy beside an application on its host, reached at its own port or by a redirection of the application's: a hop on the way, and the root only where
//! it is what stands.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::Config;
use tailwater_model::incident::{Kind, Resource, Role};
use tailwater_model::window::{ConnectionEnd, HostWindow, Input, Meeting};

/// Ids of the application, beside those of its proxy.
const MORE: u32 = 10;
const PROXY_PORT: u16 = 15_006;

/// Simulated is a middle tier before a third one; here both are on the middle one's host, and the first calls the other over loopback. If `redirected`,
/// the front dials the application's port, where the proxy has itself put in between: that only the connections' both ends tell.
fn beside(act: (At, Do), redirected: bool) -> Trace {
    let mut trace = Sim::default().act(act.0, 6000..6600, act.1).run();
    let mut names: Vec<Input> = Vec::new();
    let mut behind = None;
    for input in std::mem::take(&mut trace.names) {
        match input {
            Input::Host(of) if of.host == "db-1" => {}
            Input::Entities { host, workloads, listeners, .. } if host == "db-1" => {
                behind = Some((workloads, listeners));
            }
            other => names.push(other),
        }
    }
    let (mut own_workloads, mut own_listeners) = behind.unwrap();
    own_workloads.iter_mut().for_each(|of| of.id += MORE);
    own_listeners.iter_mut().for_each(|of| (of.id, of.workload) = (of.id + MORE, of.workload + MORE));
    for input in &mut names {
        let Input::Entities { host, workloads, listeners, edges, .. } = input else { continue };
        match host.as_str() {
            "app-1" => {
                listeners.iter_mut().filter(|_| redirected).for_each(|of| of.port = PROXY_PORT);
                edges.iter_mut().for_each(|edge| edge.remote_address = "127.0.0.1".parse().unwrap());
                workloads.append(&mut own_workloads);
                listeners.append(&mut own_listeners);
            }
            "web-1" if redirected => edges.iter_mut().for_each(|edge| edge.remote_port = 3306),
            _ => {}
        }
    }
    trace.names = names;
    let windows = std::mem::take(&mut trace.windows);
    let (behind, mut windows): (Vec<_>, Vec<_>) =
        windows.into_iter().partition(|window| window.host == "db-1");
    let behind: BTreeMap<u64, HostWindow> =
        behind.into_iter().map(|window| (window.index.0, window)).collect();
    let first = windows.first().unwrap().index.0;
    for window in &mut windows {
        let end = match window.host.as_str() {
            "web-1" => ConnectionEnd::Connected(1),
            "app-1" => ConnectionEnd::Accepted(1),
            _ => continue,
        };
        if redirected && window.index.0 == first + 20 {
            window.meetings = vec![Meeting { pair: 1, end }];
        }
        if window.host == "app-1"
            && let Some(behind) = behind.get(&window.index.0)
        {
            merge(window, behind);
        }
    }
    trace.windows = windows;
    trace
}

/// What another host's window holds, under ids of its own.
fn merge(window: &mut HostWindow, other: &HostWindow) {
    for (id, of) in other.workloads.iter() {
        *window.workloads.entry(id + MORE).or_default() = *of;
    }
    for (id, of) in other.listeners.iter() {
        *window.listeners.entry(id + MORE).or_default() = *of;
    }
    if let (Some(cpu), Some(more)) = (&mut window.cpu, other.cpu) {
        cpu.capacity_ns += more.capacity_ns;
        cpu.busy_ns += more.busy_ns;
        cpu.wait_ns += more.wait_ns;
    }
}

#[test]
fn a_proxy_beside_its_application_is_a_hop_and_the_root_only_if_it_stands() {
    let web = ("web-1", "apache2.service");
    let (proxy, application) = (("app-1", "tomcat10.service"), ("app-1", "mariadb.service"));
    for redirected in [false, true] {
        for (at, hops, roles) in [
            (At::Db, vec![web, proxy, application], vec![Role::Drop, Role::Pushback, Role::Root]),
            (At::App, vec![web, proxy], vec![Role::Drop, Role::Root]),
        ] {
            let trace = beside((at, Do::Pause), redirected);
            let all = last_versions(&outputs(&Config::default(), inputs(&trace)));
            let [incident] = all.as_slice() else { panic!("{redirected} {at:?}: {all:#?}") };
            let on_the_way: Vec<_> =
                incident.hops.iter().map(|hop| (hop.host.as_str(), hop.workload.as_str())).collect();
            assert_eq!(on_the_way, hops, "{redirected}: {}", incident.title);
            assert_eq!(
                incident.hops.iter().map(|hop| hop.role).collect::<Vec<_>>(),
                roles,
                "{}",
                incident.title
            );
            let root = (incident.root.host.as_str(), incident.root.workload.as_str());
            assert_eq!((&root, incident.root.resource), (hops.last().unwrap(), Resource::Pause));
            assert_eq!(incident.kind, Kind::UpstreamCtqo, "{}", incident.title);
        }
    }
}
