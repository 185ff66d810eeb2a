//! Which changes would have prevented an overflow: whether the chain as it is reproduces what was seen, then for each knob the smallest size
//! that does it with a margin, and what every one of them does. Owns the classes of effects and the bound of computing; knows no event of a replay.

use super::chain::Chain;
use super::knob::{Change, Knob};
use super::margin::{MARGIN, longer, more};
use super::outcome::Outcome;
use super::replay::{EVENTS_MAX, replay};
use crate::evidence::Refusal;

/// Predicted over seen drops between these: the chain as it is reproduces what happened. Beyond, no answer of the model is worth a number.
pub const REPRODUCED: (f64, f64) = (0.5, 2.0);
/// Events of all replays of one answer: about a second on a CPU of 2020.
const EVENTS_IN_ALL_MAX: u64 = 12_000_000;

/// Beyond what was seen of a tier without a known limit: by more than this part.
const SEEN_PART: f64 = 1.1;
/// More first attempts, in steps of this part, until the chain drops as much as was seen …
const MORE_STEP: f64 = 0.05;
/// … and up to twice as many.
const MORE_STEPS_MAX: u32 = 20;

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
    /// Nothing is dropped anywhere, and answers come in time; also with the margin.
    Prevents,
    /// Nothing is dropped anywhere, also with the margin, and answers come late.
    Slow,
    /// Nothing is dropped in the model, but this tier has more requests at a time than it was ever seen to have, and its limit is not
    /// known: whether it takes them cannot be said.
    BeyondSeen {
        /// A tier of the chain.
        at: usize,
    },
    /// Nothing is dropped if the same comes again to the packet; with the margin this tier drops most.
    Tight {
        /// A tier of the chain.
        at: usize,
    },
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
    /// With the margin, the worse of more attempts and a longer stall; `None`: not worked out, for want of time.
    pub with_margin: Option<Outcome>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Prevention {
    /// The chain as it is.
    pub unchanged: Outcome,
    /// How well that is what was seen.
    pub reproduction: Reproduction,
    /// So many times the first attempts of the judged windows are what the candidates have to stand: where the chain as it is drops less
    /// than was seen, so many more that it drops as much.
    pub attempts_factor: f64,
    /// The chain as it is under those: what the candidates are held against.
    pub harder: Outcome,
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
    let mut search = begun.search(sought);
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
        let (Effect::Moves { to } | Effect::Tight { at: to }) = moved.effect else { continue };
        if moved.changes.iter().any(|change| (change.knob, change.tier) == (Knob::Backlog, to)) {
            continue;
        }
        match search.least(&moved.changes, Knob::Backlog, to) {
            Ok(found) => candidates.extend(found.filter(|of| of.effect.rank() < moved.effect.rank())),
            Err(_) => untried.push((Knob::Backlog, to)),
        }
    }
    for candidate in &mut candidates {
        search.complete(candidate);
    }
    candidates.sort_by_key(|of| (of.effect.rank(), of.changes.len(), of.outcome.dropped()));
    Ok(begun.answer(candidates, untried))
}

/// What comes of these changes, all at once, and of no others.
pub fn what_if(sought: Sought<'_>, changes: &[Change]) -> Result<Prevention, Refusal> {
    let begun = begin(sought)?;
    let mut search = begun.search(sought);
    let mut candidate = search.try_out(changes.to_vec())?;
    search.complete(&mut candidate);
    let candidates = vec![candidate];
    Ok(begun.answer(candidates, Vec::new()))
}

/// The chain as it is, which reproduces what was seen, and what changes are tried on.
struct Begun {
    unchanged: Outcome,
    reproduction: Reproduction,
    overflowed: usize,
    attempts_factor: f64,
    /// With so many more attempts.
    chain: Chain,
    /// That with more attempts still, and with a longer stall.
    margins: [Chain; 2],
    harder: Outcome,
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
    let (attempts_factor, chain) = harder(sought, predicted, &mut budget)?;
    let harder = run(&chain, sought.wanted, &mut budget)?;
    let margins = [more(&chain, MARGIN), longer(&chain, MARGIN)];
    Ok(Begun { unchanged, reproduction, overflowed, attempts_factor, chain, margins, harder, budget })
}

impl Begun {
    fn search<'a>(&'a self, sought: Sought<'a>) -> Search<'a> {
        let sought = Sought { chain: &self.chain, ..sought };
        let margins = [&self.margins[0], &self.margins[1]];
        Search { sought, margins, unchanged: &self.harder, overflowed: self.overflowed, budget: self.budget }
    }

