//! How this machine gets a certificate: joins a collector with a token, and renews what it got. Owns the order of the steps; `token` knows whom to
//! trust at the first contact, `identity.rs` where the files are. Measures nothing, and is a program's whole task: an agent that measures writes
//! no file.

pub mod token;

use crate::clock::Clock;
use crate::identity::{self, Identity, IdentityError};
use crate::stream::connect::{ConnectError, Trust, connect_by};
use rcgen::{CertificateParams, KeyPair};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tailwater_proto::v1::enrolment_client::EnrolmentClient;
use tailwater_proto::v1::{JoinRequest, RenewRequest};
use token::{JoinToken, TokenError};

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
    #[error("a key could not be made: {0}")]
    Key(#[from] rcgen::Error),
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
    let refused =
        |of: tonic::Status| EnrolError::Refused { url: url.to_owned(), reason: of.message().to_owned() };
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
    let joined = Identity {
        collector: url.to_owned(),
        host: host.to_owned(),
        issued_unix_s: answer.issued_unix_s,
        expires_unix_s: answer.expires_unix_s,
    };
    joined.keep(folder, Some(&key.serialize_pem()), &answer.certificate, Some(&ca))?;
    Ok(joined)
}

/// Renews what is in `folder`, with the same key.
pub async fn renew(folder: &Path) -> Result<Identity, EnrolError> {
    let before = Identity::load(folder)?;
    let key = KeyPair::from_pem(&identity::key(folder)?)?;
    let url = &before.collector;
    let files = identity::files(folder);
    let (channel, _) = connect_by(url, Trust::Files(Some(&files))).await?;
    let asked = RenewRequest { request: request(&key)? };
    let answer = answer(url, EnrolmentClient::new(channel).renew(asked)).await?;
    let renewed = Identity {
        issued_unix_s: answer.issued_unix_s,
        expires_unix_s: answer.expires_unix_s,
        ..before.clone()
    };
    renewed.keep(folder, None, &answer.certificate, None)?;
    Ok(renewed)
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
                    )
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
