//! A worker at work: a task that hands it what is told, sends what it says, and wakes it. Owns sockets' tries and timers; decides nothing.

use super::{Input, Outgoing, Worker};
use crate::alert::outbox::WRITTEN_WITHIN;
use crate::alert::receiver::Receiver;
use crate::alert::stats::Stats;
use crate::clock::Clock;
use crate::send::http::{DeliveryError, Written};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};

impl Worker {
    /// Until the inbox is closed and what could be sent at once is. What is left is in the outbox.
    pub async fn run(mut self, receiver: Receiver, mut inbox: mpsc::Receiver<Input>) {
        let receiver = Arc::new(receiver);
        let (mut sending, mut resending) = (JoinSet::new(), JoinSet::new());
        let mut numbers: HashMap<Id, u64> = HashMap::new();
        let mut open = true;
        loop {
            for outgoing in self.outgoing() {
                let number = outgoing.number;
                let task = send(outgoing, Arc::clone(&receiver), self.clock, Arc::clone(&self.all));
                numbers.insert(sending.spawn(task).id(), number);
            }
            if let Some(messages) = self.again() {
                let (receiver, clock) = (Arc::clone(&receiver), self.clock);
                resending.spawn(async move { receiver.deliver_again(&messages, clock.unix_ns()).await });
            }
            // What could go now has just gone; the rest is for after a restart.
            if !open && sending.is_empty() {
                return;
            }
            let wake = self.wake().filter(|_| open);
            let pause = wake.map(|at| at.saturating_duration_since(self.clock.monotonic()));
            tokio::select! {
                input = inbox.recv(), if open => match input {
                    Some(input) => self.input(input),
                    None => open = false,
                },
                Some(ended) = sending.join_next_with_id(), if !sending.is_empty() => {
                    let (id, outcome) = match ended {
                        Ok((id, outcome)) => (id, outcome),
                        Err(e) => (e.id(), Err(DeliveryError::later(format!("a bug: {e}")))),
                    };
                    if let Some(number) = numbers.remove(&id) {
                        self.ended(number, outcome, open);
                    }
                },
                Some(ended) = resending.join_next(), if !resending.is_empty() => {
                    self.resent(ended.unwrap_or_else(|e| Err(DeliveryError::later(format!("a bug: {e}")))));
                },
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => self.timers(),
            }
        }
    }
}

async fn send(
    outgoing: Outgoing,
    receiver: Arc<Receiver>,
    clock: Clock,
    all: Arc<Stats>,
) -> Result<(), DeliveryError> {
    if let Some(outbox_has_it) = outgoing.written {
        // Later is no error: a disk that stalls delays no alert further.
        let _ = tokio::time::timeout(WRITTEN_WITHIN, outbox_has_it.cancelled()).await;
    }
    let (begun, written) = (clock.unix_ns(), Written::default());
    let outcome = receiver.deliver(&outgoing.message, begun, &written).await;
    if let (Ok(()), Some(moments)) = (&outcome, outgoing.early) {
        all.latency.told(&moments, begun, &written, clock.unix_ns());
    }
    outcome
}
