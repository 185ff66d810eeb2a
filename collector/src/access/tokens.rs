//! The tokens of a running collector: those of its file, read again when it changed. Owns that a revoked token ends within a second, and that
//! a collector which wanted tokens never goes on without.

use super::file::{Entry, TokenFile};
use super::token::Token;
use crate::kept::{KeptError, Watch};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

#[derive(Debug)]
struct Loaded {
    watch: Watch,
    /// There is a file, or was one.
    seen: bool,
    list: Arc<Vec<Entry>>,
}

/// All tokens, as the file has them.
#[derive(Debug)]
pub struct Tokens {
    file: TokenFile,
    loaded: Mutex<Loaded>,
}

impl Tokens {
    /// Reads the file, if there is one. One that cannot be read is no reason to go on without tokens.
    pub fn load(file: TokenFile) -> Result<Self, KeptError> {
        let watch = Watch::read_as(file.stamp());
        let list = file.load()?;
        let loaded = Loaded { watch, seen: list.is_some(), list: Arc::new(list.unwrap_or_default()) };
        Ok(Self { file, loaded: Mutex::new(loaded) })
    }

    /// Where they are kept.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// All of them, and whether there is a file or was one since the start.
    #[must_use]
    pub fn current(&self, now: Instant) -> (Arc<Vec<Entry>>, bool) {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded.watch.look(now, || self.file.stamp(), || self.file.load()) {
            None => {}
            Some(Ok(Some(list))) => {
                told(&loaded.list, &list);
                (loaded.list, loaded.seen) = (Arc::new(list), true);
            }
            // Whoever takes the file away means its tokens.
            Some(Ok(None)) => {
                tracing::warn!("{} is gone: no token is good any more", self.path().display());
                told(&loaded.list, &[]);
                loaded.list = Arc::default();
            }
            Some(Err(e)) => {
                tracing::warn!(
                    "the file of tokens changed and cannot be used, the old ones stay until it can: {e}"
                )
            }
        }
        (Arc::clone(&loaded.list), loaded.seen)
    }

    /// The token that somebody shows, if it is one of these. All are compared, whichever it is.
    #[must_use]
    pub fn find(list: &[Entry], shown: &Token) -> Option<Entry> {
        let hash = shown.hash();
        let mut found = None;
        for entry in list {
            if entry.sha256.same(&hash) {
                found = Some(entry.clone());
            }
        }
        found
    }
}

/// Who may come in from now on, and who no more.
fn told(before: &[Entry], after: &[Entry]) {
    let lacks = |list: &[Entry], of: &Entry| !list.iter().any(|other| other == of);
    for of in after.iter().filter(|of| lacks(before, of)) {
        tracing::info!(target: super::audit::TARGET, token = %of.name, role = %of.role, "token made");
    }
    for of in before.iter().filter(|of| lacks(after, of)) {
        tracing::info!(target: super::audit::TARGET, token = %of.name, role = %of.role, "token revoked");
    }
}

#[cfg(test)]
mod tests {
    use super::super::role::Role;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_token_is_good_within_a_second_and_no_longer_than_a_second_after_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::at(folder.path().join("tokens.toml"));
        let tokens = Tokens::load(file.clone()).unwrap();
        let begin = crate::clock::Clock::default().monotonic();
        let at = |ms: u64| tokens.current(begin + Duration::from_millis(ms));
        assert!(!at(0).1, "nobody wanted any");
        let token = file.create("a", Role::Read, 1, None).unwrap();
        assert!(at(500).0.is_empty(), "not looked at yet");
        let (list, seen) = at(1000);
        assert!(seen && Tokens::find(&list, &token).is_some_and(|of| of.name == "a"));
        assert!(Tokens::find(&list, &Token::generate().unwrap()).is_none());
        file.revoke("a").unwrap();
        assert_eq!(at(2000).0.len(), 0);
        std::fs::write(file.path(), "damaged").unwrap();
        assert_eq!((at(3000).0.len(), at(3000).1), (0, true));
        file.create("b", Role::Read, 1, None).unwrap_err();
        std::fs::remove_file(file.path()).unwrap();
        file.create("b", Role::Read, 1, None).unwrap();
        assert_eq!(at(4000).0.len(), 1);
        std::fs::remove_file(file.path()).unwrap();
        let (list, seen) = at(5000);
        assert!(list.is_empty() && seen, "a file that is taken away opens nothing");
    }

    #[test]
    fn a_damaged_file_stops_the_start_and_later_leaves_the_tokens_that_were() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::at(folder.path().join("tokens.toml"));
        file.create("a", Role::Read, 1, None).unwrap();
        let tokens = Tokens::load(file.clone()).unwrap();
        let begin = crate::clock::Clock::default().monotonic();
        std::fs::write(file.path(), "damaged").unwrap();
        assert_eq!(tokens.current(begin).0.len(), 1);
        assert!(Tokens::load(file).is_err());
    }
}
