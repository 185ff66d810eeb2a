//! The incident as users and other programs hold it: field names are stable within v1, fields may be added.
//! Owns the JSON shape; knows nothing of how an incident is found.

mod code;
mod drops;
mod exemplar;
mod hop;
mod identity;
mod which;

pub use crate::address::socket;
use crate::place::{Place, place};
use crate::window::Host;
pub use code::Code;
pub use drops::{Client, DropReason, Drops, Sustained, SustainedBy, VeryLongKinds, Vlrt};
pub use exemplar::{CallLeg, Exemplar, Spent};
pub use hop::{Hop, HopCongestion, HopLife, HopNow, Order, Role, VeryLong};
pub use identity::identity;
use serde::{Deserialize, Serialize};
pub use which::Which;

/// One cause and what it did, from the first sign to the last drop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// 26 characters, Crockford base32: time of the first drop's window, then a hash of the listener. See [`identity()`].
    pub id: String,
    /// 0: early alert, from a drop notice; 1 and up: from windows, rising with every material change.
    pub version: u64,
    /// Whether it may still grow.
    pub state: State,
    /// What happened.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// 0 to 1: in how many of such verdicts place and resource of the root are right, as recordings with known truth taught. Where nothing is
    /// learnt (no weights in this version; nothing explains it, a flood, an early alert) a number by rule that only orders. How it was formed is
    /// in `root.evidence`.
    pub confidence: f64,
    /// One sentence.
    pub title: String,
    /// First sign: onset of the root or of the first queue.
    pub start_unix_ns: u64,
    /// End of the last window that belongs to it.
    pub end_unix_ns: u64,
    /// Largest bound of clock error among the hosts involved.
    pub clock_error_ns: u64,
    /// Clocks cannot tell whether the root or the first tier of the chain was first; the flow of requests decided.
    #[serde(default)]
    pub order_unknown: bool,
    /// Where and what the cause is.
    pub root: Root,
    /// The tiers from the first drop to the root.
    pub hops: Vec<Hop>,
    /// What listeners dropped.
    pub drops: Vec<Drops>,
    /// Requests that took a second or longer.
    pub vlrt: Vlrt,
    /// What keeps the drops alive now that the root is over; `null`: the root itself, or nothing.
    #[serde(default)]
    pub sustained: Option<Sustained>,
    /// Other roots that fit, best first.
    pub alternatives: Vec<Alternative>,
    /// Further causes that filled the same queue at the same time, the one with the largest part first: neither alone would have filled it so soon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Also>,
    /// What whoever is on call can do about it, in one sentence without its full stop; none where nothing is known to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub do_now: Option<String>,
    /// What spoke against the root, in clauses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<String>,
    /// What else happened on its way around its onset, in clauses: it may have had a part in it, and is not said to be the cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// The numbers that `confidence` is learnt of, those that are not 0; none where there is nothing to learn, as of what is unexplained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<Number>,
}

/// Functions that are told of a place in code where an incident is told briefly.
const BRIEF_FRAMES: usize = 12;

impl Incident {
    /// Without all but the slowest request of each tier, and all but the first place in its code with the innermost functions: as it is pushed, listed and sent. Whoever asks for it by its id has them all.
    #[must_use]
    pub fn brief(&self) -> Self {
        let mut brief = self.clone();
        for hop in &mut brief.hops {
            hop.slowest.truncate(1);
            hop.slowest.shrink_to_fit();
        }
        brief.root.code.truncate(1);
        for code in &mut brief.root.code {
            code.cut |= code.frames.len() > BRIEF_FRAMES;
            code.frames.truncate(BRIEF_FRAMES);
        }
        brief
    }
}

/// Whether an incident may still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum State {
    Open,
    Closed,
}

