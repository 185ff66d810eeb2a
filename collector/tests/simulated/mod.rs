//! Agents of the simulated three tiers (the analysis' own simulator), each on a real stream to a real collector, window by window as
//! time goes on.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "helpers of tests: a failure is the test's")]

#[path = "../../analysis/tests/support/sim/mod.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "used in part")]
pub mod sim;

use super::common::{Agent, Serve, WINDOW_NS, hello, nothing_lost, runtime, unix_ns, until_ended};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tailwater_model::window::{HostInfo, HostWindow, Input};
use tailwater_proto::columnar::TableBuilder;
use tailwater_proto::v1::{
    self, EntityKind, Metric as M, Signal, agent_message::Body, collector_message::Body as Reply,
};

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn said_hello(info: &HostInfo) -> v1::Hello {
    let all = [
        Signal::Cpu,
        Signal::RunQueue,
        Signal::BlockIo,
        Signal::Memory,
        Signal::AcceptQueue,
        Signal::Requests,
        Signal::Calls,
        Signal::Retransmits,
        Signal::Throttling,
    ];
    let coverage =
        all.iter().map(|s| v1::SignalCoverage { signal: *s as i32, covered: true, ..Default::default() });
    v1::Hello {
        coverage: coverage.collect(),
        addresses: info.addresses.iter().map(|a| bytes(*a)).collect(),
        ..hello(&info.host, &info.agent_instance)
    }
}

fn entities(names: &[Input], of: &str) -> v1::Entities {
    let mut said =
        v1::Entities { devices: vec![v1::Device { id: 1, name: "vda".into() }], ..Default::default() };
    for input in names {
        let Input::Entities { host, workloads, listeners, edges, .. } = input else { continue };
        if host != of {
            continue;
        }
        said.workloads.extend(workloads.iter().map(|w| v1::Workload {
            id: w.id,
            cgroup: w.cgroup.clone(),
            name: w.name.clone(),
            comm: w.comm.clone(),
            ..Default::default()
        }));
        said.listeners.extend(listeners.iter().map(|l| v1::Listener {
            id: l.id,
            workload: l.workload,
            address: bytes(l.address),
            port: l.port.into(),
            ..Default::default()
        }));
        said.edges.extend(edges.iter().map(|e| v1::Edge {
            id: e.id,
            workload: e.workload,
            remote_address: bytes(e.remote_address),
            remote_port: e.remote_port.into(),
            ..Default::default()
        }));
    }
    said
}

fn batch(sequence: u64, index: u64, w: &HostWindow) -> v1::WindowBatch {
    let mut tables = Vec::new();
    let mut table = |kind, rows: Vec<(u32, Vec<(M, u64)>)>| {
        let mut table = TableBuilder::new(kind, 1);
        for (id, values) in rows {
            for (metric, value) in values {
                table.set(id, 0, metric, 0, value);
            }
            // What it does not tell of each answer: all of a window took as long as its mean.
            let l = w.listeners.get(&id).filter(|l| kind == EntityKind::Listener && l.answered > 0);
            if let Some(l) = l {
                let mean_us = l.response_ns / l.answered / 1_000;
                let bucket = mean_us.checked_ilog2().unwrap_or(0).min(19);
                table.set(id, 0, M::ResponseTimeHist, bucket, l.answered);
            }
        }
        tables.push(table.build());
    };
    let cpu = w.cpu.unwrap();
    let host = vec![
        (M::CpuCapacityNs, cpu.capacity_ns),
        (M::CpuBusyNs, cpu.busy_ns),
        (M::CpuStealNs, cpu.steal_ns),
        (M::CpuThrottledNs, cpu.throttled_ns.unwrap_or(0)),
        (M::RunQueueWaitNs, cpu.wait_ns),
        (M::RunQueueWaitingMax, cpu.waiting_max.into()),
    ];
    table(EntityKind::Host, vec![(0, host)]);
    let workloads = w.workloads.iter().map(|(id, w)| {
        let values = vec![
            (M::CpuBusyNs, w.busy_ns),
            (M::RunQueueWaitNs, w.wait_ns),
            (M::RunQueueWaitingMax, w.waiting_max.into()),
            (M::CpuThrottledNs, w.throttled_ns.unwrap_or(0)),
            (M::BlockedIoNs, w.blocked_io_ns),
            (M::BlockedIoMax, w.blocked_io_max.into()),
            (M::IoBytes, w.io_bytes),
            (M::ReclaimNs, w.reclaim_ns),
            (M::DirtyThrottleNs, w.dirty_throttle_ns),
        ];
        (*id, values)
    });
    table(EntityKind::Workload, workloads.collect());
    let listeners = w.listeners.iter().map(|(id, l)| {
        let values = vec![
            (M::AcceptQueueDepthLast, l.depth_last.into()),
            (M::AcceptQueueDepthMax, l.depth_max.into()),
            (M::AcceptQueueDepthNs, l.depth_ns),
            (M::AcceptQueueLimit, l.limit.into()),
            (M::AcceptQueueArrivals, l.arrivals),
            (M::AcceptQueueAccepts, l.accepts),
            (M::ListenDrops, l.sk_drops),
            (M::RequestsReceived, l.received),
            (M::RequestsAnswered, l.answered),
            (M::RequestsInFlightLast, l.in_flight_last.into()),
            (M::RequestsInFlightMax, l.in_flight_max.into()),
            (M::RequestsInFlightNs, l.in_flight_ns),
            (M::RequestsUnreadMax, l.unread_max.into()),
            (M::RequestsUnreadNs, l.unread_ns),
            (M::WorkersBusyMax, l.workers_busy_max.into()),
            (M::WorkersBusyNs, l.workers_busy_ns),
            (M::WorkersSeen, l.workers_seen.into()),
            (M::WorkerSharedMax, l.worker_shared_max.into()),
            (M::ResponseTimeNs, l.response_ns),
            (M::ResponseTimeMaxNs, l.response_max_ns),
        ];
        (*id, values)
    });
    table(EntityKind::Listener, listeners.collect());
    let edges = w.edges.iter().map(|(id, e)| {
        let values = vec![
            (M::CallsStarted, e.started),
            (M::CallsAnswered, e.answered),
            (M::CallsInFlightLast, e.in_flight_last.into()),
            (M::CallsInFlightMax, e.in_flight_max.into()),
            (M::CallsInFlightNs, e.in_flight_ns),
            (M::ConnectionsOpenMax, e.open_max.into()),
            (M::Connects, e.connects),
            (M::ConnectsEstablished, e.established),
            (M::ResponseTimeNs, e.response_ns),
            (M::SynRetransmits, e.syn_retransmits),
        ];
        (*id, values)
    });
    table(EntityKind::Edge, edges.collect());
    let devices = w.devices.iter().map(|(id, d)| {
        (
            *id,
            vec![
                (M::DeviceInFlightNs, d.in_flight_ns),
                (M::DeviceInFlightMax, d.in_flight_max.into()),
                (M::DeviceBytes, d.bytes),
            ],
        )
    });
    table(EntityKind::Device, devices.collect());
    v1::WindowBatch {
        sequence,
        first_window: index,
        window_count: 1,
        flags: vec![0],
        tables,
        ..Default::default()
    }
}

