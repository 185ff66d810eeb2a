//! Requests that wait for one receiver: bounded by bytes, the oldest goes first, with a counter. Knows no network.

use super::receiver::Receiver;
use crate::lock::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// A request as it is sent.
#[derive(Debug, Clone)]
pub struct Request {
    /// Remote write: a snappy block. OTLP: a message.
    pub body: tonic::codegen::Bytes,
    /// Samples, data points or log records in it.
    pub samples: u64,
}

/// See above.
#[derive(Debug)]
pub struct Queue {
    waiting: Mutex<VecDeque<Request>>,
    wake: Notify,
    bytes_max: usize,
    stats: Arc<Receiver>,
}

impl Queue {
    /// At most `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: usize, stats: Arc<Receiver>) -> Self {
        stats.queue_bytes_max.set(bytes_max as u64);
        Self { waiting: Mutex::default(), wake: Notify::new(), bytes_max, stats }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Request>> {
        lock(&self.waiting)
    }

    fn told(&self, waiting: &VecDeque<Request>) -> usize {
        let bytes = waiting.iter().map(|r| r.body.len()).sum();
        self.stats.queue_bytes.set(bytes as u64);
        bytes
    }

    /// Adds a request.
    pub fn push(&self, request: Request) {
        let mut waiting = self.lock();
        waiting.push_back(request);
        while self.told(&waiting) > self.bytes_max && waiting.len() > 1 {
            let Some(oldest) = waiting.pop_front() else { break };
            self.stats.samples_evicted.add(oldest.samples);
        }
        drop(waiting);
        self.wake.notify_one();
    }

    /// The oldest, when there is one.
    pub async fn next(&self) -> Request {
        loop {
            if let Some(request) = self.take() {
                return request;
            }
            self.wake.notified().await;
        }
    }

    /// The oldest, if there is one.
    pub fn take(&self) -> Option<Request> {
        let mut waiting = self.lock();
        let oldest = waiting.pop_front()?;
        self.told(&waiting);
        Some(oldest)
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_gives_up_the_oldest_and_counts_its_samples() {
        let stats = Arc::new(Receiver::default());
        let queue = Queue::new(100, Arc::clone(&stats));
        for n in 0..5_u8 {
            queue.push(Request { body: vec![n; 40].into(), samples: 10 + u64::from(n) });
        }
        assert_eq!(stats.samples_evicted.get(), 10 + 11 + 12);
        assert_eq!(stats.queue_bytes.get(), 80);
        assert_eq!(queue.next().await.body[0], 3, "the order of what is left");
        assert_eq!((queue.next().await.samples, queue.is_empty(), stats.queue_bytes.get()), (14, true, 0));
    }
}
