//! Which tiers calls connect, by number: whether a way leads from one to another is asked of every open case and whatever a queue felt, and to
//! follow it by names compares names at each step. Tiers of different groups have no way to each other, which saves looking for one.
//! Owns the groups, and who calls whom in them; knows no address.

use super::tier::TierKey;
use std::collections::{HashMap, HashSet};

/// Tiers by group (union-find), and whom each calls. Links that begin join two groups at once. Where one ended its group stays one for a
/// while, which says too little and nothing wrong; when more ended than there are, the groups are made anew.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    places: HashMap<TierKey, usize>,
    /// Of the tier at each place, the place of another of its group; of one of them, its own.
    next: Vec<usize>,
    /// Tiers of the group that has its end there.
    size: Vec<usize>,
    /// Of the tier at each place, the places of those that it calls: one for each link, in no order.
    calls: Vec<Vec<usize>>,
    ended: usize,
}

impl Groups {
    /// One calls the other.
    pub(super) fn join(&mut self, from: &TierKey, to: &TierKey) {
        let (from, to) = (self.place(from), self.place(to));
        self.calls[from].push(to);
        let (from, to) = (self.end(from), self.end(to));
        if from == to {
            return;
        }
        let (small, large) = if self.size[from] < self.size[to] { (from, to) } else { (to, from) };
        self.next[small] = large;
        self.size[large] += self.size[small];
    }

    /// A link that joined two is no more.
    pub(super) fn ended(&mut self, from: &TierKey, to: &TierKey) {
        self.ended = self.ended.saturating_add(1);
        let Some((from, to)) = self.both(from, to) else { return };
        let calls = &mut self.calls[from];
        if let Some(one) = calls.iter().position(|called| *called == to) {
            calls.swap_remove(one);
        }
    }

