//! What a signal is: its kinds, how it is served, and what each source of signals does. Plain data and one trait; the sources are in
//! `sample`.
//!
//! Order of calls, from the sampler's one loop: `attach` once; then for every closed window, in order and exactly once,
//! `drain`. When windows were lapped (older than the logs keep), the sampler calls `skip_to` with the first readable window and
//! counts the gap; each signal then rebuilds its levels (see `ebpf/bpf/include/window.h`) from the kernel's absolute counters.

use crate::window::{ListenDrop, Window, WindowIndex};

/// How a signal is served on this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// `tailwater_proto` signal, by its proto number.
    pub signal: SignalKind,
    /// Whether values will be there.
    pub covered: bool,
    /// Whether they are polled, once in a window: peaks in between are missed.
    pub sampled: bool,
    /// e.g. `tp_btf/sched_switch`.
    pub hook: String,
    /// Why better hooks, or all, were refused, with the kernel's error.
    pub reason: String,
}

/// The kinds of signals, as `telemetry.proto` numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names of telemetry.proto: Signal")]
pub enum SignalKind {
    Cpu,
    RunQueue,
    BlockIo,
    Memory,
    AcceptQueue,
    Requests,
    Calls,
    Retransmits,
    Throttling,
}

/// Something that a source could not keep, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// What, as in the metric's label: `net_connections_untracked`.
    pub what: &'static str,
    /// Since the agent began.
    pub count: u64,
}

/// One attached group of kernel programs and its logs.
pub trait SignalSource: Send {
    /// For logs and `self_stats`.
    fn name(&self) -> &'static str;
    /// What it serves; constant after attach.
    fn coverage(&self) -> Vec<Coverage>;
    /// Every counter of losses that it keeps, also those that are zero.
    fn losses(&self) -> Vec<Loss>;
    /// Writes this signal's sections of `into` for window `into.index`, which is closed. Called once per window, in order.
    fn drain(&mut self, into: &mut Window);
    /// The windows before `first` were lapped: start again there.
    fn skip_to(&mut self, first: WindowIndex);
    /// Maps in which the sampler must keep `clock_control.epoch_offset_ns` current.
    fn set_epoch_offset_ns(&mut self, offset_ns: i64);
    /// Costs nothing from now on, or works again: then [`Self::skip_to`] follows, with the first window that is whole again. False: it
    /// cannot, and can only be given up for good.
    fn rest(&mut self, rests: bool) -> bool {
        let _ = rests;
        false
    }
    /// CPU time that processes beside the agent's own used for it so far.
    fn helper_cpu_ns(&self) -> u64 {
        0
    }
    /// A descriptor that polls readable while drop events wait in the kernel; `None`: this signal sends none.
    fn drop_events_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
    /// Moves the waiting drop events to `into`, oldest first. Called when the descriptor is readable.
    fn take_drop_events(&mut self, into: &mut Vec<ListenDrop>) {
        let _ = into;
    }
}
