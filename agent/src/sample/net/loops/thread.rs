//! What a thread does now, by its files in `/proc`: on a CPU, waiting for one, or asleep and where. Owns their format; knows no
//! listener.

use crate::clock;
use crate::sample::schedstat;

/// Longest name of a kernel function that is told.
const FUNCTION_MAX: usize = 63;

/// Where the kernel's side of a wait for events sleeps, by the beginning of the function's name: epoll, poll, select, io_uring. A thread
/// that sleeps there has come back to its loop, whatever it does not read.
const WAITS_FOR_EVENTS: [&str; 8] = [
    "ep_poll",
    "do_epoll",
    "poll_schedule",
    "do_poll",
    "do_sys_poll",
    "do_select",
    "core_sys_select",
    "io_cqring",
];

/// Those of them that only servers of many connections wait in: with poll and select a worker waits for one caller, too.
const WAITS_FOR_MANY: [&str; 3] = ["ep_poll", "do_epoll", "io_cqring"];

/// Whether a thread sleeps where event loops do; `false` also where that cannot be told.
pub(super) fn waits_for_many(tid: u32) -> bool {
    let wchan = std::fs::read_to_string(format!("/proc/{tid}/wchan")).unwrap_or_default();
    WAITS_FOR_MANY.iter().any(|name| wchan.starts_with(name))
}

/// One look at a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) comm: String,
    /// The function of the kernel that it sleeps in; empty while it runs or wants to.
    pub(super) slept_in: String,
    state: u8,
    at_ns: u64,
    run_ns: u64,
    waited_ns: u64,
}

/// How a thread spent the time between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) span_ns: u64,
    pub(super) ran_ns: u64,
    /// Runnable, without a CPU.
    pub(super) waited_ns: u64,
}

impl Look {
    /// `None`: it is gone, it waits for events, a signal stopped it, or it cannot be told where it sleeps.
    pub(super) fn at(tid: u32) -> Option<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{tid}/{file}")).ok();
        let look = Self::of(&read("stat")?, &read("schedstat")?, clock::monotonic_ns())?;
        match look.state {
            b'R' => Some(look),
            b'S' | b'D' => look.asleep_in(&read("wchan")?),
            _ => None,
        }
    }

    /// From the text of `stat` and `schedstat`.
    fn of(stat: &str, schedstat: &str, at_ns: u64) -> Option<Self> {
        let (before, after) = stat.rsplit_once(") ")?;
        let (_, comm) = before.split_once('(')?;
        let (run_ns, waited_ns) = schedstat::totals(schedstat)?;
        Some(Self {
            comm: comm.to_owned(),
            slept_in: String::new(),
            state: *after.as_bytes().first()?,
            at_ns,
            run_ns,
            waited_ns,
        })
    }

    /// `wchan` is `0` for whoever may not know, and for a thread that has just been woken.
    fn asleep_in(mut self, wchan: &str) -> Option<Self> {
        let function = wchan.trim();
        let known = !function.is_empty() && function != "0" && function.len() <= FUNCTION_MAX;
        let waits = WAITS_FOR_EVENTS.iter().any(|name| function.starts_with(name));
        if !known || waits {
            return None;
        }
        // What the compiler made of a function is not its name.
        self.slept_in = function.split('.').next()?.to_owned();
        Some(self)
    }

    /// Asleep so that no signal wakes it: mostly for a disk.
    pub(super) fn is_uninterruptible(&self) -> bool {
        self.state == b'D'
    }

    /// Asleep until another thread wakes it.
    pub(super) fn waits_for_a_thread(&self) -> bool {
        self.slept_in.contains("futex")
    }

    /// What came of the time since an earlier look at the same thread.
    pub(super) fn since(&self, before: &Self) -> Option<Spent> {
        let span_ns = self.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)?;
        let ran_ns = self.run_ns.checked_sub(before.run_ns)?.min(span_ns);
        let rest_ns = span_ns - ran_ns;
        // The kernel counts a wait when it ends: one that lasts is what is left of the time.
        let waited_ns = if self.state == b'R' {
            rest_ns
        } else {
            self.waited_ns.checked_sub(before.waited_ns)?.min(rest_ns)
        };
        Some(Spent { span_ns, ran_ns, waited_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn look(state: char, at_ms: u64, run_ms: u64, waited_ms: u64) -> Look {
        let stat = format!("4711 (a) b) {state} 1 4711 4711 0 -1");
        let schedstat = format!("{} {} 17\n", run_ms * MS, waited_ms * MS);
        Look::of(&stat, &schedstat, at_ms * MS).unwrap()
    }

    #[test]
    fn a_name_may_have_brackets_and_what_is_no_number_is_no_look() {
        assert_eq!(look('R', 0, 1, 2).comm, "a) b");
        assert_eq!(Look::of("4711 (a) R 1", "x 2 3", 0), None);
        assert_eq!(Look::of("4711 (a", "1 2 3", 0), None);
    }

    #[test]
    fn time_is_told_as_run_waited_and_asleep() {
        let spent = |now: Look, before: Look| now.since(&before).map(|s| (s.ran_ns / MS, s.waited_ns / MS));
        assert_eq!(spent(look('R', 150, 249, 7), look('R', 100, 200, 7)), Some((49, 1)));
        assert_eq!(spent(look('R', 150, 200, 7), look('R', 100, 200, 7)), Some((0, 50)), "it waits on");
        assert_eq!(spent(look('S', 150, 205, 12), look('R', 100, 200, 7)), Some((5, 5)));
        assert_eq!(spent(look('S', 150, 100, 7), look('S', 100, 200, 7)), None, "another thread by now");
        assert_eq!(spent(look('S', 100, 200, 7), look('S', 100, 200, 7)), None, "no time went by");
    }

    #[test]
    fn who_waits_for_events_is_not_asleep_elsewhere() {
        let asleep = |wchan: &str| look('S', 0, 0, 0).asleep_in(wchan).map(|l| l.slept_in);
        assert_eq!(asleep("hrtimer_nanosleep"), Some("hrtimer_nanosleep".to_owned()));
        assert_eq!(asleep("futex_wait_queue.isra.0\n"), Some("futex_wait_queue".to_owned()));
        for none in ["ep_poll", "do_sys_poll", "poll_schedule_timeout.constprop.0", "io_cqring_wait", "0", ""]
        {
            assert_eq!(asleep(none), None, "{none}");
        }
    }

    #[test]
    fn this_thread_runs_and_one_that_reads_a_pipe_sleeps_in_it() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert_eq!(Look::at(own).map(|l| (l.slept_in, l.state)), Some((String::new(), b'R')));
    }

    #[test]
    fn a_thread_in_epoll_waits_for_many_and_one_that_runs_does_not() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert!(!waits_for_many(own));
        assert!(!waits_for_many(u32::MAX), "no such thread");
        let waiting = super::super::tests::Waiting::new();
        assert!(waits_for_many(waiting.tid));
    }
}
