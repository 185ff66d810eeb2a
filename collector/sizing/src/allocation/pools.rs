//! Algorithm 1, step 3: from minJobs to every pool of a chain. Owns which equation gives which pool and what is
//! refused; knows no pool as it is configured.
//!
//! What differs from the pseudo-code and Table 2, and why:
//! * the critical tier's connections are equation 6 (Table 2: 26), not minJobs (line 33);
//! * tiers in front have connections by equation 6 with their hold time, not equation 5 (line 38);
//! * connections to the critical tier are at least minJobs together: each is one request there, so with the 32 that
//!   Table 2 prints for the four Tomcats before a C-JDBC with a minJobs of 42 its CPU could not be full. And they
//!   never exceed what is known to cost throughput there;
//! * totals are not rounded on the way: each server's pool is the next whole number, because one too few costs more
//!   than one too many.

use super::equations;
use crate::evidence::{Claim, Class, Refusal, positive, whole};
use serde::Serialize;

/// How a tier works on requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workers {
    /// A thread or process for each request.
    Threads,
    /// A loop: no worker limits it.
    EventDriven,
}

/// A tier at the load that just saturates the critical one: all its servers together.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Name.
    pub name: String,
    /// Servers.
    pub servers: u32,
    /// How it works.
    pub workers: Workers,
    /// TP, requests per second.
    pub throughput: f64,
    /// RT, s; none if not known.
    pub response_s: Option<f64>,
    /// RTconn, how long a request of this tier holds a connection to the next, all calls together, s; none if not
    /// known. What is seen from outside, first call's start to last call's end, is a lower bound: borrowing and
    /// releasing are not seen.
    pub hold_s: Option<f64>,
}

/// Tiers from the front to the back, each calling the next.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// From the front.
    pub tiers: Vec<Tier>,
    /// Which has the critical resource.
    pub critical: usize,
    /// What its minJobs rests on: the pools that follow from it rest on no more.
    pub class: Class,
    /// Most requests in flight in the critical tier, all its servers, that cost no throughput; none if not known.
    pub critical_most: Option<f64>,
}

/// Pools of one kind in one tier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pool {
    /// All servers together, as computed.
    pub total: f64,
    /// Of each server.
    pub per_server: u32,
}

/// The pools of one tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierPools {
    /// Name.
    pub name: String,
    /// Servers that have them.
    pub servers: u32,
    /// Threads.
    pub threads: Claim<Pool>,
    /// Connections to the next tier; none for the last, which calls nobody.
    pub connections: Option<Claim<Pool>>,
}

/// Every pool of a chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Allocation {
    /// minJobs of the critical tier, all its servers.
    pub min_jobs: f64,
    /// Which tier that is.
    pub critical: usize,
    /// What all of it rests on.
    pub class: Class,
    /// As given, its front tier without a buffer for bursts (`front_buffer`).
    pub tiers: Vec<TierPools>,
}

/// The least pools with which the critical resource is full: equation 5 for threads of tiers in front, 6 for
/// connections, minJobs behind it (there it is more than enough: what a caller has in flight bounds what it has
/// called).
///
/// # Errors
/// [`Refusal::NoResponse`] without the critical tier's response time, [`Refusal::Input`] for what cannot be. A pool
/// for which something else is missing is refused alone.
pub fn allocate(chain: &Chain) -> Result<Allocation, Refusal> {
    for tier in &chain.tiers {
        positive("the number of servers", f64::from(tier.servers))?;
        positive("throughput, 1/s,", tier.throughput)?;
        tier.response_s.map_or(Ok(0.0), |time_s| positive("response time, s,", time_s))?;
        tier.hold_s.map_or(Ok(0.0), |time_s| positive("hold time, s,", time_s))?;
    }
    let critical = chain.tiers.get(chain.critical);
    let critical =
        critical.ok_or(Refusal::Input { what: "the critical tier", value: chain.critical as f64 })?;
    let response_s = critical.response_s.ok_or_else(|| no_response(critical))?;
    let min_jobs = equations::queued(critical.throughput, response_s);
    let pool = |tier: &Tier, total: f64| {
        let per_server = whole((total / f64::from(tier.servers)).ceil());
        Ok(Pool { total, per_server })
    };
    let threads = |at: usize, tier: &Tier| {
        if tier.workers == Workers::EventDriven {
            return Err(Refusal::EventDriven { tier: tier.name.clone() });
        }
        if at >= chain.critical {
            return pool(tier, min_jobs);
        }
        let own_s = tier.response_s.ok_or_else(|| no_response(tier))?;
        let visits = equations::visit_ratio(tier.throughput, critical.throughput);
        pool(tier, equations::threads(min_jobs, visits, own_s, response_s))
    };
    let connections = |at: usize, tier: &Tier| {
        if at > chain.critical {
            return pool(tier, min_jobs);
        }
        let hold = tier.hold_s.ok_or_else(|| Refusal::NoHold { tier: tier.name.clone() });
        let visits = equations::visit_ratio(tier.throughput, critical.throughput);
        let by_hold = hold.map(|hold_s| equations::connections(min_jobs, visits, hold_s, response_s));
        if at + 1 != chain.critical {
            return pool(tier, by_hold?);
        }
        // What the critical tier needs is known without a hold time, but not whether that is enough here.
        entry(tier, by_hold?.max(min_jobs), chain.critical_most)
    };
    let last = chain.tiers.len() - 1;
    let tiers = chain.tiers.iter().enumerate().map(|(at, tier)| TierPools {
        name: tier.name.clone(),
        servers: tier.servers,
        threads: Claim::of(chain.class, threads(at, tier)),
        connections: (at != last).then(|| Claim::of(chain.class, connections(at, tier))),
    });
    Ok(Allocation { min_jobs, critical: chain.critical, class: chain.class, tiers: tiers.collect() })
}

