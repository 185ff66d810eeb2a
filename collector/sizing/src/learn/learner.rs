//! One listener's learner. Owns which second counts, ageing, beginning anew and the conditions of the advice; the curve, costs and
//! sustained capacity have files of their own.

use super::cost::Cost;
use super::offered::Offered;
use super::second::{Second, Serving, Taint};
use super::shift::{self, Said};
use super::sustained::Speeds;
use crate::concurrency::{Advice, Conditions, Deployment, Unsaturated, advise};
use crate::curve::{Block, Curve, Demand, GROUPS, bins, group_of};
use crate::evidence::{Claim, Class, Estimate, PoolRange, Refusal};
use crate::mva::least_pool;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Traffic after which what was learnt counts half, s: 8 hours, a working day. A listener without traffic does not forget.
pub const HALF_LIFE_S: f64 = 8.0 * 3600.0;
/// Clean traffic without which nothing is told, s.
const SECONDS_MIN: f64 = 60.0;
/// Answers without which nothing is told: the height of a curve is then known within 3 %.
const ANSWERS_MIN: f64 = 1000.0;
/// Part of its CPUs in use below which nobody waits for one: W is read there.
const LOW_PART: f64 = 0.5;
/// Part of a second for which a quota may throttle a server that leaves half of its CPUs unused, and W is read there all the same: now and
/// then a burst ends a period early, and under a quota there is hardly a second without one. What requests wait then makes W, and a pool that
/// is told by it, too large by some percent.
const THROTTLED_LOW_PART: f64 = 0.05;
/// Full seconds without which no class may lower a pool (as windows of the plateau's class).
const FULL_SECONDS_MIN: f64 = 20.0;
/// Part of the time of its calls for which a caller must have requests itself: whoever calls without being asked holds connections for reasons of its own.
const ASKED_FOR_PART: f64 = 0.5;
/// Times what was answered for which attempts that came to nothing are taken for requests.
const OFFERED_MOST: f64 = 2.0;
/// Tiers are named by who asks.
const TIER: &str = "this server";

/// What was learnt of one listener.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Learner {
    curve: Curve,
    sums: Sums,
}

/// All but the curve.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sums {
    since_unix_s: Option<u64>,
    begun_anew: u32,
    serving: Serving,
    seconds: f64,
    answered: f64,
    full_s: f64,
    used_ratio: f64,
    seen_to: f64,
    cpus: Option<f64>,
    is_quota: bool,
    left_out: BTreeMap<Taint, f64>,
    /// CPU by load, of seconds that were not suspect, and of those that wait for their chunk's judgement.
    cpu: [Cost; GROUPS],
    cpu_pending: [Cost; GROUPS],
    /// CPU by load of seconds that the curve has no use for, and whose costs are the server's own.
    #[serde(default)]
    cpu_left_out: [Cost; GROUPS],
    /// CPU of seconds in which at most half was used.
    low: Cost,
    /// Callers' own time (y) and that of their calls (in flight) in those seconds.
    #[serde(default)]
    callers_low: Cost,
    /// Time of open connections (y) and of requests in those seconds.
    #[serde(default)]
    open_low: Cost,
    /// Seconds by what was offered in them.
    #[serde(default)]
    offered: Offered,
    /// And by what was answered in them.
    #[serde(default)]
    answered_seconds: Offered,
    /// Minutes likewise, and the one that is not over with what was offered in it.
    #[serde(default)]
    offered_minutes: Offered,
    #[serde(default)]
    minute: (u64, f64),
    /// Time below of full seconds.
    #[serde(default)]
    below_full: Cost,
    calls: Cost,
    calls_pending: Cost,
    /// CPU used against expected, and calls, of the chunk that is filling.
    cpu_chunk: Cost,
    calls_chunk: Cost,
    cpu_suspects: u8,
    calls_suspects: u8,
    speeds: Speeds,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    curve: Curve,
    sums: Sums,
}

impl TryFrom<Stored> for Learner {
    type Error = Refusal;

