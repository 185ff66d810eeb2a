//! Where what is tried lies as a file, for parsers that read files.

use std::path::{Path, PathBuf};

thread_local! {
    /// A folder in memory where there is one: a disk would be slower than what is tried. Of a thread, since what is a thread's goes with it, and
    /// what is static never does.
    static FOLDER: tempfile::TempDir = {
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        made.expect("a folder for what is tried")
    };
}

/// The folder of this thread.
pub(crate) fn folder() -> PathBuf {
    FOLDER.with(|folder| folder.path().to_owned())
}

/// A file in it.
pub(crate) fn written(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("its folder was made");
    path
}
