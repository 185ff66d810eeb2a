//! A cluster's word for the token of a service account: a TokenReview (authentication.k8s.io/v1) of its API server. Owns what is asked, within which
//! time, and what of the answer counts. Signs nothing, and tells no token.

use super::config::KubernetesConfig;
use super::invitations::fits;
use crate::lock::lock;
use crate::send::http::{Address, Answer, HookError, Http};
use crate::send::secret::{Watched, line};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Where reviews are asked for.
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// An answer takes no longer, and nobody waits longer for a turn to ask: an agent gives up after 20 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Reviews at once: whoever shows made-up tokens makes the collector ask, and the API server is everybody's.
const REVIEWS_MAX: usize = 4;
/// A turn that ended with nobody vouched for is kept for so long: else strangers would choose how often the API server is asked. With [`REVIEWS_MAX`] they
/// make it answer sixteen times a second at most. Whoever waits behind too many of them hears that it could not be asked, and tries again.
const WRONG_HELD: Duration = Duration::from_millis(250);
/// What a kube-apiserver says of every token that it does not accept, beside what else its authenticators say: also where one of them had trouble, which
/// cannot be told from a refusal then. What comes without it is trouble for certain.
const INVALID: &str = "invalid bearer token";
/// Those that the kubelet writes have one to two kilobytes.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Of what the API server says, this much is told.
const SAID_CHARS_MAX: usize = 300;
/// What a service account's user name begins with.
const ACCOUNT: &str = "system:serviceaccount:";
/// On which node the token's pod is: by default since Kubernetes 1.30 (ServiceAccountTokenPodNodeInfo). It is what the pod's spec says, whether or not
/// there is such a node.
const NODE: &str = "authentication.kubernetes.io/node-name";
/// Told beside it if there is one.
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
/// Told if the token is bound to a pod. One that is bound to a node alone names that node, too, and whoever may make tokens of the account makes one.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// Why a token lets nobody join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotVouched {
    /// The cluster does not know it: made up, over, of a pod that is gone, or made out for somebody else.
    #[error("the cluster does not accept this service account's token: {0}")]
    Token(String),
    /// It does, and that is not enough.
    #[error("{0}")]
    Refused(String),
    /// The cluster did not say. Why not is for the collector's log.
    #[error(
        "the collector could not ask its cluster's API server about this token; the collector's log says why"
    )]
    Unasked(String),
}

/// For which host the cluster vouches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vouched {
    /// The service account, NAMESPACE:NAME.
    pub account: String,
    /// The host.
    pub host: String,
    /// Whether the cluster itself names it, as the node that the token's pod is on: it takes the name over from whoever has it.
    pub of_node: bool,
}

/// Asks the API server.
pub struct Reviewer {
    config: KubernetesConfig,
    own: Watched<String>,
    /// The API server's authorities, as their file has them.
    ca: Watched<String>,
    /// The way to it, and of which authorities that is.
    way: Mutex<(Arc<String>, Arc<Http>)>,
    turns: Arc<Semaphore>,
}

/// A turn to ask. Unless it is given back it is kept for [`WRONG_HELD`] after its use, also where whoever asked hung up before there was an answer.
struct Turn(Option<OwnedSemaphorePermit>);

impl Turn {
    /// The next one gets it at once.
    fn give_back(mut self) {
        self.0 = None;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // There are as many of these tasks as there are turns, at most.
        if let (Some(turn), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                tokio::time::sleep(WRONG_HELD).await;
                drop(turn);
            });
        }
    }
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reviewer(…)")
    }
}