    /// Makes them of all links there are, callers with whom they call, if more ended since than those are.
    pub(super) fn renew<'a>(
        &mut self,
        links: usize,
        calls: impl Iterator<Item = (&'a TierKey, &'a TierKey)>,
    ) {
        if self.ended > links {
            *self = Self::default();
            calls.for_each(|(from, to)| self.join(from, to));
        }
    }

    /// Whether no way along calls, in whatever direction, leads from one to the other. `false`: that is not known.
    pub(super) fn are_apart(&self, a: &TierKey, b: &TierKey) -> bool {
        a != b && self.both(a, b).is_none_or(|(a, b)| self.end(a) != self.end(b))
    }

    /// Whether calls lead from one to the other, at any depth. Every tier leads to itself.
    pub(super) fn leads(&self, from: &TierKey, to: &TierKey) -> bool {
        from == to || self.both(from, to).is_some_and(|(from, to)| self.is_below(from, to))
    }

    /// Whether one of them leads to the other.
    pub(super) fn are_related(&self, a: &TierKey, b: &TierKey) -> bool {
        let either = |(a, b)| self.is_below(a, b) || self.is_below(b, a);
        !self.are_apart(a, b) && (a == b || self.both(a, b).is_some_and(either))
    }

    /// Whether a place is reached from another one.
    fn is_below(&self, from: usize, to: usize) -> bool {
        // As large as what is reached, which mostly is a tier or two, not as all there is.
        let mut seen = HashSet::new();
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            for next in &self.calls[at] {
                if *next == to {
                    return true;
                }
                if seen.insert(*next) {
                    waiting.push(*next);
                }
            }
        }
        false
    }

    /// The places of two tiers; one without a place calls nobody, and nobody calls it.
    fn both(&self, a: &TierKey, b: &TierKey) -> Option<(usize, usize)> {
        self.places.get(a).copied().zip(self.places.get(b).copied())
    }

    fn place(&mut self, key: &TierKey) -> usize {
        if let Some(place) = self.places.get(key) {
            return *place;
        }
        let place = self.next.len();
        self.places.insert(key.clone(), place);
        self.next.push(place);
        self.size.push(1);
        self.calls.push(Vec::new());
        place
    }

    /// The place that stands for a group. The smaller group joins the larger one, so it is a few steps away.
    fn end(&self, mut place: usize) -> usize {
        while self.next[place] != place {
            place = self.next[place];
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(workload: u32) -> TierKey {
        TierKey { host: "a".into(), workload, listener: 0 }
    }

    #[test]
    fn tiers_that_no_call_connects_are_apart() {
        let mut groups = Groups::default();
        assert!(groups.are_apart(&key(1), &key(2)) && !groups.are_apart(&key(1), &key(1)));
        for (from, to) in [(1, 2), (3, 2), (4, 5), (6, 6)] {
            groups.join(&key(from), &key(to));
        }
        assert!(!groups.are_apart(&key(1), &key(3)), "both call the same");
        assert!(groups.are_apart(&key(1), &key(4)) && groups.are_apart(&key(6), &key(5)));
        groups.join(&key(5), &key(3));
        assert!(!groups.are_apart(&key(1), &key(4)));
    }

    #[test]
    fn what_ended_is_forgotten_when_more_ended_than_there_is() {
        let mut groups = Groups::default();
        let links: Vec<(TierKey, TierKey)> = (0..10).map(|n| (key(n), key(n + 100))).collect();
        groups.join(&key(1), &key(2));
        links.iter().for_each(|(from, to)| groups.join(from, to));
        let calls = || links.iter().map(|(from, to)| (from, to));
        for _ in 0..10 {
            groups.ended(&key(1), &key(2));
            groups.renew(links.len(), calls());
        }
        assert!(!groups.are_apart(&key(1), &key(2)), "not known yet");
        assert!(!groups.leads(&key(1), &key(2)), "but that no call leads there is");
        groups.ended(&key(1), &key(2));
        groups.renew(links.len(), calls());
        assert!(groups.are_apart(&key(1), &key(2)));
        assert!(!groups.are_apart(&key(1), &key(101)));
        assert_eq!((groups.ended, groups.places.len()), (0, 20));
    }

    /// Whether calls lead from one to the other, followed link by link.
    fn followed(links: &[(u32, u32)], from: u32, to: u32) -> bool {
        let mut found = vec![from];
        let mut next = 0;
        while let Some(at) = found.get(next).copied() {
            for (_, called) in links.iter().filter(|(caller, _)| *caller == at) {
                if !found.contains(called) {
                    found.push(*called);
                }
            }
            next += 1;
        }
        found.contains(&to)
    }

    proptest! {
        /// Links begin and end, several between the same two among them.
        #[test]
        fn whom_a_tier_reaches_is_what_following_its_calls_says(
            steps in prop::collection::vec((prop::bool::weighted(0.6), 0u32..6, 0u32..6), 1..40),
        ) {
            let mut groups = Groups::default();
            let mut links: Vec<(u32, u32)> = Vec::new();
            for (begins, from, to) in steps {
                if begins {
                    links.push((from, to));
                    groups.join(&key(from), &key(to));
                } else if let Some(one) = links.iter().position(|link| *link == (from, to)) {
                    links.remove(one);
                    groups.ended(&key(from), &key(to));
                }
                let keys: Vec<(TierKey, TierKey)> = links.iter().map(|(a, b)| (key(*a), key(*b))).collect();
                groups.renew(links.len(), keys.iter().map(|(from, to)| (from, to)));
                for (a, b) in (0..6).flat_map(|a| (0..6).map(move |b| (a, b))) {
                    let (there, back) = (followed(&links, a, b), followed(&links, b, a));
                    prop_assert_eq!(groups.leads(&key(a), &key(b)), there, "{} to {}: {:?}", a, b, &links);
                    prop_assert_eq!(groups.are_related(&key(a), &key(b)), there || back);
                }
            }
        }
    }
}
