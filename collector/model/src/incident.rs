//! The incident as users and other programs hold it: field names are stable within v1, fields may be added.
//! Owns the JSON shape and the identity; knows nothing of how an incident is found.

use crate::congestion::CongestionState;
use crate::window::{Host, WindowIndex};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// One cause and what it did, from the first sign to the last drop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// 26 characters, Crockford base32: time of the first drop's window, then a hash of the listener. See [`identity`].
    pub id: String,
    /// 0: early alert, from a drop notice; 1 and up: from windows, rising with every material change.
    pub version: u64,
    /// Whether it may still grow.
    pub state: State,
    /// What happened.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// 0 to 1; the rule is in `root.evidence`.
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
    /// Requests that became very long by retransmission.
    pub vlrt: Vlrt,
    /// What keeps the drops alive now that the root is over; `null`: the root itself, or nothing.
    #[serde(default)]
    pub sustained: Option<Sustained>,
    /// Other roots that fit, best first.
    pub alternatives: Vec<Alternative>,
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
    /// More requests came than ever.
    Burst,
    /// Nothing measured explains it.
    Unexplained,
}

impl Resource {
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
    /// that were stopped.
    pub unit: String,
    /// Who used the resource, most first.
    pub culprits: Vec<Culprit>,
    /// Why this is the root, and how confidence was formed.
    pub evidence: String,
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
    /// Its newest window; `null`: none came yet.
    pub now: Option<HopNow>,
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

/// Why a listener dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The accept queue was at its limit.
    AcceptQueueFull,
    /// It was not, and handshakes were not completed.
    SynQueueFull,
    /// Neither is evident.
    Other,
}

/// What one listener dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drops {
    /// Host.
    pub host: Host,
    /// Name of the workload.
    pub workload: String,
    /// Name of its tier.
    pub tier: String,
    /// `address:port`.
    pub listener: String,
    /// Packets that the kernel dropped, each once: of this listener what `ListenDrops` counts of its network namespace.
    pub count: u64,
    /// The same as the socket's own counter has it (`sk_drops`, without what a listener discards in good health): a dropped last ACK of a
    /// handshake is twice in it, unless it answered a SYN cookie. `null`: an incident of before.
    #[serde(default)]
    pub sk_drops: Option<u64>,
    /// Estimate of the distinct connection attempts behind them. Its measured error is in the documentation of incidents.
    pub connections: u64,
    /// Why.
    pub reason: DropReason,
    /// Start of the first window with a drop.
    pub first_unix_ns: u64,
    /// End of the last one.
    pub last_unix_ns: u64,
}

/// Requests that became very long by retransmission.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Vlrt {
    /// SYNs that observed clients sent again; `null`: no client of the dropping listeners is observed.
    pub syn_retransmits: Option<u64>,
    /// Estimate of the connection attempts that had to wait for a second or longer: their SYN was dropped, or their last ACK for so long.
    pub expected: u64,
    /// Observed clients that did.
    pub clients: Vec<Client>,
}

/// What keeps drops alive after their root is over: a metastable failure (Bronson et al., HotOS '21; Huang et al., OSDI '22). The root is
/// the trigger, this is the sustaining effect; removing the trigger does not end it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sustained {
    /// By what.
    pub by: SustainedBy,
    /// Since when the root is over and drops go on.
    pub since_unix_ns: u64,
    /// When the last drop of that was.
    pub until_unix_ns: u64,
    /// Part of the connection attempts that had been dropped before and came again, 0 to 1.
    pub retry_share: f64,
    /// Connection attempts a second, with those that came again.
    pub attempts_per_second: f64,
    /// Of those, first attempts: what clients really ask for.
    pub first_attempts_per_second: f64,
    /// Answers a second meanwhile.
    pub capacity_per_second: f64,
    /// First attempts a second before it began, which were all served; `null`: not known.
    pub usual_per_second: Option<f64>,
    /// `host`, `workload` and `address:port` of the listener that is kept full.
    pub host: Host,
    /// Name of its workload.
    pub workload: String,
    /// `address:port`.
    pub listener: String,
    /// Its accept queue would have to hold so many for all that come again to fit.
    pub queue_needed: u64,
    /// Below so many requests a second …
    pub load_below_per_second: f64,
    /// … for so long, it ends.
    pub load_below_for_s: u64,
    /// The way out in a sentence.
    pub way_out: String,
    /// The numbers above in a sentence.
    pub evidence: String,
}

/// What keeps drops alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SustainedBy {
    /// Clients that come again keep the queue full.
    Retries,
}

impl SustainedBy {
    /// The JSON name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Retries => "retries",
        }
    }
}

/// An observed client of a dropping listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// An address of its host, else the host's name.
    pub address: String,
    /// SYNs sent again.
    pub count: u64,
}

/// Another root that fits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The root.
    pub root: Root,
    /// Always below the incident's.
    pub confidence: f64,
}

/// The id of an incident that a window opened at a listener: 48 bits of milliseconds (the window's start), then 64 bits of
/// FNV-1a over host and listener and 16 zero bits, as 26 characters of Crockford base32 like a ULID. A drop notice and the window that
/// confirms it give the same id.
#[must_use]
pub fn identity(window: WindowIndex, host: &str, address: IpAddr, port: u16) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let ms = (window.start_unix_ns() / 1_000_000) & ((1 << 48) - 1);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in format!("{host}|{}", socket(address, port)).bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let bits = (u128::from(ms) << 80) | (u128::from(hash) << 16);
    (0..26).rev().map(|i| char::from(ALPHABET[((bits >> (5 * i)) & 31) as usize])).collect()
}

/// `address:port`, IPv4-mapped addresses as IPv4, IPv6 in brackets.
#[must_use]
pub fn socket(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address.to_canonical(), port).to_string()
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
        for kind in [
            Kind::UpstreamCtqo,
            Kind::DownstreamCtqo,
            Kind::LocalOverflow,
            Kind::Millibottleneck,
            Kind::PersistentBottleneck,
            Kind::SynFlood,
            Kind::NearOverflow,
        ] {
            assert_eq!(read::<Kind>(kind.name()), kind);
        }
        assert_eq!(read::<SustainedBy>(SustainedBy::Retries.name()), SustainedBy::Retries);
    }

    #[test]
    fn an_id_sorts_by_time_and_tells_listeners_apart() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let id = identity(WindowIndex(34_000_000_000), "web-1", address, 80);
        assert_eq!(id.len(), 26);
        assert_eq!(
            id,
            identity(WindowIndex(34_000_000_000), "web-1", mapped, 80),
            "one listener, two spellings"
        );
        assert!(id < identity(WindowIndex(34_000_000_001), "web-1", address, 80));
        assert_ne!(id, identity(WindowIndex(34_000_000_000), "web-1", address, 81));
        assert_ne!(id, identity(WindowIndex(34_000_000_000), "web-2", address, 80));
        assert_eq!(identity(WindowIndex(u64::MAX), "", address, 0).len(), 26);
    }
}
