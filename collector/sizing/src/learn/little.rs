//! Little's law between the two ends of a connection. Owns how far they may differ; knows no listener.

/// Part by which the callee's ∫N dt and its callers' may differ (digest, "RT": agree within 10 %).
const AGREE_WITHIN: f64 = 0.1;

/// Whether both ends tell the same requests in flight over the same time: `callee_s` is ∫N dt as the callee's listener counts it
/// (requests · s), `callers_s` what their calls took together (s). The callee's own response time would be the same edges again. `None`:
/// there was nothing in flight, or a figure cannot be.
pub fn agrees(callee_s: f64, callers_s: f64) -> Option<bool> {
    let is_known = |of: f64| of.is_finite() && of > 0.0;
    let is_near = (callers_s / callee_s - 1.0).abs() <= AGREE_WITHIN;
    [callee_s, callers_s].into_iter().all(is_known).then_some(is_near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_tell_must_be_within_a_tenth() {
        for (callers_s, expect) in
            [(10.9, Some(true)), (11.1, Some(false)), (8.9, Some(false)), (0.0, None), (f64::NAN, None)]
        {
            assert_eq!(agrees(10.0, callers_s), expect, "{callers_s}");
        }
    }
}