/// What happened, in the terms of the CTQO literature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A tier upstream of the root dropped.
    UpstreamCtqo,
    /// The root's tier dropped while an upstream kept sending, or a tier downstream of the root did.
    DownstreamCtqo,
    /// The root's tier dropped and no observed tier calls it.
    LocalOverflow,
    /// A queue grew for 50 ms to 2 s; nothing dropped.
    Millibottleneck,
    /// The root lasted longer than 2 s.
    PersistentBottleneck,
    /// Drops with no growth of accepted requests.
    SynFlood,
    /// A queue came close to its limit; nothing dropped.
    NearOverflow,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::UpstreamCtqo,
        Self::DownstreamCtqo,
        Self::LocalOverflow,
        Self::Millibottleneck,
        Self::PersistentBottleneck,
        Self::SynFlood,
        Self::NearOverflow,
    ];

    /// The JSON name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UpstreamCtqo => "upstream_ctqo",
            Self::DownstreamCtqo => "downstream_ctqo",
            Self::LocalOverflow => "local_overflow",
            Self::Millibottleneck => "millibottleneck",
            Self::PersistentBottleneck => "persistent_bottleneck",
            Self::SynFlood => "syn_flood",
            Self::NearOverflow => "near_overflow",
        }
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A queue felt it.
    Info,
    /// A queue nearly overflowed.
    Warning,
    /// Connections were dropped.
    Critical,
}

impl Severity {
    /// The JSON name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// The resource at the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// The workload's own load took all the CPU it may use.
    Cpu,
    /// Another workload took it.
    CpuNeighbour,
    /// The quota took it.
    CpuThrottled,
    /// Something outside this host or scope took it.
    CpuSteal,
    /// Tasks waited for block I/O.
    Io,
    /// Tasks waited for memory.
    Memory,
    /// Requests were taken on and not answered, and no resource was used.
    Lock,
    /// The tier stopped altogether.
    Pause,
    /// The thread that serves all its connections did not come back to its wait for events.
    EventLoop,
    /// Its requests waited for a server of names, which did not answer.
    Dns,
    /// Its calls waited for packets that were lost on the way.
    Network,
    /// More requests came than ever.
    Burst,
    /// Nothing measured explains it.
    Unexplained,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Cpu,
        Self::CpuNeighbour,
        Self::CpuThrottled,
        Self::CpuSteal,
        Self::Io,
        Self::Memory,
        Self::Lock,
        Self::Pause,
        Self::EventLoop,
        Self::Dns,
        Self::Network,
        Self::Burst,
        Self::Unexplained,
    ];

    /// The JSON name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CpuNeighbour => "cpu_neighbour",
            Self::CpuThrottled => "cpu_throttled",
            Self::CpuSteal => "cpu_steal",
            Self::Io => "io",
            Self::Memory => "memory",
            Self::Lock => "lock",
            Self::Pause => "pause",
            Self::EventLoop => "event_loop",
            Self::Dns => "dns",
            Self::Network => "network",
            Self::Burst => "burst",
            Self::Unexplained => "unexplained",
        }
    }
}

/// Where and what a cause is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// Host, or the address of an unobserved one.
    pub host: Host,
    /// Name of the workload; empty for an unobserved host.
    pub workload: String,
    /// Name of its tier.
    pub tier: String,
    /// The resource.
    pub resource: Resource,
    /// Onset, to the window.
    pub start_unix_ns: u64,
    /// End, to the window; the last window seen while it lasts.
    pub end_unix_ns: u64,
    /// Worst window, in `unit`.
    pub peak: f64,
    /// `ratio`: of capacity, or of the recent rate for a burst; `tasks`: mean number of tasks that waited; `threads`:
    /// that were stopped; `ms`: for which an event loop was blocked, or a lookup of a name waited; `segments`: that were sent again.
    pub unit: String,
    /// Who used the resource, most first.
    pub culprits: Vec<Culprit>,
    /// The event loop that was blocked; of other resources there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_loop: Option<EventLoop>,
    /// The server of names that did not answer; of other resources there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookups: Option<Lookups>,
    /// The other end of calls whose packets were lost; of other resources there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostPackets>,
    /// What the database said of its locks; `None`: it is none that is asked, or waited for nothing of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<Locks>,
    /// The lock inside of the server that its threads waited for; `None`: nobody looked, or they waited for none that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<ThreadLock>,
    /// How many servers do the same for the same callers, and how many of them stood with it; `None`: it is the only one, or that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    /// What a burst used up first, as what prevents the next one depends on it; of other resources, and where nothing measured was used up, there
    /// is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturated: Option<Saturated>,
    /// Where in their code those who used the resource ran, or the threads of its tier waited: up to three places, that with most samples first.
    /// Empty: nobody looked, too little was seen, or it says nothing of this resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<Code>,
    /// Why this is the root, and how confidence was formed.
    pub evidence: String,
}

