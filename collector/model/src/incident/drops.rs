//! What listeners dropped, whom it made wait, and what keeps it going, as it is told. Owns the JSON shape of that; knows no root and no
//! hops.

use crate::place::{Place, place};
use crate::window::Host;
use serde::{Deserialize, Serialize};

/// Why a listener dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The accept queue was at its limit.
    AcceptQueueFull,
    /// It was not, and handshakes were not completed.
    SynQueueFull,
    /// The accept queue of a Unix socket was at its limit: whoever wanted to connect was told so at once, and is not let in later.
    Refused,
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
    /// `address:port`, or the path of a Unix socket.
    pub listener: String,
    /// Packets that the kernel dropped, each once: of this listener what `ListenDrops` counts of its network namespace. Of a Unix socket the
    /// connections that it refused.
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

impl Drops {
    /// Where the listener is.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        place(&self.workload, &self.host)
    }
}

/// Requests that took a second or longer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Vlrt {
    /// SYNs that observed clients sent again; `null`: no client of the dropping listeners is observed.
    pub syn_retransmits: Option<u64>,
    /// Estimate of the connection attempts that had to wait for a second or longer: their SYN was dropped, or their last ACK for so long.
    pub expected: u64,
    /// Observed clients that did.
    pub clients: Vec<Client>,
    /// All very long requests at the first tiers of the chain, each once, by where they waited; `null`: the agent there does not count them, or
    /// the incident is of an older collector.
    #[serde(default)]
    pub by_kind: Option<VeryLongKinds>,
}

impl Vlrt {
    /// All that is known of.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.by_kind.map_or(self.expected, VeryLongKinds::all)
    }
}

/// Very long requests at the tiers of a chain that no other of its tiers calls, where clients feel them, by where most of their time went. Those
/// that were answered; whoever went away is not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VeryLongKinds {
    /// Their SYN was dropped, or their last ACK for so long: an estimate.
    pub retransmitted: u64,
    /// Unread, since before the connection was accepted.
    pub queued: u64,
    /// Unread on an accepted connection.
    pub unread: u64,
    /// Read, where no root is behind the tier: mostly it is the root itself.
    pub inside: u64,
    /// Read, where the root is behind it.
    pub behind: u64,
}

impl VeryLongKinds {
    /// All of them.
    #[must_use]
    pub fn all(self) -> u64 {
        let Self { retransmitted, queued, unread, inside, behind } = self;
        [retransmitted, queued, unread, inside, behind].into_iter().fold(0, u64::saturating_add)
    }

    /// In words, the most frequent first; those of which there is none are left out.
    #[must_use]
    pub fn told(self) -> String {
        let Self { retransmitted, queued, unread, inside, behind } = self;
        let mut all = [
            (retransmitted, "sent again"),
            (queued, "queued for accept"),
            (unread, "unread"),
            (inside, "inside"),
            (behind, "in tiers behind it"),
        ];
        all.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
        let told = all.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        told.collect::<Vec<_>>().join(", ")
    }
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

impl Sustained {
    /// Where the listener is that is kept full.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        place(&self.workload, &self.host)
    }
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
