//! What stands in where the kernel takes no programs (no CAP_BPF, no type information, lockdown, a container host that refuses them): the
//! same sections of a window from files and sockets, looked at once in each. Owns what such values are worth; `resources` owns files,
//! `threads` the waits of a cgroup's threads, `queues` accept queues, `sock_diag` the kernel's list of sockets, `discovery` which there
//! are. Knows no kernel program.
//!
//! Such a signal is covered and *sampled*: sums are exact to the moment at which the agent looked, peaks between two looks are missed,
//! and what only a hook can tell (requests, calls, the longest wait) is absent.

use crate::name::cgroup::{is_within, parents};
use crate::name::workload::Entities;
use crate::window::CgroupId;
use std::sync::{Arc, Mutex, PoisonError};

mod discovery;
mod files;
mod queues;
mod resources;
mod sock_diag;
mod threads;

pub use queues::PolledQueues;
pub use resources::PolledResources;

/// Cgroups that are looked at in each window; those beyond are not told, and counted.
const CGROUPS_MAX: usize = 512;

/// A cgroup to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchedCgroup {
    /// Who it is.
    id: CgroupId,
    /// Its path below the root of the hierarchy.
    path: Arc<str>,
    /// Cgroups directly below it: what they use is told of them, not of this one.
    children: Vec<CgroupId>,
}

/// The cgroups of the last walk, told by who knows the tree; only if somebody asked for them.
#[derive(Debug, Clone, Default)]
pub struct Watched(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    outdated: bool,
    published: Option<Published>,
}

/// A list of cgroups, and how many did not fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Published {
    /// In the order of their paths.
    cgroups: Vec<WatchedCgroup>,
    /// Cgroups left out.
    left_out: usize,
}

impl Watched {
    /// Publishes the cgroups of the last walk: all, or those at and below the scope.
    pub fn publish(&self, entities: &Entities, scope: Option<&str>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.wanted {
            return;
        }
        let tree = entities.tree();
        let mut found: Vec<(Arc<str>, CgroupId)> = tree.all().collect();
        found.retain(|(path, _)| scope.is_none_or(|s| is_within(path, s)));
        found.sort();
        state.published = Some(published(&found));
    }

    /// Whether cgroups were made or removed since the last walk, as far as whoever looks at them has seen; asked once.
    pub fn outdated(&self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).outdated)
    }

    fn ask_for_a_walk(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).outdated = true;
    }

    fn want(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wanted = true;
    }

    fn take(&self) -> Option<Published> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).published.take()
    }
}

/// `found` is ordered by path.
fn published(found: &[(Arc<str>, CgroupId)]) -> Published {
    let left_out = found.len().saturating_sub(CGROUPS_MAX);
    let taken = found.iter().take(CGROUPS_MAX);
    let mut cgroups: Vec<WatchedCgroup> =
        taken.map(|(path, id)| WatchedCgroup { id: *id, path: path.clone(), children: Vec::new() }).collect();
    let at: std::collections::HashMap<Arc<str>, usize> =
        cgroups.iter().enumerate().map(|(i, c)| (c.path.clone(), i)).collect();
    for i in 0..cgroups.len() {
        let (id, path) = (cgroups[i].id, cgroups[i].path.clone());
        if let Some(parent) = parents(&path).nth(1).and_then(|parent| at.get(parent)) {
            cgroups[*parent].children.push(id);
        }
    }
    Published { cgroups, left_out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_those_directly_below() {
        let found: Vec<(Arc<str>, CgroupId)> = [("/", 1), ("/a", 2), ("/a/b", 3), ("/a/b/c", 4), ("/ab", 5)]
            .map(|(path, id)| (Arc::from(path), CgroupId(id)))
            .to_vec();
        let below: Vec<Vec<u64>> =
            published(&found).cgroups.iter().map(|c| c.children.iter().map(|id| id.0).collect()).collect();
        assert_eq!(below, [vec![2, 5], vec![3], vec![4], vec![], vec![]]);
    }
}
