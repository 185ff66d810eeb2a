//! Agents' streams: one task each, from the first message to the last. Owns the rule that a slow or noisy agent is refused and
//! never slows another; knows nothing of what messages mean (`session` does) or how they came (`listen` does).

use super::delivery_log::{DeliveryLog, Entry, NotTaken};
use super::feed::{Feed, Quota};
use crate::access::attempts::{Attempts, Fruitless, plain};
use crate::authority::signer::REVOKED;
use crate::clock::Clock;
use crate::counters::Metrics;
use crate::ingest::agents::{self, Agents};
use crate::ingest::registry::Registry;
use crate::ingest::rpc::{Answer, Replies};
use crate::ingest::session::{Delivery, REPLACED, Session, Taken};
use crate::ingest::tls::Speaker;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tailwater_proto::v1::{Ack, CollectorMessage, Refusal, collector_message::Body as Reply};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::Bytes;
use tonic::{Status, Streaming};

/// Replies that wait for an agent to read them; acknowledgements beyond it are left out (the next one covers them).
const REPLIES_MAX: usize = 64;
/// An acknowledgement covers all before it, and waits this long for more to cover: each is a write to its connection, which costs as much as to take
/// a batch in does. Its agent keeps what it sent for that much longer.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(200);
/// An agent says Hello within this.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// What every stream needs.
#[derive(Debug)]
pub struct Ingest {
    /// Hosts.
    pub registry: Arc<Registry>,
    /// The pipeline's queue.
    pub feed: Feed,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Time.
    pub clock: Clock,
    /// Messages of one agent that may wait.
    pub agent_queue: usize,
    /// What is asked of agents as their streams begin.
    pub agents: Vec<Agents>,
    /// Ends all streams.
    pub shutdown: CancellationToken,
    /// Wrong tokens of enrolment.
    pub attempts: Attempts,
    /// Connections and streams that came to nothing.
    pub fruitless: Fruitless,
    /// So that the end can wait for them.
    pub tasks: TaskTracker,
}

impl Ingest {
    /// Whether the log tells that something of `peer` came to nothing, and why: as seldom as of wrong tokens from one place, for each kind of end and sort of reason.
    /// Whoever connects without an end is counted each time, and does not fill the disk.
    #[must_use]
    pub fn tells_of(&self, peer: &str, kind: &'static str, why: &str) -> bool {
        self.fruitless.is_told(address(peer), kind, why, self.clock.monotonic())
    }
}

/// The streams of one connection.
#[derive(Debug)]
pub struct Connection {
    /// Shared.
    pub ingest: Arc<Ingest>,
    /// Who is on the other side.
    pub peer: String,
    /// And for which hosts it may speak.
    pub speaker: Speaker,
    /// Ends it once what is under way is answered.
    pub answered: CancellationToken,
    /// Cancelled when the certificate that it showed is nobody's any more.
    pub revoked: CancellationToken,
}

