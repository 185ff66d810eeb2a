//! What takes seconds to make and does not change, kept from one lab to the next: the compiled servlet, and the databases' initial files
//! with the proof that they are good. Owns the cache's folder; knows no server.

use super::plan::Dialect;
use super::proof::{self, Proof};
use crate::console::progress::complain;
use crate::lab::{BUILDING, CACHE};
use anyhow::{Context, Result};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Begins the name of a template that was found bad. The newest of each name is kept, for whoever wants to know why.
const REFUSED: &str = "refused-";

/// A folder of the cache. It appears complete or not at all, also when two labs make it at the same time.
pub(super) fn cached(
    name: &str,
    sources: &[&str],
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    in_cache(Path::new(CACHE), name, sources, make)
}

/// A database's template: a folder of the cache with the files in `data` and their proof. `make` makes the files, `prove` starts a
/// server on a copy of them and looks. What has no good proof any more is moved away and made anew.
pub(super) fn proven(
    name: &str,
    dialect: Dialect,
    sources: &[&str],
    make: impl FnOnce(&Path) -> Result<()>,
    prove: impl FnOnce(&Path) -> Result<Proof>,
) -> Result<PathBuf> {
    proven_in(Path::new(CACHE), name, dialect, sources, make, prove)
}

fn proven_in(
    cache: &Path,
    name: &str,
    dialect: Dialect,
    sources: &[&str],
    make: impl FnOnce(&Path) -> Result<()>,
    prove: impl FnOnce(&Path) -> Result<Proof>,
) -> Result<PathBuf> {
    let sources = [sources, &[proof::VERSION]].concat();
    let folder = folder(cache, name, &sources);
    if folder.exists()
        && let Some(fault) = proof::fault_of(dialect, &folder)
    {
        let aside = refuse(&folder)?;
        complain(&format!(
            "lab: the {name} template is made anew, because {fault}; the old one is {}",
            aside.display()
        ));
    }
    in_cache(cache, name, &sources, |building| {
        make(building)?;
        prove(building).context("the proof of the new template")?.keep(building)
    })
}

/// Moves a template out of the way, and says where it is now.
pub(super) fn refuse(template: &Path) -> Result<PathBuf> {
    let name = template.file_name().unwrap_or_default().to_string_lossy();
    let aside = template.with_file_name(format!("{REFUSED}{name}"));
    if aside.exists() {
        fs::remove_dir_all(&aside).with_context(|| format!("remove {}", aside.display()))?;
    }
    match fs::rename(template, &aside) {
        // Another lab found the same at the same time.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        moved => moved.with_context(|| format!("move {} away", template.display()))?,
    }
    Ok(aside)
}

fn folder(cache: &Path, name: &str, sources: &[&str]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    sources.hash(&mut hasher);
    cache.join(format!("{name}-{:016x}", hasher.finish()))
}

fn in_cache(
    cache: &Path,
    name: &str,
    sources: &[&str],
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder = folder(cache, name, sources);
    if folder.exists() {
        return Ok(folder);
    }
    fs::create_dir_all(cache).with_context(|| format!("create {}", cache.display()))?;
    sweep(cache);
    let prefix = format!("{BUILDING}{}-", std::process::id());
    let building = tempfile::Builder::new().prefix(&prefix).tempdir_in(cache)?;
    make(building.path()).with_context(|| format!("prepare the lab's {name}"))?;
    let building = building.keep();
    if fs::rename(&building, &folder).is_err() {
        // Somebody else was faster; theirs is as good.
        fs::remove_dir_all(&building)?;
    }
    Ok(folder)
}

/// Removes what a lab that was killed while it made a template left half made.
fn sweep(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(BUILDING)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::cell::Cell;

    #[test]
    fn a_template_is_made_once_and_a_failed_one_leaves_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let made = Cell::new(0);
        let make = |folder: &Path| -> Result<()> {
            made.set(made.get() + 1);
            Ok(fs::write(folder.join("it"), "made")?)
        };
        assert!(in_cache(cache.path(), "servlet", &["1"], |_| bail!("no compiler")).is_err());
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
        // Of a lab that is long gone: pids end below this.
        fs::create_dir(cache.path().join("building-99999999-x")).unwrap();
        let first = in_cache(cache.path(), "servlet", &["1"], make).unwrap();
        assert_eq!(in_cache(cache.path(), "servlet", &["1"], make).unwrap(), first);
        assert_eq!(made.get(), 1);
        assert_ne!(in_cache(cache.path(), "servlet", &["2"], make).unwrap(), first);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 2);
    }

    #[test]
    fn one_without_a_proof_is_moved_away_and_made_anew() {
        let cache = tempfile::tempdir().unwrap();
        let make = |folder: &Path| -> Result<()> { Ok(fs::create_dir(folder.join("data"))?) };
        let sources = ["schema", proof::VERSION];
        let unproved = folder(cache.path(), "db", &sources);
        fs::create_dir_all(unproved.join("old")).unwrap();
        // What proves must succeed: here it says why it does not, and nothing is kept.
        let result = proven_in(cache.path(), "db", Dialect::MariaDb, &["schema"], make, |building| {
            assert!(building.join("data").exists());
            bail!("comments: the statistics say 0 of 20000")
        });
        let error = format!("{:#}", result.unwrap_err());
        assert!(error.contains("the statistics say 0 of 20000"), "{error}");
        assert!(!unproved.exists());
        assert!(
            unproved
                .with_file_name(format!("refused-{}", unproved.file_name().unwrap().to_str().unwrap()))
                .join("old")
                .exists()
        );
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1);
    }
}
