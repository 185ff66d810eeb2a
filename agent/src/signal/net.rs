//! Sockets: accept queues, requests, calls and retransmits, from `ebpf/bpf/net.bpf.c`. Owns attaching the hooks and what each of
//! them is worth where the kernel refuses it; `listeners` and `edges` own turning records into samples, `slots` who a slot is,
//! `walk` the sockets that were there before. Knows no names of workloads.

use super::{Coverage, SignalKind, SignalSource};
use crate::loader::{AttachConfig, KernelBtf, LoadError, LoadedObject, ObjectPlan, possible_cpus};
use crate::mapping::{ClockControl, Mapping};
use crate::ring::Shape;
use crate::window::{ListenDrop, ListenerKey, Window, WindowIndex};
use aya::maps::{MapData, RingBuf};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use tailwater_ebpf::net::{DropEvent, EdgeRecord, ListenerRecord, NetLosses, WORKERS, Worker};
use tailwater_ebpf::objects;
use tailwater_ebpf::record::{NEST, WINDOWS};

mod edges;
mod listeners;
mod slots;
mod walk;

use edges::Edges;
use listeners::Listeners;
pub use walk::WalkReport;
use walk::Walker;

/// What the socket signals need to attach.
#[derive(Debug, Clone, Copy)]
pub struct NetConfig<'a> {
    /// The kernel's type information.
    pub btf: &'a KernelBtf,
    /// [`crate::slots::cgroup_hierarchy`].
    pub cgroup_hierarchy: u32,
    /// Unix time minus CLOCK_MONOTONIC, now.
    pub epoch_offset_ns: i64,
    /// Listening addresses told apart at a time; the rest is counted together. 64 is a good default.
    pub listeners_max: u32,
    /// Workload and remote address pairs told apart at a time. 128 is a good default.
    pub edges_max: u32,
}

impl NetConfig<'_> {
    fn entities(&self, max: u32, record_bytes: usize) -> u32 {
        let sizing = AttachConfig {
            btf: self.btf,
            cgroup_hierarchy: self.cgroup_hierarchy,
            workloads_max: max,
            epoch_offset_ns: self.epoch_offset_ns,
        };
        sizing.entities(possible_cpus() * NEST, 8 + WINDOWS as usize * record_bytes)
    }
}

/// A program, where it attaches, and whether it did.
#[derive(Debug)]
struct Hook {
    program: &'static str,
    tracepoint: &'static str,
    refused: Option<String>,
}

/// In the order of attaching. What tells a listener's healthy discards comes before anything that makes a listener known, else
/// the discards in between would read as drops; then what makes connections known.
const HOOKS: [(&str, &str); 8] = [
    ("net_dropped", "kfree_skb"),
    ("net_state", "inet_sock_set_state"),
    ("net_ready", "sk_data_ready"),
    ("net_recv", "sock_recv_length"),
    ("net_send", "sock_send_length"),
    ("net_destroy", "tcp_destroy_sock"),
    ("net_resent", "tcp_retransmit_skb"),
    ("net_resent_synack", "tcp_retransmit_synack"),
];

/// The socket hooks and their rings.
pub struct NetSignals {
    listeners: Listeners,
    edges: Edges,
    hooks: Vec<Hook>,
    walker: Walker,
    drops: RingBuf<MapData>,
    losses: Mapping,
    clock: ClockControl,
    /// Keeps the programs attached.
    _object: LoadedObject,
}

impl NetSignals {
    /// Loads and attaches what this kernel takes; an error if sockets cannot be followed at all.
    pub fn attach(config: &NetConfig<'_>) -> Result<Self, LoadError> {
        let shape = |entities| Shape { cpus: possible_cpus(), nest: NEST, entities };
        let of_listeners = shape(config.entities(config.listeners_max, size_of::<ListenerRecord>()));
        let of_edges = shape(config.entities(config.edges_max, size_of::<EdgeRecord>()));
        let mut plan = ObjectPlan::new("net", objects::NET)
            .max_entries("listener_ring", of_listeners.copies())
            .max_entries("edge_ring", of_edges.copies())
            .global("cfg_listener_entities", of_listeners.entities)
            .global("cfg_edge_entities", of_edges.entities)
            .global("cfg_cgroup_hierarchy", config.cgroup_hierarchy)
            .global("cfg_ephemeral_first", walk::ephemeral_first());
        for map in ["listener_levels", "listener_names", "listener_slots", "listener_free"] {
            plan = plan.max_entries(map, of_listeners.entities);
        }
        for map in ["edge_levels", "edge_names", "edge_slots", "edge_free"] {
            plan = plan.max_entries(map, of_edges.entities);
        }
        let mut object = plan.load(config.btf)?;
        let clock = object.clock()?;
        clock.set_epoch_offset_ns(config.epoch_offset_ns);
        let listeners = Listeners::open(&mut object, of_listeners)?;
        let edges = Edges::open(&mut object, of_edges)?;
        let losses = object.mapping("net_losses", NetLosses::WORDS * 8)?;
        let drops = RingBuf::try_from(object.take_map("drop_events")?)
            .map_err(|e| object.map_error("drop_events", e))?;
        let mut hooks = Vec::new();
        for (program, tracepoint) in HOOKS {
            let refused = match object.attach_tp_btf(program, tracepoint, config.btf) {
                Ok(()) => None,
                // Without it no socket is known to be anything.
                Err(error) if program == "net_state" => return Err(error),
                Err(error) => Some(error.to_string()),
            };
            if program == "net_dropped" && refused.is_none() {
                object.mapping_for_writing("net_control", 8)?.store(0, 1);
            }
            hooks.push(Hook { program, tracepoint, refused });
        }
        let workers = object.mapping_for_writing("workers", WORKERS * Worker::WORDS * 8)?;
        let walker = Walker::start(object.iterator("net_existing", "tcp", config.btf), workers);
        walk::provoke_a_state_change();
        Ok(Self { listeners, edges, hooks, walker, drops, losses, clock, _object: object })
    }

