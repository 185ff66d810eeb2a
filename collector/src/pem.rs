//! PEM files of a TLS server: reads certificates and keys, says which file is wrong, and reads them again when one changed. Knows no port and
//! no rule about who may connect.

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Why files do not make a server.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or holds no such thing.
    #[error("[{table}] {key} = \"{}\": {source}\n  remedy: give a readable PEM file", file.display())]
    File {
        /// Which table of the configuration.
        table: &'static str,
        /// `cert`, `key` or `ca`.
        key: &'static str,
        /// Which file.
        file: PathBuf,
        /// What is wrong.
        source: rustls_pki_types::pem::Error,
    },
    /// A file without what it should hold.
    #[error("[{table}] {key} = \"{}\": no certificate in it\n  remedy: give a PEM file with at least one", file.display())]
    Empty {
        /// Which table of the configuration.
        table: &'static str,
        /// `cert` or `ca`.
        key: &'static str,
        /// Which file.
        file: PathBuf,
    },
    /// They do not fit together.
    #[error(
        "[{table}] {why}\n  remedy: check that key belongs to cert and that ca, where there is one, holds authorities"
    )]
    Unfit {
        /// Which table of the configuration.
        table: &'static str,
        /// What TLS says.
        why: String,
    },
}

/// All certificates of a file; none is an error.
pub fn certificates(
    table: &'static str,
    key: &'static str,
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |source| TlsError::File { table, key, file: file.to_owned(), source };
    let all: Vec<_> =
        CertificateDer::pem_file_iter(file).map_err(bad)?.collect::<Result<_, _>>().map_err(bad)?;
    if all.is_empty() {
        return Err(TlsError::Empty { table, key, file: file.to_owned() });
    }
    Ok(all)
}

/// The private key of a file.
pub fn private_key(table: &'static str, file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(file).map_err(|source| TlsError::File {
        table,
        key: "key",
        file: file.to_owned(),
        source,
    })
}

type Stamp = Vec<Option<(SystemTime, u64)>>;

/// A server's configuration as its files are now.
#[derive(Debug)]
pub struct Reloaded {
    files: Vec<PathBuf>,
    loaded: Mutex<(Stamp, Arc<ServerConfig>)>,
}

impl Reloaded {
    /// What `load` makes of these files.
    pub fn new(
        files: Vec<PathBuf>,
        load: impl FnOnce() -> Result<ServerConfig, TlsError>,
    ) -> Result<Self, TlsError> {
        let stamp = stamp(&files);
        Ok(Self { files, loaded: Mutex::new((stamp, Arc::new(load()?))) })
    }

    /// The configuration for the next handshake. When a file changed since, it is loaded first; files that do not load leave the old ones
    /// in use, with a warning.
    pub fn current(&self, load: impl FnOnce() -> Result<ServerConfig, TlsError>) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.files);
        if now != loaded.0 {
            match load() {
                Ok(config) => {
                    let cert = self.files.first().map(|file| file.display().to_string()).unwrap_or_default();
                    tracing::info!(cert, "TLS files changed and are in use");
                    loaded.1 = Arc::new(config);
                }
                Err(e) => tracing::warn!("TLS files changed and cannot be used, the old ones stay: {e}"),
            }
            loaded.0 = now;
        }
        Arc::clone(&loaded.1)
    }
}

fn stamp(files: &[PathBuf]) -> Stamp {
    let of = |path: &PathBuf| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    };
    files.iter().map(of).collect()
}
