//! A tier on the way from drop to root, as it is told. Owns the JSON shape of a hop; knows no root and no drops.

use super::exemplar::Exemplar;
use crate::congestion::CongestionState;
use crate::place::{Place, place};
use crate::window::Host;
use serde::{Deserialize, Serialize};

/// What a tier is in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Holds the cause (and may drop itself).
    Root,
    /// Waited for the tier below and passed the wait up.
    Pushback,
    /// Sent on what it had stored.
    Batch,
    /// Dropped.
    Drop,
}

/// Which of two onsets came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Before the root's.
    Before,
    /// After the root's.
    After,
    /// The two are closer than a window and the bound of clock error: only the flow of requests tells.
    Unknown,
}

/// A tier on the way from drop to root, with its worst values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// Host, or the address of an unobserved one.
    pub host: Host,
    /// Name of the workload.
    pub workload: String,
    /// Name of its tier.
    pub tier: String,
    /// `address:port`.
    pub listener: String,
    /// What it is in the chain.
    pub role: Role,
    /// Whether an agent sees it. If not, `queued_max` are the calls to it that its observed caller had in flight.
    #[serde(default = "yes")]
    pub observed: bool,
    /// Its agent does not measure requests there: those numbers are not known, and its queue is its accept queue. Left out if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requests_unknown: bool,
    /// Its connections carry several exchanges at once (HTTP/2, gRPC, WebSocket): requests and those who work at them are not known, and its queue
    /// is its accept queue and the pieces of data that came on connections since these last spoke. Left out if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connections_only: bool,
    /// When its queue began to grow, to the window.
    pub onset_unix_ns: u64,
    /// How that stands to the root's onset by the clocks alone; `null`: it is the root, or no clock of it is known.
    #[serde(default)]
    pub order_to_root: Option<Order>,
    /// Requests in the tier: in flight, unread and in the accept queue.
    pub queued_max: u64,
    /// Most threads with a request at once.
    pub workers_busy_max: u32,
    /// Configured, or learned from a plateau; `null`: not known, or event-driven.
    pub workers_limit: Option<u32>,
    /// Deepest accept queue.
    pub accept_queue_max: u32,
    /// `min(backlog, somaxconn)`; the kernel holds one more. `null`: not seen.
    pub accept_queue_limit: Option<u32>,
    /// Most calls in flight to the next tier below in this chain, else to the busiest one; `null`: it calls nobody.
    pub pool_in_flight_max: Option<u32>,
    /// Connections open to it.
    pub pool_open: Option<u32>,
    /// Its load against its congestion point; `null`: no curve is kept of it.
    pub congestion: Option<HopCongestion>,
    /// The same over the whole life of the incident, where the values above are those of its onset; `null`: nobody observes the tier,
    /// or the incident is of an older collector.
    #[serde(default)]
    pub life: Option<HopLife>,
    /// Its slowest requests of the incident, slowest first, at most 20. None where nothing took 200 ms, or its agent tells of none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowest: Vec<Exemplar>,
}

impl Hop {
    /// Where it is.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        place(&self.workload, &self.host)
    }
}

/// A tier from its onset to the newest window of its incident, hours if need be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopLife {
    /// Start of the first window that is counted.
    pub start_unix_ns: u64,
    /// End of the last one.
    pub end_unix_ns: u64,
    /// Windows in between that did not come: what happened in them is in none of the numbers.
    pub windows_missing: u64,
    /// Most requests in the tier.
    pub queued_max: u64,
    /// Most threads with a request at once.
    pub workers_busy_max: u32,
    /// Deepest accept queue.
    pub accept_queue_max: u32,
    /// Requests read.
    pub received: u64,
    /// Requests answered.
    pub answered: u64,
    /// Packets dropped by all its listeners.
    pub dropped: u64,
    /// Of the answered, also of before, those that took a second or longer, by where most of that time went; `null`: its agent does not count them.
    #[serde(default)]
    pub very_long: Option<VeryLong>,
    /// Its newest window; `null`: none came yet.
    pub now: Option<HopNow>,
}

/// Answers of a tier of which something was written a second or more after the first byte of the request, by where most of that time went. What
/// waits for a thread inside of the server, once it is read, cannot be told from what is worked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VeryLong {
    /// Before the connection was there: its last ACK was dropped.
    pub retried: u64,
    /// Nobody had read it, since before the connection was accepted.
    pub queued: u64,
    /// Nobody had read it, on an accepted connection.
    pub unread: u64,
    /// It had been read.
    pub inside: u64,
}

impl VeryLong {
    /// With those of another listener, or window.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Of each kind what `of` makes of this one's number and the other's.
    #[must_use]
    pub fn with(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            retried: of(self.retried, other.retried),
            queued: of(self.queued, other.queued),
            unread: of(self.unread, other.unread),
            inside: of(self.inside, other.inside),
        }
    }
}

/// A tier in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopNow {
    /// When the window began.
    pub start_unix_ns: u64,
    /// Most requests in the tier.
    pub queued: u64,
    /// Most threads with a request at once.
    pub workers_busy: u32,
    /// Deepest accept queue.
    pub accept_queue: u32,
}

/// Where a hop was on its curve of load (mean queued requests in 50 ms) against throughput (answers in 50 ms).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HopCongestion {
    /// Whether the congestion point is known.
    pub state: CongestionState,
    /// N*: queued requests beyond which more of them bring no more throughput; `null`: not known.
    pub congestion_point: Option<f64>,
    /// Answers per window at N*; `null`: not known.
    pub throughput_usual: Option<f64>,
    /// How much the curve has to go by, 0 to 1.
    pub coverage: f64,
    /// Largest load of a window in the incident.
    pub load_max: f64,
    /// Mean answers per window from this tier's onset to the incident's first drop, or to its fullest window.
    pub throughput: f64,
    /// Windows of the incident with more load than N*; `null`: N* is not known.
    pub windows_beyond: Option<u32>,
    /// Those of them with throughput near zero: the server stood still; `null`: N* is not known.
    pub windows_frozen: Option<u32>,
}

fn yes() -> bool {
    true
}
