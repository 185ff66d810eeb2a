//! What a signal that others' monitoring gets is: name, unit, source, how it is read from a window, and how values become one. The
//! signals themselves are in `table`. Knows no label, no text and no receiver.

mod table;

pub use table::SIGNALS;

use tailwater_model::window::{
    Coverage, DeviceWindow, EdgeWindow, HostCpu, HostWindow, ListenerWindow, WorkloadWindow,
};

/// What a signal is of; decides its labels besides `host`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// No further label.
    Host,
    /// `workload`, `tier`.
    Workload,
    /// `workload`, `tier`, `listener`.
    Listener,
    /// `workload`, `tier`, `remote`.
    Call,
    /// `device`.
    Device,
}

/// All of them.
pub const LEVELS: [Level; 5] = [Level::Host, Level::Workload, Level::Listener, Level::Call, Level::Device];

/// How it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A gauge with label `agg`: `max`, `mean` and `p90` of the second's windows; `window`: one window itself.
    Level,
    /// A counter; of one window, the increase as gauge `…_delta`.
    Counter,
    /// A limit: a gauge that keeps its value until the agent says another.
    Limit,
}

/// How the values of several entities, or answers, become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// They are added; an entity of which nothing was heard in a window that is there did nothing: 0.
    Sum,
    /// Numerators over denominators; without a denominator there is no value.
    Quotient,
    /// The highest; without any there is no value.
    Highest,
}

impl Combine {
    /// `before` and one more.
    #[must_use]
    pub fn with(self, before: (f64, f64), (over, under): (f64, f64)) -> (f64, f64) {
        match self {
            Self::Sum => (before.0 + over, 1.0),
            Self::Quotient => (before.0 + over, before.1 + under),
            Self::Highest => (before.0.max(over), 1.0),
        }
    }
}

/// Numerator and denominator of one entity in one window; `None`: there is no value.
type Parts = Option<(f64, f64)>;

/// How to read a window of one level.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "one per level")]
pub enum Read {
    Host(fn(&HostCpu) -> Parts),
    /// With the CPU ns that the workload may use in a window.
    Workload(fn(&WorkloadWindow, f64) -> Parts),
    /// What is also told of a server that shares its cgroup with others.
    Server(fn(&WorkloadWindow) -> Parts),
    Listener(fn(&ListenerWindow) -> Parts),
    Call(fn(&EdgeWindow) -> Parts),
    Device(fn(&DeviceWindow) -> Parts),
}

/// One entity's values in one window.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "one per level")]
pub enum Seen<'a> {
    Host(&'a HostCpu),
    Workload(&'a WorkloadWindow, f64),
    /// A server that shares its cgroup: CPU, I/O and memory are told of that.
    Server(&'a WorkloadWindow),
    Listener(&'a ListenerWindow),
    Call(&'a EdgeWindow),
    Device(&'a DeviceWindow),
}

impl Read {
    /// The level it reads.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Self::Host(_) => Level::Host,
            Self::Workload(_) | Self::Server(_) => Level::Workload,
            Self::Listener(_) => Level::Listener,
            Self::Call(_) => Level::Call,
            Self::Device(_) => Level::Device,
        }
    }
    /// Reads `seen`, if it is of the same level.
    #[must_use]
    pub fn of(&self, seen: Seen<'_>) -> Parts {
        match (self, seen) {
            (Self::Host(f), Seen::Host(w)) => f(w),
            (Self::Workload(f), Seen::Workload(w, capacity_ns)) => f(w, capacity_ns),
            (Self::Server(f), Seen::Workload(w, _) | Seen::Server(w)) => f(w),
            (Self::Listener(f), Seen::Listener(w)) => f(w),
            (Self::Call(f), Seen::Call(w)) => f(w),
            (Self::Device(f), Seen::Device(w)) => f(w),
            _ => None,
        }
    }
}

/// One signal.
#[derive(Debug)]
pub struct Signal {
    /// Without `tailwater_` and without what its form appends.
    pub name: &'static str,
    /// Unit, for the documentation.
    pub unit: &'static str,
    /// Help text.
    pub about: &'static str,
    /// Where the agent has it from.
    pub source: &'static str,
    /// How it is told.
    pub form: Form,
    /// Its value in one window: the highest, if it has a highest.
    pub read: Read,
    /// Its time-weighted mean in one window, where that is another value.
    pub mean: Option<Read>,
    /// How several values become one.
    pub combine: Combine,
    /// A label of its own.
    pub label: Option<(&'static str, &'static str)>,
    /// Whether an agent with this coverage measures it. What is not measured is not told.
    pub covered: fn(&Coverage) -> bool,
}

impl Signal {
    /// With what its form appends.
    #[must_use]
    pub fn exposed_name(&self) -> String {
        let total = if self.form == Form::Counter { "_total" } else { "" };
        format!("tailwater_{}{total}", self.name)
    }
}

/// Calls `take` with every entity of a window, its level and its id.
pub fn each(window: &HostWindow, mut take: impl FnMut(Level, u32, Seen<'_>)) {
    if let Some(cpu) = &window.cpu {
        take(Level::Host, 0, Seen::Host(cpu));
    }
    // The capacity is filled in by whoever knows quotas.
    let capacity_ns = window.cpu.map_or(0.0, |cpu| cpu.capacity_ns as f64);
    window.workloads.iter().for_each(|(id, w)| take(Level::Workload, *id, Seen::Workload(w, capacity_ns)));
    window.listeners.iter().for_each(|(id, w)| take(Level::Listener, *id, Seen::Listener(w)));
    window.edges.iter().for_each(|(id, w)| take(Level::Call, *id, Seen::Call(w)));
    window.devices.iter().for_each(|(id, w)| take(Level::Device, *id, Seen::Device(w)));
}
