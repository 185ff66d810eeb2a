//! Secrets by file: read at the start, and again when a file changed, so that they can be rotated without a restart.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{key} = \"{}\": {why}\n  remedy: {remedy}", file.display())]
pub struct SecretError {
    /// Which key of the configuration names it.
    pub key: &'static str,
    /// Which file.
    pub file: PathBuf,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub remedy: &'static str,
}

type Stamp = Option<(SystemTime, u64)>;
type Parse<T> = fn(&str) -> Result<T, String>;

/// A file's content, as of its last change.
#[derive(Debug)]
pub struct Watched<T> {
    key: &'static str,
    file: PathBuf,
    parse: Parse<T>,
    remedy: &'static str,
    loaded: Mutex<(Stamp, Arc<T>)>,
}

fn stamp(file: &Path) -> Stamp {
    let meta = std::fs::metadata(file).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

impl<T> Watched<T> {
    /// Reads it.
    pub fn load(
        key: &'static str,
        file: &Path,
        remedy: &'static str,
        parse: Parse<T>,
    ) -> Result<Self, SecretError> {
        let stamp = stamp(file);
        let value =
            read(file, parse).map_err(|why| SecretError { key, file: file.to_owned(), why, remedy })?;
        Ok(Self { key, file: file.to_owned(), parse, remedy, loaded: Mutex::new((stamp, Arc::new(value))) })
    }

    /// What it holds now. A change that cannot be used leaves the old content in use, with a warning.
    pub fn current(&self) -> Arc<T> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.file);
        if now != loaded.0 {
            match read(&self.file, self.parse) {
                Ok(value) => {
                    tracing::info!("{} = \"{}\" changed and is in use", self.key, self.file.display());
                    loaded.1 = Arc::new(value);
                }
                Err(why) => {
                    let (key, file, remedy) = (self.key, self.file.display(), self.remedy);
                    tracing::warn!(
                        "{key} = \"{file}\" changed and cannot be used, the old one stays: {why}\n  remedy: {remedy}"
                    );
                }
            }
            loaded.0 = now;
        }
        Arc::clone(&loaded.1)
    }
}

fn read<T>(file: &Path, parse: Parse<T>) -> Result<T, String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    parse(text.trim())
}

/// Standard Webhooks secrets: "whsec_" and base64, one a line.
pub fn signing_secrets(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let secrets = lines
        .map(|line| {
            let secret = STANDARD
                .decode(line.strip_prefix("whsec_").unwrap_or(line))
                .map_err(|e| format!("not base64: {e}"))?;
            if secret.is_empty() { Err("it is empty".to_owned()) } else { Ok(secret) }
        })
        .collect::<Result<Vec<_>, _>>()?;
    if secrets.is_empty() { Err("it is empty".into()) } else { Ok(secrets) }
}

/// How signing secrets are to be written.
pub const SIGNING_REMEDY: &str =
    "put \"whsec_\" and the base64 of 24 to 64 random bytes in it, one secret a line";

/// One line that is not empty.
pub fn line(text: &str) -> Result<String, String> {
    let fine = !text.is_empty() && !text.contains(|c: char| c.is_ascii_control());
    if fine { Ok(text.to_owned()) } else { Err("it is not one line of text".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_again_when_they_change_and_a_bad_change_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let load = || Watched::load("secret_files", &file, SIGNING_REMEDY, signing_secrets);
        std::fs::write(&file, "whsec_!!").unwrap();
        let text = load().unwrap_err().to_string();
        assert!(text.contains("secret_files = ") && text.contains("remedy"), "{text}");
        std::fs::write(&file, "whsec_AAECAw==\n").unwrap();
        let watched = load().unwrap();
        assert_eq!(*watched.current(), [[0, 1, 2, 3]]);
        std::fs::write(&file, "# old\nwhsec_AAECAw==\n# new\nwhsec_BAUGBw==\n").unwrap();
        assert_eq!(*watched.current(), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        std::fs::write(&file, "whsec_").unwrap();
        assert_eq!(watched.current().len(), 2);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(watched.current().len(), 2);
        assert!(line("a\nb").is_err() && line("").is_err());
    }
}
