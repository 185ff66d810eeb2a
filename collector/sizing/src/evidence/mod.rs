//! How far a number can be trusted. Owns the classes, what each may say, the refusals and the form of an answer;
//! knows no model.
//!
//! What is told is a [`Claim`]: a number with its [`Class`], or a [`Refusal`]. What only computes returns a `Result`
//! with the same refusals, and [`Claim::of`] makes a claim of that and of the class of what was put in.

mod pool;
mod refusal;

pub(crate) use pool::whole;
pub use pool::{Decision, PoolRange};
pub use refusal::{Refusal, Share};
pub(crate) use refusal::{not_negative, positive};

use serde::{Deserialize, Serialize};

/// What a number rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Loads on both sides of the best one were seen.
    Measured,
    /// The hardware was full, and more in flight cost nothing as far as was seen.
    Plateau,
    /// The hardware was never full: the number is a lower bound by a model.
    Extrapolated,
}

impl Class {
    /// Whether it may lower a pool. What was never seen full says only what is too little.
    pub fn may_lower(self) -> bool {
        self != Self::Extrapolated
    }
}

/// A number (or a few that belong together) with what it rests on, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Claim<T> {
    /// Said.
    Told {
        /// What it rests on.
        class: Class,
        /// The number.
        value: T,
    },
    /// Not said.
    Refused {
        /// Why.
        refused: Refusal,
    },
}

impl<T> Claim<T> {
    /// What was computed, in this class; or why it was not.
    pub fn of(class: Class, computed: Result<T, Refusal>) -> Self {
        match computed {
            Ok(value) => Self::Told { class, value },
            Err(refused) => Self::Refused { refused },
        }
    }

    /// The number, if it is told.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Told { value, .. } => Some(value),
            Self::Refused { .. } => None,
        }
    }

    /// Its class, if it is told.
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::Told { class, .. } => Some(*class),
            Self::Refused { .. } => None,
        }
    }

    /// Why it is not told.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Told { .. } => None,
            Self::Refused { refused } => Some(refused),
        }
    }
}

impl<T> From<Refusal> for Claim<T> {
    fn from(refused: Refusal) -> Self {
        Self::Refused { refused }
    }
}

/// A number with its 95 % interval, all in the same unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// 2.5 % quantile.
    pub low: f64,
    /// 97.5 % quantile.
    pub high: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_shown_with_its_class_or_its_reason() {
        let told = Claim::of(Class::Plateau, Ok(7));
        assert_eq!(serde_json::to_string(&told).unwrap(), r#"{"class":"plateau","value":7}"#);
        assert_eq!((told.value(), told.class(), told.refusal()), (Some(&7), Some(Class::Plateau), None));
        let refused: Claim<u32> = Refusal::NoSpread.into();
        assert_eq!(serde_json::to_string(&refused).unwrap(), r#"{"refused":{"reason":"no_spread"}}"#);
        assert_eq!(
            (refused.value(), refused.class(), refused.refusal()),
            (None, None, Some(&Refusal::NoSpread))
        );
    }

    #[test]
    fn only_what_was_never_full_may_not_lower() {
        assert!(
            Class::Measured.may_lower() && Class::Plateau.may_lower() && !Class::Extrapolated.may_lower()
        );
    }
}
