//! First attempts at the front of a chain, window by window. Owns whether connections are requests there; what comes again, and when, is the model's
//! (`tailwater_sizing::prevent`).

use super::places::Place;
use super::seen::Row;
use std::ops::Range;
use tailwater_sizing::evidence::Refusal;
use tailwater_sizing::prevent::{Came, FirstAttempts, Retries};

/// Requests on each connection above which connections are not requests.
const PER_CONNECTION_MAX: f64 = 1.5;

/// Connection attempts of each window of `range`, less those that had been dropped before and came again as `retries` says.
pub(super) fn first_attempts(
    place: &Place,
    front: &[Option<Row>],
    range: &Range<usize>,
    calm: &[bool],
    retries: Retries,
) -> Result<Vec<u32>, Refusal> {
    let quiet = || front.iter().zip(calm).filter(|(_, calm)| **calm).filter_map(|(row, _)| row.as_ref());
    let sum = |of: fn(&Row) -> u64| quiet().map(of).fold(0, u64::saturating_add);
    let (arrived, received) = (sum(|row| row.listen.arrivals), sum(|row| row.listen.received));
    let per_connection = received as f64 / arrived.max(1) as f64;
    if per_connection > PER_CONNECTION_MAX {
        return Err(Refusal::KeptConnections { tier: place.name(), per_connection });
    }
    // From the first row on: what was dropped before the range comes again in it.
    Ok(first_of_each(&front[..range.end], retries).split_off(range.start))
}

/// Connection attempts of each window, less those that had been dropped in one before it and came again as `retries` says.
pub(super) fn first_of_each(rows: &[Option<Row>], retries: Retries) -> Vec<u32> {
    let mut firsts = FirstAttempts::new(retries);
    let attempts = rows.iter().enumerate().map(|(n, row)| {
        let listen = row.as_ref().map(|row| row.listen).unwrap_or_default();
        let came = Came {
            arrivals: listen.arrivals,
            drops_syn: listen.drops_syn,
            drops_final_ack: listen.drops_final_ack,
            drops_repeated: listen.drops_repeated,
        };
        u32::try_from(firsts.next(n, &came)).unwrap_or(u32::MAX)
    });
    attempts.collect()
}
