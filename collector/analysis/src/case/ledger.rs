//! What the tiers of an incident went through from its onset on, window by window, for as long as it lives: the windows themselves leave
//! the history after 20 s. Owns worst values, sums and ends of each tier; a tier takes the same few bytes after hours as after a second.

use super::FIRST_WAIT;
use crate::frame::history::HISTORY_WINDOWS;
use crate::path::view::View;
use crate::series::growth::LEAD_WINDOWS;
use crate::series::sample::{TierSample, tier_sample};
use crate::topology::tier::{Tier, TierKey};
use std::collections::{BTreeMap, BTreeSet};
use tailwater_model::incident::{HopLife, HopNow, VeryLong};
use tailwater_model::window::HostWindow;

/// How many very long answers are usual is taken from so many of the seconds before …
const USUAL_SECONDS: usize = 8;
/// … of which more are looked at, as some may be another incident's (16 s) …
const USUAL_WITHIN: u64 = 16;
/// … each of so many windows.
const SECOND_WINDOWS: u64 = 20;
/// Tiers of one incident that are accounted for: as many as are listed.
const TIERS_MAX: usize = 16;

/// From when to when an incident had something dropped, and the tiers that it is about.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(super) id: String,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) tiers: BTreeSet<TierKey>,
}

/// Whose very long answers come in which window, where incidents follow each other at one tier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside<'a> {
    /// The incident in question, if it had something dropped.
    own: Option<&'a Life>,
    lives: &'a [Life],
}

impl<'a> Beside<'a> {
    /// Of `id` among all that had something dropped.
    pub(crate) fn new(lives: &'a [Life], id: &str) -> Self {
        Self { own: lives.iter().find(|life| life.id == id), lives }
    }

    fn others(self, key: &TierKey) -> impl Iterator<Item = &'a Life> {
        let own = self.own.map(|own| own.id.as_str());
        self.lives.iter().filter(move |life| Some(life.id.as_str()) != own && life.tiers.contains(key))
    }

    /// Whether clients of another incident at this tier are answered in a window.
    fn is_of_another(self, key: &TierKey, window: u64) -> bool {
        self.others(key).any(|life| (life.first..=answered(life.last)).contains(&window))
    }

    /// Whether what takes so long in a window is another's: no request of this one can have waited for a second yet, or its last ones have been
    /// answered, and another came after it.
    fn is_none_of_this(self, key: &TierKey, from: u64, window: u64) -> bool {
        if window < from.saturating_add(SECOND_WINDOWS) {
            return self.is_of_another(key, window);
        }
        let over = |own: &&Life| window > answered(own.last);
        let next = |own: &Life| self.others(key).any(|life| life.first > own.last && life.first <= window);
        self.own.filter(over).is_some_and(next)
    }
}

/// When those are answered, as a rule, who were dropped last in window `last`: they come again after a second.
fn answered(last: u64) -> u64 {
    last.saturating_add(FIRST_WAIT).saturating_add(LEAD_WINDOWS)
}

/// One tier of one incident.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Account {
    first: u64,
    last: u64,
    /// Windows of it that did not come: what happened in them is not in the sums.
    missing: u64,
    queued_max: f64,
    workers_busy_max: u32,
    accept_queue_max: u32,
    received: u64,
    answered: u64,
    dropped: u64,
    very_long: Option<VeryLong>,
    /// As many as come in a second, as a rule, and in how many windows they were counted.
    very_long_usual: VeryLong,
    very_long_windows: u64,
    /// The newest window that came.
    now: Option<(u64, TierSample)>,
}

/// The tiers of one incident.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    accounts: BTreeMap<TierKey, Account>,
}

