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
    /// `File::sync_all` of a folder: the names in it stay.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// `rename`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// `remove_dir_all`.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
}

/// The one that there is.
#[derive(Debug)]
pub(super) struct RealDisk;

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
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}
