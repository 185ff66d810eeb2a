//! What another number of servers changes. Owns γ from a comparison, pools per caller and the new plan; knows no curve.

use super::law::{Deployment, Law};
use crate::evidence::{Refusal, not_negative, positive};
use serde::{Deserialize, Serialize};

/// The most that some servers together were seen to do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// K.
    pub servers: u32,
    /// V, visits for each request of the system.
    pub visits: f64,
    /// X_max, requests of the system per second.
    pub throughput_max: f64,
    /// Standard error of that, requests per second.
    pub error: f64,
}

/// γ of the second against the first, and its standard error: X·V/K of the one as a part of the other's. That is the
/// only way to it: at one number of servers it is a factor of all times (digest of B).
///
/// # Errors
/// [`Refusal::SameServers`] if both have the same number of servers, [`Refusal::Input`] for what cannot be.
pub fn gamma(first: &Measured, second: &Measured) -> Result<(f64, f64), Refusal> {
    if first.servers == second.servers {
        return Err(Refusal::SameServers { servers: first.servers });
    }
    let each = |of: &Measured| {
        let servers = positive("the number of servers", f64::from(of.servers))?;
        let throughput = positive("throughput, 1/s,", of.throughput_max)?;
        Ok((throughput * positive("the visit ratio", of.visits)? / servers, of.error / throughput))
    };
    let ((one, error), (other, other_error)) = (each(first)?, each(second)?);
    let gamma = other / one;
    Ok((gamma, gamma * error.hypot(other_error)))
}

/// N_b·K_callee/K_caller: the connections that each caller may have open, so that all together bring the callee's
/// servers to `in_flight` each (B, section V: 36 · 1/2 = 18).
///
/// # Errors
/// [`Refusal::Input`] for what is no number in flight or of servers.
pub fn connections_per_caller(in_flight: f64, callees: u32, callers: u32) -> Result<f64, Refusal> {
    let callees = positive("the number of servers called", f64::from(callees))?;
    Ok(positive("the number in flight", in_flight)? * callees
        / positive("the number of callers", f64::from(callers))?)
}

/// Requests in flight in a server that calls others, for `local` of them at work in itself: local · RT/(RT − RTconn).
/// The knee of such a server is one of its local number (in flight less those that wait for a call); its pool holds
/// both (digest of A and B, "Non-leaf knee").
///
/// # Errors
/// [`Refusal::Input`] if a time or the number cannot be, or calls take all of the response time.
pub fn with_calls(local: f64, response_s: f64, hold_s: f64) -> Result<f64, Refusal> {
    let response_s = positive("response time, s,", response_s)?;
    let own_s = positive(
        "response time less that of calls, s,",
        response_s - not_negative("hold time, s,", hold_s)?,
    )?;
    Ok(positive("the number in flight", local)? * response_s / own_s)
}

/// A callee's plan after the number of callers or of its own servers changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rescaled {
    /// Requests in flight that the pools as they are bring to each of the callee's servers.
    pub in_flight: f64,
    /// Part of the best throughput that is missing then, 0 to 1.
    pub loss: f64,
    /// Connections of each caller instead.
    pub connections: f64,
    /// What the callee's servers then do, requests of the system per second.
    pub throughput_max: f64,
}

/// The plan for `callers` with `pool` connections each, all in use, before a callee of that law: Σ connections =
/// callers · pool is what more callers bring beyond N_b (B, section II: 80 became 160).
///
/// # Errors
/// As [`Law::optimum`], [`Deployment::factor`] and [`connections_per_caller`].
pub fn rescale(law: &Law, callee: &Deployment, callers: u32, pool: u32) -> Result<Rescaled, Refusal> {
    let throughput_max = callee.throughput_max(law)?;
    let in_flight = f64::from(callers) * f64::from(pool) / f64::from(callee.servers);
    let best = law.optimum()?.in_flight;
    let connections = connections_per_caller(best, callee.servers, callers)?;
    // Too few is no loss of this law's: what is below the best is said by the pool's least size.
    let loss = if in_flight > best { law.loss(in_flight)? } else { 0.0 };
    Ok(Rescaled { in_flight, loss, connections, throughput_max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_takes_two_numbers_of_servers() {
        let one = Measured { servers: 1, visits: 2.0, throughput_max: 500.0, error: 5.0 };
        let two = Measured { servers: 2, visits: 2.0, throughput_max: 900.0, error: 9.0 };
        let (value, error) = gamma(&one, &two).unwrap();
        assert!((value - 0.9).abs() < 1e-12 && (error - 0.9 * 0.01 * 2_f64.sqrt()).abs() < 1e-12);
        assert_eq!(gamma(&one, &one), Err(Refusal::SameServers { servers: 1 }));
        assert!(gamma(&one, &Measured { throughput_max: 0.0, ..two }).is_err());
        // Another mix, with twice the visits, is not less capacity.
        let mix = Measured { visits: 4.0, throughput_max: 450.0, ..two };
        assert!((gamma(&one, &mix).unwrap().0 - 0.9).abs() < 1e-12);
    }

    #[test]
    fn a_pool_holds_those_that_wait_for_calls_too() {
        assert!((with_calls(10.0, 0.028, 0.013).unwrap() - 10.0 * 28.0 / 15.0).abs() < 1e-9);
        assert_eq!(with_calls(10.0, 0.028, 0.0), Ok(10.0));
        assert!(with_calls(10.0, 0.013, 0.013).is_err() && with_calls(10.0, 0.028, -1.0).is_err());
    }

    #[test]
    fn too_few_connections_are_no_loss_by_concurrency() {
        let law = Law::new(2e-3, 5e-4, 2e-6).unwrap();
        let few = rescale(&law, &Deployment::default(), 2, 1).unwrap();
        assert_eq!((few.in_flight, few.loss), (2.0, 0.0));
        assert!(rescale(&law, &Deployment::default(), 0, 1).is_err());
        assert!(rescale(&law, &Deployment { servers: 0, ..Deployment::default() }, 1, 1).is_err());
    }
}
