//! Which field of a sample is which metric: data, one line per value. Knows neither tables nor windows.

use super::table::Reader;
use crate::window::{
    AcceptQueueSample, CallSample, ConnectionSample, DeviceSample, IoSample, MemorySample, RequestSample,
    RetransmitSample, StoppedSample, TaskSample,
};
use tailwater_proto::v1::Metric as M;

pub(super) const TASK: &[Reader<TaskSample>] = &[
    (M::CpuBusyNs, |s| s.busy_ns),
    (M::RunQueueWaitNs, |s| s.wait_ns),
    (M::RunQueueWaitingMax, |s| s.waiting_max.into()),
    (M::RunQueueWaitMaxNs, |s| s.wait_max_ns),
    (M::RunQueueSwitches, |s| s.switches),
    (M::BlockedIoNs, |s| s.blocked_io_ns),
    (M::BlockedIoMax, |s| s.blocked_io_max.into()),
];

/// Of [`TASK`] what polling tells.
pub(super) const TASK_POLLED: &[Reader<TaskSample>] = &[
    (M::CpuBusyNs, |s| s.busy_ns),
    (M::RunQueueWaitNs, |s| s.wait_ns),
    (M::RunQueueWaitingMax, |s| s.waiting_max.into()),
];

/// The same, where the kernel has pressure stall information.
pub(super) const BLOCKED_POLLED: &[Reader<TaskSample>] = &[(M::BlockedIoNs, |s| s.blocked_io_ns)];

pub(super) const STOPPED: &[Reader<StoppedSample>] =
    &[(M::StoppedNs, |s| s.stopped_ns), (M::StoppedMax, |s| s.stopped_max.into())];

pub(super) const IO: &[Reader<IoSample>] =
    &[(M::IoBytes, |s| s.bytes), (M::IoRequests, |s| s.requests), (M::IoFlushes, |s| s.flushes)];

pub(super) const MEMORY: &[Reader<MemorySample>] = &[
    (M::ReclaimNs, |s| s.reclaim_ns),
    (M::SwapIns, |s| s.swap_ins),
    (M::DirtyThrottleNs, |s| s.dirty_throttle_ns),
];

pub(super) const MEMORY_POLLED: &[Reader<MemorySample>] = &[(M::ReclaimNs, |s| s.reclaim_ns)];

pub(super) const DEVICE_POLLED: &[Reader<DeviceSample>] = &[
    (M::DeviceInFlightNs, |s| s.in_flight_ns),
    (M::DeviceInFlightMax, |s| s.in_flight_max.into()),
    (M::DeviceCompleted, |s| s.completed),
    (M::DeviceBytes, |s| s.bytes),
    (M::DeviceLatencyNs, |s| s.latency_ns),
    (M::DeviceFlushes, |s| s.flushes),
];

pub(super) const ACCEPT_QUEUE_POLLED: &[Reader<AcceptQueueSample>] = &[
    (M::AcceptQueueDepthLast, |s| s.depth_last.into()),
    (M::AcceptQueueDepthMax, |s| s.depth_max.into()),
    (M::AcceptQueueDepthNs, |s| s.depth_ns),
    (M::AcceptQueueLimit, |s| s.limit.into()),
    (M::ListenDrops, |s| s.drops),
];

pub(super) const CONNECTIONS: &[Reader<ConnectionSample>] = &[(M::ConnectionsOpenLast, |s| s.open.into())];

pub(super) const DEVICE: &[Reader<DeviceSample>] = &[
    (M::DeviceInFlightNs, |s| s.in_flight_ns),
    (M::DeviceInFlightMax, |s| s.in_flight_max.into()),
    (M::DeviceIssued, |s| s.issued),
    (M::DeviceCompleted, |s| s.completed),
    (M::DeviceBytes, |s| s.bytes),
    (M::DeviceLatencyNs, |s| s.latency_ns),
    (M::DeviceLatencyMaxNs, |s| s.latency_max_ns),
    (M::DeviceFlushes, |s| s.flushes),
];

