//! What was learnt of one listener: its curve and what a request costs (`tailwater_sizing::learn`), how often it is asked, and what was
//! left out. Owns how seconds are handed over and how all of it is kept on disk; knows no name and no other listener.

use super::peaks::Peaks;
use super::second::Joined;
use super::setup::{Change, SetUps};
use super::taint::Taint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tailwater_model::window::{PoolSize, StateCell, WINDOW_NS};
use tailwater_sizing::concurrency::{Advice, Deployment};
use tailwater_sizing::curve::{Cell, Demand, Point};
use tailwater_sizing::evidence::Estimate;
use tailwater_sizing::learn::{Learner, Second, Serving, Taint as Why, agrees};
use tailwater_sizing::prevent::{FirstAttempts, Retries};

/// Seconds from which Little's law is checked.
const COMPARED_SECONDS_MIN: f64 = 30.0;
/// Seconds that weigh half in how often a tier is asked (ten minutes).
const RATE_HALF_S: f64 = 600.0;
/// Part of the calls that callers must have counted before both sides are of the same requests.
const SAME_REQUESTS: f64 = 0.05;

/// See above.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Learned {
    learner: Learner,
    sums: Sums,
    /// One that was kept by a version before knows none.
    #[serde(default)]
    set_ups: SetUps,
    #[serde(default)]
    peaks: Peaks,
    /// Who was dropped lately, and comes again within seconds: not worth keeping.
    #[serde(skip)]
    firsts: Firsts,
}

/// First attempts by either way in which kernels try again.
#[derive(Debug)]
struct Firsts([FirstAttempts; Retries::ALL.len()]);

impl Default for Firsts {
    fn default() -> Self {
        Self(Retries::ALL.map(FirstAttempts::new))
    }
}

impl Firsts {
    /// Requests that were to be served in a second: answers, and first attempts beyond those that were let in, which may be fewer. By the way that has fewer:
    /// nobody knows which one a client has. `None`: not all of its windows are known.
    fn offered(&mut self, second: &Joined) -> Option<f64> {
        let arrivals = second.came.iter().fold(0_u64, |sum, (_, came)| sum.saturating_add(came.arrivals));
        let first = self.0.iter_mut().map(|firsts| {
            second.came.iter().fold(0_u64, |sum, (window, came)| {
                sum.saturating_add(firsts.next(usize::try_from(*window).unwrap_or(usize::MAX), came))
            })
        });
        let first = first.min().unwrap_or(0);
        let is_known = !second.taints.contains(&Taint::NotMeasured);
        is_known.then_some(second.answered as f64 + first as f64 - arrivals as f64)
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(FirstAttempts::bytes).sum()
    }
}

/// All but what the learner has.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Sums {
    first_unix_ns: u64,
    last_unix_ns: u64,
    comm: String,
    left_out: BTreeMap<Taint, u64>,
    cpus: Option<f64>,
    rate: f64,
    /// Seconds of `rate`, the older the less.
    #[serde(default)]
    rate_s: f64,
    /// Limit of its accept queue, as it was told last.
    #[serde(default)]
    backlog: Option<u32>,
    little: Sides,
    /// As it was read last; one that was kept by a version before knows none.
    #[serde(default)]
    limit: Option<PoolSize>,
}

/// The two sides of Little's law, over the same seconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Sides {
    seconds: f64,
    in_flight_s: f64,
    answered: u64,
    callers_s: f64,
    callers_answered: u64,
}

impl Learned {
    /// Takes the next second of this listener.
    pub(super) fn take(&mut self, second: &Joined) {
        self.set_ups.take(second);
        let s = &mut self.sums;
        if s.first_unix_ns == 0 {
            s.first_unix_ns = second.end_unix_ns;
        }
        let keep = s.keeps(second.end_unix_ns);
        s.rate = s.rate * keep + second.answered as f64;
        s.rate_s = s.rate_s * keep + length_s(second);
        s.backlog = second.backlog.or(s.backlog);
        s.last_unix_ns = s.last_unix_ns.max(second.end_unix_ns);
        s.comm.clone_from(&second.owned.comm);
        s.limit.clone_from(&second.owned.pool);
        s.cpus = Some(second.cpus).filter(|cpus| *cpus > 0.0).or(s.cpus);
        for taint in &second.taints {
            *s.left_out.entry(*taint).or_default() += 1;
        }
        let before = self.learner.begun_anew();
        let offered = self.firsts.offered(second);
        // Whoever floods is not to be served.
        let answered = second.answered as f64;
        self.peaks.add(second.end_unix_ns, offered.unwrap_or(answered).clamp(0.0, 2.0 * answered));
        self.learner.push(&Second { offered, ..handed_over(second) });
        if !second.taints.is_empty() {
            return;
        }
        if self.learner.begun_anew() > before {
            // What was known is of other requests.
            (s.first_unix_ns, s.little) = (second.end_unix_ns, Sides::default());
        }
        if let Some(of) = second.by_callers {
            s.little.seconds += length_s(second);
            s.little.in_flight_s += second.in_flight_s;
            s.little.answered += second.answered;
            s.little.callers_s += of.time_s;
            s.little.callers_answered += of.answered;
        }
    }

