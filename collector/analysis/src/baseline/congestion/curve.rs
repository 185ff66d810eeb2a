//! Load against throughput of one listener, as fixed bins of decaying sums, kept window by window. Owns what is remembered;
//! `knee` owns what follows from it.

/// Bins: loads below 2 in steps of 1/8 request, above that eight to each doubling, up to 131,072 requests.
pub(crate) const BINS_MAX: usize = 16 + 16 * 8;
/// Windows after which what was seen counts half: 5 minutes of windows that came, whatever is missing between them.
const HALVE_WINDOWS: u32 = 6000;
/// Windows before a freeze can be told from the usual (2 s).
const USUAL_WINDOWS: f64 = 40.0;
/// Answers per window below which 50 ms cannot tell a freeze from chance: of 5 expected none come in 0.7 % of windows (Poisson).
pub(crate) const ANSWERS_MIN: f64 = 5.0;
/// Part of the usual answers that counts as near zero.
pub(crate) const NEAR_ZERO: f64 = 0.1;

/// Decayed sums over the windows of one interval of load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Bin {
    pub(crate) windows: f64,
    pub(crate) load: f64,
    pub(crate) answered: f64,
    pub(crate) answered_squared: f64,
}

impl Bin {
    pub(crate) fn add(&mut self, other: &Self) {
        self.windows += other.windows;
        self.load += other.load;
        self.answered += other.answered;
        self.answered_squared += other.answered_squared;
    }

    fn halve(&mut self) {
        self.windows /= 2.0;
        self.load /= 2.0;
        self.answered /= 2.0;
        self.answered_squared /= 2.0;
    }
}

/// The main sequence of one listener: windows in which it served.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Curve {
    bins: Vec<Bin>,
    sum: Bin,
    frozen: f64,
    since_halved: u32,
}

impl Curve {
    /// Adds a window: mean queued requests, and answers. A window without requests says nothing. Nor does one in which the
    /// server stood still belong to its curve (a freeze passes through every load on its way up): it is only counted.
    pub(crate) fn observe(&mut self, load: f64, answered: f64) {
        self.since_halved += 1;
        if self.since_halved >= HALVE_WINDOWS {
            self.since_halved = 0;
            self.bins.iter_mut().for_each(Bin::halve);
            self.sum.halve();
            self.frozen /= 2.0;
        }
        if load <= 0.0 || !load.is_finite() || !answered.is_finite() {
            return;
        }
        if self.stands_still(load, answered) {
            self.frozen += 1.0;
            return;
        }
        let at = bin_of(load);
        if self.bins.len() <= at {
            self.bins.resize(at + 1, Bin::default());
        }
        let one = Bin { windows: 1.0, load, answered, answered_squared: answered * answered };
        if let Some(bin) = self.bins.get_mut(at) {
            bin.add(&one);
        }
        self.sum.add(&one);
    }

    fn stands_still(&self, load: f64, answered: f64) -> bool {
        let usual = &self.sum;
        usual.windows >= USUAL_WINDOWS
            && usual.answered >= ANSWERS_MIN * usual.windows
            && answered * usual.windows <= NEAR_ZERO * usual.answered
            && load * usual.windows > usual.load
    }

    /// Bins that hold something, by load.
    pub(crate) fn bins(&self) -> impl Iterator<Item = &Bin> {
        self.bins.iter().filter(|b| b.windows > 0.0)
    }

    /// All bins together.
    pub(crate) fn sum(&self) -> &Bin {
        &self.sum
    }

    /// Windows in which the server stood still.
    pub(crate) fn frozen(&self) -> f64 {
        self.frozen
    }
}

