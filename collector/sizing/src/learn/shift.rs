//! Whether seconds are still those of the mix and version that was learnt. Owns the test; knows not what follows.

use super::cost::Cost;

/// Seconds that are judged together.
const CHUNK_S: f64 = 60.0;
/// Part by which what requests use must differ from what is expected of them: less is drift, which ageing follows.
const PART_MIN: f64 = 0.15;
/// Standard errors by which it must differ.
const ERRORS: f64 = 5.0;

/// What a full chunk says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It is not full yet.
    Nothing,
    /// As it was.
    Same,
    /// Another, for the first time: what one chunk shows may be a deployment's start.
    Suspect,
    /// Another, twice in succession.
    Shifted,
}

/// Takes what a second used and what was expected of it at its load.
pub(super) fn next(chunk: &mut Cost, suspects: &mut u8, seconds: f64, expected: f64, used: f64) -> Said {
    chunk.add(seconds, expected, used, 0.0);
    if chunk.seconds() < CHUNK_S {
        return Said::Nothing;
    }
    let full = std::mem::take(chunk);
    let is_other = full
        .ratio_with_error()
        .is_some_and(|(ratio, error)| (ratio - 1.0).abs() > PART_MIN.max(ERRORS * error));
    *suspects = if is_other { suspects.saturating_add(1) } else { 0 };
    match *suspects {
        0 => Said::Same,
        1 => Said::Suspect,
        _ => Said::Shifted,
    }
}
