//! Memory episode: tasks of the workload in direct reclaim or dirty-page throttling, or swapping in.

use super::{Episode, GROWTH, culprits, quality};
use crate::config::Thresholds;
use crate::frame::history::History;
use crate::series::growth::quiet;
use crate::series::sample::UseSample;
use crate::series::{Series, runs};
use tailwater_model::incident::Resource;
use tailwater_model::window::EntityId;

/// Episodes in the series, whose usual level is that before `around`.
pub(crate) fn episodes(
    history: &History,
    host: &str,
    workload: EntityId,
    series: &Series<UseSample>,
    around: u64,
    thresholds: &Thresholds,
) -> Vec<Episode> {
    let before = quiet(&series.map(|s| s.stalled_memory), around);
    let least = thresholds.memory_stalled_tasks.max(GROWTH * before);
    let swaps = thresholds.memory_swap_ins.max(1);
    runs(series, |s| s.stalled_memory >= least || s.swap_ins >= swaps)
        .into_iter()
        .map(|(first, last)| {
            let peak = series.range(first, last).map(|(_, s)| s.stalled_memory).fold(0.0, f64::max);
            let swapped = series.range(first, last).fold(0u64, |sum, (_, s)| sum.saturating_add(s.swap_ins));
            let stalls = culprits::per_workload(history, host, (first, last), |w| {
                w.reclaim_ns.saturating_add(w.dirty_throttle_ns)
            });
            Episode {
                resource: Resource::Memory,
                first,
                last,
                peak,
                unit: "tasks",
                quality: quality::MEMORY,
                by_load: false,
                of_host: false,
                event_loop: None,
                lookups: None,
                lost: None,
                culprits: culprits::workloads(history, host, &stalls, |w| w != workload),
                why: format!(
                    "up to {peak:.1} tasks in reclaim or dirty throttling, {swapped} pages swapped in"
                ),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture::{MS, history};
    use crate::series::sample::use_series;
    use tailwater_model::window::WorkloadWindow;

    fn check(during: WorkloadWindow, expect: usize) {
        let history = history(60, |i, window| {
            let own = if (40..50).contains(&i) { during } else { WorkloadWindow::default() };
            window.workloads = [(1, own)].into();
        });
        let series = use_series(&history, "h", 1, 0, 59);
        let found = episodes(&history, "h", 1, &series, 40, &Thresholds::default());
        assert_eq!(found.len(), expect, "{during:?}");
    }

    #[test]
    fn stalled_tasks_and_swapping_make_the_episode() {
        check(WorkloadWindow::default(), 0);
        check(WorkloadWindow { reclaim_ns: 10 * MS, ..WorkloadWindow::default() }, 0);
        check(WorkloadWindow { reclaim_ns: 40 * MS, ..WorkloadWindow::default() }, 1);
        check(WorkloadWindow { dirty_throttle_ns: 40 * MS, ..WorkloadWindow::default() }, 1);
        check(WorkloadWindow { swap_ins: 500, ..WorkloadWindow::default() }, 1);
        check(WorkloadWindow { swap_ins: 5, ..WorkloadWindow::default() }, 0);
    }
}
