//! I/O episode: tasks of the workload blocked on block I/O. Trusts the tasks that block, not the device alone: throttled
//! block I/O may never reach the device's statistics.

use super::{Episode, GROWTH, MOST, culprits, quality};
use crate::config::Thresholds;
use crate::frame::history::History;
use crate::series::growth::quiet;
use crate::series::sample::UseSample;
use crate::series::{EDGE_WINDOWS, Series, runs};
use tailwater_model::incident::{Culprit, Resource};
use tailwater_model::window::{CulpritResource, EntityId};

/// Episodes of `workload` in the series, whose usual level is that before `around`.
pub(crate) fn episodes(
    history: &History,
    host: &str,
    workload: EntityId,
    series: &Series<UseSample>,
    around: u64,
    thresholds: &Thresholds,
) -> Vec<Episode> {
    let before = quiet(&series.map(|s| s.blocked_io), around);
    let least = thresholds.io_blocked_tasks.max(GROWTH * before);
    let own = culprits::workload_name(history.hosts.get(host), workload);
    let blocked = |s: &UseSample| s.blocked_io >= least;
    runs(series, blocked)
        .into_iter()
        .filter(|(first, last)| {
            // Two windows, or one in which more than one task was blocked all the time.
            last > first || series.get(*first).is_some_and(|s| s.blocked_io >= 2.0 * least)
        })
        .map(|(first, last)| {
            let peak = series.range(first, last).map(|(_, s)| s.blocked_io).fold(0.0, f64::max);
            let device = series.range(first, last).map(|(_, s)| s.device_in_flight).fold(0.0, f64::max);
            let culprits = who(history, host, workload, (first, last));
            let last = while_it_lasts(history, host, workload, (first, last));
            let named = culprits.first().is_some_and(|c| c.share >= MOST);
            Episode {
                resource: Resource::Io,
                first,
                last,
                peak,
                unit: "tasks",
                quality: quality::IO
                    + if named { quality::IO_NAMED } else { 0.0 }
                    + if device >= MOST { quality::IO_QUEUED } else { 0.0 },
                by_load: named && culprits.first().is_some_and(|c| c.workload == own),
                of_host: false,
                event_loop: None,
                lookups: None,
                lost: None,
                why: format!(
                    "up to {peak:.1} tasks blocked on block I/O (usually {before:.1}), device queue {}",
                    if device > 0.0 { format!("up to {device:.1}") } else { "not seen".to_owned() }
                ),
                culprits,
            }
        })
        .collect()
}

/// The end of a span whose bytes are mostly another workload's: when that is done. What follows is the catch-up.
fn while_it_lasts(history: &History, host: &str, victim: EntityId, (first, last): (u64, u64)) -> u64 {
    let bytes =
        culprits::per_workload(history, host, (first.saturating_sub(EDGE_WINDOWS), last), |w| w.io_bytes);
    let total: f64 = bytes.values().sum();
    let Some((other, most)) = bytes.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return last };
    if other == victim || most < MOST * total {
        return last;
    }
    let windows = history.windows_of(host);
    let busy = |index: &u64| {
        let window = windows.at(*index).and_then(|w| w.workloads.get(&other));
        window.is_some_and(|w| w.io_bytes > 0 || w.blocked_io_ns > 0)
    };
    (first..=last).rev().find(busy).unwrap_or(last)
}

/// Who submitted the bytes; else whose tasks blocked, others than the victim first.
fn who(history: &History, host: &str, victim: EntityId, span: (u64, u64)) -> Vec<Culprit> {
    // The flood often starts a window before the first victim blocks.
    let span = (span.0.saturating_sub(EDGE_WINDOWS), span.1);
    let by_bytes = culprits::processes(history, host, CulpritResource::IoBytes, span, |_| true);
    if !by_bytes.is_empty() {
        return by_bytes;
    }
    let bytes = culprits::per_workload(history, host, span, |w| w.io_bytes);
    let others = culprits::processes(history, host, CulpritResource::IoBlocked, span, |w| w != victim);
    if !others.is_empty() {
        return others;
    }
    if !bytes.is_empty() {
        return culprits::workloads(history, host, &bytes, |_| true);
    }
    culprits::processes(history, host, CulpritResource::IoBlocked, span, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture::{MS, history};
    use crate::series::sample::use_series;
    use tailwater_model::window::{CulpritSample, WorkloadWindow};

    /// Workload 1 usually blocks for 5 ms of 50; in windows 40 to 49 for `blocked_ms`.
    fn check(
        blocked_ms: u64,
        windows: u64,
        samples: &[(CulpritResource, u32, &str, EntityId, u64)],
        expect: Option<&str>,
    ) {
        let history = history(60, |i, window| {
            let during = (40..40 + windows).contains(&i);
            let blocked = if during { blocked_ms } else { 5 };
            let own =
                WorkloadWindow { blocked_io_ns: blocked * MS, io_bytes: 100, ..WorkloadWindow::default() };
            let other =
                WorkloadWindow { io_bytes: if during { 900 } else { 0 }, ..WorkloadWindow::default() };
            window.workloads = [(1, own), (2, other)].into();
            if during {
                window.culprits = samples
                    .iter()
                    .map(|(resource, pid, comm, workload, amount)| CulpritSample {
                        resource: *resource,
                        pid: *pid,
                        comm: (*comm).into(),
                        workload: *workload,
                        amount: *amount,
                    })
                    .collect();
            }
        });
        let series = use_series(&history, "h", 1, 0, 59);
        let found = episodes(&history, "h", 1, &series, 40, &Thresholds::default());
        let name = |c: &Culprit| if c.comm.is_empty() { c.workload.clone() } else { c.comm.clone() };
        let named: Vec<String> = found.iter().filter_map(|e| e.culprits.first()).map(name).collect();
        assert_eq!(named.first().map(String::as_str), expect, "{found:#?}");
    }

    #[test]
    fn blocked_tasks_make_the_episode_and_bytes_the_culprit() {
        use CulpritResource::{IoBlocked, IoBytes};
        check(10, 10, &[], None);
        check(40, 1, &[], None);
        check(40, 10, &[], Some("other"));
        check(90, 1, &[], Some("other"));
        check(40, 10, &[(IoBlocked, 1, "mariadbd", 1, 400), (IoBytes, 9, "dd", 2, 900)], Some("dd"));
        check(
            40,
            10,
            &[(IoBlocked, 1, "mariadbd", 1, 400), (IoBlocked, 9, "fsyncer", 2, 90)],
            Some("fsyncer"),
        );
        check(40, 10, &[(IoBytes, 1, "mariadbd", 1, 5000), (IoBytes, 9, "dd", 2, 900)], Some("mariadbd"));
    }
}
