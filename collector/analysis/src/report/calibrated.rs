//! Weights of the numbers of `path/evidence.rs`. Not learnt yet.

use crate::path::evidence::COUNT;

pub(super) const WEIGHT_OF_NONE: f64 = 0.0;
pub(super) const LEARNT: [(&str, f64, f64); COUNT] = [("", 0.0, 0.0); COUNT];
