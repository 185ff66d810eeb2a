//! What the kernel itself counted, read from places that Tailwater does not use: `/proc/net/netstat` of each namespace, `ss`
//! for each listener, the cgroups' own clocks. Knows nothing of agents.

use crate::os::clock::unix_ns;
use crate::os::netns::NetNs;
use crate::os::process::run;
use crate::stack::Tier;
use crate::truth::netstat::Netstat;
use anyhow::{Context, Result};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Counters of one tier since it started, or, from [`Truth::since`], of an interval.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct TierTruth {
    /// The listener's own counter, `sk_drops`. With TCP_DEFER_ACCEPT (Apache's default) the kernel also counts the bare ACK of
    /// every healthy handshake here, which it discards on purpose: see [`TierTruth::dropped`].
    pub sk_drops: u64,
    /// `TCPDeferAcceptDrop` of the namespace: those bare ACKs.
    pub deferred_acks: u64,
    /// Connections waiting to be accepted when this was read.
    pub accept_queue: u64,
    /// What the accept queue may hold, as the kernel clipped it.
    pub accept_queue_limit: u64,
    /// `ListenOverflows` of the namespace: drops because an accept queue was full.
    pub listen_overflows: u64,
    /// `ListenDrops` of the namespace: those and other drops by listeners.
    pub listen_drops: u64,
    /// `TCPSynRetrans` of the namespace: connection attempts sent again, by this tier towards the next.
    pub syn_retransmits: u64,
    /// CPU used by the tier, ns.
    pub cpu_usage_ns: u64,
    /// Time the tier stood still for its quota, ns.
    pub throttled_ns: u64,
}

impl TierTruth {
    /// Packets dropped, each once: `ListenDrops`. `sk_drops` less `deferred_acks` counts a refused last segment of a handshake twice (as
    /// overflow, and as the discarded packet): measured on 6.18 in 69 of 70 runs, with S resent SYNs and F refused segments this is
    /// S + F and that S + 2 F.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.listen_drops
    }
}

/// All tiers at one moment.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Truth {
    /// When it was read.
    pub at_unix_ns: u64,
    /// The front.
    pub web: TierTruth,
    /// The application.
    pub app: TierTruth,
    /// The database.
    pub db: TierTruth,
    /// The application's second server, in a stack that has one.
    pub app_b: Option<TierTruth>,
    /// The cache, in a stack that has one.
    pub cache: Option<TierTruth>,
    /// The guest, in a stack that has one: its listener; the namespace's and the cgroup's counters are its host's.
    pub guest: Option<TierTruth>,
    /// The second database, in a stack that has one: likewise.
    pub db_b: Option<TierTruth>,
    /// `TCPSynRetrans` in the client's namespace.
    pub client_syn_retransmits: u64,
}

impl Truth {
    /// One tier's counters. Panics, as an index does, if the stack has none such.
    #[must_use]
    pub fn tier(&self, tier: Tier) -> &TierTruth {
        let found = match tier {
            Tier::Web => Some(&self.web),
            Tier::App => Some(&self.app),
            Tier::Db => Some(&self.db),
            Tier::AppB => self.app_b.as_ref(),
            Tier::Cache => self.cache.as_ref(),
            Tier::Guest => self.guest.as_ref(),
            Tier::DbB => self.db_b.as_ref(),
        };
        found.unwrap_or_else(|| panic!("this stack has no tier {}", tier.name()))
    }

    /// What was counted between `earlier` and this. Levels (`accept_queue…`) keep the later value.
    #[must_use]
    pub fn since(&self, earlier: &Truth) -> Truth {
        let minus = |late: &TierTruth, early: &TierTruth| TierTruth {
            sk_drops: late.sk_drops.saturating_sub(early.sk_drops),
            listen_overflows: late.listen_overflows.saturating_sub(early.listen_overflows),
            listen_drops: late.listen_drops.saturating_sub(early.listen_drops),
            deferred_acks: late.deferred_acks.saturating_sub(early.deferred_acks),
            syn_retransmits: late.syn_retransmits.saturating_sub(early.syn_retransmits),
            cpu_usage_ns: late.cpu_usage_ns.saturating_sub(early.cpu_usage_ns),
            throttled_ns: late.throttled_ns.saturating_sub(early.throttled_ns),
            ..*late
        };
        Truth {
            at_unix_ns: self.at_unix_ns,
            web: minus(&self.web, &earlier.web),
            app: minus(&self.app, &earlier.app),
            db: minus(&self.db, &earlier.db),
            app_b: self.app_b.zip(earlier.app_b).map(|(late, early)| minus(&late, &early)),
            cache: self.cache.zip(earlier.cache).map(|(late, early)| minus(&late, &early)),
            guest: self.guest.zip(earlier.guest).map(|(late, early)| minus(&late, &early)),
            db_b: self.db_b.zip(earlier.db_b).map(|(late, early)| minus(&late, &early)),
            client_syn_retransmits: self
                .client_syn_retransmits
                .saturating_sub(earlier.client_syn_retransmits),
        }
    }
}

