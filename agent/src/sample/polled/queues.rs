//! Accept queues from the kernel's list of sockets: each listener's depth, limit and `sk_drops`, asked for in every window, and how many
//! packets of those its network namespace counts. Owns turning two looks into a sample.

use super::discovery::{Discovery, Listening, Namespace, Namespaces, Snapshot};
use super::files::read_again;
use super::sock_diag::Found;
use crate::name::cgroup::Mounts;
use crate::sample::self_stats::parse_netstat;
use crate::signal::{Coverage, Loss, SignalKind, SignalSource};
use crate::window::{
    AcceptQueueSample, ConnectionSample, EdgeKey, ListenerKey, WINDOW_NS, Window, WindowIndex,
};
use netlink_packet_sock_diag::inet::{SocketId, StateFlags};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// Listening sockets that are asked in each window; those beyond are not told, and counted.
const LISTENERS_MAX: usize = 512;

const HOOK: &str = "sock_diag and ListenDrops every 50 ms";

/// A socket, by its namespace and the kernel's cookie.
type Socket = (u32, [u8; 8]);

#[derive(Debug)]
struct Known {
    listening: Listening,
    /// Depth and `sk_drops` at the look before.
    before: Option<(u32, u32)>,
}

/// Overflows and drops of a namespace, as it counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    overflows: u64,
    drops: u64,
}

/// Sockets in place of the network's hooks.
#[derive(Debug)]
pub struct PolledQueues {
    discovery: Discovery,
    reason: String,
    seen: u64,
    /// Listeners with nothing to say are told, too: with every list of the discovery, so that they are known before they drop.
    tell_all: bool,
    known: BTreeMap<Socket, Known>,
    counters: HashMap<u32, Counters>,
    left_out: u64,
    edges_left_out: u64,
    unanswered: u64,
    buffer: Vec<u8>,
}

/// What one look at a listener showed.
struct Seen {
    key: ListenerKey,
    before: (u32, u32),
    now: Found,
}

impl PolledQueues {
    /// `reason`: why no hook serves.
    pub fn start(mounts: &Mounts, reason: String) -> std::io::Result<Self> {
        Ok(Self {
            discovery: Discovery::start(mounts)?,
            reason,
            seen: 0,
            tell_all: false,
            known: BTreeMap::new(),
            counters: HashMap::new(),
            left_out: 0,
            edges_left_out: 0,
            unanswered: 0,
            buffer: Vec::new(),
        })
    }

    fn renew(&mut self, snapshot: &Snapshot) {
        if std::mem::replace(&mut self.seen, snapshot.number) == snapshot.number {
            return;
        }
        self.tell_all = true;
        self.left_out = self.left_out.max(snapshot.listeners.len().saturating_sub(LISTENERS_MAX) as u64);
        self.edges_left_out = self.edges_left_out.max(snapshot.edges_left_out);
        let there: BTreeMap<Socket, &Listening> =
            snapshot.listeners.iter().take(LISTENERS_MAX).map(|l| ((l.key.netns, l.id.cookie), l)).collect();
        self.known.retain(|socket, _| there.contains_key(socket));
        // One that was opened since the look before is told from its beginning, late: what it dropped meanwhile is not lost.
        let before = (snapshot.number > 1).then_some((0, 0));
        for (socket, listening) in there {
            let known =
                self.known.entry(socket).or_insert_with(|| Known { listening: listening.clone(), before });
            known.listening = listening.clone();
        }
    }

    /// Every known socket anew, namespace by namespace.
    fn look(&mut self, namespaces: &Namespaces) -> Vec<Seen> {
        let mut seen = Vec::new();
        for (netns, namespace) in namespaces {
            let mut namespace = namespace.lock().unwrap_or_else(PoisonError::into_inner);
            let mut here: Vec<(&Socket, &mut Known)> =
                self.known.iter_mut().filter(|((at, _), _)| at == netns).collect();
            if here.is_empty() {
                continue;
            }
            let answers = ask(&mut namespace, &here);
            let Ok(answers) = answers else {
                self.unanswered += 1;
                here.iter_mut().for_each(|(_, known)| known.before = None);
                continue;
            };
            for ((_, known), now) in here.iter_mut().zip(answers) {
                let Some(now) = now else {
                    known.before = None;
                    continue;
                };
                let before = known.before.replace((now.depth, now.drops));
                // A listener that is new has no look before.
                if let Some(before) = before {
                    seen.push(Seen { key: known.listening.key, before, now });
                }
            }
        }
        seen
    }

    /// By how much the counters of a namespace rose since they were read before; `None`: that was never.
    fn counted(&mut self, netns: u32, namespace: &Mutex<Namespace>) -> Option<Counters> {
        let namespace = namespace.lock().unwrap_or_else(PoisonError::into_inner);
        read_again(&namespace.netstat, &mut self.buffer).ok()?;
        let (overflows, drops) = parse_netstat(std::str::from_utf8(&self.buffer).ok()?)?;
        let now = Counters { overflows, drops };
        let before = self.counters.insert(netns, now)?;
        Some(Counters {
            overflows: overflows.saturating_sub(before.overflows),
            drops: drops.saturating_sub(before.drops),
        })
    }

