//! Sums over rows: recall, precision, confusion, errors of time and count. Pure.

use crate::score::model::{Plan, Row, Stray};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A share: how many of how many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Those that are right.
    pub right: u64,
    /// All.
    pub of: u64,
}

impl Share {
    pub(crate) fn count<T>(items: impl Iterator<Item = T>, is: impl Fn(&T) -> bool) -> Self {
        items.fold(Self::default(), |share, item| Self {
            right: share.right + u64::from(is(&item)),
            of: share.of + 1,
        })
    }

    /// Right divided by all; 1 if there are none, for nothing is wrong then.
    #[must_use]
    pub fn ratio(self) -> f64 {
        if self.of == 0 { 1.0 } else { self.right as f64 / self.of as f64 }
    }

    /// What the true share may be, as far as so many trials tell: Wilson's interval of 95 %. Of none nothing is known: from 0 to 1.
    #[must_use]
    pub fn wilson(self) -> [f64; 2] {
        const Z: f64 = 1.959_964;
        if self.of == 0 {
            return [0.0, 1.0];
        }
        let (n, p) = (self.of as f64, self.right as f64 / self.of as f64);
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let bound = |value: f64| (value / (1.0 + Z * Z / n)).clamp(0.0, 1.0);
        [bound(middle - half), bound(middle + half)]
    }
}

/// Median and 95th percentile of absolute values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many values.
    pub count: u64,
    /// Median.
    pub median: f64,
    /// 95th percentile, nearest rank.
    pub p95: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Of these.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.map(f64::abs).collect();
        values.sort_by(f64::total_cmp);
        let rank = |ratio: f64| nearest_rank(&values, ratio).unwrap_or(0.0);
        Self { count: values.len() as u64, median: rank(0.5), p95: rank(0.95), max: rank(1.0) }
    }
}

/// The value at a part of all, 0 to 1, by the nearest rank; `None` without any.
#[must_use]
pub fn nearest_rank(ascending: &[f64], part: f64) -> Option<f64> {
    let index = (part * ascending.len() as f64).ceil() as usize;
    ascending.get(index.saturating_sub(1)).copied()
}

/// The totals of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Injections.
    pub injections: u64,
    /// How many of them went which way.
    pub plans: BTreeMap<Plan, u64>,
    /// Injections as planned for which there is an incident (where packets were dropped: a critical one).
    pub recall: Share,
    /// Alarms that belong to an injection, each injection's first, of all alarms. Alarms about drops that the kernel counted outside
    /// of injections are in neither.
    pub precision: Share,
    /// Alarms outside of injections that are right, for the machine itself stalled and the kernel dropped.
    pub unplanned_real: u64,
    /// Kind right, of those as planned.
    pub kind: Share,
    /// Root's host and workload right.
    pub root: Share,
    /// Both.
    pub kind_and_root: Share,
    /// Resource right.
    pub resource: Share,
    /// Culprit right, of those that have one.
    pub culprit: Share,
    /// Dropping tier right.
    pub drops_at: Share,
    /// Packets dropped: reported and counted by the kernel (`ListenDrops`), over all matched injections.
    pub dropped: [u64; 2],
    /// Ratio of reported to counted drops less one, for each injection that dropped.
    pub dropped_error: Spread,
    /// Connections behind them: reported, and by the taps (see [`connections`]).
    #[serde(default)]
    pub connections: [u64; 2],
    /// As for drops.
    #[serde(default)]
    pub connections_error: Spread,
    /// Injections whose connections were counted right.
    #[serde(default)]
    pub connections_exact: Share,
    /// Very long requests: reported and seen by the load generator.
    pub vlrt: [u64; 2],
    /// As for drops.
    pub vlrt_error: Spread,
    /// Onset error, ms.
    pub onset_error_ms: Spread,
    /// First dropped packet to first message, ms.
    pub alert_ms: Spread,
    /// First dropped packet to final verdict, ms.
    pub verdict_ms: Spread,
    /// Expected kind, then reported kind (`none`: no incident), of those as planned.
    pub kinds: BTreeMap<String, BTreeMap<String, u64>>,
    /// Expected resource, then reported resource.
    pub resources: BTreeMap<String, BTreeMap<String, u64>>,
    /// Injections as planned by cause.
    pub causes: BTreeMap<String, u64>,
}

