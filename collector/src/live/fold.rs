//! Several rows of a window as one: times and counts add up, of longest times the longest stays. What no metric reads stays out.

use tailwater_model::window::{DeviceWindow, EdgeWindow, ListenerWindow, WorkloadWindow};

macro_rules! fold {
    ($to:ident, $from:ident: sum $($sum:ident)* ; longest $($longest:ident)*) => {
        $($to.$sum = $to.$sum.saturating_add($from.$sum);)*
        $($to.$longest = $to.$longest.max($from.$longest);)*
    };
}

/// Adds a workload's row.
pub(crate) fn workload(to: &mut WorkloadWindow, from: &WorkloadWindow) {
    fold!(to, from:
        sum busy_ns wait_ns blocked_io_ns reclaim_ns dirty_throttle_ns swap_ins io_bytes io_flushes;
        longest wait_max_ns throttled_ns stopped_max);
    to.stopped_ns = match (to.stopped_ns, from.stopped_ns) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
}

/// Adds a listener's row. Depths of several queues add up to what is queued.
pub(crate) fn listener(to: &mut ListenerWindow, from: &ListenerWindow) {
    fold!(to, from:
        sum depth_max limit arrivals accepts drops drops_syn sk_drops syn_ack_retransmits received answered aborted in_flight_max unread_max
            workers_busy_max response_ns;
        longest queue_wait_max_ns response_max_ns);
}

/// Adds an edge's row.
pub(crate) fn edge(to: &mut EdgeWindow, from: &EdgeWindow) {
    fold!(to, from:
        sum in_flight_max open_max answered response_ns syn_retransmits data_retransmits;
        longest response_max_ns);
}

/// Adds a device's row.
pub(crate) fn device(to: &mut DeviceWindow, from: &DeviceWindow) {
    fold!(to, from:
        sum in_flight_ns completed latency_ns;
        longest latency_max_ns);
}
