//! The stream to the collector: all of the agent's tonic. Owns connecting, reconnecting and what one session sends;
//! knows no window, only what the [`Outbox`] hands it. `encode` makes batches of windows, `outbox` keeps what waits to be sent, `heard` takes
//! what the collector says, and `conversation` decides what is said next.

pub mod connect;
pub mod conversation;
pub mod encode;
pub mod heard;
pub mod local;
pub mod offset;
pub mod outbox;
pub mod tls;

use crate::clock::Clock;
use crate::config::TlsFiles;
use crate::stream::outbox::Outbox;
use backon::{BackoffBuilder, ExponentialBuilder};
use connect::{ConnectError, LateRefusal, causes, connect, proves_itself};
use conversation::{Conversation, Now};
pub use heard::Control;
use heard::{Parting, cut};
use std::sync::Arc;
use std::time::Duration;
use tailwater_proto::v1::telemetry_client::TelemetryClient;
use tailwater_proto::v1::{self, AgentMessage, agent_message::Body};
use tailwater_proto::{MESSAGE_BYTES_MAX, PROTOCOL_MAX, PROTOCOL_MIN};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::Channel;

/// Messages handed to HTTP/2 ahead of what fits the wire; few, so that a drop event overtakes nearly everything.
const IN_HAND: usize = 2;

/// Between two clock probes.
pub const PROBE_PERIOD: Duration = Duration::from_secs(1);

/// Between two status messages, and two looks at the TLS files.
pub const STATUS_PERIOD: Duration = Duration::from_secs(5);

/// For the collector's first word.
pub const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// After a refusal that is not to be retried: a person has to change something first.
pub const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum SessionError {
    #[error(transparent)]
    Connect(Box<ConnectError>),
    #[error("collector {url}: refused this agent: {reason}")]
    Refused { url: String, reason: String, retry: bool },
    #[error("collector {url}: {reason}")]
    Ended { url: String, reason: String },
}

enum Ended {
    Drained,
    TlsFilesChanged,
}

