//! A store without a disk, for a recording that is looked at: the same incidents and the same ways to ask, and nothing written. Its
//! incidents are shown at once, and what was there by name is told when the recording has been read.

use super::Store;
use super::health::Health;
use super::inventory;
use super::past::Past;
use super::queue::Queue;
use super::shelf::Shelf;
use crate::counters::Metrics;
use crate::live::series::Series;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use tailwater_model::names::{Names, Seen};
use tailwater_model::{Incident, TopologyView};
use tokio::sync::broadcast;

/// Keeps `incidents_max` incidents; the oldest closed ones go first.
#[must_use]
pub fn in_memory(
    incidents_max: usize,
    series: Arc<Mutex<Series>>,
    live: broadcast::Sender<Arc<Incident>>,
    metrics: &Arc<Metrics>,
) -> (Arc<Mutex<Store>>, Past) {
    let queue = Arc::new(Queue::nowhere(Arc::clone(metrics)));
    // No such folder: whatever is looked for there is not found.
    let folder = PathBuf::from("/dev/null/tailwater");
    let past = Past {
        shelf: Arc::new(Shelf::new(&folder, Arc::clone(metrics))),
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

/// What was there by name, told once.
#[derive(Debug, Default)]
pub(super) struct Remembered(OnceLock<Vec<Seen>>);

impl Remembered {
    /// As the database answers.
    pub(super) fn inventory(&self, span: (u64, u64), kind: Option<&str>, host: Option<&str>) -> Vec<Seen> {
        let all = self.0.get().into_iter().flatten();
        let fits = |s: &&Seen| {
            s.last_unix_ns >= span.0
                && s.first_unix_ns <= span.1
                && kind.is_none_or(|kind| s.kind == kind)
                && host.is_none_or(|host| s.host == host)
        };
        all.filter(fits).cloned().collect()
    }
}

impl Past {
    /// Tells what was there by name, of the hosts of `spans` (first and last moment, Unix ns).
    pub fn remember(
        &self,
        spans: &BTreeMap<String, (u64, u64)>,
        names: &BTreeMap<String, Names>,
        view: &TopologyView,
    ) {
        let mut all = inventory::seen(spans, names, view);
        // One that was started again is one.
        all.sort_by(|a, b| (&a.kind, &a.host, &a.name).cmp(&(&b.kind, &b.host, &b.name)));
        all.dedup_by(|a, b| (&a.kind, &a.host, &a.name) == (&b.kind, &b.host, &b.name));
        // Told once: a second time changes nothing.
        let _ = self.remembered.0.set(all);
    }
}
