//! The certificates that agents have, and whose they are: a file that commands and the collector share. A certificate that is not in it is
//! nobody's, whoever signed it: so a host is revoked by taking its certificates out. It is remembered as revoked then, or whoever joins by itself would be
//! back at once.

use crate::access::token::Hash;
use crate::kept::{Kept, KeptError, Watch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

const HEAD: &str = "Certificates of agents, by their SHA-256: whoever is not in this file is not let in.";
/// Of a host: the newest, and the one before it, which a stream may still show.
const PER_HOST: usize = 2;
/// Hosts with certificates: as many as a collector knows by name.
const HOSTS_MAX: usize = 4096;

/// One certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// Whose it is.
    pub host: String,
    /// When it was made, Unix seconds; not known of those that were issued while this was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_unix_s: Option<u64>,
    /// When it ends, Unix seconds.
    pub expires_unix_s: u64,
    /// Of its DER.
    pub sha256: Hash,
    /// Of its public key. A renewed certificate has the same: where this file is of before the renewal, out of a backup, its host is known by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_sha256: Option<Hash>,
}

impl Certificate {
    /// Whether it lasts still.
    #[must_use]
    pub fn lasts(&self, now_unix_s: u64) -> bool {
        self.expires_unix_s > now_unix_s
    }
}

/// A host that was revoked, until somebody lets it in again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoked {
    /// Its name.
    pub host: String,
    /// When, Unix seconds.
    pub since_unix_s: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    certificate: Vec<Certificate>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<Revoked>,
}

impl Content {
    fn has_revoked(&self, host: &str) -> bool {
        self.revoked.iter().any(|of| of.host.eq_ignore_ascii_case(host))
    }

    /// Whether it was there.
    fn forget_revoked(&mut self, host: &str) -> bool {
        let before = self.revoked.len();
        self.revoked.retain(|of| !of.host.eq_ignore_ascii_case(host));
        self.revoked.len() < before
    }
}

#[derive(Debug, Default)]
struct Loaded {
    watch: Watch,
    by_hash: Arc<BTreeMap<String, Certificate>>,
}

/// All of them.
#[derive(Debug)]
pub struct Issued {
    kept: Kept,
    loaded: Mutex<Loaded>,
}

impl Issued {
    /// In the authority's folder.
    #[must_use]
    pub fn at(file: PathBuf) -> Self {
        Self { kept: Kept::at(file, HEAD), loaded: Mutex::default() }
    }

    /// All of them, from the file.
    pub fn all(&self) -> Result<Vec<Certificate>, KeptError> {
        Ok(self.kept.load::<Content>()?.unwrap_or_default().certificate)
    }

    /// What is known of this certificate, unless it is nobody's any more.
    #[must_use]
    pub fn of(&self, der: &[u8], now: Instant, now_unix_s: u64) -> Option<Certificate> {
        let of = self.current(now).get(&Hash::of(der).to_string()).cloned()?;
        of.lasts(now_unix_s).then_some(of)
    }

    /// Whose the certificate with this public key may be: of a host that has another one with the same key.
    #[must_use]
    pub fn with_key(&self, key: &Hash, now: Instant, now_unix_s: u64) -> Option<Certificate> {
        let all = self.current(now);
        let same = |of: &&Certificate| of.key_sha256.is_some_and(|own| own.same(key)) && of.lasts(now_unix_s);
        all.values().find(same).cloned()
    }

    /// Whether that host has one that is not over, as far as was read lately.
    #[must_use]
    pub fn knows(&self, host: &str, now: Instant, now_unix_s: u64) -> bool {
        self.current(now).values().any(|of| of.host.eq_ignore_ascii_case(host) && of.lasts(now_unix_s))
    }

