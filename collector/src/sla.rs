//! Within how long tiers are to answer: `[[sla]]`. Owns which of the rules holds for what is asked about; the share of answers that kept it is
//! in `serve/responses.rs`, and how many did since the collector began in `export/responses.rs`. Knows no window.

use crate::fault::Fault;
use crate::text::like;
use serde::{Deserialize, Serialize};
use tailwater_model::address::is_path;

/// Where nothing else is said, ms.
const WITHIN_MS: u64 = 500;
/// An hour.
const WITHIN_MS_MAX: u64 = 3_600_000;

/// One rule. Without tier and port it is of everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sla {
    /// Name of the tier; `*` stands for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Port that is listened on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Answers are to take no longer, ms.
    #[serde(default = "default_ms")]
    pub within_ms: u64,
}

fn default_ms() -> u64 {
    WITHIN_MS
}

/// The first rule that is broken.
pub fn check(all: &[Sla]) -> Result<(), Fault> {
    for (index, sla) in all.iter().enumerate() {
        if !(1..=WITHIN_MS_MAX).contains(&sla.within_ms) {
            let what = format!("must be 1 to {WITHIN_MS_MAX}");
            let remedy = format!("leave it out for {WITHIN_MS}");
            return Err(Fault { table: "sla", index, key: "within_ms", what, remedy });
        }
    }
    Ok(())
}

/// The port of a place as [`tailwater_model::address::place`] writes it. `None`: a Unix socket, which has none, or no place.
#[must_use]
pub fn port(place: &str) -> Option<u16> {
    if is_path(place) { None } else { place.rsplit_once(':')?.1.parse().ok() }
}

/// What holds for answers of these tiers at these ports, ms: the first rule that fits all of them, as the answers are told together.
#[must_use]
pub fn within_ms(all: &[Sla], tiers: &[&str], ports: &[u16]) -> u64 {
    let of_tier = |sla: &Sla| {
        let pattern = sla.tier.as_deref();
        pattern.is_none() || (!tiers.is_empty() && tiers.iter().all(|tier| like(pattern, tier)))
    };
    let of_port =
        |sla: &Sla| sla.port.is_none_or(|port| !ports.is_empty() && ports.iter().all(|p| *p == port));
    all.iter().find(|sla| of_tier(sla) && of_port(sla)).map_or(WITHIN_MS, |sla| sla.within_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sla(tier: Option<&str>, port: Option<u16>, within_ms: u64) -> Sla {
        Sla { tier: tier.map(str::to_owned), port, within_ms }
    }

    #[test]
    fn the_first_rule_that_fits_all_that_is_asked_about_holds() {
        let all = [sla(Some("db*"), None, 20), sla(None, Some(80), 300), sla(Some("web"), Some(8080), 40)];
        assert_eq!(within_ms(&all, &["db-main"], &[3306]), 20);
        assert_eq!(within_ms(&all, &["web"], &[80]), 300);
        assert_eq!(within_ms(&all, &["web"], &[8080]), 40);
        assert_eq!(within_ms(&all, &["web"], &[80, 8080]), WITHIN_MS, "neither rule is of both ports");
        assert_eq!(within_ms(&all, &["db-main", "web"], &[80]), 300, "and the first is of one tier only");
        assert_eq!(within_ms(&all, &[], &[]), WITHIN_MS, "nothing is known of it");
        assert_eq!(within_ms(&[sla(None, None, 7)], &[], &[]), 7, "but this is of everything");
    }

    #[test]
    fn a_place_has_the_port_that_is_listened_on_and_a_unix_socket_has_none() {
        assert_eq!((port("10.0.0.1:80"), port("[::]:8080")), (Some(80), Some(8080)));
        assert_eq!([port("/run/web:80"), port("@web:80"), port("~other"), port("")], [None; 4]);
    }

    #[test]
    fn a_threshold_that_is_none_is_refused_with_its_table() {
        let fault = check(&[sla(None, None, 500), sla(None, None, 0)]).unwrap_err();
        assert_eq!((fault.table, fault.index, fault.key), ("sla", 1, "within_ms"));
        assert_eq!(check(&[sla(None, None, 1), sla(None, None, WITHIN_MS_MAX)]), Ok(()));
    }
}