/// The simulation as it goes on; it ends with this.
pub struct Running {
    /// What is sent, each when it has ended.
    pub windows: Vec<HostWindow>,
    _runtime: tokio::runtime::Runtime,
}

/// Runs the simulation against `serve` as it would happen, beginning now.
pub fn start(serve: &Serve, simulated: &sim::Sim) -> Running {
    let mut trace = simulated.run();
    // To work it out took a moment: it begins now.
    let later = unix_ns() / WINDOW_NS + 4 - simulated.first_window;
    trace.windows.iter_mut().for_each(|w| w.index.0 += later);
    let runtime = runtime();
    let mut by_host: BTreeMap<String, Vec<HostWindow>> = BTreeMap::new();
    for window in &trace.windows {
        by_host.entry(window.host.clone()).or_default().push(window.clone());
    }
    for (host, windows) in by_host {
        let info = trace.names.iter().find_map(|i| match i {
            Input::Host(info) if info.host == host => Some(info.clone()),
            _ => None,
        });
        let (hello, entities) = (said_hello(&info.unwrap()), entities(&trace.names, &host));
        let mut agent = runtime.block_on(Agent::connect(serve.grpc, hello));
        runtime.block_on(agent.welcome());
        runtime.block_on(agent.say(Body::Entities(entities)));
        runtime.spawn(feed(agent, windows));
    }
    Running { windows: trace.windows, _runtime: runtime }
}

async fn feed(mut agent: Agent, windows: Vec<HostWindow>) {
    let mut newest = (0, 0);
    // One quick round trip is enough to know the clock; a busy machine makes some of them slow.
    for n in 1..=5 {
        probe(&agent, n, newest).await;
        newest = match agent.hear().await {
            Reply::ClockReply(reply) => (reply.id, unix_ns()),
            other => panic!("{other:?}"),
        };
    }
    for (n, window) in (1..).zip(&windows) {
        until_ended(window.index.0).await;
        if n % 20 == 1 {
            probe(&agent, 5 + n, newest).await;
            let status = v1::AgentStatus {
                cpu_ratio: 0.005,
                kernel_cpu_ratio: Some(0.003),
                resident_bytes: 30 << 20,
                losses: nothing_lost(),
                ..Default::default()
            };
            agent.say(Body::Status(status)).await;
        }
        agent.say(Body::Batch(batch(n, window.index.0, window))).await;
        while let Some(reply) = agent.heard().await {
            match reply {
                Reply::Ack(_) => {}
                Reply::ClockReply(reply) => newest = (reply.id, unix_ns()),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// With what is known of the newest reply.
async fn probe(agent: &Agent, id: u64, (reply_id, reply_received_unix_ns): (u64, u64)) {
    let probe = v1::ClockProbe {
        id,
        agent_unix_ns: unix_ns(),
        reply_id,
        reply_received_unix_ns,
        ..Default::default()
    };
    agent.say(Body::ClockProbe(probe)).await;
}
