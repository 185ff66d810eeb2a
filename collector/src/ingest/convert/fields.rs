//! Which metric is which field of the model: data, one line per value. Called by `convert` alone. Numbers that do not fit a
//! field are clamped; `sanity` has refused what no machine can do before that.

use tailwater_model::window::{DeviceWindow, EdgeWindow, HostCpu, ListenerWindow, WorkloadWindow};
use tailwater_proto::v1::Metric as M;

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

pub(crate) fn host(to: &mut HostCpu, metric: i32, value: u64) {
    match M::try_from(metric) {
        Ok(M::CpuCapacityNs) => to.capacity_ns = value,
        Ok(M::CpuBusyNs) => to.busy_ns = value,
        Ok(M::CpuIdleNs) => to.idle_ns = value,
        Ok(M::CpuIowaitNs) => to.iowait_ns = value,
        Ok(M::CpuStealNs) => to.steal_ns = value,
        Ok(M::CpuThrottledNs) => to.throttled_ns = Some(value),
        Ok(M::RunQueueWaitNs) => to.wait_ns = value,
        Ok(M::RunQueueWaitingMax) => to.waiting_max = small(value),
        _ => {}
    }
}

pub(crate) fn workload(to: &mut WorkloadWindow, metric: i32, value: u64) {
    match M::try_from(metric) {
        Ok(M::CpuBusyNs) => to.busy_ns = value,
        Ok(M::RunQueueWaitNs) => to.wait_ns = value,
        Ok(M::RunQueueWaitingMax) => to.waiting_max = small(value),
        Ok(M::RunQueueWaitMaxNs) => to.wait_max_ns = value,
        Ok(M::CpuThrottledNs) => to.throttled_ns = Some(value),
        Ok(M::BlockedIoNs) => to.blocked_io_ns = value,
        Ok(M::BlockedIoMax) => to.blocked_io_max = small(value),
        Ok(M::IoBytes) => to.io_bytes = value,
        Ok(M::IoRequests) => to.io_requests = value,
        Ok(M::IoFlushes) => to.io_flushes = value,
        Ok(M::ReclaimNs) => to.reclaim_ns = value,
        Ok(M::SwapIns) => to.swap_ins = value,
        Ok(M::DirtyThrottleNs) => to.dirty_throttle_ns = value,
        Ok(M::StoppedNs) => to.stopped_ns = Some(value),
        Ok(M::StoppedMax) => to.stopped_max = small(value),
        _ => {}
    }
}

pub(crate) fn listener(to: &mut ListenerWindow, metric: i32, value: u64) {
    match M::try_from(metric) {
        Ok(M::AcceptQueueDepthLast) => to.depth_last = small(value),
        Ok(M::AcceptQueueDepthMax) => to.depth_max = small(value),
        Ok(M::AcceptQueueDepthNs) => to.depth_ns = value,
        Ok(M::AcceptQueueLimit) => to.limit = small(value),
        Ok(M::AcceptQueueArrivals) => to.arrivals = value,
        Ok(M::AcceptQueueAccepts) => to.accepts = value,
        Ok(M::AcceptQueueWaitMaxNs) => to.queue_wait_max_ns = value,
        Ok(M::ListenDrops) => to.sk_drops = value,
        Ok(M::ListenDropsFinalAck) => to.drops_final_ack = value,
        Ok(M::ListenDropsCookie) => to.drops_cookie = value,
        Ok(M::ListenDropsRepeated) => to.drops_repeated = value,
        Ok(M::ListenDropsSlow) => to.drops_slow = value,
        Ok(M::SynAckRetransmits) => to.syn_ack_retransmits = value,
        Ok(M::RequestsReceived) => to.received = value,
        Ok(M::RequestsAnswered) => to.answered = value,
        Ok(M::RequestsAborted) => to.aborted = value,
        Ok(M::AnsweredLate) => to.late = Some(value),
        Ok(M::AnsweredVeryLate) => to.very_late = Some(value),
        Ok(M::AnsweredVeryLongRetried) => to.very_long_retried = Some(value),
        Ok(M::AnsweredVeryLongQueued) => to.very_long_queued = Some(value),
        Ok(M::AnsweredVeryLongUnread) => to.very_long_unread = Some(value),
        Ok(M::AnsweredVeryLongInside) => to.very_long_inside = Some(value),
        Ok(M::RequestsInFlightLast) => to.in_flight_last = small(value),
        Ok(M::RequestsInFlightMax) => to.in_flight_max = small(value),
        Ok(M::RequestsInFlightNs) => to.in_flight_ns = value,
        Ok(M::RequestsUnreadMax) => to.unread_max = small(value),
        Ok(M::RequestsUnreadNs) => to.unread_ns = value,
        Ok(M::WorkersBusyMax) => to.workers_busy_max = small(value),
        Ok(M::WorkersBusyNs) => to.workers_busy_ns = value,
        Ok(M::WorkersSeen) => to.workers_seen = small(value),
        Ok(M::WorkerSharedMax) => to.worker_shared_max = small(value),
        Ok(M::ResponseTimeNs) => to.response_ns = value,
        Ok(M::ResponseTimeMaxNs) => to.response_max_ns = value,
        Ok(M::MultiplexedConnections) => to.multiplexed_connections = small(value),
        Ok(M::PiecesIn) => to.pieces_in = value,
        Ok(M::PiecesRead) => to.pieces_read = value,
        Ok(M::PiecesOut) => to.pieces_out = value,
        Ok(M::MultiplexedBytesIn) => to.multiplexed_bytes_in = value,
        Ok(M::MultiplexedBytesOut) => to.multiplexed_bytes_out = value,
        Ok(M::UnansweredMax) => to.unanswered_max = small(value),
        Ok(M::UnansweredNs) => to.unanswered_ns = value,
        Ok(M::ConnectionsOpenLastAccepted) => to.open_last = small(value),
        Ok(M::ConnectionsOpenMax) => to.open_max = small(value),
        _ => {}
    }
}

