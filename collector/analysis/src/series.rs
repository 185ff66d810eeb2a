//! Values of one entity over a span of windows, drawn from the history, and the small statistics that rules need.
//! Owns what "queued requests" means; knows no threshold.

use crate::history::History;
use crate::topology::Tier;
use tailwater_model::window::{EntityId, HostWindow, WINDOW_NS};

/// Values by window index; `None`: the host's window is missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series<T> {
    pub(crate) first: u64,
    pub(crate) values: Vec<Option<T>>,
}

impl<T> Series<T> {
    pub(crate) fn get(&self, index: u64) -> Option<&T> {
        self.values.get(usize::try_from(index.checked_sub(self.first)?).ok()?)?.as_ref()
    }

    /// The present values of `[from, to]`.
    pub(crate) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &T)> {
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let take =
            usize::try_from(to.saturating_add(1).saturating_sub(from.max(self.first))).unwrap_or(usize::MAX);
        let start = self.first;
        self.values
            .iter()
            .enumerate()
            .skip(skip)
            .take(take)
            .filter_map(move |(i, v)| Some((start.saturating_add(i as u64), v.as_ref()?)))
    }

    /// One past the last index.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(self.values.len() as u64)
    }

    pub(crate) fn map<U>(&self, f: impl Fn(&T) -> U) -> Series<U> {
        Series { first: self.first, values: self.values.iter().map(|v| v.as_ref().map(&f)).collect() }
    }

    /// Part of `[from, to]` that is missing, 0 to 1.
    pub(crate) fn missing(&self, from: u64, to: u64) -> f64 {
        let all = to.saturating_add(1).saturating_sub(from);
        if all == 0 { 0.0 } else { 1.0 - self.range(from, to).count() as f64 / all as f64 }
    }

    pub(crate) fn draw(
        history: &History,
        host: &str,
        first: u64,
        last: u64,
        mut f: impl FnMut(&HostWindow) -> T,
    ) -> Self {
        let last = last
            .min(history.next.saturating_sub(1))
            .min(first.saturating_add(crate::history::HISTORY_WINDOWS as u64));
        Self { first, values: (first..=last).map(|index| history.window(host, index).map(&mut f)).collect() }
    }
}

/// A tier in one window: its listeners together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TierSample {
    /// Requests read and not answered, mean.
    pub(crate) active: f64,
    /// Requests that nobody read yet: unread bytes and unaccepted connections, mean.
    pub(crate) waiting: f64,
    /// Unaccepted connections alone, mean.
    pub(crate) backlog: f64,
    /// Most queued requests.
    pub(crate) queued_max: f64,
    pub(crate) depth_max: u32,
    pub(crate) limit: u32,
    pub(crate) workers_busy_max: u32,
    pub(crate) workers_seen: u32,
    pub(crate) worker_shared_max: u32,
    pub(crate) received: f64,
    pub(crate) answered: f64,
    /// Requests that came: read, or entered the accept queue, whichever is more.
    pub(crate) arrivals: f64,
    pub(crate) drops: u64,
    pub(crate) response_ns: f64,
}

impl TierSample {
    pub(crate) fn queued(&self) -> f64 {
        self.active + self.waiting
    }

    /// Requests that came, also those that it dropped.
    pub(crate) fn came(&self) -> f64 {
        self.arrivals + self.drops as f64
    }
}

/// Calls of one workload to one remote in one window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CallSample {
    pub(crate) in_flight: f64,
    pub(crate) in_flight_max: u32,
    pub(crate) open_max: u32,
    pub(crate) started: f64,
    /// Connection attempts minus established ones.
    pub(crate) connecting: f64,
    pub(crate) syn_retransmits: u64,
}

/// A tier's listeners in one window, together.
pub(crate) fn tier_sample(window: &HostWindow, tier: &Tier) -> TierSample {
    let mut sum = TierSample::default();
    for l in tier.listeners.iter().filter_map(|l| window.listeners.get(&l.id)) {
        sum.active += mean(l.in_flight_ns);
        sum.waiting += mean(l.unread_ns) + mean(l.depth_ns);
        sum.backlog += mean(l.depth_ns);
        sum.queued_max += f64::from(l.in_flight_max) + mean(l.unread_ns) + f64::from(l.depth_max);
        sum.depth_max = sum.depth_max.saturating_add(l.depth_max);
        sum.limit = sum.limit.max(l.limit);
        sum.workers_busy_max = sum.workers_busy_max.saturating_add(l.workers_busy_max);
        sum.workers_seen = sum.workers_seen.saturating_add(l.workers_seen);
        sum.worker_shared_max = sum.worker_shared_max.max(l.worker_shared_max);
        sum.received += l.received as f64;
        sum.answered += l.answered as f64;
        sum.arrivals += l.received.max(l.arrivals) as f64;
        sum.drops = sum.drops.saturating_add(l.drops);
        sum.response_ns += l.response_ns as f64;
    }
    sum
}

pub(crate) fn tier_series(
    history: &History,
    host: &str,
    tier: &Tier,
    first: u64,
    last: u64,
) -> Series<TierSample> {
    let mut limit = 0;
    Series::draw(history, host, first, last, |window| {
        let mut sample = tier_sample(window, tier);
        // A limit that did not change need not be sent again.
        limit = if sample.limit == 0 { limit } else { sample.limit };
        sample.limit = limit;
        sample
    })
}

