//! Equations 1 to 4: which tier limits the system, now and with another number of servers. Owns the operational laws;
//! knows no concurrency.

use super::law::Deployment;
use crate::evidence::{Refusal, positive};
use serde::Serialize;

/// What a tier's servers do for a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierDemand {
    /// Name.
    pub name: String,
    /// S, time that one visit takes of a server (of its best: S*(N_b)/N_b), s.
    pub service_s: f64,
    /// K, V and γ.
    pub deployment: Deployment,
}

/// The tier that ends what the system can do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bottleneck {
    /// Which.
    pub tier: usize,
    /// X_max, requests of the system per second.
    pub throughput: f64,
}

/// What a tier lets the system do at the most, γK/(VS) (equation 4; with K = γ = 1 equation 3), requests per second.
///
/// # Errors
/// [`Refusal::Input`] for what is no time, number of servers, visit ratio or γ.
pub fn throughput_of(tier: &TierDemand) -> Result<f64, Refusal> {
    Ok(tier.deployment.factor()? / positive("service time, s,", tier.service_s)?)
}

/// U = XVS/(γK) of a tier's servers (equations 1 and 2), 1: all are busy.
///
/// # Errors
/// As [`throughput_of`].
pub fn utilisation(tier: &TierDemand, throughput: f64) -> Result<f64, Refusal> {
    Ok(throughput / throughput_of(tier)?)
}

/// The tier with the greatest V·S/K. To ask who it will be after a change, change K.
///
/// # Errors
/// As [`throughput_of`]; [`Refusal::NoMaximum`] without a tier.
pub fn bottleneck(tiers: &[TierDemand]) -> Result<Bottleneck, Refusal> {
    let mut least: Option<Bottleneck> = None;
    for (tier, demand) in tiers.iter().enumerate() {
        let throughput = throughput_of(demand)?;
        if least.is_none_or(|least| throughput < least.throughput) {
            least = Some(Bottleneck { tier, throughput });
        }
    }
    least.ok_or(Refusal::NoMaximum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(name: &str, service_s: f64, servers: u32, visits: f64) -> TierDemand {
        TierDemand { name: name.into(), service_s, deployment: Deployment { servers, visits, gamma: 1.0 } }
    }

    #[test]
    fn visits_and_servers_decide_with_service_time() {
        let mut tiers = vec![tier("web", 1e-4, 1, 1.0), tier("app", 1e-3, 1, 1.0), tier("db", 4e-4, 1, 2.0)];
        assert_eq!(bottleneck(&tiers), Ok(Bottleneck { tier: 1, throughput: 1000.0 }));
        assert!((utilisation(&tiers[2], 1000.0).unwrap() - 0.8).abs() < 1e-12);
        tiers[1].deployment.servers = 2;
        let after = bottleneck(&tiers).unwrap();
        assert_eq!(after.tier, 2, "the second server moves it");
        assert!((after.throughput - 1250.0).abs() < 1e-9);
    }

    #[test]
    fn no_tier_and_no_time_have_no_bottleneck() {
        assert_eq!(bottleneck(&[]), Err(Refusal::NoMaximum));
        assert!(bottleneck(&[tier("web", 0.0, 1, 1.0)]).is_err());
        assert!(bottleneck(&[tier("web", 1e-3, 0, 1.0)]).is_err());
    }
}
