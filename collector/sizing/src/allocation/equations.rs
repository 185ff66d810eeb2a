//! Equations 1 to 6 of A, as printed. Owns nothing but arithmetic: what may be put in is checked by whoever calls.
//!
//! Indices as in the paper: i is the tier that is known, j the one that is asked for; a tier is all its servers together.

/// (1) Q_i = TP_i · RT_i: requests in a tier, by Little's law.
///
/// `throughput` in requests per second, `response_s` in s.
pub fn queued(throughput: f64, response_s: f64) -> f64 {
    throughput * response_s
}

/// (2) V_ji = TP_j / TP_i: visits of tier j for each request of tier i.
pub fn visit_ratio(throughput_j: f64, throughput_i: f64) -> f64 {
    throughput_j / throughput_i
}

/// (3), and (4) with the ratio of response times written out: Q_j = Q_i · V_ji · RT_j / RT_i.
pub fn queued_at(queued_i: f64, visits_ji: f64, response_j_s: f64, response_i_s: f64) -> f64 {
    queued_i * visits_ji * response_j_s / response_i_s
}

/// (5) ThreadPool_j = ThreadPool_i · V_ji · RT_j / RT_i: as (4), where each request has a thread.
pub fn threads(threads_i: f64, visits_ji: f64, response_j_s: f64, response_i_s: f64) -> f64 {
    queued_at(threads_i, visits_ji, response_j_s, response_i_s)
}

/// (6) ConnPool_j = ThreadPool_i · V_ji · RTconn_j / RT_i: connections of tier j to the one behind it. `hold_j_s` is
/// the time from borrowing to release, of one request of tier j, s. (Line 38 of Algorithm 1 has the response time in
/// its place, which contradicts this and Table 2.)
pub fn connections(threads_i: f64, visits_ji: f64, hold_j_s: f64, response_i_s: f64) -> f64 {
    queued_at(threads_i, visits_ji, hold_j_s, response_i_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_over_a_ratio_is_littles_law() {
        let (front, back) = (queued(100.0, 0.2), queued(300.0, 0.05));
        let over = queued_at(back, visit_ratio(100.0, 300.0), 0.2, 0.05);
        assert!((front - 20.0).abs() < 1e-12 && (over - front).abs() < 1e-12);
    }
}
