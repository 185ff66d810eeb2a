//! Which hosts are known and who speaks for each: one slot per host name, held by at most one stream. Owns what must outlive a
//! stream: sequence numbers, id mapping, offset, and the names that a new recording must begin with. Knows no network.

use crate::ingest::convert::{Converter, signal_name};
use crate::ingest::offset::OffsetEstimate;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tailwater_proto::v1::{self, AgentStatus};
use tokio_util::sync::CancellationToken;

/// Host names remembered; beyond it new ones are refused.
pub const HOSTS_MAX: usize = 4096;
/// Why a signal that the Hello covered is not covered any more.
const SHED: &str = "shed by the agent to stay within its CPU budget";

/// Everything about one host.
#[derive(Debug, Default)]
pub struct Slot {
    /// Wire to model.
    pub converter: Converter,
    /// Its clock.
    pub offset: OffsetEstimate,
    /// Last Hello.
    pub hello: v1::Hello,
    /// Highest sequence taken or refused, of this agent instance.
    pub last_sequence: u64,
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
    stream: Option<(u64, CancellationToken, String)>,
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
    /// As many names as the collector remembers.
    #[error(
        "{HOSTS_MAX} host names are known, the limit: restart the collector to forget those that are gone"
    )]
    Hosts,
}

/// A stream's right to speak for a host; ends when dropped.
#[derive(Debug)]
pub struct Lease {
    slot: Arc<Mutex<Slot>>,
    number: u64,
    /// Cancelled when another stream took the host over.
    pub replaced: CancellationToken,
}

impl Lease {
    /// The host's slot.
    pub fn slot(&self) -> MutexGuard<'_, Slot> {
        lock(&self.slot)
    }
    /// Marks the host as gone since `now`, unless another stream has it.
    pub fn end(&self, now_unix_ns: u64) {
        let mut slot = self.slot();
        if slot.stream.as_ref().is_some_and(|(number, ..)| *number == self.number) {
            slot.stream = None;
            slot.since_unix_ns = now_unix_ns;
        }
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    // A slot is plain values: after a panic elsewhere they are still the best there is.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Hosts {
    slots: BTreeMap<String, Arc<Mutex<Slot>>>,
    /// Streams so far: tells a host's streams apart.
    streams: u64,
}

/// All hosts.
#[derive(Debug)]
pub struct Registry {
    hosts: Mutex<Hosts>,
    agents_max: usize,
}

impl Registry {
    /// Lets at most `agents_max` stream at once.
    #[must_use]
    pub fn new(agents_max: usize) -> Self {
        Self { hosts: Mutex::default(), agents_max }
    }

    fn all(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the host to the agent that said `hello`. The same instance and the same boot replace their own older stream, which
    /// may be one that nobody noticed is dead; anybody else is refused while the stream lives.
    pub fn take(&self, hello: &v1::Hello, peer: &str, now_unix_ns: u64) -> Result<Lease, Occupied> {
        let mut all = self.all();
        let connected = all.slots.values().filter(|slot| lock(slot).stream.is_some()).count();
        all.streams += 1;
        let number = all.streams;
        let known = all.slots.contains_key(&hello.host);
        if !known && all.slots.len() >= HOSTS_MAX {
            return Err(Occupied::Hosts);
        }
        let shared = Arc::clone(all.slots.entry(hello.host.clone()).or_insert_with(|| {
            let converter = Converter::new(&hello.host);
            Arc::new(Mutex::new(Slot { converter, ..Slot::default() }))
        }));
        drop(all);
        let mut slot = lock(&shared);
        match &slot.stream {
            Some((_, replaced, peer)) => {
                let same =
                    slot.hello.agent_instance == hello.agent_instance || slot.hello.boot_id == hello.boot_id;
                if !same {
                    return Err(Occupied::Other {
                        host: hello.host.clone(),
                        instance: slot.hello.agent_instance.clone(),
                        peer: peer.clone(),
                    });
                }
                replaced.cancel();
            }
            None if connected >= self.agents_max => return Err(Occupied::Agents { agents: self.agents_max }),
            None => {}
        }
        if slot.hello.agent_instance != hello.agent_instance {
            slot.last_sequence = 0;
            slot.offset = OffsetEstimate::default();
            slot.logged.clear();
        }
        slot.hello = hello.clone();
        slot.since_unix_ns = now_unix_ns;
        let replaced = CancellationToken::new();
        slot.stream = Some((number, replaced.clone(), peer.to_owned()));
        drop(slot);
        Ok(Lease { slot: shared, number, replaced })
    }

    /// For /api/v1/agents, by host name.
    #[must_use]
    pub fn view(&self) -> Vec<AgentView> {
        self.all().slots.iter().map(|(host, slot)| AgentView::of(host, &lock(slot))).collect()
    }
}

/// One host as the API shows it.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "the JSON of /api/v1/agents; units are in the names")]
pub struct AgentView {
    pub host: String,
    pub connected: bool,
    pub peer: Option<String>,
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
        let coverage = hello
            .coverage
            .iter()
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
            peer: slot.stream.as_ref().map(|(_, _, peer)| peer.clone()),
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
