//! Records the truth of a whole run: one thread for each place, inside its namespace, that takes the tap's packets and reads the
//! counters some forty times a second. Price: about half a percent of a core for each place.

use crate::os::clock::unix_ns;
use crate::os::netns::NetNs;
use crate::truth::flows::{Dropped, Flows};
use crate::truth::netstat::Netstat;
use crate::truth::sockdiag::SockDiag;
use crate::truth::tap::Tap;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks at the counters.
const PERIOD: Duration = Duration::from_millis(25);
/// Changes kept for each place, more than an hour of constant drops.
const SAMPLES_MAX: usize = 200_000;

/// A listening port to watch.
#[derive(Debug, Clone)]
pub struct Place {
    /// Tier, as the stack calls it.
    pub tier: String,
    /// Name of the "VM", as the agent is told.
    pub host: String,
    /// Where it runs.
    pub netns: NetNs,
    /// Its port.
    pub port: u16,
}

/// Counters since the recording began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sample {
    /// When they were read.
    pub at_unix_ns: u64,
    /// The listener's `sk_drops` without the bare ACKs that it discards on purpose (TCP_DEFER_ACCEPT).
    pub dropped: u64,
    /// `ListenOverflows` of the namespace.
    pub listen_overflows: u64,
    /// `ListenDrops` of the namespace.
    pub listen_drops: u64,
    /// `TCPSynRetrans` of the namespace: its own attempts, towards the next tier.
    pub syn_retransmits: u64,
    /// Deepest accept queue at any reading so far.
    pub queue_max: u32,
}

/// What one place saw.
#[derive(Debug, Clone)]
pub struct PlaceLog {
    /// Which.
    pub place: Place,
    /// Counters whenever they changed, in order of time; the first is all zero.
    pub samples: Vec<Sample>,
    /// Connection attempts that came.
    pub attempts: u64,
    /// Attempts of which packets were dropped, by time of their first SYN.
    pub dropped: Vec<Dropped>,
    /// Packets that the tap missed: above zero its counts are too low.
    pub tap_lost: u64,
}

impl PlaceLog {
    /// Counters as of a moment.
    #[must_use]
    pub fn at(&self, unix_ns: u64) -> Sample {
        let after = self.samples.partition_point(|sample| sample.at_unix_ns <= unix_ns);
        after.checked_sub(1).and_then(|index| self.samples.get(index)).copied().unwrap_or_default()
    }
}

/// What all places saw.
#[derive(Debug, Clone, Default)]
pub struct TruthLog {
    /// In the order given.
    pub places: Vec<PlaceLog>,
}

impl TruthLog {
    /// Packets dropped at all places within `[from, to]`.
    #[must_use]
    pub fn dropped_between(&self, from: u64, to: u64) -> u64 {
        self.places.iter().map(|place| place.at(to).dropped.saturating_sub(place.at(from).dropped)).sum()
    }
}

/// A recording under way.
#[derive(Debug)]
pub struct Recorder {
    stop: Arc<AtomicBool>,
    last_drop_unix_ns: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<PlaceLog>>>,
}

