//! What is done to a disk to write, move and remove a segment, by name. Owns only that: so that a simulation can play a disk that is full,
//! that stops in the middle, or that forgets what was not synced. What is read is read from the files in any case.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// A file that is being written.
pub(super) trait Output: Write + Send {
    /// Returns once all of it is on the disk, with its bytes. Its name is its folder's.
    fn sync(&mut self) -> io::Result<u64>;
}

/// Where segments are written. Each is as the function of `std::fs` that is named there.
pub(super) trait Disk: Debug + Send + Sync {
    /// `File::create`.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// `create_dir`.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// `create_dir_all`.
    fn create_folders(&self, path: &Path) -> io::Result<()>;
    /// `File::sync_all` of a folder: the names in it stay, as far as its file system can say so of folders.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// `rename`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// `remove_dir_all`.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
}

/// The one that there is.
#[derive(Debug)]
pub(super) struct RealDisk;

/// What a file system says of work that it does not know, in contrast to work that failed.
fn is_not_offered(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

impl Output for File {
    fn sync(&mut self) -> io::Result<u64> {
        self.sync_all()?;
        Ok(self.metadata()?.len())
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(File::create(path)?))
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create_folders(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        match File::open(path)?.sync_all() {
            // Some file systems (FUSE, 9p, SMB) have no such thing for folders: as if it were a failure, no segment would ever be written there.
            Err(e) if is_not_offered(&e) => Ok(()),
            synced => synced,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails where every error of a sync is a failure of the disk, or none is.
    #[test]
    fn a_file_system_that_syncs_no_folders_has_not_failed() {
        let is_not_offered = |code| is_not_offered(&io::Error::from_raw_os_error(code));
        assert!([libc::EINVAL, libc::EOPNOTSUPP].into_iter().all(is_not_offered));
        assert!(![libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EROFS].into_iter().any(is_not_offered));
        let folder = tempfile::tempdir().unwrap();
        RealDisk.sync_folder(folder.path()).unwrap();
        assert!(RealDisk.sync_folder(&folder.path().join("none")).is_err());
    }
}
