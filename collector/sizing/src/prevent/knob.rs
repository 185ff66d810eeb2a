//! What of a chain can be changed, and to what. Owns the ladder of sizes that are tried; knows no replay.

use super::chain::{Chain, Entry};

/// From one size to the next: finer than what anybody sets by hand, and 40 of them are 64 times as much.
const STEP: f64 = 1.1;
/// Sizes up to so many times the present one are tried.
const TIMES_MAX: f64 = 64.0;
/// No accept queue is longer: the kernel's `somaxconn` and `listen` take more, and no server's setting goes there.
pub const SIZE_MAX: u32 = 65_535;
/// So many servers more are tried.
const SERVERS_MORE: u32 = 3;

/// One thing of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knob {
    /// How many connections wait for a worker.
    Backlog,
    /// Requests at a time.
    Workers,
    /// Connections to the next tier.
    Pool,
    /// Servers.
    Servers,
    /// A server that holds no worker while it waits.
    EventDriven,
}

/// A knob turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// What.
    pub knob: Knob,
    /// Of which tier of the chain.
    pub tier: usize,
    /// How it is; `None` where it is no number.
    pub from: Option<u32>,
    /// How it would be; `None` where it is no number.
    pub to: Option<u32>,
}

impl Knob {
    /// The sizes to try of a tier, rising; none: there is nothing to turn.
    pub(super) fn ladder(self, chain: &Chain, tier: usize) -> Vec<Change> {
        let Some(of) = chain.tiers.get(tier) else { return Vec::new() };
        let change = |from, to| Change { knob: self, tier, from, to };
        let sizes = |from: u32| ladder(from).into_iter().map(|to| change(Some(from), Some(to))).collect();
        match self {
            Self::Backlog => match of.entry {
                Entry::AcceptQueue { backlog } => sizes(backlog),
                Entry::Open => Vec::new(),
            },
            Self::Workers => of.workers.map(sizes).unwrap_or_default(),
            Self::Pool => of.pool.map(sizes).unwrap_or_default(),
            Self::Servers => {
                let from = of.speed.len() as u32;
                (1..=SERVERS_MORE).map(|more| change(Some(from), Some(from + more))).collect()
            }
            Self::EventDriven => of.workers.map(|from| change(Some(from), None)).into_iter().collect(),
        }
    }
}

impl Change {
    /// The chain with it.
    pub(super) fn of(self, chain: &mut Chain) {
        let Some(of) = chain.tiers.get_mut(self.tier) else { return };
        match (self.knob, self.to) {
            (Knob::Backlog, Some(backlog)) => of.entry = Entry::AcceptQueue { backlog },
            (Knob::Workers, Some(workers)) => of.workers = Some(workers),
            (Knob::Pool, Some(pool)) => of.pool = Some(pool),
            // What holds up one server leaves the new ones alone.
            (Knob::Servers, Some(servers)) => of.speed.resize(servers as usize, Vec::new()),
            (Knob::EventDriven, _) => of.workers = None,
            (_, None) => {}
        }
    }
}

/// Sizes above `from`, with two digits that are not zero: people set 640, not 637.
fn ladder(from: u32) -> Vec<u32> {
    let most = (f64::from(from.max(1)) * TIMES_MAX).min(f64::from(SIZE_MAX));
    let mut sizes: Vec<u32> = Vec::new();
    let mut size = f64::from(from.max(1)) * STEP;
    while size <= most {
        let unit = 10_f64.powi(((size.log10().floor() as i32) - 1).max(0));
        let rounded = ((size / unit).ceil() * unit).min(f64::from(SIZE_MAX)) as u32;
        if rounded > sizes.last().copied().unwrap_or(from) {
            sizes.push(rounded);
        }
        size *= STEP;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_rises_by_a_tenth_in_round_numbers() {
        let sizes = ladder(128);
        assert_eq!(sizes[..4], [150, 160, 180, 190]);
        assert!(sizes.is_sorted() && *sizes.last().unwrap() <= 8192 && *sizes.last().unwrap() > 7000);
        assert_eq!(ladder(2)[..3], [3, 4, 5], "each size once");
        assert!(ladder(65_535).is_empty(), "it cannot be longer");
        assert!(!ladder(0).is_empty(), "a backlog of 0 holds one");
    }
}
