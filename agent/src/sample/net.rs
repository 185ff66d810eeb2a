//! Sockets: accept queues, requests, calls and retransmits, from `ebpf/bpf/net.bpf.c`. Owns attaching the hooks and what each of
//! them is worth where the kernel refuses it; `listeners` and `edges` own turning records into samples, `slots` who a slot is,
//! `states` the time in state, `meetings` connections by what both ends know, `lookups` names that are asked for, `slow` requests that took long, `loops` event loops that do not come back, `walk` the sockets that were there before, `helper` those of other namespaces, `tick` looking at listeners without the kernel's timer, `unix` what Unix sockets are bound to. Knows no names of workloads.

use crate::attach::loader::{KernelBtf, LoadError, LoadedObject, ObjectPlan, Place};
use crate::attach::mapping::{ClockControl, Mapping};
use crate::attach::price::Price;
use crate::attach::privilege;
use crate::attach::storage::Owner;
use crate::attach::window_log::LogShape;
use crate::config::Late;
use crate::name::cgroup::Mounts;
use crate::sample::repeated::Repeated;
use crate::signal::{Coverage, Loss, SignalKind, SignalSource};
use crate::window::{self, ConnectionEnd, ListenDrop, ListenerKey, Window, WindowIndex};
use aya::maps::{MapData, RingBuf};
use caps::Capability;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use tailwater_ebpf::net::{DropEvent, EdgeRecord, ListenerRecord, NetLosses, WORKERS, Worker};
use tailwater_ebpf::objects;
use tailwater_ebpf::record::NEST;

mod edges;
pub mod helper;
mod listeners;
mod lookups;
mod loops;
mod meetings;
mod multiplexed;
mod slots;
mod slow;
mod states;
mod tick;
mod unix;
mod walk;

use edges::Edges;
use listeners::Listeners;
use lookups::Lookups;
use loops::Loops;
use meetings::Meetings;
use slow::Slow;
use states::States;
pub use walk::WalkReport;
use walk::{Walker, Workers};

/// What the socket signals need to attach.
#[derive(Debug, Clone, Copy)]
pub struct NetConfig<'a> {
    /// The kernel's type information.
    pub btf: &'a KernelBtf,
    /// [`crate::sample::slots::cgroup_hierarchy`].
    pub cgroup_hierarchy: u32,
    /// Unix time minus CLOCK_MONOTONIC, now.
    pub epoch_offset_ns: i64,
    /// What logs are sized by: [`crate::attach::loader::possible_cpus`].
    pub cpus: u32,
    /// Listening addresses told apart at a time; the rest is counted together. 1,024 is a good default.
    pub listeners_max: u32,
    /// Windows after which the place of a listener that is closed may be another's. 1,200, a minute, is a good default: a server that is
    /// restarted gets its own again.
    pub listeners_kept_windows: u64,
    /// Workload and remote address pairs told apart at a time. 4,095 is a good default.
    pub edges_max: u32,
    /// When an answer is late.
    pub late: Late,
    /// This program, which walks other network namespaces as a process of its own; without, a thread does.
    pub helper: Option<&'a Path>,
    /// Where cgroups are mounted, if streams of HTTP/2 are to be counted by the headers of frames; `None`: no packet is looked at.
    pub frame_headers: Option<&'a Mounts>,
}

/// The programs that see one moment, by the name of the first, and where one of them attached, or why none did.
#[derive(Debug)]
struct Hook {
    name: &'static str,
    at: Result<Place, String>,
}

/// Ways to see one moment, best first: the first that this kernel takes is used.
struct Family(&'static [(&'static str, Place)]);

impl Family {
    fn name(&self) -> &'static str {
        self.0.first().map_or("", |(program, _)| program)
    }

    /// The error has the kernel's words about every way.
    fn attach(&self, object: &mut LoadedObject, btf: &KernelBtf) -> Result<Place, LoadError> {
        let mut refused = Vec::new();
        for (program, place) in self.0 {
            match object.attach(program, *place, btf) {
                Ok(()) => return Ok(*place),
                Err(error) => refused.push(error.to_string()),
            }
        }
        Err(LoadError::NoWay { refused: refused.join("; else ") })
    }
}

