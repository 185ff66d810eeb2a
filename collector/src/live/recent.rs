//! A metric over some windows, in four numbers. Knows no metric.

use serde::Serialize;

/// One metric over the last windows. `None`: missing or not covered, which is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Recent {
    pub last: Option<f64>,
    pub mean: Option<f64>,
    pub max: Option<f64>,
    pub sum: Option<f64>,
}

impl Recent {
    /// Of one value per window.
    #[must_use]
    pub fn of(values: &[Option<f64>]) -> Self {
        Self::over(values.iter().flatten().copied())
    }

    /// Of the values that are there, in their order.
    pub(super) fn over(mut there: impl Iterator<Item = f64>) -> Self {
        let Some(first) = there.next() else { return Self::default() };
        let (mut last, mut max, mut sum, mut count) = (first, first, first, 1_u64);
        for value in there {
            (last, max, sum, count) = (value, max.max(value), sum + value, count + 1);
        }
        Self { last: Some(last), mean: Some(sum / count as f64), max: Some(max), sum: Some(sum) }
    }
}
