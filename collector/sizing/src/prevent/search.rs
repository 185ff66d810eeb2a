//! Which changes would have prevented an overflow: whether the chain as it is reproduces what was seen, then for each knob the smallest size
//! that does it, and what every one of them does. Owns the classes of effects and the bound of computing; knows no event of a replay.

use super::chain::Chain;
use super::knob::{Change, Knob};
use super::outcome::Outcome;
use super::replay::{EVENTS_MAX, replay};
use crate::evidence::Refusal;

/// Predicted over seen drops between these: the chain as it is reproduces what happened. Beyond, no answer of the model is worth a number.
pub const REPRODUCED: (f64, f64) = (0.5, 2.0);
/// Events of all replays of one answer: about a second on a CPU of 2020.
const EVENTS_IN_ALL_MAX: u64 = 8_000_000;

/// What is wanted of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Bounds for which goodput is told, s.
    pub within_s: Vec<f64>,
    /// Prevention is no drop, and 99 of 100 first attempts answered within this, s.
    pub p99_s: f64,
}

/// What an answer is sought to.
#[derive(Debug, Clone, Copy)]
pub struct Sought<'a> {
    /// As it was.
    pub chain: &'a Chain,
    /// Packets that each tier was seen to drop in the windows of the chain.
    pub seen: &'a [u64],
    /// What counts.
    pub wanted: &'a Wanted,
}

/// Drops of the chain as it is, against those that were seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reproduction {
    /// Packets.
    pub predicted: u64,
    /// Packets.
    pub seen: u64,
    /// Predicted for each one seen.
    pub ratio: f64,
}

/// What changes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is dropped anywhere, and answers come in time.
    Prevents,
    /// Nothing is dropped anywhere, and answers come late.
    Slow,
    /// The tier that dropped does not, and this one does, more than before.
    Moves {
        /// A tier of the chain.
        to: usize,
    },
    /// Less than half as much is dropped.
    Lessens,
    /// None of that.
    Nothing,
}

/// Some changes, and what comes of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// All at once.
    pub changes: Vec<Change>,
    /// What they do.
    pub effect: Effect,
    /// In numbers.
    pub outcome: Outcome,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Prevention {
    /// The chain as it is.
    pub unchanged: Outcome,
    /// How well that is what was seen.
    pub reproduction: Reproduction,
    /// The tier of the chain that dropped most.
    pub overflowed: usize,
    /// What was tried, the most helpful first.
    pub candidates: Vec<Candidate>,
    /// What was not, for want of time.
    pub untried: Vec<(Knob, usize)>,
}

/// The answer to what is sought, or why there is none.
pub fn prevention(sought: Sought<'_>) -> Result<Prevention, Refusal> {
    let begun = begin(sought)?;
    let Begun { unchanged, reproduction, overflowed, budget } = &begun;
    let mut search = Search { sought, unchanged, overflowed: *overflowed, budget: *budget };
    let mut candidates = Vec::new();
    let mut untried = Vec::new();
    for (knob, tier) in search.knobs() {
        match search.least(&[], knob, tier) {
            Ok(found) => candidates.extend(found),
            Err(_) => untried.push((knob, tier)),
        }
    }
    // Where a queue only moves, the tier that it moves to is changed with it.
    for moved in candidates.clone() {
        let Effect::Moves { to } = moved.effect else { continue };
        match search.least(&moved.changes, Knob::Backlog, to) {
            Ok(found) => candidates.extend(found.filter(|of| of.outcome.dropped() == 0)),
            Err(_) => untried.push((Knob::Backlog, to)),
        }
    }
    candidates.sort_by_key(|of| (of.effect.rank(), of.changes.len(), of.outcome.dropped()));
    let (reproduction, overflowed) = (*reproduction, *overflowed);
    Ok(Prevention { reproduction, overflowed, candidates, untried, unchanged: begun.unchanged })
}

/// What comes of these changes, all at once, and of no others.
pub fn what_if(sought: Sought<'_>, changes: &[Change]) -> Result<Prevention, Refusal> {
    let begun = begin(sought)?;
    let Begun { unchanged, reproduction, overflowed, budget } = &begun;
    let mut search = Search { sought, unchanged, overflowed: *overflowed, budget: *budget };
    let candidates = vec![search.try_out(changes.to_vec())?];
    let (reproduction, overflowed) = (*reproduction, *overflowed);
    Ok(Prevention { reproduction, overflowed, candidates, untried: Vec::new(), unchanged: begun.unchanged })
}

/// The chain as it is, which reproduces what was seen.
struct Begun {
    unchanged: Outcome,
    reproduction: Reproduction,
    overflowed: usize,
    budget: u64,
}