impl Root {
    /// Where it is.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        place(&self.workload, &self.host)
    }
}

/// Calls that waited because packets of theirs were lost between the two ends, by what both hosts saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostPackets {
    /// Host, workload and tier of the other end.
    pub host: Host,
    /// Its workload.
    pub workload: String,
    /// Its tier.
    pub tier: String,
    /// Most calls at once that waited for it and that it did not hold, beyond the usual ones.
    pub calls: u32,
    /// Segments to it, SYNs among them, that were sent again meanwhile.
    pub resent: u64,
}

impl LostPackets {
    /// How much was lost, in words, without either end.
    #[must_use]
    pub fn told(&self) -> String {
        let calls = if self.calls == 1 { "call" } else { "calls" };
        format!(
            "{} {calls} waited that the other end did not have, and {} segments were sent again",
            self.calls, self.resent
        )
    }
}

/// Lookups of names (DNS) that had no answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lookups {
    /// The address of the server that was asked, at port 53.
    pub server: String,
    /// Most of them that waited at the end of one window.
    pub lookups: u32,
    /// How long the longest of them had waited, ms.
    pub longest_ms: u64,
    /// Where that server is on the host itself: whom another workload of it waited for at the same time, as a resolver does that asks on; `None`:
    /// nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_on: Option<AskedOn>,
}

impl Lookups {
    /// Whether that server is on the host of whoever asks: the same address on another host is another one.
    #[must_use]
    pub fn is_of_host(&self) -> bool {
        self.server.parse().is_ok_and(|server: std::net::IpAddr| server.is_loopback())
    }

    /// In words, as a clause without its subject.
    #[must_use]
    pub fn told(&self) -> String {
        let on = self
            .asked_on
            .as_ref()
            .map_or_else(String::new, |on| format!(", while {} waited for {}", on.workload, on.server));
        let what = if self.lookups == 1 { "lookup" } else { "lookups" };
        format!(
            "{} {what} waited up to {} ms for the server of names {}{on}",
            self.lookups, self.longest_ms, self.server
        )
    }
}

/// A resolver on the host that asks a server of names on behalf of others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedOn {
    /// Its workload.
    pub workload: String,
    /// The address of the server that it asked.
    pub server: String,
}

/// An event loop that did not come back to its wait for events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventLoop {
    /// Its thread's id.
    pub thread: u32,
    /// Its thread's name.
    pub comm: String,
    /// How long it read nothing while requests waited, ms.
    pub blocked_ms: u64,
    /// Part of that time that it ran, 0 to 1.
    pub ran_ratio: f64,
    /// The kernel's function that it was found asleep in; empty: it mostly ran.
    pub slept_in: String,
}

/// What a database said of its locks while it answered nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// When it was asked, to the window.
    pub asked_unix_ns: u64,
    /// Sessions that waited for a lock; 0: it was asked too late, or they waited for something else.
    pub waiting: u32,
    /// Who held it; `null`: nobody, or it does not say.
    pub holder: Option<LockHolder>,
}

/// A session of a database that held a lock and waited for none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Its number, as the database has it.
    pub connection: u64,
    /// Sessions that waited for it.
    pub waiting: u32,
    /// It had a transaction open and asked nothing.
    pub idle: bool,
    /// For how long that had been open, ms; `null`: the database does not say.
    pub held_ms: Option<u64>,
    /// What it asked, or had asked last, without values; empty: the database does not say.
    pub statement: String,
}

