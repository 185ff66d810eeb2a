//! Where a file goes that cannot be read, for a person to judge. Owns its place below the collector's data folder; moves nothing.

use std::path::{Path, PathBuf};

/// Files of one name that are kept.
const KEPT_MAX: u32 = 1000;

/// The folder of what was put aside, below the collector's data.
pub(crate) fn folder(data: &Path) -> PathBuf {
    data.join("aside")
}

/// A place for the file `name` that none has taken before it; `None`: there are a thousand.
pub(crate) fn place(data: &Path, name: &str) -> Option<PathBuf> {
    let aside = folder(data);
    (0..KEPT_MAX).map(|n| aside.join(format!("{name}.{n}"))).find(|place| !place.exists())
}
