//! The load that a lab was found to bear, kept from one lab to the next on this machine while it runs: a lab that begins with it has
//! nothing to search for where nothing has changed. Always measured before it is believed. Knows no server.

use super::{BUILDING, CACHE, Fit, LabConfig, Scale};
use crate::console::progress::complain;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The machine may be another one after it was started again.
    pub(super) boot_id: String,
    /// Requests a second of the load.
    pub(super) rate_per_second: f64,
    /// What the lab's limits were of the tuned ones.
    pub(super) requests: f64,
    pub(super) cores: f64,
}

impl Kept {
    pub(super) fn scale(&self) -> Scale {
        Scale { requests: self.requests, cores: self.cores }
    }

    /// What was kept of a lab that was tuned like this one, if anything was since the machine was started.
    pub(super) fn find(tuned: &LabConfig) -> Option<Self> {
        Self::find_in(Path::new(CACHE), tuned, &boot_id()?)
    }

    /// Keeps a fit for the next lab. What cannot be kept is measured again: that costs some seconds and is said.
    pub(super) fn keep(tuned: &LabConfig, fit: &Fit) {
        let Some(boot_id) = boot_id() else { return };
        let Scale { requests, cores } = fit.scale;
        let kept = Self { boot_id, rate_per_second: fit.rate_per_second, requests, cores };
        if let Err(error) = kept.keep_in(Path::new(CACHE), tuned) {
            complain(&format!("lab: the load that this machine bears is not kept: {error:#}"));
        }
    }

    fn find_in(cache: &Path, tuned: &LabConfig, boot_id: &str) -> Option<Self> {
        let kept: Self = serde_json::from_slice(&std::fs::read(file(cache, tuned)).ok()?).ok()?;
        let share = |part: f64| part > 0.0 && part <= 1.0;
        let sound = share(kept.requests) && share(kept.cores) && kept.rate_per_second >= 1.0;
        (kept.boot_id == boot_id && sound).then_some(kept)
    }

    /// The file appears whole or not at all.
    fn keep_in(&self, cache: &Path, tuned: &LabConfig) -> Result<()> {
        std::fs::create_dir_all(cache).with_context(|| format!("create {}", cache.display()))?;
        let path = file(cache, tuned);
        let prefix = format!("{BUILDING}{}-", std::process::id());
        let building = tempfile::Builder::new().prefix(&prefix).tempdir_in(cache)?;
        let new = building.path().join("load");
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        std::fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))
    }
}

fn boot_id() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// A lab that was tuned differently bears another load.
fn file(cache: &Path, tuned: &LabConfig) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    format!("{tuned:?}").hash(&mut hasher);
    cache.join(format!("load-{:016x}.json", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Stack;

    #[test]
    fn a_load_is_kept_for_a_lab_of_the_same_kind_on_the_machine_as_it_runs() {
        let cache = tempfile::tempdir().unwrap();
        let (tuned, other) = (LabConfig::of(Stack::Nx0), LabConfig::of(Stack::Nx0).slower(2.0));
        let kept = Kept { boot_id: "this".into(), rate_per_second: 612.0, requests: 0.612, cores: 0.8 };
        assert_eq!(Kept::find_in(cache.path(), &tuned, "this"), None);
        kept.keep_in(cache.path(), &tuned).unwrap();
        assert_eq!(Kept::find_in(cache.path(), &tuned, "this"), Some(kept));
        assert_eq!(Kept::find_in(cache.path(), &tuned, "started again"), None);
        assert_eq!(Kept::find_in(cache.path(), &other, "this"), None);
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_makes_no_lab_is_not_believed() {
        let cache = tempfile::tempdir().unwrap();
        let tuned = LabConfig::of(Stack::Nx0);
        for bad in [
            "",
            "{",
            r#"{"boot_id":"this","rate_per_second":0.0,"requests":0.5,"cores":1.0}"#,
            r#"{"boot_id":"this","rate_per_second":500.0,"requests":50.0,"cores":1.0}"#,
            r#"{"boot_id":"this","rate_per_second":500.0,"requests":0.5,"cores":-1.0}"#,
        ] {
            std::fs::write(file(cache.path(), &tuned), bad).unwrap();
            assert_eq!(Kept::find_in(cache.path(), &tuned, "this"), None, "{bad}");
        }
    }
}
