//! How this machine gets a certificate: joins a collector with a token, renews what it got, and joins anew where that is good for nothing any more. Owns
//! the order of the steps; `token` knows whom to trust at the first contact, `identity.rs` where the files are. Measures nothing, and is a program's whole
//! task, or comes before an agent measures: one that does writes no file.

pub mod token;

use crate::clock::Clock;
use crate::config::Join;
use crate::identity::{self, Identity, IdentityError};
use crate::stream::connect::{ConnectError, LateRefusal, Trust, connect_by};
use crate::stream::heard::cut;
use crate::stream::tls;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sd_notify::NotifyState;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tailwater_proto::v1::enrolment_client::EnrolmentClient;
use tailwater_proto::v1::{Enrolled, JoinRequest, RenewRequest};
use token::{JoinToken, TokenError};
use tokio::sync::{Notify, oneshot};
use tonic::Code;

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
    /// What was shown to it, token or certificate, lets nobody in.
    #[error("collector {url}: {reason}")]
    Denied { url: String, reason: String },
    #[error("collector {url}: no answer within {} s", ANSWER_WITHIN.as_secs())]
    Silent { url: String },
    #[error(
        "collector {url}: it sent no certificate for this machine's key: {reason}; what was there before is kept"
    )]
    Unusable { url: String, reason: String },
    #[error("a key could not be made: {0}")]
    Key(#[from] rcgen::Error),
}

