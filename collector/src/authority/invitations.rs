//! Tokens of enrolment: who may still join, under which name, until when. A file of hashes that `tailwater enroll` and the collector share.

use crate::access::token::{Hash, NoRandomness, random};
use crate::kept::{Kept, KeptError};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tailwater_proto::JOIN_TOKEN_PREFIX as PREFIX;

const HEAD: &str = "Who may join, by the SHA-256 of their tokens: `tailwater enroll` writes this file.";
/// Tokens that are open at once.
const OPEN_MAX: usize = 1000;

/// One token that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// For this host, or with one `*` for all that begin and end so.
    pub hosts: String,
    /// How many may still join with it.
    pub left: u32,
    /// When it ends, Unix seconds.
    pub expires_unix_s: u64,
    /// Whether a host that has a certificate already may get another.
    pub replace: bool,
    /// Of the secret.
    pub sha256: Hash,
}

impl Invitation {
    /// Whether somebody may still join with it.
    #[must_use]
    pub fn is_open(&self, now_unix_s: u64) -> bool {
        self.left > 0 && self.expires_unix_s > now_unix_s
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    invitation: Vec<Invitation>,
}

/// Whether `pattern` is for `host`.
#[must_use]
pub fn fits(pattern: &str, host: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern.eq_ignore_ascii_case(host),
        Some((begin, end)) => {
            let (host, begin, end) =
                (host.to_ascii_lowercase(), begin.to_ascii_lowercase(), end.to_ascii_lowercase());
            host.len() > begin.len() + end.len() && host.starts_with(&begin) && host.ends_with(&end)
        }
    }
}

/// Whether this is a host, or a pattern with one `*`.
pub fn check_hosts(pattern: &str) -> Result<(), String> {
    // Nodes may be called by addresses, also of IPv6.
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    let stars = pattern.matches('*').count();
    if pattern.is_empty()
        || pattern.len() > 253
        || stars > 1
        || !pattern.chars().all(|c| plain(c) || c == '*')
    {
        return Err(format!(
            "\"{pattern}\" is neither a host's name nor a pattern with one \"*\" such as web-*"
        ));
    }
    Ok(())
}

/// The file.
#[derive(Debug, Clone)]
pub struct Invitations(Kept);

impl Invitations {
    /// In the authority's folder.
    #[must_use]
    pub fn at(file: PathBuf) -> Self {
        Self(Kept::at(file, HEAD))
    }

    /// Lets so many hosts join until then: the token, which is told once. `fingerprint` is that of the authority: whoever joins trusts it alone.
    pub fn invite(
        &self,
        fingerprint: Hash,
        (hosts, left, replace): (&str, u32, bool),
        now_unix_s: u64,
        expires_unix_s: u64,
    ) -> Result<String, KeptError> {
        check_hosts(hosts).map_err(|why| self.0.wrong(why, "name a host, or a pattern"))?;
        let secret = random::<32>().map_err(|e: NoRandomness| self.0.wrong(e, "try again later"))?;
        let one =
            Invitation { hosts: hosts.to_owned(), left, expires_unix_s, replace, sha256: Hash::of(&secret) };
        self.0.change(|content: &mut Content| {
            content.invitation.retain(|of| of.is_open(now_unix_s));
            if content.invitation.len() >= OPEN_MAX {
                let why = format!("{OPEN_MAX} tokens of enrolment are open, the limit");
                return Err(self.0.wrong(why, "wait until some are used or over"));
            }
            content.invitation.push(one);
            Ok(())
        })?;
        Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode([fingerprint.bytes(), secret].concat())))
    }

    /// Whether a token with this secret is open. Reads, and locks and writes nothing: so a wrong one costs no disk and keeps nobody waiting.
    pub fn knows(&self, secret: &[u8], now_unix_s: u64) -> Result<bool, KeptError> {
        let hash = Hash::of(secret);
        // All of them are compared, so that the time tells nothing of where it is.
        Ok(self.open(now_unix_s)?.iter().filter(|of| of.sha256.same(&hash)).count() > 0)
    }

    /// Takes one place of the token with this secret; what is refused, by `judge` too, leaves the place.
    pub fn take(
        &self,
        secret: &[u8],
        host: &str,
        now_unix_s: u64,
        judge: impl FnOnce(&Invitation) -> Result<(), String>,
    ) -> Result<Result<(), Refused>, KeptError> {
        let hash = Hash::of(secret);
        self.0.change(|content: &mut Content| {
            content.invitation.retain(|of| of.is_open(now_unix_s));
            let mut found = None;
            for of in &mut content.invitation {
                if of.sha256.same(&hash) {
                    found = Some(of);
                }
            }
            let Some(of) = found else { return Ok(Err(Refused::Unknown)) };
            if !fits(&of.hosts, host) {
                return Ok(Err(Refused::Other(format!(
                    "this token lets \"{}\" join, not \"{host}\"",
                    of.hosts
                ))));
            }
            if let Err(why) = judge(of) {
                return Ok(Err(Refused::Other(why)));
            }
            of.left -= 1;
            Ok(Ok(()))
        })
    }

    /// Takes away the tokens that are for this host alone: how many there were. A token with a pattern stays, for the others that it lets in.
    pub fn close(&self, host: &str, now_unix_s: u64) -> Result<usize, KeptError> {
        self.0.change(|content: &mut Content| {
            let all = &mut content.invitation;
            all.retain(|of| of.is_open(now_unix_s));
            let before = all.len();
            all.retain(|of| !of.hosts.eq_ignore_ascii_case(host));
            Ok(before - all.len())
        })
    }

    /// Those that are open.
    pub fn open(&self, now_unix_s: u64) -> Result<Vec<Invitation>, KeptError> {
        let all = self.0.load::<Content>()?.unwrap_or_default().invitation;
        Ok(all.into_iter().filter(|of| of.is_open(now_unix_s)).collect())
    }
}