/// The stream's side of the agent.
pub struct Stream {
    /// Where the collector is.
    pub url: String,
    /// Files for https://.
    pub tls: Option<TlsFiles>,
    /// What to send.
    pub outbox: Arc<Outbox>,
    /// The rest of the agent.
    pub control: Arc<dyn Control>,
    /// For probes.
    pub clock: Clock,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Stream {
    /// Connects, and connects again, until `stop`; after `stop` it goes on only while the connected collector still takes what the
    /// outbox holds.
    pub async fn run(self, stop: CancellationToken) {
        let backoff = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(5))
            .without_max_times()
            .with_jitter();
        let mut delays = backoff.build();
        let mut last_logged = String::new();
        loop {
            let mut served = false;
            let pause = match self.session(&stop, &mut served).await {
                Ok(Ended::Drained) => return,
                Ok(Ended::TlsFilesChanged) => {
                    tracing::info!("TLS files changed: connecting anew with them");
                    Duration::ZERO
                }
                Err(error) => {
                    // Who takes nothing is asked again as seldom as who does not answer.
                    if served {
                        delays = backoff.build();
                        last_logged.clear();
                    }
                    let text = error.to_string();
                    if text != last_logged {
                        tracing::warn!(
                            buffered_ms = self.outbox.span_ms(),
                            "{text}; windows are kept and sent later, trying again"
                        );
                        last_logged = text;
                    }
                    match error {
                        SessionError::Refused { retry: false, .. } => REFUSED_PAUSE,
                        _ => delays.next().unwrap_or(Duration::from_secs(5)),
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn session(&self, stop: &CancellationToken, served: &mut bool) -> Result<Ended, SessionError> {
        let tls_written = self.tls.as_ref().map(tls::written);
        let connecting = connect(&self.url, self.tls.as_ref());
        let (channel, late) = tokio::select! {
            connected = connecting => connected.map_err(|e| {
                if e.is_of_certificate() {
                    self.control.certificate_refused();
                }
                SessionError::Connect(Box::new(e))
            })?,
            () = stop.cancelled() => return Ok(Ended::Drained),
        };
        let (to_wire, from_wire) = self.open(channel, &late).await?;
        let proven = proves_itself(&self.url);
        let conversation = Conversation::new(&self.url, proven, &self.outbox, self.control.as_ref());
        let mut session = Session { stream: self, to_wire, late, conversation };
        let from_wire = session.welcome(from_wire).await?;
        let end = session.serve(from_wire, stop, tls_written).await;
        *served = session.conversation.served();
        end
    }

    async fn open(
        &self,
        channel: Channel,
        late: &LateRefusal,
    ) -> Result<(mpsc::Sender<AgentMessage>, Streaming<v1::CollectorMessage>), SessionError> {
        let (to_wire, outgoing) = mpsc::channel(IN_HAND);
        let mut hello = self.outbox.hello().unwrap_or_default();
        (hello.protocol_min, hello.protocol_max) = (PROTOCOL_MIN, PROTOCOL_MAX);
        let first = AgentMessage { body: Some(Body::Hello(hello)) };
        // The channel is empty: this cannot wait.
        let _ = to_wire.try_send(first);
        let mut client = TelemetryClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let answer =
            tokio::time::timeout(WELCOME_TIMEOUT, client.stream(ReceiverStream::new(outgoing))).await;
        match answer {
            Ok(Ok(response)) => Ok((to_wire, response.into_inner())),
            Ok(Err(status)) => Err(self.ended(&status, late)),
            Err(_) => Err(self.silent()),
        }
    }

    fn now(&self) -> Now {
        Now { said_epoch_offset_ns: self.clock.said_epoch_offset_ns(), unix_ns: self.clock.unix_ns() }
    }

    fn silent(&self) -> SessionError {
        let reason = format!("connected, but no welcome within {} s", WELCOME_TIMEOUT.as_secs());
        SessionError::Ended { url: self.url.clone(), reason }
    }

    fn ended(&self, status: &tonic::Status, late: &LateRefusal) -> SessionError {
        let reason = self.refused_late(late).unwrap_or_else(|| cut(&causes(status)));
        SessionError::Ended { url: self.url.clone(), reason }
    }

    /// What TLS said after the handshake.
    fn refused_late(&self, late: &LateRefusal) -> Option<String> {
        let refusal = late.take()?;
        if refusal.of_certificate {
            self.control.certificate_refused();
        }
        Some(refusal.reason)
    }

    fn parted(&self, parting: Parting) -> SessionError {
        let url = self.url.clone();
        match parting {
            Parting::Refused { reason, retry } => SessionError::Refused { url, reason, retry },
            Parting::Foreign { reason } => SessionError::Ended { url, reason },
        }
    }
}

struct Session<'a> {
    stream: &'a Stream,
    to_wire: mpsc::Sender<AgentMessage>,
    late: LateRefusal,
    conversation: Conversation<'a>,
}

impl Session<'_> {
    /// Waits for the collector's first word.
    async fn welcome(
        &mut self,
        mut from_wire: Streaming<v1::CollectorMessage>,
    ) -> Result<Streaming<v1::CollectorMessage>, SessionError> {
        let first = tokio::time::timeout(WELCOME_TIMEOUT, from_wire.next())
            .await
            .map_err(|_| self.stream.silent())?;
        match first {
            Some(Ok(message)) => {
                self.conversation.welcome(message).map_err(|parting| self.stream.parted(parting))?;
                Ok(from_wire)
            }
            Some(Err(status)) => Err(self.stream.ended(&status, &self.late)),
            None => Err(self.closed()),
        }
    }

    fn closed(&self) -> SessionError {
        let late = self.stream.refused_late(&self.late);
        let reason = late.unwrap_or_else(|| "closed the stream".to_owned());
        SessionError::Ended { url: self.stream.url.clone(), reason }
    }

    async fn serve(
        &mut self,
        mut from_wire: Streaming<v1::CollectorMessage>,
        stop: &CancellationToken,
        tls_written: Option<[Option<std::time::SystemTime>; 3]>,
    ) -> Result<Ended, SessionError> {
        let outbox = self.stream.outbox.clone();
        let mut probes = tokio::time::interval(PROBE_PERIOD);
        let mut statuses = tokio::time::interval(STATUS_PERIOD);
        for timer in [&mut probes, &mut statuses] {
            timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        }
        let to_wire = self.to_wire.clone();
        loop {
            let stopping = stop.is_cancelled();
            if stopping && outbox.finished() {
                return Ok(Ended::Drained);
            }
            self.conversation.look_at_clock(self.stream.clock.said_epoch_offset_ns());
            let sending = self.conversation.has_next();
            tokio::select! {
                heard = from_wire.next() => match heard {
                    Some(Ok(message)) => {
                        let now = self.stream.now();
                        self.conversation.hear(message, now).map_err(|parting| self.stream.parted(parting))?;
                    }
                    Some(Err(status)) => return Err(self.stream.ended(&status, &self.late)),
                    None => return Err(self.closed()),
                },
                permit = to_wire.reserve(), if sending => {
                    let Ok(permit) = permit else { return Err(self.closed()) };
                    if let Some(body) = self.conversation.next(self.stream.now()) {
                        permit.send(AgentMessage { body: Some(body) });
                    }
                }
                () = outbox.changed() => {}
                () = stop.cancelled(), if !stopping => {}
                _ = probes.tick() => self.conversation.probe_is_due(),
                _ = statuses.tick() => {
                    self.conversation.status_is_due();
                    if tls_written != self.stream.tls.as_ref().map(tls::written) {
                        return Ok(Ended::TlsFilesChanged);
                    }
                }
            }
        }
    }
}