impl EnrolError {
    /// Of one who renews: whether what is held is good for nothing any more, so that only joining anew helps.
    fn says_to_join(&self) -> bool {
        match self {
            Self::Denied { .. } | Self::Key(_) => true,
            Self::Connect(error) => error.is_of_certificate(),
            Self::Identity(error) => {
                matches!(error, IdentityError::None { .. } | IdentityError::Damaged { .. })
            }
            Self::Token(_)
            | Self::Plain(_)
            | Self::Refused { .. }
            | Self::Silent { .. }
            | Self::Unusable { .. } => false,
        }
    }
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

/// What the collector answers to one call, on a connection that may say more.
async fn answer<T>(
    (url, late): (&str, &LateRefusal),
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, EnrolError> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, call).await;
    let answer = answer.map_err(|_| EnrolError::Silent { url: url.to_owned() })?;
    let refused = |of: tonic::Status| {
        let url = url.to_owned();
        if let Some(refusal) = late.take() {
            return EnrolError::from(ConnectError::Tls { url, refusal });
        }
        let reason = cut(of.message());
        match of.code() {
            Code::PermissionDenied | Code::Unauthenticated => EnrolError::Denied { url, reason },
            _ => EnrolError::Refused { url, reason },
        }
    };
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
    let (channel, late) = connect_by(url, Trust::Config(Arc::new(config))).await?;
    let asked =
        JoinRequest { secret: token.secret().to_vec(), host: host.to_owned(), request: request(&key)? };
    let answer = answer((url, &late), EnrolmentClient::new(channel).join(asked)).await?;
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

/// At least so long, and at most twice. Nodes that start together, or are refused together, do not try together for ever: a collector has few places for
/// those without a certificate.
fn jittered(pause: Duration) -> Duration {
    let dice = u32::try_from(Clock::new(0).unix_ns() % 1_000).unwrap_or(0);
    pause + pause * dice / 1_000
}

fn now_unix_s() -> u64 {
    Clock::new(0).unix_ns() / 1_000_000_000
}

/// Asks to join by the token of this moment.
async fn join_by(join: &Join, url: &str, host: &str, folder: &Path) -> Result<Identity, EnrolError> {
    let token = JoinToken::read(&join.token_file, join.ca.as_deref())?;
    self::join(url, &token, host, folder).await
}

/// Tells the service manager. Without one there is nobody to tell.
fn notify(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

/// Tells the service manager's watchdog, as long as it is asked to, that waiting is what this program is at.
async fn while_waiting() -> Infallible {
    let Some(longest) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let mut timer = tokio::time::interval((longest / 3).max(Duration::from_millis(1)));
    loop {
        timer.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// Whether what is in `folder` is of the authority in `ca`, its first certificate, as a token beside it takes it. A file that cannot be read says of no
/// other authority, and nobody joins by it.
fn of_authority(folder: &Path, ca: Option<&Path>) -> bool {
    let Some(Ok(given)) = ca.map(CertificateDer::from_pem_file) else { return true };
    CertificateDer::from_pem_file(identity::files(folder).ca).is_ok_and(|held| held == given)
}

/// Joins as `host` before there is anything to run, unless what is in `folder` lasts and is that host's, of that collector and of its authority: tries
/// until it has. The token is read at each try: a kubelet writes another one in its place before it is over. Whoever waits counts as started, and says what
/// for: a service manager would hold up what comes after it, or end it, for a collector that comes later. Fails where no try can help: what it got could
/// not be kept.
pub async fn join_first(join: &Join, url: &str, host: &str, folder: &Path) -> Result<(), EnrolError> {
    let now_unix_s = now_unix_s();
    let plain = |url: &str| url.trim_end_matches('/').to_owned();
    let fits = |of: Identity| {
        of.host == host && plain(&of.collector) == plain(url) && of.expires_unix_s > now_unix_s
    };
    if Identity::load(folder).is_ok_and(fits) && of_authority(folder, join.ca.as_deref()) {
        return Ok(());
    }
    tokio::select! {
        joined = until_joined(join, url, host, folder) => joined,
        never = while_waiting() => match never {},
    }
}

async fn until_joined(join: &Join, url: &str, host: &str, folder: &Path) -> Result<(), EnrolError> {
    let mut pause = JOIN_PAUSE;
    loop {
        match join_by(join, url, host, folder).await {
            Ok(_) => {
                tracing::info!(host, collector = url, "joined");
                // Once READY was said, systemd waits for this from now on, and the first window takes a while.
                notify(&[NotifyState::Watchdog, NotifyState::Status("joined")]);
                return Ok(());
            }
            Err(error @ (EnrolError::Identity(_) | EnrolError::Plain(_))) => return Err(error),
            Err(error) => {
                let wait = jittered(pause);
                tracing::warn!(host, "not joined, trying again in {} s: {error}", wait.as_secs());
                let waits_for =
                    format!("waits to join, and measures nothing yet: {}", cut(&error.to_string()));
                notify(&[NotifyState::Ready, NotifyState::Status(&waits_for)]);
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
    let (channel, late) = connect_by(url, Trust::Files(Some(&files))).await?;
    let asked = RenewRequest { request: request(&key)? };
    let answer = answer((url, &late), EnrolmentClient::new(channel).renew(asked)).await?;
    keep(folder, (url, &before.host), &answer, &held, None)
}

/// Between two tries to renew after one that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
/// After a try that helped, at least, and twice as long after each that was necessary again within an hour, up to [`AGAIN_AFTER`]: two agents of one host's
/// name would take it from each other without an end. Whoever is refused may say so every few seconds.
const REST: Duration = Duration::from_secs(10);
/// Nothing sleeps for longer without a look at the clock, which may be set.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Keeps what is in `folder` good, until `ended` is told, or for ever: renews it at two thirds of each certificate's life, and at once when `refused` says
/// that a collector does not take it. Where a collector refuses to renew it, too, because it is nobody's any more, is over, or is of an authority that was
/// replaced, joins anew by `join`, until it has; where there is nothing to join by, tells what to do.
pub async fn keep_good_until(
    folder: &Path,
    join: Option<&Join>,
    refused: &Notify,
    ended: Option<oneshot::Receiver<()>>,
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
        failed = keep_good(folder, join, refused) => failed,
        () = ended => Ok(()),
    }
}

async fn keep_good(folder: &Path, join: Option<&Join>, refused: &Notify) -> Result<(), EnrolError> {
    // Whoever starts this where nobody has joined hears of it.
    let mut held = Identity::load(folder)?;
    let mut rest = REST;
    loop {
        // Asked anew: it may have been set meanwhile.
        let left_s = held.due_unix_s().saturating_sub(now_unix_s());
        let is_due = left_s == 0;
        let wait = LOOK_EVERY.min(Duration::from_secs(left_s));
        if is_due || tokio::time::timeout(wait, refused.notified()).await.is_ok() {
            match renew(folder).await {
                Ok(next) => {
                    tracing::info!(
                        host = next.host,
                        "certificate renewed, good until {}",
                        next.expires_unix_s
                    );
                    // By this clock it is due again already: the clock or the certificate is wrong, and asking at once helps neither.
                    let is_wrong = next.due_unix_s() <= now_unix_s();
                    tokio::time::sleep(if is_wrong { AGAIN_AFTER } else { jittered(rest) }).await;
                    rest = (rest * 2).min(AGAIN_AFTER);
                }
                Err(error) => match join {
                    Some(join) if error.says_to_join() => {
                        join_anew(join, &held, folder, &error).await;
                        tokio::time::sleep(jittered(rest)).await;
                        rest = (rest * 2).min(AGAIN_AFTER);
                    }
                    _ => {
                        tell_not_renewed(&held, &error);
                        tokio::time::sleep(jittered(REST)).await;
                        // Where it could not be asked, whoever hears first that it can be says so. What helps nobody is not told more often.
                        let heard = async {
                            if error.says_to_join() {
                                std::future::pending::<()>().await;
                            }
                            refused.notified().await;
                        };
                        let _ = tokio::time::timeout(AGAIN_AFTER, heard).await;
                    }
                },
            }
            // What was said meanwhile is of the certificate before, and is said again if it is not.
            let _ = tokio::time::timeout(Duration::ZERO, refused.notified()).await;
        } else {
            rest = REST;
        }
        // Somebody may have joined anew, too. A disk that does not answer at this moment ends no renewal.
        held = Identity::load(folder).unwrap_or(held);
    }
}

fn tell_not_renewed(held: &Identity, error: &EnrolError) {
    let (host, url, again) = (&held.host, &held.collector, AGAIN_AFTER.as_secs());
    if error.says_to_join() {
        tracing::warn!(
            "the certificate of {host} is good for nothing any more, and there is no join_token_file to join anew by: {error}; \
             `tailwater enroll {host}` on the collector's host and `tailwater-agent join {url} --token-file FILE --host {host}` here get another"
        );
    } else {
        tracing::warn!("certificate not renewed, trying again in {again} s: {error}");
    }
}

/// Joins as who this machine was, until it has, or until what it has is taken again: somebody may have joined by hand, or brought a backup back. Says when
/// it begins, when it is over, and in between each reason once.
async fn join_anew(join: &Join, before: &Identity, folder: &Path, why: &EnrolError) {
    let (host, url) = (before.host.as_str(), before.collector.as_str());
    tracing::warn!(
        host,
        collector = url,
        "the certificate is good for nothing any more, joining anew: {why}"
    );
    let (mut pause, mut told) = (JOIN_PAUSE, String::new());
    loop {
        match join_by(join, url, host, folder).await {
            Ok(next) => {
                tracing::info!(
                    host,
                    collector = url,
                    "joined anew, certificate good until {}",
                    next.expires_unix_s
                );
                return;
            }
            Err(error) => {
                let text = error.to_string();
                if text != told {
                    tracing::warn!(host, "not joined anew, and trying on: {text}");
                    told = text;
                }
            }
        }
        loop {
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(JOIN_PAUSE_MAX);
            match renew(folder).await {
                Ok(next) => {
                    tracing::info!(
                        host,
                        collector = url,
                        "the certificate is taken again, and renewed until {}",
                        next.expires_unix_s
                    );
                    return;
                }
                Err(error) if error.says_to_join() => break,
                // The collector is away, which says nothing of the certificate: a token may have few places.
                Err(_) => {}
            }
        }
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