    fn current(&self, now: Instant) -> Arc<BTreeMap<String, Certificate>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded.watch.look(now, || self.kept.stamp(), || self.all()) {
            None => {}
            Some(Ok(all)) => {
                let by_hash = all.into_iter().map(|of| (of.sha256.to_string(), of)).collect();
                loaded.by_hash = Arc::new(by_hash);
            }
            Some(Err(e)) => {
                tracing::warn!("certificates of agents cannot be read, the old ones stay until they can: {e}")
            }
        }
        Arc::clone(&loaded.by_hash)
    }

    /// Whether that host has one that is not over.
    pub fn has(&self, host: &str, now_unix_s: u64) -> Result<bool, KeptError> {
        Ok(self.all()?.iter().any(|of| of.host.eq_ignore_ascii_case(host) && of.lasts(now_unix_s)))
    }

    /// Whether that host was revoked and nobody has let it in again, by the file.
    pub fn is_revoked(&self, host: &str) -> Result<bool, KeptError> {
        Ok(self.kept.load::<Content>()?.unwrap_or_default().has_revoked(host))
    }

    /// All that were revoked, by the file.
    pub fn revoked(&self) -> Result<Vec<Revoked>, KeptError> {
        Ok(self.kept.load::<Content>()?.unwrap_or_default().revoked)
    }

    /// The first of a host that joins: those that it had before are nobody's from now on. `invited`: somebody let this very host in, which ends that it
    /// is revoked; whoever else is revoked gets none, and `false` says so. Told by the file itself: a revocation that comes meanwhile counts.
    pub fn join(&self, one: Certificate, invited: bool, now_unix_s: u64) -> Result<bool, KeptError> {
        let host = one.host.clone();
        self.put(one, true, now_unix_s, |content| {
            if invited {
                content.forget_revoked(&host);
            }
            !content.has_revoked(&host)
        })
    }

    /// One in place of `shown`, if that is still its host's: told by the file itself and not by what was read of it a while ago, else whoever
    /// renews without a pause would outlive the revocation of its host.
    /// `key`: of the one that is shown, which may be newer than the file is.
    pub fn renew(
        &self,
        shown: &[u8],
        key: Option<Hash>,
        one: Certificate,
        now_unix_s: u64,
    ) -> Result<bool, KeptError> {
        let (shown, host) = (Hash::of(shown), one.host.clone());
        let is_it = |of: &Certificate| {
            of.sha256.same(&shown) || key.zip(of.key_sha256).is_some_and(|(shown, own)| own.same(&shown))
        };
        self.put(one, false, now_unix_s, |content| {
            content.certificate.iter().any(|of| is_it(of) && of.host == host && of.lasts(now_unix_s))
        })
    }

    fn put(
        &self,
        one: Certificate,
        alone: bool,
        now_unix_s: u64,
        may: impl FnOnce(&mut Content) -> bool,
    ) -> Result<bool, KeptError> {
        let put = self.kept.change(|content: &mut Content| {
            if !may(content) {
                return Ok(false);
            }
            let all = &mut content.certificate;
            let same = |of: &Certificate| of.host.eq_ignore_ascii_case(&one.host);
            all.retain(|of| !(alone && same(of)));
            while all.iter().filter(|of| same(of)).count() >= PER_HOST {
                let oldest = all.iter().position(same).unwrap_or(0);
                all.remove(oldest);
            }
            if all.len() >= HOSTS_MAX * PER_HOST {
                // Not before: where the clock was wrong for a moment, all would be over, and gone for good.
                all.retain(|of| of.lasts(now_unix_s));
            }
            if all.len() >= HOSTS_MAX * PER_HOST {
                let why = format!("{HOSTS_MAX} hosts have certificates, the limit");
                return Err(self.kept.wrong(why, "revoke those that are gone: `tailwater enrolled`"));
            }
            all.push(one);
            Ok(true)
        })?;
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).watch.look_again();
        Ok(put)
    }

    /// Takes away what that host has, and remembers that it was revoked.
    pub fn revoke(&self, host: &str, now_unix_s: u64) -> Result<(), KeptError> {
        self.kept.change(|content: &mut Content| {
            let before = content.certificate.len();
            content.certificate.retain(|of| !of.host.eq_ignore_ascii_case(host));
            // Once more is no fault: it may have been let in again by a token that is taken away now.
            if content.certificate.len() == before && !content.has_revoked(host) {
                let why = format!("host \"{host}\" has no certificate");
                return Err(self.kept.wrong(why, "`tailwater enrolled` has all hosts"));
            }
            content.forget_revoked(host);
            if content.revoked.len() >= HOSTS_MAX {
                let why = format!("{HOSTS_MAX} hosts are revoked, the limit, so this one stays");
                return Err(self
                    .kept
                    .wrong(why, "`tailwater enrolled --allow HOST` forgets one that is gone"));
            }
            content.revoked.push(Revoked { host: host.to_owned(), since_unix_s: now_unix_s });
            Ok(())
        })
    }

    /// Lets a host that was revoked join again.
    pub fn allow(&self, host: &str) -> Result<(), KeptError> {
        self.kept.change(|content: &mut Content| {
            if !content.forget_revoked(host) {
                let why = format!("host \"{host}\" is not revoked");
                return Err(self.kept.wrong(why, "`tailwater enrolled --revoked` has those that are"));
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_newest_two_until_they_are_over_or_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let issued = Issued::at(folder.path().join("issued.toml"));
        let begin = crate::clock::Clock::default().monotonic();
        let one = |host: &str, der: &[u8], expires_unix_s: u64| Certificate {
            host: host.into(),
            issued_unix_s: None,
            expires_unix_s,
            sha256: Hash::of(der),
            key_sha256: Some(Hash::of(host.as_bytes())),
        };
        let host_of = |der: &[u8], now: u64| issued.of(der, begin, now).map(|of| of.host);
        assert!(issued.put(one("web-1", b"a", 100), false, 1, |_| true).unwrap());
        assert!(issued.put(one("web-1", b"b", 100), false, 1, |_| true).unwrap());
        assert!(issued.put(one("db-1", b"d", 50), false, 1, |_| true).unwrap());
        assert_eq!(host_of(b"a", 1).as_deref(), Some("web-1"));
        assert!(issued.put(one("WEB-1", b"c", 100), false, 1, |_| true).unwrap());
        assert_eq!((host_of(b"a", 1), host_of(b"b", 1).is_some()), (None, true), "the oldest went");
        assert_eq!((host_of(b"d", 49).as_deref(), host_of(b"d", 50)), (Some("db-1"), None));
        assert!(host_of(b"e", 1).is_none());
        let with_key = |key: &[u8], now: u64| issued.with_key(&Hash::of(key), begin, now).map(|of| of.host);
        assert_eq!((with_key(b"db-1", 49).as_deref(), with_key(b"db-1", 50)), (Some("db-1"), None));
        assert!(issued.knows("DB-1", begin, 49) && !issued.knows("db-1", begin, 50));
        assert!(issued.put(one("web-1", b"f", 100), true, 1, |_| true).unwrap());
        assert_eq!((host_of(b"c", 1), host_of(b"f", 1).is_some()), (None, true), "another key took over");
        // By a command, which is another process.
        Issued::at(folder.path().join("issued.toml")).revoke("web-1", 1).unwrap();
        let later = begin + crate::kept::LOOK_EVERY;
        assert!(issued.of(b"f", later, 1).is_none() && !issued.knows("web-1", later, 1));
        // A clock that was years ahead while somebody joined.
        assert!(issued.put(one("web-9", b"h", 9000), false, 8000, |_| true).unwrap());
        assert_eq!((issued.has("db-1", 8000).unwrap(), issued.has("db-1", 1).unwrap()), (false, true));
        // Once more, as after a token for it that should not have been; a name that nobody had is a typing mistake.
        assert!(issued.revoke("web-1", 1).is_ok() && issued.is_revoked("web-1").unwrap());
        assert!(issued.revoke("web-7", 1).unwrap_err().to_string().contains("tailwater enrolled"));
        assert!(!issued.has("web-1", 1).unwrap() && issued.has("DB-1", 1).unwrap());
    }

    /// Fails if a revoked host is let in by anything but a word for it alone, or if that word is forgotten with the first certificate.
    #[test]
    fn who_was_revoked_gets_none_until_somebody_lets_that_very_host_in() {
        let folder = tempfile::tempdir().unwrap();
        let issued = Issued::at(folder.path().join("issued.toml"));
        let one = |der: &[u8]| Certificate {
            host: "web-1".into(),
            issued_unix_s: None,
            expires_unix_s: 100,
            sha256: Hash::of(der),
            key_sha256: None,
        };
        assert!(issued.join(one(b"a"), false, 1).unwrap());
        issued.revoke("WEB-1", 7).unwrap();
        assert!(issued.is_revoked("web-1").unwrap() && !issued.is_revoked("web-2").unwrap());
        assert_eq!(issued.revoked().unwrap(), [Revoked { host: "WEB-1".into(), since_unix_s: 7 }]);
        assert!(!issued.join(one(b"b"), false, 8).unwrap());
        assert!(!issued.has("web-1", 8).unwrap(), "it was told no, and has one");
        // By a token for it alone, which is a word of its own.
        assert!(issued.join(one(b"c"), true, 8).unwrap());
        assert!(!issued.is_revoked("web-1").unwrap());
        issued.revoke("web-1", 9).unwrap();
        issued.allow("Web-1").unwrap();
        assert!(issued.allow("web-1").unwrap_err().to_string().contains("is not revoked"));
        assert!(issued.join(one(b"d"), false, 9).unwrap());
    }
}