    /// What the kernel side could not keep.
    pub fn losses(&self) -> NetLosses {
        NetLosses::decode(std::array::from_fn(|i| self.losses.word(i).load(Ordering::Relaxed)))
    }

    /// How the last walk over existing sockets went.
    pub fn walk_report(&self) -> WalkReport {
        self.walker.report()
    }

    /// Records that were overwritten while they were read.
    pub fn lapped(&self) -> u64 {
        self.listeners.lapped() + self.edges.lapped()
    }

    /// Every listener known now, with the number of its listening sockets.
    pub fn listeners(&mut self) -> Vec<(ListenerKey, u32)> {
        self.listeners.known()
    }

    fn refusal(&self, program: &str) -> Option<String> {
        let hook = self.hooks.iter().find(|h| h.program == program)?;
        let refused = hook.refused.as_ref()?;
        Some(format!("tp_btf/{}: {refused}", hook.tracepoint))
    }

    /// Covered unless one of `needed` was refused; the refusals of `helpful` are told, with what is lost by them.
    fn coverage_of(
        &self,
        signal: SignalKind,
        hook: &str,
        needed: &[&str],
        helpful: &[(&str, &str)],
    ) -> Coverage {
        let refused: Vec<String> = needed.iter().filter_map(|p| self.refusal(p)).collect();
        let covered = refused.is_empty();
        let mut reasons = refused;
        for (program, loss) in helpful {
            if let Some(refusal) = self.refusal(program) {
                reasons.push(format!("{loss}: {refusal}"));
            }
        }
        if let Some(trouble) = self.walker.report().trouble {
            reasons
                .push(format!("sockets older than the agent are known from their traffic only: {trouble}"));
        }
        Coverage { signal, covered, hook: hook.to_owned(), reason: reasons.join("; ") }
    }

    fn requests_covered(&self) -> bool {
        self.refusal("net_recv").is_none() && self.refusal("net_send").is_none()
    }
}

impl SignalSource for NetSignals {
    fn name(&self) -> &'static str {
        "net"
    }

    fn coverage(&self) -> Vec<Coverage> {
        const TURNS: [&str; 2] = ["net_recv", "net_send"];
        vec![
            self.coverage_of(
                SignalKind::AcceptQueue,
                "tp_btf/sk_data_ready, tp_btf/inet_sock_set_state, bpf_timer on sk_drops",
                &[],
                &[
                    ("net_ready", "depth is sampled every 5 ms and peaks between are missed"),
                    ("net_dropped", "drops at the last ACK of a handshake are not told from the others, and listeners with TCP_DEFER_ACCEPT count drops only while their queue is seen full"),
                    ("net_resent_synack", "SYN-ACK retransmits are not counted"),
                ],
            ),
            self.coverage_of(
                SignalKind::Requests,
                "tp_btf/sock_recv_length, tp_btf/sock_send_length",
                &TURNS,
                &[
                    ("net_ready", "bytes that nobody reads are not seen"),
                    ("net_destroy", "a connection may stay counted as open"),
                ],
            ),
            self.coverage_of(
                SignalKind::Calls,
                "tp_btf/sock_send_length, tp_btf/sock_recv_length",
                &TURNS,
                &[("net_destroy", "a connection may stay counted as open")],
            ),
            self.coverage_of(
                SignalKind::Retransmits,
                "tp_btf/tcp_retransmit_skb",
                &["net_resent"],
                &[],
            ),
        ]
    }

    fn drain(&mut self, into: &mut Window) {
        let turns = self.requests_covered();
        let (accept_queues, requests) = self.listeners.drain(into.index);
        let (calls, retransmits) = self.edges.drain(into.index);
        into.accept_queues = Some(accept_queues);
        into.requests = turns.then_some(requests);
        into.calls = turns.then_some(calls);
        into.retransmits = self.refusal("net_resent").is_none().then_some(retransmits);
    }

    fn skip_to(&mut self, first: WindowIndex) {
        self.listeners.skip_to(first);
        self.edges.skip_to(first);
    }

    fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.clock.set_epoch_offset_ns(offset_ns);
    }

    fn drop_events_fd(&self) -> Option<RawFd> {
        Some(self.drops.as_raw_fd())
    }

    fn take_drop_events(&mut self, into: &mut Vec<ListenDrop>) {
        while let Some(item) = self.drops.next() {
            let Some(event) = DropEvent::decode(&item) else { continue };
            into.push(ListenDrop {
                listener: self.listeners.key(event.slot),
                unix_ns: event.unix_ns,
                count: u64::from(event.count),
                packets: u64::from(event.packets),
                depth: event.depth,
                limit: event.limit,
            });
        }
    }
}
