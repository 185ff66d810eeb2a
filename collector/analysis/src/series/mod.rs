//! Values of one entity over a span of windows, drawn from the history, and the small statistics that rules need. `sample` has the values
//! themselves, `drawn` those that were looked at before, `growth` when one of them rose. Knows no threshold of a rule.

pub(crate) mod drawn;
pub(crate) mod growth;
pub(crate) mod sample;

use crate::frame::history::{HISTORY_WINDOWS, History};
use tailwater_model::window::{HostWindow, WINDOW_NS};

/// What happens at one moment falls into its window, and by other clocks and later looks into the next: what lies no more than so many
/// windows apart belongs together (100 ms).
pub(crate) const EDGE_WINDOWS: u64 = 2;

/// Values by window index; `None`: the host's window is missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series<T> {
    pub(crate) first: u64,
    pub(crate) values: Vec<Option<T>>,
}

impl<T> Series<T> {
    pub(crate) fn get(&self, index: u64) -> Option<&T> {
        self.values.get(usize::try_from(index.checked_sub(self.first)?).ok()?)?.as_ref()
    }

    /// The present values of `[from, to]`.
    pub(crate) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &T)> {
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let take =
            usize::try_from(to.saturating_add(1).saturating_sub(from.max(self.first))).unwrap_or(usize::MAX);
        let start = self.first;
        self.values
            .iter()
            .enumerate()
            .skip(skip)
            .take(take)
            .filter_map(move |(i, v)| Some((start.saturating_add(i as u64), v.as_ref()?)))
    }

    /// One past the last index.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(self.values.len() as u64)
    }

    pub(crate) fn map<U>(&self, f: impl Fn(&T) -> U) -> Series<U> {
        Series { first: self.first, values: self.values.iter().map(|v| v.as_ref().map(&f)).collect() }
    }

    /// Part of `[from, to]` that is missing, 0 to 1.
    pub(crate) fn missing(&self, from: u64, to: u64) -> f64 {
        let all = to.saturating_add(1).saturating_sub(from);
        if all == 0 { 0.0 } else { 1.0 - self.range(from, to).count() as f64 / all as f64 }
    }

    /// `[first, last]` of a host; of a longer span than is remembered its newest end.
    pub(crate) fn draw(
        history: &History,
        host: &str,
        first: u64,
        last: u64,
        mut f: impl FnMut(&HostWindow) -> T,
    ) -> Self {
        let (first, last) = remembered(history, first, last);
        let windows = history.windows_of(host);
        Self { first, values: (first..=last).map(|index| windows.at(index).map(&mut f)).collect() }
    }
}

/// Of `[first, last]` what can be remembered.
fn remembered(history: &History, first: u64, last: u64) -> (u64, u64) {
    (first.max(history.next.saturating_sub(HISTORY_WINDOWS as u64)), last.min(history.next.saturating_sub(1)))
}

/// An integral over one window as a mean.
pub(crate) fn mean(integral_ns: u64) -> f64 {
    integral_ns as f64 / WINDOW_NS as f64
}

/// The value below which `part` of the values lie, 0.5 for the median; 0 of nothing.
pub(crate) fn quantile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get((values.len() as f64 * part) as usize).copied().unwrap_or(0.0)
}

/// The mean; 0 of nothing.
pub(crate) fn average(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), v| (sum + v, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// Runs of windows where `is` holds, one window that does not being bridged, as `(first, last)`.
pub(crate) fn runs<T>(series: &Series<T>, is: impl Fn(&T) -> bool) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (index, value) in series.range(series.first, series.end()) {
        if !is(value) {
            continue;
        }
        match runs.last_mut() {
            Some((_, last)) if index - *last <= EDGE_WINDOWS => *last = index,
            _ => runs.push((index, index)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_bridge_one_window() {
        let series = Series { first: 10, values: [1, 1, 0, 1, 0, 0, 1].map(Some).to_vec() };
        assert_eq!(runs(&series, |v| *v == 1), [(10, 13), (16, 16)]);
    }

    #[test]
    fn ranges_are_inclusive_and_forgiving() {
        let series = Series { first: 10, values: vec![Some(1), None, Some(3)] };
        assert_eq!(series.range(0, 99).map(|(i, v)| (i, *v)).collect::<Vec<_>>(), [(10, 1), (12, 3)]);
        assert_eq!(series.range(11, 12).count(), 1);
        assert_eq!(series.range(13, 99).count(), 0);
        assert_eq!((series.get(12), series.get(11), series.get(9)), (Some(&3), None, None));
        assert!((series.missing(10, 11) - 0.5).abs() < 1e-9);
        assert_eq!(series.end(), 13);
    }

    #[test]
    fn statistics_of_nothing_are_zero() {
        assert_eq!(quantile(std::iter::empty(), 0.5).to_bits(), 0.0_f64.to_bits());
        assert_eq!(average(std::iter::empty()).to_bits(), 0.0_f64.to_bits());
        assert!((quantile([5.0, 1.0, 3.0].into_iter(), 0.5) - 3.0).abs() < 1e-9);
    }
}
