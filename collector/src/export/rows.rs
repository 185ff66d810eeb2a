//! Which entities of a host have labels of their own, and what is kept per row: counters and limits. Owns the bound of label
//! cardinality: what is beyond it is one row `~other`, and counted. Knows no text and no receiver.

use super::signals::{Form, Level, SIGNALS, Seen, each};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailwater_model::names::Names;
use tailwater_model::window::{HostWindow, WorkloadInfo};

/// The row of what has none of its own.
pub const OTHER: &str = "~other";
/// A row of which nothing was heard for ten minutes makes room.
pub const IDLE_WINDOWS: u64 = 12_000;
/// Names and quotas are looked up again after a minute.
const REFRESH_WINDOWS: u64 = 1200;

/// What tells a row from others of its host and level: workload (or device), and listener or remote.
pub type Key = (Level, String, String);

/// Rows of all hosts together, against their bound.
#[derive(Debug)]
pub struct Room {
    /// Rows of one host and level.
    pub per_host_max: usize,
    /// Of all.
    pub rows_max: usize,
    /// Now.
    pub rows: usize,
}

/// Whose a listener's answers are, and what is asked of them.
#[derive(Debug, Clone)]
pub struct Tier {
    /// Its name, or what stands for it.
    pub name: Arc<str>,
    /// Within how long the listener is to answer, ns.
    pub within_ns: u64,
}

/// One set of labels.
#[derive(Debug)]
pub struct Row {
    /// Labels.
    pub key: Key,
    /// Per signal of [`SIGNALS`]: the counter, or the last limit.
    pub kept: Vec<f64>,
    /// The window with which it began: its counters count from there.
    pub first: u64,
    /// The tier of its workload, once it was looked up in the topology that is known.
    pub tier: Option<Tier>,
    seen: u64,
}

/// The rows of one host.
#[derive(Debug, Default)]
pub struct Rows {
    /// By number, which is never used again.
    pub by_number: BTreeMap<u32, Row>,
    numbers: BTreeMap<Key, u32>,
    /// Entity to row, and the CPU ns that its quota allows in a window (0: none).
    ids: BTreeMap<(Level, u32), (u32, u64)>,
    next: u32,
    refreshed: u64,
    /// Entities that are in a row `~other` now.
    pub folded: BTreeSet<(Level, u32)>,
}

impl Rows {
    /// Takes a window: new entities get rows, counters and limits move on. `names` is asked only if something is new.
    pub fn window(&mut self, window: &HostWindow, room: &mut Room, names: impl FnOnce() -> Labels) {
        let index = window.index.0;
        if index.saturating_sub(self.refreshed) >= REFRESH_WINDOWS {
            self.refreshed = index;
            self.forget(index, room);
        }
        let mut new = Vec::new();
        each(window, |level, id, _| {
            if !self.ids.contains_key(&(level, id)) {
                new.push((level, id));
            }
        });
        if !new.is_empty() {
            let names = names();
            for entity in new {
                self.add(entity, &names, index, room);
            }
        }
        each(window, |level, id, seen| {
            let Some((number, quota_ns)) = self.ids.get(&(level, id)).copied() else { return };
            let Some(row) = self.by_number.get_mut(&number) else { return };
            row.seen = index;
            let seen = with_quota(seen, quota_ns);
            for (signal, kept) in SIGNALS.iter().zip(&mut row.kept) {
                if signal.form == Form::Level {
                    continue;
                }
                let Some((value, _)) = signal.read.of(seen) else { continue };
                match signal.form {
                    Form::Counter => *kept += value,
                    // 0: the agent said none in this window.
                    _ if value > 0.0 => *kept = value,
                    _ => {}
                }
            }
        });
    }

