//! Whose very long answers are: where incidents follow each other at one tier those of the one are none of the other's, and as many as come anyway are
//! nobody's. Owns that; counts nothing.

use super::FIRST_WAIT;
use crate::series::growth::LEAD_WINDOWS;
use crate::topology::tier::TierKey;
use std::collections::BTreeSet;
use tailwater_model::incident::VeryLong;

/// How many very long answers are usual is taken from so many of the seconds before …
const SECONDS: usize = 8;
/// … of which more are looked at, as some may be another incident's (16 s) …
const SECONDS_WITHIN: u64 = 16;
/// … each of so many windows; …
const SECOND_WINDOWS: u64 = 20;
/// … the fullest of them left out, which may be of a stall that nobody was told of …
const LEFT_OUT: usize = 2;
/// … if there are so many at least.
const SECONDS_LEAST: usize = 4;
/// What another incident left behind is looked for so long after it (17 s).
const REMEMBERED_WINDOWS: u64 = (SECONDS_WITHIN + 1) * SECOND_WINDOWS;

/// From when to when an incident had something dropped, and the tiers that it is about.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(super) id: String,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) tiers: BTreeSet<TierKey>,
}

impl Life {
    /// Whether it matters to incidents that begin now.
    pub(super) fn is_remembered(&self, now: u64) -> bool {
        now <= answered(self.last).saturating_add(REMEMBERED_WINDOWS)
    }

    /// Whether its clients are answered in a window.
    fn is_at(&self, window: u64) -> bool {
        (self.first..=answered(self.last)).contains(&window)
    }
}

/// One incident among those of the same tiers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside<'a> {
    /// That one, if it had something dropped.
    own: Option<&'a Life>,
    lives: &'a [Life],
}

impl<'a> Beside<'a> {
    /// Of `id` among all that had something dropped.
    pub(super) fn new(lives: &'a [Life], id: &str) -> Self {
        Self { own: lives.iter().find(|life| life.id == id), lives }
    }

    fn others(self, key: &TierKey, is: impl Fn(&Life) -> bool) -> bool {
        let own = self.own.map(|own| own.id.as_str());
        let mut others = self.lives.iter().filter(|life| is(life) && Some(life.id.as_str()) != own);
        others.any(|life| life.tiers.contains(key))
    }

    /// Whether clients of another incident at this tier are answered in a window.
    pub(super) fn is_of_another(self, key: &TierKey, window: u64) -> bool {
        self.others(key, |life| life.is_at(window))
    }

    /// Whether what takes so long in a window is another's: no request of this one, which began at `from`, can have waited for a second yet, or its last
    /// ones have been answered, and another came after it.
    pub(super) fn is_none_of_this(self, key: &TierKey, from: u64, window: u64) -> bool {
        if window < from.saturating_add(SECOND_WINDOWS) {
            return self.is_of_another(key, window);
        }
        let over = self.own.filter(|own| window > answered(own.last));
        over.is_some_and(|own| self.others(key, |life| life.first > own.last && life.first <= window))
    }
}

/// When those are answered, as a rule, who were dropped last in window `last`: they come again after a second.
fn answered(last: u64) -> u64 {
    last.saturating_add(FIRST_WAIT).saturating_add(LEAD_WINDOWS)
}

/// As many very long answers as come anyway, in so many windows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usual {
    sums: VeryLong,
    windows: u64,
}

