//! What a tier still bears: how much of its CPUs the present load takes, and how long a standstill its places outlast. Owns that arithmetic;
//! knows no tier by name and no history.

use crate::evidence::{Refusal, not_negative, positive};
use serde::Serialize;

/// A tier under the present load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Present {
    /// Requests a second, λ.
    pub rate: f64,
    /// CPU time of a request, s; none if not known.
    pub cpu_s: Option<f64>,
    /// CPUs that it may use; none if not known.
    pub cpus: Option<f64>,
    /// Requests at a time; none if not known, or event-driven.
    pub workers: Option<u32>,
    /// Limit of its accept queue, which holds one more; none if not known.
    pub backlog: Option<u32>,
    /// Requests that all its callers have at a time, at the most; none if not all of them are known.
    pub callers_most: Option<u32>,
}

/// Whether its accept queue overflows when it stands still.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standstill {
    /// After so long, s: its places over λ.
    OverflowsAfter(f64),
    /// Never: its callers together have no more at a time than it has places.
    Outlasted,
    /// How many places it has, or what comes, is not known.
    Unknown,
}

/// What it bears under so many times the present load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Headroom {
    /// Part of its CPUs in use, λD/c (the utilisation law); above 1: it cannot. None if not known.
    pub cpu_ratio: Option<f64>,
    /// Times the present load at which its CPUs are full; none if not known, or nothing comes.
    pub full_at: Option<f64>,
    /// Requests that find a place in it: workers, backlog and one more; none if not known.
    pub places: Option<u32>,
    /// A standstill of it, or of what it waits for.
    pub standstill: Standstill,
}

/// Under `load` times the present load.
///
/// # Errors
/// [`Refusal::Input`] for what is no load, no rate or no time.
pub fn headroom(present: &Present, load: f64) -> Result<Headroom, Refusal> {
    let rate = not_negative("requests per second", present.rate)? * positive("a load", load)?;
    let cpu_ratio = match present.cpu_s.zip(present.cpus) {
        None => None,
        Some((cpu_s, cpus)) => {
            let cpus = positive("the number of CPUs", cpus)?;
            Some(rate * not_negative("CPU time per request, s,", cpu_s)? / cpus)
        }
    };
    let places = present.workers.zip(present.backlog);
    let places = places.map(|(workers, backlog)| workers.saturating_add(backlog).saturating_add(1));
    let standstill = match (places, present.callers_most) {
        (Some(places), Some(most)) if most <= places => Standstill::Outlasted,
        (Some(places), _) if rate > 0.0 => Standstill::OverflowsAfter(f64::from(places) / rate),
        _ => Standstill::Unknown,
    };
    let full_at = cpu_ratio.filter(|ratio| *ratio > 0.0).map(|ratio| load / ratio);
    Ok(Headroom { cpu_ratio, full_at, places, standstill })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The laboratory's front: 150 workers and a queue of 128 under 930 requests a second.
    const WEB: Present = Present {
        rate: 930.0,
        cpu_s: Some(0.2e-3),
        cpus: Some(0.5),
        workers: Some(150),
        backlog: Some(128),
        callers_most: None,
    };

    #[test]
    fn a_standstill_overflows_when_its_places_are_taken() {
        let now = headroom(&WEB, 1.0).unwrap();
        assert_eq!((now.places, now.standstill), (Some(279), Standstill::OverflowsAfter(0.3)));
        assert!((now.cpu_ratio.unwrap() - 0.372).abs() < 1e-9 && (now.full_at.unwrap() - 2.688).abs() < 1e-3);
        let more = headroom(&WEB, 1.5).unwrap();
        assert_eq!(more.standstill, Standstill::OverflowsAfter(0.2));
        assert!((more.cpu_ratio.unwrap() - 0.558).abs() < 1e-9);
        assert!((more.full_at.unwrap() - now.full_at.unwrap()).abs() < 1e-9, "of the present load");
    }

    #[test]
    fn callers_that_cannot_fill_it_never_overflow_it() {
        let app = Present { workers: Some(160), callers_most: Some(150), ..WEB };
        assert_eq!(headroom(&app, 3.0).unwrap().standstill, Standstill::Outlasted);
        let few = Present { workers: Some(16), callers_most: Some(150), ..WEB };
        assert!(matches!(headroom(&few, 1.0).unwrap().standstill, Standstill::OverflowsAfter(_)));
    }

    #[test]
    fn what_is_not_known_is_no_number() {
        let unknown = Present { cpu_s: None, backlog: None, ..WEB };
        let told = headroom(&unknown, 1.0).unwrap();
        assert_eq!(
            (told.cpu_ratio, told.full_at, told.places, told.standstill),
            (None, None, None, Standstill::Unknown)
        );
        let idle = headroom(&Present { rate: 0.0, ..WEB }, 1.0).unwrap();
        assert_eq!((idle.full_at, idle.standstill), (None, Standstill::Unknown));
        for (present, load) in [
            (WEB, 0.0),
            (WEB, f64::NAN),
            (Present { rate: -1.0, ..WEB }, 1.0),
            (Present { cpus: Some(0.0), ..WEB }, 1.0),
        ] {
            assert!(matches!(headroom(&present, load), Err(Refusal::Input { .. })), "{present:?} {load}");
        }
    }
}