    fn drain_queues(&mut self) -> Vec<(ListenerKey, AcceptQueueSample)> {
        let namespaces = self.discovery.namespaces();
        let seen = self.look(&namespaces);
        self.counters.retain(|netns, _| namespaces.contains_key(netns));
        let mut rose: BTreeMap<u32, u64> = BTreeMap::new();
        for s in &seen {
            *rose.entry(s.key.netns).or_default() += u64::from(s.now.drops.wrapping_sub(s.before.1));
        }
        // What the namespace counted is asked only where some listener's counter rose: both rise together.
        let mut packets: BTreeMap<u32, Counters> = BTreeMap::new();
        for (netns, namespace) in &namespaces {
            let dropped = rose.get(netns).is_some_and(|n| *n > 0);
            if dropped || !self.counters.contains_key(netns) {
                packets.extend(self.counted(*netns, namespace).map(|c| (*netns, c)));
            }
        }
        let all_told = self.tell_all;
        self.tell_all &= seen.is_empty();
        seen.into_iter()
            .filter_map(|s| {
                let all = rose.get(&s.key.netns).copied().unwrap_or(0);
                let counted = packets.get(&s.key.netns).copied().unwrap_or_default();
                let sample = sample(&s, all, counted);
                let quiet = AcceptQueueSample { limit: sample.limit, ..AcceptQueueSample::default() };
                (all_told || sample != quiet).then_some((s.key, sample))
            })
            .collect()
    }
}

fn ask(namespace: &mut Namespace, known: &[(&Socket, &mut Known)]) -> std::io::Result<Vec<Option<Found>>> {
    // One of several sockets with the same address cannot be asked for: then the list is read.
    if known.iter().any(|(_, k)| k.listening.shared) {
        let all = namespace.diag.dump(&StateFlags::LISTEN)?;
        let by_cookie: HashMap<[u8; 8], &Found> = all.iter().map(|f| (f.id.cookie, f)).collect();
        return Ok(known.iter().map(|((_, cookie), _)| by_cookie.get(cookie).copied().cloned()).collect());
    }
    let asked: Vec<(u8, SocketId)> =
        known.iter().map(|(_, k)| (k.listening.family, k.listening.id.clone())).collect();
    namespace.diag.ask(&asked)
}

/// `rose`: by how much `sk_drops` of all listeners of the namespace rose; `counted`: what it counted of packets. A listener's counter
/// also rises for what it discards in good health, and twice for a dropped last ACK: its packets are its part of those counted.
fn sample(seen: &Seen, rose: u64, counted: Counters) -> AcceptQueueSample {
    let own = u64::from(seen.now.drops.wrapping_sub(seen.before.1));
    let drops = (counted.drops * own + rose / 2).checked_div(rose).unwrap_or(0);
    let (before, now) = (seen.before.0, seen.now.depth);
    // The kernel counts an overflow only where it found the queue full, which holds one more than its limit.
    let full = drops > 0 && counted.overflows > 0;
    let peak = if full { seen.now.limit.saturating_add(1) } else { 0 };
    AcceptQueueSample {
        depth_last: now,
        depth_max: before.max(now).max(peak),
        depth_ns: u64::from(before + now) * WINDOW_NS / 2,
        limit: seen.now.limit,
        drops,
        ..AcceptQueueSample::default()
    }
}

impl SignalSource for PolledQueues {
    fn name(&self) -> &'static str {
        "polled-queues"
    }

    fn coverage(&self) -> Vec<Coverage> {
        let trouble = self.discovery.snapshot().trouble.clone();
        let reason = match trouble {
            Some(trouble) => format!("{}; sockets elsewhere are not seen: {trouble}", self.reason),
            None => self.reason.clone(),
        };
        vec![Coverage {
            signal: SignalKind::AcceptQueue,
            covered: true,
            sampled: true,
            hook: HOOK.to_owned(),
            reason,
        }]
    }

    fn losses(&self) -> Vec<Loss> {
        vec![
            Loss { what: "polled_listeners_left_out", count: self.left_out },
            Loss { what: "polled_edges_left_out", count: self.edges_left_out },
            Loss { what: "polled_queues_unanswered", count: self.unanswered },
        ]
    }

    fn drain(&mut self, into: &mut Window) {
        into.polled.accept_queues = true;
        let snapshot = self.discovery.snapshot();
        self.renew(&snapshot);
        // What was dropped in windows that are drained late is told of the next one that is not.
        if into.late {
            return;
        }
        into.accept_queues = Some(self.drain_queues());
        let open = |(key, open): &(EdgeKey, u32)| (*key, ConnectionSample { open: *open });
        into.connections = Some(snapshot.edges.iter().map(open).collect());
    }

    fn skip_to(&mut self, _: WindowIndex) {}

    fn set_epoch_offset_ns(&mut self, _: i64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn seen(before: (u32, u32), depth: u32, drops: u32) -> Seen {
        let key = ListenerKey {
            netns: 1,
            address: Ipv6Addr::UNSPECIFIED,
            port: 80,
            owner: crate::window::CgroupId(1),
            pid: 0,
        };
        let id = SocketId::new_v4();
        let now = Found { family: 2, id, depth, limit: 128, inode: 1, drops, cgroup: None };
        Seen { key, before, now }
    }

    #[test]
    fn a_listeners_packets_are_its_part_of_what_the_namespace_counted() {
        // A dropped last ACK is twice in sk_drops and once in ListenDrops.
        let counted = Counters { overflows: 6, drops: 6 };
        let most = sample(&seen((129, 0), 129, 9), 12, counted);
        let least = sample(&seen((3, u32::MAX), 3, 2), 12, counted);
        assert_eq!((most.drops, least.drops), (5, 2), "also where the counter wrapped");
        assert_eq!(most.depth_max, 129);
        let none = sample(&seen((0, 4), 0, 9), 5, Counters::default());
        assert_eq!((none.drops, none.depth_max), (0, 0), "discarded in good health");
    }

    #[test]
    fn an_overflow_between_two_looks_was_a_full_queue() {
        let full = sample(&seen((2, 0), 10, 4), 4, Counters { overflows: 4, drops: 4 });
        assert_eq!((full.depth_last, full.depth_max), (10, 129));
        assert_eq!(full.depth_ns, 6 * WINDOW_NS);
    }
}
