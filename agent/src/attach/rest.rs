//! Lets an object's hooks rest, by `rest.h`: they begin nothing and end what has begun. Knows no budget.

use aya::maps::{Array, MapData};

/// The section of `resting`, which is a map of its own.
pub(super) const RESTING: &str = ".data.rest";

/// One object's.
pub struct Rest(Array<MapData, u32>);

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rest").finish_non_exhaustive()
    }
}

impl Rest {
    pub(super) fn new(resting: Array<MapData, u32>) -> Self {
        Self(resting)
    }

    /// From now on its hooks rest, or work again. False: they cannot, which is logged.
    pub fn set(&mut self, rests: bool) -> bool {
        let set = self.0.set(0, u32::from(rests), 0);
        if let Err(error) = &set {
            tracing::warn!("its hooks cannot rest: {error}");
        }
        set.is_ok()
    }
}
