//! Which hosts are known and who speaks for each: one slot per host name, held by at most one stream. Owns what must outlive a
//! stream: sequence numbers, id mapping, offset, and the names that a new recording must begin with. Knows no network.

use crate::counters::TOLD_FOR_NS;
use crate::ingest::convert::{Converter, signal_name};
use crate::ingest::offset::OffsetEstimate;
use crate::ingest::probe_rate::Probes;
use crate::ingest::tls::Proof;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use tailwater_model::window::EntityId;
use tailwater_proto::v1::{self, AgentStatus};
use tokio_util::sync::CancellationToken;

/// Host names remembered; beyond it the one that is gone for longest makes room, and only where all stream new ones are refused.
pub const HOSTS_MAX: usize = 4096;
/// Runs of a host's agent whose sequences are remembered beside that of the present one.
const RUNS_MAX: usize = 4;
/// A host without a stream for so long was decommissioned: a day, so that one that is down overnight keeps its place.
const FORGOTTEN_AFTER_NS: u64 = 86_400_000_000_000;
/// Why a signal that the Hello covered is not covered any more.
const SHED: &str = "shed by the agent to stay within its CPU budget";

/// The stream that speaks for a host.
#[derive(Debug)]
struct Stream {
    number: u64,
    replaced: Replaced,
    peer: String,
}

/// Whether another stream took the host over from one, and whose that is.
#[derive(Debug, Clone, Default)]
pub struct Replaced {
    is: CancellationToken,
    by_itself: Arc<AtomicBool>,
}

impl Replaced {
    /// That is so from now on. Whose the other is is noted here, as yet another may have the host when this is heard of.
    fn by(&self, itself: bool) {
        self.by_itself.store(itself, Ordering::Relaxed);
        self.is.cancel();
    }

    /// Once it is so.
    pub async fn cancelled(&self) {
        self.is.cancelled().await;
    }

    /// Whether it is.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is.is_cancelled()
    }

    /// Whether the same run of the agent has the other stream.
    #[must_use]
    pub fn is_by_itself(&self) -> bool {
        self.by_itself.load(Ordering::Relaxed)
    }
}

/// Everything about one host.
#[derive(Debug, Default)]
pub struct Slot {
    /// Wire to model.
    pub converter: Converter,
    /// Its clock.
    pub offset: OffsetEstimate,
    /// How many probes of it are still answered, over all its streams.
    pub probes: Probes,
    /// Last Hello.
    pub hello: v1::Hello,
    /// Highest sequence taken or refused, of this agent instance.
    pub last_sequence: u64,
    /// The same of the runs before, the latest last: a Hello of one that is over may be read after that of the next, which then comes again
    /// and must find what it was told.
    runs: VecDeque<(String, u64)>,
    /// By what its newest stream proved whose it is.
    pub proof: Proof,
    /// From when until when the certificate that it showed lasts, Unix seconds, where that is known.
    pub certificate_unix_s: Option<(u64, u64)>,
    /// Last status.
    pub status: AgentStatus,
    /// Windows the kernel lapped, as told by batches.
    pub windows_lost: u64,
    /// Batches taken since the collector started.
    pub batches: u64,
    /// Batches refused since the collector started.
    pub batches_refused: u64,
    /// When its newest window ended, Unix ns on the collector's clock.
    pub newest_window_end_unix_ns: u64,
    /// When its stream began, or ended last.
    pub since_unix_ns: u64,
    /// Kinds of refusal already logged for this agent instance.
    pub logged: Vec<&'static str>,
    stream: Option<Stream>,
}

impl Slot {
    /// All up to `sequence` is taken or refused, as the run `instance` counts: the next run of this agent counts from one again.
    pub fn raise(&mut self, instance: &str, sequence: u64) {
        if self.hello.agent_instance == instance {
            self.last_sequence = self.last_sequence.max(sequence);
        }
    }

    /// What is remembered of this run, and remembers the run that was.
    fn sequence_of(&mut self, instance: &str) -> u64 {
        if self.last_sequence > 0 {
            if self.runs.len() >= RUNS_MAX {
                self.runs.pop_front();
            }
            self.runs.push_back((self.hello.agent_instance.clone(), self.last_sequence));
        }
        let at = self.runs.iter().position(|(of, _)| of == instance);
        at.and_then(|at| self.runs.remove(at)).map_or(0, |(_, sequence)| sequence)
    }
}

