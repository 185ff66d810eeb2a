//! The signals of one tier over its last seconds: which there are, and how the API's points become one value per column. Pure. What
//! each needs of the agent is in the table of metrics.

use super::answers::{Key, Point};

/// How a value reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A part of what there is, shown in percent.
    Ratio,
    /// A number of things at once.
    Count,
    /// Things per window, shown per second.
    Rate,
    /// Bytes per window, shown per second.
    Bytes,
    /// Milliseconds.
    Ms,
    /// Milliseconds of /api/v1/responses: beyond its last edge only that is known.
    Quantile,
    /// Events: their number in all is of interest, not the most in one window.
    Events,
}

/// One line of the tier's page.
#[derive(Debug)]
pub(crate) struct Signal {
    pub(crate) name: &'static str,
    /// Of /api/v1/series; a quantile is one of this metric, of /api/v1/responses.
    pub(crate) metric: &'static str,
    /// Of the whole host instead of the workload.
    pub(crate) host: bool,
    pub(crate) unit: Unit,
}

const fn of(name: &'static str, metric: &'static str, unit: Unit) -> Signal {
    Signal { name, metric, host: false, unit }
}
const fn of_host(name: &'static str, metric: &'static str, unit: Unit) -> Signal {
    Signal { name, metric, host: true, unit }
}

/// In the order in which one reads them: what came, where it waited, on what.
pub(crate) const SIGNALS: [Signal; 19] = [
    of("received", "requests_received", Unit::Rate),
    of("answered", "requests_answered", Unit::Rate),
    of("response time", "response_time_ms", Unit::Ms),
    of("99 % within", "response_time_ms", Unit::Quantile),
    of("queued requests", "queued_requests", Unit::Count),
    of("accept queue", "accept_queue_depth", Unit::Count),
    of("workers busy", "workers_busy", Unit::Count),
    of("calls in flight", "calls_in_flight", Unit::Count),
    of("connections", "connections_open", Unit::Count),
    of("dropped packets", "drops", Unit::Events),
    of("SYNs sent again", "syn_retransmits", Unit::Events),
    of("waits for CPU", "run_queue_wait_tasks", Unit::Count),
    of("waits for disk", "blocked_io_tasks", Unit::Count),
    of("waits for memory", "memory_stall_tasks", Unit::Count),
    of("stopped threads", "stopped_threads", Unit::Count),
    of("CPU", "cpu_busy_ratio", Unit::Ratio),
    of_host("CPU of host", "cpu_busy_ratio", Unit::Ratio),
    of_host("CPU stolen", "cpu_steal_ratio", Unit::Ratio),
    of("disk", "io_bytes", Unit::Bytes),
];

/// What the feed is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) tier: Key,
    pub(crate) columns: usize,
    /// Windows per column.
    pub(crate) step: u64,
}

/// One line's values, one per column.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Values {
    /// Worst window of each column; `None`: no window there.
    pub(crate) worst: Vec<Option<f64>>,
    /// All windows together.
    pub(crate) total: f64,
}

/// All lines of [`SIGNALS`], in their order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Signals {
    pub(crate) ask: Ask,
    /// Start of the first column.
    pub(crate) start_unix_ns: u64,
    /// Length of each.
    pub(crate) column_ns: u64,
    pub(crate) values: Vec<Values>,
}

/// Points onto columns. Points outside of them are left out.
pub(crate) fn columns(points: &[Point], start_unix_ns: u64, column_ns: u64, count: usize) -> Values {
    let mut values = Values { worst: vec![None; count], total: 0.0 };
    for point in points {
        let Some(behind) = point.start_unix_ns.checked_sub(start_unix_ns) else { continue };
        let place = usize::try_from(behind / column_ns.max(1)).ok();
        let Some(column) = place.and_then(|n| values.worst.get_mut(n)) else { continue };
        *column = Some(column.map_or(point.max, |worst: f64| worst.max(point.max)));
        values.total += point.mean * f64::from(point.windows);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::answers::{Answered, ResponsesAnswer};

    #[test]
    fn columns_keep_the_worst_window_and_gaps_stay_gaps() {
        let point = |start_unix_ns, max, mean, windows| Point { start_unix_ns, max, mean, windows };
        let points = [
            point(50, 9.0, 9.0, 1),
            point(100, 3.0, 2.0, 2),
            point(150, 5.0, 5.0, 1),
            point(300, 0.0, 0.0, 1),
        ];
        let values = columns(&points, 100, 100, 3);
        assert_eq!(values.worst, [Some(5.0), None, Some(0.0)], "50 is before the first column");
        assert!((values.total - 9.0).abs() < 1e-9, "{values:?}");
        assert_eq!(columns(&[point(400, 1.0, 1.0, 1)], 100, 100, 3).worst, [None; 3]);
    }

    #[test]
    fn a_quantile_of_which_only_the_bound_is_known_is_above_it_and_without_answers_there_is_none() {
        let answer = r#"{"points": [
            {"start_unix_ns": 1, "windows": 2, "answers": 9, "p99": {"ms": 524.288, "at_least_ms": null}},
            {"start_unix_ns": 2, "windows": 1, "answers": 9, "p99": {"ms": null, "at_least_ms": 524.288}},
            {"start_unix_ns": 3, "windows": 1, "answers": 0, "p99": {"ms": null, "at_least_ms": null}}
        ]}"#;
        let answer: ResponsesAnswer = serde_json::from_str(answer).unwrap();
        let points: Vec<Point> = answer.points.iter().filter_map(Answered::p99).collect();
        assert_eq!(points.iter().map(|p| p.start_unix_ns).collect::<Vec<_>>(), [1, 2]);
        assert!(points[0].max == 524.288 && points[1].max > 524.288 && points[1].max < 524.289, "{points:?}");
    }

    #[test]
    fn every_line_asks_for_a_metric_that_exists() {
        for signal in &SIGNALS {
            let known = crate::live::metric::find(signal.metric);
            assert!(
                known.is_some(),
                "src/tui/signals.rs, the line \"{}\": src/live/metric.rs has no metric {}",
                signal.name,
                signal.metric
            );
        }
    }
}