impl Usual {
    /// Of each kind what came in the seconds before window `from`. `counted`: of a window that is there; `is_of_another`: of which nothing is asked, unless
    /// hardly any other is known, as after a long incident: then what came even in the emptiest second is usual.
    pub(super) fn before(
        from: u64,
        counted: impl Fn(u64) -> Option<VeryLong>,
        is_of_another: impl Fn(u64) -> bool,
    ) -> Self {
        let seconds = |is_asked: &dyn Fn(u64) -> bool| -> Vec<VeryLong> {
            let second = |ago: u64| {
                let end = from.checked_sub((ago - 1) * SECOND_WINDOWS)?;
                let windows = (end.saturating_sub(SECOND_WINDOWS)..end).filter(|window| is_asked(*window));
                a_second(&windows.filter_map(&counted).collect::<Vec<_>>())
            };
            (1..=SECONDS_WITHIN).filter_map(second).take(SECONDS).collect()
        };
        let known = seconds(&|window| !is_of_another(window));
        let (known, kept) = if known.len() >= SECONDS_LEAST {
            let kept = known.len() - LEFT_OUT;
            (known, kept)
        } else {
            (seconds(&|_| true), 1)
        };
        let sum = |kind: fn(&VeryLong) -> u64| {
            let mut of: Vec<u64> = known.iter().map(kind).collect();
            of.sort_unstable();
            of.into_iter().take(kept).fold(0, u64::saturating_add)
        };
        let sums = VeryLong {
            retried: sum(|of| of.retried),
            queued: sum(|of| of.queued),
            unread: sum(|of| of.unread),
            inside: sum(|of| of.inside),
        };
        Self { sums, windows: kept as u64 * SECOND_WINDOWS }
    }

    /// What was counted in so many windows beyond that.
    pub(super) fn beyond(&self, counted: VeryLong, windows: u64) -> VeryLong {
        counted.with(self.sums, |counted, usual| {
            counted.saturating_sub(usual.saturating_mul(windows).div_ceil(self.windows.max(1)))
        })
    }
}

/// What comes in a second, by those of its windows that are known. `None`: half of them or more are not.
fn a_second(windows: &[VeryLong]) -> Option<VeryLong> {
    let known = windows.len() as u64;
    let sum = windows.iter().copied().reduce(VeryLong::and)?;
    let whole = |_, sum: u64| sum.saturating_mul(SECOND_WINDOWS).div_ceil(known);
    (2 * known > SECOND_WINDOWS).then(|| VeryLong::default().with(sum, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture;

    fn inside(inside: u64) -> VeryLong {
        VeryLong { inside, ..VeryLong::default() }
    }

    /// Of an incident of so many windows that begins at 1000, what is its own of so many answers.
    fn own(
        counted: u64,
        windows: u64,
        of: impl Fn(u64) -> Option<u64>,
        another: impl Fn(u64) -> bool,
    ) -> u64 {
        let usual = Usual::before(1_000, |window| of(window).map(inside), another);
        usual.beyond(inside(counted), windows).inside
    }

    /// Fails where the clients of the incident before make what took so long now look as usual, or where long polls count for this one.
    #[test]
    fn what_comes_anyway_is_nobodys_and_what_an_incident_left_is_not_usual() {
        let nobody = |_| false;
        assert_eq!(own(90, 200, |_| Some(0), nobody), 90);
        let polls = |window| Some(u64::from(window % 10 == 0));
        assert_eq!(own(90, 200, polls, nobody), 70, "a long poll ends twice a second");
        let report = |window| Some(u64::from(window % 40 == 0));
        assert_eq!(
            own(90, 240, report, nobody),
            86,
            "every other second: with the fullest two left out a little less"
        );
        let stall = |window| Some(if (910..935).contains(&window) { 9 } else { 0 });
        assert_eq!(own(90, 200, stall, nobody), 90, "a stall that nobody was told of");
        let before = |window| Some(if (840..990).contains(&window) { 2 } else { 0 });
        assert_eq!(own(90, 20, before, |window| (840..990).contains(&window)), 90, "another incident's");
        let long = |window| Some(if window < 980 { 9 } else { 2 });
        assert_eq!(
            own(90, 20, long, |window| window < 990),
            50,
            "after a long one its emptiest second is usual"
        );
        assert_eq!(own(90, 20, |window| (window < 900).then_some(1), nobody), 70, "windows are missing");
        assert_eq!(own(90, 20, |window| (window % 4 > 0).then_some(1), nobody), 70, "of each second some");
        assert_eq!(own(90, 20, |_| None, nobody), 90);
        let begins = Usual::before(3, |_| Some(inside(1)), nobody);
        assert_eq!(begins.beyond(inside(90), 20).inside, 90, "hardly anything is known");
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
        assert!(lives[0].is_remembered(120 + 320) && !lives[0].is_remembered(120 + 400));
    }
}
