//! Response times as counts by bucket: what a window has of its listeners, and any number of those as one. Owns the buckets' edges, and what may
//! be said of a quantile or a threshold that lies between two of them. Knows no window and no name.

use serde::{Deserialize, Serialize};

/// Buckets, as the agent's kernel programs have them (`ebpf/bpf/include/histogram.h`): the first counts what took less than 2 us, each after
/// it `[2^i, 2^(i+1))` us, and the last whatever took [`OPEN_US`] or more: it has no upper edge.
pub const BUCKETS: usize = 24;
/// The last bucket.
const OPEN: usize = BUCKETS - 1;
/// Where the last bucket begins, us: 8.4 s.
pub const OPEN_US: u64 = 1 << OPEN;
/// In place of a bucket: [`COARSE_US`] or more, of an agent of before, which had no bucket beyond that.
const COARSE: usize = BUCKETS;
/// The last bucket of agents of before.
const COARSE_FROM: usize = 19;
/// Where that began, us: 524 ms.
pub const COARSE_US: u64 = 1 << COARSE_FROM;

/// Edges between buckets, us, rising: bucket `i` ends where edge `i` is.
pub fn edges_us() -> impl Iterator<Item = u64> {
    (1..BUCKETS).map(|n| 1_u64 << n)
}

/// Where a bucket begins, us.
fn begin_us(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        COARSE => COARSE_US,
        _ => 1_u64 << bucket.min(OPEN),
    }
}

/// Answers of one listener in one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// Its id.
    pub listener: u32,
    /// Below [`BUCKETS`]; that itself: 524 ms or more, of an agent that does not tell how much more.
    pub bucket: u8,
    /// More than zero.
    pub answers: u32,
}

/// Answers of a window by listener and bucket, rising. Only what was counted is there: 12 bytes for each bucket of a listener that answered, and
/// most answers of 50 ms are in three to six; a window in which nobody answered takes no memory beside the empty list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts(Vec<Count>);

impl Counts {
    /// Counts more answers. A bucket beyond the last one is counted in that, which is open; no answers leave no trace. What comes in rising order
    /// of listener and bucket is appended.
    pub fn add(&mut self, listener: u32, bucket: usize, answers: u64) {
        self.put(listener, bucket.min(OPEN), answers);
    }

    /// The same of an agent of before, whose last bucket is open from 524 ms on: whatever is in it or beyond it took that or more.
    pub fn add_coarse(&mut self, listener: u32, bucket: usize, answers: u64) {
        self.put(listener, if bucket < COARSE_FROM { bucket } else { COARSE }, answers);
    }

    fn put(&mut self, listener: u32, bucket: usize, answers: u64) {
        if answers == 0 {
            return;
        }
        let bucket = bucket as u8;
        let answers = u32::try_from(answers).unwrap_or(u32::MAX);
        let key = |count: &Count| (count.listener, count.bucket);
        let place = match self.0.last() {
            Some(last) if key(last) >= (listener, bucket) => {
                self.0.binary_search_by_key(&(listener, bucket), key)
            }
            _ => Err(self.0.len()),
        };
        match place {
            Ok(at) => self.0[at].answers = self.0[at].answers.saturating_add(answers),
            Err(at) => self.0.insert(at, Count { listener, bucket, answers }),
        }
    }

    /// Those of one listener, by bucket.
    #[must_use]
    pub fn of(&self, listener: u32) -> &[Count] {
        let from = self.0.partition_point(|count| count.listener < listener);
        let own = self.0[from..].partition_point(|count| count.listener == listener);
        &self.0[from..from + own]
    }

    /// Each listener that answered, with its counts.
    pub fn by_listener(&self) -> impl Iterator<Item = (u32, &[Count])> {
        let listeners = self.0.chunk_by(|a, b| a.listener == b.listener);
        listeners.filter_map(|counts| Some((counts.first()?.listener, counts)))
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Count] {
        &self.0
    }

    /// From [`Counts::all`] of others.
    #[must_use]
    pub fn from_rising(counts: Vec<Count>) -> Self {
        debug_assert!(counts.is_sorted_by_key(|count| (count.listener, count.bucket)));
        Self(counts)
    }

    /// Memory that is set aside, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Count>()
    }

    /// Gives back room that is not used: what is kept does not grow any more.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}

