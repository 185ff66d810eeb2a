//! How good forecasts of right and wrong are: expected calibration error, Brier score, area under the curve, reliability. Pure.
//!
//! Sources: G. Brier, "Verification of forecasts expressed in terms of probability", 1950; M. Naeini, G. Cooper, M. Hauskrecht, "Obtaining well
//! calibrated probabilities using Bayesian binning", 2015 (expected calibration error), here with bins of equal mass as in K. Nguyen,
//! B. O'Connor, "Posterior calibration and exploratory analysis for natural language processing models", 2015; B. Efron, R. Tibshirani,
//! "An Introduction to the Bootstrap", 1993; E. Wilson, "Probable inference", 1927.

/// Bins of a reliability table. Fewer than fill them with [`BIN_MIN`] forecasts each make fewer.
const BINS: usize = 10;
/// A share of fewer than this says nothing.
const BIN_MIN: usize = 10;
/// Resamplings behind an interval.
const RESAMPLED: usize = 1000;
/// Of the normal distribution: 95 % of it lie within this many standard deviations.
const Z: f64 = 1.96;

/// A forecast that came out: the chance that was given, whether it was right, and a number of what it was taken of. Those of the same number
/// (a cell, a seed) are alike, and are resampled together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// 0 to 1.
    pub chance: f64,
    /// How it came out.
    pub right: bool,
    /// What it was taken of.
    pub group: usize,
}

/// A bin of the reliability table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// Forecasts in it.
    pub count: usize,
    /// Least of them.
    pub from: f64,
    /// Most.
    pub to: f64,
    /// Their mean.
    pub said: f64,
    /// Part that was right.
    pub right: f64,
    /// Wilson's 95 % bounds of it.
    pub bounds: (f64, f64),
}

/// Wilson's 95 % bounds of a share; 0 and 1 of nothing.
#[must_use]
pub fn wilson(right: usize, of: usize) -> (f64, f64) {
    if of == 0 {
        return (0.0, 1.0);
    }
    let (n, p, z2) = (of as f64, right as f64 / of as f64, Z * Z);
    let middle = p + z2 / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let all = 1.0 + z2 / n;
    (((middle - half) / all).max(0.0), ((middle + half) / all).min(1.0))
}

/// The forecasts in order, cut into bins of equally many. Equal ones are in one bin, in whatever order they came: some bins are larger by
/// that, and some smaller.
#[must_use]
pub fn bins(forecasts: &[Forecast]) -> Vec<Bin> {
    let mut sorted = forecasts.to_vec();
    sorted.sort_by(|a, b| a.chance.total_cmp(&b.chance));
    let bins = (sorted.len() / BIN_MIN).clamp(1, BINS);
    // Equal forecasts are in one bin, whatever order they came in.
    let edge = |n: usize| match sorted.get(n * sorted.len() / bins) {
        Some(at) => sorted.partition_point(|f| f.chance < at.chance),
        None => sorted.len(),
    };
    let cut = |n| sorted.get(edge(n)..edge(n + 1));
    (0..bins).filter_map(cut).filter_map(bin).collect()
}

fn bin(of: &[Forecast]) -> Option<Bin> {
    let (first, last) = (of.first()?, of.last()?);
    let right = of.iter().filter(|f| f.right).count();
    Some(Bin {
        count: of.len(),
        from: first.chance,
        to: last.chance,
        said: of.iter().map(|f| f.chance).sum::<f64>() / of.len() as f64,
        right: right as f64 / of.len() as f64,
        bounds: wilson(right, of.len()),
    })
}

/// Expected calibration error: how far what was said is from what was right, by bin, weighted by how many are in it. 0 of nothing.
#[must_use]
pub fn calibration_error(forecasts: &[Forecast]) -> f64 {
    let all = forecasts.len().max(1) as f64;
    bins(forecasts).iter().map(|bin| bin.count as f64 / all * (bin.said - bin.right).abs()).sum()
}

/// The mean square of what was said less what came out; lower is better. 0 of nothing.
#[must_use]
pub fn brier(forecasts: &[Forecast]) -> f64 {
    let squares = forecasts.iter().map(|f| (f.chance - f64::from(u8::from(f.right))).powi(2));
    squares.sum::<f64>() / forecasts.len().max(1) as f64
}

/// Brier score of who always says the share that came out right, and knows it beforehand.
#[must_use]
pub fn brier_of_constant(forecasts: &[Forecast]) -> f64 {
    let right = forecasts.iter().filter(|f| f.right).count() as f64 / forecasts.len().max(1) as f64;
    right * (1.0 - right)
}

/// Area under the receiver's curve: how often a right one was said surer than a wrong one, ties half. `None` where there are not both.
#[must_use]
pub fn area_under_curve(forecasts: &[Forecast]) -> Option<f64> {
    let mut sorted: Vec<(f64, bool)> = forecasts.iter().map(|f| (f.chance, f.right)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut won, mut wrong_before, mut right_before) = (0.0, 0.0, 0.0);
    for same in sorted.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let right = same.iter().filter(|(_, right)| *right).count() as f64;
        let wrong = same.len() as f64 - right;
        won += right * (wrong_before + 0.5 * wrong);
        wrong_before += wrong;
        right_before += right;
    }
    let pairs = wrong_before * right_before;
    (pairs > 0.0).then(|| won / pairs)
}

/// A figure with so many decimals and its interval, for people.
#[must_use]
pub fn told(forecasts: &[Forecast], decimals: usize, figure: impl Fn(&[Forecast]) -> Option<f64>) -> String {
    let Some(is) = figure(forecasts) else { return "not known".to_owned() };
    let bounds = interval(forecasts, figure)
        .map_or_else(String::new, |(low, high)| format!(" ({low:.3} to {high:.3})"));
    format!("{is:.decimals$}{bounds}")
}

