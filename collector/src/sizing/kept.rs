//! What was learnt, on disk: one file of JSON, written under a temporary name, synced and renamed. A file that cannot be read is put aside
//! with a line in the log, and learning begins anew. Knows no learner's insides.

use crate::aside::{self, AsideError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{File, create_dir_all, rename};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Its name in the collector's data folder.
const FILE: &str = "sizing.json";
/// What this build writes and reads.
const VERSION: u32 = 1;
/// A file beyond this is none of ours: three times what the limits let be written.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize)]
struct Written<'a, T> {
    version: u32,
    listeners: &'a T,
}

#[derive(Deserialize)]
struct Read1<T> {
    version: u32,
    listeners: T,
}

/// Why nothing was written or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum LearntError {
    /// The disk refuses.
    #[error("{path}: {source}")]
    Disk {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no file of this kind.
    #[error("{path}: {source}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where it is wrong.
        source: serde_json::Error,
    },
    /// It is too large, or of another version.
    #[error("{path}: {why}")]
    Strange {
        /// Which file.
        path: PathBuf,
        /// What is strange.
        why: String,
    },
}

/// Writes `listeners` in place of what was there.
pub(super) fn write<T: Serialize>(folder: &Path, listeners: &T) -> Result<(), LearntError> {
    let (path, temporary) = (folder.join(FILE), folder.join(format!("{FILE}.tmp")));
    let disk = |path: &Path| {
        let path = path.to_owned();
        move |source| LearntError::Disk { path, source }
    };
    create_dir_all(folder).map_err(disk(folder))?;
    let mut out = BufWriter::new(File::create(&temporary).map_err(disk(&temporary))?);
    let written = Written { version: VERSION, listeners };
    serde_json::to_writer(&mut out, &written).map_err(|e| disk(&temporary)(e.into()))?;
    out.flush().map_err(disk(&temporary))?;
    out.get_ref().sync_all().map_err(disk(&temporary))?;
    rename(&temporary, &path).map_err(disk(&path))?;
    // The name is on disk when the folder is.
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(disk(folder))
}

/// What was kept; `None`: nothing was.
pub(super) fn read<T: DeserializeOwned>(folder: &Path) -> Result<Option<T>, LearntError> {
    let path = folder.join(FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(LearntError::Disk { path, source }),
    };
    let size = file.metadata().map_or(0, |of| of.len());
    if size > BYTES_MAX {
        return Err(LearntError::Strange {
            path,
            why: format!("it has {size} bytes, and {BYTES_MAX} are the most"),
        });
    }
    let read: Result<Read1<T>, _> = serde_json::from_reader(BufReader::new(file.take(BYTES_MAX)));
    match read {
        Ok(Read1 { version: VERSION, listeners }) => Ok(Some(listeners)),
        Ok(Read1 { version, .. }) => Err(LearntError::Strange {
            path,
            why: format!("it has version {version}, and this build reads {VERSION}"),
        }),
        Err(e) if e.is_io() => Err(LearntError::Disk { path, source: e.into() }),
        Err(source) => Err(LearntError::Damaged { path, source }),
    }
}

/// Puts the file out of the way, for a person to judge. Says where it is now.
pub(super) fn put_aside(folder: &Path) -> Result<PathBuf, AsideError> {
    aside::put(folder, &folder.join(FILE), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let within = folder.path().join("data");
        assert_eq!(read::<Vec<u32>>(&within).unwrap(), None);
        write(&within, &vec![1, 2, 3]).unwrap();
        assert_eq!(read(&within).unwrap(), Some(vec![1, 2, 3]));
        assert!(!within.join("sizing.json.tmp").exists());
        let path = within.join(FILE);
        for (text, says) in [
            ("{\"version\":1,\"listeners\":[1,", "EOF"),
            ("{\"version\":1,\"listeners\":\"x\"}", "expected a sequence"),
            ("{\"version\":9,\"listeners\":[]}", "version 9"),
        ] {
            std::fs::write(&path, text).unwrap();
            let why = read::<Vec<u32>>(&within).unwrap_err().to_string();
            assert!(why.contains("sizing.json") && why.contains(says), "{why}");
            let to = put_aside(&within).unwrap();
            assert_eq!(std::fs::read_to_string(to).unwrap(), text);
            assert!(!path.exists());
        }
        assert_eq!(std::fs::read_dir(aside::folder(&within)).unwrap().count(), 3, "none in place of another");
    }

    #[test]
    fn a_disk_that_refuses_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let why = write(&file.join("data"), &1).unwrap_err().to_string();
        assert!(why.contains("file/data"), "{why}");
    }
}
