//! Where a file goes that cannot be read, for a person to judge. Owns its place below the collector's data folder, and the way there.

use std::fs::{create_dir_all, rename};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Files of one name that are kept.
const KEPT_MAX: u32 = 1000;

/// Why something was not put aside.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub(crate) struct AsideError {
    /// What the disk refuses: the file, or the folder that it was to go to.
    path: PathBuf,
    /// Why.
    pub(crate) source: io::Error,
}

/// The folder of what was put aside, below the collector's data.
pub(crate) fn folder(data: &Path) -> PathBuf {
    data.join("aside")
}

/// A place for the file `name` that none has taken before it; `None`: there are a thousand.
fn place(data: &Path, name: &str) -> Option<PathBuf> {
    let aside = folder(data);
    (0..KEPT_MAX).map(|n| aside.join(format!("{name}.{n}"))).find(|place| !place.exists())
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(end);
    path.into()
}

/// Moves the file or folder `path` out of the way, and with it what stands beside it under its name and one of `ends`, as far as that is there. Where a
/// thousand of its name are kept, a file takes the place of the first, so that a new one can be begun; a folder stays. Says where it is now.
pub(crate) fn put(data: &Path, path: &Path, ends: &[&str]) -> Result<PathBuf, AsideError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| AsideError { path, source }
    };
    let aside = folder(data);
    create_dir_all(&aside).map_err(failed(&aside))?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let to = match place(data, &name) {
        Some(free) => free,
        None if path.is_dir() => return Err(failed(path)(ErrorKind::AlreadyExists.into())),
        None => aside.join(format!("{name}.0")),
    };
    rename(path, &to).map_err(failed(path))?;
    for end in ends {
        let from = beside(path, end);
        if let Err(e) = rename(&from, beside(&to, end))
            && e.kind() != ErrorKind::NotFound
        {
            return Err(failed(&from)(e));
        }
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read_to_string, write};

    #[test]
    fn what_stands_beside_a_file_goes_with_it_under_its_new_name() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("x.db");
        for n in 0..2 {
            write(&path, n.to_string()).unwrap();
            write(beside(&path, "-wal"), format!("log {n}")).unwrap();
            let to = put(data.path(), &path, &["-wal", "-shm"]).unwrap();
            assert_eq!(to, folder(data.path()).join(format!("x.db.{n}")));
            assert_eq!(read_to_string(beside(&to, "-wal")).unwrap(), format!("log {n}"));
            assert!(!path.exists() && !beside(&path, "-wal").exists());
        }
        let why = put(data.path(), &path, &[]).unwrap_err().to_string();
        assert!(why.contains("x.db: "), "what is not there is named: {why}");
    }

    #[test]
    fn of_a_thousand_a_file_takes_the_place_of_the_first_and_a_folder_stays() {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder(data.path())).unwrap();
        for n in 0..KEPT_MAX {
            write(folder(data.path()).join(format!("x.{n}")), "old").unwrap();
        }
        let path = data.path().join("x");
        write(&path, "new").unwrap();
        let to = put(data.path(), &path, &[]).unwrap();
        assert_eq!(
            (to.clone(), read_to_string(to).unwrap().as_str()),
            (folder(data.path()).join("x.0"), "new")
        );
        std::fs::create_dir(&path).unwrap();
        let why = put(data.path(), &path, &[]).unwrap_err();
        assert_eq!(why.source.kind(), ErrorKind::AlreadyExists);
        assert!(path.is_dir());
    }
}
