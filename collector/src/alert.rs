//! Which versions of an incident are told to whom, and the outbox they wait in: the first drop at once, again when the cause is
//! named or changes, and at the end. Owns deduplication, retries and bounds; a receiver that hangs delays nobody else.

use crate::driver::Clock;
use crate::metrics::Metrics;
use crate::webhook::{DeliveryError, Webhook};
use backon::{BackoffBuilder, ExponentialBuilder};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tailwater_analysis::Incident;
use tailwater_analysis::incident::{Kind, Resource, State};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tonic::codegen::Bytes;

/// Messages between the pipeline and the outbox.
const QUEUE_MAX: usize = 1024;
/// Messages that wait for one receiver, being sent or between tries.
const OUTBOX_MAX: usize = 1024;
/// Deliveries to one receiver at once.
const AT_ONCE: usize = 32;
/// Incidents remembered for what was told of them last.
const TOLD_MAX: usize = 4096;

/// What was told of an incident; it is told again when this differs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    kind: Kind,
    root: (String, String, Resource),
    drops: bool,
    state: State,
}

impl Verdict {
    fn of(i: &Incident) -> Self {
        let root = (i.root.host.clone(), i.root.workload.clone(), i.root.resource);
        Self { kind: i.kind, root, drops: !i.drops.is_empty(), state: i.state }
    }
}

/// A message to all receivers.
#[derive(Debug, Clone)]
struct Message {
    /// Incident id and version: receivers and retries tell messages by it.
    id: String,
    incident: String,
    body: Bytes,
}

/// The pipeline's side of alerting.
#[derive(Debug)]
pub struct Alerts {
    told: BTreeMap<String, Verdict>,
    queue: Option<mpsc::Sender<Message>>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

#[derive(Serialize)]
struct Envelope<'a> {
    r#type: &'static str,
    /// RFC 3339, as the standard recommends; times inside `data` are Unix ns.
    timestamp: String,
    data: &'a Incident,
    /// Ids of early alerts that turned out to be this incident.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    replaces: &'a [String],
}

impl Alerts {
    /// Nobody to tell.
    #[must_use]
    pub fn none(metrics: Arc<Metrics>, clock: Clock) -> Self {
        Self { told: BTreeMap::new(), queue: None, metrics, clock }
    }

    /// Tells `hooks`; the returned task delivers until the other end is dropped and its outboxes are empty.
    #[must_use]
    pub fn start(
        hooks: Vec<Webhook>,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        let queue = (!hooks.is_empty()).then_some(queue);
        let task = tokio::spawn(distribute(hooks, messages, Arc::clone(&metrics), clock));
        (Self { told: BTreeMap::new(), queue, metrics, clock }, task)
    }

    /// A new version of an incident, which replaces these early alerts. Only what an operator acts on is told: incidents with drops, and near overflows.
    pub fn incident(&mut self, incident: &Incident, replaces: &[String]) {
        let Some(queue) = &self.queue else { return };
        let verdict = Verdict::of(incident);
        let before = self.told.get(&incident.id);
        if before == Some(&verdict) || (before.is_none() && !worth_telling(incident)) {
            return;
        }
        let r#type = match (before, incident.state) {
            (_, State::Closed) => "incident.closed",
            (None, _) => "incident.opened",
            (Some(_), _) => "incident.updated",
        };
        let timestamp = rfc3339(self.clock.unix_ns());
        let Ok(body) = serde_json::to_vec(&Envelope { r#type, timestamp, data: incident, replaces }) else {
            return;
        };
        let message = Message {
            id: format!("{}.{}", incident.id, incident.version),
            incident: incident.id.clone(),
            body: body.into(),
        };
        if queue.try_send(message).is_err() {
            self.metrics.webhook_outbox_dropped.inc();
        }
        self.told.insert(incident.id.clone(), verdict);
        while self.told.len() > TOLD_MAX {
            self.told.pop_first(); // ids sort by time
        }
    }
}

fn worth_telling(incident: &Incident) -> bool {
    incident.severity != tailwater_analysis::incident::Severity::Info
}

