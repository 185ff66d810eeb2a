//! Little's law between the two ends of a connection. Owns how far they may differ; knows no listener.

/// Part by which the callee's ∫N dt and its caller's may differ (digest, "RT": agree within 10 %).
pub const AGREE_WITHIN: f64 = 0.1;

/// Whether both ends tell the same requests in flight over the same time: `callee_s` is ∫N dt as the callee's listener counts it
/// (requests · s), `caller_s` the caller's ∫ calls in flight dt, `calls` · `response_s` what its response times make of it (s). All
/// three are measured apart; the callee's own response time would be the same edges again. `None`: there was nothing in flight, or
/// a figure cannot be.
pub fn agrees(callee_s: f64, caller_s: f64, calls: f64, response_s: f64) -> Option<bool> {
    let by_times = calls * response_s;
    let is_known = |of: f64| of.is_finite() && of > 0.0;
    let near = |of: f64| (of / callee_s - 1.0).abs() <= AGREE_WITHIN;
    [callee_s, caller_s, by_times].into_iter().all(is_known).then(|| near(caller_s) && near(by_times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_of_the_callers_figures_must_be_within_a_tenth() {
        for (caller_s, calls, expect) in [
            (10.9, 1000.0, Some(true)),
            (11.1, 1000.0, Some(false)),
            (8.9, 1000.0, Some(false)),
            (10.0, 1200.0, Some(false)),
            (0.0, 1000.0, None),
            (f64::NAN, 1000.0, None),
        ] {
            assert_eq!(agrees(10.0, caller_s, calls, 0.01), expect, "{caller_s} {calls}");
        }
    }
}
