//! What no machine can have measured: windows from the future or a forgotten past, and values beyond physical bounds. Pure;
//! `session` refuses the batch with the text and logs it once per agent and kind.

use std::time::Duration;
use tailwater_model::window::WINDOW_NS;
use tailwater_proto::columnar::TableValues;
use tailwater_proto::v1::{DropEvent, Metric, WindowBatch};

/// A window that ends later than this after the collector's now is refused.
pub const FUTURE_MAX: Duration = Duration::from_secs(5);
/// A window older than this is refused: agents keep half a minute while a collector is away.
pub const AGE_MAX: Duration = Duration::from_secs(300);

/// CPUs of the largest machine that a kernel supports.
const CPUS_MAX: u64 = 8192;
/// Threads of a machine: the kernel's own limit (PID_MAX_LIMIT, 2^22).
const TASKS_MAX: u64 = 1 << 22;
/// Events in one window: 800 Gbit/s of the smallest packets make some 60 million.
pub(super) const EVENTS_MAX: u64 = 100_000_000;
/// Bytes in one window: 2 TB/s.
const BYTES_MAX: u64 = 100_000_000_000;
/// Sockets, requests in flight, queue depths.
const LEVEL_MAX: u64 = 100_000_000;
/// The longest wait that is believed: a day.
const WAIT_MAX_NS: u64 = 86_400_000_000_000;

/// Why a batch is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absurd {
    /// From the future.
    #[error("windows up to {ahead_ms} ms in the future (limit {} ms): check the clock of that machine", FUTURE_MAX.as_millis())]
    Future {
        /// How far.
        ahead_ms: u64,
    },
    /// From a forgotten past.
    #[error("windows {behind_ms} ms old (limit {} ms): check the clock of that machine", AGE_MAX.as_millis())]
    Old {
        /// How old.
        behind_ms: u64,
    },
    /// Beyond what a machine can do.
    #[error("{metric} = {value} in entity {entity}: beyond the physical bound of {bound}")]
    Value {
        /// Name of the metric.
        metric: &'static str,
        /// Id on the wire.
        entity: u32,
        /// What was sent.
        value: u64,
        /// What is possible.
        bound: u64,
    },
    /// Lapped more windows than there are in a year.
    #[error("{lost} windows lost: more than a year of them")]
    Lost {
        /// What was sent.
        lost: u64,
    },
}

impl Absurd {
    /// For counters and for logging once per kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Future { .. } => "future_windows",
            Self::Old { .. } => "old_windows",
            Self::Value { .. } => "absurd_value",
            Self::Lost { .. } => "absurd_loss",
        }
    }
}

/// Checks when the windows of a batch were, against now on the agent's clock.
pub fn check_time(batch: &WindowBatch, agent_now_unix_ns: u64) -> Result<(), Absurd> {
    let end = batch.first_window.saturating_add(u64::from(batch.window_count)).saturating_mul(WINDOW_NS);
    check_moment(end, agent_now_unix_ns)?;
    // 20 windows a second.
    if batch.windows_lost > 20 * 86_400 * 366 {
        return Err(Absurd::Lost { lost: batch.windows_lost });
    }
    Ok(())
}

/// Checks a drop event in the same way.
pub fn check_drop(drop: &DropEvent, agent_now_unix_ns: u64) -> Result<(), Absurd> {
    check_moment(drop.unix_ns, agent_now_unix_ns)?;
    if drop.count > EVENTS_MAX {
        let (entity, value) = (drop.listener, drop.count);
        return Err(Absurd::Value { metric: "DropEvent.count", entity, value, bound: EVENTS_MAX });
    }
    if let Some(value) = drop.packets.filter(|packets| *packets > EVENTS_MAX) {
        let entity = drop.listener;
        return Err(Absurd::Value { metric: "DropEvent.packets", entity, value, bound: EVENTS_MAX });
    }
    Ok(())
}

fn check_moment(unix_ns: u64, agent_now_unix_ns: u64) -> Result<(), Absurd> {
    let ahead_ns = unix_ns.saturating_sub(agent_now_unix_ns);
    if u128::from(ahead_ns) > FUTURE_MAX.as_nanos() {
        return Err(Absurd::Future { ahead_ms: ahead_ns / 1_000_000 });
    }
    let behind_ns = agent_now_unix_ns.saturating_sub(unix_ns);
    if u128::from(behind_ns) > AGE_MAX.as_nanos() {
        return Err(Absurd::Old { behind_ms: behind_ns / 1_000_000 });
    }
    Ok(())
}

