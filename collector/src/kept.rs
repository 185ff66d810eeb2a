//! A small file of TOML that commands and a running collector share: written whole or not at all, by one at a time, for its owner alone; read
//! again when it changed. Knows nothing of what is in it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file of this kind is shorter than that.
const BYTES_MAX: u64 = 8 << 20;

/// Why the file cannot be read or written, or what was asked of it cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}\n  remedy: {remedy}", file.display())]
pub struct KeptError {
    file: PathBuf,
    why: String,
    remedy: String,
}

const AS_OWNER: &str = "run it as root or as the collector's user, and name the collector's folder with --data (or its --config)";

/// Modification, length and inode: a rename within a tick of the file system's clock changes the last.
pub type Stamp = Option<(i64, i64, u64, u64)>;

/// A file is looked at no more often than this.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a running collector has read of such a file: as what it was, and when it was last looked at.
#[derive(Debug, Default)]
pub struct Watch {
    stamp: Stamp,
    looked: Option<Instant>,
    /// It could not be read, and is to be read again at each look: what was wrong may change nothing that the stamp tells.
    failing: bool,
}

impl Watch {
    /// It was read as this.
    #[must_use]
    pub fn read_as(stamp: Stamp) -> Self {
        Self { stamp, ..Self::default() }
    }

    /// What `read` gives of it where `stamp` tells that it is another one than was read; where it could not be read, at each look until it can, and of
    /// those failures the first. `None`: nothing that is new.
    pub fn look<T, E>(
        &mut self,
        now: Instant,
        stamp: impl FnOnce() -> Stamp,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        if self.looked.is_some_and(|at| now.saturating_duration_since(at) < LOOK_EVERY) {
            return None;
        }
        self.looked = Some(now);
        let before = std::mem::replace(&mut self.stamp, stamp());
        if before == self.stamp && !self.failing {
            return None;
        }
        let read = read();
        let failed_before = std::mem::replace(&mut self.failing, read.is_err());
        (read.is_ok() || !failed_before).then_some(read)
    }

    /// The next look is at once: this process has written it.
    pub fn look_again(&mut self) {
        self.looked = None;
    }
}

/// Such a file.
#[derive(Debug, Clone)]
pub struct Kept {
    file: PathBuf,
    head: &'static str,
}

impl Kept {
    /// At this path; `head` is its first line, for whoever opens it.
    #[must_use]
    pub fn at(file: PathBuf, head: &'static str) -> Self {
        Self { file, head }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// That something about it is wrong.
    pub fn wrong(&self, why: impl ToString, remedy: &str) -> KeptError {
        KeptError { file: self.file.clone(), why: why.to_string(), remedy: remedy.to_owned() }
    }

    /// Changes when it does.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let about = std::fs::metadata(&self.file).ok()?;
        Some((about.mtime(), about.mtime_nsec(), about.len(), about.ino()))
    }

    /// What it holds; `None`: there is no file.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, KeptError> {
        let file = match File::open(&self.file) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.wrong(e, AS_OWNER)),
        };
        let about = file.metadata().map_err(|e| self.wrong(e, AS_OWNER))?;
        if about.mode() & 0o022 != 0 {
            return Err(self.wrong("others may write it, and so let themselves in", "chmod 600 it"));
        }
        if about.len() > BYTES_MAX {
            return Err(self.wrong(format!("it is longer than {BYTES_MAX} bytes"), "move it away"));
        }
        let text = std::io::read_to_string(file).map_err(|e| self.wrong(e, AS_OWNER))?;
        toml::from_str(&text).map(Some).map_err(|e| {
            let line =
                e.span().map_or(1, |at| text.get(..at.start).map_or(1, |b| b.matches('\n').count() + 1));
            self.wrong(
                format!("line {line}: {}", e.message()),
                "correct that line, or move the file away and make anew what was in it",
            )
        })
    }

    /// Changes what it holds, which may be nothing yet. One at a time: whoever comes second reads what the first has written.
    pub fn change<T: DeserializeOwned + Serialize + Default, R>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, KeptError>,
    ) -> Result<R, KeptError> {
        let failed = |e: std::io::Error| self.wrong(e, AS_OWNER);
        let folder = self.file.parent().filter(|of| !of.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(failed)?;
        let held = File::open(folder).map_err(failed)?;
        held.lock().map_err(failed)?;
        let mut content: T = self.load()?.unwrap_or_default();
        let result = change(&mut content)?;
        let text = toml::to_string(&content).map_err(|e| self.wrong(e, "report this: it is a bug"))?;
        write(&held, &self.file, &format!("# {}\n\n{text}", self.head)).map_err(failed)?;
        Ok(result)
    }
}

/// Whole or not at all, for its owner alone; root makes it for whoever owns the folder.
pub fn write(folder: &File, path: &Path, text: &str) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    match std::fs::remove_file(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let owner = folder.metadata()?;
    if rustix::process::geteuid().is_root() {
        fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    folder.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    type Numbers = BTreeMap<String, u32>;

    #[test]
    fn those_who_change_it_at_once_lose_nothing_and_it_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::at(folder.path().join("made/n.toml"), "Numbers.");
        assert!(kept.load::<Numbers>().unwrap().is_none() && kept.stamp().is_none());
        std::thread::scope(|s| {
            for n in 0..8 {
                let kept = &kept;
                s.spawn(move || kept.change(|all: &mut Numbers| Ok(all.insert(format!("n{n}"), n))).unwrap());
            }
        });
        assert_eq!(kept.load::<Numbers>().unwrap().unwrap().len(), 8);
        assert_eq!(std::fs::metadata(kept.path()).unwrap().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(kept.path()).unwrap().starts_with("# Numbers.\n"));
        let before = kept.stamp();
        kept.change(|all: &mut Numbers| Ok(all.remove("n0"))).unwrap();
        assert_ne!(kept.stamp(), before);
    }

    #[test]
    fn what_others_may_write_or_what_is_damaged_is_refused_with_what_to_do_and_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::at(folder.path().join("n.toml"), "Numbers.");
        kept.change(|all: &mut Numbers| Ok(all.insert("a".into(), 1))).unwrap();
        std::fs::set_permissions(kept.path(), std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(kept.load::<Numbers>().unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(kept.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(kept.path(), "a = 1\nb = x\n").unwrap();
        let why = kept.load::<Numbers>().unwrap_err().to_string();
        assert!(why.contains("line 2") && why.contains("remedy"), "{why}");
        assert!(kept.change(|all: &mut Numbers| Ok(all.remove("a"))).is_err());
        assert_eq!(std::fs::read_to_string(kept.path()).unwrap(), "a = 1\nb = x\n");
    }

    #[test]
    fn what_could_not_be_read_is_read_again_though_nothing_changed() {
        let now = crate::clock::Clock::default().monotonic();
        let at = |n: u32| now + LOOK_EVERY * n;
        let stamp = || Some((1, 2, 3, 4));
        let (mut watch, reads) = (Watch::default(), std::cell::Cell::new(0));
        let mut look = |n: u32, result: Result<u32, ()>| {
            let read = || {
                reads.set(reads.get() + 1);
                result
            };
            (watch.look(at(n), stamp, read), reads.get())
        };
        assert_eq!(look(0, Err(())), (Some(Err(())), 1));
        assert_eq!(look(0, Ok(7)), (None, 1), "not before the next look");
        assert_eq!(look(1, Err(())), (None, 2), "read again, and told once");
        assert_eq!(look(2, Ok(7)), (Some(Ok(7)), 3));
        assert_eq!(look(3, Ok(8)), (None, 3), "nothing changed");
    }
}
