//! What a collector says, and what follows of it for this agent: acknowledgements, clock replies, refusals, a configuration. Owns at whose word
//! what is done, and that a collector cannot write this machine's log as it likes: its texts are cut, and what it repeats is said once. Knows
//! no network: messages come decoded, and each with the moment at which it came.

use super::offset::OffsetEstimate;
use super::outbox::Outbox;
use tailwater_proto::v1::{self, collector_message::Body as Said};
use tailwater_proto::{PROTOCOL_MAX, PROTOCOL_MIN};

/// Characters of a collector's text that are told. Its own sentences are shorter.
const TEXT_MAX: usize = 500;

/// What the stream asks of the rest of the agent.
pub trait Control: Send + Sync {
    /// The status to report, with the clock estimate filled in by the stream.
    fn status(&self) -> v1::AgentStatus;
    /// The collector wants it this way.
    fn configure(&self, configuration: &v1::Configuration);
    /// Whether the operator of this machine lets a collector say how to measure. Where not, [`configure`](Self::configure) is not called.
    fn takes_configuration(&self) -> bool {
        true
    }
    /// This machine's certificate is refused, or the collector's is of an authority that it does not know: told at each connection that ends so. What can
    /// be done about it is not the stream's; where nobody has joined, nothing.
    fn certificate_refused(&self) {}
}

/// Why a connection is not worth to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parting {
    /// The collector does not want this agent.
    Refused {
        /// In its words.
        reason: String,
        /// Whether it may be asked again soon.
        retry: bool,
    },
    /// It does not speak as a collector does.
    Foreign {
        /// What it did.
        reason: String,
    },
}

/// The agent's ears on one connection.
pub struct Heard<'a> {
    url: &'a str,
    /// Whether whoever listens there proved who it is.
    proven: bool,
    outbox: &'a Outbox,
    control: &'a dyn Control,
    /// How far the collector's clock is from ours.
    pub offset: OffsetEstimate,
    /// Whether it took anything on this connection.
    pub served: bool,
    told_untaken: bool,
    told_unsent: bool,
    told_other: bool,
}

impl std::fmt::Debug for Heard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heard").field("url", &self.url).field("proven", &self.proven).finish_non_exhaustive()
    }
}

impl<'a> Heard<'a> {
    /// On a connection to `url`, before the first word. `proven`: whoever listens there proved who it is, and may say what to measure.
    pub fn new(url: &'a str, proven: bool, outbox: &'a Outbox, control: &'a dyn Control) -> Self {
        let offset = OffsetEstimate::default();
        Self {
            url,
            proven,
            outbox,
            control,
            offset,
            served: false,
            told_untaken: false,
            told_unsent: false,
            told_other: false,
        }
    }

    /// The collector's first word: a welcome, or the connection is over.
    pub fn first(&mut self, message: v1::CollectorMessage) -> Result<(), Parting> {
        match message.body {
            Some(Said::Welcome(welcome)) => {
                if !(PROTOCOL_MIN..=PROTOCOL_MAX).contains(&welcome.protocol) {
                    let reason = format!(
                        "it chose protocol {}, this agent speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}; update the older side",
                        welcome.protocol
                    );
                    return Err(Parting::Refused { reason, retry: false });
                }
                tracing::info!(
                    collector = cut(&welcome.collector_version),
                    has_batches_up_to = welcome.last_sequence,
                    "connected to {}",
                    self.url
                );
                let sent = self.outbox.resume(welcome.last_sequence);
                self.taken(welcome.last_sequence, sent);
                Ok(())
            }
            Some(Said::Refusal(refusal)) => Err(self.refused(refusal)),
            _ => Err(Parting::Foreign {
                reason: "its first message is neither welcome nor refusal".to_owned(),
            }),
        }
    }

    /// Any word after the first, which came at `now_unix_ns` of our clock.
    pub fn then(&mut self, message: v1::CollectorMessage, now_unix_ns: u64) -> Result<(), Parting> {
        match message.body {
            Some(Said::Ack(ack)) => {
                let sent = self.outbox.acknowledged(ack.sequence);
                self.taken(ack.sequence, sent);
                self.served = true;
            }
            Some(Said::ClockReply(reply)) => self.offset.add(&reply, now_unix_ns),
            Some(Said::BatchRefused(refused)) => {
                let (url, sequence, reason) = (self.url, refused.sequence, cut(&refused.reason));
                if self.outbox.refused(sequence) {
                    tracing::warn!(
                        sequence,
                        "collector {url} refused a batch: {reason}; its windows are lost"
                    );
                } else if !std::mem::replace(&mut self.told_other, true) {
                    // Names and drop events are refused as batch 0. Said once: whoever repeats it would write this log.
                    tracing::warn!(sequence, "collector {url} refused what is no batch that waits: {reason}");
                }
            }
            Some(Said::Configuration(configuration)) => self.asked(&configuration),
            Some(Said::Refusal(refusal)) => return Err(self.refused(refusal)),
            // A second welcome says nothing new; an empty body is of a later version.
            Some(Said::Welcome(_)) | None => {}
        }
        Ok(())
    }

