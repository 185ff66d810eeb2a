//! Sizes of one server's pool that are right, and what follows for the pool as it is. Owns when to raise, lower or
//! keep; knows no model.

use super::{Claim, Class};
use serde::{Deserialize, Serialize};

/// Sizes of one server's pool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PoolRange {
    /// The size to set.
    pub advised: u32,
    /// Fewer cost throughput.
    pub at_least: u32,
    /// More cost throughput; none: no penalty was seen as far as `seen_to`, or nothing is known.
    pub at_most: Option<u32>,
    /// Most requests in flight for which there is evidence.
    pub seen_to: f64,
}

/// What to do with a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is right as it is, or nothing that is known speaks against it.
    Keep,
    /// Set it to this, which is more.
    Raise(u32),
    /// Set it to this, which is less.
    Lower(u32),
    /// How large it is could not be read. It is never taken to be a default.
    LimitUnknown,
}

impl Claim<PoolRange> {
    /// What to do with a pool of that size. A refused claim changes nothing; one that is only extrapolated lowers nothing. An open end
    /// reaches as far as was seen: what is beyond is not said to be good.
    pub fn decide(&self, current: Option<u32>) -> Decision {
        let Self::Told { class, value } = self else { return Decision::Keep };
        match current {
            None => Decision::LimitUnknown,
            Some(size) if size < value.at_least => Decision::Raise(value.advised.max(value.at_least)),
            Some(size) if class.may_lower() && f64::from(size) > value.most() => {
                Decision::Lower(value.advised)
            }
            Some(_) => Decision::Keep,
        }
    }
}

impl PoolRange {
    fn most(&self) -> f64 {
        self.at_most.map_or(self.seen_to.max(f64::from(self.advised)), f64::from)
    }

    /// A range of which only the lower end is known.
    pub(crate) fn from_least(least: f64, seen_to: f64) -> Self {
        let at_least = whole(least.ceil());
        Self { advised: at_least, at_least, at_most: None, seen_to }
    }
}

/// A size, 1 or more.
pub(crate) fn whole(size: f64) -> u32 {
    // `as` saturates: what is beyond u32 is no pool.
    (size as u32).max(1)
}

impl Class {
    /// The weaker of two: what follows from both is no better than either.
    pub fn weaker(self, other: Self) -> Self {
        self.max(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Refusal;

    #[test]
    fn a_pool_is_raised_lowered_or_kept_as_its_evidence_allows() {
        let range = PoolRange { advised: 15, at_least: 13, at_most: Some(33), seen_to: 60.0 };
        let claim = |class| Claim::Told { class, value: range };
        for (class, current, expect) in [
            (Class::Measured, Some(200), Decision::Lower(15)),
            (Class::Measured, Some(33), Decision::Keep),
            (Class::Measured, Some(13), Decision::Keep),
            (Class::Measured, Some(12), Decision::Raise(15)),
            (Class::Measured, None, Decision::LimitUnknown),
            (Class::Plateau, Some(34), Decision::Lower(15)),
            (Class::Extrapolated, Some(200), Decision::Keep),
            (Class::Extrapolated, Some(5), Decision::Raise(15)),
        ] {
            assert_eq!(claim(class).decide(current), expect, "{class:?} {current:?}");
        }
        let open = Claim::Told { class: Class::Plateau, value: PoolRange { at_most: None, ..range } };
        for (current, expect) in
            [(60, Decision::Keep), (61, Decision::Lower(15)), (13, Decision::Keep), (12, Decision::Raise(15))]
        {
            assert_eq!(open.decide(Some(current)), expect, "{current}");
        }
        let refused: Claim<PoolRange> = Refusal::MixDrift.into();
        assert_eq!(refused.decide(Some(1)), Decision::Keep);
        assert_eq!(Class::Measured.weaker(Class::Extrapolated), Class::Extrapolated);
    }
}