fn begin(sought: Sought<'_>) -> Result<Begun, Refusal> {
    let seen: u64 = sought.seen.iter().sum();
    if seen == 0 || sought.seen.len() != sought.chain.tiers.len() {
        return Err(Refusal::NothingDropped);
    }
    let most = sought.seen.iter().max().copied();
    let overflowed = sought.seen.iter().position(|n| Some(*n) == most).unwrap_or(0);
    let mut budget = EVENTS_IN_ALL_MAX;
    let unchanged = run(sought.chain, sought.wanted, &mut budget)?;
    let predicted = unchanged.dropped();
    let reproduction = Reproduction { predicted, seen, ratio: predicted as f64 / seen as f64 };
    if !(REPRODUCED.0..=REPRODUCED.1).contains(&reproduction.ratio) {
        return Err(Refusal::NotReproduced { predicted, seen });
    }
    Ok(Begun { unchanged, reproduction, overflowed, budget })
}

fn run(chain: &Chain, wanted: &Wanted, budget: &mut u64) -> Result<Outcome, Refusal> {
    let (outcome, events) = replay(chain, &wanted.within_s, EVENTS_MAX.min(*budget))?;
    *budget = budget.saturating_sub(events);
    Ok(outcome)
}

impl Effect {
    fn rank(self) -> u8 {
        match self {
            Self::Prevents => 0,
            Self::Slow => 1,
            Self::Moves { .. } => 2,
            Self::Lessens => 3,
            Self::Nothing => 4,
        }
    }
}

struct Search<'a> {
    sought: Sought<'a>,
    unchanged: &'a Outcome,
    overflowed: usize,
    budget: u64,
}

impl Search<'_> {
    /// What may be turned: the queue that overflowed, and workers, connections and servers of each tier.
    fn knobs(&self) -> Vec<(Knob, usize)> {
        let tiers = 0..self.sought.chain.tiers.len();
        let mut knobs = vec![(Knob::Backlog, self.overflowed)];
        for tier in tiers {
            let all = [(Knob::Workers, tier), (Knob::Pool, tier), (Knob::Servers, tier)];
            knobs.extend(all);
            if tier == self.overflowed {
                knobs.push((Knob::EventDriven, tier));
            }
        }
        knobs
    }

    fn try_out(&mut self, changes: Vec<Change>) -> Result<Candidate, Refusal> {
        let mut chain = self.sought.chain.clone();
        changes.iter().for_each(|change| change.of(&mut chain));
        let outcome = run(&chain, self.sought.wanted, &mut self.budget)?;
        let effect = self.effect(&outcome);
        Ok(Candidate { changes, effect, outcome })
    }

    fn effect(&self, outcome: &Outcome) -> Effect {
        if outcome.dropped() == 0 {
            let in_time = outcome.p99_s.is_some_and(|p99_s| p99_s <= self.sought.wanted.p99_s);
            return if in_time { Effect::Prevents } else { Effect::Slow };
        }
        let more = |tier: &usize| outcome.drops[*tier] > self.unchanged.drops[*tier];
        let worst = (0..outcome.drops.len()).filter(more).max_by_key(|tier| outcome.drops[*tier]);
        match worst {
            Some(to) if outcome.drops[self.overflowed] == 0 => Effect::Moves { to },
            _ if outcome.dropped() * 2 < self.unchanged.dropped() => Effect::Lessens,
            _ => Effect::Nothing,
        }
    }

    /// The smallest size of a knob, beside these changes, that does as much as the largest, or more: more is not always better, for what a
    /// longer queue lets in may overflow below. None: there is nothing to turn.
    fn least(&mut self, beside: &[Change], knob: Knob, tier: usize) -> Result<Option<Candidate>, Refusal> {
        let sizes = knob.ladder(self.sought.chain, tier);
        let with = |change: &Change| beside.iter().chain([change]).copied().collect::<Vec<_>>();
        let Some(last) = sizes.last() else { return Ok(None) };
        let mut best = self.try_out(with(last))?;
        let target = best.effect.rank();
        // What the largest only lessens, a smaller one lessens less.
        if target >= Effect::Lessens.rank() {
            return Ok(Some(best));
        }
        // Between `low`, below which none does it, and `high`, which does.
        let (mut low, mut high) = (0, sizes.len() - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let tried = self.try_out(with(&sizes[middle]))?;
            if tried.effect.rank() <= target {
                (best, high) = (tried, middle);
            } else {
                low = middle + 1;
            }
        }
        Ok(Some(best))
    }
}