/// In the order of attaching. What tells a listener's healthy discards comes before anything that makes a listener known, else
/// the discards in between would read as drops; then what makes connections known. The tracepoints of data came with Linux 6.3;
/// before, the functions that they were put into tell the same.
const HOOKS: [Family; 9] = [
    Family(&[("net_dropped", Place::Tracepoint("kfree_skb"))]),
    Family(&[("net_state", Place::Tracepoint("inet_sock_set_state"))]),
    Family(&[
        ("net_ready", Place::Tracepoint("sk_data_ready")),
        ("net_ready_entry", Place::Entry("sock_def_readable")),
    ]),
    Family(&[
        ("net_recv", Place::Tracepoint("sock_recv_length")),
        ("net_recv_exit_before_5_19", Place::Exit("tcp_recvmsg")),
        ("net_recv_exit", Place::Exit("tcp_recvmsg")),
    ]),
    Family(&[
        ("net_send", Place::Tracepoint("sock_send_length")),
        ("net_send_exit", Place::Exit("tcp_sendmsg")),
    ]),
    Family(&[("net_destroy", Place::Tracepoint("tcp_destroy_sock"))]),
    Family(&[("net_resent", Place::Tracepoint("tcp_retransmit_skb"))]),
    Family(&[("net_resent_synack", Place::Tracepoint("tcp_retransmit_synack"))]),
    Family(&[("net_unix_refused", Place::Tracepoint("consume_skb"))]),
];

/// The same of queries for names where sockets' tracepoints of data are not there; IPv4 alone.
const LOOKUP_HOOKS: [Family; 2] = [
    Family(&[("net_lookup_sent", Place::Exit("udp_sendmsg"))]),
    Family(&[
        ("net_lookup_answered_before_5_19", Place::Exit("udp_recvmsg")),
        ("net_lookup_answered", Place::Exit("udp_recvmsg")),
    ]),
];

/// Who looks at the listening sockets' queues and drop counters every 5 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looking {
    /// A timer in the kernel.
    Timer,
    /// A thread of the agent, by an iterator: where the kernel gives programs no timer.
    Thread,
}

impl std::fmt::Display for Looking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Timer => "bpf_timer on sk_drops",
            Self::Thread => "iter/bpf_map_elem on sk_drops every 5 ms",
        })
    }
}