/// Answers by bucket, of any number of listeners and windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// By bucket.
    pub counts: [u64; BUCKETS],
    /// Besides, of agents of before: [`COARSE_US`] or more.
    pub coarse: u64,
}

/// Where a quantile is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantile {
    /// Here, ms: as if answers were spread evenly over their bucket, which may be wrong by a factor below two.
    At(f64),
    /// In the last bucket, that is at this or above, ms: how far above was not counted.
    Above(f64),
}

/// Answers by whether they kept to a threshold. Each is counted in one of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Of buckets that end at the threshold or before it.
    pub surely: u64,
    /// Of the bucket that the threshold is inside of: how many of its answers kept to it was not counted.
    pub perhaps: u64,
    /// Of buckets that begin at the threshold or behind it.
    pub not: u64,
}

impl Held {
    /// Adds what was counted, held against a threshold of `ns`.
    pub fn add(&mut self, counts: &[Count], ns: u64) {
        for count in counts {
            self.bucket(usize::from(count.bucket), count.answers.into(), ns);
        }
    }

    /// Adds the answers of one bucket.
    fn bucket(&mut self, bucket: usize, answers: u64, ns: u64) {
        let part = if bucket < OPEN && begin_us(bucket + 1).saturating_mul(1_000) <= ns {
            &mut self.surely
        } else if begin_us(bucket).saturating_mul(1_000) < ns {
            &mut self.perhaps
        } else {
            &mut self.not
        };
        *part = part.saturating_add(answers);
    }
}

/// Answers held against a threshold each: exactly where their agent counts by this very threshold, else by their buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Against {
    /// Answers whose agent counts those that took longer.
    pub counted: u64,
    /// Of those, the ones that took longer. One that began in time is among them from the window on in which its end was written, so in few windows
    /// these may be more than were answered.
    pub longer: u64,
    /// The others.
    pub by_bucket: Held,
}

impl Against {
    /// Adds the answers of a window, held against a threshold of `ns`. `longer`: how many took longer, where the agent counted it.
    pub fn add(&mut self, counts: &[Count], longer: Option<u64>, ns: u64) {
        let Some(longer) = longer else { return self.by_bucket.add(counts, ns) };
        for count in counts {
            self.counted = self.counted.saturating_add(count.answers.into());
        }
        self.longer = self.longer.saturating_add(longer);
    }

    /// Adds others.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.counted, other.counted),
            (&mut self.longer, other.longer),
            (&mut self.by_bucket.surely, other.by_bucket.surely),
            (&mut self.by_bucket.perhaps, other.by_bucket.perhaps),
            (&mut self.by_bucket.not, other.by_bucket.not),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// All of them by what is known of each.
    #[must_use]
    pub fn held(&self) -> Held {
        let longer = self.longer.min(self.counted);
        Held {
            surely: self.by_bucket.surely.saturating_add(self.counted - longer),
            perhaps: self.by_bucket.perhaps,
            not: self.by_bucket.not.saturating_add(longer),
        }
    }
}

/// A share that lies between two.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// It is this at the least.
    pub least: f64,
    /// And this at the most; the same, where the threshold is an edge between buckets.
    pub most: f64,
}

impl Share {
    /// The share of answers that kept to the threshold. `None`: there is no answer.
    #[must_use]
    pub fn of(held: &Held) -> Option<Self> {
        let most = held.surely.saturating_add(held.perhaps);
        let answers = most.saturating_add(held.not);
        let share = |part: u64| part as f64 / answers as f64;
        (answers > 0).then(|| Self { least: share(held.surely), most: share(most) })
    }
}