impl Recorder {
    /// Begins to record, and returns when every tap is open.
    pub fn start(places: &[Place]) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let ready = Arc::new(AtomicUsize::new(0));
        let last_drop_unix_ns = Arc::new(AtomicU64::new(0));
        let mut recorder = Self {
            stop: Arc::clone(&stop),
            last_drop_unix_ns: Arc::clone(&last_drop_unix_ns),
            threads: Vec::new(),
        };
        for place in places {
            let (place, stop, ready) = (place.clone(), Arc::clone(&stop), Arc::clone(&ready));
            let last_drop_unix_ns = Arc::clone(&last_drop_unix_ns);
            let thread = std::thread::Builder::new().name("truth".into()).spawn(move || {
                let netns = place.netns.clone();
                netns.inside(move || watch(place, &stop, &ready, &last_drop_unix_ns))
            })?;
            recorder.threads.push(thread);
        }
        let begun = Instant::now();
        while ready.load(Ordering::Acquire) < places.len() {
            if recorder.threads.iter().any(JoinHandle::is_finished)
                || begun.elapsed() > Duration::from_secs(10)
            {
                recorder.stop()?;
                anyhow::bail!("a recording of the truth did not start within 10 s");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(recorder)
    }

    /// When drops were last seen to rise anywhere, Unix ns; 0: never.
    #[must_use]
    pub fn last_drop_unix_ns(&self) -> u64 {
        self.last_drop_unix_ns.load(Ordering::Relaxed)
    }

    /// Ends it and returns what was seen.
    pub fn stop(mut self) -> Result<TruthLog> {
        self.stop.store(true, Ordering::Release);
        let mut places = Vec::new();
        for thread in std::mem::take(&mut self.threads) {
            places.push(thread.join().map_err(|_| anyhow::anyhow!("a recording thread panicked"))??);
        }
        Ok(TruthLog { places })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Sums the drops of one port over the sockets that served it: a restarted server counts from zero again.
#[derive(Debug, Default)]
struct Drops(BTreeMap<u64, u32>);

impl Drops {
    /// How much they rose since the last call.
    fn rise(&mut self, cookie: u64, drops: u32) -> u64 {
        let before = self.0.insert(cookie, drops);
        u64::from(drops.wrapping_sub(before.unwrap_or(0)))
    }
}

fn watch(
    place: Place,
    stop: &AtomicBool,
    ready: &AtomicUsize,
    last_drop_unix_ns: &AtomicU64,
) -> Result<PlaceLog> {
    let what = format!("truth of {}:{}", place.host, place.port);
    let mut tap = Tap::open(place.port).with_context(|| what.clone())?;
    let mut netstat = Netstat::open().with_context(|| what.clone())?;
    let mut sockets = SockDiag::open().with_context(|| what.clone())?;
    let (mut flows, mut drops) = (Flows::default(), Drops::default());
    let start = netstat.read()?;
    for listener in sockets.listeners()?.iter().filter(|listener| listener.port == place.port) {
        drops.rise(listener.cookie, listener.drops);
    }
    let mut sk_drops = 0;
    let mut now = Sample { at_unix_ns: unix_ns(), ..Sample::default() };
    let mut samples = vec![now];
    ready.fetch_add(1, Ordering::Release);
    loop {
        // Read once more after the end was asked for, so that nothing of before is missed.
        let last = stop.load(Ordering::Acquire);
        tap.drain(|packet| flows.packet(&packet))?;
        for listener in sockets.listeners()?.iter().filter(|listener| listener.port == place.port) {
            sk_drops += drops.rise(listener.cookie, listener.drops);
            now.queue_max = now.queue_max.max(listener.queue);
        }
        let counters = netstat.read()?;
        // Two readings some microseconds apart: a deferred ACK between them must not make the difference fall.
        let deferred = counters.deferred_acks - start.deferred_acks;
        now.dropped = now.dropped.max(sk_drops.saturating_sub(deferred));
        now.listen_overflows = counters.listen_overflows - start.listen_overflows;
        now.listen_drops = counters.listen_drops - start.listen_drops;
        now.syn_retransmits = counters.syn_retransmits - start.syn_retransmits;
        let known = samples.last().map(|sample| Sample { at_unix_ns: now.at_unix_ns, ..*sample });
        if known != Some(now) && samples.len() < SAMPLES_MAX {
            now.at_unix_ns = unix_ns();
            if samples.last().is_some_and(|before| before.dropped < now.dropped) {
                last_drop_unix_ns.fetch_max(now.at_unix_ns, Ordering::Relaxed);
            }
            samples.push(now);
        }
        if last {
            break;
        }
        std::thread::sleep(PERIOD);
    }
    let tap_lost = tap.lost()?;
    let (attempts, dropped) = flows.finish();
    Ok(PlaceLog { place, samples, attempts, dropped, tap_lost })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_hold_until_they_change_and_a_new_socket_counts_from_zero() {
        let mut drops = Drops::default();
        assert_eq!((drops.rise(1, 5), drops.rise(1, 7), drops.rise(2, 3), drops.rise(1, 7)), (5, 2, 3, 0));

        let sample = |at_unix_ns, dropped| Sample { at_unix_ns, dropped, ..Sample::default() };
        let place =
            Place { tier: "web".into(), host: "web-1".into(), netns: NetNs::of("web", "x"), port: 80 };
        let log = PlaceLog {
            place,
            samples: vec![sample(10, 0), sample(20, 4), sample(30, 9)],
            attempts: 0,
            dropped: vec![],
            tap_lost: 0,
        };
        let at = |t| log.at(t).dropped;
        assert_eq!((at(5), at(10), at(25), at(30), at(99)), (0, 0, 4, 9, 9));
        assert_eq!(TruthLog { places: vec![log] }.dropped_between(20, 40), 5);
    }
}