fn no_response(tier: &Tier) -> Refusal {
    Refusal::NoResponse { tier: tier.name.clone() }
}

/// Connections into the critical tier: `needed` together, and never more than `most` of them.
fn entry(tier: &Tier, needed: f64, most: Option<f64>) -> Result<Pool, Refusal> {
    let servers = f64::from(tier.servers);
    let per_server = whole((needed / servers).ceil());
    let Some(most) = most.filter(|most| f64::from(per_server) * servers > *most) else {
        return Ok(Pool { total: needed, per_server });
    };
    // Whole connections of many servers may not meet the interval: none of them is right then.
    let fewer = (most / servers).floor();
    if fewer < 1.0 || fewer * servers < needed {
        return Err(Refusal::Conflict { needed, most });
    }
    Ok(Pool { total: needed, per_server: whole(fewer) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(name: &str, servers: u32, throughput: f64, response_s: f64, hold_s: Option<f64>) -> Tier {
        let response_s = Some(response_s);
        Tier { name: name.into(), servers, workers: Workers::Threads, throughput, response_s, hold_s }
    }

    fn chain(critical: usize) -> Chain {
        let tiers = vec![
            tier("web", 1, 100.0, 0.3, Some(0.2)),
            tier("app", 4, 100.0, 0.2, Some(0.05)),
            tier("db", 1, 300.0, 0.05, None),
        ];
        Chain { tiers, critical, class: Class::Measured, critical_most: None }
    }

    fn connections(of: &Allocation, at: usize) -> Pool {
        *of.tiers[at].connections.as_ref().unwrap().value().unwrap()
    }

    #[test]
    fn connections_into_the_critical_tier_are_what_it_needs_and_no_more_than_it_stands() {
        let mut chain = chain(2);
        let found = allocate(&chain).unwrap();
        assert!((found.min_jobs - 15.0).abs() < 1e-9);
        // Equation 6 gives 5: with that the database would have 5 requests at the most.
        assert_eq!(connections(&found, 1).per_server, 4);
        assert!((connections(&found, 1).total - 15.0).abs() < 1e-9);
        chain.critical_most = Some(16.0);
        assert_eq!(connections(&allocate(&chain).unwrap(), 1).per_server, 4);
        chain.critical_most = Some(15.5);
        let conflict = allocate(&chain).unwrap();
        assert!(matches!(
            conflict.tiers[1].connections.as_ref().unwrap().refusal(),
            Some(Refusal::Conflict { .. })
        ));
        assert!(found.tiers[2].connections.is_none(), "the last calls nobody");
    }

    #[test]
    fn only_what_is_missing_is_refused() {
        let mut chain = chain(1);
        chain.tiers[0].hold_s = None;
        chain.tiers[2].workers = Workers::EventDriven;
        let found = allocate(&chain).unwrap();
        let refused = |claim: &Claim<Pool>| claim.refusal().cloned();
        let web = &found.tiers[0];
        assert_eq!(refused(web.connections.as_ref().unwrap()), Some(Refusal::NoHold { tier: "web".into() }));
        assert!((web.threads.value().unwrap().total - 30.0).abs() < 1e-9);
        assert_eq!(refused(&found.tiers[2].threads), Some(Refusal::EventDriven { tier: "db".into() }));
        chain.tiers[0].response_s = None;
        let found = allocate(&chain).unwrap();
        assert_eq!(refused(&found.tiers[0].threads), Some(Refusal::NoResponse { tier: "web".into() }));
        chain.tiers[1].response_s = None;
        assert_eq!(allocate(&chain), Err(Refusal::NoResponse { tier: "app".into() }), "all follow from it");
    }

    #[test]
    fn what_no_tier_has_is_refused() {
        let with = |change: &dyn Fn(&mut Chain)| {
            let mut chain = chain(1);
            change(&mut chain);
            allocate(&chain)
        };
        for refused in [
            with(&|chain| chain.critical = 3),
            with(&|chain| chain.tiers.clear()),
            with(&|chain| chain.tiers[0].servers = 0),
            with(&|chain| chain.tiers[1].throughput = f64::NAN),
            with(&|chain| chain.tiers[2].response_s = Some(-1.0)),
            with(&|chain| chain.tiers[0].hold_s = Some(0.0)),
        ] {
            assert!(matches!(refused, Err(Refusal::Input { .. })), "{refused:?}");
        }
    }
}
