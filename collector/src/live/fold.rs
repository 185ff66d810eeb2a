//! Several rows of a window as one: times and counts add up, of longest times the longest stays. A row is taken apart without `..`, so that
//! a new field does not compile before it is said here what becomes of it: left out it would be 0 wherever a host is asked for as a whole.

use tailwater_model::window::{DeviceWindow, EdgeWindow, ListenerWindow, WorkloadWindow};

macro_rules! fold {
    ($row:ident, $to:ident, $from:ident: sum $($sum:ident)* ; longest $($longest:ident)* ; apart $($apart:ident)*) => {
        let $row { $($sum: _,)* $($longest: _,)* $($apart: _,)* } = *$from;
        $($to.$sum = $to.$sum.saturating_add($from.$sum);)*
        $($to.$longest = $to.$longest.max($from.$longest);)*
    };
}

/// Adds a workload's row.
pub(crate) fn workload(to: &mut WorkloadWindow, from: &WorkloadWindow) {
    fold!(WorkloadWindow, to, from:
        sum busy_ns wait_ns waiting_max blocked_io_ns blocked_io_max reclaim_ns dirty_throttle_ns swap_ins io_bytes io_requests io_flushes;
        longest wait_max_ns throttled_ns stopped_max;
        apart stopped_ns);
    to.stopped_ns = known_sum(to.stopped_ns, from.stopped_ns);
}

/// Adds a listener's row. Depths of several queues add up to what is queued.
pub(crate) fn listener(to: &mut ListenerWindow, from: &ListenerWindow) {
    fold!(ListenerWindow, to, from:
        sum depth_last depth_max depth_ns limit arrivals accepts drops drops_syn sk_drops drops_final_ack drops_cookie drops_repeated
            drops_slow syn_ack_retransmits received answered aborted in_flight_last in_flight_max in_flight_ns unread_max unread_ns
            workers_busy_max workers_busy_ns workers_seen response_ns open_last open_max multiplexed_connections pieces_in pieces_read pieces_out multiplexed_bytes_in
            multiplexed_bytes_out unanswered_max unanswered_ns;
        longest queue_wait_max_ns worker_shared_max response_max_ns;
        apart late very_late very_long_retried very_long_queued very_long_unread very_long_inside);
    to.late = known_sum(to.late, from.late);
    to.very_late = known_sum(to.very_late, from.very_late);
    to.very_long_retried = known_sum(to.very_long_retried, from.very_long_retried);
    to.very_long_queued = known_sum(to.very_long_queued, from.very_long_queued);
    to.very_long_unread = known_sum(to.very_long_unread, from.very_long_unread);
    to.very_long_inside = known_sum(to.very_long_inside, from.very_long_inside);
}

/// What both have, or what one has: what is not covered adds nothing.
fn known_sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

/// Adds an edge's row.
pub(crate) fn edge(to: &mut EdgeWindow, from: &EdgeWindow) {
    fold!(EdgeWindow, to, from:
        sum started answered aborted in_flight_last in_flight_max in_flight_ns open_last open_max connects established response_ns
            syn_retransmits data_retransmits multiplexed_connections pieces_in pieces_out multiplexed_bytes_in multiplexed_bytes_out
            unanswered_max unanswered_ns;
        longest response_max_ns;
        apart first_try_unix_ns);
    to.first_try_unix_ns = match (to.first_try_unix_ns, from.first_try_unix_ns) {
        (0, first) | (first, 0) => first,
        (a, b) => a.min(b),
    };
}

/// Adds a device's row.
pub(crate) fn device(to: &mut DeviceWindow, from: &DeviceWindow) {
    fold!(DeviceWindow, to, from:
        sum in_flight_ns in_flight_max issued completed bytes latency_ns flushes;
        longest latency_max_ns;
        apart);
}
