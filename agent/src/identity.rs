//! What this machine got: key, certificate, authority, and of whom and until when, in a folder for its owner alone. Owns the names of the files and
//! that each is written whole.

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown, lchown};
use std::path::{Path, PathBuf};

/// Where it is kept unless told otherwise: in the state directory of the packaged unit.
pub const DEFAULT_FOLDER: &str = "/var/lib/tailwater-agent/identity";

const KEY: &str = "agent.key";
const CERT: &str = "agent.crt";
const CA: &str = "ca.crt";
const ABOUT: &str = "identity.toml";

/// Files that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum IdentityError {
    #[error("{}: {source}; run it as whom the agent runs as, or give another folder with --identity", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{}: {reason}; `tailwater-agent join` makes it anew", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{}: nobody has joined from there; `tailwater-agent join https://COLLECTOR:4781 --token-file FILE` does", folder.display())]
    None { folder: PathBuf },
}

/// As whom this machine speaks, to whom, and how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The collector's URL.
    pub collector: String,
    /// The name in the certificate.
    pub host: String,
    /// When it was made, Unix seconds of the collector's clock.
    pub issued_unix_s: u64,
    /// When it ends.
    pub expires_unix_s: u64,
}

/// Files of mutual TLS. Read at each connect, so a renewed certificate needs no restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TlsFiles {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority.
    pub ca: PathBuf,
    /// Whether they are of the collector's own authority: of one that takes other certificates as well, for a time, the agent then asks for that side.
    #[serde(skip)]
    pub joined: bool,
}

/// Those of this folder.
#[must_use]
pub fn files(folder: &Path) -> TlsFiles {
    TlsFiles { cert: folder.join(CERT), key: folder.join(KEY), ca: folder.join(CA), joined: true }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> IdentityError + use<> {
    let path = path.to_owned();
    move |source| IdentityError::File { path: path.clone(), source }
}

/// Whose the folder is: user and group.
pub fn owner(folder: &Path) -> Result<(u32, u32), IdentityError> {
    let about = std::fs::metadata(folder).map_err(failed(folder))?;
    Ok((about.uid(), about.gid()))
}

/// Makes the folder, and looks whether it can be written. Root makes it for whoever owns the one around it: the state directory of the unit belongs to
/// the unit's user, who reads and renews what root has joined.
pub fn prepare(folder: &Path) -> Result<(), IdentityError> {
    if !folder.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
        if rustix::process::geteuid().is_root()
            && let Some(around) = folder.parent()
        {
            let (user, group) = owner(around)?;
            // Of a link that was put there meanwhile, the link.
            lchown(folder, Some(user), Some(group)).map_err(failed(folder))?;
        }
    }
    let probe = folder.join(".join");
    write(&probe, "")?;
    std::fs::remove_file(&probe).map_err(failed(&probe))
}

/// The private key, PEM.
pub fn key(folder: &Path) -> Result<String, IdentityError> {
    let path = folder.join(KEY);
    std::fs::read_to_string(&path).map_err(failed(&path))
}

/// Whole or not at all, for the folder's owner alone, also where root writes it.
fn write(path: &Path, text: &str) -> Result<(), IdentityError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match std::fs::remove_file(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(&new)(e)),
        _ => {}
    }
    let written = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let folder = path.parent().map(File::open).transpose()?;
        if let Some(folder) = folder.as_ref().filter(|_| rustix::process::geteuid().is_root()) {
            let owner = folder.metadata()?;
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        folder.map_or(Ok(()), |folder| folder.sync_all())
    };
    written().map_err(failed(path))
}

fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in body.as_bytes().chunks(64) {
        let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
    }
    text + "-----END CERTIFICATE-----\n"
}

impl Identity {
    /// As it is kept in `folder`.
    pub fn load(folder: &Path) -> Result<Self, IdentityError> {
        let path = folder.join(ABOUT);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(IdentityError::None { folder: folder.to_owned() });
            }
            Err(e) => return Err(failed(&path)(e)),
        };
        toml::from_str(&text).map_err(|e| IdentityError::Damaged { path, reason: e.message().to_owned() })
    }

    /// As it is kept where nobody said where; `None`: nobody has joined, or this user may not look, and so does not speak as that host.
    pub fn load_default(folder: &Path) -> Result<Option<Self>, IdentityError> {
        match Self::load(folder) {
            Ok(held) => Ok(Some(held)),
            Err(IdentityError::None { .. }) => Ok(None),
            Err(IdentityError::File { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// When it is to be renewed: at two thirds of its life.
    #[must_use]
    pub fn due_unix_s(&self) -> u64 {
        let lasts = self.expires_unix_s.saturating_sub(self.issued_unix_s);
        self.issued_unix_s.saturating_add(lasts / 3 * 2)
    }

    /// Keeps it: key and authority where they are new, too. What says until when comes last.
    pub fn keep(
        &self,
        folder: &Path,
        key: Option<&str>,
        cert: &[u8],
        ca: Option<&CertificateDer<'_>>,
    ) -> Result<(), IdentityError> {
        if let Some(key) = key {
            write(&folder.join(KEY), key)?;
        }
        if let Some(ca) = ca {
            write(&folder.join(CA), &pem(ca))?;
        }
        write(&folder.join(CERT), &pem(cert))?;
        let path = folder.join(ABOUT);
        let text = toml::to_string(self)
            .map_err(|e| IdentityError::Damaged { path: path.clone(), reason: e.to_string() })?;
        write(&path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_kept_is_found_again_and_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("identity");
        assert!(Identity::load(&at).unwrap_err().to_string().contains("tailwater-agent join"));
        assert_eq!(Identity::load_default(&at).unwrap(), None);
        prepare(&at).unwrap();
        let made = Identity {
            collector: "https://c:4781".into(),
            host: "web-1".into(),
            issued_unix_s: 1000,
            expires_unix_s: 1300,
        };
        let cert = CertificateDer::from(vec![7_u8; 100]);
        made.keep(&at, Some("a key"), &cert, Some(&cert)).unwrap();
        assert_eq!((Identity::load(&at).unwrap(), made.due_unix_s()), (made.clone(), 1200));
        assert_eq!(Identity::load_default(&at).unwrap(), Some(made));
        assert_eq!(key(&at).unwrap(), "a key");
        use rustls::pki_types::pem::PemObject;
        let files = files(&at);
        assert_eq!(CertificateDer::from_pem_file(&files.cert).unwrap(), cert);
        for file in [&files.key, &files.cert, &files.ca] {
            assert_eq!(std::fs::metadata(file).unwrap().mode() & 0o777, 0o600, "{}", file.display());
        }
        assert_eq!(std::fs::metadata(&at).unwrap().mode() & 0o777, 0o700);
        std::fs::write(at.join(ABOUT), "host = 1").unwrap();
        assert!(Identity::load_default(&at).is_err(), "damaged is not the same as none");
    }
}