    fn try_from(Stored { curve, sums }: Stored) -> Result<Self, Refusal> {
        let numbers = [sums.seconds, sums.answered, sums.full_s, sums.used_ratio, sums.seen_to];
        let numbers = numbers.into_iter().chain(sums.cpus).chain(sums.left_out.values().copied());
        for value in numbers {
            crate::evidence::not_negative("a stored number of a learner", value)?;
        }
        let costs = sums.cpu.iter().chain(&sums.cpu_pending).chain(&sums.cpu_left_out);
        let others = [
            &sums.low,
            &sums.callers_low,
            &sums.open_low,
            &sums.below_full,
            &sums.calls,
            &sums.calls_pending,
            &sums.cpu_chunk,
            &sums.calls_chunk,
        ];
        if !costs.chain(others).all(Cost::is_sane)
            || !sums.speeds.is_sane()
            || !sums.offered.is_sane()
            || !sums.answered_seconds.is_sane()
            || !sums.offered_minutes.is_sane()
            || !sums.minute.1.is_finite()
        {
            return Err(Refusal::Input { what: "a stored sum of a learner", value: f64::NAN });
        }
        Ok(Self { curve, sums })
    }
}

impl Learner {
    /// Takes what the listener did next.
    pub fn push(&mut self, second: &Second) {
        let length = second.seconds();
        if second.check().is_err() || Block::new(second.cells.iter().copied()).is_err() {
            // Its length may be what cannot be.
            self.leave_out(Taint::Impossible, if length.is_finite() && length > 0.0 { length } else { 1.0 });
            return;
        }
        self.sums.serving = second.serving;
        // Whatever spoils a second otherwise: it was to serve as many.
        if let Some(offered) = second.offered {
            self.sums.was_offered(second, length, offered);
        }
        let used = second.used_ratio();
        let is_full = second.is_full() == Some(true);
        let taint = second.taint.or(match used {
            // Nobody knows whether it was full, or throttled at a fast moment.
            None if second.is_quota => Some(Taint::CoverageGap),
            _ if second.is_quota && !is_full && second.throttled_s.is_some_and(|of| of > 0.0) => {
                Some(Taint::Throttled)
            }
            _ => None,
        });
        if let Some(taint) = taint {
            self.leave_out(taint, length);
            let is_low = used.is_some_and(|used| used < LOW_PART)
                && second.throttled_s.is_some_and(|of| of <= THROTTLED_LOW_PART * length);
            if let Some(cpu_s) = second.cpu_s.filter(|_| taint == Taint::Throttled && is_low) {
                self.sums.calm(second, cpu_s);
            }
            if let Some(cpu_s) = second.cpu_s.filter(|_| taint.keeps_costs()) {
                let load = second.in_flight_at_work();
                let cost = &mut self.sums.cpu_left_out[load_group(load)];
                cost.add(length, second.answered, cpu_s, load * length);
            }
            return;
        }
        if self.is_another(second) {
            self.begin_anew(second);
        }
        let s = &mut self.sums;
        s.since_unix_s.get_or_insert(second.start_unix_s);
        s.seconds += length;
        s.answered += second.answered;
        s.cpus = second.cpus.or(s.cpus);
        s.is_quota = second.is_quota;
        s.used_ratio = s.used_ratio.max(used.unwrap_or(0.0));
        let seen = second.cells.iter().filter(|cell| cell.seconds > 0.0);
        s.seen_to = seen.map(|cell| bins::middle_of(usize::from(cell.bin))).fold(s.seen_to, f64::max);
        s.age((-length / HALF_LIFE_S).exp2());
        s.full_s += if is_full { length } else { 0.0 };
        if let Some(below_s) = second.below_s.filter(|_| is_full) {
            s.below_full.add(length, second.answered, below_s, second.in_flight_s);
        }
        if let Some(cpu_s) = second.cpu_s.filter(|_| used.is_none_or(|used| used < LOW_PART)) {
            s.calm(second, cpu_s);
        }
        if second.is_quota && !is_full {
            s.speeds.add(&second.cells);
        }
        let cpu_s = self.cpu_s_per_request().map(|of| of.value);
        let cells = self.sums.speeds.cells(second, is_full, cpu_s);
        if let Some(block) = Block::new(cells).ok().filter(|block| block.seconds() > 0.0) {
            self.curve.push_aging(&block, HALF_LIFE_S);
        }
    }

