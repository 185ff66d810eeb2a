//! Event-loop episode: a thread that serves many connections did not come back to its wait for events while requests lay there unread: it
//! ran on, or slept elsewhere. Seen by the agent at the thread itself, so it needs no usual rate and outranks what a stall only suggests.
//! A loop that wanted to run and got no CPU is not blocked: who took the CPU is another rule's.

use super::{Episode, MOST, quality};
use crate::frame::history::History;
use crate::series::EDGE_WINDOWS;
use std::collections::BTreeMap;
use tailwater_model::incident::{EventLoop, Resource};
use tailwater_model::window::{BlockedLoop, EntityId, WINDOW_NS};

/// Unit of such an episode's peak.
pub(crate) const MILLISECONDS: &str = "ms";

/// What the listeners' event loops were blocked for in `[first, last]`.
pub(crate) fn episodes(
    history: &History,
    host: &str,
    listeners: impl Fn(EntityId) -> bool,
    (first, last): (u64, u64),
) -> Vec<Episode> {
    let mut threads: BTreeMap<u32, Vec<Vec<(u64, &BlockedLoop)>>> = BTreeMap::new();
    let windows = history.windows_of(host);
    for index in first..=last.min(history.next.saturating_sub(1)) {
        let Some(window) = windows.at(index) else { continue };
        for l in window.blocked_loops.iter().filter(|l| listeners(l.listener)) {
            let runs = threads.entry(l.thread).or_default();
            match runs.last_mut() {
                // A thread may be told of two listeners: once is enough.
                Some(run) if run.last().is_some_and(|(at, _)| *at == index) => {}
                // One look may have come too late.
                Some(run) if run.last().is_some_and(|(at, _)| index - at <= EDGE_WINDOWS) => {
                    run.push((index, l))
                }
                _ => runs.push(vec![(index, l)]),
            }
        }
    }
    threads.into_values().flatten().filter_map(|run| episode(&run)).collect()
}

/// `None`: it waited for a CPU.
fn episode(run: &[(u64, &BlockedLoop)]) -> Option<Episode> {
    let ((begun, earliest), (last, latest)) = (run.first()?, run.last()?);
    let sum = |of: fn(&BlockedLoop) -> u64| run.iter().map(|(_, l)| of(l) as f64).sum::<f64>();
    let (span, ran, waited) = (sum(|l| l.span_ns), sum(|l| l.ran_ns), sum(|l| l.waited_ns));
    if span <= 0.0 || waited >= MOST * span {
        return None;
    }
    // Before the first that is told of it lie the one whose look had none before it to be held against, and the one in which it read for the
    // last time.
    let first = begun.saturating_sub(EDGE_WINDOWS.min(earliest.silent_ns / WINDOW_NS));
    let seen_ns = last.saturating_sub(first).saturating_add(1).saturating_mul(WINDOW_NS);
    let ran_ratio = (100.0 * ran / span).round() / 100.0;
    let mostly_ran = ran >= MOST * (span - waited);
    let slept_in = if mostly_ran { String::new() } else { slept_in(run) };
    let uninterruptible = 2 * run.iter().filter(|(_, l)| l.uninterruptible).count() > run.len();
    let blocked = EventLoop {
        thread: latest.thread,
        comm: latest.comm.clone(),
        blocked_ms: latest.silent_ns.min(seen_ns) / 1_000_000,
        ran_ratio,
        slept_in,
    };
    Some(Episode {
        resource: Resource::EventLoop,
        first,
        last: *last,
        peak: blocked.blocked_ms as f64,
        unit: MILLISECONDS,
        quality: if uninterruptible { quality::EVENT_LOOP_DISK } else { quality::EVENT_LOOP },
        by_load: false,
        of_host: false,
        culprits: Vec::new(),
        why: format!("{} while requests lay unread", words(&blocked)),
        event_loop: Some(blocked),
        lookups: None,
        lost: None,
    })
}

/// Where it was found asleep most often.
fn slept_in(run: &[(u64, &BlockedLoop)]) -> String {
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, l) in run.iter().filter(|(_, l)| !l.slept_in.is_empty()) {
        *times.entry(&l.slept_in).or_default() += 1;
    }
    times.into_iter().max_by_key(|(_, n)| *n).map_or_else(String::new, |(name, _)| name.to_owned())
}

