//! The agents' socket in the file system: makes it, says who may speak there, and takes it away at the end. Owns its mode, its group and
//! the check of credentials; knows no message.
//!
//! Who may open it is what the file's mode says (unix(7)); who opened it is what the kernel says (`SO_PEERCRED`, `SO_PEERGROUPS`), whatever
//! became of the mode meanwhile.

use anyhow::{Context, Result, bail};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};

/// User and group of an agent that root started (`agent/src/attach/privilege.rs`).
const AGENT_ID: u32 = 61_100;
/// Owner and group connect, nobody else.
const MODE: u32 = 0o660;
/// More groups than that are nobody's whom a daemon is started as.
const GROUPS_MAX: usize = 1024;

/// A socket that listens in the file system; its file goes with it.
#[derive(Debug)]
pub struct Local {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: what another collector put there meanwhile is not taken away.
    file: (u64, u64),
    group: u32,
}

/// Who connected, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    uid: u32,
    pid: Option<i32>,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "pid {pid} of uid {}", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

impl Local {
    /// Listens at `path`. What a collector left there that is no more is taken away.
    pub fn bind(path: &Path) -> Result<Self> {
        Self::bound(path).with_context(|| {
            format!(
                "listen on unix://{} for grpc\n  remedy: stop what listens there, or choose another place with --grpc",
                path.display()
            )
        })
    }

    fn bound(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(folder)
                .with_context(|| folder.display().to_string())?;
        }
        clear(path)?;
        let listener = UnixListener::bind(path)?;
        // An agent that root starts goes on as a user of its own; where root is a container's that has no such user it stays root.
        if own_user() == 0
            && let Err(e) = chown(path, None, Some(AGENT_ID))
        {
            tracing::debug!("{} is for root alone: {e}", path.display());
        }
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        let made = fs::symlink_metadata(path)?;
        Ok(Self { listener, path: path.to_owned(), file: (made.dev(), made.ino()), group: made.gid() })
    }

    /// The next connection, and whether whoever made it may speak here.
    pub async fn accept(&self) -> std::io::Result<(UnixStream, Peer, bool)> {
        let (stream, _) = self.listener.accept().await?;
        let of = stream.peer_cred()?;
        let peer = Peer { uid: of.uid(), pid: of.pid() };
        let may = [0, own_user()].contains(&of.uid())
            || of.gid() == self.group
            || groups(stream.as_raw_fd())?.contains(&self.group);
        Ok((stream, peer, may))
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.file);
        if ours && let Err(e) = fs::remove_file(&self.path) {
            tracing::warn!("{} stays behind: {e}", self.path.display());
        }
    }
}

/// Takes away the socket of a collector that is no more, and nothing else.
fn clear(path: &Path) -> Result<()> {
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    if !there.file_type().is_socket() {
        bail!("there is a file that is no socket");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => bail!("address in use: somebody listens there"),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(e) => Err(e.into()),
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Further groups of whoever connected, as of then: `SO_PEERGROUPS`, socket(7).
fn groups(socket: RawFd) -> std::io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; GROUPS_MAX];
    let mut bytes = libc::socklen_t::try_from(size_of_val(groups.as_slice())).unwrap_or(0);
    // SAFETY: `groups` has room for as many bytes as are said, and no element of it is invalid, whatever is written.
    let failed = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if failed != 0 {
        return Err(std::io::Error::last_os_error());
    }
    groups.truncate(usize::try_from(bytes).unwrap_or(0) / size_of::<u32>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn the_socket_is_for_owner_and_group_and_goes_with_its_collector() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/agents.sock");
        runtime().block_on(async {
            let local = Local::bind(&path).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, MODE);
            let _client = UnixStream::connect(&path).await.unwrap();
            let (_, peer, may) = local.accept().await.unwrap();
            let own = own_user();
            assert_eq!((peer.uid, may), (own, true));
            assert_eq!(peer.to_string(), format!("pid {} of uid {own}", std::process::id()));
        });
        assert!(!path.exists(), "it is taken away");
    }

    #[test]
    fn what_is_in_use_or_no_socket_is_left_and_what_a_dead_collector_left_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agents.sock");
        runtime().block_on(async {
            let first = Local::bind(&path).unwrap();
            let told = format!("{:#}", Local::bind(&path).unwrap_err());
            assert!(told.contains("address in use") && told.contains("remedy"), "{told}");
            assert!(path.exists());
            drop(first);
        });
        // A socket that was bound and closed, as after a kill.
        let left = folder.path().join("left.sock");
        drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
        runtime().block_on(async { drop(Local::bind(&left).unwrap()) });
        let file = folder.path().join("file");
        fs::write(&file, "mine").unwrap();
        let told = runtime().block_on(async { format!("{:#}", Local::bind(&file).unwrap_err()) });
        assert!(told.contains("no socket"), "{told}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }

    #[test]
    fn a_successors_socket_is_not_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agents.sock");
        runtime().block_on(async {
            let first = Local::bind(&path).unwrap();
            fs::remove_file(&path).unwrap();
            let second = Local::bind(&path).unwrap();
            drop(first);
            assert!(path.exists());
            drop(second);
        });
    }
}
