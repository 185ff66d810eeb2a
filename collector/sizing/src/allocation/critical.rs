//! Which resource is critical, by what was seen while throughput was at its end. Owns when there is one, several or
//! none; knows no pool.

use crate::evidence::{Refusal, Share, not_negative};

/// Part of its quota from which a resource is full on average.
const FULL_PART: f64 = 0.95;
/// Below that on average everywhere, full times that are spread over several resources are one bottleneck that alternates.
const AVERAGE_FULL: f64 = 0.9;
/// Part of the time from which a resource takes part in an alternating bottleneck.
const TAKES_PART: f64 = 0.1;

/// A hardware resource, over the time in which throughput was at its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Tier and kind, as people call it.
    pub name: String,
    /// Mean use of its quota, 0 to 1.
    pub used_ratio: f64,
    /// Part of the windows in which it was full, 0 to 1.
    pub full_ratio: f64,
}

/// The one resource that ends throughput, as its index (first step of Algorithm 1; its assumption 1 is that there is
/// one only).
///
/// Resources of which none is full on average and which are full by turns are named with their shares, and so are two
/// that are full at once: no single number is right then. Fifty-millisecond windows see the turns that the paper says
/// its monitoring could not.
///
/// # Errors
/// [`Refusal::SeveralCritical`], [`Refusal::NotSaturated`] if nothing was full, [`Refusal::Input`] for what is no
/// ratio.
pub fn critical_resource(resources: &[Resource]) -> Result<usize, Refusal> {
    for resource in resources {
        not_negative("the use of a resource", resource.used_ratio)?;
        not_negative("the full time of a resource", resource.full_ratio)?;
    }
    let pick = |is: &dyn Fn(&Resource) -> bool| {
        let of = resources.iter().enumerate().filter(|(_, resource)| is(resource));
        of.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let several = |at: &[usize]| {
        let share = |at: &usize| Share {
            resource: resources[*at].name.clone(),
            full_ratio: resources[*at].full_ratio,
        };
        Err(Refusal::SeveralCritical { resources: at.iter().map(share).collect() })
    };
    match pick(&|of| of.used_ratio >= FULL_PART)[..] {
        [one] => return Ok(one),
        [] => {}
        ref full => return several(full),
    }
    let by_turns = pick(&|of| of.full_ratio >= TAKES_PART && of.used_ratio < AVERAGE_FULL);
    let most = resources.iter().map(|of| of.used_ratio).fold(0.0, f64::max);
    if by_turns.len() >= 2 && most < AVERAGE_FULL {
        return several(&by_turns);
    }
    Err(Refusal::NotSaturated { used_ratio: most })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, used_ratio: f64, full_ratio: f64) -> Resource {
        Resource { name: name.into(), used_ratio, full_ratio }
    }

    #[test]
    fn one_that_is_full_is_critical() {
        let all =
            [resource("web CPU", 0.4, 0.02), resource("app CPU", 0.99, 0.97), resource("db CPU", 0.6, 0.15)];
        assert_eq!(critical_resource(&all), Ok(1));
    }

    #[test]
    fn those_that_take_turns_are_named_with_their_shares() {
        let all =
            [resource("web CPU", 0.4, 0.02), resource("app CPU", 0.62, 0.45), resource("db disk", 0.58, 0.4)];
        let Err(Refusal::SeveralCritical { resources }) = critical_resource(&all) else { panic!("{all:?}") };
        let named: Vec<_> = resources.iter().map(|of| (of.resource.as_str(), of.full_ratio)).collect();
        assert_eq!(named, [("app CPU", 0.45), ("db disk", 0.4)]);
        let both = [resource("app CPU", 0.97, 0.9), resource("db CPU", 0.96, 0.9)];
        assert!(matches!(critical_resource(&both), Err(Refusal::SeveralCritical { .. })));
    }

    #[test]
    fn where_nothing_is_full_nothing_is_critical() {
        assert_eq!(
            critical_resource(&[resource("a", 0.5, 0.05)]),
            Err(Refusal::NotSaturated { used_ratio: 0.5 })
        );
        assert_eq!(critical_resource(&[]), Err(Refusal::NotSaturated { used_ratio: 0.0 }));
        assert!(matches!(critical_resource(&[resource("a", f64::NAN, 0.0)]), Err(Refusal::Input { .. })));
    }
}