/// A text with certificates, as it is.
fn authorities(text: &str) -> Result<String, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(text.to_owned()),
        Ok(_) => Err("no certificate in it".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// By the authorities that are in the file now.
fn way(config: &KubernetesConfig) -> Result<Http, HookError> {
    let to = Address {
        url: Some(config.api.clone()),
        ca: Some(config.ca.clone()),
        timeout: ANSWER_WITHIN,
        ..Address::default()
    };
    Http::new(&to, "")
}

/// Whether this has the form of a service account's token: a JSON Web Token's three parts (RFC 7515).
#[must_use]
pub fn is_token(secret: &[u8]) -> bool {
    let of_base64 = |c: &u8| c.is_ascii_alphanumeric() || b"-_".contains(c);
    let mut parts = 0;
    secret.len() <= TOKEN_BYTES_MAX
        && secret.split(|c| *c == b'.').all(|part| {
            parts += 1;
            !part.is_empty() && part.iter().all(of_base64)
        })
        && parts == 3
}

/// What of a TokenReview counts.
#[derive(Debug, Deserialize)]
struct Review {
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    authenticated: bool,
    /// Of those that were asked for, the ones that the token is made out for. A server that knows of no audiences names none.
    #[serde(default)]
    audiences: Vec<String>,
    #[serde(default)]
    error: String,
    #[serde(default)]
    user: User,
}

#[derive(Debug, Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

impl Reviewer {
    /// As configured; its files are read now.
    pub fn new(config: &KubernetesConfig) -> Result<Self, HookError> {
        let remedy =
            "run the collector with a service account that may create tokenreviews (authentication.k8s.io)";
        let own = Watched::load("token_file", &config.token_file, remedy, line)?;
        let remedy = "give a readable PEM file with the authorities of the cluster's API server";
        let ca = Watched::load("ca", &config.ca, remedy, authorities)?;
        let way = Mutex::new((ca.current(), Arc::new(way(config)?)));
        Ok(Self { config: config.clone(), own, ca, way, turns: Arc::new(Semaphore::new(REVIEWS_MAX)) })
    }

    /// The way to the API server, by its authorities of now: a cluster gets others from time to time, and the kubelet writes them into the file. The
    /// connections of before go with the old ones. Each change is tried once: what cannot be used leaves the old way, with a warning.
    fn http(&self) -> Arc<Http> {
        let now = self.ca.current();
        let mut held = lock(&self.way);
        if !Arc::ptr_eq(&held.0, &now) {
            held.0 = now;
            match way(&self.config) {
                Ok(http) => held.1 = Arc::new(http),
                Err(e) => tracing::warn!("[authority.kubernetes] the API server's old authorities stay: {e}"),
            }
        }
        Arc::clone(&held.1)
    }

    /// Whether the cluster vouches for whoever shows `token`, of the form of [`is_token`], as `host`.
    pub async fn review(&self, token: &[u8], host: &str) -> Result<Vouched, NotVouched> {
        let token = String::from_utf8_lossy(token);
        let unasked = |why: &str| NotVouched::Unasked(shown(why, &token));
        let turn = tokio::time::timeout(ANSWER_WITHIN, Arc::clone(&self.turns).acquire_owned())
            .await
            .map_err(|_| unasked("too many tokens are being reviewed"))?
            .map_err(|_| unasked("the collector is stopping"))?;
        let turn = Turn(Some(turn));
        let asked = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": &*token, "audiences": [&self.config.audience] },
        });
        let headers = [
            ("authorization", format!("Bearer {}", self.own.current())),
            ("accept", "application/json".into()),
        ];
        let answer = self
            .http()
            .send(&headers, asked.to_string().into(), Some(REVIEWS))
            .await
            .map_err(|e| unasked(&e.to_string()))?;
        let judged = self.judge(&answer, &token, host);
        if judged.is_ok() {
            turn.give_back();
        }
        judged
    }

    fn judge(&self, answer: &Answer, token: &str, host: &str) -> Result<Vouched, NotVouched> {
        if !(200..=299).contains(&answer.status) {
            // The whole of it, and shortened afterwards: of a token that is cut in two the first half would stay.
            let why = format!("it answered {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
            return Err(NotVouched::Unasked(shown(&why, token)));
        }
        let status = match serde_json::from_slice::<Review>(&answer.body) {
            Ok(review) => review.status,
            Err(e) => {
                let why = format!("it answered {} with what is no TokenReview: {e}", answer.status);
                return Err(NotVouched::Unasked(shown(&why, token)));
            }
        };
        if !status.authenticated {
            let error = status.error.as_str();
            return Err(if error.is_empty() {
                NotVouched::Token("it is not valid".to_owned())
            } else if error.contains(INVALID) {
                NotVouched::Token(shown(error, token))
            } else {
                // Trouble of whatever the API server asks itself (a webhook, an issuer's keys) is told in the same place, and says nothing of the token.
                NotVouched::Unasked(shown(&format!("it could not check it: {error}"), token))
            });
        }
        let refused = |why: String| Err(NotVouched::Refused(shown(&why, token)));
        let audience = &self.config.audience;
        if !status.audiences.contains(audience) {
            return refused(format!(
                "this token is not made out for \"{audience}\": give the pod's serviceAccountToken volume that audience"
            ));
        }
        let Some(account) = status.user.username.strip_prefix(ACCOUNT) else {
            return refused("this token is no service account's".to_owned());
        };
        if !self.config.accounts.iter().any(|of| of == account) {
            return refused(format!(
                "service account {account} lets nobody join: accounts of the collector's [authority.kubernetes] has those that do"
            ));
        }
        let of_user =
            |key: &str| status.user.extra.get(key).and_then(|of| of.first()).filter(|of| !of.is_empty());
        let node = of_user(NODE);
        let is_there = of_user(NODE_UID).is_some() && of_user(POD_UID).is_some();
        match (node, &self.config.hosts) {
            (Some(_), _) if !is_there => {
                refused("this token names a node that is not in the cluster, or is of no pod".to_owned())
            }
            (Some(node), _) if node != host => refused(format!(
                "this token is of a pod on node \"{node}\", which does not join as \"{host}\": give the agent the node's name as its host"
            )),
            (None, None) => refused(
                "the cluster does not say on which node this token's pod is, as Kubernetes does from 1.30 on: hosts of the collector's [authority.kubernetes] \
                 says who may join all the same"
                    .to_owned(),
            ),
            (_, Some(pattern)) if !fits(pattern, host) => refused(format!(
                "hosts of [authority.kubernetes] is \"{pattern}\", which is not \"{host}\""
            )),
            _ => Ok(Vouched {
                account: account.to_owned(),
                host: host.to_owned(),
                of_node: node.is_some(),
            }),
        }
    }
}