    /// The last change of its set-up, before against after.
    pub(super) fn last_change(&self) -> Option<Change> {
        self.set_ups.last_change()
    }

    /// What may be said of its pool.
    pub(super) fn advise(&self, deployment: &Deployment, pool_limit: Option<u32>) -> Advice {
        self.learner.advise(pool_limit, deployment)
    }

    /// How long its callers may hold a connection between calls, s for each call; `None`: not known.
    pub(super) fn between_calls_s(&self) -> Option<f64> {
        self.learner.between_calls_s()
    }

    /// How long a connection is open without a request, and in all, s for each answer; `None`: not known.
    pub(super) fn open_s(&self) -> Option<(f64, f64)> {
        self.learner.open_s()
    }

    /// Requests a second that were to be served in its busiest hundredth of seconds; `None`: not known.
    pub(super) fn offered_most(&self) -> Option<f64> {
        self.learner.offered_most()
    }

    /// The same of its busiest minutes.
    pub(super) fn offered_in_a_minute(&self) -> Option<f64> {
        self.learner.offered_in_a_minute()
    }

    /// Requests a second of the busiest minute of the last seven days, and how many of those were seen; `None`: none was.
    pub(super) fn peak_of_week(&self, now_unix_ns: u64) -> Option<(f64, u32)> {
        self.peaks.week(now_unix_ns)
    }

    /// CPU time of a request, s.
    pub(super) fn cpu_s(&self) -> Option<Estimate> {
        self.learner.cpu_s_per_request()
    }

    /// Levels of the curve.
    pub(super) fn points(&self) -> Vec<Point> {
        self.learner.curve().points()
    }

    /// What a request costs at each load.
    pub(super) fn costs(&self) -> Vec<Demand> {
        self.learner.demands()
    }

    /// Clean seconds.
    pub(super) fn clean_s(&self) -> f64 {
        self.learner.seconds_learnt()
    }

    /// Seconds left out by reason. What its own quota held up although it was not used up, the learner finds.
    pub(super) fn left_out(&self) -> BTreeMap<Taint, u64> {
        let mut all = self.sums.left_out.clone();
        let own: f64 =
            self.learner.left_out().filter(|(why, _)| *why == Why::Throttled).map(|(_, s)| s).sum();
        if own >= 0.5 {
            // Of a second that the room's rules left out for it, the learner knows as well.
            let told = all.entry(Taint::Throttled).or_default();
            *told = (*told).max(own.round() as u64);
        }
        all
    }

    /// CPUs that it may use; `None`: no second said.
    pub(super) fn cpus(&self) -> Option<f64> {
        self.sums.cpus
    }

    /// Whether its CPUs were full for long enough to be what limits it.
    pub(super) fn is_critical(&self) -> bool {
        self.learner.was_full()
    }

    /// Command of the server.
    pub(super) fn comm(&self) -> &str {
        &self.sums.comm
    }

    /// What the server is set up for, as it was read last.
    pub(super) fn limit(&self) -> Option<&PoolSize> {
        self.sums.limit.as_ref()
    }

    /// The first and the last second, Unix ns.
    pub(super) fn span(&self) -> (u64, u64) {
        (self.sums.first_unix_ns, self.sums.last_unix_ns)
    }

    /// Answers lately, the older the less; for comparing listeners.
    pub(super) fn rate_at(&self, unix_ns: u64) -> f64 {
        self.sums.rate_at(unix_ns)
    }

    /// Answers a second lately; `None`: none came for as long as they weigh half.
    pub(super) fn per_second(&self, now_unix_ns: u64) -> Option<f64> {
        let s = &self.sums;
        (s.rate_s > 0.0 && s.keeps(now_unix_ns) > 0.5).then(|| s.rate / s.rate_s)
    }

    /// Limit of its accept queue.
    pub(super) fn backlog(&self) -> Option<u32> {
        self.sums.backlog
    }

    /// Mean requests in flight, here and by those who call; `None`: they did not count the same requests.
    pub(super) fn little(&self) -> Option<(f64, f64, bool)> {
        let l = self.sums.little;
        let apart = (l.callers_answered as f64 - l.answered as f64).abs();
        if l.seconds < COMPARED_SECONDS_MIN || l.answered == 0 || apart > SAME_REQUESTS * l.answered as f64 {
            return None;
        }
        let (here, callers) = (l.in_flight_s / l.seconds, l.callers_s / l.seconds);
        Some((here, callers, agrees(l.in_flight_s, l.callers_s)?))
    }

