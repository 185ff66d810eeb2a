//! A store without a disk, for a recording that is looked at: the same incidents and the same ways to ask, and nothing written. Its
//! incidents are shown at once, and what was there by name is told when the recording has been read.

use super::Store;
use super::disk::RealDisk;
use super::health::Health;
use super::past::Past;
use super::queue::Queue;
use super::shelf::Shelf;
use crate::counters::Metrics;
use crate::live::events::Events;
use crate::live::series::Series;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Keeps `incidents_max` incidents; the oldest closed ones go first.
#[must_use]
pub fn in_memory(
    incidents_max: usize,
    series: Arc<Mutex<Series>>,
    live: Events,
    metrics: &Arc<Metrics>,
) -> (Arc<Mutex<Store>>, Past) {
    let queue = Arc::new(Queue::nowhere(Arc::clone(metrics)));
    // No such folder: whatever is looked for there is not found.
    let folder = PathBuf::from("/dev/null/tailwater");
    let past = Past {
        shelf: Arc::new(Shelf::new(&folder, Arc::clone(metrics), Arc::new(RealDisk))),
        folder,
        series,
        health: Arc::new(Health::default()),
        queue: Arc::clone(&queue),
        remembered: Arc::default(),
    };
    let store = Store { by_id: BTreeMap::new(), replaced: BTreeMap::new(), incidents_max, queue, live };
    (Arc::new(Mutex::new(store)), past)
}

impl Store {
    /// Forgets early alerts that no window confirmed: of a recording that ended they are no incidents. Says how many incidents stay.
    pub fn settle(&mut self) -> usize {
        self.by_id.retain(|_, kept| kept.newest.incident.version > 0);
        self.by_id.len()
    }
}