impl Locks {
    /// In a clause.
    #[must_use]
    pub fn told(&self) -> String {
        let Some(by) = &self.holder else {
            return match self.waiting {
                0 => "asked for its locks, it said that nobody waited for one (any more)".to_owned(),
                n => format!("{n} of its sessions waited for locks, and it does not say whose"),
            };
        };
        let since = by.held_ms.map_or_else(String::new, |ms| format!(", in a transaction of {ms} ms,"));
        let does = match (by.idle, by.statement.as_str()) {
            (true, "") => "asked nothing meanwhile".to_owned(),
            (true, last) => format!("asked nothing after `{last}`"),
            (false, "") => "was at work".to_owned(),
            (false, statement) => format!("ran `{statement}`"),
        };
        format!("{} of its sessions waited for connection {}, which{since} {does}", by.waiting, by.connection)
    }
}

/// A lock inside of a server that its threads waited for while it answered nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLock {
    /// When that was looked at, to the window.
    pub looked_unix_ns: u64,
    /// So many threads waited for it, …
    pub waiting: u32,
    /// … of so many that the process had.
    pub threads: u32,
    /// Which of them held it; `null`: the lock does not say, or not one of them.
    pub holder: Option<LockThread>,
}

/// A thread that held a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockThread {
    /// Its id.
    pub thread: u32,
    /// Its name.
    pub comm: String,
    /// It ran, or wanted to.
    pub ran: bool,
    /// The kernel's function that it slept in; empty: it ran, or that may not be known.
    pub slept_in: String,
}

impl ThreadLock {
    /// In a clause.
    #[must_use]
    pub fn told(&self) -> String {
        let waited = format!("{} of its {} threads waited for one mutex", self.waiting, self.threads);
        let Some(by) = &self.holder else {
            return format!("{waited}; who held it is not known");
        };
        let did = match (by.ran, by.slept_in.as_str()) {
            (true, _) => "was running".to_owned(),
            (false, "") => "slept".to_owned(),
            (false, function) => format!("slept in `{function}`"),
        };
        format!("{waited}; thread `{}` ({}) held it and {did}", by.comm, by.thread)
    }
}

/// Servers of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// How many there are.
    pub members: u32,
    /// Of how many the queue grew at least half as much as that of this one, with this one.
    pub hit: u32,
}

/// A tier that was sent more than its CPU can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saturated {
    /// Its host.
    pub host: Host,
    /// Name of its workload.
    pub workload: String,
    /// Its name.
    pub tier: String,
    /// What it used up: `cpu` or `cpu_throttled`.
    pub resource: Resource,
    /// Since when, to the window.
    pub start_unix_ns: u64,
}

/// A user of a saturated resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Process; 0: the whole workload.
    pub pid: u32,
    /// Its command.
    pub comm: String,
    /// Name of its workload.
    pub workload: String,
    /// Its part of what all used, 0 to 1.
    pub share: f64,
}

/// One number that the confidence in a root is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Number {
    /// What it is of; docs/incidents.md says what each means.
    pub name: String,
    /// 0 to 1.
    pub value: f64,
    /// What it adds to the logarithm of the odds that the root is right, against a verdict whose value is the usual one; below 0 it speaks
    /// against the root. 0 while no weights are learnt.
    pub adds: f64,
}

/// A further cause of the same overflow, in another branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Also {
    /// It.
    pub root: Root,
    /// The part of what waited, where both branches part, that waited for it, 0 to 1.
    pub share: f64,
}

/// Another root that fits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The root.
    pub root: Root,
    /// Always below the incident's. Where that is learnt also no more than what it leaves: this can be right only where the incident's root is
    /// wrong.
    pub confidence: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    fn read<'a, T: Deserialize<'a>>(name: &'a str) -> T {
        let name: StrDeserializer<'a, Error> = name.into_deserializer();
        T::deserialize(name).unwrap()
    }

    #[test]
    fn names_are_those_of_the_json() {
        for kind in Kind::ALL {
            assert_eq!(read::<Kind>(kind.name()), kind);
        }
        for resource in Resource::ALL {
            assert_eq!(read::<Resource>(resource.name()), resource);
        }
        assert_eq!(read::<SustainedBy>(SustainedBy::Retries.name()), SustainedBy::Retries);
    }
}
