//! What is advised on pools, as people, pages and programs hold it: field names are stable within v1, fields may be added.
//! Owns the JSON shape; knows nothing of how a size is found.

use crate::window::Host;
use serde::{Deserialize, Serialize};

/// The advice on every listener that is learnt.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AdviceView {
    /// The first second that anything here was learnt from, Unix ns; `null`: nothing was yet.
    pub learning_since_unix_ns: Option<u64>,
    /// When this was worked out, Unix ns; `null`: it was not yet.
    pub made_unix_ns: Option<u64>,
    /// Why there is nothing, in a sentence; `null`: there is something.
    pub nothing: Option<String>,
    /// Where throughput ends, of each front whose throughput was seen at its end, by front.
    #[serde(default)]
    pub systems: Vec<SystemAdvice>,
    /// Servers that take CPU from another one in the same cgroup, by host and cgroup.
    #[serde(default)]
    pub stealing: Vec<StealingAdvice>,
    /// By tier, host, workload, address and port.
    pub tiers: Vec<TierAdvice>,
    /// Listeners that are not learnt, because there are more than the collector learns.
    pub refused_listeners: u64,
}

/// Where the throughput of a front and all that is behind it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemAdvice {
    /// `apache2@web`: the front's tier, and its host.
    pub front: String,
    /// Seconds in which something was full in three quarters of the windows; the older the less, by half after 300 of them.
    pub seconds: f64,
    /// The one resource that is full, in words; `null`: none, or several by turns or at once.
    pub critical: Option<String>,
    /// Everything that can be full, the one that is most often first.
    pub resources: Vec<ResourceUse>,
    /// What it is short of; `null`: no more was offered than is answered, or it is not known.
    #[serde(default)]
    pub short: Option<Short>,
    /// All of it as a line.
    pub sentence: String,
}

/// A server that has more than its part of the CPU of a cgroup, and another one there that has less, because more of its threads want to run; as it
/// was when it was worst.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StealingAdvice {
    /// Host.
    pub host: Host,
    /// Path of the cgroup whose CPU they share.
    pub cgroup: String,
    /// Who has more.
    pub thief: String,
    /// Who has least of what is due to it.
    pub victim: String,
    /// When it was so last, Unix ns.
    pub seen_unix_ns: u64,
    /// Seconds of full CPUs in which two or more wanted more that were seen by then; the older weigh less, by half after 15 of them.
    pub seconds: f64,
    /// CPUs that they share, the mean of those seconds.
    pub cpus: f64,
    /// Parts of those CPUs, 0 to 1: what the thief has.
    pub thief_ratio: f64,
    /// What the victim has.
    pub victim_ratio: f64,
    /// What is due to the victim: an equal part, or less if it wants less; what others leave goes to those who want more.
    pub due_ratio: f64,
    /// Threads of the thief that ran or wanted to, in the mean.
    pub thief_runnable: f64,
    /// The same of the victim.
    pub victim_runnable: f64,
    /// So many of the thief at a time take nothing.
    pub thief_runnable_max: u32,
    /// What came of it since, as the same shares say: `fixed`, `better` or `unchanged`; `null`: it is so still, or nothing is known.
    pub after: Option<String>,
    /// All of it as a line to act on.
    pub sentence: String,
}

/// How much more is offered at a front than the hardware that ends its throughput answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Short {
    /// Requests a second in its busiest minute, or the busiest hundredth of many: answers, and attempts that came to nothing, each once.
    pub offered_per_second: f64,
    /// The most that the critical tier answers, in requests of the front.
    pub answered_per_second: f64,
    /// Servers of the critical tier that are missing; not whole ones.
    pub servers: f64,
}

/// How much of a tier's hardware was in use in the seconds in which throughput was at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// The tier.
    pub tier: String,
    /// `cpu` or `disk`.
    pub what: String,
    /// Mean use, 0 to 1.
    pub used_ratio: f64,
    /// Part of the windows in which it was full, 0 to 1. The disk is where half of the requests in flight are blocked on block I/O.
    pub full_ratio: f64,
}

