//! The best numbers in flight of a server whose CPUs are full, from what a request costs at each load. Owns the levels of cost that are
//! equally good and the range that follows; knows no curve and not whether CPUs were full.
//!
//! Under overload a server is seen at one load only: as many in flight as its pool lets in. What fewer would bring is then on no curve; but
//! what a request costs at fewer is, in the seconds in which the CPUs were nearly full or the tier below was, and full CPUs answer
//! X(N) = c/D(N): the utilisation law (Denning and Buzen, "The Operational Analysis of Queueing Network Models", ACM Computing Surveys
//! 10(3), 1978, X = U/D) at U = c.

use super::needs::{LOSS_MAX, QUOTA_USED, Unsaturated};
use crate::curve::Demand;
use crate::evidence::{Estimate, PoolRange, whole};
use crate::mva::pool_for;

/// Standard errors within which a level may be as good as the best: as of a plateau.
const ERRORS: f64 = 2.0;
/// Levels of cost that a range rests on.
const LEVELS_MIN: usize = 3;

/// What costs say of a server whose CPUs are full.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Best {
    /// Sizes of its pool.
    pub(super) pool: PoolRange,
    /// Its throughput within that range, 1/s.
    pub(super) throughput: Estimate,
    /// Part of that which the advised size costs.
    pub(super) loss: f64,
    /// D within the range, s.
    cpu_s: f64,
    /// All levels, which rise in `in_flight`.
    levels: Vec<Demand>,
}

impl Best {
    /// Part of the best throughput that so many in flight cost if that is more than the range allows; `None`: it is not known to cost
    /// anything.
    pub(super) fn loss_at(&self, in_flight: f64) -> Option<f64> {
        self.pool.at_most.filter(|most| in_flight > f64::from(*most))?;
        Some((1.0 - self.cpu_s / cost_at(&self.levels, in_flight)?).max(0.0))
    }
}

/// Sizes that keep the CPUs full, and at which a request costs at most [`LOSS_MAX`] more than where it is cheapest.
///
/// Below, a request costs more because an idle server's caches are cold, and CPUs are not kept full: the least is what mean value analysis
/// says keeps them so, and fewer than were seen to be as cheap are not advised. Above, it costs more because many at a time share caches,
/// locks and the heap; where none was seen to, there is no upper end.
///
/// `None` where that would rest on fewer than three levels, or on none that was seen often enough.
pub(super) fn best(demands: &[Demand], needs: &Unsaturated, seen_to: f64) -> Option<Best> {
    let mut levels: Vec<Demand> = demands.iter().copied().filter(is_known).collect();
    levels.sort_by(|a, b| a.in_flight.total_cmp(&b.in_flight));
    // What it surely is: of many levels one is cheap by chance.
    let sure_s = levels.iter().map(|of| of.cpu_s + ERRORS * of.error_s).min_by(f64::total_cmp)?;
    let limit_s = sure_s / (1.0 - LOSS_MAX);
    let is_within = |of: &Demand, errors: f64| of.cpu_s - errors * of.error_s <= limit_s;
    let last = levels.iter().rposition(|of| is_within(of, ERRORS))?;
    // As of a plateau: what may be dearer is told as being cheap only by one, because a pool that is too small costs more than one that is
    // too large.
    let first = levels.iter().position(|of| is_within(of, 1.0)).filter(|first| *first <= last)?;
    if levels.len() < LEVELS_MIN {
        return None;
    }
    let cpu_s = mean(&levels[first..=last]);
    // Fewer are told to cost more than is allowed: so those that do all but that are the least.
    let least = pool_for(needs.cpus, cpu_s, needs.wait_s, seen_to, 1.0 - LOSS_MAX).ok()?.at_least;
    let at_most = levels.get(last + 1).map(|beyond| {
        let most = crossing(&levels[last], beyond, limit_s);
        // `as` saturates, and a range is never empty.
        (most as u32).max(least)
    });
    let from = whole(levels[first].in_flight.round()).max(least);
    let advised = at_most.map_or(from, |most| from.min(most));
    let error = ERRORS * levels[first].error_s / levels[first].cpu_s;
    let value = needs.cpus / cpu_s;
    Some(Best {
        pool: PoolRange { advised, at_least: least, at_most, seen_to },
        throughput: Estimate { value, low: value * (QUOTA_USED - error), high: value * (1.0 + error) },
        loss: (1.0 - cpu_s / cost_at(&levels, f64::from(advised))?).max(0.0),
        cpu_s,
        levels,
    })
}

fn is_known(of: &Demand) -> bool {
    [of.in_flight, of.cpu_s, of.error_s].iter().all(|of| of.is_finite() && *of > 0.0)
}

