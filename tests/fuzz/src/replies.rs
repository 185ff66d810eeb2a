//! What a collector says to an agent: a stream of its messages, through all that acts on them, with books beside; and what it gives to whoever
//! joins or renews.

use crate::messages::next;
use crate::scratch;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use tailwater_agent::enrol;
use tailwater_agent::identity::{self, Identity};
use tailwater_agent::run::steering::Steering;
use tailwater_agent::sample::sampler::Handle;
use tailwater_agent::stream::Control;
use tailwater_agent::stream::heard::Heard;
use tailwater_agent::stream::outbox::Outbox;
use tailwater_agent::stream::tls;
use tailwater_proto::v1::{self, agent_message::Body, collector_message::Body as Said};

/// Batches that wait, at most.
const BATCHES_MAX: u64 = 8;
/// Windows in each.
const WINDOWS: u64 = 2;
/// The moment of the first message, ns since 1970.
const BEGIN_UNIX_NS: u64 = 1_795_271_400_000_000_000;

/// The first byte's highest bit: an answer to whoever joins or renews. Else a stream of messages, each with its length.
pub(crate) fn replies(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else { return };
    if how & 0x80 != 0 { enrolled(rest) } else { stream(*how, rest) }
}

/// The rest of an agent, as far as a collector may change it.
struct Rest(Steering);

impl Control for Rest {
    fn status(&self) -> v1::AgentStatus {
        v1::AgentStatus::default()
    }
    fn configure(&self, configuration: &v1::Configuration) {
        self.0.configure(configuration);
        let (windows, disabled) = self.0.now().expect("it was told just now");
        assert!((1..=64).contains(&windows) && disabled.len() <= 9, "{windows} {disabled:?}");
    }
}

/// What an agent's books say: each batch that it pushed, and what became of it.
#[derive(Default)]
struct Books {
    pushed: u64,
    /// As they were sent: windows in it, and windows told as lost with it.
    sent: BTreeMap<u64, (u64, u64)>,
    refused: BTreeSet<u64>,
    /// The most that a collector said to have.
    acknowledged: u64,
}

impl Books {
    fn push(&mut self, outbox: &Outbox) {
        self.pushed += 1;
        outbox.push(v1::WindowBatch { window_count: WINDOWS as u32, ..v1::WindowBatch::default() }, 0);
    }

    /// The next one goes out, or there is room for another.
    fn work(&mut self, outbox: &Outbox) {
        if let Some(Body::Batch(batch)) = outbox.next() {
            let as_sent = (u64::from(batch.window_count), batch.windows_lost);
            let before = self.sent.insert(batch.sequence, as_sent);
            assert!(before.is_none_or(|before| before == as_sent), "sent again as it was");
        } else if outbox.totals().waiting_batches < BATCHES_MAX {
            self.push(outbox);
        }
    }

    /// After a message, of which `refused` says how many batches the outbox had counted as refused before it.
    fn heard(&mut self, message: &v1::CollectorMessage, outbox: &Outbox, refused: u64) {
        match &message.body {
            Some(Said::Welcome(welcome)) => self.acknowledged = self.acknowledged.max(welcome.last_sequence),
            Some(Said::Ack(ack)) => self.acknowledged = self.acknowledged.max(ack.sequence),
            Some(Said::BatchRefused(of)) if outbox.totals().batches_refused > refused => {
                assert!(self.sent.contains_key(&of.sequence), "batch {} was never sent", of.sequence);
                self.refused.insert(of.sequence);
            }
            _ => {}
        }
    }