/// The advice on one listener of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierAdvice {
    /// `tomcat10@app`: name of the tier, and its host.
    pub tier: String,
    /// Host.
    pub host: Host,
    /// Name of the workload.
    pub workload: String,
    /// Address that it listens on.
    pub address: String,
    /// Port.
    pub port: u16,
    /// Servers of the tier that listen on this port: K.
    pub servers: u32,
    /// Answers of all of them for each answer of the tiers at the front: V. `null`: not known, and throughput is that of this tier's own requests.
    pub visits: Option<f64>,
    /// What limits the requests at a time, in the server's own words; `null`: the server is not recognised.
    pub setting: Option<String>,
    /// Its size now, read from the server's own configuration; `null`: not known. It is never taken to be a default.
    pub limit: Option<u32>,
    /// The key and the file that set it, on the server's machine: `maxThreads in /var/lib/tomcat10/conf/server.xml`.
    #[serde(default)]
    pub limit_set_by: Option<String>,
    /// Seconds of clean traffic that it rests on.
    pub learnt_s: f64,
    /// Most requests in flight that were seen with enough answers; 0: none.
    pub seen_to: f64,
    /// CPU time of one request, s, with its 95 % interval; `null`: not known.
    pub cpu_s_per_request: Option<Range>,
    /// CPUs that the server may use, its quota or its host's; `null`: not known.
    pub cpus: Option<f64>,
    /// `cpu`: it was full in enough of the traffic; `null`: nothing was seen to be.
    pub critical: Option<String>,
    /// Sizes of the pool of each server.
    pub pool: Answer<Pool>,
    /// Requests of the system per second that this tier allows (of its own requests, if `visits` is `null`).
    pub throughput_max: Answer<Range>,
    /// The best number of requests in flight in each server.
    pub in_flight: Answer<Range>,
    /// Part of the best throughput that the advised size costs in the mean of what may be true, 0 to 1.
    pub expected_loss: Answer<f64>,
    /// Part of the best throughput that the size of now costs when all of it is in use, 0 to 1, as far as was seen; `null`: no penalty is known.
    #[serde(default)]
    pub limit_loss: Option<f64>,
    /// Of the advised ones, how many are for connections without a request: of a server whose callers' pools are its limit, those that callers hold between their
    /// calls, at the most; of one whose workers connections hold, those that clients keep. `null`: it is neither, or it is not known.
    #[serde(default)]
    pub held_between_calls: Option<u32>,
    /// `law`, `utilisation`, `plateau`, `mva` or `none`.
    pub model: String,
    /// What it bears of the present load, and of more; `null`: nothing came in the last ten minutes.
    #[serde(default)]
    pub headroom: Option<Headroom>,
    /// What bites before the pool is larger than that, the lowest first.
    #[serde(default)]
    pub ceilings: Vec<Ceiling>,
    /// The last change of its pool, its accept queue or its number of servers, before against after; `null`: none was seen, or nothing before it.
    #[serde(default)]
    pub change: Option<SetUpChange>,
    /// Whether requests in flight are arrivals times response time (Little's law), by both as they were measured; `null`: not known.
    pub little: Option<Little>,
    /// What was not learnt from, most first.
    pub left_out: Vec<LeftOut>,
    /// The curve: one point for each number in flight with an answer.
    pub points: Vec<CurvePoint>,
    /// What a request costs, by the requests in flight among which it was answered.
    #[serde(default)]
    pub costs: Vec<CostPoint>,
    /// All of it as a line to act on.
    pub sentence: String,
}

impl TierAdvice {
    /// `tomcat10@app:8080`: which listener it is about.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}:{}", self.tier, self.port)
    }
}

/// What a server bears of the present load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Headroom {
    /// Answers per second lately: the older the less, by half after ten minutes.
    pub per_second: f64,
    /// Part of its CPUs that these take, 0 to 1; above 1 it cannot. `null`: not known.
    pub cpu_ratio: Option<f64>,
    /// Times this load at which its CPUs are full; `null`: not known.
    pub full_at: Option<f64>,
    /// Requests that find a place: at a time, in the accept queue, and one more; `null`: not known.
    pub places: Option<u32>,
    /// A standstill of it, or of what it waits for, that overflows its accept queue, s; `null`: not known, or `outlasted`.
    pub overflows_after_s: Option<f64>,
    /// Its callers together never have more at a time than it has places.
    pub outlasted: bool,
    /// What the other servers of its tier bear when one is away; `null`: it has no other, or that is not known.
    #[serde(default)]
    pub without_one: Option<WithoutOne>,
}

