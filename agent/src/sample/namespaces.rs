//! The network namespaces that processes live in. Owns the way through them; knows nothing of what is looked at there.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// Namespaces walked at most; the rest is left out and told.
const NAMESPACES_MAX: usize = 256;

/// Takes the calling thread through the network namespaces that processes live in, other than its own, and home again. Returns how many
/// it saw, its own among them, and why not all. `visit` is told the inode of the namespace.
pub fn in_every_namespace(visit: &mut dyn FnMut(u64) -> std::io::Result<()>) -> (u32, Option<String>) {
    let mut seen = BTreeSet::new();
    let mut trouble = None;
    let own = File::open("/proc/thread-self/ns/net").ok();
    seen.extend(own.as_ref().and_then(|f| f.metadata().ok()).map(|m| m.ino()));
    for pid in processes() {
        let path = format!("/proc/{pid}/ns/net");
        // Gone, or not ours to look at.
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        if !seen.insert(meta.ino()) {
            continue;
        }
        if seen.len() > NAMESPACES_MAX {
            trouble = Some(format!("more than {NAMESPACES_MAX} network namespaces"));
            seen.remove(&meta.ino());
            break;
        }
        let Ok(namespace) = File::open(&path) else { continue };
        if let Err(error) = enter(&namespace).and_then(|()| visit(meta.ino())) {
            seen.remove(&meta.ino());
            trouble = Some(format!("network namespace of process {pid}: {error}"));
            if error.kind() == std::io::ErrorKind::PermissionDenied {
                break;
            }
        }
    }
    // Back home, so that a namespace that nothing else lives in can go.
    if let Some(own) = own.filter(|_| seen.len() > 1)
        && let Err(error) = enter(&own)
    {
        trouble = Some(format!("own network namespace: {error}"));
    }
    (u32::try_from(seen.len()).unwrap_or(u32::MAX), trouble)
}

/// Every process that /proc shows.
pub fn processes() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn enter(namespace: &File) -> std::io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}
