//! Connections between agents and the collector: in order in each direction, and late. One that is cut loses the newest of what is under way,
//! in each direction by itself, and each end learns of it when it learns of it, as one whose other end is gone without a word.

use super::chance::{Chance, MS, S};
use std::collections::{BTreeMap, VecDeque};
use tailwater_proto::v1::collector_message::Body as Reply;
use tonic::codegen::Bytes;

/// Messages of an agent that buffers on the way hold; then it waits.
const UP_MAX: usize = 24;
/// Replies that wait for an agent to read them; what is beyond it is left out, as `collector/src/ingest/service.rs` does.
const DOWN_MAX: usize = 64;
/// Until an end whose other end is silent gives up: what both sides ask of HTTP/2, an interval of pings and the wait for an answer.
const SILENT_NS: u64 = 15 * S;

/// One direction.
struct Way<T> {
    /// Each with the moment from which on the other end can read it.
    under_way: VecDeque<(u64, T)>,
    /// When the newest arrives.
    newest_ns: u64,
    /// From when on the reading end knows, once it has read all, that nothing comes any more. What is sent from then on is lost.
    over_ns: Option<u64>,
}

impl<T> Way<T> {
    fn new() -> Self {
        Self { under_way: VecDeque::new(), newest_ns: 0, over_ns: None }
    }

    fn send(&mut self, arrives_ns: u64, what: T) {
        if self.over_ns.is_none() {
            self.newest_ns = self.newest_ns.max(arrives_ns);
            self.under_way.push_back((self.newest_ns, what));
        }
    }

    fn has_arrived(&self, now_ns: u64) -> bool {
        self.under_way.front().is_some_and(|(at, _)| *at <= now_ns)
    }

    fn take(&mut self, now_ns: u64) -> Option<T> {
        if !self.has_arrived(now_ns) {
            return None;
        }
        self.under_way.pop_front().map(|(_, what)| what)
    }

    fn is_over(&self, now_ns: u64) -> bool {
        self.under_way.is_empty() && self.over_ns.is_some_and(|at| at <= now_ns)
    }

    fn hold(&mut self, until_ns: u64) {
        self.newest_ns = self.newest_ns.max(until_ns);
        for (at, _) in &mut self.under_way {
            *at = (*at).max(until_ns);
        }
    }

    /// Of what is under way the first ones arrive, and then nothing.
    fn cut(&mut self, now_ns: u64, chance: &mut Chance) {
        let arrive = chance.below(self.under_way.len() as u64 + 1) as usize;
        self.under_way.truncate(arrive);
        let silent_ns = if chance.one_in(2) { 0 } else { chance.between(S, SILENT_NS) };
        let over_ns = now_ns + silent_ns;
        self.over_ns = Some(self.over_ns.map_or(over_ns, |before| before.min(over_ns)));
    }
}

/// A connection.
pub(crate) struct Link {
    up: Way<Bytes>,
    down: Way<Reply>,
    /// Which life of the collector it is to.
    pub(crate) life: u64,
    /// The agent's end is there; the collector's.
    near: bool,
    far: bool,
    latency_ns: u64,
}

impl Link {
    fn arrives(&self, now_ns: u64, chance: &mut Chance) -> u64 {
        now_ns + self.latency_ns + chance.below(self.latency_ns)
    }

    /// The agent says something.
    pub(crate) fn say(&mut self, now_ns: u64, raw: Bytes, chance: &mut Chance) {
        let arrives_ns = self.arrives(now_ns, chance);
        self.up.send(arrives_ns, raw);
    }

    /// Whether buffers on the way take one more.
    pub(crate) fn has_room(&self) -> bool {
        self.up.under_way.len() < UP_MAX
    }

    /// The collector says something.
    pub(crate) fn reply(&mut self, now_ns: u64, reply: Reply, chance: &mut Chance) {
        if self.down.under_way.len() < DOWN_MAX {
            let arrives_ns = self.arrives(now_ns, chance);
            self.down.send(arrives_ns, reply);
        }
    }

    /// What the agent hears.
    pub(crate) fn hear(&mut self, now_ns: u64) -> Option<Reply> {
        self.down.take(now_ns)
    }

    /// The agent knows that it is over.
    pub(crate) fn is_over_for_agent(&self, now_ns: u64) -> bool {
        self.down.is_over(now_ns)
    }

    /// The collector's end is there.
    pub(crate) fn is_served(&self) -> bool {
        self.far
    }

    pub(crate) fn has_arrived(&self, now_ns: u64) -> bool {
        self.up.has_arrived(now_ns)
    }

    /// What the collector reads.
    pub(crate) fn read(&mut self, now_ns: u64) -> Option<Bytes> {
        self.up.take(now_ns)
    }

    /// The collector knows that it is over.
    pub(crate) fn is_over_for_collector(&self, now_ns: u64) -> bool {
        self.up.is_over(now_ns)
    }

    /// The agent closes its end. What it said still arrives, unless the connection is cut.
    pub(crate) fn leave(&mut self) {
        self.near = false;
        self.down.under_way.clear();
        self.down.over_ns = Some(0);
        self.up.over_ns = self.up.over_ns.or(Some(0));
    }

    /// The collector closes its end; the same.
    pub(crate) fn close(&mut self) {
        self.far = false;
        self.up.under_way.clear();
        self.up.over_ns = Some(0);
        self.down.over_ns = self.down.over_ns.or(Some(0));
    }

    /// Nothing arrives before that.
    pub(crate) fn hold(&mut self, until_ns: u64) {
        self.up.hold(until_ns);
        self.down.hold(until_ns);
    }

    /// It breaks.
    pub(crate) fn cut(&mut self, now_ns: u64, chance: &mut Chance) {
        self.up.cut(now_ns, chance);
        self.down.cut(now_ns, chance);
    }
}

/// All connections that have an end, by number.
pub(crate) struct Network {
    pub(crate) links: BTreeMap<u64, Link>,
    /// Connections so far.
    pub(crate) made: u64,
    /// Of the collector.
    pub(crate) life: u64,
}

impl Network {
    pub(crate) fn new() -> Self {
        Self { links: BTreeMap::new(), made: 0, life: 0 }
    }

    /// An agent connects, and says its first message.
    pub(crate) fn connect(&mut self, now_ns: u64, first: Bytes, chance: &mut Chance) -> u64 {
        let latency_ns = if chance.one_in(4) { chance.between(5 * MS, 80 * MS) } else { MS };
        let (up, down) = (Way::new(), Way::new());
        let mut link = Link { up, down, life: self.life, near: true, far: true, latency_ns };
        link.say(now_ns, first, chance);
        self.made += 1;
        self.links.insert(self.made, link);
        self.made
    }

    /// One of them.
    pub(crate) fn any(&mut self, chance: &mut Chance) -> Option<&mut Link> {
        let at = chance.below(self.links.len() as u64) as usize;
        self.links.values_mut().nth(at)
    }

    pub(crate) fn forget_gone(&mut self) {
        self.links.retain(|_, link| link.near || link.far);
    }
}
