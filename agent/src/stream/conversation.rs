//! One connection's conversation: what this agent says next, and what it hears. Owns the order (a clock probe before any window of a time that
//! the collector does not know, then status, then what the outbox has) and the numbers of probes. Knows no network and reads no clock: each call
//! is told what our clock says.

use super::heard::{Control, Heard, Parting};
use super::outbox::Outbox;
use tailwater_proto::v1::{self, agent_message::Body};

/// What our clock says at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// ns since the epoch.
    pub unix_ns: u64,
    /// Epoch minus CLOCK_MONOTONIC, as the collector is to know it.
    pub said_epoch_offset_ns: i64,
}

/// The agent's side of one connection.
pub struct Conversation<'a> {
    outbox: &'a Outbox,
    control: &'a dyn Control,
    heard: Heard<'a>,
    probe_due: bool,
    status_due: bool,
    /// Of the newest probe.
    probe_id: u64,
    epoch_offset_ns: Option<i64>,
}

impl std::fmt::Debug for Conversation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").field("heard", &self.heard).finish_non_exhaustive()
    }
}

impl<'a> Conversation<'a> {
    /// Before the first word. `proven`: whoever listens at `url` proved who it is.
    pub fn new(url: &'a str, proven: bool, outbox: &'a Outbox, control: &'a dyn Control) -> Self {
        Self {
            outbox,
            control,
            heard: Heard::new(url, proven, outbox, control),
            // The first word after the welcome is a probe: the collector places our windows by it.
            probe_due: true,
            status_due: false,
            probe_id: 0,
            epoch_offset_ns: None,
        }
    }

    /// The collector's first word: a welcome, or the connection is over.
    pub fn welcome(&mut self, message: v1::CollectorMessage) -> Result<(), Parting> {
        self.heard.first(message)
    }

    /// Any word after the first, which came at this moment.
    pub fn hear(&mut self, message: v1::CollectorMessage, now: Now) -> Result<(), Parting> {
        let first = self.heard.offset.get().is_none();
        self.heard.then(message, now.unix_ns)?;
        // What the first reply says is told at once, not a second later.
        self.probe_due |= first && self.heard.offset.get().is_some();
        Ok(())
    }

    /// Looks whether our clock was set. No window of the new time goes out before a probe that tells: [`next`](Self::next) looks by itself, and
    /// whoever asks whether there is anything to say looks before that.
    pub fn look_at_clock(&mut self, said_epoch_offset_ns: i64) {
        let before = self.epoch_offset_ns.replace(said_epoch_offset_ns);
        if before.is_some_and(|before| before != said_epoch_offset_ns) {
            self.heard.offset.forget(self.probe_id);
            self.probe_due = true;
        }
    }

    /// It is time for a clock probe.
    pub fn probe_is_due(&mut self) {
        self.probe_due = true;
    }

    /// It is time for a status.
    pub fn status_is_due(&mut self) {
        self.status_due = true;
    }

    /// Whether there is something to say.
    pub fn has_next(&self) -> bool {
        self.probe_due || self.status_due || self.outbox.has_next()
    }

    /// What is said now. It is stamped here and not when it fell due, so that no queue of ours is in a round trip.
    pub fn next(&mut self, now: Now) -> Option<Body> {
        // It may have been set while this waited for room on the wire: a probe would carry the new epoch beside a reply of the old one.
        self.look_at_clock(now.said_epoch_offset_ns);
        if std::mem::take(&mut self.probe_due) {
            self.probe_id += 1;
            return Some(Body::ClockProbe(self.probe(now)));
        }
        if std::mem::take(&mut self.status_due) {
            return Some(Body::Status(self.status()));
        }
        let mut body = self.outbox.next()?;
        if let Body::Drop(drop) = &mut body {
            drop.sent_unix_ns = now.unix_ns;
        }
        Some(body)
    }

    /// Whether the collector took anything on this connection.
    pub fn served(&self) -> bool {
        self.heard.served
    }

    fn probe(&self, now: Now) -> v1::ClockProbe {
        let (reply_id, reply_received_unix_ns) = self.heard.offset.newest_reply();
        v1::ClockProbe {
            id: self.probe_id,
            reply_id,
            reply_received_unix_ns,
            epoch_offset_ns: now.said_epoch_offset_ns,
            agent_unix_ns: now.unix_ns,
        }
    }