    /// How the collector wants this machine measured: taken from who proved itself, where the operator does not refuse it as a whole.
    fn asked(&mut self, configuration: &v1::Configuration) {
        let takes = self.control.takes_configuration();
        if takes && self.proven {
            self.control.configure(configuration);
        } else if !std::mem::replace(&mut self.told_untaken, true) {
            if takes {
                tracing::warn!(
                    "{} sent a configuration, which is not taken: without https:// or unix:// nobody knows who listens there",
                    self.url
                );
            } else {
                // As the operator wants it: no warning, and no remedy.
                tracing::info!(
                    version = configuration.version,
                    "{} sent a configuration, of which nothing is taken: take_configuration = false",
                    self.url
                );
            }
        }
    }

    /// A collector that says to have what it was never sent is damaged, or has mistaken this agent for another one.
    fn taken(&mut self, up_to: u64, sent: u64) {
        if up_to > sent && !std::mem::replace(&mut self.told_unsent, true) {
            tracing::warn!(
                "collector {} says to have batches up to {up_to}, of which this agent sent those up to {sent}: the others are kept",
                self.url
            );
        }
    }

    fn refused(&self, refusal: v1::Refusal) -> Parting {
        if refusal.join && self.proven {
            self.control.certificate_refused();
        }
        Parting::Refused { reason: cut(&refusal.reason), retry: refusal.retry }
    }
}

