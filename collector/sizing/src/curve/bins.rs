//! Bins of requests in flight: which number falls where. Owns the layout, which whoever counts and whoever reads must
//! share; knows nothing of what is counted.
//!
//! Numbers below 16 have a bin each, above that there are eight to each doubling, up to 4,095; what is more falls
//! into the last. That is 80 bins, found with one shift and one mask, and a bin's middle is within a sixteenth of all
//! that fall into it. The last one is open: it has no middle, and no curve reads it.

/// How many bins there are.
pub const BINS: usize = 80;
/// Time, s, and answers by bin.
pub(super) type Bins = [(f64, f64); BINS];
/// Numbers in flight below this have a bin each.
const EXACT: u32 = 16;
/// Bins to a doubling, as a power of two.
const PARTS_LOG2: u32 = 3;

/// The bin of a number of requests in flight.
pub fn bin_of(in_flight: u32) -> usize {
    if in_flight < EXACT {
        return in_flight as usize;
    }
    let octave = in_flight.ilog2();
    let part = (in_flight >> (octave - PARTS_LOG2)) & ((1 << PARTS_LOG2) - 1);
    ((EXACT + ((octave - EXACT.ilog2()) << PARTS_LOG2) + part) as usize).min(BINS - 1)
}

/// The least and the greatest number in flight of a bin; of one beyond the last, those of the last.
pub fn ends_of(bin: usize) -> (u32, u32) {
    let bin = bin.min(BINS - 1) as u32;
    let Some(above) = bin.checked_sub(EXACT) else { return (bin, bin) };
    let octave = EXACT.ilog2() + (above >> PARTS_LOG2);
    let width = 1 << (octave - PARTS_LOG2);
    let low = (1 << octave) + (above & ((1 << PARTS_LOG2) - 1)) * width;
    (low, low + width - 1)
}

/// The middle of a bin, requests in flight.
pub fn middle_of(bin: usize) -> f64 {
    let (low, high) = ends_of(bin);
    f64::midpoint(f64::from(low), f64::from(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_falls_between_the_ends_of_its_bin() {
        for n in 0..4096 {
            let bin = bin_of(n);
            let (low, high) = ends_of(bin);
            assert!((low..=high).contains(&n), "{n} in {bin}: {low} to {high}");
            let off = (middle_of(bin) / f64::from(n.max(1)) - 1.0).abs();
            assert!(n == 0 || off < 0.0625, "{n} in {bin}");
        }
        assert_eq!((bin_of(15), bin_of(16), bin_of(17), bin_of(18)), (15, 16, 16, 17));
        assert_eq!((bin_of(4095), bin_of(4096), bin_of(u32::MAX)), (BINS - 1, BINS - 1, BINS - 1));
        assert_eq!(ends_of(BINS + 7), (3840, 4095));
    }

    #[test]
    fn bins_follow_each_other() {
        for bin in 1..BINS {
            assert_eq!(ends_of(bin).0, ends_of(bin - 1).1 + 1, "{bin}");
        }
    }
}