/// Integers only, so that a load falls into the same bin on every machine.
fn bin_of(load: f64) -> usize {
    let eighths = (load * 8.0) as u64;
    if eighths < 16 {
        return eighths as usize;
    }
    let octave = eighths.ilog2();
    let part = (eighths >> (octave - 3)) & 7;
    (16 + (octave as usize - 4) * 8 + part as usize).min(BINS_MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_rise_with_load_and_are_narrow_everywhere() {
        let mut before = 0;
        for i in 0..200_000_u32 {
            let load = f64::from(i) / 8.0;
            let at = bin_of(load);
            assert!(at == before || at == before + 1, "no bin is left out: {load} {at}");
            before = at;
        }
        assert_eq!(bin_of(0.1), 0);
        assert_ne!(bin_of(100.0), bin_of(113.0), "an eighth more is another bin");
        assert_eq!(bin_of(1e300), BINS_MAX - 1);
    }

    #[test]
    fn a_freeze_is_counted_and_not_learned() {
        let mut curve = Curve::default();
        (0..200).for_each(|_| curve.observe(4.0, 30.0));
        let before = curve.clone();
        (1..10).for_each(|i| curve.observe(30.0 * f64::from(i), 0.0));
        assert_eq!(curve.bins, before.bins);
        assert!((curve.frozen() - 9.0).abs() < 1e-9);
        curve.observe(200.0, 150.0);
        assert_ne!(curve.bins, before.bins, "what it does when it goes on is learned");
        let mut rare = Curve::default();
        (0..200).for_each(|i| rare.observe(0.5, f64::from(u8::from(i % 3 == 0))));
        assert!(rare.frozen() < 0.5, "a window without an answer is nothing special where they are rare");
    }

    #[test]
    fn what_was_seen_fades_by_windows() {
        let mut curve = Curve::default();
        (0..HALVE_WINDOWS - 1).for_each(|_| curve.observe(4.0, 30.0));
        let full = curve.sum().windows;
        (0..HALVE_WINDOWS).for_each(|_| curve.observe(0.0, 0.0));
        assert!((curve.sum().windows - full / 2.0).abs() < 1.0);
        (0..HALVE_WINDOWS * 40).for_each(|_| curve.observe(0.0, 0.0));
        assert!(curve.sum().windows < 1e-6, "and is worth nothing");
    }

    proptest! {
        #[test]
        fn memory_is_bounded_whatever_comes(windows in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 0..500)) {
            let mut curve = Curve::default();
            windows.iter().for_each(|(load, answered)| curve.observe(*load, *answered));
            prop_assert!(curve.bins.len() <= BINS_MAX);
            prop_assert!(curve.bins().all(|b| b.windows >= 0.0));
        }

        #[test]
        fn the_order_of_windows_without_a_freeze_changes_nothing(mut windows in prop::collection::vec((1u32..4000, 20u32..60), 1..300), cut in 0usize..300) {
            let run = |windows: &[(u32, u32)]| {
                let mut curve = Curve::default();
                // Multiples of 1/8 add up exactly, in any order.
                windows.iter().for_each(|(l, a)| curve.observe(f64::from(*l) / 8.0, f64::from(*a)));
                curve
            };
            let before = run(&windows);
            let cut = cut % windows.len();
            windows.rotate_left(cut);
            prop_assert_eq!(before, run(&windows));
        }
    }

    #[test]
    fn a_server_of_few_answers_is_not_called_frozen_by_windows_without_one() {
        let frozen = |usual: f64| {
            let mut curve = Curve::default();
            (0..200).for_each(|_| curve.observe(1.0, usual));
            (0..10).for_each(|_| curve.observe(5.0, 0.0));
            curve.frozen()
        };
        assert_eq!(frozen(4.0), 0.0, "of 4 expected none come in 2 % of windows");
        assert_eq!(frozen(6.0), 10.0);
    }

    #[test]
    fn what_is_long_over_is_worth_nothing_and_breaks_nothing() {
        let mut curve = Curve::default();
        (0..200).for_each(|_| curve.observe(40.0, 300.0));
        // 20 years of nothing but 3 requests a window: everything before is halved 100,000 times.
        for _ in 0..2000 {
            curve.bins.iter_mut().for_each(Bin::halve);
        }
        assert_eq!(curve.bins().count(), 0);
        (0..200).for_each(|_| curve.observe(3.0, 30.0));
        let bins: Vec<&Bin> = curve.bins().collect();
        assert_eq!((bins.len(), bins[0].windows), (1, 200.0));
    }
}
