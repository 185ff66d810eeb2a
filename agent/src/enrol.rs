//! How this machine gets a certificate: joins a collector with a token, and renews what it got. Owns the order of the steps; `token` knows whom to
//! trust at the first contact, `identity.rs` where the files are. Measures nothing, and is a program's whole task, or comes before an agent measures:
//! one that does writes no file.

pub mod token;

use crate::clock::Clock;
use crate::config::Join;
use crate::identity::{self, Identity, IdentityError};
use crate::stream::connect::{ConnectError, Trust, connect_by};
use crate::stream::heard::cut;
use crate::stream::tls;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tailwater_proto::v1::enrolment_client::EnrolmentClient;
use tailwater_proto::v1::{Enrolled, JoinRequest, RenewRequest};
use token::{JoinToken, TokenError};

/// The year 9999: what X.509 has a date for.
const UNIX_S_MAX: u64 = 253_402_300_799;

/// An answer takes no longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum EnrolError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Connect(Box<ConnectError>),
    #[error("collector {0}: whoever joins speaks TLS; write https://NAME:PORT")]
    Plain(String),
    #[error("collector {url}: {reason}")]
    Refused { url: String, reason: String },
    #[error("collector {url}: no answer within {} s", ANSWER_WITHIN.as_secs())]
    Silent { url: String },
    #[error(
        "collector {url}: it sent no certificate for this machine's key: {reason}; what was there before is kept"
    )]
    Unusable { url: String, reason: String },
    #[error("a key could not be made: {0}")]
    Key(#[from] rcgen::Error),
}

/// What a collector gave, kept in `folder` if it can be used: with another one in its place this machine could not even ask again.
/// `key` and `ca` are kept with it where they are new.
pub fn keep(
    folder: &Path,
    (url, host): (&str, &str),
    answer: &Enrolled,
    key: &str,
    ca: Option<&CertificateDer<'_>>,
) -> Result<Identity, EnrolError> {
    let unusable = |reason: String| EnrolError::Unusable { url: url.to_owned(), reason };
    tls::belong(&answer.certificate, key).map_err(unusable)?;
    let (issued_unix_s, expires_unix_s) = (answer.issued_unix_s, answer.expires_unix_s);
    if issued_unix_s >= expires_unix_s || expires_unix_s > UNIX_S_MAX {
        return Err(unusable(format!(
            "it would last from {issued_unix_s} to {expires_unix_s} (Unix seconds)"
        )));
    }
    let got = Identity { collector: url.to_owned(), host: host.to_owned(), issued_unix_s, expires_unix_s };
    got.keep(folder, ca.map(|_| key), &answer.certificate, ca)?;
    Ok(got)
}

/// What is asked to be signed: nothing counts in it but the key.
fn request(key: &KeyPair) -> Result<Vec<u8>, EnrolError> {
    Ok(CertificateParams::new(Vec::<String>::new())?.serialize_request(key)?.der().to_vec())
}

impl From<ConnectError> for EnrolError {
    fn from(error: ConnectError) -> Self {
        Self::Connect(Box::new(error))
    }
}

/// What the collector answers to one call.
async fn answer<T>(
    url: &str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, EnrolError> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, call).await;
    let answer = answer.map_err(|_| EnrolError::Silent { url: url.to_owned() })?;
    let refused = |of: tonic::Status| EnrolError::Refused { url: url.to_owned(), reason: cut(of.message()) };
    Ok(answer.map_err(refused)?.into_inner())
}

/// Joins as `host`, and keeps what it gets in `folder`. The key is made here, and leaves this machine never.
pub async fn join(url: &str, token: &JoinToken, host: &str, folder: &Path) -> Result<Identity, EnrolError> {
    if !url.starts_with("https://") {
        return Err(EnrolError::Plain(url.to_owned()));
    }
    // Before the token is used up.
    identity::prepare(folder)?;
    let key = KeyPair::generate()?;
    let (config, trusted) = token.trust();
    let (channel, _) = connect_by(url, Trust::Config(Arc::new(config))).await?;
    let asked =
        JoinRequest { secret: token.secret().to_vec(), host: host.to_owned(), request: request(&key)? };
    let answer = answer(url, EnrolmentClient::new(channel).join(asked)).await?;
    // That of the handshake, which the token names; not what anybody says afterwards.
    let ca = trusted.take().ok_or_else(|| EnrolError::Refused {
        url: url.to_owned(),
        reason: "it showed no authority".to_owned(),
    })?;
    keep(folder, (url, host), &answer, &key.serialize_pem(), Some(&ca))
}

/// Between two tries to join, at least, at first; then twice as long each time, up to `JOIN_PAUSE_MAX`. Whoever waits measures nothing, and its node may
/// start before the collector does.
const JOIN_PAUSE: Duration = Duration::from_secs(2);
const JOIN_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Whether what is in `folder` is of the authority in `ca`, its first certificate, as a token beside it takes it. A file that cannot be read says of no
/// other authority, and nobody joins by it.
fn of_authority(folder: &Path, ca: Option<&Path>) -> bool {
    let Some(Ok(given)) = ca.map(CertificateDer::from_pem_file) else { return true };
    CertificateDer::from_pem_file(identity::files(folder).ca).is_ok_and(|held| held == given)
}

