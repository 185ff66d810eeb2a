//! Answers by response time of each tier, since the collector began: a classic histogram on `/metrics`, and by way of that in OTLP. Owns the
//! bound of tiers that are told apart. Knows no host: a tier's hosts and listeners are added up, so that 22 series are the price of a tier.

use super::rows::{IDLE_WINDOWS, OTHER};
use crate::counters::labels;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use tailwater_model::responses::{Count, Histogram, edges_us};

/// As others know it.
const NAME: &str = "tailwater_response_seconds";
/// The tier of a workload whose tier is not known, or not yet.
pub(super) const UNKNOWN: &str = "~unknown";
/// Tiers with labels of their own; what comes then is told together.
const TIERS_MAX: usize = 256;

/// One tier.
#[derive(Debug, Default)]
struct Account {
    by_time: Histogram,
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
    /// Adds what one of its listeners answered in the window `index`, and how long that took in all.
    pub(super) fn add(&mut self, tier: &Arc<str>, counts: &[Count], sum_ns: u64, index: u64) {
        let own = self.by_name.contains_key(tier) || self.has_room(index);
        let tier = if own { Arc::clone(tier) } else { Arc::from(OTHER) };
        let account = self.by_name.entry(tier).or_default();
        account.by_time.add(counts);
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
            "# TYPE {NAME} histogram\n# HELP {NAME} Response times of the requests that the tier answered, in buckets that double; what took 524 ms or more is in the last one."
        );
        let edges: Vec<String> = edges_us().map(|us| (us as f64 / 1e6).to_string()).collect();
        for (tier, account) in &self.by_name {
            let mut below = 0_u64;
            for (n, count) in account.by_time.0.iter().enumerate() {
                below = below.saturating_add(*count);
                let le = edges.get(n).map_or("+Inf", String::as_str);
                let _ = writeln!(out, "{NAME}_bucket{} {below}", labels(&[("tier", tier), ("le", le)]));
            }
            let own = labels(&[("tier", tier)]);
            let _ = writeln!(out, "{NAME}_count{own} {below}");
            let _ = writeln!(out, "{NAME}_sum{own} {:?}", account.sum_ns as f64 / 1e9);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(bucket: u8, answers: u32) -> [Count; 1] {
        [Count { listener: 1, bucket, answers }]
    }

    fn text(tiers: &Tiers) -> String {
        let mut out = String::new();
        tiers.render(&mut out);
        out
    }

    #[test]
    fn buckets_count_all_that_is_below_them_and_the_last_is_all_there_is() {
        let mut tiers = Tiers::default();
        let web: Arc<str> = Arc::from("web");
        tiers.add(&web, &counts(0, 3), 3_000, 7);
        tiers.add(&web, &counts(18, 4), 1_500_000_000, 8);
        tiers.add(&web, &counts(19, 1), 2_000_000_000, 8);
        let text = text(&tiers);
        assert_eq!(text.matches("# TYPE tailwater_response_seconds histogram").count(), 1);
        for line in [
            "_bucket{tier=\"web\",le=\"0.000002\"} 3",
            "_bucket{tier=\"web\",le=\"0.262144\"} 3",
            "_bucket{tier=\"web\",le=\"0.524288\"} 7",
            "_bucket{tier=\"web\",le=\"+Inf\"} 8",
            "_count{tier=\"web\"} 8",
            "_sum{tier=\"web\"} 3.500003",
        ] {
            assert!(text.lines().any(|l| l.strip_prefix(NAME) == Some(line)), "{line} in\n{text}");
        }
        assert_eq!(text.matches("le=").count(), 20);
        assert!(text.lines().next_back().is_some_and(|l| l.contains("_sum")), "it ends a histogram: {text}");
    }

    #[test]
    fn what_comes_when_there_are_too_many_tiers_is_told_together_until_one_is_silent_for_ten_minutes() {
        let mut tiers = Tiers::default();
        let add = |tiers: &mut Tiers, name: &str, index| tiers.add(&Arc::from(name), &counts(3, 1), 1, index);
        for n in 0..TIERS_MAX + 5 {
            add(&mut tiers, &format!("tier-{n}"), 1_000);
        }
        assert_eq!(tiers.by_name.len(), TIERS_MAX + 1);
        assert_eq!(tiers.by_name[OTHER].by_time.answers(), 5, "no answer is lost");
        for n in 1..TIERS_MAX {
            add(&mut tiers, &format!("tier-{n}"), 1_000 + IDLE_WINDOWS / 2);
        }
        add(&mut tiers, "late", 1_001 + IDLE_WINDOWS);
        let there = |name: &str| tiers.by_name.contains_key(name);
        assert!(!there("tier-0") && there("tier-1") && there("late"));
        assert_eq!(tiers.by_name[OTHER].by_time.answers(), 5, "the others stay");
    }
}