/// Has queries for names seen: by the hooks of data that there are, else by hooks of their own. An error has the kernel's words.
fn see_lookups(object: &mut LoadedObject, btf: &KernelBtf, hooks: &[Hook]) -> Result<(), String> {
    let at = |name: &str| hooks.iter().find(|hook| hook.name == name).map(|hook| hook.at.clone());
    let by_data = |name: &str| matches!(at(name), Some(Ok(Place::Tracepoint(_))));
    if by_data("net_send") && by_data("net_recv") {
        return Ok(());
    }
    for family in &LOOKUP_HOOKS {
        family.attach(object, btf).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Streams of HTTP/2 that may be open on the machine at once: 6 MB where they are counted.
const OPEN_STREAMS: u32 = 65_536;

/// Where the headers of frames are seen, as people read it.
const FRAMES_PLACE: &str = "cgroup_skb/ingress, cgroup_skb/egress";

/// Hooks that have more to do where streams are counted: a verifier may refuse them for that alone.
const HOOKS_OF_STREAMS: [&str; 4] = ["net_state", "net_ready", "net_recv", "net_destroy"];

/// Where the packets of all sockets can be seen, by this agent: what is attached to the root of cgroups holds for those below it. An error says what to do.
fn packets(mounts: &Mounts) -> Result<&Path, String> {
    let root = root_of_cgroups(mounts)?;
    if !privilege::has(Capability::CAP_NET_ADMIN) {
        let why = "this agent has no CAP_NET_ADMIN, without which nothing is attached to packets";
        return Err(format!("{why}; examples/frame-headers.conf in its documentation gives it to the unit"));
    }
    Ok(root)
}

/// The root of cgroups version 2.
fn root_of_cgroups(mounts: &Mounts) -> Result<&Path, String> {
    let root = mounts.unified.as_deref().ok_or("no cgroup version 2 tree is mounted")?;
    // Every cgroup has this file but the root (Documentation/admin-guide/cgroup-v2.rst).
    if root.join("cgroup.type").exists() {
        return Err(format!(
            "{} is no root but a cgroup of its own, as in a container with a namespace of cgroups, and packets of others do not pass there; mount the machine's /sys/fs/cgroup",
            root.display()
        ));
    }
    Ok(root)
}

/// How a verifier names the timer that it refuses: under PREEMPT_RT by its name, before 5.15 as the function of this number.
const TIMER_REFUSED: [&str; 2] = ["bpf_timer", "unknown#169"];

/// Room for the records of all CPUs: on 128 of them, 256 listeners and 256 edges of a CPU that are active at once.
const LISTENER_LOG_BYTES: usize = 16 << 20;
const EDGE_LOG_BYTES: usize = 9 << 20;

/// The socket hooks and their logs.
pub struct NetSignals {
    listeners: Listeners,
    states: States,
    edges: Edges,
    meetings: Meetings,
    loops: Loops,
    lookups: Lookups,
    slow: Slow,
    hooks: Vec<Hook>,
    /// Whether the headers of frames are read, or why not; `None`: nobody wants it.
    frames: Option<Result<(), String>>,
    walker: Walker,
    looking: Looking,
    _ticker: Option<Repeated>,
    _unix_walk: Option<Repeated>,
    drops: RingBuf<MapData>,
    losses: Mapping,
    clock: ClockControl,
    /// Keeps the programs attached.
    object: LoadedObject,
}

impl NetSignals {
    /// Loads and attaches what this kernel takes; an error if sockets cannot be followed at all.
    pub fn attach(config: &NetConfig<'_>) -> Result<Self, LoadError> {
        let with_timer = Self::attach_with(config, Looking::Timer);
        let Err(refused) = &with_timer else { return with_timer };
        let words = refused.to_string();
        if !TIMER_REFUSED.iter().any(|name| words.contains(name)) {
            return with_timer;
        }
        tracing::info!("the agent looks at listeners itself: {words}");
        Self::attach_with(config, Looking::Thread)
    }

    /// The same in a given way. Where frames are to be read and that cannot be, or costs another hook, all is attached without: it may cost itself alone.
    pub fn attach_with(config: &NetConfig<'_>, looking: Looking) -> Result<Self, LoadError> {
        let Some(mounts) = config.frame_headers else { return Self::attach_once(config, looking, None) };
        let all = packets(mounts).and_then(|root| {
            Self::attach_once(config, looking, Some(root)).map_err(|error| error.to_string())
        });
        let why = match all {
            Ok(all) => return Ok(all),
            Err(why) => why,
        };
        let mut without = Self::attach_once(config, looking, None)?;
        tracing::warn!("frame_headers: streams of HTTP/2 are not counted: {why}");
        without.frames = Some(Err(why));
        Ok(without)
    }

    /// `packets`: where those of all sockets are seen, if the headers of frames are to be read.
    fn attach_once(
        config: &NetConfig<'_>,
        looking: Looking,
        packets: Option<&Path>,
    ) -> Result<Self, LoadError> {
        let cpus = config.cpus;
        let of_listeners =
            LogShape::within::<ListenerRecord>(LISTENER_LOG_BYTES, cpus, NEST, config.listeners_max + 1);
        let of_edges = LogShape::within::<EdgeRecord>(EDGE_LOG_BYTES, cpus, NEST, config.edges_max + 1);
        let object = if packets.is_some() { objects::NET_STREAMS } else { objects::NET };
        let mut plan = ObjectPlan::new("net", object)
            .log(&listeners::LOG, of_listeners)
            .log(&edges::LOG, of_edges)
            .nested()
            .global("cfg_listener_entities", of_listeners.entities)
            .global("cfg_edge_entities", of_edges.entities)
            .global("cfg_cgroup_hierarchy", config.cgroup_hierarchy)
            .global("cfg_late_us", config.late.late_ms.saturating_mul(1_000))
            .global("cfg_very_late_us", config.late.very_late_ms.saturating_mul(1_000))
            .global("cfg_timer", u32::from(looking == Looking::Timer));
        if packets.is_some() {
            // Programs at the packets of cgroups may be preempted, whatever the kernel.
            plan = plan.global("cfg_preempted", 1).max_entries("open_streams", OPEN_STREAMS);
        }
        for map in [
            "listener_levels",
            "listener_states",
            "listener_names",
            "listener_paths",
            "listener_slots",
            "listener_free",
        ] {
            plan = plan.max_entries(map, of_listeners.entities);
        }
        for map in ["edge_levels", "edge_names", "edge_slots", "edge_free"] {
            plan = plan.max_entries(map, of_edges.entities);
        }
        let mut object = plan.load(config.btf)?;
        object.keeps("connections", Owner::Socket)?;
        let clock = object.clock()?;
        clock.set_epoch_offset_ns(config.epoch_offset_ns);
        let listeners = Listeners::open(&mut object, of_listeners, config.listeners_kept_windows)?;
        let states = States::open(&mut object, of_listeners.entities, config.epoch_offset_ns)?;
        let edges = Edges::open(&mut object, of_edges)?;
        let meetings = Meetings::open(&object)?;
        let losses = object.mapping("net_losses", NetLosses::WORDS * 8)?;
        let drops = RingBuf::try_from(object.take_map("drop_events")?)
            .map_err(|e| object.map_error("drop_events", e))?;
        let mut hooks = Vec::new();
        for family in &HOOKS {
            let name = family.name();
            let at = match family.attach(&mut object, config.btf) {
                Ok(place) => Ok(place),
                // Without it no socket is known to be anything.
                Err(error) if name == "net_state" => return Err(error),
                Err(error) if packets.is_some() && HOOKS_OF_STREAMS.contains(&name) => return Err(error),
                Err(error) => Err(error.to_string()),
            };
            if name == "net_dropped" && at.is_ok() {
                // Without it, segments that come while the other is interrupted read as drops: `net_runs_skipped` counts them.
                let _ = object.attach("net_dropped_again", Place::Tracepoint("kfree_skb"), config.btf);
                object.mapping_for_writing("net_control", 8)?.store(0, 1);
            }
            // The same before 6.14, where such a buffer is dropped; which of the two ways a kernel goes is not told by its types.
            if name == "net_unix_refused" {
                let _ = object.attach("net_unix_refused_before", Place::Tracepoint("kfree_skb"), config.btf);
            }
            // sendfile(2) goes by a function of its own wherever sends are seen at their function; since 6.5 there is none.
            if name == "net_send" && matches!(at, Ok(Place::Exit(_))) {
                let _ = object.attach("net_sendpage_exit", Place::Exit("tcp_sendpage"), config.btf);
            }
            hooks.push(Hook { name, at });
        }
        // Last of the hooks: what they see belongs to connections that the others know.
        if let Some(root) = packets {
            object.attach_to_packets("net_frames_in", "net_frames_out", root)?;
        }
        let asked = see_lookups(&mut object, config.btf, &hooks);
        let lookups = Lookups::open(&mut object, config.btf, asked, config.epoch_offset_ns)?;
        let slow = Slow::open(&mut object, config.epoch_offset_ns)?;
        let workers = Workers {
            table: object.mapping_for_writing("workers", WORKERS * Worker::WORDS * 8)?,
            levels: object.mapping_for_writing("listener_levels", listeners.levels_bytes())?,
        };
        let readers = object.mapping("workers", WORKERS * Worker::WORDS * 8)?;
        let loops = Loops::new(readers, config.epoch_offset_ns, walk::kernel_ids_are_ours());
        let existing = object.iterator("net_existing", "tcp", config.btf);
        let walker = Walker::start(existing, workers, config.helper);
        let ticker = match looking {
            Looking::Timer => {
                walk::provoke_a_state_change();
                None
            }
            Looking::Thread => {
                const PROGRAM: &str = "net_tick";
                let listeners = object.iterator_over(PROGRAM, "listen_sockets", config.btf)?;
                let of_unix = object.iterator_over("net_unix_tick", "unix_listeners", config.btf)?;
                Some(tick::start([listeners, of_unix]).map_err(|error| LoadError::NoWay {
                    refused: format!("object net, program {PROGRAM}: {error}"),
                })?)
            }
        };
        let unix_walk = object
            .iterator_over("net_unix_walk", "unix_connections", config.btf)
            .map_err(|error| error.to_string())
            .and_then(|walk| unix::start_walk(walk).map_err(|error| error.to_string()));
        if let Err(error) = &unix_walk {
            tracing::warn!("requests over Unix sockets that end without an answer stay in flight: {error}");
        }
        Ok(Self {
            listeners,
            states,
            edges,
            meetings,
            loops,
            lookups,
            slow,
            hooks,
            frames: packets.map(|_| Ok(())),
            walker,
            looking,
            _ticker: ticker,
            _unix_walk: unix_walk.ok(),
            drops,
            losses,
            clock,
            object,
        })
    }

    /// What the kernel side could not keep.
    pub fn kernel_losses(&self) -> NetLosses {
        NetLosses::decode(std::array::from_fn(|i| self.losses.word(i).load(Ordering::Relaxed)))
    }

    /// How the last walk over existing sockets went.
    pub fn walk_report(&self) -> WalkReport {
        self.walker.report()
    }

    /// What its kernel programs cost. To be taken once.
    pub fn price(&mut self) -> Result<Price, LoadError> {
        self.object.price()
    }

    /// Records that were overwritten while they were read.
    pub fn lapped(&self) -> u64 {
        self.listeners.lapped() + self.edges.lapped()
    }

    /// Every listener known now, with the number of its listening sockets.
    pub fn listeners(&mut self) -> Vec<(ListenerKey, u32)> {
        self.listeners.known()
    }

    fn refusal(&self, name: &str) -> Option<String> {
        let hook = self.hooks.iter().find(|h| h.name == name)?;
        hook.at.as_ref().err().cloned()
    }

    /// Where the hooks of those names attached, as people read it.
    fn places(&self, names: &[&str]) -> String {
        let at = |name: &&str| self.hooks.iter().find(|h| h.name == *name)?.at.as_ref().ok();
        names.iter().filter_map(at).map(ToString::to_string).collect::<Vec<_>>().join(", ")
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
        Coverage { signal, covered, sampled: false, hook: hook.to_owned(), reason: reasons.join("; ") }
    }

    /// Where turns are seen, and streams, if they are.
    fn turns_places(&self, names: [&str; 2]) -> String {
        let places = self.places(&names);
        match &self.frames {
            Some(Ok(())) => format!("{places}, {FRAMES_PLACE}"),
            _ => places,
        }
    }

    /// Adds to what is not seen of a signal that streams are not counted although they were wanted.
    fn without_frames(&self, of: &mut Coverage) {
        if let Some(Err(why)) = &self.frames {
            also(of, &format!("streams of HTTP/2 are not counted: {why}"));
        }
    }

    fn requests_covered(&self) -> bool {
        self.refusal("net_recv").is_none() && self.refusal("net_send").is_none()
    }
}

/// One more thing that is not seen of a signal.
fn also(of: &mut Coverage, reason: &str) {
    if !of.reason.is_empty() {
        of.reason.push_str("; ");
    }
    of.reason.push_str(reason);
}

impl SignalSource for NetSignals {
    fn name(&self) -> &'static str {
        "net"
    }

    fn coverage(&self) -> Vec<Coverage> {
        const TURNS: [&str; 2] = ["net_recv", "net_send"];
        let mut calls = self.coverage_of(
            SignalKind::Calls,
            &self.turns_places(["net_send", "net_recv"]),
            &TURNS,
            &[("net_destroy", "a connection may stay counted as open")],
        );
        if let Some(why) = self.lookups.refusal() {
            also(&mut calls, &format!("who waits for a server of names is not seen: {why}"));
        }
        let mut requests = self.coverage_of(
            SignalKind::Requests,
            &self.turns_places(TURNS),
            &TURNS,
            &[
                ("net_ready", "bytes that nobody reads are not seen"),
                ("net_destroy", "a connection may stay counted as open"),
            ],
        );
        self.without_frames(&mut calls);
        self.without_frames(&mut requests);
        vec![
            self.coverage_of(
                SignalKind::AcceptQueue,
                &format!("{}, {}", self.places(&["net_ready", "net_state"]), self.looking),
                &[],
                &[
                    ("net_ready", "depth is sampled every 5 ms and peaks between are missed"),
                    ("net_dropped", "drops at the last ACK of a handshake are not told from the others, and listeners with TCP_DEFER_ACCEPT count drops only while their queue is seen full"),
                    ("net_resent_synack", "SYN-ACK retransmits are not counted"),
                    ("net_unix_refused", "connections that Unix sockets refuse are not counted"),
                ],
            ),
            requests,
            calls,
            self.coverage_of(
                SignalKind::Retransmits,
                &self.places(&["net_resent"]),
                &["net_resent"],
                &[],
            ),
        ]
    }

    fn losses(&self) -> Vec<Loss> {
        let kernel = self.kernel_losses();
        vec![
            Loss { what: "net_listeners_folded", count: kernel.listeners_folded },
            Loss { what: "net_edges_folded", count: kernel.edges_folded },
            Loss { what: "net_listen_sockets_untracked", count: kernel.listen_sockets_untracked },
            Loss { what: "net_drop_events_lost", count: kernel.drop_events },
            Loss { what: "net_workers_untracked", count: kernel.workers_untracked },
            Loss { what: "net_loops_unwatched", count: self.loops.left_out() },
            Loss { what: "net_connections_untracked", count: kernel.connections_untracked },
            Loss { what: "net_connections_unknown", count: kernel.connections_unknown },
            Loss { what: "net_unix_refusals_unnamed", count: kernel.unix_refusals_unnamed },
            Loss { what: "net_lookups_untracked", count: kernel.lookups_untracked },
            Loss { what: "net_lookups_left_out", count: self.lookups.left_out() },
            Loss { what: "net_slow_turns_lost", count: kernel.slow_turns },
            Loss { what: "net_connections_unfollowed", count: kernel.connections_unfollowed },
            Loss { what: "net_streams_untracked", count: kernel.streams_untracked },
            Loss { what: "net_slow_requests_left_out", count: self.slow.left_out() },
            Loss { what: "net_records_lapped", count: self.lapped() },
            Loss { what: "net_runs_skipped", count: self.object.skipped_runs() },
        ]
    }

    fn drain(&mut self, into: &mut Window) {
        let turns = self.requests_covered();
        let (accept_queues, requests, unix_paths) = self.listeners.drain(into.index);
        into.unix_paths = unix_paths;
        let (calls, retransmits) = self.edges.drain(into.index);
        let (listeners, edges) = (self.listeners.is_whole(into.index), self.edges.is_whole(into.index));
        let (of_listeners, of_edges) = (&mut self.listeners, &mut self.edges);
        into.meetings = self.meetings.drain(into.index, |meeting| {
            if meeting.accepted {
                of_listeners.named(meeting.slot).map(ConnectionEnd::Accepted)
            } else {
                of_edges.named(meeting.slot).map(ConnectionEnd::Connected)
            }
        });
        if into.late {
            // Read now, they would go beyond the window's end.
            self.states.skip();
        } else if turns && let Some((windows, states)) = self.states.drain(into.index) {
            let of = states.into_iter().map(|(slot, cells)| (self.listeners.key(slot), cells));
            into.states = Some(window::States { windows, listeners: of.collect() });
        }
        if turns && listeners && !into.late {
            let known = &mut self.listeners;
            let of = |slot| (known.key(slot), known.readers(slot));
            into.blocked_loops = self.loops.drain(into.index, &accept_queues, &requests, of);
        }
        if !into.late {
            into.lookups = self.lookups.drain(into.index);
        }
        let lost = self.kernel_losses().slow_turns;
        let (of_listeners, of_edges) = (&mut self.listeners, &mut self.edges);
        into.slow_requests =
            self.slow.drain(into.index, lost, |slot| of_listeners.named(slot), |slot| of_edges.named(slot));
        into.accept_queues = listeners.then_some(accept_queues);
        into.requests = (turns && listeners).then_some(requests);
        into.calls = (turns && edges).then_some(calls);
        into.retransmits = (edges && self.refusal("net_resent").is_none()).then_some(retransmits);
    }

    fn skip_to(&mut self, first: WindowIndex) {
        self.listeners.skip_to(first);
        self.states.skip();
        self.edges.skip_to(first);
    }

    fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.states.set_epoch_offset_ns(offset_ns);
        self.loops.set_epoch_offset_ns(offset_ns);
        self.lookups.set_epoch_offset_ns(offset_ns);
        self.slow.set_epoch_offset_ns(offset_ns);
        self.clock.set_epoch_offset_ns(offset_ns);
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.walker.report().helper_cpu_ns
    }

    fn drop_events_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.drops.as_fd())
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
                read_unix_ns: 0,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_that_is_mounted_as_if_it_were_the_root_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mounts = Mounts { unified: Some(folder.path().to_owned()), ..Mounts::default() };
        assert_eq!(root_of_cgroups(&mounts), Ok(folder.path()));
        std::fs::write(folder.path().join("cgroup.type"), "domain\n").unwrap();
        assert!(root_of_cgroups(&mounts).unwrap_err().contains("mount the machine's /sys/fs/cgroup"));
        assert!(root_of_cgroups(&Mounts::default()).is_err());
    }
}