/// What was said, for a person: on one line, without an end beyond reason, and without the token, whatever an API server repeats.
fn shown(said: &str, token: &str) -> String {
    let said = if token.is_empty() { said.to_owned() } else { said.replace(token, "…") };
    said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_accounts_token_has_three_parts_and_an_invitations_secret_is_none() {
        assert!(is_token(b"eyJh.eyJh_-.c2ln"));
        for wrong in [&b""[..], b"a.b", b"a..c", b"a.b.c.d", b"a.b.c\n", b"a.b.\xff", &[7_u8; 32]] {
            assert!(!is_token(wrong), "{wrong:?}");
        }
        let long = [&[b'a'; TOKEN_BYTES_MAX][..], b".b.c"].concat();
        assert!(!is_token(&long));
    }

    #[tokio::test]
    async fn a_turn_is_free_at_once_if_it_is_given_back_and_after_a_while_otherwise() {
        let turns = Arc::new(Semaphore::new(1));
        let take = || Turn(Arc::clone(&turns).try_acquire_owned().ok());
        take().give_back();
        assert_eq!(turns.available_permits(), 1);
        drop(take());
        assert_eq!(turns.available_permits(), 0, "whoever hangs up has the next turn at once");
        assert!(tokio::time::timeout(WRONG_HELD * 40, turns.acquire()).await.is_ok(), "it is lost");
    }

    #[test]
    fn what_an_api_server_repeats_is_told_without_the_token() {
        assert_eq!(shown("no\nsuch a.b.c here", "a.b.c"), "no such … here");
        let long = "a".repeat(2 * SAID_CHARS_MAX);
        assert_eq!(shown(&format!("no {long}"), &long), "no …");
        assert_eq!(shown(&"x".repeat(1000), "a.b.c").len(), SAID_CHARS_MAX);
    }
}
