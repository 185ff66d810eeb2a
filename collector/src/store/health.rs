//! Whether the disk takes what is written, in words for a person. Set by the writer, shown on /readyz and in the metrics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is written apart from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Incidents,
    Windows,
}

/// See above.
#[derive(Debug, Default)]
pub struct Health(Mutex<[Option<String>; 2]>);

impl Health {
    fn lock(&self) -> MutexGuard<'_, [Option<String>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It failed, for this reason.
    pub(super) fn failed(&self, part: Part, why: &str) {
        let before = self.lock()[part as usize].replace(why.to_owned());
        if before.is_none() {
            let kept = match part {
                Part::Incidents => "incidents are kept in memory only until it works again",
                Part::Windows => "the newest windows wait in memory; older ones are given up",
            };
            tracing::error!("store degraded: {why}; {kept}");
        }
    }

    /// It works.
    pub(super) fn works(&self, part: Part) {
        if self.lock()[part as usize].take().is_some() {
            let what = match part {
                Part::Incidents => "incidents",
                Part::Windows => "windows",
            };
            tracing::info!("store: {what} are written again");
        }
    }

    /// `None`: all is well.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let parts = self.lock();
        let mut texts: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
        texts.dedup();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}