/// Joins as `host` before there is anything to run, unless what is in `folder` lasts and is that host's, of that collector and of its authority: tries
/// until it has. The token is read at each try: a kubelet writes another one in its place before it is over. Fails where no try can help: what it got
/// could not be kept.
pub async fn join_first(join: &Join, url: &str, host: &str, folder: &Path) -> Result<(), EnrolError> {
    let now_unix_s = Clock::new(0).unix_ns() / 1_000_000_000;
    let plain = |url: &str| url.trim_end_matches('/').to_owned();
    let fits = |of: Identity| {
        of.host == host && plain(&of.collector) == plain(url) && of.expires_unix_s > now_unix_s
    };
    if Identity::load(folder).is_ok_and(fits) && of_authority(folder, join.ca.as_deref()) {
        return Ok(());
    }
    let mut pause = JOIN_PAUSE;
    loop {
        let joined = match JoinToken::read(&join.token_file, join.ca.as_deref()) {
            Ok(token) => self::join(url, &token, host, folder).await,
            Err(error) => Err(error.into()),
        };
        match joined {
            Ok(_) => {
                tracing::info!(host, collector = url, "joined");
                return Ok(());
            }
            Err(error @ (EnrolError::Identity(_) | EnrolError::Plain(_))) => return Err(error),
            Err(error) => {
                // Nodes that start together do not try together for ever: a collector has few places for those without a certificate.
                let dice = u32::try_from(Clock::new(0).unix_ns() % 1_000).unwrap_or(0);
                let wait = pause + pause * dice / 1_000;
                tracing::warn!(host, "not joined, trying again in {} s: {error}", wait.as_secs());
                tokio::time::sleep(wait).await;
                pause = (pause * 2).min(JOIN_PAUSE_MAX);
            }
        }
    }
}

/// Renews what is in `folder`, with the same key.
pub async fn renew(folder: &Path) -> Result<Identity, EnrolError> {
    let before = Identity::load(folder)?;
    let held = identity::key(folder)?;
    let key = KeyPair::from_pem(&held)?;
    let url = &before.collector;
    let files = identity::files(folder);
    let (channel, _) = connect_by(url, Trust::Files(Some(&files))).await?;
    let asked = RenewRequest { request: request(&key)? };
    let answer = answer(url, EnrolmentClient::new(channel).renew(asked)).await?;
    keep(folder, (url, &before.host), &answer, &held, None)
}

/// Between two tries after one that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
/// Nothing sleeps for longer without a look at the clock, which may be set.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Renews at two thirds of each certificate's life, until `ended` is told, or for ever.
pub async fn keep_renewing_until(
    folder: &Path,
    ended: Option<tokio::sync::oneshot::Receiver<()>>,
) -> Result<(), EnrolError> {
    let ended = async move {
        match ended {
            Some(told) => {
                // Who would tell is gone: the same.
                let _ = told.await;
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        failed = keep_renewing(folder) => failed,
        () = ended => Ok(()),
    }
}

async fn keep_renewing(folder: &Path) -> Result<(), EnrolError> {
    // Whoever starts this where nobody has joined hears of it.
    let mut held = Identity::load(folder)?;
    loop {
        // Asked anew: it may have been set meanwhile.
        let now_unix_s = Clock::new(0).unix_ns() / 1_000_000_000;
        let left_s = held.due_unix_s().saturating_sub(now_unix_s);
        if left_s > 0 {
            tokio::time::sleep(LOOK_EVERY.min(Duration::from_secs(left_s))).await;
        } else {
            match renew(folder).await {
                Ok(next) => {
                    tracing::info!(
                        host = next.host,
                        "certificate renewed, good until {}",
                        next.expires_unix_s
                    );
                    // By this clock it is due again already: the clock or the certificate is wrong, and asking at once helps neither.
                    if next.due_unix_s() <= now_unix_s {
                        tokio::time::sleep(AGAIN_AFTER).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        "certificate not renewed, trying again in {} s: {error}",
                        AGAIN_AFTER.as_secs()
                    );
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
        // Somebody may have joined anew, too. A disk that does not answer at this moment ends no renewal.
        held = Identity::load(folder).unwrap_or(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_cannot_be_used_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let made = |key: &KeyPair| {
            let certificate =
                CertificateParams::new(vec!["web-1".to_owned()]).unwrap().self_signed(key).unwrap();
            let certificate = certificate.der().to_vec();
            Enrolled { certificate, issued_unix_s: 1_000, expires_unix_s: 4_000 }
        };
        let (ours, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let pem = ours.serialize_pem();
        let who = ("https://c:4781", "web-1");
        let good = made(&ours);
        let ca = CertificateDer::from(good.certificate.clone());
        let kept = keep(folder.path(), who, &good, &pem, Some(&ca)).unwrap();
        assert_eq!(kept.due_unix_s(), 3_000);
        let files = identity::files(folder.path());
        let before = std::fs::read_to_string(&files.cert).unwrap();
        for wrong in [
            Enrolled::default(),
            Enrolled { certificate: vec![0x30; 64], ..good.clone() },
            made(&other),
            Enrolled { issued_unix_s: 4_000, expires_unix_s: 1_000, ..good.clone() },
            Enrolled { issued_unix_s: 0, expires_unix_s: u64::MAX, ..good.clone() },
        ] {
            let told = keep(folder.path(), who, &wrong, &pem, None).unwrap_err().to_string();
            assert!(told.contains("what was there before is kept"), "{told}");
            assert_eq!(std::fs::read_to_string(&files.cert).unwrap(), before, "{wrong:?}");
            assert_eq!(Identity::load(folder.path()).unwrap(), kept);
        }
        tls::client_config(&files).unwrap();
    }
}