    fn leave_out(&mut self, taint: Taint, seconds: f64) {
        *self.sums.left_out.entry(taint).or_default() += seconds;
    }

    /// Adds what the second cost, and says whether it is of another mix or version than what was learnt.
    fn is_another(&mut self, second: &Second) -> bool {
        let s = &mut self.sums;
        let (length, load) = (second.seconds(), second.in_flight_at_work());
        let group = load_group(load);
        let mut said = [Said::Nothing; 2];
        if let Some(cpu_s) = second.cpu_s {
            let background = s.low.background();
            if let Some(each) = s.cpu[group].each(background) {
                let expected = background * length + each.value * second.answered;
                said[0] = shift::next(&mut s.cpu_chunk, &mut s.cpu_suspects, length, expected, cpu_s);
                s.cpu_pending[group].add(length, second.answered, cpu_s, load * length);
            } else {
                s.cpu[group].add(length, second.answered, cpu_s, load * length);
            }
        }
        if let Some(calls) = second.calls {
            if let Some(each) = s.calls.ratio() {
                let expected = each * second.answered;
                said[1] = shift::next(&mut s.calls_chunk, &mut s.calls_suspects, length, expected, calls);
                s.calls_pending.add(length, second.answered, calls, second.in_flight_s);
            } else {
                s.calls.add(length, second.answered, calls, second.in_flight_s);
            }
        }
        if said[0] == Said::Same {
            for (sum, more) in s.cpu.iter_mut().zip(&mut s.cpu_pending) {
                sum.merge(&std::mem::take(more));
            }
        }
        if said[1] == Said::Same {
            s.calls.merge(&std::mem::take(&mut s.calls_pending));
        }
        said.contains(&Said::Shifted)
    }

    /// Of what was learnt only what was left out, and the costs of the seconds that showed the change, remain.
    fn begin_anew(&mut self, second: &Second) {
        let old = std::mem::take(&mut self.sums);
        self.curve = Curve::default();
        self.sums = Sums {
            since_unix_s: Some(second.start_unix_s),
            begun_anew: old.begun_anew.saturating_add(1),
            serving: old.serving,
            left_out: old.left_out,
            offered: old.offered,
            answered_seconds: old.answered_seconds,
            offered_minutes: old.offered_minutes,
            minute: old.minute,
            cpu: old.cpu_pending,
            calls: old.calls_pending,
            ..Sums::default()
        };
    }

    /// What may be said of the pool of each server.
    pub fn advise(&self, pool_limit: Option<u32>, deployment: &Deployment) -> Advice {
        let s = &self.sums;
        let conditions = Conditions {
            // `as` saturates.
            saturated_windows: s.full_s.round() as u32,
            used_ratio: s.used_ratio,
            pool_limit,
            unsaturated: self.unsaturated(),
            demands: if s.is_quota { self.demands() } else { Vec::new() },
            refused: self.refused(),
        };
        let mut advice = advise(&self.curve, &conditions, deployment);
        if !self.was_full() {
            advice.only_raises();
        }
        if let (true, Some(needs)) = (s.is_quota, conditions.unsaturated) {
            self.lower_end(&mut advice, &needs);
        }
        advice
    }

    /// Under a quota the plateau is seen from the fewest in flight on that ever filled a whole second; fewer may fill it as well, and
    /// then mean value analysis says how many do.
    fn lower_end(&self, advice: &mut Advice, needs: &Unsaturated) {
        let Claim::Told { class: Class::Plateau, value: pool } = &mut advice.pool else { return };
        if let Ok(least) = least_pool(needs.cpus, needs.cpu_s, needs.wait_s, pool.seen_to) {
            let at_least = pool.at_least.min(least.at_least);
            *pool = PoolRange { at_least, advised: pool.advised.max(at_least), ..*pool };
        }
    }

