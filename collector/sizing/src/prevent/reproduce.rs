//! Whether the chain as it is reproduces what was seen, and how much harder it has to be made until it drops as much. Owns that, and the bound of
//! computing for one answer; knows no change.

use super::chain::Chain;
use super::margin::more;
use super::outcome::Outcome;
use super::replay::{EVENTS_MAX, replay};
use crate::evidence::Refusal;
use std::cmp::Reverse;

/// Predicted over seen drops between these: the chain as it is reproduces what happened. Beyond, no answer of the model is worth a number.
pub const REPRODUCED: (f64, f64) = (0.5, 2.0);
/// Events of all replays of one answer: about a second on a CPU of 2020.
const EVENTS_IN_ALL_MAX: u64 = 12_000_000;
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
    /// As it was: the same tiers under each supposition of how clients try again.
    pub chains: &'a [Chain],
    /// Packets that each tier was seen to drop in the windows of the chains.
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

/// The chain as it is, which reproduces what was seen, and what changes are tried on.
pub(super) struct Reproduced {
    /// Which of the chains it is.
    pub(super) which: usize,
    /// What each of them drops.
    pub(super) by_chain: Vec<u64>,
    pub(super) unchanged: Outcome,
    pub(super) reproduction: Reproduction,
    /// The tier that dropped most.
    pub(super) overflowed: usize,
    pub(super) attempts_factor: f64,
    /// With so many more attempts.
    pub(super) chain: Chain,
    pub(super) harder: Outcome,
    /// Events that are left.
    pub(super) budget: u64,
}

impl Reproduced {
    /// Of the chains the one whose drops are nearest to those that were seen; of two that are as near, the one that drops more.
    pub(super) fn of(sought: Sought<'_>) -> Result<Self, Refusal> {
        let seen: u64 = sought.seen.iter().sum();
        if seen == 0 || sought.chains.iter().any(|chain| chain.tiers.len() != sought.seen.len()) {
            return Err(Refusal::NothingDropped);
        }
        let most = sought.seen.iter().max().copied();
        let overflowed = sought.seen.iter().position(|n| Some(*n) == most).unwrap_or(0);
        let mut budget = EVENTS_IN_ALL_MAX;
        let as_they_are = sought.chains.iter().map(|chain| run(chain, sought.wanted, &mut budget));
        let as_they_are = as_they_are.collect::<Result<Vec<_>, _>>()?;
        let by_chain: Vec<u64> = as_they_are.iter().map(Outcome::dropped).collect();
        let all = as_they_are.into_iter().zip(sought.chains).enumerate();
        let nearest = all.min_by_key(|(_, (outcome, _))| {
            let predicted = outcome.dropped();
            (predicted.abs_diff(seen), Reverse(predicted))
        });
        let Some((which, (unchanged, chain))) = nearest else {
            return Err(Refusal::Input { what: "the number of chains", value: 0.0 });
        };
        let predicted = unchanged.dropped();
        let reproduction = Reproduction { predicted, seen, ratio: predicted as f64 / seen as f64 };
        if !(REPRODUCED.0..=REPRODUCED.1).contains(&reproduction.ratio) {
            return Err(Refusal::NotReproduced { predicted, seen });
        }
        let (attempts_factor, chain) = harder(chain, sought.wanted, predicted, seen, &mut budget)?;
        let harder = run(&chain, sought.wanted, &mut budget)?;
        Ok(Self {
            which,
            by_chain,
            unchanged,
            reproduction,
            overflowed,
            attempts_factor,
            chain,
            harder,
            budget,
        })
    }
}

/// The chain with so many more first attempts in the windows that are judged that it drops as much as was seen: what is too small for what
/// happened is not to be called prevention because the model sees less of it.
fn harder(
    chain: &Chain,
    wanted: &Wanted,
    predicted: u64,
    seen: u64,
    budget: &mut u64,
) -> Result<(f64, Chain), Refusal> {
    let with = |steps: u32| {
        let factor = 1.0 + f64::from(steps) * MORE_STEP;
        (factor, more(chain, factor))
    };
    if predicted >= seen {
        return Ok(with(0));
    }
    let (mut low, mut high) = (1, MORE_STEPS_MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if run(&with(middle).1, wanted, budget)?.dropped() >= seen {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let (factor, chain) = with(high);
    if run(&chain, wanted, budget)?.dropped() < seen {
        return Err(Refusal::NotReproduced { predicted, seen });
    }
    Ok((factor, chain))
}

/// What comes of a chain; `budget`: events that may be replayed still.
pub(super) fn run(chain: &Chain, wanted: &Wanted, budget: &mut u64) -> Result<Outcome, Refusal> {
    let (outcome, events) = replay(chain, &wanted.within_s, EVENTS_MAX.min(*budget))?;
    *budget = budget.saturating_sub(events);
    Ok(outcome)
}
