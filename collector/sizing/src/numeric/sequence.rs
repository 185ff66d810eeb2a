//! A sequence of numbers that look random and are a function of the input alone, so that a bootstrap gives the same interval
//! everywhere. Owns seed and steps; knows nothing of what is drawn.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): each state is the one before plus a constant, mixed.
#[derive(Debug, Clone)]
pub(crate) struct Sequence(u64);

impl Sequence {
    /// Seeded by the bits of all values, in order (FNV-1a over words).
    pub(crate) fn seeded(values: impl Iterator<Item = f64>) -> Self {
        Self(values.fold(0xcbf2_9ce4_8422_2325, |hash: u64, value| {
            (hash ^ value.to_bits()).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    /// The next word.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next index below `count`; 0 if there is none.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.draw()) * count as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_input_draws_the_same_and_another_draws_others() {
        let drawn = |values: &[f64]| {
            let mut sequence = Sequence::seeded(values.iter().copied());
            (0..8).map(|_| sequence.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(&[1.0, 2.0]), drawn(&[1.0, 2.0]));
        assert_ne!(drawn(&[1.0, 2.0]), drawn(&[2.0, 1.0]));
    }

    #[test]
    fn draws_are_even() {
        let mut sequence = Sequence::seeded([1.0].into_iter());
        let mut counts = [0_u32; 10];
        (0..10_000).for_each(|_| counts[sequence.below(10)] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(sequence.below(0), 0);
    }
}