/// What the thread did, as a clause.
pub(crate) fn words(l: &EventLoop) -> String {
    let who = format!("thread `{}` ({})", l.comm, l.thread);
    if l.slept_in.is_empty() {
        return format!(
            "{who} ran for {} ms without coming back to epoll_wait ({:.0} % of one CPU)",
            l.blocked_ms,
            100.0 * l.ran_ratio
        );
    }
    let what = place(&l.slept_in).map_or_else(String::new, |what| format!(" ({what})"));
    format!("{who} slept outside of epoll_wait for {} ms, in `{}`{what}", l.blocked_ms, l.slept_in)
}

/// What it means to sleep in a function of the kernel. Names change with its versions: one that is not here is told without a meaning.
fn place(function: &str) -> Option<&'static str> {
    const PLACES: [(&str, &str); 19] = [
        ("futex_", "a lock, or another thread"),
        ("do_futex", "a lock, or another thread"),
        ("hrtimer_nanosleep", "a sleep"),
        ("common_nsleep", "a sleep"),
        ("do_nanosleep", "a sleep"),
        ("pipe_read", "a blocking read of a pipe"),
        ("anon_pipe_read", "a blocking read of a pipe"),
        ("wait_for_partner", "a pipe that nobody opens at its other end"),
        ("fifo_open", "a pipe that nobody opens at its other end"),
        ("pipe_w", "a blocking write to a pipe"),
        ("wait_woken", "a blocking call on a socket"),
        ("sk_", "a blocking call on a socket"),
        ("inet_", "a blocking call on a socket"),
        ("tcp_", "a blocking call on a socket"),
        ("unix_", "a blocking call on a socket"),
        ("__skb_wait", "a blocking call on a socket, as of a resolver"),
        ("do_wait", "another process, until it ends"),
        ("folio_wait", "a file on a disk"),
        ("io_schedule", "a disk"),
    ];
    PLACES.iter().find(|(name, _)| function.starts_with(name)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture::{MS, history};

    /// A loop in windows 42 to 50, of whose time so much was spent so.
    fn found(ran_ms: u64, waited_ms: u64, slept_in: &str, uninterruptible: bool) -> Vec<Episode> {
        let history = history(60, |i, window| {
            if (42..=50).contains(&i) {
                window.blocked_loops = vec![BlockedLoop {
                    listener: 5,
                    thread: 4711,
                    comm: "node".into(),
                    silent_ns: (i - 40) * 50 * MS + 30 * MS,
                    span_ns: 50 * MS,
                    ran_ns: ran_ms * MS,
                    waited_ns: waited_ms * MS,
                    uninterruptible,
                    slept_in: slept_in.into(),
                }];
            }
        });
        assert!(episodes(&history, "h", |id| id == 6, (0, 59)).is_empty(), "another tier's listener");
        episodes(&history, "h", |id| id == 5, (0, 59))
    }

    #[test]
    fn a_loop_that_runs_on_or_sleeps_elsewhere_is_blocked_and_one_without_a_cpu_is_not() {
        let ran = found(49, 1, "", false);
        assert_eq!((ran.len(), ran[0].first, ran[0].last, ran[0].peak), (1, 40, 50, 530.0));
        assert_eq!(
            ran[0].why,
            "thread `node` (4711) ran for 530 ms without coming back to epoll_wait (98 % of one CPU) while requests lay unread"
        );
        let slept = found(0, 0, "hrtimer_nanosleep", false);
        assert!(
            slept[0].why.contains("slept outside of epoll_wait for 530 ms, in `hrtimer_nanosleep` (a sleep)")
        );
        assert!(slept[0].quality > quality::NEIGHBOUR);
        assert!(found(2, 48, "", false).is_empty(), "it had no CPU");
        let disk = found(1, 0, "folio_wait_bit_common", true);
        assert!(disk[0].quality < quality::IO, "a disk that was short is the cause");
    }

    #[test]
    fn what_is_idle_for_long_before_is_not_blocked_for_as_long() {
        let history = history(60, |i, window| {
            if (50..=55).contains(&i) {
                window.blocked_loops = vec![BlockedLoop {
                    listener: 5,
                    thread: 4711,
                    silent_ns: 20_000 * MS,
                    span_ns: 50 * MS,
                    ran_ns: 50 * MS,
                    ..BlockedLoop::default()
                }];
            }
        });
        let found = episodes(&history, "h", |_| true, (0, 59));
        assert_eq!((found[0].first, found[0].last, found[0].peak), (48, 55, 400.0));
    }
}
