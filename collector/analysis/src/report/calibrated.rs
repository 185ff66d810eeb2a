//! Weights of the numbers that `path/evidence.rs` owns: none are learnt yet. `make calibrate` writes this file.

use crate::path::evidence::COUNT;

/// Log-odds that a root is right whose numbers are all as usual; then of each number its name, usual value, and weight: log-odds for a value
/// higher by 1.
pub(super) type Learnt = (f64, [(&'static str, f64, f64); COUNT]);

/// `None`: the score by rule stands in for a confidence.
pub(super) const LEARNT: Option<Learnt> = None;
