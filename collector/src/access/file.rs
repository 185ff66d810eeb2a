//! The file of tokens: names, roles, hashes. Owns its form, and what can be done with it.

use super::role::{Role, check_name};
use super::token::{Hash, Token};
use crate::kept::{Kept, KeptError, Stamp};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Tokens in one file.
const TOKENS_MAX: usize = 1000;
/// Its first line, for whoever opens it.
const HEAD: &str = "Tokens of this collector, by their SHA-256: `tailwater token` writes this file.";

/// A token as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Whose it is: what logs and lists call it.
    pub name: String,
    /// What it lets do.
    pub role: Role,
    /// When it was made, Unix seconds.
    pub made_unix_s: u64,
    /// When it ends, Unix seconds; without: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_s: Option<u64>,
    /// Of the token.
    pub sha256: Hash,
}

impl Entry {
    /// Whether it is over.
    #[must_use]
    pub fn expired(&self, now_unix_s: u64) -> bool {
        self.expires_unix_s.is_some_and(|end| end <= now_unix_s)
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    token: Vec<Entry>,
}

/// Where tokens are kept.
#[derive(Debug, Clone)]
pub struct TokenFile(Kept);

impl TokenFile {
    /// At this path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(Kept::at(path, HEAD))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Changes when it does.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.0.stamp()
    }

    /// All tokens; `None`: there is no file.
    pub fn load(&self) -> Result<Option<Vec<Entry>>, KeptError> {
        Ok(self.0.load::<Content>()?.map(|content| content.token))
    }

    /// A new token of this name, which is told once and never again.
    pub fn create(
        &self,
        name: &str,
        role: Role,
        now_unix_s: u64,
        expires_unix_s: Option<u64>,
    ) -> Result<Token, KeptError> {
        let wrong = |why: String, remedy: &str| self.0.wrong(why, remedy);
        if let Err(why) = check_name(name) {
            return Err(wrong(why, "choose another name"));
        }
        let token = Token::generate().map_err(|e| self.0.wrong(e, "try again later"))?;
        let sha256 = token.hash();
        self.0.change(|content: &mut Content| {
            let tokens = &mut content.token;
            if tokens.iter().any(|of| of.name == name) {
                let remedy = "revoke it first (`tailwater token revoke NAME`), or choose another name";
                return Err(wrong(format!("there is a token of the name \"{name}\""), remedy));
            }
            if tokens.len() >= TOKENS_MAX {
                let why = format!("there are {TOKENS_MAX} tokens, the limit");
                return Err(wrong(why, "revoke those that nobody needs"));
            }
            tokens.push(Entry {
                name: name.to_owned(),
                role,
                made_unix_s: now_unix_s,
                expires_unix_s,
                sha256,
            });
            Ok(())
        })?;
        Ok(token)
    }

    /// Takes away the token of this name. The file stays, also with none in it: who wanted tokens once goes on to want them.
    pub fn revoke(&self, name: &str) -> Result<(), KeptError> {
        self.0.change(|content: &mut Content| {
            let before = content.token.len();
            content.token.retain(|of| of.name != name);
            if content.token.len() == before {
                let why = format!("there is no token of the name \"{name}\"");
                return Err(self.0.wrong(why, "`tailwater token list` has all names"));
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_made_is_kept_by_its_hash_alone_for_the_owner_alone_until_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::at(folder.path().join("made/tokens.toml"));
        assert!(file.load().unwrap().is_none());
        let token = file.create("grafana", Role::Read, 100, Some(200)).unwrap();
        file.create("ops@example.org", Role::Operate, 100, None).unwrap();
        let all = file.load().unwrap().unwrap();
        assert_eq!((all.len(), &*all[0].name, all[0].role), (2, "grafana", Role::Read));
        assert!(all[0].sha256.same(&token.hash()) && !all[1].sha256.same(&token.hash()));
        assert_eq!(
            (all[0].expired(199), all[0].expired(200), all[1].expired(u64::MAX)),
            (false, true, false)
        );
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(!text.contains(&token.expose()[10..]), "{text}");
        assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        let again = file.create("grafana", Role::Admin, 100, None).unwrap_err().to_string();
        assert!(again.contains("revoke it first") && !again.contains("tailwater_"), "{again}");
        file.revoke("grafana").unwrap();
        assert!(file.revoke("grafana").unwrap_err().to_string().contains("token list"));
        file.revoke("ops@example.org").unwrap();
        assert_eq!(file.load().unwrap().unwrap(), vec![], "the file stays");
    }

    #[test]
    fn names_are_safe_in_files_and_logs() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::at(folder.path().join("tokens.toml"));
        for wrong in ["", "a b", "a\n", "é", &"a".repeat(65)] {
            assert!(file.create(wrong, Role::Read, 1, None).is_err(), "{wrong:?}");
        }
        assert!(file.load().unwrap().is_none());
    }
}