/// 95 % interval of a figure by the bootstrap over groups (percentiles); `None` where it is never known. The same for the same forecasts. The
/// calibration error of a resample is on average larger than that of the whole, because what is seen twice scatters more: its interval is
/// rather too high than too low.
#[must_use]
pub fn interval(forecasts: &[Forecast], figure: impl Fn(&[Forecast]) -> Option<f64>) -> Option<(f64, f64)> {
    let groups = forecasts.iter().map(|f| f.group + 1).max()?;
    let mut by_group: Vec<Vec<Forecast>> = vec![Vec::new(); groups];
    for forecast in forecasts {
        by_group.get_mut(forecast.group)?.push(*forecast);
    }
    by_group.retain(|group| !group.is_empty());
    let mut state = 1_u64;
    let mut values: Vec<f64> = (0..RESAMPLED)
        .filter_map(|_| {
            let mut drawn = Vec::with_capacity(forecasts.len());
            for _ in 0..by_group.len() {
                // The upper bits of a linear congruence (Knuth's constants): repeatable, and random enough to draw by.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % by_group.len();
                drawn.extend(by_group.get(at).into_iter().flatten());
            }
            figure(&drawn)
        })
        .collect();
    values.sort_by(f64::total_cmp);
    let at =
        |part: f64| values.get((part * (values.len().saturating_sub(1)) as f64).round() as usize).copied();
    Some((at(0.025)?, at(0.975)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` forecasts of a chance, of which so many are right.
    fn of(chance: f64, count: usize, right: usize) -> impl Iterator<Item = Forecast> {
        (0..count).map(move |n| Forecast { chance, right: n < right, group: n })
    }

    #[test]
    fn who_says_what_comes_out_has_no_error_and_who_is_too_sure_by_a_fifth_has_that() {
        let honest: Vec<Forecast> = of(0.2, 100, 20).chain(of(0.8, 100, 80)).collect();
        assert!(calibration_error(&honest) < 1e-9);
        let sure: Vec<Forecast> = of(1.0, 10, 8).collect();
        assert!((calibration_error(&sure) - 0.2).abs() < 1e-9);
        assert_eq!(bins(&sure).len(), 1, "ten make one bin");
    }

    #[test]
    fn what_is_equal_is_in_one_bin_in_whatever_order_it_came() {
        // Right ones first, as a list by injections may have them: cut by order they would be bins of right and bins of wrong ones.
        let mut forecasts: Vec<Forecast> = of(0.5, 60, 30).chain(of(0.9, 40, 36)).collect();
        let counts = |forecasts: &[Forecast]| bins(forecasts).iter().map(|b| b.count).collect::<Vec<_>>();
        assert_eq!(counts(&forecasts), [60, 40]);
        let error = calibration_error(&forecasts);
        forecasts.reverse();
        assert!(error < 1e-9 && calibration_error(&forecasts) < 1e-9, "{error}");
        let apart: Vec<Forecast> = (0..100).flat_map(|n| of(f64::from(n) / 100.0, 1, 1)).collect();
        assert_eq!(counts(&apart), [10; 10], "where none are equal there are equally many");
    }

    #[test]
    fn brier_is_by_hand_and_a_constant_that_knows_the_share_is_not_beaten_by_itself() {
        let two = [
            Forecast { chance: 0.9, right: true, group: 0 },
            Forecast { chance: 0.4, right: false, group: 1 },
        ];
        assert!((brier(&two) - (0.01 + 0.16) / 2.0).abs() < 1e-9);
        let constant: Vec<Forecast> = of(0.7, 10, 7).collect();
        assert!((brier(&constant) - brier_of_constant(&constant)).abs() < 1e-9);
    }

    #[test]
    fn the_area_is_the_share_of_pairs_in_the_right_order() {
        let all: Vec<Forecast> = of(0.9, 2, 2).chain(of(0.5, 2, 1)).chain(of(0.1, 1, 0)).collect();
        // Three right (0.9, 0.9, 0.5), two wrong (0.5, 0.1): of six pairs five are in order and one is a tie.
        assert!((area_under_curve(&all).unwrap() - 5.5 / 6.0).abs() < 1e-9);
        assert_eq!(area_under_curve(&all[..2]), None, "nothing is wrong");
    }

    #[test]
    fn bounds_are_wilsons_and_a_share_of_all_is_not_sure() {
        // Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20.
        for (right, n, low, high) in
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)]
        {
            let (a, b) = wilson(right, n);
            assert!((a - low).abs() < 2e-4 && (b - high).abs() < 2e-4, "{right}/{n}: {a} {b}");
        }
        assert!(wilson(442, 442).0 < 0.992);
    }

    #[test]
    fn an_interval_holds_the_figure_is_repeatable_and_wider_where_what_is_alike_is_drawn_together() {
        let alone: Vec<Forecast> = of(0.8, 200, 160).collect();
        let alike: Vec<Forecast> = alone.iter().map(|f| Forecast { group: f.group / 20, ..*f }).collect();
        let share =
            |f: &[Forecast]| Some(f.iter().filter(|f| f.right).count() as f64 / f.len().max(1) as f64);
        let (low, high) = interval(&alone, share).unwrap();
        assert!(low < 0.8 && 0.8 < high && high - low < 0.15, "{low} {high}");
        assert_eq!(interval(&alone, share), Some((low, high)));
        let together = interval(&alike, share).unwrap();
        assert!(together.1 - together.0 > high - low, "{together:?}");
    }
}
