//! Answers by response time of each tier, since the collector began: a classic histogram on `/metrics`, and by way of that in OTLP; and how many of
//! them came within what `[[sla]]` asks. Owns the bound of tiers that are told apart. Knows no host and no rule: a tier's hosts and listeners are
//! added up, so that 29 series are the price of a tier.

use super::rows::{IDLE_WINDOWS, OTHER, Tier};
use crate::counters::labels;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use tailwater_model::responses::{Against, Count, Histogram, edges_us};

/// As others know it.
const NAME: &str = "tailwater_response_seconds";
/// The same answers, held against what is asked of them.
const HELD: &str = "tailwater_sla_answers";
/// The tier of a workload whose tier is not known, or not yet.
pub(super) const UNKNOWN: &str = "~unknown";
/// Tiers with labels of their own; what comes then is told together.
const TIERS_MAX: usize = 256;

/// One tier.
#[derive(Debug, Default)]
struct Account {
    by_time: Histogram,
    /// Each answer against the threshold that its listener had when it came. Where another rule holds later, because the tier got a name, no answer
    /// is judged again.
    against: Against,
    /// The most that surely kept it: an answer that was in time until now may end late, and none of what is told goes down.
    surely: u64,
    /// Of the same answers: the kernel adds both up in one step.
    sum_ns: u128,
    /// The newest window that told of it.
    seen: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Tiers {
    by_name: BTreeMap<Arc<str>, Account>,
}

impl Tiers {
    /// Adds what one of its listeners answered in the window `index`, how many answers took longer than it may, where its agent counts that, and
    /// how long all took together.
    pub(super) fn add(
        &mut self,
        tier: &Tier,
        (counts, longer): (&[Count], Option<u64>),
        sum_ns: u64,
        index: u64,
    ) {
        let own = self.by_name.contains_key(&tier.name) || self.has_room(index);
        let name = if own { Arc::clone(&tier.name) } else { Arc::from(OTHER) };
        let account = self.by_name.entry(name).or_default();
        account.by_time.add(counts);
        account.against.add(counts, longer, tier.within_ns);
        account.surely = account.surely.max(account.against.held().surely);
        account.sum_ns = account.sum_ns.saturating_add(sum_ns.into());
        account.seen = account.seen.max(index);
    }

    /// Whether another tier may have labels. Where there are as many as may be, those of which nothing was heard for ten minutes make room.
    fn has_room(&mut self, index: u64) -> bool {
        if self.own() >= TIERS_MAX {
            self.by_name.retain(|name, of| &**name == OTHER || index.saturating_sub(of.seen) < IDLE_WINDOWS);
        }
        self.own() < TIERS_MAX
    }

    /// Tiers with labels of their own.
    fn own(&self) -> usize {
        self.by_name.len() - usize::from(self.by_name.contains_key(OTHER))
    }

