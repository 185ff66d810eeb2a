//! How a metric that shows a resource is called and counted, in an incident's text and in its picture. Which metric shows which resource
//! is in `live::timeline`.

/// A metric as it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    /// Of /api/v1/series.
    metric: &'static str,
    /// Before a sparkline: [`SHORT_MAX`] columns at the most.
    pub(super) short: &'static str,
    /// Above a panel.
    pub(super) title: &'static str,
    /// What its axis counts.
    pub(super) unit: &'static str,
}

/// Columns of the name before a sparkline.
pub(super) const SHORT_MAX: usize = 9;

const fn of(metric: &'static str, short: &'static str, title: &'static str, unit: &'static str) -> Shown {
    Shown { metric, short, title, unit }
}

static SHOWN: [Shown; 8] = [
    of("cpu_busy_ratio", "CPU busy", "CPU used per tier", "% of what it may use"),
    of("cpu_throttled_ratio", "throttled", "Throttling by the quota per tier", "% of the window"),
    of("cpu_steal_ratio", "stolen", "CPU taken by the hypervisor", "% of capacity"),
    of("run_queue_wait_tasks", "CPU wait", "Waiting for the CPU per tier", "tasks (mean)"),
    of("blocked_io_tasks", "disk wait", "Waiting for disk per tier", "tasks (mean)"),
    of("memory_stall_tasks", "mem stall", "Waiting for memory per tier", "tasks (mean)"),
    of("requests_answered", "answered", "Throughput per tier", "answers per 50 ms"),
    of("requests_received", "received", "Requests received per tier", "requests per 50 ms"),
];

/// `None`: an incident of another version, whose metric has its name and nothing else.
pub(super) fn shown(metric: &str) -> Option<&'static Shown> {
    SHOWN.iter().find(|shown| shown.metric == metric)
}

impl Shown {
    /// Its values are parts of a whole, told in percent.
    pub(super) fn is_percent(&self) -> bool {
        self.unit.starts_with('%')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_short_name_fits_before_a_sparkline_and_ratios_are_percent() {
        for shown in &SHOWN {
            assert!(shown.short.chars().count() <= SHORT_MAX, "{shown:?}");
            assert_eq!(shown.is_percent(), shown.metric.ends_with("_ratio"), "{shown:?}");
        }
    }
}