/// Reads the network side of a tier; the CPU side is the caller's.
pub(crate) fn read_listener(netns: &NetNs, port: u16) -> Result<TierTruth> {
    netns.inside(|| {
        let counters = Netstat::open()?.read()?;
        let listeners = run(Command::new("ss").args([
            "--tcp",
            "--listening",
            "--numeric",
            "--memory",
            "--no-header",
            &format!("sport = :{port}"),
        ]))?;
        let (accept_queue, accept_queue_limit, sk_drops) = parse_listener(&listeners)
            .with_context(|| format!("no listener on port {port} in {}", netns.name()))?;
        Ok(TierTruth {
            sk_drops,
            accept_queue,
            accept_queue_limit,
            listen_overflows: counters.listen_overflows,
            listen_drops: counters.listen_drops,
            deferred_acks: counters.deferred_acks,
            syn_retransmits: counters.syn_retransmits,
            ..TierTruth::default()
        })
    })
}

/// `TCPSynRetrans` of a namespace.
pub(crate) fn read_syn_retransmits(netns: &NetNs) -> Result<u64> {
    netns.inside(|| Ok(Netstat::open()?.read()?.syn_retransmits))
}

/// Queue depth, limit and drops of the one listener in `ss -ltnmH`.
fn parse_listener(text: &str) -> Option<(u64, u64, u64)> {
    let mut fields = text.split_whitespace().skip(1);
    let depth = fields.next()?.parse().ok()?;
    let limit = fields.next()?.parse().ok()?;
    let memory = text.split_once("skmem:(")?.1.split_once(')')?.0;
    let drops = memory.split(',').find_map(|field| field.strip_prefix('d'))?.parse().ok()?;
    Some((depth, limit, drops))
}

/// A change of `ListenOverflows`, as early as polling can see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct DropSeen {
    /// When the poll saw it; the drop is at most one polling interval older.
    pub at_unix_ns: u64,
    /// By how much the counter rose.
    pub count: u64,
}

/// Polls a namespace's `ListenOverflows` on a thread of its own, to date drops.
#[derive(Debug)]
pub struct DropWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
    seen: mpsc::Receiver<DropSeen>,
}

/// More changes than a test can cause; beyond it the watch stops recording rather than growing.
const DROPS_SEEN_MAX: usize = 100_000;

impl DropWatch {
    /// Begins to watch. Price: about 40 µs of CPU for each poll.
    pub fn start(netns: &NetNs, interval: Duration) -> Result<Self> {
        let netns = netns.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (sender, seen) = mpsc::sync_channel(DROPS_SEEN_MAX);
        let thread = std::thread::Builder::new()
            .name("drop-watch".into())
            .spawn(move || {
                netns.inside(|| {
                    let mut netstat = Netstat::open()?;
                    let mut last = netstat.read()?.listen_overflows;
                    while !stopped.load(Ordering::Relaxed) {
                        std::thread::sleep(interval);
                        let now = netstat.read()?.listen_overflows;
                        if now > last {
                            let _ = sender.try_send(DropSeen { at_unix_ns: unix_ns(), count: now - last });
                            last = now;
                        }
                    }
                    Ok(())
                })
            })
            .context("start a drop watch")?;
        Ok(Self { stop, thread, seen })
    }

    /// What was seen since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<DropSeen> {
        self.seen.try_iter().collect()
    }

    /// Ends it and returns what was not taken yet.
    pub fn stop(self) -> Result<Vec<DropSeen>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the drop watch panicked"))??;
        Ok(self.seen.try_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_line_of_ss_is_read() {
        let text = "LISTEN 3      128         10.77.0.2:80        0.0.0.0:*    \n\t skmem:(r0,rb131072,t0,tb16384,f0,w0,o0,bl0,d75)\n";
        assert_eq!(parse_listener(text), Some((3, 128, 75)));
        assert_eq!(parse_listener(""), None);
    }
}