pub(crate) fn edge(to: &mut EdgeWindow, metric: i32, value: u64) {
    match M::try_from(metric) {
        Ok(M::CallsStarted) => to.started = value,
        Ok(M::CallsAnswered) => to.answered = value,
        Ok(M::CallsAborted) => to.aborted = value,
        Ok(M::CallsInFlightLast) => to.in_flight_last = small(value),
        Ok(M::CallsInFlightMax) => to.in_flight_max = small(value),
        Ok(M::CallsInFlightNs) => to.in_flight_ns = value,
        Ok(M::ConnectionsOpenLast) => to.open_last = small(value),
        Ok(M::ConnectionsOpenMax) => to.open_max = small(value),
        Ok(M::Connects) => to.connects = value,
        Ok(M::ConnectsEstablished) => to.established = value,
        Ok(M::ResponseTimeNs) => to.response_ns = value,
        Ok(M::ResponseTimeMaxNs) => to.response_max_ns = value,
        Ok(M::SynRetransmits) => to.syn_retransmits = value,
        Ok(M::DataRetransmits) => to.data_retransmits = value,
        Ok(M::FirstTryUnixNs) => to.first_try_unix_ns = value,
        Ok(M::MultiplexedConnections) => to.multiplexed_connections = small(value),
        Ok(M::PiecesIn) => to.pieces_in = value,
        Ok(M::PiecesOut) => to.pieces_out = value,
        Ok(M::MultiplexedBytesIn) => to.multiplexed_bytes_in = value,
        Ok(M::MultiplexedBytesOut) => to.multiplexed_bytes_out = value,
        Ok(M::UnansweredMax) => to.unanswered_max = small(value),
        Ok(M::UnansweredNs) => to.unanswered_ns = value,
        _ => {}
    }
}

pub(crate) fn device(to: &mut DeviceWindow, metric: i32, value: u64) {
    match M::try_from(metric) {
        Ok(M::DeviceInFlightNs) => to.in_flight_ns = value,
        Ok(M::DeviceInFlightMax) => to.in_flight_max = small(value),
        Ok(M::DeviceIssued) => to.issued = value,
        Ok(M::DeviceCompleted) => to.completed = value,
        Ok(M::DeviceBytes) => to.bytes = value,
        Ok(M::DeviceLatencyNs) => to.latency_ns = value,
        Ok(M::DeviceLatencyMaxNs) => to.latency_max_ns = value,
        Ok(M::DeviceFlushes) => to.flushes = value,
        _ => {}
    }
}
