//! Which changes would have prevented an overflow: for each knob the smallest size that does it with a margin, and what every one of them does.
//! Owns the classes of effects; knows no event of a replay, and not whether the model is right (`reproduce`).

use super::chain::Chain;
use super::knob::{Change, Knob};
use super::margin::{MARGIN, longer, more};
use super::outcome::Outcome;
use super::reproduce::{Reproduced, Reproduction, Sought, Wanted, run};
use crate::evidence::Refusal;

/// Beyond what was seen of a tier without a known limit: by more than this part.
const SEEN_PART: f64 = 1.1;

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
    /// Which of the chains gives what was seen best, and is what all of this is of.
    pub chain: usize,
    /// What each of the chains drops as it is, in their order. Where all drop the same, nobody was dropped twice.
    pub by_chain: Vec<u64>,
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
    let reproduced = Reproduced::of(sought)?;
    let margins = margins(&reproduced.chain);
    let mut search = Search::new(&reproduced, &margins, sought.wanted);
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
    candidates.iter_mut().for_each(|candidate| search.complete(candidate));
    candidates.sort_by_key(|of| (of.effect.rank(), of.changes.len(), of.outcome.dropped()));
    Ok(answer(reproduced, candidates, untried))
}

/// What comes of these changes, all at once, and of no others.
pub fn what_if(sought: Sought<'_>, changes: &[Change]) -> Result<Prevention, Refusal> {
    let reproduced = Reproduced::of(sought)?;
    let margins = margins(&reproduced.chain);
    let mut search = Search::new(&reproduced, &margins, sought.wanted);
    let mut candidate = search.try_out(changes.to_vec())?;
    search.complete(&mut candidate);
    Ok(answer(reproduced, vec![candidate], Vec::new()))
}

/// With more attempts, and with a longer stall.
fn margins(chain: &Chain) -> [Chain; 2] {
    [more(chain, MARGIN), longer(chain, MARGIN)]
}

fn answer(of: Reproduced, candidates: Vec<Candidate>, untried: Vec<(Knob, usize)>) -> Prevention {
    Prevention {
        chain: of.which,
        by_chain: of.by_chain,
        unchanged: of.unchanged,
        reproduction: of.reproduction,
        attempts_factor: of.attempts_factor,
        harder: of.harder,
        overflowed: of.overflowed,
        candidates,
        untried,
    }
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
    /// What is changed.
    chain: &'a Chain,
    margins: &'a [Chain; 2],
    wanted: &'a Wanted,
    unchanged: &'a Outcome,
    overflowed: usize,
    budget: u64,
}

impl<'a> Search<'a> {
    fn new(of: &'a Reproduced, margins: &'a [Chain; 2], wanted: &'a Wanted) -> Self {
        let Reproduced { chain, harder, overflowed, budget, .. } = of;
        Self { chain, margins, wanted, unchanged: harder, overflowed: *overflowed, budget: *budget }
    }

    /// What may be turned: the queue that overflowed, and workers, connections and servers of each tier.
    fn knobs(&self) -> Vec<(Knob, usize)> {
        let tiers = 0..self.chain.tiers.len();
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
        let outcome = self.with(self.chain, &changes)?;
        // What drops as it is drops more with the margin: that is worked out for what is told only.
        let with_margin = if outcome.dropped() == 0 { Some(self.with_margin(&changes)?) } else { None };
        let effect = self.effect(&outcome, with_margin.as_ref());
        Ok(Candidate { changes, effect, outcome, with_margin })
    }

    fn with(&mut self, chain: &Chain, changes: &[Change]) -> Result<Outcome, Refusal> {
        let mut chain = chain.clone();
        changes.iter().for_each(|change| change.of(&mut chain));
        run(&chain, self.wanted, &mut self.budget)
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
            let in_time = with_margin.p99_s.is_some_and(|p99_s| p99_s <= self.wanted.p99_s);
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
        let tiers = self.chain.tiers.iter().enumerate();
        let mut known =
            tiers.filter_map(|(at, tier)| Some((at, tier.seen_to?.max(self.unchanged.fullest[at]))));
        known
            .find(|(at, most)| f64::from(outcome.fullest[*at]) > f64::from(*most) * SEEN_PART)
            .map(|(at, _)| at)
    }

    /// The smallest size of a knob, beside these changes, that does as much as the largest, or more: more is not always better, for what a
    /// longer queue lets in may overflow below. None: there is nothing to turn.
    fn least(&mut self, beside: &[Change], knob: Knob, tier: usize) -> Result<Option<Candidate>, Refusal> {
        let sizes = knob.ladder(self.chain, tier);
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
