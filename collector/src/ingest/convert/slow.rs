//! From the wire's requests that took long to the model's, and what cannot be refused. Called by `convert` alone; knows no window.

use super::ConvertError;
use super::place::{PlaceError, at_most, in_batch};
use tailwater_model::window::{EntityId, SlowCall, SlowRequest};
use tailwater_proto::v1;

/// Requests in one batch: an agent tells 128 of a window, and the largest batch has 64 windows.
const REQUESTS_MAX: usize = 128 * 64;
/// Calls of one request: an agent tells eight.
const CALLS_MAX: usize = 8;
/// No request takes a day.
const LONGEST_NS: u64 = 24 * 3_600 * 1_000_000_000;

/// Why requests that took long are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlowError {
    /// In no window of its batch, or more than an agent tells.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// It would have taken longer than a day.
    #[error("a slow request with {ns} ns: at most {LONGEST_NS}, a day")]
    Absurd {
        /// For how long.
        ns: u64,
    },
}

/// Each with its window in the batch. `listener` and `edge` give the ids of here; requests of a listener that has none are left out, and calls of such an
/// edge counted.
pub(super) fn told(
    slow: &[v1::SlowRequest],
    count: u32,
    mut listener: impl FnMut(u32) -> Option<EntityId>,
    mut edge: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<(u32, SlowRequest)>, ConvertError> {
    at_most("slow requests in one batch", slow.len(), REQUESTS_MAX).map_err(SlowError::from)?;
    let mut found = Vec::new();
    for of in slow {
        let offset = in_batch("a slow request", of.window_offset, count).map_err(SlowError::from)?;
        at_most("calls of one slow request", of.calls.len(), CALLS_MAX).map_err(SlowError::from)?;
        let of_calls = of.calls.iter().flat_map(|call| [call.after_ns, call.took_ns]);
        let times = [of.ended_ago_ns, of.retried_ns, of.unread_ns, of.inside_ns].into_iter().chain(of_calls);
        if let Some(ns) = times.max().filter(|ns| *ns > LONGEST_NS) {
            return Err(SlowError::Absurd { ns }.into());
        }
        // An agent tells 0 of what is beyond its tables.
        let Some(listener) = listener(of.listener).filter(|id| *id != 0) else { continue };
        let calls: Vec<SlowCall> = of
            .calls
            .iter()
            .filter_map(|call| {
                Some(SlowCall {
                    edge: edge(call.edge).filter(|id| *id != 0)?,
                    pair: call.pair,
                    after_ns: call.after_ns,
                    took_ns: call.took_ns,
                    connecting: call.connecting,
                    aborted: call.aborted,
                })
            })
            .collect();
        let unknown = of.calls.len().saturating_sub(calls.len());
        found.push((
            offset,
            SlowRequest {
                listener,
                pair: of.pair,
                ended_ago_ns: of.ended_ago_ns,
                retried_ns: of.retried_ns,
                unread_ns: of.unread_ns,
                queued: of.queued,
                inside_ns: of.inside_ns,
                aborted: of.aborted,
                calls: of.calls_known.then_some(calls),
                calls_left_out: of.calls_left_out.saturating_add(u32::try_from(unknown).unwrap_or(u32::MAX)),
            },
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_are_taken_with_the_ids_of_here_and_what_cannot_be_is_refused() {
        let call =
            v1::SlowCall { edge: 4, pair: 8, after_ns: 1, took_ns: 250_000_000, ..v1::SlowCall::default() };
        let whole = v1::SlowRequest {
            window_offset: 1,
            listener: 3,
            pair: 7,
            inside_ns: 300_000_000,
            calls_known: true,
            calls: vec![call, v1::SlowCall { edge: 5, ..call }],
            ..v1::SlowRequest::default()
        };
        let read = |of: v1::SlowRequest| {
            told(&[of], 2, |id| (id == 3).then_some(103), |id| (id == 4).then_some(204))
        };
        let found = read(whole.clone()).unwrap();
        let (offset, of) = &found[0];
        let calls = of.calls.as_ref().unwrap();
        assert_eq!((*offset, of.listener, calls.len(), calls[0].edge), (1, 103, 1, 204));
        assert_eq!((of.calls_left_out, of.took_ns()), (1, 300_000_000));
        let unknown = read(v1::SlowRequest { calls_known: false, ..whole.clone() }).unwrap();
        assert_eq!(unknown[0].1.calls, None);
        assert_eq!(read(v1::SlowRequest { listener: 0, ..whole.clone() }).unwrap(), Vec::new());
        let refused = |of| read(of).unwrap_err().to_string();
        let outside = refused(v1::SlowRequest { window_offset: 2, ..whole.clone() });
        assert_eq!(outside, "a slow request in window 2 of 2");
        let long = refused(v1::SlowRequest { unread_ns: LONGEST_NS + 1, ..whole.clone() });
        assert!(long.contains("a day"), "{long}");
        let call = v1::SlowCall { took_ns: LONGEST_NS + 1, ..call };
        let long = refused(v1::SlowRequest { calls: vec![call], ..whole.clone() });
        assert!(long.contains("a day"), "{long}");
        let many = refused(v1::SlowRequest { calls: vec![call; CALLS_MAX + 1], ..whole.clone() });
        assert!(many.contains("at most 8"), "{many}");
        let many = told(&vec![whole; REQUESTS_MAX + 1], 2, |_| None, |_| None).unwrap_err();
        assert!(many.to_string().contains("at most"), "{many}");
    }
}
