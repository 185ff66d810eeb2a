//! Answers that several readers ask for in the same moment: worked out by the first, taken by the others. Owns how old one may be. Knows not
//! what is asked; without this, twenty open pages cost twenty times what one does.

use crate::clock::Clock;
use axum::body::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// An answer that is older than this is worked out anew: what a page that asks once a second cannot tell from a new one.
const FRESH: Duration = Duration::from_millis(250);
/// Different questions whose answers are kept.
const QUESTIONS_MAX: usize = 8;

/// Answers by question; a question is a number.
#[derive(Debug, Clone, Default)]
pub(super) struct Fresh(Arc<Mutex<VecDeque<(u64, Instant, Bytes)>>>);

impl Fresh {
    /// The answer to a question: one that is fresh, or what `work` gives. Whoever comes meanwhile waits for it. What fails is not kept.
    pub(super) async fn answer<E>(
        &self,
        clock: Clock,
        question: u64,
        work: impl Future<Output = Result<Bytes, E>>,
    ) -> Result<Bytes, E> {
        let mut kept = self.0.lock().await;
        let now = clock.monotonic();
        kept.retain(|(_, made, _)| now < *made + FRESH);
        if let Some((_, _, answer)) = kept.iter().find(|(of, ..)| *of == question) {
            return Ok(answer.clone());
        }
        let answer = work.await?;
        if kept.len() >= QUESTIONS_MAX {
            kept.pop_front();
        }
        // From when it was asked for: what it says is no newer.
        kept.push_back((question, now, answer.clone()));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn many_who_ask_at_once_cost_one_answer_and_failures_are_asked_again() {
        let (fresh, clock, worked) = (Fresh::default(), Clock::default(), Arc::new(AtomicU32::new(0)));
        let ask = |question: u64, fails: bool| {
            let (fresh, clock, worked) = (fresh.clone(), clock, Arc::clone(&worked));
            async move {
                let work = async {
                    tokio::task::yield_now().await;
                    let n = worked.fetch_add(1, Ordering::Relaxed);
                    if fails { Err("no") } else { Ok(Bytes::from(n.to_string())) }
                };
                fresh.answer(clock, question, work).await
            }
        };
        assert_eq!(ask(1, true).await, Err("no"));
        let asked: Vec<_> = (0..50).map(|_| tokio::spawn(ask(1, false))).collect();
        for one in asked {
            assert_eq!(one.await.unwrap().unwrap(), "1");
        }
        assert_eq!(ask(2, false).await.unwrap(), "2", "another question");
        for question in 3..3 + 2 * QUESTIONS_MAX as u64 {
            ask(question, false).await.unwrap();
        }
        assert!(fresh.0.lock().await.len() <= QUESTIONS_MAX);
        tokio::time::sleep(FRESH).await;
        let before = worked.load(Ordering::Relaxed);
        assert_eq!(ask(1, false).await.unwrap(), before.to_string(), "an old one is worked out anew");
    }
}
