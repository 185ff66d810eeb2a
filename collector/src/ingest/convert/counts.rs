//! From the wire's counts of the kernel to the model's, and what cannot be refused. Called by `convert` alone; knows no window.

use super::place::{PlaceError, at_most, in_batch};
use tailwater_model::window::{KernelCount, KernelCounter};
use tailwater_proto::v1;

/// Counts of one batch: an agent tells as many as there are counters in a second, and the largest batch has a little more than three.
const COUNTS_MAX: usize = 8 * 5;
/// Windows that one is of: an agent tells eight seconds at most.
const WINDOWS_MAX: u32 = 200;

/// Why counts of the kernel are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountsError {
    /// In no window of its batch, or more than an agent tells.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// It is of no window, or of more than an agent tells together.
    #[error(
        "a count of the kernel of {windows} windows that were over {ago} before: at most {WINDOWS_MAX} each, and one at least"
    )]
    Span {
        /// How many it is of.
        windows: u32,
        /// How many came after them.
        ago: u32,
    },
}

/// Each with its window in the batch. What a later version counts is left out.
pub(super) fn told(counts: &[v1::KernelCount], count: u32) -> Result<Vec<(u32, KernelCount)>, CountsError> {
    at_most("counts of the kernel in one batch", counts.len(), COUNTS_MAX)?;
    let mut found = Vec::new();
    for of in counts {
        let offset = in_batch("a count of the kernel", of.window_offset, count)?;
        let (windows, ago) = (of.windows, of.windows_ago);
        if !(1..=WINDOWS_MAX).contains(&windows) || ago > WINDOWS_MAX {
            return Err(CountsError::Span { windows, ago });
        }
        let told = |counter| (offset, KernelCount { counter, count: of.count, windows, windows_ago: ago });
        found.extend(counter(of.counter()).map(told));
    }
    Ok(found)
}

fn counter(counter: v1::KernelCounter) -> Option<KernelCounter> {
    match counter {
        v1::KernelCounter::Unspecified => None,
        v1::KernelCounter::ConntrackDropped => Some(KernelCounter::ConntrackDropped),
        v1::KernelCounter::BacklogDropped => Some(KernelCounter::BacklogDropped),
        v1::KernelCounter::BacklogSqueezed => Some(KernelCounter::BacklogSqueezed),
        v1::KernelCounter::ZeroWindow => Some(KernelCounter::ZeroWindow),
        v1::KernelCounter::ReceiveBufferFull => Some(KernelCounter::ReceiveBufferFull),
        v1::KernelCounter::TcpMemoryShort => Some(KernelCounter::TcpMemoryShort),
        v1::KernelCounter::DeviceDropped => Some(KernelCounter::DeviceDropped),
        v1::KernelCounter::CompactionStalled => Some(KernelCounter::CompactionStalled),
        v1::KernelCounter::QdiscDropped => Some(KernelCounter::QdiscDropped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_and_what_cannot_be_is_refused() {
        let of =
            |counter| v1::KernelCount { window_offset: 1, windows_ago: 2, windows: 20, counter, count: 7 };
        let zero = of(v1::KernelCounter::ZeroWindow.into());
        let expected =
            KernelCount { counter: KernelCounter::ZeroWindow, count: 7, windows: 20, windows_ago: 2 };
        assert_eq!(told(&[of(0), zero, of(99)], 2), Ok(vec![(1, expected)]));
        let refused = |wrong: v1::KernelCount| told(&[wrong], 2).unwrap_err();
        let outside = refused(v1::KernelCount { window_offset: 2, ..zero });
        assert_eq!(outside.to_string(), "a count of the kernel in window 2 of 2");
        assert_eq!(refused(v1::KernelCount { windows: 0, ..zero }), CountsError::Span { windows: 0, ago: 2 });
        for wrong in [
            v1::KernelCount { windows: WINDOWS_MAX + 1, ..zero },
            v1::KernelCount { windows_ago: WINDOWS_MAX + 1, ..zero },
        ] {
            assert!(matches!(refused(wrong), CountsError::Span { .. }), "{wrong:?}");
        }
        let many = told(&[zero; COUNTS_MAX + 1], 2).unwrap_err();
        assert_eq!(many.to_string(), "41 counts of the kernel in one batch: at most 40");
    }
}