    /// Each batch waits, or was sent and is with the collector by its own word, or refused; and no window is told neither as one nor as lost.
    fn close(mut self, outbox: &Outbox) {
        let before = waiting(outbox);
        assert!(before.len() as u64 <= BATCHES_MAX, "{} wait", before.len());
        let gone = (1..=self.pushed).filter(|sequence| !before.contains_key(sequence));
        let taken: Vec<u64> = gone.filter(|sequence| !self.refused.contains(sequence)).collect();
        for sequence in &taken {
            let said = self.sent.contains_key(sequence) && *sequence <= self.acknowledged;
            assert!(
                said,
                "batch {sequence} is lost: a collector said to have those up to {}",
                self.acknowledged
            );
        }
        // What was refused last, or has no room now, is told as lost with the next one.
        self.push(outbox);
        let told = taken.iter().filter_map(|sequence| self.sent.get(sequence).copied());
        let told: u64 = told.chain(waiting(outbox).into_values()).map(|(windows, lost)| windows + lost).sum();
        assert_eq!(told, self.pushed * WINDOWS, "windows, told as such or as lost");
    }
}

/// What waits, as a new connection would be sent it.
fn waiting(outbox: &Outbox) -> BTreeMap<u64, (u64, u64)> {
    outbox.resume(0);
    let batch = |body| match body {
        Body::Batch(batch) => Some((batch.sequence, (batch.window_count.into(), batch.windows_lost))),
        _ => None,
    };
    std::iter::from_fn(|| outbox.next()).filter_map(batch).collect()
}

/// Lower bits: whether the collector proved itself, how many batches wait before the first word, and how many things an agent does between two.
fn stream(how: u8, mut messages: &[u8]) {
    static HANDLE: LazyLock<Handle> =
        LazyLock::new(|| Handle::new(BTreeSet::new()).expect("a descriptor of an event"));
    let rest = Rest(Steering::new(2, BTreeSet::new(), HANDLE.clone(), Arc::default()));
    let outbox = Outbox::new(BATCHES_MAX as usize);
    let connect = || Heard::new("https://fuzz:1", how & 1 != 0, &outbox, &rest);
    let mut books = Books::default();
    let mut now_unix_ns = BEGIN_UNIX_NS;
    let (mut heard, mut connected) = (connect(), false);
    (0..(how >> 1) & 7).for_each(|_| books.push(&outbox));
    while let Some(message) = next(&mut messages) {
        let refused = outbox.totals().batches_refused;
        // What the wire does not decode ends a connection.
        let taken = v1::CollectorMessage::decode(message).ok().is_some_and(|message| {
            let said = message.clone();
            let answer = if connected { heard.then(message, now_unix_ns) } else { heard.first(message) };
            books.heard(&said, &outbox, refused);
            answer.is_ok()
        });
        connected = taken;
        if !taken {
            heard = connect();
        }
        let _ = (heard.offset.get(), heard.offset.newest_reply());
        (0..(how >> 4) & 7).for_each(|_| books.work(&outbox));
        now_unix_ns = now_unix_ns.saturating_add(50_000_000);
    }
    books.close(&outbox);
}

/// A key that whoever reads this has, too (Ed25519, of sevens): certificates are held against it.
pub fn key() -> String {
    let body = "MC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
    let what = "PRIVATE KEY";
    format!("-----BEGIN {what}-----\n{body}\n-----END {what}-----\n")
}

/// What a collector gives: kept if it can be used, and else what was there is left.
fn enrolled(bytes: &[u8]) {
    let Ok(answer) = v1::Enrolled::decode(bytes) else { return };
    let folder = scratch::folder().join("identity");
    if !folder.is_dir() {
        identity::prepare(&folder).expect("a folder for what is tried");
    }
    let certificate = || std::fs::read(identity::files(&folder).cert).ok();
    let before = (Identity::load(&folder).ok(), certificate());
    match enrol::keep(&folder, ("https://fuzz:1", "fuzz"), &answer, &key(), None) {
        Ok(kept) => {
            assert!(kept.due_unix_s() < kept.expires_unix_s, "{kept:?}");
            assert!(tls::belong(&answer.certificate, &key()).is_ok());
            assert_eq!(Identity::load(&folder).ok(), Some(kept), "what is kept is read");
        }
        Err(wrong) => {
            assert!(!wrong.to_string().is_empty(), "whoever joins is told why");
            assert_eq!((Identity::load(&folder).ok(), certificate()), before);
        }
    }
}