impl Histogram {
    /// Adds what was counted.
    pub fn add(&mut self, counts: &[Count]) {
        for count in counts {
            let sum = self.counts.get_mut(usize::from(count.bucket)).unwrap_or(&mut self.coarse);
            *sum = sum.saturating_add(count.answers.into());
        }
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(more);
        }
        self.coarse = self.coarse.saturating_add(other.coarse);
    }

    /// All answers.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.counts.iter().fold(self.coarse, |sum, n| sum.saturating_add(*n))
    }

    /// Answers that took as long as each edge between buckets or longer, in the order of [`edges_us`]: at the least, as of those of agents of before
    /// nothing is known beyond [`COARSE_US`].
    #[must_use]
    pub fn slower(&self) -> [u64; BUCKETS - 1] {
        let mut left = self.answers();
        std::array::from_fn(|edge| {
            let coarse = if edge == COARSE_FROM { self.coarse } else { 0 };
            left = left.saturating_sub(self.counts[edge]).saturating_sub(coarse);
            left
        })
    }

    /// Where the part `q` (0 to 1) of the answers was at or below. `None`: there is no answer.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let answers = self.answers();
        if answers == 0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * answers as f64;
        let mut below = 0.0;
        // Those of agents of before are anywhere in the buckets that these do not have.
        let (buckets, open_us) = if self.coarse > 0 { (COARSE_FROM, COARSE_US) } else { (OPEN, OPEN_US) };
        for (bucket, count) in self.counts.iter().take(buckets).enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= rank {
                let (begin, end) = (begin_us(bucket) as f64, begin_us(bucket + 1) as f64);
                return Some(Quantile::At((begin + (end - begin) * (rank - below) / count) / 1e3));
            }
            below += count;
        }
        Some(Quantile::Above(open_us as f64 / 1e3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(counts: &[(usize, u64)]) -> Histogram {
        let mut all = Histogram::default();
        for (bucket, answers) in counts {
            *all.counts.get_mut(*bucket).unwrap_or(&mut all.coarse) = *answers;
        }
        all
    }

    #[test]
    fn counts_are_sparse_sorted_and_found_whatever_the_order_in_which_they_come() {
        let mut counts = Counts::default();
        for (listener, bucket, answers) in [(7, 3, 2), (2, 19, 1), (7, 3, 5), (7, 1, 1), (2, 4, 0)] {
            counts.add(listener, bucket, answers);
        }
        let told: Vec<_> = counts.all().iter().map(|c| (c.listener, c.bucket, c.answers)).collect();
        assert_eq!(told, [(2, 19, 1), (7, 1, 1), (7, 3, 7)], "what counted nothing is not there");
        assert_eq!((counts.of(7).len(), counts.of(2).len(), counts.of(5).len()), (2, 1, 0));
        let listeners: Vec<_> = counts.by_listener().map(|(id, counts)| (id, counts.len())).collect();
        assert_eq!(listeners, [(2, 1), (7, 2)]);
        counts.shrink_to_fit();
        assert_eq!((size_of::<Count>(), counts.bytes()), (12, 36));
        // Of a later version, or of nobody honest.
        counts.add(9, 500, u64::MAX);
        assert_eq!(counts.of(9), [Count { listener: 9, bucket: 23, answers: u32::MAX }]);
        // Of one before, whose bucket 19 is the last, and open.
        for bucket in [18, 19, 24] {
            counts.add_coarse(8, bucket, 1);
        }
        let told: Vec<_> = counts.of(8).iter().map(|c| (c.bucket, c.answers)).collect();
        assert_eq!(told, [(18, 1), (24, 2)]);
    }

    #[test]
    fn a_quantile_lies_inside_of_its_bucket_and_in_the_open_one_only_its_bound_is_told() {
        assert_eq!(Histogram::default().quantile(0.5), None, "no answer has no quantile");
        // 4.096 ms to 8.192 ms.
        let one = histogram(&[(12, 10)]);
        assert_eq!(one.quantile(0.5), Some(Quantile::At(6.144)));
        assert_eq!(one.quantile(1.0), Some(Quantile::At(8.192)));
        let two = histogram(&[(12, 50), (22, 49), (23, 1)]);
        assert_eq!(two.quantile(0.5), Some(Quantile::At(8.192)));
        assert_eq!(
            two.quantile(0.99),
            Some(Quantile::At(8388.608)),
            "a number, where an answer took seconds"
        );
        assert_eq!(two.quantile(0.991), Some(Quantile::Above(8388.608)));
        let of_before = histogram(&[(12, 50), (18, 49), (COARSE, 1)]);
        assert_eq!(of_before.quantile(0.99), Some(Quantile::At(524.288)));
        assert_eq!(of_before.quantile(0.991), Some(Quantile::Above(524.288)));
        let both = histogram(&[(12, 50), (20, 49), (COARSE, 1)]);
        assert_eq!(both.quantile(0.6), Some(Quantile::Above(524.288)), "the one of before may be below them");
        assert_eq!(histogram(&[(0, 4)]).quantile(0.5), Some(Quantile::At(0.001)), "from nothing on");
    }

    #[test]
    fn slower_than_an_edge_is_what_is_in_the_buckets_beyond_it() {
        let of = histogram(&[(0, 1), (9, 5), (23, 4), (COARSE, 2)]);
        let slower: Vec<_> = edges_us().zip(of.slower()).collect();
        assert_eq!((slower.len(), slower[0], slower[8]), (23, (2, 11), (512, 11)));
        assert_eq!((slower[9], slower[18]), ((1024, 6), (COARSE_US, 6)));
        assert_eq!((slower[19], slower[22]), ((2 * COARSE_US, 4), (OPEN_US, 4)), "at the least");
        assert_eq!(histogram(&[]).slower(), [0; BUCKETS - 1]);
    }

    #[test]
    fn a_threshold_between_two_edges_has_an_interval_and_one_at_an_edge_a_number() {
        // 262.144 ms to 524.288 ms, 2.1 s to 4.2 s, and beyond 8.4 s.
        let mut counts = Counts::default();
        for (bucket, answers) in [(10, 90), (18, 7), (21, 2), (23, 1)] {
            counts.add(7, bucket, answers);
        }
        let within = |ns: u64| {
            let mut against = Against::default();
            against.add(counts.of(7), None, ns);
            Share::of(&against.held()).unwrap()
        };
        assert_eq!(within(500_000_000), Share { least: 0.9, most: 0.97 });
        assert_eq!(within(524_288_000), Share { least: 0.97, most: 0.97 });
        assert_eq!(within(3_000_000_000), Share { least: 0.97, most: 0.99 }, "within a bucket, too");
        assert_eq!(within(4_194_304_000), Share { least: 0.99, most: 0.99 });
        assert_eq!(within(9_000_000_000), Share { least: 0.99, most: 1.0 }, "beyond the last edge");
        assert_eq!(within(0), Share { least: 0.0, most: 0.0 });
        assert_eq!(Share::of(&Held::default()), None);
    }

    #[test]
    fn where_the_agent_counts_by_the_threshold_itself_the_share_is_a_number() {
        let mut counts = Counts::default();
        counts.add(7, 10, 90);
        counts.add(7, 18, 10);
        let mut against = Against::default();
        against.add(counts.of(7), Some(4), 500_000_000);
        let share = |of: &Against| Share::of(&of.held());
        assert_eq!(share(&against), Some(Share { least: 0.96, most: 0.96 }));
        // The end of an answer that was counted in the window before.
        against.add(&[], Some(1), 500_000_000);
        assert_eq!(share(&against), Some(Share { least: 0.95, most: 0.95 }));
        // Beside an agent that does not count them: its ten in the threshold's own bucket are unknown.
        let mut other = Against::default();
        other.add(counts.of(7), None, 500_000_000);
        against.merge(&other);
        assert_eq!(against.held(), Held { surely: 185, perhaps: 10, not: 5 });
        // Of a window in which nothing else was counted.
        let late = Against { longer: 3, ..Against::default() };
        assert_eq!((late.held(), share(&late)), (Held::default(), None));
    }

    #[test]
    fn each_answer_surely_kept_to_a_threshold_or_perhaps_or_did_not() {
        let mut counts = Counts::default();
        // 1 ms to 2 ms, 262.144 ms to 524.288 ms, and beyond, as agents of before tell it.
        for (bucket, answers) in [(10, 90), (18, 8), (19, 2)] {
            counts.add_coarse(7, bucket, answers);
        }
        let held = |ns: u64| {
            let mut held = Held::default();
            held.add(counts.of(7), ns);
            (held.surely, held.perhaps, held.not)
        };
        assert_eq!(held(500_000_000), (90, 8, 2));
        assert_eq!(held(262_144_000), (90, 0, 10), "at an edge");
        assert_eq!(held(524_288_000), (98, 0, 2));
        assert_eq!(held(3_000_000_000), (98, 2, 0), "beyond the last edge");
        assert_eq!((held(0), held(u64::MAX)), ((0, 0, 100), (98, 2, 0)));
    }

    #[test]
    fn several_windows_are_one_sum() {
        let mut counts = Counts::default();
        counts.add(1, 4, 3);
        counts.add(2, 4, 1);
        let mut all = Histogram::default();
        all.add(counts.of(1));
        all.add(counts.all());
        let mut twice = all;
        twice.merge(&all);
        assert_eq!((all.counts[4], all.answers(), twice.answers()), (7, 7, 14));
    }
}