    /// The row of an entity, and its values with its quota.
    #[must_use]
    pub fn of<'a>(&self, level: Level, id: u32, seen: Seen<'a>) -> Option<(u32, Seen<'a>)> {
        let (number, quota_ns) = self.ids.get(&(level, id))?;
        Some((*number, with_quota(seen, *quota_ns)))
    }

    /// The row of an entity, to be changed.
    pub fn row_mut(&mut self, level: Level, id: u32) -> Option<&mut Row> {
        let (number, _) = self.ids.get(&(level, id))?;
        self.by_number.get_mut(number)
    }

    /// Rows of its own: what it takes of the room.
    #[must_use]
    pub fn own(&self) -> usize {
        self.by_number.values().filter(|row| row.key.1 != OTHER).count()
    }

    fn add(&mut self, (level, id): (Level, u32), names: &Labels, index: u64, room: &mut Room) {
        let Some((first, second, quota_ns)) = names.of(level, id) else {
            // Its name has not come; the next window asks again.
            return;
        };
        let key = (level, first, second);
        let known = self.numbers.get(&key).copied();
        let own = |(l, name, _): &&Key| *l == level && name != OTHER;
        let full = room.rows >= room.rows_max || self.numbers.keys().filter(own).count() >= room.per_host_max;
        let number = match known {
            Some(number) => number,
            None if full && level != Level::Host => {
                self.folded.insert((level, id));
                let second = if matches!(level, Level::Listener | Level::Call) { OTHER } else { "" };
                self.row((level, OTHER.to_owned(), second.to_owned()), index)
            }
            None => {
                room.rows += 1;
                self.row(key, index)
            }
        };
        self.ids.insert((level, id), (number, quota_ns));
    }

    fn row(&mut self, key: Key, index: u64) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.numbers.insert(key.clone(), number);
        let kept = vec![0.0; SIGNALS.len()];
        self.by_number.insert(number, Row { key, kept, first: index, tier: None, seen: index });
        number
    }

    fn forget(&mut self, index: u64, room: &mut Room) {
        self.ids.clear();
        self.folded.clear();
        self.by_number.retain(|_, row| {
            let stays = index.saturating_sub(row.seen) < IDLE_WINDOWS;
            if !stays {
                self.numbers.remove(&row.key);
                if row.key.1 != OTHER {
                    room.rows = room.rows.saturating_sub(1);
                }
            }
            stays
        });
    }
}

/// In the place of a quota: a server that shares its cgroup.
const SHARES: u64 = u64::MAX;

fn with_quota(seen: Seen<'_>, quota_ns: u64) -> Seen<'_> {
    match seen {
        Seen::Workload(w, _) if quota_ns == SHARES => Seen::Server(w),
        Seen::Workload(w, host_ns) if quota_ns > 0 => {
            let quota_ns = quota_ns as f64;
            Seen::Workload(w, if host_ns > 0.0 { quota_ns.min(host_ns) } else { quota_ns })
        }
        other => other,
    }
}

/// Labels of the entities asked for.
#[derive(Debug, Default)]
pub struct Labels(BTreeMap<(Level, u32), (String, String, u64)>);

impl Labels {
    /// Of every entity of `window` that `names` knows.
    #[must_use]
    pub fn read(window: &HostWindow, names: &Names) -> Self {
        let workload =
            |id: u32| names.workloads.get(&id).map_or_else(|| "~unknown".to_owned(), |w| w.name.clone());
        let mut found = BTreeMap::new();
        each(window, |level, id, _| {
            let labels = match level {
                Level::Host => Some((String::new(), String::new(), 0)),
                Level::Workload => {
                    let quota_ns = |w: &WorkloadInfo| if w.shares == 0 { w.cpu_quota_ns } else { SHARES };
                    names.workloads.get(&id).map(|w| (w.name.clone(), String::new(), quota_ns(w)))
                }
                Level::Listener => names.listeners.get(&id).map(|l| (workload(l.workload), l.socket(), 0)),
                Level::Call => names.edges.get(&id).map(|e| (workload(e.workload), e.socket(), 0)),
                Level::Device => names.devices.get(&id).map(|d| (d.name.clone(), String::new(), 0)),
            };
            if let Some(labels) = labels {
                found.insert((level, id), labels);
            }
        });
        Self(found)
    }

    fn of(&self, level: Level, id: u32) -> Option<(String, String, u64)> {
        self.0.get(&(level, id)).cloned()
    }
}