    fn status(&self) -> v1::AgentStatus {
        let (clock_offset_ns, clock_error_ns) = self.heard.offset.get().unwrap_or_default();
        v1::AgentStatus { clock_offset_ns, clock_error_ns, ..self.control.status() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_proto::v1::collector_message::Body as Said;

    struct Rest;

    impl Control for Rest {
        fn status(&self) -> v1::AgentStatus {
            v1::AgentStatus::default()
        }
        fn configure(&self, _: &v1::Configuration) {}
    }

    const NOW: Now = Now { unix_ns: 2_000, said_epoch_offset_ns: 1_000 };

    fn says(body: Said) -> v1::CollectorMessage {
        v1::CollectorMessage { body: Some(body) }
    }

    /// A conversation that was welcomed, with one batch to tell.
    fn begun<'a>(outbox: &'a Outbox, rest: &'a Rest) -> Conversation<'a> {
        outbox.push(v1::WindowBatch { window_count: 2, ..v1::WindowBatch::default() }, 0);
        let mut conversation = Conversation::new("unix:///c", true, outbox, rest);
        let welcome = says(Said::Welcome(v1::Welcome { protocol: 1, ..v1::Welcome::default() }));
        conversation.welcome(welcome).unwrap();
        conversation.look_at_clock(NOW.said_epoch_offset_ns);
        conversation
    }

    fn all(conversation: &mut Conversation<'_>, now: Now) -> Vec<String> {
        let mut said = Vec::new();
        while conversation.has_next() {
            said.push(match conversation.next(now) {
                Some(Body::ClockProbe(p)) => format!("probe {} of {}", p.id, p.epoch_offset_ns),
                Some(Body::Status(_)) => "status".to_owned(),
                Some(Body::Batch(b)) => format!("batch {}", b.sequence),
                Some(Body::Drop(d)) => format!("drop at {}", d.sent_unix_ns),
                other => format!("{other:?}"),
            });
        }
        said
    }

    #[test]
    fn a_probe_goes_before_any_window_and_again_before_any_of_a_clock_that_was_set() {
        let (outbox, rest) = (Outbox::new(10), Rest);
        let mut conversation = begun(&outbox, &rest);
        conversation.status_is_due();
        assert_eq!(all(&mut conversation, NOW), ["probe 1 of 1000", "status", "batch 1"]);
        outbox.push(v1::WindowBatch::default(), 0);
        outbox.drops([v1::DropEvent::default()].into_iter());
        let set = Now { unix_ns: 7_000, said_epoch_offset_ns: 6_000 };
        conversation.look_at_clock(set.said_epoch_offset_ns);
        assert_eq!(all(&mut conversation, set), ["probe 2 of 6000", "drop at 7000", "batch 2"]);
        conversation.look_at_clock(set.said_epoch_offset_ns);
        assert!(!conversation.has_next(), "it was not set again");
    }

    #[test]
    fn a_clock_that_is_set_while_a_probe_waits_for_the_wire_takes_the_reply_of_its_old_time_out_of_it() {
        let (outbox, rest) = (Outbox::new(10), Rest);
        let mut conversation = begun(&outbox, &rest);
        all(&mut conversation, NOW);
        let reply = v1::ClockReply {
            id: 1,
            agent_unix_ns: 2_000,
            collector_receive_unix_ns: 2_100,
            collector_send_unix_ns: 2_100,
        };
        conversation.hear(says(Said::ClockReply(reply)), Now { unix_ns: 2_200, ..NOW }).unwrap();
        assert!(conversation.has_next(), "what it says is to be told");
        let set = Now { unix_ns: 7_000, said_epoch_offset_ns: 6_000 };
        let Some(Body::ClockProbe(probe)) = conversation.next(set) else { panic!("no probe") };
        assert_eq!((probe.epoch_offset_ns, probe.reply_id, probe.reply_received_unix_ns), (6_000, 0, 0));
        assert!(!conversation.has_next(), "it is told once");
    }

    #[test]
    fn what_the_first_reply_says_is_told_at_once_and_what_later_ones_say_is_not() {
        let (outbox, rest) = (Outbox::new(10), Rest);
        let mut conversation = begun(&outbox, &rest);
        all(&mut conversation, NOW);
        let reply = |id| {
            says(Said::ClockReply(v1::ClockReply {
                id,
                agent_unix_ns: 2_000,
                collector_receive_unix_ns: 2_100,
                collector_send_unix_ns: 2_100,
            }))
        };
        let later = Now { unix_ns: 2_200, ..NOW };
        conversation.hear(reply(1), later).unwrap();
        assert_eq!(all(&mut conversation, later), ["probe 2 of 1000"]);
        conversation.hear(reply(2), later).unwrap();
        assert!(!conversation.has_next());
        assert!(!conversation.served(), "a clock's reply takes nothing");
        conversation.hear(says(Said::Ack(v1::Ack { sequence: 1 })), later).unwrap();
        assert!(conversation.served());
    }
}
