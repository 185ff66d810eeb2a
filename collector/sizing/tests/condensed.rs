//! What condensing a curve changes: the interval of its bootstrap, held against one over whole blocks with all their bins.

mod support;

use std::collections::BTreeMap;
use support::{Noise, near, tomcat};
use tailwater_sizing::concurrency::{fit, fit_curve};
use tailwater_sizing::curve::{Block, Cell, Curve, Point, bins};

type Cells = BTreeMap<u8, (f64, f64)>;

/// Stretches of 3 s of B's Tomcat, in which the number in flight wanders so that neighbouring states come together.
fn traffic(stretches: usize, seed: u64) -> Vec<Cells> {
    let mut random = Noise(seed);
    let mut at = 20.0_f64;
    let stretch = |_| {
        let mut cells = Cells::new();
        for _ in 0..60 {
            at = (at * (0.25 * random.normal()).exp()).clamp(1.0, 110.0);
            let bin = bins::bin_of(at as u32);
            let expected = tomcat().throughput(bins::middle_of(bin)) * 0.05;
            let cell = cells.entry(bin as u8).or_default();
            *cell = (cell.0 + 0.05, cell.1 + (expected + expected.sqrt() * random.normal()).max(0.0));
        }
        cells
    };
    (0..stretches).map(stretch).collect()
}

fn points<'a>(of: impl Iterator<Item = &'a Cells>) -> Vec<Point> {
    let mut all = Cells::new();
    for (bin, (seconds, completions)) in of.flatten() {
        let sum = all.entry(*bin).or_default();
        *sum = (sum.0 + seconds, sum.1 + completions);
    }
    let point = |(bin, (seconds, completions)): (&u8, &(f64, f64))| Point {
        in_flight: bins::middle_of(usize::from(*bin)),
        throughput: completions / seconds,
        error: completions.sqrt() / seconds,
    };
    all.iter().filter(|(_, (_, completions))| *completions >= 20.0).map(point).collect()
}

#[test]
fn a_condensed_curve_has_the_fit_of_its_bins_and_the_interval_of_whole_blocks() {
    let (mut wide, mut condensed) = (0.0, 0.0);
    for seed in 1..=10 {
        let stretches = traffic(200, seed);
        let mut curve = Curve::default();
        for cells in &stretches {
            let cell = |(bin, (seconds, completions)): (&u8, &(f64, f64))| Cell {
                bin: *bin,
                seconds: *seconds,
                completions: *completions,
            };
            curve.push(&Block::new(cells.iter().map(cell)).unwrap());
        }
        let found = fit_curve(&curve).unwrap();
        let exact = fit(&points(stretches.iter())).unwrap();
        near("N_b", found.in_flight.unwrap().value, exact.optimum().unwrap().in_flight, 1e-9);
        near("β", found.law.coherency_s, exact.coherency_s, 1e-9);

        let mut random = Noise(seed + 100);
        let mut best = Vec::new();
        for _ in 0..400 {
            let drawn = (0..200).map(|_| &stretches[((random.even() * 200.0) as usize).min(199)]);
            best.push(fit(&points(drawn)).unwrap().optimum().unwrap().in_flight);
        }
        best.sort_by(f64::total_cmp);
        let interval = found.in_flight.unwrap();
        println!("{:.2} to {:.2}, whole {:.2} to {:.2}", interval.low, interval.high, best[10], best[389]);
        wide += best[389] - best[10];
        condensed += interval.high - interval.low;
        // A curve read back says the same but for what three digits round.
        let back: Curve = serde_json::from_str(&serde_json::to_string(&curve).unwrap()).unwrap();
        let again = fit_curve(&back).unwrap();
        near("N_b, stored", again.in_flight.unwrap().value, interval.value, 1e-4);
        let width = |of: tailwater_sizing::evidence::Estimate| of.high - of.low;
        near("interval, stored", width(again.in_flight.unwrap()), width(interval), 0.25);
    }
    near("mean width of the interval", condensed / 10.0, wide / 10.0, 0.15);
}