    fn refused(&self) -> Option<Refusal> {
        let s = &self.sums;
        let tier = || TIER.to_owned();
        match s.serving {
            Serving::EventDriven => return Some(Refusal::EventDriven { tier: tier() }),
            Serving::Multiplexed => return Some(Refusal::Multiplexed { tier: tier() }),
            Serving::Workers => {}
        }
        let most = s.left_out.iter().max_by(|a, b| a.1.total_cmp(b.1)).filter(|_| s.seconds == 0.0);
        if let Some((taint, seconds)) = most {
            return Some(Refusal::Tainted {
                by: format!("{} in {seconds:.0} s, and nothing else was seen", taint.name()),
            });
        }
        (s.seconds < SECONDS_MIN || s.answered < ANSWERS_MIN).then_some(Refusal::LittleTraffic {
            seconds: s.seconds,
            answered: s.answered,
            needed_s: SECONDS_MIN,
            needed: ANSWERS_MIN,
        })
    }

    /// What a request needs under low load: among many it costs more, and waits for the CPU as well.
    fn unsaturated(&self) -> Option<Unsaturated> {
        let low = &self.sums.low;
        let (cpu_s, _) = low.one_request(low.background())?;
        Some(Unsaturated { cpus: self.sums.cpus?, cpu_s, wait_s: self.wait_s()? })
    }

    /// W: response time less CPU time of a request under low load, s; none before half a minute or a thousand requests of that. The tiers below answer later when
    /// this one is full: what they take then, by their own count, if it is more.
    pub fn wait_s(&self) -> Option<f64> {
        let low = &self.sums.low;
        let (cpu_s, response_s) = low.one_request(low.background())?;
        let below_s = self.sums.below_full.ratio().unwrap_or(0.0);
        Some((response_s - cpu_s).max(below_s))
    }

    /// How long a connection may be held between calls, s for each call that is answered: for no longer than the callers' own requests last, if it is given
    /// back with the request or after its last call, which may come after the request's answer. Of seconds in which nobody waits for a CPU here, nor for
    /// a connection. None before half a minute or a thousand calls of that, and where callers call for much that nobody asked them for.
    pub fn between_calls_s(&self) -> Option<f64> {
        let (own_s, calls_s) = self.sums.callers_low.one_request(0.0)?;
        (own_s >= ASKED_FOR_PART * calls_s).then_some(own_s)
    }

    /// How long a connection is open without a request, s for each answer: what clients keep, and what they close late. Of seconds in which nobody
    /// waits for a CPU here, so that a request that is not read yet is not taken for none. None before half a minute or a thousand answers of that.
    /// Beside it how long it is open in all, with the time of a request under low load.
    pub fn open_s(&self) -> Option<(f64, f64)> {
        // Of the sums: in a single second the one is a sample and the other is exact.
        let (open_s, response_s) = self.sums.open_low.for_each_request()?;
        let unused_s = (open_s - response_s).max(0.0);
        Some((unused_s, unused_s + response_s))
    }

    /// Requests a second that were to be served in the busiest hundredth of seconds, those that were left out among them; at the most twice what
    /// was answered in as busy ones, since whoever floods is not to be served. None before a minute.
    pub fn offered_most(&self) -> Option<f64> {
        let answered = self.sums.answered_seconds.most()?;
        self.sums.offered.most().map(|offered| offered.min(OFFERED_MOST * answered))
    }

    /// The same of whole minutes: what comes and goes within seconds is no load that lasts.
    pub fn offered_in_a_minute(&self) -> Option<f64> {
        self.sums.offered_minutes.most()
    }

    /// D: CPU time of a request with its 95 % interval, s, without what is used in any case; none before half a minute.
    pub fn cpu_s_per_request(&self) -> Option<Estimate> {
        let mut all = Cost::default();
        self.sums.cpu.iter().chain(&self.sums.cpu_pending).for_each(|of| all.merge(of));
        all.each(self.sums.low.background())
    }

    /// D at each load (requests in flight that those answered met), for [`crate::curve::overhead`]: neighbouring loads together until they were
    /// seen for half a minute. Seconds in which a tier below was the bottleneck, or a quota was not quite used up, count as well: what a
    /// request costs does not depend on what it waits for.
    pub fn demands(&self) -> Vec<Demand> {
        let s = &self.sums;
        let background = s.low.background();
        let mut told: Vec<Cost> = Vec::new();
        let mut sum = Cost::default();
        for ((clean, pending), left_out) in s.cpu.iter().zip(&s.cpu_pending).zip(&s.cpu_left_out) {
            [clean, pending, left_out].into_iter().for_each(|more| sum.merge(more));
            if sum.each(background).is_some() {
                told.push(std::mem::take(&mut sum));
            }
        }
        if let Some(last) = told.last_mut() {
            last.merge(&sum);
        }
        let demand = |of: &Cost| {
            let each = of.each(background)?;
            let error_s = (each.high - each.low) / 2.0 / 1.96;
            Some(Demand { in_flight: of.in_flight(), cpu_s: each.value, error_s })
        };
        told.iter().filter_map(demand).collect()
    }