/// Why somebody does not join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// No such token is open: never was, used, or over.
    Unknown,
    /// It is, and something else is wrong.
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(token: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(token.strip_prefix(PREFIX).unwrap()).unwrap()[32..].to_vec()
    }

    #[test]
    fn a_token_is_good_for_its_hosts_as_often_and_as_long_as_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let all = Invitations::at(folder.path().join("invitations.toml"));
        let of = Hash::try_from("07".repeat(32)).unwrap();
        let one = all.invite(of, ("web-1", 1, true), 100, 700).unwrap();
        let many = all.invite(of, ("web-*", 2, false), 100, 700).unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(one.strip_prefix(PREFIX).unwrap()).unwrap()[..32], [7; 32]);
        let take =
            |token: &str, host: &str, now: u64| all.take(&secret(token), host, now, |_| Ok(())).unwrap();
        assert!(matches!(take(&one, "web-2", 100), Err(Refused::Other(why)) if why.contains("\"web-1\"")));
        let not = all.take(&secret(&one), "web-1", 100, |_| Err("no".into())).unwrap();
        assert_eq!(not, Err(Refused::Other("no".into())));
        assert_eq!(take(&one, "WEB-1", 699), Ok(()));
        assert_eq!(take(&one, "web-1", 699), Err(Refused::Unknown), "it is used");
        assert_eq!((take(&many, "web-1", 100), take(&many, "web-2", 100)), (Ok(()), Ok(())));
        assert_eq!(take(&many, "web-3", 100), Err(Refused::Unknown));
        let late = all.invite(of, ("db-1", 1, true), 100, 700).unwrap();
        assert_eq!(take(&late, "db-1", 700), Err(Refused::Unknown), "it is over");
        assert!(all.open(700).unwrap().is_empty());
        for hosts in ["db-1", "DB-1", "db-*", "db-12"] {
            all.invite(of, (hosts, 5, true), 100, 700).unwrap();
        }
        assert_eq!((all.close("db-1", 100).unwrap(), all.close("db-1", 100).unwrap()), (2, 0));
        let left: Vec<_> = all.open(100).unwrap().into_iter().map(|of| of.hosts).collect();
        assert_eq!(left, ["db-*", "db-12"]);
        let text = std::fs::read_to_string(folder.path().join("invitations.toml")).unwrap();
        assert!(!text.contains(&late[PREFIX.len()..]), "{text}");
    }

    #[test]
    fn those_who_take_the_last_place_at_once_are_one() {
        let folder = tempfile::tempdir().unwrap();
        let all = Invitations::at(folder.path().join("invitations.toml"));
        let token = all.invite(Hash::of(b"authority"), ("web-*", 3, false), 1, 9).unwrap();
        let joined: usize = std::thread::scope(|s| {
            let tries: Vec<_> = (0..8)
                .map(|n| {
                    let (all, token) = (&all, &token);
                    s.spawn(move || {
                        all.take(&secret(token), &format!("web-{n}"), 2, |_| Ok(())).unwrap().is_ok()
                    })
                })
                .collect();
            tries.into_iter().map(|of| usize::from(of.join().unwrap())).sum()
        });
        assert_eq!(joined, 3);
    }

    #[test]
    fn patterns_have_one_star_that_stands_for_something() {
        assert!(fits("web-*", "web-1") && fits("*.example.org", "a.EXAMPLE.org") && fits("a*c", "abc"));
        assert!(
            !fits("web-*", "web-") && !fits("web-*", "db-1") && !fits("a*a", "a") && !fits("web-1", "web-11")
        );
        for wrong in ["", "a*b*", "a b", "a\n", "é"] {
            assert!(check_hosts(wrong).is_err(), "{wrong:?}");
        }
    }
}