impl Ledger {
    /// Takes window `now` of a tier; if it is a new one, all from `from` on that is remembered.
    pub(crate) fn take(&mut self, view: View<'_>, key: &TierKey, from: u64, now: u64, beside: Beside<'_>) {
        let from = match self.accounts.get(key) {
            Some(account) => account.last.saturating_add(1),
            None if self.accounts.len() < TIERS_MAX => from,
            None => return,
        };
        let Some(tier) = view.topology.tiers.get(key) else { return };
        // A jump of the clock leaves nothing to be read in between.
        let from = from.max(now.saturating_sub(HISTORY_WINDOWS as u64));
        let windows = view.history.windows_of(&key.host);
        let account = self.accounts.entry(key.clone()).or_insert_with(|| {
            let counted = |index| {
                let window = windows.at(index).filter(|_| !beside.is_of_another(key, index))?;
                Some(very_long(window, tier).unwrap_or_default())
            };
            Account { first: from, very_long_usual: usual_second(counted, from), ..Account::default() }
        });
        for index in from..=now {
            let window = windows.at(index);
            account.add(index, window.map(|window| tier_sample(window, tier)));
            if beside.is_none_of_this(key, account.first, index) {
                continue;
            }
            let counted = window.and_then(|window| very_long(window, tier));
            account.very_long = known_sum(account.very_long, counted);
            account.very_long_windows += 1;
        }
    }

    /// Very long answers of a tier so far, beyond as many as were usual in the seconds before it began: long polls and reports take as long as ever.
    /// `None`: not counted.
    pub(crate) fn very_long(&self, key: &TierKey) -> Option<VeryLong> {
        let account = self.accounts.get(key)?;
        let beyond = |counted: u64, a_second: u64| {
            let usual = a_second.saturating_mul(account.very_long_windows).div_ceil(SECOND_WINDOWS);
            counted.saturating_sub(usual)
        };
        let (counted, usual) = (account.very_long?, account.very_long_usual);
        Some(VeryLong {
            retried: beyond(counted.retried, usual.retried),
            queued: beyond(counted.queued, usual.queued),
            unread: beyond(counted.unread, usual.unread),
            inside: beyond(counted.inside, usual.inside),
        })
    }

    /// The tiers that are accounted for.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = &TierKey> + Clone {
        self.accounts.keys()
    }

    /// What is told of a tier; `None`: it is not accounted for.
    pub(crate) fn life(&self, view: View<'_>, key: &TierKey) -> Option<HopLife> {
        let account = self.accounts.get(key)?;
        let start_ns = |window| view.history.start_unix_ns(&key.host, window);
        Some(HopLife {
            start_unix_ns: start_ns(account.first),
            end_unix_ns: start_ns(account.last.saturating_add(1)),
            windows_missing: account.missing,
            queued_max: account.queued_max.round() as u64,
            workers_busy_max: account.workers_busy_max,
            accept_queue_max: account.accept_queue_max,
            received: account.received,
            answered: account.answered,
            dropped: account.dropped,
            very_long: account.very_long,
            now: account.now.map(|(window, s)| HopNow {
                start_unix_ns: start_ns(window),
                queued: s.queued_max.round() as u64,
                workers_busy: s.workers_busy_max,
                accept_queue: s.depth_max,
            }),
        })
    }
}

/// Very long answers of a tier's listeners in one window; `None`: not counted, or its requests are not known.
fn very_long(window: &HostWindow, tier: &Tier) -> Option<VeryLong> {
    let listeners = tier.listeners.iter().filter_map(|l| window.listeners.get(&l.id));
    let of = listeners.filter_map(|l| l.turns()).map(|l| {
        let (retried, queued) = (l.very_long_retried?, l.very_long_queued?);
        Some(VeryLong { retried, queued, unread: l.very_long_unread?, inside: l.very_long_inside? })
    });
    of.fold(None, known_sum)
}

/// Very long answers of a second before window `from`, the median of each kind: long polls and reports come in most seconds, and what an incident
/// shortly before left behind in some. `counted` is `None` where a window is missing, or another's; of a second more than half have to be there.
fn usual_second(counted: impl Fn(u64) -> Option<VeryLong>, from: u64) -> VeryLong {
    let second = |ago: u64| {
        let end = from.checked_sub((ago - 1) * SECOND_WINDOWS)?;
        let windows: Vec<VeryLong> = (end.saturating_sub(SECOND_WINDOWS)..end).filter_map(&counted).collect();
        let known = 2 * windows.len() as u64 > SECOND_WINDOWS;
        known.then(|| windows.into_iter().fold(VeryLong::default(), VeryLong::and))
    };
    let seconds: Vec<VeryLong> = (1..=USUAL_WITHIN).filter_map(second).take(USUAL_SECONDS).collect();
    let median = |kind: fn(&VeryLong) -> u64| {
        let mut of: Vec<u64> = seconds.iter().map(kind).collect();
        of.sort_unstable();
        of.get(of.len().saturating_sub(1) / 2).copied().unwrap_or(0)
    };
    VeryLong {
        retried: median(|of| of.retried),
        queued: median(|of| of.queued),
        unread: median(|of| of.unread),
        inside: median(|of| of.inside),
    }
}

