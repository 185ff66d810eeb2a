//! The smallest set of changes from pools as they are to pools that do. Owns which change comes first; knows no
//! configuration key.
//!
//! Too few anywhere on the way starves the critical resource, so every pool that is too small is raised. Too many in
//! flight there need one choke point only: the pool nearest to it. A larger pool further in front is harmless then,
//! and stays.

use super::pools::{Allocation, Pool};
use crate::evidence::Claim;
use serde::Serialize;

/// Pools of each server of a tier as they are; none: could not be read, and is never taken to be a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Threads.
    pub threads: Option<u32>,
    /// Connections to the next tier.
    pub connections: Option<u32>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Which tier, from the front.
    pub tier: usize,
    /// Its connections to the next tier, or else its threads.
    pub is_connections: bool,
    /// Size of each server's pool as it is.
    pub from: u32,
    /// And as it should be.
    pub to: u32,
}

/// What to change, and where that cannot be said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Changes {
    /// The one that lowers first, if there is one; then from the front.
    pub changes: Vec<Change>,
    /// (tier, whether connections) whose size is not known: they may be the limit.
    pub unknown: Vec<(usize, bool)>,
}

/// The changes that `allocation` needs, with the pools of each tier as they are. More than `critical_most` in flight
/// in the critical tier (all its servers) cost throughput; none if not known. Nothing is lowered by a class that may
/// not.
pub fn smallest_changes(allocation: &Allocation, limits: &[Limits], critical_most: Option<f64>) -> Changes {
    let mut found = Changes::default();
    let critical = allocation.critical;
    for (at, (pools, limits)) in allocation.tiers.iter().zip(limits).enumerate() {
        let connections = pools.connections.as_ref().map(|claim| (true, claim, limits.connections));
        let kinds = [Some((false, &pools.threads, limits.threads)), connections];
        for (is_connections, claim, limit) in kinds.into_iter().flatten() {
            let Some(pool) = claim.value() else { continue };
            match limit {
                None => found.unknown.push((at, is_connections)),
                // Behind the critical tier minJobs is more than is needed: a pool below it may do.
                Some(from) if at <= critical && from < pool.per_server => {
                    found.changes.push(Change { tier: at, is_connections, from, to: pool.per_server });
                }
                Some(_) => {}
            }
        }
    }
    if let Some(choke) = critical_most.and_then(|most| choke(allocation, limits, most)) {
        found.changes.insert(0, choke);
    }
    found
}

/// The pool that lets too many into the critical tier: its own threads if their limit is known, else its callers' connections.
fn choke(allocation: &Allocation, limits: &[Limits], most: f64) -> Option<Change> {
    let tier = allocation.critical;
    let own = allocation.tiers.get(tier)?;
    let mut ways = vec![(tier, false, own.servers, &own.threads, limits.get(tier)?.threads)];
    if let Some(before) = tier.checked_sub(1) {
        let callers = allocation.tiers.get(before)?;
        if let Some(claim) = &callers.connections {
            ways.push((before, true, callers.servers, claim, limits.get(before)?.connections));
        }
    }
    let together = |servers: u32, limit: u32| f64::from(servers) * f64::from(limit);
    let admitted =
        ways.iter().filter_map(|(.., servers, _, limit)| limit.map(|limit| together(*servers, limit)));
    // One of them that is small enough is the choke point that is needed.
    if admitted.fold(f64::INFINITY, f64::min) <= most || !allocation.class.may_lower() {
        return None;
    }
    let change = |(tier, is_connections, _, claim, limit): &(usize, bool, u32, &Claim<Pool>, Option<u32>)| {
        let (from, to) = ((*limit)?, claim.value()?.per_server);
        (to < from).then_some(Change { tier: *tier, is_connections: *is_connections, from, to })
    };
    ways.iter().find_map(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::{Chain, Tier, Workers, allocate};
    use crate::evidence::Class;

    fn allocation(class: Class, critical: usize) -> Allocation {
        let tier = |name: &str, servers, throughput, response_s| Tier {
            name: name.into(),
            servers,
            workers: Workers::Threads,
            throughput,
            response_s: Some(response_s),
            hold_s: Some(response_s / 2.0),
        };
        let tiers = vec![tier("web", 1, 100.0, 0.3), tier("app", 2, 100.0, 0.2), tier("db", 1, 100.0, 0.1)];
        allocate(&Chain { tiers, critical, class, critical_most: None }).unwrap()
    }

    fn limits(web: (u32, u32), app: (u32, u32), db: u32) -> [Limits; 3] {
        let of = |(threads, connections)| Limits { threads: Some(threads), connections: Some(connections) };
        [of(web), of(app), Limits { threads: Some(db), connections: None }]
    }

    fn change(tier: usize, is_connections: bool, from: u32, to: u32) -> Change {
        Change { tier, is_connections, from, to }
    }

    #[test]
    fn one_choke_point_suffices() {
        // app critical: 20 in it, 10 for each server; 40 cost throughput.
        let app = allocation(Class::Measured, 1);
        let found = smallest_changes(&app, &limits((400, 200), (200, 100), 150), Some(30.0));
        assert_eq!(
            found.changes,
            [change(1, false, 200, 10)],
            "the front and the connections stay as they are"
        );
        let choked = smallest_changes(&app, &limits((400, 200), (15, 100), 150), Some(30.0));
        assert_eq!(choked, Changes::default(), "30 are let in");
        let by_callers = smallest_changes(&app, &limits((400, 25), (200, 100), 150), Some(30.0));
        assert_eq!(by_callers, Changes::default(), "the front lets in no more than 25");
    }

    #[test]
    fn what_starves_the_critical_tier_is_raised_everywhere() {
        let app = allocation(Class::Extrapolated, 1);
        let found = smallest_changes(&app, &limits((8, 200), (4, 100), 5), Some(30.0));
        assert_eq!(found.changes, [change(0, false, 8, 30), change(1, false, 4, 10)], "behind it 5 may do");
    }

    #[test]
    fn what_was_never_full_lowers_nothing_and_what_is_unknown_is_said() {
        let wide = limits((400, 200), (200, 100), 150);
        assert_eq!(
            smallest_changes(&allocation(Class::Extrapolated, 1), &wide, Some(30.0)),
            Changes::default()
        );
        let unread = [wide[0], Limits { threads: None, ..wide[1] }, wide[2]];
        let found = smallest_changes(&allocation(Class::Measured, 1), &unread, Some(30.0));
        assert_eq!(found.unknown, [(1, false)]);
        assert_eq!(found.changes, [change(0, true, 200, 20)], "the nearest that is known");
    }
}
