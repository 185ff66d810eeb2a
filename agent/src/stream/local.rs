//! The collector of this machine, over a socket in the file system: connects, and looks who listens before a word is said. Owns the rule
//! who may; knows no message.
//!
//! The kernel tells the user who called listen(2) (`SO_PEERCRED`, unix(7)). That is the collector if it is root, or this agent's own user, or
//! if nobody but that user and root could have put a socket there.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// Group or others may write.
const OTHERS_WRITE: u32 = 0o022;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum LocalError {
    #[error("nobody listens there; start `tailwater serve` on this machine, or name another collector")]
    Nobody,
    #[error("this agent may not open it; run it as root, or as a member of the socket's group (`ls -l`)")]
    Denied,
    #[error("{0}")]
    Connect(std::io::Error),
    #[error(
        "uid {uid} listens there, and others may have made it: {} may be written by more than root and that user; put the socket into a folder of the collector's own",
        folder.display()
    )]
    Stranger { uid: u32, folder: PathBuf },
}

/// The path of a `unix://` URL.
pub fn path(url: &str) -> Option<&Path> {
    url.strip_prefix("unix://").map(Path::new)
}

/// Connects, and refuses whoever may be somebody else.
pub async fn connect(path: &Path) -> Result<UnixStream, LocalError> {
    let stream = UnixStream::connect(path).await.map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => LocalError::Nobody,
        ErrorKind::PermissionDenied => LocalError::Denied,
        _ => LocalError::Connect(e),
    })?;
    let uid = stream.peer_cred().map_err(LocalError::Connect)?.uid();
    let own = rustix::process::geteuid().as_raw();
    match open_to_others(path, uid).map_err(LocalError::Connect)? {
        Some(folder) if uid != 0 && uid != own => Err(LocalError::Stranger { uid, folder }),
        _ => Ok(stream),
    }
}

/// The first folder on the way to `path` in which more than root and `uid` can make files.
fn open_to_others(path: &Path, uid: u32) -> std::io::Result<Option<PathBuf>> {
    let path = path.canonicalize()?;
    for folder in path.ancestors().skip(1) {
        let of = folder.metadata()?;
        if ![0, uid].contains(&of.uid()) || of.mode() & OTHERS_WRITE != 0 {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{DirBuilder, Permissions, set_permissions};
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    use std::os::unix::process::CommandExt;

    #[test]
    fn only_urls_of_sockets_have_a_path() {
        assert_eq!(path("unix:///run/tailwater/agents.sock"), Some(Path::new("/run/tailwater/agents.sock")));
        assert_eq!(path("http://127.0.0.1:4781"), None);
    }

    /// Another user, who came before the collector.
    fn anybody(socket: &Path) -> std::process::Child {
        let listen = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(60)";
        let mut python = std::process::Command::new("python3");
        let child = python.args(["-c", listen]).arg(socket).uid(65_534).gid(65_534).spawn().unwrap();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child
    }

    #[tokio::test]
    async fn privileged_a_user_who_came_first_is_not_the_collector() {
        let folder = tempfile::tempdir().unwrap();
        set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let socket = folder.path().join("agents.sock");
        let mut other = anybody(&socket);
        let told = connect(&socket).await.unwrap_err().to_string();
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(
            told.starts_with("uid 65534 listens there") && told.contains("put the socket into"),
            "{told}"
        );
    }

    #[test]
    fn a_folder_that_others_write_to_proves_nothing() {
        // /tmp is everybody's: whoever comes first makes what is in it.
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agents.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let uid = folder.path().metadata().unwrap().uid();
        let everybodys = std::env::temp_dir().canonicalize().unwrap();
        assert_eq!(open_to_others(&socket, uid).unwrap(), Some(everybodys));
        let shared = folder.path().join("shared");
        DirBuilder::new().mode(0o755).create(&shared).unwrap();
        set_permissions(&shared, Permissions::from_mode(0o775)).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(shared.join("a")).unwrap();
        assert_eq!(open_to_others(&shared.join("a"), uid).unwrap(), Some(shared.canonicalize().unwrap()));
        // /proc belongs to root, and nobody makes files there.
        assert_eq!(open_to_others(Path::new("/proc/version"), 1).unwrap(), None);
    }
}