    /// Appends them as OpenMetrics text.
    pub(super) fn render(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "# TYPE {NAME} histogram\n# HELP {NAME} Response times of the requests that the tier answered, in buckets that double; what took 8.4 s or more is in the last one, as is what took 524 ms or more by an agent of before."
        );
        let edges: Vec<String> = edges_us().map(|us| (us as f64 / 1e6).to_string()).collect();
        for (tier, account) in &self.by_name {
            let mut below = 0_u64;
            let open = account.by_time.counts.len() - 1;
            for (n, count) in account.by_time.counts.iter().enumerate() {
                below = below.saturating_add(*count);
                below = below.saturating_add(if n == open { account.by_time.coarse } else { 0 });
                let le = edges.get(n).map_or("+Inf", String::as_str);
                let _ = writeln!(out, "{NAME}_bucket{} {below}", labels(&[("tier", tier), ("le", le)]));
            }
            let own = labels(&[("tier", tier)]);
            let _ = writeln!(out, "{NAME}_count{own} {below}");
            let _ = writeln!(out, "{NAME}_sum{own} {:?}", account.sum_ns as f64 / 1e9);
        }
        let _ = writeln!(
            out,
            "# TYPE {HELD} counter\n# HELP {HELD} Answers by whether they came within what [[sla]] asks of their listener, 500 ms where it says nothing: surely, perhaps (their agent does not count by that threshold, and it lies inside of their bucket) or not."
        );
        for (tier, Account { against, surely, .. }) in &self.by_name {
            let not = against.by_bucket.not.saturating_add(against.longer);
            let told = [("surely", *surely), ("perhaps", against.by_bucket.perhaps), ("not", not)];
            for (within, answers) in told {
                let own = labels(&[("tier", tier), ("within", within)]);
                let _ = writeln!(out, "{HELD}_total{own} {answers}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(bucket: u8, answers: u32) -> [Count; 1] {
        [Count { listener: 1, bucket, answers }]
    }

    /// In place of a bucket: of agents of before.
    const COARSE: u8 = 24;

    fn tier(name: &str, within_ms: u64) -> Tier {
        Tier { name: Arc::from(name), within_ns: within_ms * 1_000_000 }
    }

    fn text(tiers: &Tiers) -> String {
        let mut out = String::new();
        tiers.render(&mut out);
        out
    }

    #[test]
    fn buckets_count_all_that_is_below_them_and_the_last_is_all_there_is() {
        let mut tiers = Tiers::default();
        let web = tier("web", 500);
        tiers.add(&web, (&counts(0, 3), None), 3_000, 7);
        tiers.add(&web, (&counts(18, 4), None), 1_500_000_000, 8);
        tiers.add(&web, (&counts(21, 1), None), 2_000_000_000, 8);
        tiers.add(&web, (&counts(COARSE, 1), None), 1_000_000_000, 8);
        let text = text(&tiers);
        assert_eq!(text.matches("# TYPE tailwater_response_seconds histogram").count(), 1);
        for line in [
            "_bucket{tier=\"web\",le=\"0.000002\"} 3",
            "_bucket{tier=\"web\",le=\"0.262144\"} 3",
            "_bucket{tier=\"web\",le=\"0.524288\"} 7",
            "_bucket{tier=\"web\",le=\"2.097152\"} 7",
            "_bucket{tier=\"web\",le=\"4.194304\"} 8",
            "_bucket{tier=\"web\",le=\"8.388608\"} 8",
            "_bucket{tier=\"web\",le=\"+Inf\"} 9",
            "_count{tier=\"web\"} 9",
            "_sum{tier=\"web\"} 4.500003",
        ] {
            assert!(text.lines().any(|l| l.strip_prefix(NAME) == Some(line)), "{line} in\n{text}");
        }
        assert_eq!(text.matches("le=").count(), 24);
        let histogram = text.split("# TYPE tailwater_sla").next().unwrap();
        assert!(
            histogram.lines().next_back().is_some_and(|l| l.contains("_sum")),
            "it ends a histogram: {text}"
        );
    }

    #[test]
    fn each_answer_counts_once_against_the_threshold_of_its_own_listener() {
        let mut tiers = Tiers::default();
        // Of one tier, at a port that may take 500 ms and at one that may take 3 s; of another one nothing was slow.
        for (name, within_ms) in [("web", 500), ("web", 3_000), ("db", 500)] {
            let slow = u32::from(name != "db");
            tiers.add(&tier(name, within_ms), (&counts(10, 90), None), 1, 7);
            tiers.add(&tier(name, within_ms), (&counts(18, 8 * slow), None), 1, 7);
            tiers.add(&tier(name, within_ms), (&counts(COARSE, 2 * slow), None), 1, 7);
        }
        let text = text(&tiers);
        let told: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix(HELD)).collect();
        let right = [
            "_total{tier=\"db\",within=\"surely\"} 90",
            "_total{tier=\"db\",within=\"perhaps\"} 0",
            "_total{tier=\"db\",within=\"not\"} 0",
            // 8 of the 10 slow ones lie around 500 ms; beyond 524 ms an agent of before tells nothing of 3 s.
            "_total{tier=\"web\",within=\"surely\"} 188",
            "_total{tier=\"web\",within=\"perhaps\"} 10",
            "_total{tier=\"web\",within=\"not\"} 2",
        ];
        assert_eq!(told, right);
        assert!(
            text.contains("\ntailwater_response_seconds_count{tier=\"web\"} 200\n"),
            "the same answers: {text}"
        );
    }

    #[test]
    fn what_an_agent_counts_by_the_threshold_itself_is_told_exactly_and_goes_never_down() {
        let mut tiers = Tiers::default();
        let web = tier("web", 500);
        let told = |tiers: &Tiers| {
            let text = text(tiers);
            let lines = text.lines().filter_map(|l| l.strip_prefix("tailwater_sla_answers_total"));
            let numbers = lines.map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
            numbers.collect::<Vec<_>>()
        };
        // Ten around 500 ms, four of which were late.
        tiers.add(&web, (&counts(18, 10), Some(4)), 1, 7);
        assert_eq!(told(&tiers), [6, 0, 4]);
        // The end of one that had been in time until then: it counts on both sides until the next answer in time.
        tiers.add(&web, (&[], Some(1)), 0, 8);
        assert_eq!(told(&tiers), [6, 0, 5]);
        tiers.add(&web, (&counts(18, 3), Some(0)), 1, 9);
        assert_eq!(told(&tiers), [8, 0, 5], "13 answers");
    }

    #[test]
    fn what_comes_when_there_are_too_many_tiers_is_told_together_until_one_is_silent_for_ten_minutes() {
        let mut tiers = Tiers::default();
        let add = |tiers: &mut Tiers, name: &str, index| {
            tiers.add(&tier(name, 500), (&counts(3, 1), None), 1, index);
        };
        for n in 0..TIERS_MAX + 5 {
            add(&mut tiers, &format!("tier-{n}"), 1_000);
        }
        assert_eq!(tiers.by_name.len(), TIERS_MAX + 1);
        assert_eq!(tiers.by_name[OTHER].by_time.answers(), 5, "no answer is lost");
        assert_eq!(tiers.by_name[OTHER].surely, 5);
        for n in 1..TIERS_MAX {
            add(&mut tiers, &format!("tier-{n}"), 1_000 + IDLE_WINDOWS / 2);
        }
        add(&mut tiers, "late", 1_001 + IDLE_WINDOWS);
        let there = |name: &str| tiers.by_name.contains_key(name);
        assert!(!there("tier-0") && there("tier-1") && there("late"));
        assert_eq!(tiers.by_name[OTHER].by_time.answers(), 5, "the others stay");
    }
}
