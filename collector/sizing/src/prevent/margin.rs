//! The same overflow with more of it: more first attempts, or a stall that lasts longer. Owns how much more a size has to stand before it is
//! called prevention, and how a chain is made harder; knows no replay.

use super::chain::{Chain, Tier};

/// A size has to stand so many times the first attempts that came, and a stall so many times as long, each by itself: the same kind of
/// trouble is not the same to the packet when it comes again. 385 injections of the laboratory, 4 to 12 of each of 47 kinds that overflow
/// a queue with a known number of places: what came in the stall (attempts that were dropped, and places) was in nine of ten pairs of one
/// kind at most 1.13 times that of the other, in 19 of 20 at most 1.20 times, and in 39 of 40 at most 1.28 times.
pub const MARGIN: f64 = 1.2;

/// With so many times the first attempts in the windows that are judged.
pub(super) fn more(chain: &Chain, factor: f64) -> Chain {
    let mut chain = chain.clone();
    let judged = chain.judged.clone();
    let counts: Vec<f64> =
        chain.first_attempts[judged.clone()].iter().map(|n| f64::from(*n) * factor).collect();
    chain.first_attempts[judged].copy_from_slice(&whole(&counts));
    chain
}

/// With the windows that are judged so many times as long: as many attempts a second, and each server as fast as it was then.
pub(super) fn longer(chain: &Chain, factor: f64) -> Chain {
    let (from, to) = (chain.judged.start, chain.judged.end);
    let windows = ((to - from) as f64 * factor).ceil() as usize;
    let mut chain = chain.clone();
    let old: Vec<f64> = chain.first_attempts[from..].iter().map(|n| f64::from(*n)).collect();
    let (old, after) = old.split_at(to - from);
    let drawn = drawn_out(old, after.first().copied().unwrap_or(0.0), factor, windows);
    chain.first_attempts.splice(from..to, whole(&drawn));
    chain.judged = from..from + windows;
    for speed in chain.tiers.iter_mut().flat_map(|tier: &mut Tier| &mut tier.speed) {
        // Beyond its end a server is as fast as usual.
        if speed.len() > from {
            speed.resize(speed.len().max(to), 1.0);
            let drawn = drawn_out(&speed[from..to], speed.get(to).copied().unwrap_or(1.0), factor, windows);
            speed.splice(from..to, drawn);
        }
    }
    chain
}

/// Values of windows drawn out over more of them, each the mean of what it covers; what is left of the last one is as it is afterwards.
fn drawn_out(old: &[f64], after: f64, factor: f64, windows: usize) -> Vec<f64> {
    // The sum of all before a place between two windows.
    let until = |place: f64| {
        let (full, part) = ((place.floor() as usize).min(old.len()), place.fract());
        old[..full].iter().sum::<f64>() + part * old.get(full).copied().unwrap_or(after)
    };
    let of = |n: usize| (until((n + 1) as f64 / factor) - until(n as f64 / factor)) * factor;
    // A difference of sums may be a rounding beside its terms.
    let most = old.iter().copied().fold(after, f64::max);
    (0..windows).map(|n| of(n).clamp(0.0, most)).collect()
}

/// Whole numbers with the same sums up to each place, within a half: of few attempts in a window none would be more otherwise.
fn whole(counts: &[f64]) -> Vec<u32> {
    let (mut sum, mut told) = (0.0, 0.0);
    let mut of = |n: &f64| {
        sum += n;
        let next = sum.round() - told;
        told = sum.round();
        next as u32
    };
    counts.iter().map(&mut of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::chain::Entry;
    use super::*;

    fn chain(first_attempts: Vec<u32>, judged: std::ops::Range<usize>, speed: Vec<f64>) -> Chain {
        let tier = Tier {
            name: "web".into(),
            entry: Entry::AcceptQueue { backlog: 10 },
            workers: Some(1),
            seen_to: None,
            pool: None,
            calls: 0.0,
            cpus: 1.0,
            cpu_s: 0.001,
            wait_s: 0.0,
            accepts_nothing_when_held: false,
            speed: vec![speed, Vec::new()],
        };
        Chain { tiers: vec![tier], first_attempts, judged, retries_s: Vec::new() }
    }

    #[test]
    fn more_attempts_are_as_many_more_in_all_however_few_a_window_has() {
        let harder = more(&chain(vec![2; 30], 10..20, Vec::new()), 1.2);
        assert_eq!(harder.first_attempts[10..20].iter().sum::<u32>(), 24);
        assert_eq!(
            (&harder.first_attempts[..10], &harder.first_attempts[20..]),
            (&[2; 10][..], &[2; 10][..])
        );
        assert_eq!(harder.judged, 10..20);
    }

    #[test]
    fn a_stall_is_drawn_out_with_what_comes_in_it_and_nothing_else_is() {
        let speed = [vec![1.0; 10], vec![0.0; 5], vec![0.5; 5]].concat();
        let longer = longer(&chain(vec![10; 30], 10..20, speed), 1.2);
        assert_eq!(longer.judged, 10..22);
        assert_eq!(longer.first_attempts, [10; 32]);
        let speed = &longer.tiers[0].speed[0];
        let expect = [vec![1.0; 10], vec![0.0; 6], vec![0.5; 6]].concat();
        assert!(speed.iter().zip(&expect).all(|(of, expect)| (of - expect).abs() < 1e-9), "{speed:?}");
        assert_eq!(speed.len(), expect.len());
        assert!(longer.tiers[0].speed[1].is_empty(), "who was not held up is not");
        longer.check().unwrap();
    }

    #[test]
    fn a_burst_in_one_window_is_a_longer_burst_and_not_two() {
        let mut attempts = vec![10; 30];
        attempts[12] = 300;
        let longer = longer(&chain(attempts, 10..17, vec![1.0; 12]), 1.2);
        let sum: u32 = longer.first_attempts[longer.judged.clone()].iter().sum();
        // 8.4 windows for seven: 360 in all before, 1.2 times as many now, and 6 in the rest of the ninth.
        assert_eq!((longer.judged, sum), (10..19, 438));
        assert!(longer.first_attempts.iter().all(|n| *n <= 300));
        assert_eq!(longer.tiers[0].speed[0].len(), 19, "what it did beyond its end is as usual");
    }
}
