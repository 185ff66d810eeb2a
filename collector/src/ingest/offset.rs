//! What is known of an agent's clock. Every probe bounds the offset from above (nothing arrives before it was sent) and every reply
//! from below; the bounds of the last minute, aged by how far two oscillators can drift meanwhile, leave an interval: its middle is
//! the estimate, half its length the error. NTP's minimum filter (RFC 5905, 10) keeps one sample where this keeps all that bind.
//! Pure: every time is a parameter.

use std::collections::VecDeque;

/// Bounds that are kept.
const WINDOW_NS: i64 = 60_000_000_000;
const BOUNDS_MAX: usize = 128;
/// Probes whose reply may still be reported.
const PROBES_MAX: usize = 16;
/// Until a round trip is known: offsets below this may be transport alone, and count as error.
const UNMEASURED_NS: u64 = 25_000_000;
/// The kernel slews no clock by more than this against another (adjtimex(2)), parts per billion.
const DRIFT_MAX_PPB: i64 = 500_000;
/// A drift that was measured may change by this much: oscillators follow their temperature.
const WANDER_PPB: i64 = 20_000;
/// Bounds that tell a drift are this far apart at least.
const DRIFT_SPAN_NS: i64 = 10_000_000_000;
/// Beyond this an estimate is not carried: batches older than the agent's buffers do not exist.
const CARRY_MAX_NS: i64 = 600_000_000_000;

/// Collector minus agent, and how wrong that can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Offset {
    /// Add to the agent's time to get the collector's.
    pub offset_ns: i64,
    /// Bound of its error.
    pub error_ns: u64,
    /// Measured by round trips; else only bounded by one-way times.
    pub measured: bool,
    /// By how much the offset grows, parts per billion; 0: not known better than the limit of 500 ppm.
    pub drift_ppb: i64,
}

/// What an agent says in a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Probe {
    /// Its number.
    pub id: u64,
    /// When it was sent.
    pub agent_unix_ns: u64,
    /// The newest reply that the agent has; 0: none.
    pub reply_id: u64,
    /// When that came.
    pub reply_received_unix_ns: u64,
    /// Unix time minus CLOCK_MONOTONIC; 0: an agent that does not say, whose clock had better not be set.
    pub epoch_offset_ns: i64,
}

/// The offset to the agent's monotonic clock was at most, or at least, `offset_ns` at `at_ns` of that clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    at_ns: i64,
    offset_ns: i64,
}

/// Estimator for one agent.
#[derive(Debug, Default)]
pub struct OffsetEstimate {
    /// Id and the time at which the reply left.
    replied: VecDeque<(u64, u64)>,
    most: VecDeque<Bound>,
    least: VecDeque<Bound>,
    epoch_ns: i64,
    newest_ns: i64,
    /// Range of the drift, once it is known better than [`DRIFT_MAX_PPB`].
    drift_ppb: Option<(i64, i64)>,
    /// A round trip was seen with all four times.
    exchanged: bool,
}

impl OffsetEstimate {
    /// A probe arrived, and its reply leaves at the same moment.
    pub fn probe(&mut self, probe: &Probe, received_unix_ns: u64) {
        self.epoch_ns = probe.epoch_offset_ns;
        let sent = self.monotonic(probe.agent_unix_ns);
        self.newest_ns = sent;
        // The newest of this number: an agent counts from one on each of its connections, and means a reply that came on this one.
        let answered = self.replied.iter().rev().find(|(id, _)| probe.reply_id != 0 && *id == probe.reply_id);
        let back = answered.and_then(|(_, left)| {
            let at_ns = self.monotonic(probe.reply_received_unix_ns);
            Some(Bound { at_ns, offset_ns: difference(*left, at_ns)? })
        });
        if self.replied.len() >= PROBES_MAX {
            self.replied.pop_front();
        }
        self.replied.push_back((probe.id, received_unix_ns));
        let Some(offset_ns) = difference(received_unix_ns, sent) else { return };
        let there = Bound { at_ns: sent, offset_ns };
        push(&mut self.most, there);
        if let Some(back) = back {
            push(&mut self.least, back);
            self.exchanged = true;
        }
        if self.interval(sent).is_some_and(|(least, most)| least > most) {
            // One of the clocks was set, or runs wilder than any that the kernel keeps: the past says nothing.
            self.drift_ppb = None;
            self.most.clear();
            self.least.clear();
            push(&mut self.most, there);
            if let Some(back) = back.filter(|b| b.offset_ns <= there.offset_ns) {
                push(&mut self.least, back);
            }
        } else {
            self.learn_drift();
        }
    }

    /// The agent's own estimate, from round trips: for agents whose probes do not carry what makes one here. An error of 0 means
    /// that it has none yet.
    pub fn report(&mut self, offset_ns: i64, error_ns: u64) {
        let error = i64::try_from(error_ns).unwrap_or(i64::MAX);
        let at_ns = self.newest_ns;
        let least = Bound { at_ns, offset_ns: offset_ns.saturating_sub(error).saturating_add(self.epoch_ns) };
        let most = Bound { at_ns, offset_ns: offset_ns.saturating_add(error).saturating_add(self.epoch_ns) };
        let fits = self.interval(at_ns).is_none_or(|(l, m)| most.offset_ns >= l && least.offset_ns <= m);
        // Nothing arrives before it was sent, whatever an agent says.
        if error_ns > 0 && !self.exchanged && fits {
            push(&mut self.least, least);
            push(&mut self.most, most);
        }
    }