    fn answer(self, candidates: Vec<Candidate>, untried: Vec<(Knob, usize)>) -> Prevention {
        let Self { unchanged, reproduction, overflowed, attempts_factor, harder, .. } = self;
        Prevention { attempts_factor, harder, reproduction, overflowed, candidates, untried, unchanged }
    }
}

/// The chain with so many more first attempts in the windows that are judged that it drops as much as was seen: what is too small for what
/// happened is not to be called prevention because the model sees less of it.
fn harder(sought: Sought<'_>, predicted: u64, budget: &mut u64) -> Result<(f64, Chain), Refusal> {
    let seen: u64 = sought.seen.iter().sum();
    let with = |steps: u32| {
        let factor = 1.0 + f64::from(steps) * MORE_STEP;
        (factor, more(sought.chain, factor))
    };
    if predicted >= seen {
        return Ok(with(0));
    }
    let (mut low, mut high) = (1, MORE_STEPS_MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if run(&with(middle).1, sought.wanted, budget)?.dropped() >= seen {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let (factor, chain) = with(high);
    if run(&chain, sought.wanted, budget)?.dropped() < seen {
        return Err(Refusal::NotReproduced { predicted, seen });
    }
    Ok((factor, chain))
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
            Self::BeyondSeen { .. } => 2,
            Self::Tight { .. } => 3,
            Self::Moves { .. } => 4,
            Self::Lessens => 5,
            Self::Nothing => 6,
        }
    }
}

struct Search<'a> {
    sought: Sought<'a>,
    /// With more attempts, and with a longer stall.
    margins: [&'a Chain; 2],
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
        let outcome = self.with(self.sought.chain, &changes)?;
        // What drops as it is drops more with the margin: that is worked out for what is told only.
        let with_margin = if outcome.dropped() == 0 { Some(self.with_margin(&changes)?) } else { None };
        let effect = self.effect(&outcome, with_margin.as_ref());
        Ok(Candidate { changes, effect, outcome, with_margin })
    }

    fn with(&mut self, chain: &Chain, changes: &[Change]) -> Result<Outcome, Refusal> {
        let mut chain = chain.clone();
        changes.iter().for_each(|change| change.of(&mut chain));
        run(&chain, self.sought.wanted, &mut self.budget)
    }

    /// The worse of more attempts and a longer stall.
    fn with_margin(&mut self, changes: &[Change]) -> Result<Outcome, Refusal> {
        let [more, longer] = self.margins;
        let (more, longer) = (self.with(more, changes)?, self.with(longer, changes)?);
        // Whoever is given up waits for ever.
        let badness = |of: &Outcome| (of.dropped(), of.p99_s.unwrap_or(f64::INFINITY));
        let ((more_dropped, more_p99), (longer_dropped, longer_p99)) = (badness(&more), badness(&longer));
        let longer_is_worse = longer_dropped.cmp(&more_dropped).then(longer_p99.total_cmp(&more_p99)).is_ge();
        Ok(if longer_is_worse { longer } else { more })
    }

    /// The margin of what is told, where it is not known and there is time.
    fn complete(&mut self, candidate: &mut Candidate) {
        if candidate.with_margin.is_none() {
            candidate.with_margin = self.with_margin(&candidate.changes).ok();
        }
    }

    fn effect(&self, outcome: &Outcome, with_margin: Option<&Outcome>) -> Effect {
        if let Some(with_margin) = with_margin.filter(|_| outcome.dropped() == 0) {
            let drops = with_margin.drops.iter().enumerate();
            if let Some((at, _)) = drops.filter(|(_, n)| **n > 0).max_by_key(|(_, n)| **n) {
                return Effect::Tight { at };
            }
            if let Some(at) = self.beyond_seen(outcome) {
                return Effect::BeyondSeen { at };
            }
            let in_time = with_margin.p99_s.is_some_and(|p99_s| p99_s <= self.sought.wanted.p99_s);
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

    /// A tier without a known limit that has more than it was seen to have, or would have as it is.
    fn beyond_seen(&self, outcome: &Outcome) -> Option<usize> {
        let tiers = self.sought.chain.tiers.iter().enumerate();
        let mut known =
            tiers.filter_map(|(at, tier)| Some((at, tier.seen_to?.max(self.unchanged.fullest[at]))));
        known
            .find(|(at, most)| f64::from(outcome.fullest[*at]) > f64::from(*most) * SEEN_PART)
            .map(|(at, _)| at)
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