/// What both have, or what one has.
fn known_sum(a: Option<VeryLong>, b: Option<VeryLong>) -> Option<VeryLong> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.and(b)),
        (a, b) => a.or(b),
    }
}

impl Account {
    fn add(&mut self, index: u64, sample: Option<TierSample>) {
        self.last = index;
        let Some(s) = sample else {
            self.missing = self.missing.saturating_add(1);
            return;
        };
        self.queued_max = self.queued_max.max(s.queued_max);
        self.workers_busy_max = self.workers_busy_max.max(s.workers_busy_max);
        self.accept_queue_max = self.accept_queue_max.max(s.depth_max);
        if !s.connections_only {
            self.received = self.received.saturating_add(s.received as u64);
            self.answered = self.answered.saturating_add(s.answered as u64);
        }
        self.dropped = self.dropped.saturating_add(s.drops);
        self.now = Some((index, s));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture;

    /// Fails where the clients of the incident before make what took so long now look as usual, or where long polls count for this one.
    #[test]
    fn what_comes_in_most_seconds_is_usual_and_what_an_incident_left_is_not() {
        let inside = |inside| VeryLong { inside, ..VeryLong::default() };
        let usual = |of: &dyn Fn(u64) -> Option<VeryLong>| usual_second(of, 1_000).inside;
        assert_eq!(usual(&|_| Some(inside(0))), 0);
        assert_eq!(
            usual(&|window| Some(inside(u64::from(window % 10 == 0)))),
            2,
            "a long poll ends twice a second"
        );
        assert_eq!(usual(&|window| Some(inside(if (910..935).contains(&window) { 9 } else { 0 }))), 0);
        assert_eq!(usual(&|window| (window < 900).then(|| inside(1))), 20, "some windows are missing");
        assert_eq!(usual(&|window| (window < 980).then(|| inside(1))), 20, "the newest second is another's");
        assert_eq!(usual(&|_| None), 0);
        assert_eq!(usual_second(|_| Some(inside(1)), 3).inside, 0, "hardly anything is known");
    }

    /// Fails where each of two incidents that follow each other at a tier counts the clients of both.
    #[test]
    fn clients_of_the_incident_before_and_after_are_not_of_this_one() {
        let key = fixture::dropped(1, 0, 0).tier;
        let elsewhere = TierKey { host: "elsewhere".into(), ..key.clone() };
        let life = |id: &str, (first, last)| Life { id: id.into(), first, last, tiers: [key.clone()].into() };
        let lives = [life("one", (100, 120)), life("two", (180, 220))];
        let (one, two) = (Beside::new(&lives, "one"), Beside::new(&lives, "two"));
        let of = |beside: Beside<'_>, from, at: &TierKey| -> Vec<u64> {
            (90..300).filter(|window| !beside.is_none_of_this(at, from, *window)).collect()
        };
        let answered = answered(120);
        assert_eq!(of(one, 95, &key), (90..180).collect::<Vec<_>>(), "until another comes");
        assert_eq!(of(one, 95, &elsewhere).len(), 210);
        assert_eq!(of(two, 178, &key).first(), Some(&90), "before anything was dropped");
        assert!(!of(two, 150, &key).contains(&answered) && of(two, 150, &key).contains(&(answered + 1)));
        assert!(of(two, 178, &key).ends_with(&[299]), "nobody comes after it");
        // Who is dropped while the others are still answered counts for both.
        assert!(of(one, 95, &key).contains(&(answered - 1)) && answered < 180);
        let felt = Beside::new(&lives, "felt");
        assert!(felt.is_of_another(&key, 110) && !felt.is_of_another(&key, answered + 1));
    }
}