pub(crate) fn call_series(
    history: &History,
    host: &str,
    edges: &[EntityId],
    first: u64,
    last: u64,
) -> Series<CallSample> {
    Series::draw(history, host, first, last, |window| {
        let mut sum = CallSample::default();
        for e in edges.iter().filter_map(|e| window.edges.get(e)) {
            sum.in_flight += mean(e.in_flight_ns);
            sum.in_flight_max = sum.in_flight_max.saturating_add(e.in_flight_max);
            sum.open_max = sum.open_max.saturating_add(e.open_max);
            sum.started += e.started as f64;
            sum.connecting += e.connects as f64 - e.established as f64;
            sum.syn_retransmits = sum.syn_retransmits.saturating_add(e.syn_retransmits);
        }
        sum
    })
}

/// A workload's use of its host, with what the host had.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct UseSample {
    /// All of the host's (or scope's) CPU in the window, in windows of one CPU; 0: not covered.
    pub(crate) capacity: f64,
    pub(crate) host_busy: f64,
    pub(crate) host_throttled: f64,
    pub(crate) host_steal: f64,
    /// The workload's own quota; 0: none.
    pub(crate) quota: f64,
    pub(crate) busy: f64,
    /// Tasks waiting for a CPU, mean.
    pub(crate) wait: f64,
    pub(crate) throttled: f64,
    /// Tasks blocked on block I/O, mean.
    pub(crate) blocked_io: f64,
    pub(crate) stalled_memory: f64,
    pub(crate) swap_ins: u64,
    /// Requests in flight at the busiest device, mean.
    pub(crate) device_in_flight: f64,
    /// Threads that a signal or a tracer stopped, mean; of the server alone, also where it shares its cgroup.
    pub(crate) stopped: f64,
    pub(crate) stopped_max: u32,
}

pub(crate) fn use_series(
    history: &History,
    host: &str,
    workload: EntityId,
    first: u64,
    last: u64,
) -> Series<UseSample> {
    let quota = history
        .hosts
        .get(host)
        .and_then(|h| h.workloads.get(&workload))
        .map_or(0.0, |w| mean(w.cpu_quota_ns));
    let measured = history.measured_under(host, workload);
    Series::draw(history, host, first, last, |window| {
        let own = window.workloads.get(&measured).copied().unwrap_or_default();
        let server = window.workloads.get(&workload).copied().unwrap_or_default();
        let cpu = window.cpu.unwrap_or_default();
        UseSample {
            capacity: mean(cpu.capacity_ns),
            host_busy: mean(cpu.busy_ns),
            host_throttled: mean(cpu.throttled_ns.unwrap_or(0)),
            host_steal: mean(cpu.steal_ns),
            quota,
            busy: mean(own.busy_ns),
            wait: mean(own.wait_ns),
            throttled: mean(own.throttled_ns.unwrap_or(0)),
            blocked_io: mean(own.blocked_io_ns),
            stalled_memory: mean(own.reclaim_ns.saturating_add(own.dirty_throttle_ns)),
            swap_ins: own.swap_ins,
            device_in_flight: window.devices.values().map(|d| mean(d.in_flight_ns)).fold(0.0, f64::max),
            stopped: mean(server.stopped_ns.unwrap_or(0)),
            stopped_max: server.stopped_max,
        }
    })
}

/// An integral over one window as a mean.
pub(crate) fn mean(integral_ns: u64) -> f64 {
    integral_ns as f64 / WINDOW_NS as f64
}

/// The value below which `part` of the values lie, 0.5 for the median; 0 of nothing.
pub(crate) fn quantile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get((values.len() as f64 * part) as usize).copied().unwrap_or(0.0)
}

/// The mean; 0 of nothing.
pub(crate) fn average(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), v| (sum + v, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// Runs of windows where `is` holds, one window that does not being bridged, as `(first, last)`.
pub(crate) fn runs<T>(series: &Series<T>, is: impl Fn(&T) -> bool) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (index, value) in series.range(series.first, series.end()) {
        if !is(value) {
            continue;
        }
        match runs.last_mut() {
            Some((_, last)) if index - *last <= 2 => *last = index,
            _ => runs.push((index, index)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_bridge_one_window() {
        let series = Series { first: 10, values: [1, 1, 0, 1, 0, 0, 1].map(Some).to_vec() };
        assert_eq!(runs(&series, |v| *v == 1), [(10, 13), (16, 16)]);
    }

    #[test]
    fn ranges_are_inclusive_and_forgiving() {
        let series = Series { first: 10, values: vec![Some(1), None, Some(3)] };
        assert_eq!(series.range(0, 99).map(|(i, v)| (i, *v)).collect::<Vec<_>>(), [(10, 1), (12, 3)]);
        assert_eq!(series.range(11, 12).count(), 1);
        assert_eq!(series.range(13, 99).count(), 0);
        assert_eq!((series.get(12), series.get(11), series.get(9)), (Some(&3), None, None));
        assert!((series.missing(10, 11) - 0.5).abs() < 1e-9);
        assert_eq!(series.end(), 13);
    }

    #[test]
    fn statistics_of_nothing_are_zero() {
        assert_eq!(quantile(std::iter::empty(), 0.5).to_bits(), 0.0_f64.to_bits());
        assert_eq!(average(std::iter::empty()).to_bits(), 0.0_f64.to_bits());
        assert!((quantile([5.0, 1.0, 3.0].into_iter(), 0.5) - 3.0).abs() < 1e-9);
    }
}
