//! The fewest requests in flight that keep hardware full, for a tier that was never seen full. Owns the bound and the
//! search; knows no pool as it is.

use super::network::{JOBS_MAX, Network, Station};
use crate::evidence::{PoolRange, Refusal, not_negative, positive};

/// Part of the capacity that is full enough.
pub const FULL_PART: f64 = 0.95;

/// c · (1 + W/D), requests: fewer than that cannot keep `cpus` busy even if none ever waited for another. A lower bound, and with
/// W/D ≫ 1 a low one: [`least_jobs`] is what chance needs beyond it.
///
/// # Errors
/// [`Refusal::Input`] for what is no number of CPUs or no time.
pub fn least_jobs_bound(cpus: f64, cpu_s: f64, wait_s: f64) -> Result<f64, Refusal> {
    let cpus = positive("the number of CPUs", cpus)?;
    let cpu_s = positive("CPU time per request, s,", cpu_s)?;
    Ok(cpus * (1.0 + not_negative("waiting per request, s,", wait_s)? / cpu_s))
}

/// The fewest requests in flight with which a network does this part of its capacity.
///
/// # Errors
/// [`Refusal::Input`] if the part is none below 1, [`Refusal::NoMaximum`] if [`JOBS_MAX`] do not reach it.
pub fn least_jobs(network: &Network, part: f64) -> Result<u32, Refusal> {
    if !(part > 0.0 && part < 1.0) {
        return Err(Refusal::Input { what: "a part of the capacity", value: part });
    }
    let enough = part * network.capacity();
    let mut jobs = 64;
    loop {
        let throughput = network.throughput(jobs);
        if let Some(before) = throughput.iter().position(|of| *of >= enough) {
            return Ok(before as u32 + 1);
        }
        if jobs >= JOBS_MAX {
            return Err(Refusal::NoMaximum);
        }
        jobs *= 4;
    }
}

/// The pool of a server that was never full: `cpus` for which requests of `cpu_s` queue, and `wait_s` elsewhere,
/// measured in one regime of load (a wait under low load beside a CPU time under high load belongs to no network). Up
/// to `seen_to` in flight were seen.
///
/// # Errors
/// As [`least_jobs`].
pub fn least_pool(cpus: f64, cpu_s: f64, wait_s: f64, seen_to: f64) -> Result<PoolRange, Refusal> {
    pool_for(cpus, cpu_s, wait_s, seen_to, FULL_PART)
}

/// The same for another part of the capacity.
///
/// # Errors
/// As [`least_jobs`].
pub fn pool_for(cpus: f64, cpu_s: f64, wait_s: f64, seen_to: f64, part: f64) -> Result<PoolRange, Refusal> {
    let network = Network::new(vec![Station::Delay { demand_s: wait_s }, Station::cpus(cpus, cpu_s)?])?;
    Ok(PoolRange::from_least(f64::from(least_jobs(&network, part)?), seen_to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cpus_need_more_in_flight_and_never_fewer_than_the_bound() {
        let mut before = 0;
        for cpus in [0.5, 1.0, 2.0, 4.0, 16.0] {
            let pool = least_pool(cpus, 1e-3, 0.013, 40.0).unwrap();
            assert!(pool.at_least > before, "{cpus}: {pool:?}");
            // 95 % of the capacity needs 95 % of what the capacity needs.
            let slowed = if cpus < 1.0 {
                least_jobs_bound(1.0, 1e-3 / cpus, 0.013)
            } else {
                least_jobs_bound(cpus, 1e-3, 0.013)
            };
            assert!(f64::from(pool.at_least) >= FULL_PART * slowed.unwrap(), "{cpus}: {pool:?}");
            assert_eq!((pool.at_most, pool.seen_to), (None, 40.0));
            before = pool.at_least;
        }
    }

    #[test]
    fn no_part_and_no_pool_is_refused() {
        let network = Network::new(vec![Station::Queue { demand_s: 1.0 }]).unwrap();
        assert_eq!(least_jobs(&network, 0.95), Ok(1));
        assert!(matches!(least_jobs(&network, 1.0), Err(Refusal::Input { .. })));
        assert!(matches!(least_jobs(&network, f64::NAN), Err(Refusal::Input { .. })));
        let far =
            Network::new(vec![Station::Delay { demand_s: 1e6 }, Station::Queue { demand_s: 1.0 }]).unwrap();
        assert_eq!(least_jobs(&far, 0.95), Err(Refusal::NoMaximum));
        assert!(least_jobs_bound(1.0, 0.0, 1.0).is_err() && least_jobs_bound(1.0, 1.0, -1.0).is_err());
    }
}