/// Where a peer is, as connections are counted by; one that has no address is of this machine.
#[must_use]
pub fn address(peer: &str) -> IpAddr {
    let address = peer.parse::<SocketAddr>().map(|peer| plain(peer.ip()));
    address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

impl Answer for Connection {
    fn answer(self: Arc<Self>, messages: Streaming<Bytes>) -> Replies {
        let (replies, out) = mpsc::channel(REPLIES_MAX);
        let tasks = self.ingest.tasks.clone();
        tasks.spawn(async move { self.stream(messages, replies).await });
        Replies::new(out)
    }
}

type Out = mpsc::Sender<Result<CollectorMessage, Status>>;

impl Connection {
    async fn stream(&self, mut messages: Streaming<Bytes>, out: Out) {
        let ingest = &self.ingest;
        // Before anything of theirs is read: what a stranger says of itself may be megabytes.
        if self.speaker.is_stranger() {
            let reason = self.speaker.may_speak_for("").err().unwrap_or_default();
            // Of whoever shows no certificate nothing is known. One that was given one, which is nobody's now, may join anew.
            let join = self.speaker.is_revoked();
            return self.end(&out, "hello", Refusal { reason, retry: true, join }).await;
        }
        let first = match tokio::time::timeout(HELLO_WITHIN, messages.message()).await {
            Ok(Ok(Some(first))) => first,
            Ok(Ok(None)) => return,
            Ok(Err(status)) => {
                ingest.metrics.agents_refused.inc("no_hello");
                if ingest.tells_of(&self.peer, "no_hello", "") {
                    tracing::warn!(peer = %self.peer, "stream ended before a Hello: {}", status.message());
                }
                return;
            }
            Err(_) => {
                let reason = format!("no Hello within {} s", HELLO_WITHIN.as_secs());
                return self.end(&out, "no_hello", Refusal { reason, retry: true, join: false }).await;
            }
        };
        let opened = Session::open(
            &first,
            &ingest.registry,
            &ingest.metrics,
            (&self.peer, &self.speaker),
            ingest.clock.unix_ns(),
        );
        let (mut session, welcome, delivery) = match opened {
            Ok(opened) => opened,
            Err(refusal) => return self.end(&out, "hello", refusal).await,
        };
        let host = session.host().to_owned();
        let quota = ingest.feed.quota(&host, ingest.agent_queue);
        tracing::info!(%host, peer = %self.peer, last_sequence = welcome.last_sequence, "agent connected");
        if self.speaker.has_to_join() {
            tracing::warn!(
                %host, peer = %self.peer,
                "it still speaks by a certificate of [tls]: let it join (`tailwater enroll {host}`, then `tailwater-agent join` there), so that [tls] can go"
            );
        }
        self.adopt();
        if out.send(Ok(reply(Reply::Welcome(welcome)))).await.is_err() {
            session.lease().end(ingest.clock.unix_ns());
            return;
        }
        let refusal = match begin(&session, delivery, &ingest.feed, &quota).await {
            Ok(()) => {
                self.configure(&host, &out);
                self.converse(&mut session, &mut messages, &out, &quota).await
            }
            Err(refusal) => Some(("queue_full", refusal)),
        };
        session.lease().end(ingest.clock.unix_ns());
        match refusal {
            Some((kind, refusal)) => self.end(&out, kind, refusal).await,
            None => tracing::info!(%host, peer = %self.peer, "agent disconnected"),
        }
    }

    /// Says how to measure, where a table is for this host; whether that is done is for the agent to judge.
    fn configure(&self, host: &str, out: &Out) {
        let Some(configuration) = agents::configuration(&self.ingest.agents, host) else { return };
        tracing::debug!(
            host, peer = %self.peer,
            version = configuration.version,
            windows_per_batch = configuration.windows_per_batch,
            disabled = configuration.disabled.len(),
            "agent told how to measure"
        );
        self.say(out, Reply::Configuration(configuration));
    }

    /// Keeps a certificate that is newer than what this collector has of its host: after a restore from a backup.
    fn adopt(&self) {
        if let Speaker::Enrolled(authority, certificate) = &self.speaker
            && !authority.keeps(certificate)
        {
            let (authority, certificate) = (Arc::clone(authority), certificate.clone());
            self.ingest.tasks.spawn_blocking(move || {
                if let Err(e) = authority.adopt(&certificate) {
                    tracing::warn!("a certificate that is newer than the authority's files is not kept: {e}");
                }
            });
        }
    }

    /// Until the agent goes (`None`) or is sent away.
    async fn converse(
        &self,
        session: &mut Session,
        messages: &mut Streaming<Bytes>,
        out: &Out,
        quota: &Quota,
    ) -> Option<(&'static str, Refusal)> {
        let mut acknowledged = None;
        let end = self.listen(session, messages, out, quota, &mut acknowledged).await;
        // What was taken is not sent again on the next stream.
        self.say_held(out, &mut acknowledged);
        end
    }

    /// The same; what is to be acknowledged at its end stands in `held`.
    async fn listen(
        &self,
        session: &mut Session,
        messages: &mut Streaming<Bytes>,
        out: &Out,
        quota: &Quota,
        held: &mut Option<Ack>,
    ) -> Option<(&'static str, Refusal)> {
        let ingest = &self.ingest;
        let due = tokio::time::sleep(ACKNOWLEDGED_WITHIN);
        tokio::pin!(due);
        loop {
            let next = tokio::select! {
                next = messages.message() => next,
                () = &mut due, if held.is_some() => {
                    self.say_held(out, held);
                    continue;
                }
                () = session.lease().replaced.cancelled() => {
                    return Some(("replaced", replaced(session)));
                }
                () = self.revoked.cancelled() => {
                    let refusal = Refusal { reason: REVOKED.to_owned(), retry: true, join: true };
                    return Some(("revoked", refusal));
                }
                () = ingest.shutdown.cancelled() => {
                    let reason = "the collector is stopping".into();
                    return Some(("stopping", Refusal { reason, retry: true, join: false }));
                }
            };
            let raw = match next {
                Ok(Some(raw)) => raw,
                Ok(None) => return None,
                Err(status) => {
                    tracing::warn!(host = session.host(), peer = %self.peer, "stream broke: {}", status.message());
                    return None;
                }
            };
            let replies = match step(session, raw, ingest.clock.unix_ns(), &ingest.feed, quota).await {
                Ok(replies) => replies,
                Err(refusal) => return Some(("queue_full", refusal)),
            };
            for body in replies.into_iter().flatten() {
                if let Reply::Ack(ack) = body {
                    if held.replace(ack).is_none() {
                        due.as_mut().reset(tokio::time::Instant::now() + ACKNOWLEDGED_WITHIN);
                    }
                } else {
                    self.say_held(out, held);
                    self.say(out, body);
                }
            }
        }
    }

    fn say_held(&self, out: &Out, held: &mut Option<Ack>) {
        if let Some(ack) = held.take() {
            self.say(out, Reply::Ack(ack));
        }
    }

    fn say(&self, out: &Out, body: Reply) {
        // An agent that does not read its replies must not hold its own messages back.
        if out.try_send(Ok(reply(body))).is_err() {
            self.ingest.metrics.replies_dropped.inc();
        }
    }

    async fn end(&self, out: &Out, kind: &'static str, refusal: Refusal) {
        self.ingest.metrics.agents_refused.inc(kind);
        if kind == "queue_full" {
            self.ingest.metrics.limits.reached("agent_queue", 1, self.ingest.clock.unix_ns());
        }
        // Who was let in is known by name, and waits before it comes again.
        let told =
            !matches!(kind, "hello" | "no_hello") || self.ingest.tells_of(&self.peer, kind, &refusal.reason);
        if self.ingest.shutdown.is_cancelled() {
            tracing::debug!(peer = %self.peer, "stream ended: {}", refusal.reason);
        } else if told {
            tracing::warn!(peer = %self.peer, retry = refusal.retry, "agent refused: {}", refusal.reason);
        }
        // The peer may be gone, or may not read: either way the stream ends here.
        let _ =
            tokio::time::timeout(Duration::from_secs(1), out.send(Ok(reply(Reply::Refusal(refusal))))).await;
    }
}

/// What is said to a stream whose host another one speaks for now.
#[must_use]
pub fn replaced(session: &Session) -> Refusal {
    // Two agents of one boot must not send each other away without a pause. But where an agent was replaced by itself, and still hears of it
    // here, the other stream is one that it gave up: its Hello was read late. It comes back at once.
    let retry = session.lease().replaced.is_by_itself();
    Refusal { reason: REPLACED.to_owned(), retry, join: false }
}

/// Queues what a stream's Hello brought. `Ok` also where another stream takes the host over while this waits for room: what this run is would come
/// behind what the next one is, and who holds the stream hears of it when it goes on. An error ends the stream.
pub async fn begin(session: &Session, delivery: Delivery, feed: &Feed, quota: &Quota) -> Result<(), Refusal> {
    tokio::select! {
        biased;
        () = session.lease().replaced.cancelled() => Ok(()),
        delivered = feed.deliver_by(delivery, quota, |log, entry| {
            append(session, log, entry, None).map(|_| ())
        }) => delivered,
    }
}

/// One message that came at `now_unix_ns`: judged, queued, and only then taken for good; what to say to it. Whoever holds the stream calls it,
/// a task here and a simulation in the tests. An error ends the stream.
pub async fn step(
    session: &mut Session,
    raw: Bytes,
    now_unix_ns: u64,
    feed: &Feed,
    quota: &Quota,
) -> Result<[Option<Reply>; 2], Refusal> {
    // A run of the agent that is over may still have messages under way, with sequences that are far beyond those of the next run: taken
    // here, they would make duplicates of all that this one says. What is of the same run is sent again on its new stream.
    let replaced = session.lease().replaced.clone();
    if replaced.is_cancelled() {
        return Ok([None, None]);
    }
    let reaction = session.message(raw, now_unix_ns);
    let mut committed = None;
    if let Some(delivery) = reaction.delivery {
        let (session, batch) = (&*session, reaction.commit);
        tokio::select! {
            biased;
            // While this waited for room, the agent came back on another stream, and says it again there.
            () = replaced.cancelled() => return Ok([None, None]),
            delivered = feed.deliver_by(delivery, quota, |log, entry| {
                committed = append(session, log, entry, batch)?;
                Ok(())
            }) => delivered?,
        }
    }
    Ok([reaction.reply, committed])
}

/// Appends what a message brought and commits its batch at once: a stream that takes the host over at that moment finds that both were done, and
/// tells its agent so, or that neither is ever done, and gets the batch again. Otherwise the analysis would have it twice.
fn append(
    session: &Session,
    log: &dyn DeliveryLog,
    entry: Entry,
    batch: Option<Taken>,
) -> Result<Option<Reply>, NotTaken> {
    let Some(mut slot) = session.lease().own_slot() else {
        // Whoever waits for room hears that, too.
        return Err(NotTaken::Full(entry));
    };
    log.append(entry)?;
    Ok(batch.map(|taken| session.commit_to(&mut slot, taken)))
}

fn reply(body: Reply) -> CollectorMessage {
    CollectorMessage { body: Some(body) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::delivery_log::{InMemory, Most, NotThere, Offset};
    use prost::Message;
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::thread::JoinHandle;
    use tailwater_proto::v1::{AgentMessage, Hello, WindowBatch, agent_message::Body};
    use tailwater_proto::{PROTOCOL_MAX, PROTOCOL_MIN, WINDOW_NS};

    const NOW_UNIX_NS: u64 = 1_794_000_000_000_000_000;

    fn hello() -> Hello {
        Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            host: "web-1".into(),
            agent_instance: "a".into(),
            window_ns: WINDOW_NS,
            ..Hello::default()
        }
    }

    fn raw(body: Body) -> Bytes {
        AgentMessage { body: Some(body) }.encode_to_vec().into()
    }

    /// A log behind which, as something is appended, the same agent comes back on another stream, and is told what is taken.
    #[derive(Debug)]
    struct ComesBack {
        log: InMemory,
        registry: Arc<Registry>,
        told: Mutex<Option<JoinHandle<u64>>>,
    }

    impl DeliveryLog for ComesBack {
        fn append(&self, entry: Entry) -> Result<Offset, NotTaken> {
            let at = self.log.append(entry)?;
            let registry = Arc::clone(&self.registry);
            let told = std::thread::spawn(move || {
                registry.take(&hello(), "q", NOW_UNIX_NS).map(|lease| lease.slot().last_sequence).unwrap()
            });
            // It gets through in this time, if anything lets it.
            std::thread::sleep(Duration::from_millis(50));
            *self.told.lock().unwrap() = Some(told);
            Ok(at)
        }
        fn fetch(
            &self,
            from: Offset,
            most: Most,
            within: Duration,
            into: &mut VecDeque<Entry>,
        ) -> Result<(), NotThere> {
            self.log.fetch(from, most, within, into)
        }
        fn offset_at(&self, unix_ns: u64) -> Result<Offset, NotThere> {
            self.log.offset_at(unix_ns)
        }
        fn close(&self) {
            self.log.close();
        }
    }

    /// A stream of [`hello`], and what that brought.
    fn opened(registry: &Registry) -> (Session, Delivery) {
        let who = ("p", &Speaker::default());
        let first = raw(Body::Hello(hello()));
        let (session, _, delivery) =
            Session::open(&first, registry, &Arc::default(), who, NOW_UNIX_NS).unwrap();
        (session, delivery)
    }

    #[tokio::test]
    async fn a_stream_that_is_replaced_while_its_hello_waits_for_room_queues_none() {
        let registry = Registry::new(4);
        let (session, delivery) = opened(&registry);
        let (feed, quota) = (Feed::new(Arc::new(InMemory::new(0)), Arc::default()).0, Quota::new(4));
        let (begun, taken_over) = tokio::join!(begin(&session, delivery, &feed, &quota), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            registry.take(&hello(), "q", NOW_UNIX_NS).is_ok()
        });
        assert!(taken_over && begun.is_ok(), "it is not told that there is no room: {begun:?}");
        assert_eq!(feed.waiting(), 0);
    }

    #[test]
    fn a_stream_that_is_replaced_once_its_message_was_judged_appends_nothing() {
        let registry = Registry::new(4);
        let (mut session, _) = opened(&registry);
        let batch = WindowBatch {
            sequence: 1,
            first_window: NOW_UNIX_NS / WINDOW_NS - 2,
            window_count: 2,
            ..WindowBatch::default()
        };
        let reaction = session.message(raw(Body::Batch(batch)), NOW_UNIX_NS);
        let (entry, batch) = (Entry::of(reaction.delivery.unwrap()), reaction.commit);
        let next = registry.take(&hello(), "q", NOW_UNIX_NS).unwrap();
        let log = InMemory::new(4);
        let appended = append(&session, &log, entry, batch);
        assert!(matches!(appended, Err(NotTaken::Full(_))), "{appended:?}");
        assert_eq!(log.offset_at(u64::MAX), Ok(Offset::default()), "nothing is in the log");
        assert_eq!(next.slot().last_sequence, 0, "nor is it said to be taken");
    }

    #[tokio::test]
    async fn an_agent_that_comes_back_as_its_batch_is_queued_is_told_that_it_is_taken() {
        let (registry, metrics) = (Arc::new(Registry::new(4)), Arc::default());
        let log = Arc::new(ComesBack {
            log: InMemory::new(4),
            registry: Arc::clone(&registry),
            told: Mutex::default(),
        });
        let feed = Feed::over(Arc::clone(&log) as Arc<dyn DeliveryLog>);
        let who = ("p", &Speaker::default());
        let first = raw(Body::Hello(hello()));
        let (mut session, ..) = Session::open(&first, &registry, &metrics, who, NOW_UNIX_NS).unwrap();
        let batch = WindowBatch {
            sequence: 1,
            first_window: NOW_UNIX_NS / WINDOW_NS - 2,
            window_count: 2,
            ..WindowBatch::default()
        };
        let said = raw(Body::Batch(batch));
        let quota = Quota::new(4);
        let replies = step(&mut session, said.clone(), NOW_UNIX_NS, &feed, &quota).await.unwrap();
        assert!(matches!(replies, [None, Some(Reply::Ack(_))]), "{replies:?}");
        let told = log.told.lock().unwrap().take().unwrap();
        assert_eq!(told.join().unwrap(), 1, "it would send the batch again, and that would be taken");
        let late = step(&mut session, said, NOW_UNIX_NS, &feed, &quota).await.unwrap();
        assert!(matches!(late, [None, None]), "its old stream takes nothing more: {late:?}");
        assert_eq!(feed.waiting(), 1);
    }
}
