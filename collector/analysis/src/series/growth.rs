//! Growth of a queue: from which window on a series rose to its peak. Owns usual level and onset; knows no resource.

use super::{Series, quantile};

/// Windows from which the usual level is taken: 4 s.
const USUAL_WINDOWS: u64 = 80;
/// What happens at a moment may have begun this long before it (500 ms): these windows are not asked for what was usual.
pub(crate) const LEAD_WINDOWS: u64 = 10;
/// With fewer windows than this there is hardly any past.
pub(crate) const PAST_WINDOWS: usize = 10;
/// Part of the windows before, the quietest, that show the level of something that waits.
const QUIET_PART: f64 = 0.1;
/// Windows in a row that were quiet: 200 ms, longer than answers hold a queue down that is full again at once.
const CALM_WINDOWS: usize = 4;
/// Part of the rise that is still taken for noise.
const ONSET_RISE: f64 = 0.1;
/// So many windows in a row below that do not end a rise: answers hold a queue down for a moment while it grows.
pub(crate) const DIPS: usize = 1;
/// A rise smaller than this is none, in requests.
pub(crate) const RISE_MIN: f64 = 2.0;
/// Nor is one that is not this many times the usual level.
pub(crate) const RISE_RATIO: f64 = 2.0;

/// A rise of a series to a peak.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    /// First window above the usual level.
    pub(crate) onset: u64,
    /// Window of the peak.
    pub(crate) at: u64,
    /// The usual level.
    pub(crate) usual: f64,
    pub(crate) peak: f64,
}

impl Growth {
    pub(crate) fn rise(&self) -> f64 {
        self.peak - self.usual
    }

    /// Whether nothing of it is left at this level.
    pub(crate) fn is_gone(&self, level: f64) -> bool {
        level <= floor(self.usual, self.peak)
    }
}

/// The rise whose peak lies in `[from, to]`; `None` if the series did not grow there (`risen`). It may dip for so many windows in a row.
pub(crate) fn growth(series: &Series<f64>, from: u64, to: u64, dips: usize) -> Option<Growth> {
    let (at, peak) =
        series.range(from, to).fold(None, |best: Option<(u64, f64)>, (index, value)| match best {
            Some((_, most)) if *value <= most => best,
            _ => Some((index, *value)),
        })?;
    let usual = quiet(series, from);
    if !risen(peak, usual) {
        return None;
    }
    let floor = floor(usual, peak);
    let mut onset = at;
    // A missing one says nothing.
    let mut below = 0;
    for index in (series.first..at).rev() {
        match series.get(index) {
            Some(value) if *value > floor => {
                onset = index;
                below = 0;
            }
            Some(_) if below == dips => break,
            Some(_) => below += 1,
            None => {}
        }
    }
    Some(Growth { onset, at, usual, peak })
}

/// Up to this a queue that rose to `peak` is gone.
fn floor(usual: f64, peak: f64) -> f64 {
    usual + ONSET_RISE * (peak - usual)
}

/// Whether a level is so much above the usual one that it has grown.
fn risen(level: f64, usual: f64) -> bool {
    level - usual >= RISE_MIN && level >= RISE_RATIO * usual
}

/// The rate before `index`: the median of the windows before, without the last half second.
pub(crate) fn usual(series: &Series<f64>, index: u64) -> f64 {
    before(series, index, 0.5)
}

/// The level of something that waits, before `index`: the quietest tenth of the windows before, without the last half second. Not
/// the median: millibottlenecks come in series, and the queues and retries of the one before may fill most of the past. Where they
/// filled all of it, and had been gone for only some windows, it is the level of these.
pub(crate) fn quiet(series: &Series<f64>, index: u64) -> f64 {
    let tenth = before(series, index, QUIET_PART);
    let from = index.saturating_sub(USUAL_WINDOWS);
    calm(series, from, index.saturating_sub(1)).map_or(tenth, |calm| calm.min(tenth))
}

/// The lowest level under which the series stayed for [`CALM_WINDOWS`] in a row, within `[from, to]`.
fn calm(series: &Series<f64>, from: u64, to: u64) -> Option<f64> {
    let values: Vec<f64> = series.range(from, to).map(|(_, v)| *v).collect();
    values.windows(CALM_WINDOWS).map(|w| w.iter().copied().fold(0.0, f64::max)).min_by(f64::total_cmp)
}

fn before(series: &Series<f64>, index: u64, part: f64) -> f64 {
    let until = index.saturating_sub(LEAD_WINDOWS);
    let before = index.saturating_sub(USUAL_WINDOWS);
    if series.range(before, until).count() >= PAST_WINDOWS {
        return quantile(series.range(before, until).map(|(_, v)| *v), part);
    }
    // Hardly any past: the quietest quarter of what there is.
    let mut values: Vec<f64> = series.range(series.first, index).map(|(_, v)| *v).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 4).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], from: u64, to: u64, expect: Option<(u64, u64)>) {
        let series = Series { first: 100, values: values.iter().copied().map(Some).collect() };
        assert_eq!(growth(&series, from, to, DIPS).map(|g| (g.onset, g.at)), expect, "{values:?}");
    }

    #[test]
    fn onset_is_where_the_rise_began() {
        let quiet = [5.0; 40];
        let rising: Vec<f64> =
            quiet.iter().copied().chain([30.0, 80.0, 150.0, 279.0, 279.0, 100.0]).collect();
        check(&rising, 135, 145, Some((141, 143)));
        let dip: Vec<f64> = quiet.iter().copied().chain([40.0, 20.0, 150.0, 279.0]).collect();
        check(&dip, 135, 143, Some((140, 143)));
        check(&quiet, 110, 130, None);
        let noisy: Vec<f64> = (0..50).map(|i| if i % 2 == 0 { 20.0 } else { 34.0 }).collect();
        check(&noisy, 130, 149, None);
    }

    #[test]
    fn an_earlier_rise_is_another_one() {
        let mut values = vec![5.0; 60];
        values[20..25].fill(200.0);
        values[50..54].fill(250.0);
        check(&values, 145, 155, Some((150, 150)));
    }

    #[test]
    fn without_dips_a_rise_begins_after_the_last_moment_in_which_it_was_gone() {
        let values: Vec<f64> = [5.0; 40].into_iter().chain([40.0, 50.0, 8.0, 150.0, 279.0]).collect();
        let series = Series { first: 100, values: values.into_iter().map(Some).collect() };
        let onset = |dips| growth(&series, 135, 144, dips).map(|g| g.onset);
        assert_eq!((onset(DIPS), onset(0)), (Some(140), Some(143)));
    }

    #[test]
    fn an_overload_that_filled_the_past_hides_no_rise() {
        let after = [60.0, 20.0, 12.0, 14.0, 9.0, 16.0, 45.0, 84.0, 150.0, 150.0];
        let values: Vec<f64> = [150.0; 90].into_iter().chain(after).collect();
        check(&values, 196, 199, Some((196, 198)));
        // Full again at once: it was never gone.
        let values: Vec<f64> = [150.0; 90].into_iter().chain([60.0, 20.0, 90.0, 150.0, 150.0]).collect();
        check(&values, 191, 194, None);
    }

    #[test]
    fn a_short_past_is_judged_by_its_quiet_part() {
        check(&[3.0, 4.0, 90.0, 150.0], 102, 103, Some((102, 103)));
    }
}
