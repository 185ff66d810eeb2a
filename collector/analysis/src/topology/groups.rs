//! Which tiers calls connect at all, whoever calls whom: tiers of different groups have no way to each other, which saves looking for one.
//! Owns the groups; knows no direction, and no address.

use super::tier::TierKey;
use std::collections::HashMap;

/// Tiers by group (union-find). Links that begin join two groups at once. Where one ended its group stays one for a while, which says too
/// little and nothing wrong; when more ended than there are, the groups are made anew.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    places: HashMap<TierKey, usize>,
    /// Of the tier at each place, the place of another of its group; of one of them, its own.
    next: Vec<usize>,
    /// Tiers of the group that has its end there.
    size: Vec<usize>,
    ended: usize,
}

impl Groups {
    /// One calls the other.
    pub(super) fn join(&mut self, from: &TierKey, to: &TierKey) {
        let (from, to) = (self.place(from), self.place(to));
        let (from, to) = (self.end(from), self.end(to));
        if from == to {
            return;
        }
        let (small, large) = if self.size[from] < self.size[to] { (from, to) } else { (to, from) };
        self.next[small] = large;
        self.size[large] += self.size[small];
    }

    /// A link that joined two is no more.
    pub(super) fn ended(&mut self) {
        self.ended = self.ended.saturating_add(1);
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
        let group = |key: &TierKey| self.places.get(key).map(|place| self.end(*place));
        // One without a place calls nobody, and nobody calls it.
        a != b && group(a).zip(group(b)).is_none_or(|(a, b)| a != b)
    }

    fn place(&mut self, key: &TierKey) -> usize {
        if let Some(place) = self.places.get(key) {
            return *place;
        }
        let place = self.next.len();
        self.places.insert(key.clone(), place);
        self.next.push(place);
        self.size.push(1);
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
            groups.ended();
            groups.renew(links.len(), calls());
        }
        assert!(!groups.are_apart(&key(1), &key(2)), "not known yet");
        groups.ended();
        groups.renew(links.len(), calls());
        assert!(groups.are_apart(&key(1), &key(2)));
        assert!(!groups.are_apart(&key(1), &key(101)));
        assert_eq!((groups.ended, groups.places.len()), (0, 20));
    }
}