/// Checks every value of a decoded table.
pub fn check_values(values: &TableValues) -> Result<(), Absurd> {
    for (number, _, column) in values.columns() {
        let Ok(metric) = Metric::try_from(number) else { continue };
        let bound = bound(metric);
        let Some(at) = column.iter().position(|v| *v > bound) else { continue };
        let row = at / values.windows().max(1);
        let entity = values.rows().find(|(_, r)| *r == row).map_or(0, |(entity, _)| entity);
        return Err(Absurd::Value { metric: metric.as_str_name(), entity, value: column[at], bound });
    }
    Ok(())
}

/// The most that one entity can have in one window.
#[must_use]
pub fn bound(metric: Metric) -> u64 {
    let tasks_ns = TASKS_MAX * WINDOW_NS;
    match metric {
        Metric::CpuBusyNs
        | Metric::CpuIdleNs
        | Metric::CpuIowaitNs
        | Metric::CpuStealNs
        | Metric::CpuCapacityNs => CPUS_MAX * WINDOW_NS,
        // Reported when a period ends: a long throttle lands in one window.
        Metric::CpuThrottledNs => CPUS_MAX * WAIT_MAX_NS / 86_400,
        Metric::RunQueueWaitNs
        | Metric::BlockedIoNs
        | Metric::ReclaimNs
        | Metric::DirtyThrottleNs
        | Metric::StoppedNs => tasks_ns,
        Metric::RunQueueWaitingMax | Metric::BlockedIoMax | Metric::StoppedMax => TASKS_MAX,
        Metric::RunQueueWaitMaxNs
        | Metric::AcceptQueueWaitMaxNs
        | Metric::ResponseTimeMaxNs
        | Metric::DeviceLatencyMaxNs => WAIT_MAX_NS * 366,
        Metric::IoBytes | Metric::DeviceBytes | Metric::MultiplexedBytesIn | Metric::MultiplexedBytesOut => {
            BYTES_MAX
        }
        // 100 million that waited 1000 s each; some hundred windows of it can be added up.
        Metric::DeviceLatencyNs | Metric::ResponseTimeNs => EVENTS_MAX * 1_000_000_000,
        Metric::FirstTryUnixNs => u64::MAX,
        Metric::DeviceInFlightNs
        | Metric::RequestsInFlightNs
        | Metric::RequestsUnreadNs
        | Metric::WorkersBusyNs
        | Metric::CallsInFlightNs
        | Metric::UnansweredNs
        | Metric::AcceptQueueDepthNs => LEVEL_MAX * WINDOW_NS,
        // What a backlog of listen(2) can say.
        Metric::AcceptQueueLimit => u64::from(u32::MAX),
        Metric::WorkersSeen | Metric::WorkersBusyMax => TASKS_MAX,
        _ => EVENTS_MAX.max(LEVEL_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_proto::columnar::TableBuilder;
    use tailwater_proto::v1::EntityKind;

    const NOW: u64 = 1_800_000_000_000_000_000;

    fn table(metric: Metric, value: u64) -> TableValues {
        let mut table = TableBuilder::new(EntityKind::Listener, 1);
        table.set(7, 0, metric, 0, value);
        TableValues::decode(&table.build(), 1).unwrap()
    }

    #[test]
    fn what_a_machine_can_do_passes() {
        assert_eq!(check_values(&table(Metric::RequestsReceived, 50_000)), Ok(()));
    }

    #[test]
    fn a_quintillion_requests_are_named_with_their_entity() {
        let value = 1_000_000_000_000_000_000;
        let refused = check_values(&table(Metric::RequestsReceived, value)).unwrap_err();
        assert_eq!(refused.kind(), "absurd_value");
        let text = refused.to_string();
        assert!(text.contains("METRIC_REQUESTS_RECEIVED = 1000000000000000000 in entity 7"), "{text}");
    }

    #[test]
    fn windows_must_be_near_now() {
        let at = |first_window| WindowBatch { first_window, window_count: 1, ..WindowBatch::default() };
        for (shift_s, want) in
            [(4_i64, None), (6, Some("future_windows")), (-299, None), (-302, Some("old_windows"))]
        {
            let batch = at((NOW / WINDOW_NS).saturating_add_signed(shift_s * 20));
            assert_eq!(check_time(&batch, NOW).err().map(|e| e.kind()), want, "{shift_s} s");
        }
        assert!(check_time(&at(u64::MAX), NOW).is_err());
    }

    #[test]
    fn every_metric_has_a_bound_that_keeps_sums_from_overflowing() {
        for number in 0..200 {
            if let Ok(metric) = Metric::try_from(number)
                && metric != Metric::FirstTryUnixNs
            {
                assert!(bound(metric) <= u64::MAX / 64, "{}", metric.as_str_name());
            }
        }
    }
}