/// A text of somebody else as a line of our log can hold it.
pub fn cut(text: &str) -> String {
    let mut told: String =
        text.chars().take(TEXT_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(TEXT_MAX).is_some() {
        told.push('…');
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tailwater_proto::v1::agent_message::Body;

    /// What was configured, how often the certificate was refused, and whether the operator refuses configurations.
    #[derive(Default)]
    struct Rest(Mutex<Vec<v1::Configuration>>, AtomicU64, bool);

    impl Control for Rest {
        fn status(&self) -> v1::AgentStatus {
            v1::AgentStatus::default()
        }
        fn configure(&self, configuration: &v1::Configuration) {
            self.0.lock().unwrap().push(configuration.clone());
        }
        fn takes_configuration(&self) -> bool {
            !self.2
        }
        fn certificate_refused(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn says(body: Said) -> v1::CollectorMessage {
        v1::CollectorMessage { body: Some(body) }
    }

    fn welcome(last_sequence: u64) -> v1::CollectorMessage {
        says(Said::Welcome(v1::Welcome { protocol: 1, last_sequence, ..v1::Welcome::default() }))
    }

    /// Three batches, of which so many were sent.
    fn three(sent: usize) -> Outbox {
        let outbox = Outbox::new(10);
        for _ in 0..3 {
            outbox.push(v1::WindowBatch { window_count: 2, ..v1::WindowBatch::default() }, 0);
        }
        (0..sent).for_each(|_| drop(outbox.next()));
        outbox
    }

    fn welcomed<'a>(outbox: &'a Outbox, rest: &'a Rest) -> Heard<'a> {
        let mut heard = Heard::new("unix:///c", true, outbox, rest);
        heard.first(welcome(0)).unwrap();
        heard
    }

    fn refuses(sequence: u64) -> v1::CollectorMessage {
        says(Said::BatchRefused(v1::BatchRefused { sequence, reason: "no".into() }))
    }

    fn waiting(outbox: &Outbox) -> Vec<u64> {
        outbox.resume(0);
        let batch = |body| match body {
            Body::Batch(batch) => Some(batch.sequence),
            _ => None,
        };
        std::iter::from_fn(|| outbox.next()).filter_map(batch).collect()
    }

    #[test]
    fn what_was_never_sent_is_kept_whatever_a_collector_says_to_have() {
        let (rest, outbox) = (Rest::default(), three(1));
        let mut heard = welcomed(&outbox, &rest);
        [2, u64::MAX].into_iter().for_each(|sequence| heard.then(refuses(sequence), 0).unwrap());
        heard.then(says(Said::Ack(v1::Ack { sequence: u64::MAX })), 0).unwrap();
        assert_eq!(waiting(&outbox), [2, 3]);
        assert_eq!(outbox.totals().batches_refused, 0);
        let outbox = three(2);
        Heard::new("unix:///c", true, &outbox, &rest).first(welcome(u64::MAX)).unwrap();
        assert_eq!(waiting(&outbox), [3], "and so at the beginning of a connection");
    }

    #[test]
    fn a_batch_is_refused_by_who_got_it_on_this_connection() {
        let (rest, outbox) = (Rest::default(), three(3));
        let mut heard = welcomed(&outbox, &rest);
        heard.then(refuses(1), 0).unwrap();
        assert_eq!(outbox.totals().batches_refused, 0, "that was on the connection before");
        outbox.next();
        heard.then(refuses(1), 0).unwrap();
        heard.then(refuses(1), 0).unwrap();
        assert_eq!(outbox.totals().batches_refused, 1);
        assert_eq!(waiting(&outbox), [2, 3]);
    }

    #[test]
    fn first_words_that_are_no_welcome_end_the_connection() {
        let (rest, outbox) = (Rest::default(), three(3));
        let mut heard = Heard::new("unix:///c", true, &outbox, &rest);
        for message in [v1::CollectorMessage::default(), says(Said::Ack(v1::Ack { sequence: 3 }))] {
            assert!(matches!(heard.first(message), Err(Parting::Foreign { .. })));
        }
        let other =
            says(Said::Welcome(v1::Welcome { protocol: 9, last_sequence: 3, ..v1::Welcome::default() }));
        assert!(matches!(heard.first(other), Err(Parting::Refused { retry: false, .. })));
        let long = v1::Refusal { reason: "\u{1b}[31mno\n".repeat(1_000_000), retry: true, join: false };
        let Err(Parting::Refused { reason, retry: true }) = heard.first(says(Said::Refusal(long))) else {
            panic!("refused")
        };
        assert!(reason.len() < 600 && !reason.contains('\u{1b}') && !reason.contains('\n'), "{reason}");
        assert_eq!(waiting(&outbox), [1, 2, 3]);
    }

    /// Fails if whoever listens on loopback in a collector's place can make this machine join, or if a refusal for another reason does.
    #[test]
    fn a_certificate_that_is_nobodys_is_told_to_who_can_get_another() {
        let (rest, outbox) = (Rest::default(), three(0));
        let says_no = |join| says(Said::Refusal(v1::Refusal { reason: "no".into(), retry: true, join }));
        let told = || rest.1.load(Ordering::Relaxed);
        let heard = |proven| Heard::new("https://c", proven, &outbox, &rest);
        for (proven, join, expect) in [(true, false, 0), (false, true, 0), (true, true, 1)] {
            let parting = heard(proven).first(says_no(join)).unwrap_err();
            assert_eq!(parting, Parting::Refused { reason: "no".into(), retry: true });
            assert_eq!(told(), expect, "{proven} {join}");
        }
        assert!(heard(true).then(says_no(true), 0).is_err());
        assert_eq!(told(), 2, "also while it was let in");
    }

    #[test]
    fn a_configuration_is_taken_from_who_proved_itself() {
        let (rest, outbox) = (Rest::default(), three(0));
        let wanted = || says(Said::Configuration(v1::Configuration { version: 3, ..Default::default() }));
        Heard::new("http://127.0.0.1:1", false, &outbox, &rest).then(wanted(), 0).unwrap();
        assert!(rest.0.lock().unwrap().is_empty());
        Heard::new("unix:///c", true, &outbox, &rest).then(wanted(), 0).unwrap();
        assert_eq!(rest.0.lock().unwrap()[0].version, 3);
    }

    /// Fails if a configuration is taken though the operator refuses it, whoever sent it; or if the connection ends of it.
    #[test]
    fn a_configuration_that_the_operator_refuses_is_taken_from_nobody() {
        let (rest, outbox) = (Rest(Mutex::default(), AtomicU64::default(), true), three(0));
        for (url, proven) in [("unix:///c", true), ("http://127.0.0.1:1", false)] {
            let mut heard = Heard::new(url, proven, &outbox, &rest);
            for version in [3, 4] {
                let wanted = v1::Configuration { version, ..Default::default() };
                heard.then(says(Said::Configuration(wanted)), 0).unwrap();
            }
            assert!(rest.0.lock().unwrap().is_empty(), "{url}");
        }
    }
}