async fn distribute(
    hooks: Vec<Webhook>,
    mut messages: mpsc::Receiver<Message>,
    metrics: Arc<Metrics>,
    clock: Clock,
) {
    let mut outboxes: Vec<Outbox> = hooks
        .into_iter()
        .map(|hook| Outbox {
            hook,
            waiting: HashMap::new(),
            count: 0,
            sending: JoinSet::new(),
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            metrics: Arc::clone(&metrics),
            clock,
        })
        .collect();
    let mut open = true;
    while open || outboxes.iter().any(|o| !o.sending.is_empty()) {
        tokio::select! {
            message = messages.recv(), if open => match message {
                Some(message) => outboxes.iter_mut().for_each(|o| o.put(message.clone())),
                None => open = false,
            },
            (n, incident) = finished(&mut outboxes) => {
                if let Some(outbox) = outboxes.get_mut(n) {
                    outbox.next(&incident);
                }
            }
        }
    }
}

/// The next delivery of any outbox to end: which outbox, which incident. Pending while nothing is being sent.
async fn finished(outboxes: &mut [Outbox]) -> (usize, String) {
    std::future::poll_fn(|cx| {
        for (n, outbox) in outboxes.iter_mut().enumerate() {
            // A delivery that panicked or was aborted has no more to say; the others go on.
            while let std::task::Poll::Ready(Some(ended)) = outbox.sending.poll_join_next(cx) {
                if let Ok(incident) = ended {
                    return std::task::Poll::Ready((n, incident));
                }
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// What one receiver has yet to get. Messages of one incident go in order, one at a time; incidents go side by side.
struct Outbox {
    hook: Webhook,
    waiting: HashMap<String, VecDeque<Message>>,
    count: usize,
    sending: JoinSet<String>,
    at_once: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Outbox {
    fn put(&mut self, message: Message) {
        let incident = message.incident.clone();
        if let Some(queue) = self.waiting.get_mut(&incident) {
            // What waits behind a delivery is older news: only the newest is worth sending.
            let older = queue.len();
            queue.clear();
            self.count -= older;
            for _ in 0..older {
                self.metrics.webhook_deliveries.inc("superseded");
            }
            queue.push_back(message);
            self.count += 1;
            return;
        }
        if self.count + self.waiting.len() >= OUTBOX_MAX {
            self.metrics.webhook_outbox_dropped.inc();
            tracing::warn!(url = %self.hook.url(), "webhook outbox is full: {} is not told", message.id);
            return;
        }
        self.waiting.insert(incident, VecDeque::new());
        self.send(message);
    }

    /// The delivery of `incident`'s message has ended, one way or the other.
    fn next(&mut self, incident: &str) {
        match self.waiting.get_mut(incident).and_then(VecDeque::pop_front) {
            Some(message) => {
                self.count -= 1;
                self.send(message);
            }
            None => {
                self.waiting.remove(incident);
            }
        }
    }

    fn send(&mut self, message: Message) {
        let (hook, at_once, metrics, clock) =
            (self.hook.clone(), Arc::clone(&self.at_once), Arc::clone(&self.metrics), self.clock);
        self.sending.spawn(async move {
            deliver(&hook, &message, &at_once, &metrics, clock).await;
            message.incident
        });
    }
}

/// About five minutes of trying: 0.5, 1, 2 … 60 s, with jitter.
fn backoff() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(60))
        .with_max_times(10)
        .with_jitter()
        .build()
}

async fn deliver(hook: &Webhook, message: &Message, at_once: &Semaphore, metrics: &Metrics, clock: Clock) {
    let mut pauses = backoff();
    loop {
        let outcome = {
            // Closed never; a permit is held for one try, not for the pause after it.
            let _permit = at_once.acquire().await;
            hook.deliver(&message.id, clock.unix_ns() / 1_000_000_000, &message.body).await
        };
        let error = match outcome {
            Ok(()) => return metrics.webhook_deliveries.inc("delivered"),
            Err(DeliveryError::Never(why)) => {
                metrics.webhook_deliveries.inc("refused");
                tracing::warn!(url = %hook.url(), id = %message.id, "webhook refused: {why}");
                return;
            }
            Err(DeliveryError::Later(why)) => why,
        };
        let Some(pause) = pauses.next() else {
            metrics.webhook_deliveries.inc("given_up");
            tracing::warn!(url = %hook.url(), id = %message.id, "webhook given up: {error}");
            return;
        };
        metrics.webhook_deliveries.inc("retried");
        tracing::debug!(url = %hook.url(), id = %message.id, "webhook again in {pause:?}: {error}");
        tokio::time::sleep(pause).await;
    }
}

fn rfc3339(unix_ns: u64) -> String {
    let t = crate::text::Civil::of(unix_ns);
    format!("{}T{}Z", t.date(), t.time_ms())
}