    /// The estimate at the newest probe.
    #[must_use]
    pub fn now(&self) -> Offset {
        self.at_monotonic(self.newest_ns)
    }

    /// The estimate for a moment of the agent's clock.
    #[must_use]
    pub fn at(&self, agent_unix_ns: u64) -> Offset {
        self.at_monotonic(self.monotonic(agent_unix_ns))
    }

    fn at_monotonic(&self, at_ns: i64) -> Offset {
        let (drift_least, drift_most) = self.drift();
        let drift_ppb = if self.drift_ppb.is_some() { i64::midpoint(drift_least, drift_most) } else { 0 };
        let Some((least, most)) = self.interval(at_ns) else {
            return Offset { error_ns: UNMEASURED_NS, ..Offset::default() };
        };
        if self.least.is_empty() {
            let most = most.saturating_sub(self.epoch_ns);
            return if most.unsigned_abs() <= UNMEASURED_NS {
                Offset { error_ns: most.unsigned_abs(), ..Offset::default() }
            } else {
                Offset { offset_ns: most, error_ns: UNMEASURED_NS, ..Offset::default() }
            };
        }
        Offset {
            offset_ns: i64::midpoint(least, most).saturating_sub(self.epoch_ns),
            error_ns: most.saturating_sub(least).unsigned_abs().div_ceil(2),
            measured: true,
            drift_ppb,
        }
    }

    /// Where the offset to the agent's monotonic clock lies at a moment of that clock; `None` without any bound from above.
    fn interval(&self, at_ns: i64) -> Option<(i64, i64)> {
        let (slow, fast) = self.drift();
        let carried = |bound: &Bound, forward: i64, backward: i64| {
            let by_ns = at_ns.saturating_sub(bound.at_ns).clamp(-CARRY_MAX_NS, CARRY_MAX_NS);
            let ppb = if by_ns >= 0 { forward } else { backward };
            bound.offset_ns.saturating_add(drifted(by_ns, ppb))
        };
        let most = self.most.iter().map(|b| carried(b, fast, slow)).min()?;
        let least = self.least.iter().map(|b| carried(b, slow, fast)).max();
        Some((least.unwrap_or(i64::MIN), most))
    }

    fn drift(&self) -> (i64, i64) {
        self.drift_ppb.unwrap_or((-DRIFT_MAX_PPB, DRIFT_MAX_PPB))
    }

    /// Between a bound from above and a later one from below the offset rose at least by their difference, and so on.
    fn learn_drift(&mut self) {
        let (mut slow, mut fast) = (-DRIFT_MAX_PPB, DRIFT_MAX_PPB);
        for most in &self.most {
            for least in &self.least {
                let apart_ns = most.at_ns.saturating_sub(least.at_ns);
                let rise = most.offset_ns.saturating_sub(least.offset_ns);
                if apart_ns >= DRIFT_SPAN_NS {
                    fast = fast.min(per_billion(rise, apart_ns));
                } else if apart_ns <= -DRIFT_SPAN_NS {
                    slow = slow.max(per_billion(rise, apart_ns));
                }
            }
        }
        let wider = ((slow - WANDER_PPB).max(-DRIFT_MAX_PPB), (fast + WANDER_PPB).min(DRIFT_MAX_PPB));
        // Pairs of bounds tell the drift of different seconds, so that they may differ by what it wanders; one that changed by more
        // contradicts itself, and is not known.
        self.drift_ppb = (wider.0 <= wider.1 && wider.1 - wider.0 < 2 * DRIFT_MAX_PPB).then_some(wider);
    }

    fn monotonic(&self, agent_unix_ns: u64) -> i64 {
        i64::try_from(agent_unix_ns).unwrap_or(i64::MAX).saturating_sub(self.epoch_ns)
    }
}

fn push(bounds: &mut VecDeque<Bound>, bound: Bound) {
    while bounds.front().is_some_and(|b| bound.at_ns.saturating_sub(b.at_ns) > WINDOW_NS)
        || bounds.len() >= BOUNDS_MAX
    {
        bounds.pop_front();
    }
    bounds.push_back(bound);
}

fn difference(unix_ns: u64, monotonic_ns: i64) -> Option<i64> {
    i64::try_from(i128::from(unix_ns) - i128::from(monotonic_ns)).ok()
}

/// Of a time up to [`CARRY_MAX_NS`], and a drift that the kernel can make: their product has room, which matters, as each message asks for this a
/// hundred times over.
fn drifted(by_ns: i64, ppb: i64) -> i64 {
    by_ns.saturating_mul(ppb) / 1_000_000_000
}

fn per_billion(rise_ns: i64, apart_ns: i64) -> i64 {
    let wide = i128::from(rise_ns) * 1_000_000_000 / i128::from(apart_ns);
    i64::try_from(wide.clamp(-10_000_000, 10_000_000)).unwrap_or(0)
}

#[cfg(test)]
#[path = "offset_tests.rs"]
mod tests;
