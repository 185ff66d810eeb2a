//! Agents that join or renew: the two calls, who may make them from where, and that wrong tokens are slowed. `authority` decides; this tells.

use super::service::{Connection, address};
use super::tls::Speaker;
use crate::access::attempts::Wrong;
use crate::authority::kubernetes::{NotVouched, is_token};
use crate::authority::signer::{Authority, Identity, NotSigned};
use std::sync::Arc;
use tailwater_proto::v1::enrolment_server::Enrolment;
use tailwater_proto::v1::{Enrolled, JoinRequest, RenewRequest};
use tonic::{Request, Response, Status};

/// What a collector answers whose agents do not join.
const NO_AUTHORITY: &str = "this collector has no authority of its own, so nobody joins: its [authority] makes one, or certificates come from whoever makes those of its [tls]";

impl Connection {
    fn told(
        &self,
        done: &'static str,
        host: &str,
        account: Option<&str>,
        result: Result<Identity, NotSigned>,
    ) -> Result<Response<Enrolled>, Status> {
        match result {
            Ok(identity) => {
                self.ingest.metrics.enrolments.inc(done);
                tracing::info!(target: crate::access::audit::TARGET, host, account, from = %self.peer, "agent {done}");
                Ok(Response::new(Enrolled {
                    certificate: identity.cert.to_vec(),
                    issued_unix_s: identity.issued_unix_s,
                    expires_unix_s: identity.expires_unix_s,
                }))
            }
            Err(e @ (NotSigned::Unknown | NotSigned::Vouching(NotVouched::Token(_)))) => {
                self.ingest.metrics.enrolments.inc("refused");
                match self.ingest.attempts.wrong(address(&self.peer), self.ingest.clock.monotonic()) {
                    Wrong::Told => {
                        match &e {
                            NotSigned::Unknown => {
                                tracing::warn!(from = %self.peer, "a wrong token of enrolment was shown");
                            }
                            of_account => tracing::warn!(from = %self.peer, "not {done}: {of_account}"),
                        }
                        Err(Status::permission_denied(e.to_string()))
                    }
                    Wrong::TooMany(after) => Err(Status::resource_exhausted(format!(
                        "too many wrong tokens came from this address: the next one is judged in {} s",
                        after.as_secs().max(1)
                    ))),
                }
            }
            Err(e) => {
                self.ingest.metrics.enrolments.inc("refused");
                // A stranger who asks without an end writes no more lines than one with wrong tokens.
                let is_told = !self.speaker.is_stranger()
                    || self.ingest.attempts.wrong(address(&self.peer), self.ingest.clock.monotonic())
                        == Wrong::Told;
                match &e {
                    _ if !is_told => {}
                    NotSigned::Kept(why) => tracing::error!("a certificate could not be kept: {why}"),
                    NotSigned::Vouching(NotVouched::Unasked(why)) => {
                        tracing::error!(host, from = %self.peer, "not {done}: the cluster's API server did not review a token: {why}");
                    }
                    _ => tracing::warn!(from = %self.peer, "not {done}: {e}"),
                }
                Err(match &e {
                    // The collector's own trouble says nothing of who asks.
                    NotSigned::Vouching(NotVouched::Unasked(_)) | NotSigned::Kept(_) => {
                        Status::unavailable(e.to_string())
                    }
                    _ => Status::permission_denied(e.to_string()),
                })
            }
        }
    }

    /// On a thread that may wait for the disk.
    async fn signed<T: Send + 'static>(
        authority: &Arc<Authority>,
        sign: impl FnOnce(&Authority) -> Result<T, NotSigned> + Send + 'static,
    ) -> Result<Result<T, NotSigned>, Status> {
        let authority = Arc::clone(authority);
        tokio::task::spawn_blocking(move || sign(&authority))
            .await
            .map_err(|_| Status::unavailable("the collector is stopping"))
    }
}

#[tonic::async_trait]
impl Enrolment for Connection {
    async fn join(&self, asked: Request<JoinRequest>) -> Result<Response<Enrolled>, Status> {
        let (Speaker::Enrolled(authority, _) | Speaker::Nobody(authority)) = &self.speaker else {
            return Err(Status::failed_precondition(NO_AUTHORITY));
        };
        let asked = asked.into_inner();
        let host = asked.host.clone();
        let mut account = None;
        let signed = if is_token(&asked.secret) {
            let reviewed = authority.review(&asked.secret, &host).await;
            match reviewed {
                Ok(vouched) => {
                    account = Some(vouched.account.clone());
                    let join = move |authority: &Authority| authority.join_vouched(&vouched, &asked.request);
                    Self::signed(authority, join).await?
                }
                Err(why) => Err(why),
            }
        } else {
            let join =
                move |authority: &Authority| authority.join(&asked.secret, &asked.host, &asked.request);
            Self::signed(authority, join).await?
        };
        if self.speaker.is_stranger() {
            // One try for each connection: places of those who may join are few.
            self.answered.cancel();
        }
        self.told("joined", &host, account.as_deref(), signed)
    }

    async fn renew(&self, asked: Request<RenewRequest>) -> Result<Response<Enrolled>, Status> {
        let Speaker::Enrolled(authority, shown) = &self.speaker else {
            return Err(Status::unauthenticated(
                "whoever renews shows the certificate that is to be renewed; `tailwater-agent join` gets the first",
            ));
        };
        let (shown, asked) = (shown.clone(), asked.into_inner());
        let renew = move |authority: &Authority| authority.renew(&shown, &asked.request);
        let signed = Self::signed(authority, renew).await?;
        let host = signed.as_ref().map(|(host, _)| host.clone()).unwrap_or_default();
        self.told("renewed", &host, None, signed.map(|(_, identity)| identity))
    }
}
