//! Everything that was learnt, by listener. Owns how many listeners are learnt, who is refused, when one is forgotten, and what is counted;
//! knows no window.

use super::learned::Learned;
use super::second::Joined;
use super::taint::Taint;
use super::who::Server;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Listeners that are learnt; who comes later is refused by name, and counted.
const LISTENERS_MAX: usize = 300;
/// Refused listeners whose names are remembered.
const REFUSED_MAX: usize = 4096;
/// A listener without a request for a day is forgotten, ns.
const FORGET_NS: u64 = 86_400_000_000_000;
/// Bytes that all of it may take, about; beyond it nobody new is learnt.
const BYTES_MAX: usize = 24 << 20;

/// A listener, by what stays the same over restarts of it and of the collector.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) host: String,
    pub(super) workload: String,
    pub(super) address: IpAddr,
    pub(super) port: u16,
}

impl Key {
    /// Whose it is.
    pub(super) fn server(&self) -> Server {
        (self.host.clone(), self.workload.clone())
    }
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct Learners {
    by_key: BTreeMap<Key, Learned>,
    /// Refused listeners, and when they were last seen.
    refused: BTreeMap<Key, u64>,
    seconds: BTreeMap<&'static str, u64>,
    bytes: usize,
}

/// What is counted of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) listeners: usize,
    pub(super) refused: usize,
    pub(super) bytes: usize,
    pub(super) seconds: BTreeMap<&'static str, u64>,
}

impl Learners {
    /// What was kept, as far as there is room.
    pub(super) fn from_kept(kept: Vec<(Key, Learned)>) -> Self {
        let mut learners = Self::default();
        for (key, learned) in kept {
            if learners.has_room() {
                learners.bytes += learned.bytes();
                learners.by_key.insert(key, learned);
            }
        }
        learners
    }

    /// To be kept.
    pub(super) fn to_keep(&self) -> Vec<(&Key, &Learned)> {
        self.by_key.iter().collect()
    }

    fn has_room(&self) -> bool {
        self.by_key.len() < LISTENERS_MAX && self.bytes < BYTES_MAX
    }

    /// Learns from a second; of a listener that there is no room for, only that it was there.
    pub(super) fn learn(&mut self, second: &Joined) {
        let (host, workload) = second.server.clone();
        let key = Key { host, workload, address: second.owned.address, port: second.owned.port };
        if !self.by_key.contains_key(&key) && !self.has_room() {
            if self.refused.len() < REFUSED_MAX || self.refused.contains_key(&key) {
                self.refused.insert(key, second.end_unix_ns);
            }
            *self.seconds.entry("refused").or_default() += 1;
            return;
        }
        self.refused.remove(&key);
        let learned = self.by_key.entry(key).or_default();
        let before = learned.bytes();
        learned.take(second);
        self.bytes = self.bytes.saturating_sub(before) + learned.bytes();
        if second.taints.is_empty() {
            *self.seconds.entry("clean").or_default() += 1;
        }
        for taint in &second.taints {
            *self.seconds.entry(taint.name()).or_default() += 1;
        }
    }

    /// Forgets listeners of which nothing was heard for a day.
    pub(super) fn forget(&mut self, now_unix_ns: u64) {
        let stays = |last: u64| now_unix_ns.saturating_sub(last) < FORGET_NS;
        let before = self.by_key.len();
        self.by_key.retain(|_, learned| stays(learned.span().1));
        self.refused.retain(|_, last| stays(*last));
        if self.by_key.len() < before {
            self.bytes = self.by_key.values().map(Learned::bytes).sum();
        }
    }

