//! What a limit was when it was last told, for the windows that do not tell it. Knows neither tables nor windows.

use std::collections::{HashMap, HashSet};
use tailwater_proto::v1::{EntityKind, Metric};

/// Last known limits, by metric and entity. As many as there are entities, which are bounded.
#[derive(Debug, Default)]
pub(super) struct Held(HashMap<(EntityKind, i32, u32), u64>);

impl Held {
    pub(super) fn get(&self, kind: EntityKind, metric: Metric, id: u32) -> u64 {
        self.0.get(&(kind, metric as i32, id)).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, kind: EntityKind, metric: Metric, id: u32, value: u64) {
        self.0.insert((kind, metric as i32, id), value);
    }

    pub(super) fn forget(&mut self, gone: &HashSet<(EntityKind, u32)>) {
        if !gone.is_empty() {
            self.0.retain(|(kind, _, id), _| !gone.contains(&(*kind, *id)));
        }
    }
}
