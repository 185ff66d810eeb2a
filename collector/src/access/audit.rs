//! What was changed, by whom, from where: a line of the log for each, and the newest in memory. Owns what such a line holds; never a secret.

use super::role::{Way, Who};
use serde::Serialize;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// The target of its lines in the log, for filters.
pub const TARGET: &str = "tailwater::audit";
/// Changes in memory.
const ENTRIES_MAX: usize = 1000;
/// Of what was sent, so much is shown.
const DETAIL_CHARS_MAX: usize = 200;

/// One change, or a try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When.
    pub unix_ns: u64,
    /// Who; `null`: nobody who was known.
    pub who: Option<Who>,
    /// From which address: the proxy's, if one stands between.
    pub from: IpAddr,
    /// Method and path.
    pub what: String,
    /// What was sent with it, shortened.
    pub detail: String,
    /// HTTP status of the answer: 200 and above it was done, from 400 on refused.
    pub status: u16,
}

/// The newest changes.
#[derive(Debug, Default)]
pub struct Audit(Mutex<VecDeque<Change>>);

impl Audit {
    /// Tells and keeps it.
    pub fn note(&self, mut change: Change) {
        change.detail = shown(&change.detail);
        let (name, role, way) = match &change.who {
            Some(who) => (who.name.as_str(), who.role.name(), who.way),
            None => ("", "", Way::Open),
        };
        tracing::info!(
            target: TARGET,
            who = name, role, ?way, from = %change.from, status = change.status, detail = change.detail,
            "{}", change.what
        );
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ENTRIES_MAX {
            all.pop_front();
        }
        all.push_back(change);
    }

    /// Newest first.
    #[must_use]
    pub fn newest(&self) -> Vec<Change> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}

fn shown(detail: &str) -> String {
    detail.chars().map(|c| if c.is_control() { ' ' } else { c }).take(DETAIL_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_thousand_are_kept_in_one_line_each() {
        let audit = Audit::default();
        for n in 0..=ENTRIES_MAX as u64 {
            audit.note(Change {
                unix_ns: n,
                who: Some(Who::anybody()),
                from: [127, 0, 0, 1].into(),
                what: "POST /x".into(),
                detail: format!("a\n{}", "b".repeat(999)),
                status: 200,
            });
        }
        let all = audit.newest();
        assert_eq!((all.len(), all[0].unix_ns, all[ENTRIES_MAX - 1].unix_ns), (ENTRIES_MAX, 1000, 1));
        assert_eq!((all[0].detail.len(), all[0].detail.contains('\n')), (DETAIL_CHARS_MAX, false));
    }
}