    /// Memory, about.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.learner.bytes()
            + self.set_ups.bytes()
            + self.firsts.bytes()
            + self.peaks.bytes()
    }
}

/// How long a second was, by the windows that came, s.
fn length_s(second: &Joined) -> f64 {
    (u64::from(second.windows) * WINDOW_NS) as f64 / 1e9
}

fn handed_over(second: &Joined) -> Second {
    let cell =
        |c: &StateCell| Cell { bin: c.bin, seconds: c.time_ns as f64 / 1e9, completions: c.answered as f64 };
    let mut cells: Vec<Cell> = second.cells.iter().filter(|c| c.time_ns > 0).map(cell).collect();
    let busy_s: f64 = cells.iter().map(|cell| cell.seconds).sum();
    cells.push(Cell { bin: 0, seconds: (length_s(second) - busy_s).max(0.0), completions: 0.0 });
    let is_multiplexed = second.taints.contains(&Taint::Multiplexed);
    Second {
        start_unix_s: second.end_unix_ns / 1_000_000_000,
        cells,
        in_flight_s: second.in_flight_s,
        answered: second.answered as f64,
        // Whoever hands it over knows what was dropped before, and fills it in.
        offered: None,
        open_s: Some(second.open_s),
        cpu_s: Some(second.cpu_s),
        cpus: Some(second.cpus).filter(|cpus| *cpus > 0.0),
        is_quota: second.owned.quota_ns.is_some(),
        throttled_s: Some(second.throttled_s),
        calls: Some(second.calls as f64),
        below_s: second.below_s,
        callers: second.by_callers.and_then(|of| Some((of.own_s?, of.time_s))),
        serving: match second.worker_shared_max {
            _ if is_multiplexed => Serving::Multiplexed,
            0 | 1 => Serving::Workers,
            _ => Serving::EventDriven,
        },
        // Of several reasons one that spoils what requests cost, if there is one.
        taint: second.taints.iter().filter_map(|taint| why(*taint)).min_by_key(|why| why.keeps_costs()),
    }
}

/// The learner's word for it; none for what it is told otherwise.
fn why(taint: Taint) -> Option<Why> {
    Some(match taint {
        Taint::Steal => Why::Steal,
        Taint::Io => Why::Io,
        Taint::Memory => Why::Memory,
        Taint::Throttled => Why::Throttled,
        Taint::Stopped => Why::Stall,
        Taint::Neighbour => Why::Neighbour,
        Taint::Downstream => Why::Downstream,
        Taint::Incident => Why::Incident,
        Taint::NotMeasured | Taint::SharedCpu => Why::CoverageGap,
        Taint::Multiplexed => return None,
    })
}

impl Sums {
    /// What is left then of what the newest second weighs now.
    fn keeps(&self, unix_ns: u64) -> f64 {
        let ago_s = unix_ns.saturating_sub(self.last_unix_ns) as f64 / 1e9;
        (-ago_s / RATE_HALF_S).exp2()
    }

    fn rate_at(&self, unix_ns: u64) -> f64 {
        self.rate * self.keeps(unix_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::learners::tests::second;
    use tailwater_sizing::prevent::Came;

    #[test]
    fn what_was_dropped_and_came_again_is_offered_once() {
        let mut firsts = Firsts::default();
        let window = |window, arrivals, drops_syn| (window, Came { arrivals, drops_syn, ..Came::default() });
        let mut offered = |came: Vec<(u64, Came)>, answered| {
            let of = second(&("web".to_owned(), "apache2.service".to_owned()), 80, answered, 0);
            firsts.offered(&Joined { came, ..of })
        };
        // 20 are dropped, come a second later, and are let in.
        assert_eq!(offered(vec![window(1_000, 80, 20)], 80), Some(100.0));
        assert_eq!(offered(vec![window(1_020, 100, 0)], 100), Some(80.0));
        // Answered are fewer than are let in, and more come again than that: it is made up for by those that were counted before.
        assert_eq!(offered(vec![window(1_040, 0, 50)], 0), Some(50.0));
        assert_eq!(offered(vec![window(1_060, 50, 0)], 0), Some(-50.0));
        let of = second(&("web".to_owned(), "apache2.service".to_owned()), 80, 9, 0);
        let unseen = Joined { taints: [Taint::NotMeasured].into(), ..of };
        assert_eq!(Firsts::default().offered(&unseen), None);
    }
}