/// Their mean cost, weighted by inverse variances, s.
fn mean(levels: &[Demand]) -> f64 {
    let weight = |of: &Demand| of.error_s.powi(-2);
    levels.iter().map(|of| weight(of) * of.cpu_s).sum::<f64>() / levels.iter().map(weight).sum::<f64>()
}

/// Where the line from one level to the next reaches a cost, in flight; at the first if that is there already.
fn crossing(a: &Demand, b: &Demand, cpu_s: f64) -> f64 {
    let part = ((cpu_s - a.cpu_s) / (b.cpu_s - a.cpu_s)).clamp(0.0, 1.0);
    a.in_flight + (b.in_flight - a.in_flight) * if part.is_finite() { part } else { 0.0 }
}

/// D at a number in flight, s: between two levels on the line between them, beyond the ends as there. `None` without a level.
fn cost_at(levels: &[Demand], in_flight: f64) -> Option<f64> {
    match levels.iter().position(|of| of.in_flight >= in_flight) {
        None => levels.last().map(|of| of.cpu_s),
        Some(0) => levels.first().map(|of| of.cpu_s),
        Some(at) => {
            let (a, b) = (levels[at - 1], levels[at]);
            Some(a.cpu_s + (b.cpu_s - a.cpu_s) * (in_flight - a.in_flight) / (b.in_flight - a.in_flight))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.6 of a CPU, and 1.5 ms elsewhere.
    const NEEDS: Unsaturated = Unsaturated { cpus: 0.6, cpu_s: 0.38e-3, wait_s: 1.5e-3 };

    /// Requests in flight and ms of CPU, each within 2 µs.
    fn demands(levels: &[(f64, f64)]) -> Vec<Demand> {
        let one = |&(in_flight, ms): &(f64, f64)| Demand { in_flight, cpu_s: ms / 1e3, error_s: 2e-6 };
        levels.iter().map(one).collect()
    }

    /// A Tomcat with 0.6 of a CPU, as it was measured over 200 s of a load that rose and fell.
    const TOMCAT: [(f64, f64); 5] =
        [(1.4, 0.3843), (2.4, 0.3594), (11.1, 0.3281), (73.5, 0.3178), (135.6, 0.3308)];

    #[test]
    fn the_range_begins_where_requests_are_cheap_and_cpus_full() {
        let told = best(&demands(&TOMCAT), &NEEDS, 151.5).unwrap();
        assert_eq!((told.pool.advised, told.pool.at_most), (11, None), "{told:?}");
        assert!((3..=11).contains(&told.pool.at_least), "{told:?}");
        assert!((told.throughput.value / (0.6 / 0.3256e-3) - 1.0).abs() < 0.01, "{told:?}");
        assert!(told.throughput.low < 0.85 * told.throughput.value && told.loss < 0.02, "{told:?}");
        assert_eq!(told.loss_at(135.6), None, "2 % and its error are no penalty");
        // Cheap already with two in flight: they do not keep the CPU full.
        let told = best(&demands(&[(2.0, 0.33), (40.0, 0.33), (150.0, 0.33)]), &NEEDS, 151.5).unwrap();
        assert_eq!(told.pool.advised, told.pool.at_least);
        assert!(told.pool.at_least > 2, "{told:?}");
    }

    #[test]
    fn many_at_a_time_may_cost_more() {
        let told = best(&demands(&[(3.7, 0.3588), (15.6, 0.299), (168.0, 0.3328)]), &NEEDS, 199.5).unwrap();
        let most = told.pool.at_most.unwrap();
        assert!((40..=70).contains(&most) && told.pool.advised == 16, "{told:?}");
        assert!((told.loss_at(168.0).unwrap() - (1.0 - 0.299 / 0.3328)).abs() < 1e-3, "{told:?}");
        assert_eq!(told.loss_at(168.0), told.loss_at(500.0), "beyond what was seen, as there");
        assert_eq!(told.loss_at(20.0), None, "within the range");
    }

    #[test]
    fn too_little_is_no_range() {
        assert_eq!(best(&demands(&TOMCAT[3..]), &NEEDS, 150.0), None, "two levels");
        assert_eq!(best(&[], &NEEDS, 150.0), None);
        let unknown = demands(&TOMCAT).into_iter().map(|of| Demand { error_s: f64::INFINITY, ..of });
        assert_eq!(best(&unknown.collect::<Vec<_>>(), &NEEDS, 150.0), None);
        assert_eq!(best(&demands(&TOMCAT), &Unsaturated { cpus: 0.0, ..NEEDS }, 150.0), None);
    }
}