    /// Clean traffic since it began, s.
    pub fn seconds_learnt(&self) -> f64 {
        self.sums.seconds
    }

    /// When the first second of what is learnt began, Unix s.
    pub fn since_unix_s(&self) -> Option<u64> {
        self.sums.since_unix_s
    }

    /// How often another mix or version made it begin anew.
    pub fn begun_anew(&self) -> u32 {
        self.sums.begun_anew
    }

    /// Seconds in which its CPUs were full; older ones count less.
    pub fn full_s(&self) -> f64 {
        self.sums.full_s
    }

    /// Whether that was long enough for CPU to be what limits it: no class may lower a pool before.
    pub fn was_full(&self) -> bool {
        self.sums.full_s >= FULL_SECONDS_MIN
    }

    /// The most of its CPUs that it used in a second, as a part.
    pub fn used_ratio(&self) -> f64 {
        self.sums.used_ratio
    }

    /// The most requests in flight that there were, as the middle of their bin; 0: none.
    pub fn seen_to(&self) -> f64 {
        self.sums.seen_to
    }

    /// Time that was left out by reason, s.
    pub fn left_out(&self) -> impl Iterator<Item = (Taint, f64)> {
        self.sums.left_out.iter().map(|(taint, seconds)| (*taint, *seconds))
    }

    /// The curve.
    pub fn curve(&self) -> &Curve {
        &self.curve
    }

    /// What it takes in memory, bytes, about: of a tree's nodes only the largest that there can be is counted.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.curve.bytes()
            + bins::BINS * 12
            + self.sums.offered.bytes()
            + self.sums.answered_seconds.bytes()
            + self.sums.offered_minutes.bytes()
            + 512
    }
}

impl Sums {
    fn age(&mut self, keep: f64) {
        self.full_s *= keep;
        let costs = self.cpu.iter_mut().chain(&mut self.cpu_left_out);
        let others =
            [&mut self.low, &mut self.callers_low, &mut self.open_low, &mut self.below_full, &mut self.calls];
        costs.chain(others).for_each(|of| of.age(keep));
        self.speeds.age(keep);
    }

    fn was_offered(&mut self, second: &Second, length: f64, requests: f64) {
        let keep = (-length / HALF_LIFE_S).exp2();
        self.offered.add(length, requests.max(0.0), keep);
        self.answered_seconds.add(length, second.answered, keep);
        let minute = second.start_unix_s / 60;
        if minute != self.minute.0 {
            let (_, before) = std::mem::replace(&mut self.minute, (minute, 0.0));
            // The first of all is none, and one that began in its middle is too small, which only makes less of it.
            if before > 0.0 {
                self.offered_minutes.add(60.0, before, (-60.0 / HALF_LIFE_S).exp2());
            }
        }
        self.minute.1 += requests;
    }

    /// Takes a second in which nobody waited for a CPU.
    fn calm(&mut self, second: &Second, cpu_s: f64) {
        let length = second.seconds();
        self.low.add(length, second.answered, cpu_s, second.in_flight_s);
        if let Some((own_s, calls_s)) = second.callers {
            self.callers_low.add(length, second.answered, own_s, calls_s);
        }
        if let Some(open_s) = second.open_s {
            self.open_low.add(length, second.answered, open_s, second.in_flight_s);
        }
    }
}

fn load_group(load: f64) -> usize {
    // Less than half a request in the mean is the load of one now and then; beyond the last bin is the last group.
    let bin = bins::bin_of(load.round() as u32).clamp(1, bins::BINS - 2);
    group_of(bin).unwrap_or(GROUPS - 1)
}