    /// By listener.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Learned)> {
        self.by_key.iter()
    }

    /// Answers lately of a server: on one port, or on all.
    pub(super) fn rate(&self, server: &Server, port: Option<u16>, now_unix_ns: u64) -> Option<f64> {
        let own = self.by_key.iter().filter(|(key, _)| {
            key.host == server.0 && key.workload == server.1 && port.is_none_or(|port| key.port == port)
        });
        own.map(|(_, learned)| learned.rate_at(now_unix_ns)).reduce(|a, b| a + b)
    }

    /// What is learnt of a server's listener at this port; of several addresses, the one that is asked most.
    pub(super) fn at_port(&self, server: &Server, port: u16, now_unix_ns: u64) -> Option<&Learned> {
        let own = self
            .by_key
            .iter()
            .filter(|(key, _)| key.port == port && key.host == server.0 && key.workload == server.1);
        own.map(|(_, learned)| learned)
            .max_by(|a, b| a.rate_at(now_unix_ns).total_cmp(&b.rate_at(now_unix_ns)))
    }

    /// Listeners that are not learnt.
    pub(super) fn refused(&self) -> usize {
        self.refused.len()
    }

    /// What is counted.
    pub(super) fn counts(&self) -> Counts {
        let mut seconds: BTreeMap<&'static str, u64> = Taint::ALL
            .iter()
            .map(|taint| taint.name())
            .chain(["clean", "refused"])
            .map(|of| (of, 0))
            .collect();
        seconds.extend(self.seconds.iter().map(|(of, n)| (*of, *n)));
        Counts { listeners: self.by_key.len(), refused: self.refused.len(), bytes: self.bytes, seconds }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::sizing::names::Owned;
    use std::collections::BTreeSet;
    use tailwater_model::window::StateCell;

    const DAY_NS: u64 = FORGET_NS;

    /// A second in which a server answered so many, that ended then.
    pub(in super::super) fn second(server: &Server, port: u16, answered: u64, end_unix_ns: u64) -> Joined {
        let owned = Owned {
            workload: 1,
            measured: 1,
            name: server.1.clone(),
            comm: "java".into(),
            address: "::".parse().unwrap(),
            port,
            quota_ns: None,
            pool: None,
        };
        Joined {
            server: server.clone(),
            owned,
            cells: vec![StateCell { bin: 2, time_ns: 1_000_000_000, answered }],
            end_unix_ns,
            answered,
            in_flight_s: 2.0,
            waiting_s: 0.0,
            drops: 0,
            came: Vec::new(),
            open_s: 2.0,
            servers: 1,
            cpu_s: 0.1 + 1e-3 * answered as f64,
            cpus: 2.0,
            windows: 20,
            backlog: Some(128),
            below_s: Some(0.0),
            by_callers: None,
            calls: 0,
            throttled_s: 0.0,
            worker_shared_max: 1,
            taints: BTreeSet::new(),
        }
    }

    fn server(n: usize) -> Server {
        ("app".to_owned(), format!("{n}.service"))
    }

    #[test]
    fn who_comes_when_it_is_full_is_refused_by_name_until_somebody_is_forgotten() {
        let mut learners = Learners::default();
        (0..LISTENERS_MAX + 2).for_each(|n| learners.learn(&second(&server(n), 80, 10, DAY_NS)));
        learners.learn(&second(&server(LISTENERS_MAX), 80, 10, DAY_NS + 1));
        let counts = learners.counts();
        assert_eq!((counts.listeners, counts.refused), (LISTENERS_MAX, 2));
        assert_eq!((counts.seconds["clean"], counts.seconds["refused"]), (LISTENERS_MAX as u64, 3));
        learners.learn(&second(&server(0), 80, 10, 2 * DAY_NS));
        learners.forget(2 * DAY_NS);
        assert_eq!((learners.counts().listeners, learners.refused()), (1, 1), "heard of less than a day ago");
        learners.learn(&second(&server(LISTENERS_MAX), 80, 10, 2 * DAY_NS));
        assert_eq!((learners.counts().listeners, learners.refused()), (2, 0));
    }

    #[test]
    fn what_is_kept_comes_back_as_it_was() {
        let mut learners = Learners::default();
        for n in 0..500 {
            let tainted = Joined { taints: BTreeSet::from([Taint::Io]), ..second(&server(1), 80, 7, n) };
            learners.learn(&second(&server(0), 80, 50 + n % 40, n * 1_000_000_000));
            learners.learn(&tainted);
        }
        let text = serde_json::to_string(&learners.to_keep()).unwrap();
        let again = Learners::from_kept(serde_json::from_str(&text).unwrap());
        let told = |of: &Learners| -> Vec<_> {
            of.iter().map(|(key, l)| (key.clone(), l.points().len(), l.span(), l.clean_s())).collect()
        };
        assert_eq!(told(&again), told(&learners));
        // Kept with seven digits.
        let pairs =
            again.iter().zip(learners.iter()).flat_map(|(a, b)| a.1.points().into_iter().zip(b.1.points()));
        assert!(pairs.map(|(a, b)| a.throughput / b.throughput - 1.0).all(|off| off.abs() < 1e-6));
        assert!(again.counts().bytes > 0);
        let (_, learned) = again.iter().next().unwrap();
        assert_eq!((learned.clean_s(), learned.comm()), (500.0, "java"));
        let cost = learned.cpu_s().unwrap();
        assert!(
            (cost.value / 1e-3 - 1.0).abs() < 1e-3,
            "what is used without a request is no part of it: {cost:?}"
        );
        let (_, learned) = again.iter().nth(1).unwrap();
        assert_eq!((learned.clean_s(), learned.left_out()[&Taint::Io]), (0.0, 500));
    }

    #[test]
    fn rates_fade_and_add_up_over_ports() {
        let mut learners = Learners::default();
        learners.learn(&second(&server(0), 80, 100, 0));
        learners.learn(&second(&server(0), 81, 40, 0));
        let later = 600_000_000_000;
        let rate = |port, at| learners.rate(&server(0), port, at).unwrap();
        assert!((rate(None, 0) - 140.0).abs() < 1e-9 && (rate(Some(80), later) - 50.0).abs() < 1e-9);
        assert_eq!(learners.rate(&server(9), None, 0), None);
    }
}