/// A tier with one server less, in the busiest minute of the last seven days.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WithoutOne {
    /// Servers that are left.
    pub servers: u32,
    /// Requests of the tier per second in that minute, the sum of what each server had in its own busiest one.
    pub per_second: f64,
    /// Days of the seven of which something was seen.
    pub days: u32,
    /// Part of their CPUs that these would take, 0 to 1; above 1 they cannot.
    pub cpu_ratio: f64,
}

/// Requests at a time that something else than the pool lets in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceiling {
    /// `open_files` (of the server's process), `memory` (of its cgroup) or `connections` (that a server takes which it calls).
    pub what: String,
    /// So many in each server.
    pub most: u32,
    /// Files, bytes or connections that are allowed.
    pub limit: u64,
    /// As a part of a sentence.
    pub sentence: String,
}

/// A server before a change of its set-up against after it, at the same loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetUpChange {
    /// When the change was first seen, Unix ns.
    pub at_unix_ns: u64,
    /// What was changed.
    pub sizes: Vec<SizeChange>,
    /// `better`, `worse`, `alike`, `uncertain` or `too_little` (not enough traffic at the same loads yet).
    pub verdict: String,
    /// Time of a request after, for what it was before, with its 99 % interval; `null`: nothing was at the same load.
    pub ratio: Option<Range>,
    /// What a request took here before, s, waiting in the accept queue included; `null`: nothing was at the same load.
    pub before_s: Option<f64>,
    /// After.
    pub after_s: Option<f64>,
    /// The loads that are compared, requests of the tier per second: from …
    pub load_from: Option<f64>,
    /// … to.
    pub load_to: Option<f64>,
    /// Seconds at the same loads, of the side that has fewer.
    pub common_s: f64,
    /// So many are needed for a verdict.
    pub needed_s: f64,
    /// Clean seconds before, and packets that were dropped in them.
    pub seconds_before: f64,
    /// Packets that were dropped in those.
    pub drops_before: f64,
    /// Clean seconds since.
    pub seconds_after: f64,
    /// Packets that were dropped in those.
    pub drops_after: f64,
    /// All of it as a line, with what to restore if it is worse.
    pub sentence: String,
}

/// One size that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeChange {
    /// `pool`, `backlog` or `servers`.
    pub what: String,
    /// It was.
    pub from: u32,
    /// It is.
    pub to: u32,
}

/// A number with its class, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer<T> {
    /// Said.
    Told {
        /// `measured`, `plateau` or `extrapolated`.
        class: String,
        /// The number.
        value: T,
    },
    /// Not said.
    Refused {
        /// Why, for programs.
        refused: Reason,
        /// Why, as a sentence.
        why: String,
    },
}

impl<T> Answer<T> {
    /// The number, if it is told.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Told { value, .. } => Some(value),
            Self::Refused { .. } => None,
        }
    }

    /// Its class, or `refused`.
    #[must_use]
    pub fn class(&self) -> &str {
        match self {
            Self::Told { class, .. } => class,
            Self::Refused { .. } => "refused",
        }
    }
}

/// Why there is no number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A name such as `not_saturated`.
    pub reason: String,
}

/// Sizes of one server's pool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The size to set.
    pub advised: u32,
    /// Fewer cost throughput.
    pub at_least: u32,
    /// More cost throughput; `null`: no penalty was seen as far as `seen_to`.
    pub at_most: Option<u32>,
    /// Most requests in flight for which there is evidence.
    pub seen_to: f64,
}

/// A number with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The number.
    pub value: f64,
    /// 2.5 % quantile.
    pub low: f64,
    /// 97.5 % quantile.
    pub high: f64,
}

/// Little's law over what was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Little {
    /// Mean requests in flight here.
    pub in_flight: f64,
    /// The same by whoever calls: its answers per second times what they took.
    pub by_callers: f64,
    /// Whether the two agree within a tenth.
    pub holds: bool,
}

/// Seconds that were left out for one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// A name such as `downstream`.
    pub taint: String,
    /// Seconds.
    pub seconds: f64,
}

/// One number in flight, and what was answered with so many.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Requests in flight.
    pub in_flight: f64,
    /// Answers per second.
    pub throughput: f64,
    /// Its standard error.
    pub error: f64,
}

/// CPU time of a request among so many.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CostPoint {
    /// Requests in flight.
    pub in_flight: f64,
    /// CPU time of a request, s.
    pub cpu_s: f64,
    /// Its standard error, s.
    pub error_s: f64,
}