/// Whether the row's injection was found.
#[must_use]
pub fn found(row: &Row) -> bool {
    row.reported.as_ref().is_some_and(|reported| row.dropped[1] == 0 || reported.severity == "critical")
}

/// Connections reported, and what of the truth's bounds is nearest to it: where bare ACKs were dropped the taps cannot tell whose.
#[must_use]
pub fn connections(row: &Row) -> [u64; 2] {
    let (counted, real) = (row.connections[0], row.truth.connections());
    let real =
        if real.contains(&row.connections[1]) { real } else { row.connections[1]..=row.connections[1] };
    [counted, counted.clamp(*real.start(), *real.end())]
}

fn relative(pair: [u64; 2]) -> f64 {
    pair[0] as f64 / pair[1].max(1) as f64 - 1.0
}

impl Totals {
    /// Of these rows and strays.
    #[must_use]
    pub fn of(rows: &[Row], strays: &[Stray]) -> Self {
        let mut totals = Self { injections: rows.len() as u64, ..Self::default() };
        for row in rows {
            *totals.plans.entry(row.plan).or_default() += 1;
        }
        let planned = || rows.iter().filter(|row| row.plan == Plan::AsPlanned);
        for row in planned() {
            *totals.causes.entry(row.cause.clone()).or_default() += 1;
            let reported = row.reported.as_ref();
            let confuse = |matrix: &mut BTreeMap<String, BTreeMap<String, u64>>, wanted: &str, is: &str| {
                *matrix.entry(wanted.to_owned()).or_default().entry(is.to_owned()).or_default() += 1;
            };
            let (kind, resource) =
                reported.map_or(("none", "none"), |is| (is.kind.as_str(), is.resource.as_str()));
            confuse(&mut totals.kinds, &row.expected.kind, kind);
            confuse(&mut totals.resources, &row.expected.resource, resource);
        }
        let alarms_of = |row: &Row| u64::from(row.reported.as_ref().is_some_and(|is| is.is_alarming()));
        let matched: u64 = rows.iter().map(alarms_of).sum();
        let extra: u64 = rows.iter().map(|row| row.extra.len() as u64).sum();
        totals.unplanned_real = strays.iter().filter(|stray| stray.dropped > 0).count() as u64;
        let false_alarms = extra + strays.len() as u64 - totals.unplanned_real;
        totals.precision = Share { right: matched, of: matched + false_alarms };
        totals.recall = Share::count(planned(), |row| found(row));
        totals.kind = Share::count(planned(), |row| row.kind_right);
        totals.root = Share::count(planned(), |row| row.root_right);
        totals.kind_and_root = Share::count(planned(), |row| row.kind_right && row.root_right);
        totals.resource = Share::count(planned(), |row| row.resource_right);
        totals.culprit = Share::count(planned().filter_map(|row| row.culprit_right), |right: &bool| *right);
        totals.drops_at = Share::count(planned(), |row| row.drops_right);
        let dropping = || rows.iter().filter(|row| row.dropped[1] > 0 && row.reported.is_some());
        let sum = |pair: &dyn Fn(&Row) -> [u64; 2]| {
            dropping().map(pair).fold([0, 0], |sum, pair| [sum[0] + pair[0], sum[1] + pair[1]])
        };
        totals.dropped = sum(&|row| row.dropped);
        totals.connections = sum(&connections);
        totals.connections_error = Spread::of(dropping().map(|row| relative(connections(row))));
        totals.connections_exact = Share::count(dropping(), |row| {
            let [counted, real] = connections(row);
            counted == real
        });
        totals.vlrt = sum(&|row| row.vlrt);
        totals.dropped_error = Spread::of(dropping().map(|row| relative(row.dropped)));
        totals.vlrt_error = Spread::of(dropping().map(|row| relative(row.vlrt)));
        // An onset says something only about the right root.
        let onsets = planned().filter(|row| row.root_right).filter_map(|row| row.onset_error_ms);
        totals.onset_error_ms = Spread::of(onsets);
        totals.alert_ms = Spread::of(rows.iter().filter_map(|row| row.alert_ms));
        totals.verdict_ms = Spread::of(rows.iter().filter_map(|row| row.verdict_ms));
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::reported::Reported;
    use crate::score::model::Expectation;
    use crate::truth::TruthRecord;

    fn row(plan: Plan, severity: Option<&str>, dropped: [u64; 2], right: bool) -> Row {
        let reported = severity.map(|severity| Reported {
            severity: severity.into(),
            kind: if right { "upstream_ctqo" } else { "local_overflow" }.into(),
            ..Reported::default()
        });
        Row {
            id: "x#1".into(),
            cell: "x".into(),
            stack: "nx0".into(),
            cause: "cpu".into(),
            plan,
            expected: Expectation { kind: "upstream_ctqo".into(), ..Expectation::default() },
            reported,
            extra: vec![],
            kind_right: right,
            root_right: right,
            resource_right: right,
            culprit_right: Some(right),
            drops_right: right,
            dropped,
            connections: dropped,
            vlrt: dropped,
            onset_error_ms: Some(-30.0),
            alert_ms: Some(8.0),
            verdict_ms: None,
            truth: TruthRecord::default(),
        }
    }

    #[test]
    fn ranks_are_nearest_and_signs_do_not_cancel() {
        let spread = Spread::of([-40.0, 10.0, 20.0, 30.0].into_iter());
        assert_eq!((spread.median, spread.p95, spread.max, spread.count), (20.0, 40.0, 40.0, 4));
        assert_eq!(Spread::of(std::iter::empty()), Spread::default());
    }

    #[test]
    fn an_interval_is_wilsons_and_holds_the_share() {
        let near = |a: f64, b: f64| (a - b).abs() < 5e-4;
        let [low, high] = Share { right: 8, of: 10 }.wilson();
        assert!(near(low, 0.4902) && near(high, 0.9433), "{low} to {high}");
        let [low, high] = Share { right: 20, of: 20 }.wilson();
        assert!(near(low, 0.8389) && near(high, 1.0), "{low} to {high}");
        assert_eq!(Share { right: 0, of: 0 }.wilson(), [0.0, 1.0]);
    }

    #[test]
    fn totals_hold_the_plan_apart_from_the_diagnosis() {
        let mut twice = row(Plan::AsPlanned, Some("critical"), [102, 100], true);
        twice.extra.push("again".into());
        let rows = [
            twice,
            row(Plan::AsPlanned, Some("info"), [0, 50], false), // drops, and nobody was woken
            row(Plan::AsPlanned, None, [0, 10], false),
            row(Plan::NotInduced, Some("info"), [0, 0], false),
        ];
        let stray = |dropped| Stray { stack: "nx0".into(), reported: Reported::default(), dropped };
        let totals = Totals::of(&rows, &[stray(0), stray(7)]);
        assert_eq!(totals.recall, Share { right: 1, of: 3 });
        assert_eq!(totals.precision, Share { right: 1, of: 3 });
        assert_eq!(totals.unplanned_real, 1);
        assert_eq!(totals.kind_and_root, Share { right: 1, of: 3 });
        assert_eq!((totals.plans[&Plan::AsPlanned], totals.plans[&Plan::NotInduced]), (3, 1));
        assert_eq!(totals.kinds["upstream_ctqo"]["none"], 1);
        assert_eq!(totals.kinds["upstream_ctqo"]["local_overflow"], 1);
        assert_eq!(totals.dropped, [102, 150]);
        assert_eq!(totals.dropped_error.max, 1.0);
        assert_eq!(totals.onset_error_ms.count, 1);
        assert_eq!(totals.causes["cpu"], 3);
    }
}