/// Why a host's slot is not given out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Occupied {
    /// Somebody else is that host.
    #[error(
        "host \"{host}\" is already served by agent {instance} from {peer} (another boot): give one of the two another name with --host"
    )]
    Other {
        /// Its name.
        host: String,
        /// Who serves it.
        instance: String,
        /// From where.
        peer: String,
    },
    /// As many agents as the collector takes.
    #[error("{agents} agents are connected, the limit: raise agents_max or start another collector")]
    Agents {
        /// The limit.
        agents: usize,
    },
    /// A run of the same agent that began later has it.
    #[error(
        "host \"{host}\" has an agent of the same boot that began later: this run is over, or two agents have one name (--host)"
    )]
    Later {
        /// The host.
        host: String,
    },
    /// As many names as the collector remembers.
    #[error("{HOSTS_MAX} hosts are connected, all that are remembered: start another collector")]
    Hosts,
}

/// A stream's right to speak for a host, until it is ended: by whoever holds it.
#[derive(Debug)]
pub struct Lease {
    slot: Arc<Mutex<Slot>>,
    number: u64,
    /// Hosts that have a stream, as the registry counts them.
    connected: Arc<AtomicUsize>,
    /// Cancelled when another stream took the host over.
    pub replaced: Replaced,
}

impl Lease {
    /// The host's slot.
    pub fn slot(&self) -> MutexGuard<'_, Slot> {
        lock(&self.slot)
    }
    /// The same while this stream speaks for the host, and so for as long as the guard lives: whoever takes it over needs the slot to say so.
    /// `None`: what is in there now is another stream's.
    pub fn own_slot(&self) -> Option<MutexGuard<'_, Slot>> {
        let slot = self.slot();
        (!self.replaced.is_cancelled()).then_some(slot)
    }
    /// Marks the host as gone since `now`, unless another stream has it.
    pub fn end(&self, now_unix_ns: u64) {
        let mut slot = self.slot();
        if slot.stream.as_ref().is_some_and(|stream| stream.number == self.number) {
            slot.stream = None;
            self.connected.fetch_sub(1, Ordering::Relaxed);
            slot.since_unix_ns = now_unix_ns;
        }
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    // A slot is plain values: after a panic elsewhere they are still the best there is.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who has a stream may hold its slot for as long as a message takes: it is not gone, and whoever looks for one that is does not wait for it.
fn lock_if_free(slot: &Mutex<Slot>) -> Option<MutexGuard<'_, Slot>> {
    match slot.try_lock() {
        Ok(slot) => Some(slot),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[derive(Debug, Default)]
struct Hosts {
    slots: BTreeMap<String, Arc<Mutex<Slot>>>,
    /// Streams so far: tells a host's streams apart.
    streams: u64,
    /// Names that made room.
    forgotten: u64,
    /// When a name had to go, or was refused, because of the limit; 0: never.
    full_unix_ns: u64,
    /// Highest entity id of a host that is forgotten. What it told may still be kept under its ids: should it come again, it gets higher ones.
    ids_used: EntityId,
}

impl Hosts {
    /// Makes room for one more name; `false`: all hosts stream.
    fn make_room(&mut self, now_unix_ns: u64) -> bool {
        let gone_since = |slot: &Arc<Mutex<Slot>>| {
            let slot = lock_if_free(slot)?;
            slot.stream.is_none().then_some(slot.since_unix_ns)
        };
        let long_gone = |slot: &Arc<Mutex<Slot>>| {
            gone_since(slot).is_some_and(|since| since.saturating_add(FORGOTTEN_AFTER_NS) <= now_unix_ns)
        };
        let mut going: Vec<String> =
            self.slots.iter().filter(|(_, slot)| long_gone(slot)).map(|(host, _)| host.clone()).collect();
        if going.is_empty() && self.slots.len() >= HOSTS_MAX {
            self.full_unix_ns = now_unix_ns;
            let gone = self.slots.iter().filter_map(|(host, slot)| Some((gone_since(slot)?, host)));
            going.extend(gone.min().map(|(_, host)| host.clone()));
        }
        for host in going {
            if let Some(slot) = self.slots.remove(&host) {
                self.forgotten += 1;
                self.ids_used = self.ids_used.max(lock(&slot).converter.highest_id());
            }
        }
        self.slots.len() < HOSTS_MAX
    }
}

/// How full the list of names is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names {
    /// Hosts that are known.
    pub known: usize,
    /// Hosts that were forgotten, because they were gone for a day or to make room.
    pub forgotten: u64,
    /// The limit bites: lately a host that was gone for less than a day had to make room, or a new one was refused.
    pub crowded: bool,
}

/// All hosts.
#[derive(Debug)]
pub struct Registry {
    hosts: Mutex<Hosts>,
    /// Hosts that have a stream. They begin under the lock of `hosts`, and end without it.
    connected: Arc<AtomicUsize>,
    agents_max: usize,
}

impl Registry {
    /// Lets at most `agents_max` stream at once.
    #[must_use]
    pub fn new(agents_max: usize) -> Self {
        Self { hosts: Mutex::default(), connected: Arc::default(), agents_max }
    }

    /// Streams begin only while the hosts are held, so that to whoever holds them this is exact enough.
    fn is_full(&self) -> bool {
        self.connected.load(Ordering::Relaxed) >= self.agents_max
    }

    fn all(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the host to the agent that said `hello`. The same instance and the same boot replace their own older stream, which
    /// may be one that nobody noticed is dead; anybody else is refused while the stream lives. Of two runs of one boot the later has it, where both say
    /// when they began: a Hello of the run before, which is read late, sends nobody away.
    pub fn take(&self, hello: &v1::Hello, peer: &str, now_unix_ns: u64) -> Result<Lease, Occupied> {
        // Held to the end: a host whose slot is given out must not be one that makes room at the same moment. So no other host's slot is waited
        // for: nobody could connect meanwhile.
        let mut all = self.all();
        all.streams += 1;
        let number = all.streams;
        let known = all.slots.contains_key(&hello.host);
        if !known {
            if self.is_full() {
                return Err(Occupied::Agents { agents: self.agents_max });
            }
            if !all.make_room(now_unix_ns) {
                return Err(Occupied::Hosts);
            }
        }
        let ids_used = all.ids_used;
        let shared = Arc::clone(all.slots.entry(hello.host.clone()).or_insert_with(|| {
            let converter = Converter::new(&hello.host).with_ids_above(ids_used);
            Arc::new(Mutex::new(Slot { converter, ..Slot::default() }))
        }));
        let Some(mut slot) = lock_if_free(&shared) else {
            // Its own stream is at a message. Nobody else is to wait for that, and what was looked at may be another way afterwards.
            drop(all);
            drop(lock(&shared));
            return self.take(hello, peer, now_unix_ns);
        };
        match &slot.stream {
            Some(Stream { replaced, peer, .. }) => {
                let same =
                    slot.hello.agent_instance == hello.agent_instance || slot.hello.boot_id == hello.boot_id;
                if !same {
                    return Err(Occupied::Other {
                        host: hello.host.clone(),
                        instance: slot.hello.agent_instance.clone(),
                        peer: peer.clone(),
                    });
                }
                let began = (slot.hello.started_monotonic_ns, hello.started_monotonic_ns);
                // Two that tell no boot are not of one.
                let one_boot = !hello.boot_id.is_empty() && slot.hello.boot_id == hello.boot_id;
                if one_boot && began.1 > 0 && began.1 < began.0 {
                    return Err(Occupied::Later { host: hello.host.clone() });
                }
                replaced.by(slot.hello.agent_instance == hello.agent_instance);
            }
            // Asked here: its own stream of before may just have ended.
            None if self.is_full() => return Err(Occupied::Agents { agents: self.agents_max }),
            None => {}
        }
        if slot.hello.agent_instance != hello.agent_instance {
            slot.last_sequence = slot.sequence_of(&hello.agent_instance);
            slot.offset = OffsetEstimate::default();
            slot.logged.clear();
        }
        slot.hello = hello.clone();
        slot.since_unix_ns = now_unix_ns;
        let replaced = Replaced::default();
        let stream = Stream { number, replaced: replaced.clone(), peer: peer.to_owned() };
        if slot.stream.replace(stream).is_none() {
            self.connected.fetch_add(1, Ordering::Relaxed);
        }
        drop(slot);
        drop(all);
        Ok(Lease { slot: shared, number, connected: Arc::clone(&self.connected), replaced })
    }

    /// How full the list of names is.
    #[must_use]
    pub fn names(&self, now_unix_ns: u64) -> Names {
        let all = self.all();
        let crowded = all.full_unix_ns > 0 && now_unix_ns.saturating_sub(all.full_unix_ns) < TOLD_FOR_NS;
        Names { known: all.slots.len(), forgotten: all.forgotten, crowded }
    }

    /// For /api/v1/agents, by host name.
    #[must_use]
    pub fn view(&self) -> Vec<AgentView> {
        let slots = self.all().slots.clone();
        slots.iter().map(|(host, slot)| AgentView::of(host, &lock(slot))).collect()
    }
}

/// One host as the API shows it.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "the JSON of /api/v1/agents; units are in the names")]
pub struct AgentView {
    pub host: String,
    pub connected: bool,
    pub peer: Option<String>,
    pub identity: Proof,
    /// Of the certificate that it shows; absent where it is not one of the collector's own authority, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_issued_unix_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_expires_unix_s: Option<u64>,
    pub since_unix_ns: u64,
    pub agent_instance: String,
    pub agent_version: String,
    pub boot_id: String,
    pub kernel_release: String,
    pub cpus: u32,
    pub scope_cgroup: String,
    pub coverage: Vec<CoverageView>,
    pub clock: crate::ingest::offset::Offset,
    pub last_sequence: u64,
    pub batches: u64,
    pub batches_refused: u64,
    pub windows_lost: u64,
    pub batches_dropped: u64,
    pub drop_events_dropped: u64,
    pub newest_window_end_unix_ns: u64,
    pub cpu_ratio: f64,
    /// What its kernel programs take; absent where the agent does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_cpu_ratio: Option<f64>,
    pub resident_bytes: u64,
    pub shed_signals: Vec<String>,
    pub netns_listen_overflows: u64,
    pub netns_listen_drops: u64,
    /// What the agent could not keep or name, since it began.
    pub losses: BTreeMap<String, u64>,
}

/// Losses of an agent that are shown.
const LOSSES_MAX: usize = 64;
/// Characters of a loss's name.
const LOSS_NAME_MAX: usize = 48;

/// What an agent says is lost, as far as its names can be labels.
fn losses(told: &[v1::Loss]) -> BTreeMap<String, u64> {
    let named = |loss: &&v1::Loss| {
        let plain = loss.what.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        plain && !loss.what.is_empty() && loss.what.len() <= LOSS_NAME_MAX
    };
    told.iter().filter(named).take(LOSSES_MAX).map(|loss| (loss.what.clone(), loss.count)).collect()
}

/// One signal of a host.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "see SignalCoverage in telemetry.proto")]
pub struct CoverageView {
    pub signal: String,
    pub covered: bool,
    pub sampled: bool,
    pub hook: String,
    pub reason: String,
}

impl AgentView {
    fn of(host: &str, slot: &Slot) -> Self {
        let (hello, status) = (&slot.hello, &slot.status);
        // Each is a label: numbers that nobody knows, or one twice, would be metrics that an agent makes up.
        let mut seen = BTreeSet::new();
        let coverage = hello
            .coverage
            .iter()
            .filter(|c| v1::Signal::try_from(c.signal).is_ok() && seen.insert(c.signal))
            .map(|c| {
                let signal = signal_name(c.signal);
                let shed = status.shed_signals.contains(&signal);
                let reason = if shed { SHED.to_owned() } else { c.reason.clone() };
                let covered = c.covered && !shed;
                CoverageView { signal, covered, sampled: covered && c.sampled, hook: c.hook.clone(), reason }
            })
            .collect();
        Self {
            host: host.to_owned(),
            connected: slot.stream.is_some(),
            peer: slot.stream.as_ref().map(|stream| stream.peer.clone()),
            identity: slot.proof,
            certificate_issued_unix_s: slot.certificate_unix_s.map(|(issued, _)| issued),
            certificate_expires_unix_s: slot.certificate_unix_s.map(|(_, expires)| expires),
            since_unix_ns: slot.since_unix_ns,
            agent_instance: hello.agent_instance.clone(),
            agent_version: hello.agent_version.clone(),
            boot_id: hello.boot_id.clone(),
            kernel_release: hello.kernel_release.clone(),
            cpus: hello.cpus,
            scope_cgroup: hello.scope_cgroup.clone(),
            coverage,
            clock: slot.offset.now(),
            last_sequence: slot.last_sequence,
            batches: slot.batches,
            batches_refused: slot.batches_refused,
            windows_lost: slot.windows_lost,
            batches_dropped: status.batches_dropped,
            drop_events_dropped: status.drop_events_dropped,
            newest_window_end_unix_ns: slot.newest_window_end_unix_ns,
            cpu_ratio: status.cpu_ratio,
            kernel_cpu_ratio: status.kernel_cpu_ratio,
            resident_bytes: status.resident_bytes,
            shed_signals: status.shed_signals.clone(),
            netns_listen_overflows: status.netns_listen_overflows,
            netns_listen_drops: status.netns_listen_drops,
            losses: losses(&status.losses),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(instance: &str, boot: &str) -> v1::Hello {
        v1::Hello {
            host: "web-1".into(),
            agent_instance: instance.into(),
            boot_id: boot.into(),
            ..v1::Hello::default()
        }
    }

    #[test]
    fn another_boot_is_refused_by_name_while_the_first_lives() {
        let registry = Registry::new(4);
        let first = registry.take(&hello("a", "boot-1"), "10.0.0.1:1", 1).unwrap();
        let text = registry.take(&hello("b", "boot-2"), "10.0.0.2:2", 2).unwrap_err().to_string();
        assert!(text.contains("web-1") && text.contains("10.0.0.1:1") && text.contains("--host"), "{text}");
        assert!(!first.replaced.is_cancelled());
        first.end(3);
        assert!(registry.take(&hello("b", "boot-2"), "10.0.0.2:2", 4).is_ok());
    }

    #[test]
    fn a_restarted_agent_of_the_same_boot_takes_over_and_the_old_stream_cannot_end_it() {
        let registry = Registry::new(4);
        let first = registry.take(&hello("a", "boot-1"), "p", 1).unwrap();
        first.slot().last_sequence = 9;
        let second = registry.take(&hello("b", "boot-1"), "q", 2).unwrap();
        assert!(first.replaced.is_cancelled());
        assert_eq!(second.slot().last_sequence, 0, "another instance counts from 1");
        first.end(3);
        assert!(registry.view()[0].connected);
    }

    /// Fails if what was said by a run that is over sends the one away that lives, or if who says nothing of when it began is judged by it.
    #[test]
    fn a_hello_of_the_run_before_that_is_read_late_leaves_the_host_to_the_later_one() {
        let registry = Registry::new(4);
        let run = |instance: &str, boot: &str, started_monotonic_ns: u64| v1::Hello {
            started_monotonic_ns,
            ..hello(instance, boot)
        };
        let live = registry.take(&run("b", "boot-1", 2_000), "q", 1).unwrap();
        let told = registry.take(&run("a", "boot-1", 1_000), "p", 2).unwrap_err().to_string();
        assert!(told.contains("web-1") && told.contains("began later"), "{told}");
        assert!(!live.replaced.is_cancelled());
        let again = registry.take(&run("b", "boot-1", 2_000), "q", 3).unwrap();
        assert!(live.replaced.is_cancelled(), "its own next stream");
        let next = registry.take(&run("c", "boot-1", 3_000), "q", 4).unwrap();
        assert!(again.replaced.is_cancelled());
        // An agent of before, of which nobody knows.
        let silent = registry.take(&run("d", "boot-1", 0), "q", 5).unwrap();
        assert!(next.replaced.is_cancelled());
        registry.take(&run("a", "boot-1", 1_000), "p", 6).unwrap();
        assert!(silent.replaced.is_cancelled());
    }

    #[test]
    fn a_signal_that_the_agent_shed_is_not_covered_any_more() {
        let registry = Registry::new(1);
        let mut hello = hello("a", "boot-1");
        let covers = |signal: v1::Signal| v1::SignalCoverage {
            signal: signal as i32,
            covered: true,
            sampled: true,
            ..v1::SignalCoverage::default()
        };
        hello.coverage = vec![covers(v1::Signal::Cpu), covers(v1::Signal::BlockIo)];
        let lease = registry.take(&hello, "p", 1).unwrap();
        lease.slot().status.shed_signals = vec!["block_io".into()];
        let coverage = &registry.view()[0].coverage;
        assert!(coverage[0].covered && coverage[0].sampled && coverage[0].reason.is_empty());
        assert!(!coverage[1].sampled, "neither measured nor polled");
        assert!(!coverage[1].covered && coverage[1].reason.contains("budget"), "{coverage:?}");
    }

    #[test]
    fn signals_are_shown_that_this_collector_knows_and_each_once() {
        let registry = Registry::new(1);
        let mut hello = hello("a", "boot-1");
        let covers = |signal| v1::SignalCoverage { signal, ..v1::SignalCoverage::default() };
        let cpu = v1::Signal::Cpu as i32;
        hello.coverage = [cpu, 77_777, cpu, -1].map(covers).to_vec();
        let _lease = registry.take(&hello, "p", 1).unwrap();
        let view = registry.view();
        let shown: Vec<&str> = view[0].coverage.iter().map(|c| c.signal.as_str()).collect();
        assert_eq!(shown, ["cpu"]);
    }

    #[test]
    fn losses_are_shown_by_names_that_can_be_labels_and_by_no_other() {
        let registry = Registry::new(1);
        let lease = registry.take(&hello("a", "boot-1"), "p", 1).unwrap();
        let loss = |what: &str| v1::Loss { what: what.to_owned(), count: 3 };
        let told = ["net_edges_folded", "", "a\nb", "x{y=\"z\"}", &"a".repeat(49)].map(loss);
        lease.slot().status.losses = told.to_vec();
        assert_eq!(registry.view()[0].losses, BTreeMap::from([("net_edges_folded".to_owned(), 3)]));
        let many = |i: u8| v1::Loss {
            what: format!("a{}", char::from(b'a' + i % 26).to_string().repeat(1 + usize::from(i / 26))),
            count: 0,
        };
        lease.slot().status.losses = (0..100).map(many).collect();
        assert_eq!(registry.view()[0].losses.len(), LOSSES_MAX);
    }

    fn of(host: &str) -> v1::Hello {
        v1::Hello { host: host.into(), ..hello(host, host) }
    }

    #[test]
    fn the_name_after_the_last_takes_the_place_of_the_host_that_is_gone_for_longest() {
        let registry = Registry::new(HOSTS_MAX);
        let mut leases: Vec<_> =
            (0..HOSTS_MAX as u64).map(|n| registry.take(&of(&format!("h{n}")), "p", n).unwrap()).collect();
        assert_eq!(
            registry.take(&of("new"), "p", 9_000).unwrap_err(),
            Occupied::Agents { agents: HOSTS_MAX }
        );
        leases[7].end(10_000);
        leases[3].end(10_001);
        assert!(!registry.names(10_001).crowded);
        let new = registry.take(&of("new"), "p", 10_002).unwrap();
        let known: Vec<_> = registry.view().into_iter().map(|a| a.host).collect();
        assert!(!known.contains(&"h7".to_owned()) && known.contains(&"h3".to_owned()));
        let names = Names { known: HOSTS_MAX, forgotten: 1, crowded: true };
        assert_eq!(registry.names(10_002), names);
        assert!(!registry.names(10_002 + TOLD_FOR_NS).crowded, "it does not bite any more");
        // Whoever was forgotten is a new host, and takes the next place.
        drop(new);
        leases.truncate(7);
        assert!(registry.take(&of("h7"), "p", 10_003).is_ok());
    }

    #[test]
    fn a_host_that_is_gone_for_a_day_is_forgotten_and_its_ids_are_not_used_again() {
        let registry = Registry::new(9);
        let old = registry.take(&of("old"), "p", 1).unwrap();
        let named = v1::Entities {
            workloads: vec![v1::Workload { id: 5, ..v1::Workload::default() }],
            ..v1::Entities::default()
        };
        let name = |lease: &Lease| {
            let inputs =
                lease.slot().converter.message(&v1::agent_message::Body::Entities(named.clone()), 0, 0);
            match &inputs.unwrap()[0] {
                tailwater_model::window::Input::Entities { workloads, .. } => workloads[0].id,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(name(&old), 1);
        old.end(2);
        drop(registry.take(&of("next"), "p", FORGOTTEN_AFTER_NS).unwrap());
        assert_eq!(registry.names(0).known, 2, "not yet");
        drop(registry.take(&of("another"), "p", FORGOTTEN_AFTER_NS + 2).unwrap());
        let known: Vec<_> = registry.view().into_iter().map(|a| a.host).collect();
        assert_eq!(
            (known, registry.names(0).crowded),
            (vec!["another".to_owned(), "next".to_owned()], false)
        );
        let again = registry.take(&of("old"), "p", FORGOTTEN_AFTER_NS + 3).unwrap();
        assert_eq!(name(&again), 2, "what it was called before may still be kept");
    }

    #[test]
    fn nobody_who_connects_waits_for_what_another_agents_message_takes() {
        let registry = Arc::new(Registry::new(HOSTS_MAX));
        let busy = registry.take(&of("busy"), "p", 1).unwrap();
        let held = busy.slot();
        let (done, told) = std::sync::mpsc::sync_channel(8);
        let others = Arc::clone(&registry);
        std::thread::spawn(move || {
            let first = others.take(&of("first"), "q", 2).unwrap();
            first.end(3);
            // More names than are remembered: who makes room is looked for among all.
            for n in 0..HOSTS_MAX {
                others.take(&of(&format!("h{n}")), "q", 4).unwrap().end(5);
            }
            done.send(others.names(6).known).unwrap();
        });
        let known = told.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(known, Ok(HOSTS_MAX), "they wait");
        drop(held);
        assert!(registry.view().iter().any(|agent| agent.host == "busy" && agent.connected));
    }

    #[test]
    fn whoever_was_replaced_by_itself_was_whoever_has_the_host_by_then() {
        let registry = Registry::new(4);
        let given_up = registry.take(&hello("b", "boot"), "p", 1).unwrap();
        let by_itself = registry.take(&hello("b", "boot"), "p", 2).unwrap();
        by_itself.end(3);
        // The Hello of the run before is read late, where nobody speaks for the host.
        let before = registry.take(&hello("a", "boot"), "p", 4).unwrap();
        assert!(given_up.replaced.is_cancelled() && given_up.replaced.is_by_itself());
        let after = registry.take(&hello("b", "boot"), "p", 5).unwrap();
        assert!(before.replaced.is_cancelled() && !before.replaced.is_by_itself());
        assert!(!after.replaced.is_cancelled());
    }

    #[test]
    fn places_are_counted_whoever_ends_or_is_replaced() {
        let registry = Registry::new(2);
        let first = registry.take(&of("a"), "p", 1).unwrap();
        let again = registry.take(&of("a"), "p", 2).unwrap();
        let other = registry.take(&of("b"), "p", 3).unwrap();
        let full = Err(Occupied::Agents { agents: 2 });
        let third = |at| registry.take(&of("c"), "p", at).map(|lease| lease.end(at));
        assert_eq!(third(4), full);
        first.end(5);
        assert_eq!(third(6), full, "who was replaced had no place any more");
        again.end(7);
        again.end(8);
        assert_eq!(third(9), Ok(()));
        let back = registry.take(&of("a"), "p", 10).unwrap();
        assert_eq!(third(11), full, "a place was given back once");
        back.end(12);
        other.end(13);
    }

    #[test]
    fn a_reconnecting_instance_keeps_its_sequence() {
        let registry = Registry::new(1);
        let lease = registry.take(&hello("a", "boot-1"), "p", 1).unwrap();
        lease.slot().last_sequence = 9;
        lease.end(2);
        assert_eq!(registry.take(&hello("a", "boot-1"), "p", 3).unwrap().slot().last_sequence, 9);
        let mut other = hello("c", "boot-3");
        other.host = "db-1".into();
        assert_eq!(registry.take(&other, "p", 4).unwrap_err(), Occupied::Agents { agents: 1 });
    }
}