pub(super) const ACCEPT_QUEUE: &[Reader<AcceptQueueSample>] = &[
    (M::AcceptQueueDepthLast, |s| s.depth_last.into()),
    (M::AcceptQueueDepthMax, |s| s.depth_max.into()),
    (M::AcceptQueueDepthNs, |s| s.depth_ns),
    (M::AcceptQueueLimit, |s| s.limit.into()),
    (M::AcceptQueueArrivals, |s| s.arrivals),
    (M::AcceptQueueAccepts, |s| s.accepts),
    (M::AcceptQueueWaitMaxNs, |s| s.wait_max_ns),
    (M::ListenDrops, |s| s.drops),
    (M::ListenDropsFinalAck, |s| s.drops_final_ack),
    (M::ListenDropsCookie, |s| s.drops_cookie),
    (M::ListenDropsRepeated, |s| s.drops_repeated),
    (M::ListenDropsSlow, |s| s.drops_slow),
    (M::SynAckRetransmits, |s| s.syn_ack_retransmits),
];

pub(super) const REQUESTS: &[Reader<RequestSample>] = &[
    (M::RequestsReceived, |s| s.received),
    (M::RequestsAnswered, |s| s.answered),
    (M::RequestsAborted, |s| s.aborted),
    (M::AnsweredLate, |s| s.late),
    (M::AnsweredVeryLate, |s| s.very_late),
    (M::AnsweredVeryLongRetried, |s| s.very_long_retried),
    (M::AnsweredVeryLongQueued, |s| s.very_long_queued),
    (M::AnsweredVeryLongUnread, |s| s.very_long_unread),
    (M::AnsweredVeryLongInside, |s| s.very_long_inside),
    (M::RequestsInFlightLast, |s| s.in_flight_last.into()),
    (M::RequestsInFlightMax, |s| s.in_flight_max.into()),
    (M::RequestsInFlightNs, |s| s.in_flight_ns),
    (M::RequestsUnreadMax, |s| s.unread_max.into()),
    (M::RequestsUnreadNs, |s| s.unread_ns),
    (M::WorkersBusyMax, |s| s.workers_busy_max.into()),
    (M::WorkersBusyNs, |s| s.workers_busy_ns),
    (M::WorkersSeen, |s| s.workers_seen.into()),
    (M::WorkerSharedMax, |s| s.worker_shared_max.into()),
    (M::ResponseTimeNs, |s| s.response_ns),
    (M::ResponseTimeMaxNs, |s| s.response_max_ns),
    (M::MultiplexedConnections, |s| s.multiplexed.connections.into()),
    (M::PiecesIn, |s| s.multiplexed.pieces_in),
    (M::PiecesRead, |s| s.multiplexed.pieces_read),
    (M::PiecesOut, |s| s.multiplexed.pieces_out),
    (M::MultiplexedBytesIn, |s| s.multiplexed.bytes_in),
    (M::MultiplexedBytesOut, |s| s.multiplexed.bytes_out),
    (M::UnansweredMax, |s| s.multiplexed.unanswered_max.into()),
    (M::UnansweredNs, |s| s.multiplexed.unanswered_ns),
    (M::ConnectionsOpenLastAccepted, |s| s.open_last.into()),
    (M::ConnectionsOpenMax, |s| s.open_max.into()),
];

pub(super) const CALLS: &[Reader<CallSample>] = &[
    (M::CallsStarted, |s| s.started),
    (M::CallsAnswered, |s| s.answered),
    (M::CallsAborted, |s| s.aborted),
    (M::CallsInFlightLast, |s| s.in_flight_last.into()),
    (M::CallsInFlightMax, |s| s.in_flight_max.into()),
    (M::CallsInFlightNs, |s| s.in_flight_ns),
    (M::ConnectionsOpenLast, |s| s.open_last.into()),
    (M::ConnectionsOpenMax, |s| s.open_max.into()),
    (M::Connects, |s| s.connects),
    (M::ConnectsEstablished, |s| s.established),
    (M::ResponseTimeNs, |s| s.response_ns),
    (M::ResponseTimeMaxNs, |s| s.response_max_ns),
    (M::MultiplexedConnections, |s| s.multiplexed.connections.into()),
    (M::PiecesIn, |s| s.multiplexed.pieces_in),
    (M::PiecesOut, |s| s.multiplexed.pieces_out),
    (M::MultiplexedBytesIn, |s| s.multiplexed.bytes_in),
    (M::MultiplexedBytesOut, |s| s.multiplexed.bytes_out),
    (M::UnansweredMax, |s| s.multiplexed.unanswered_max.into()),
    (M::UnansweredNs, |s| s.multiplexed.unanswered_ns),
];

pub(super) const RETRANSMITS: &[Reader<RetransmitSample>] = &[
    (M::SynRetransmits, |s| s.syn),
    (M::DataRetransmits, |s| s.data),
    (M::FirstTryUnixNs, |s| s.first_try_unix_ns),
];
