//! Answers that several readers ask for in the same moment: worked out by one, taken by the others. Owns how old one may be. Knows not
//! what is asked; without this, twenty open pages cost twenty times what one does, and each waits for what takes long.

use crate::clock::Clock;
use crate::lock::lock;
use axum::body::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An answer that is older than this is worked out anew: what a page that asks once a second cannot tell from a new one.
const FRESH: Duration = Duration::from_millis(250);
/// One that took long is fresh for so many times as long: working answers out takes no more than a fifth of one CPU.
const REST: u32 = 4;
/// But for no longer than this, at which a page asks again; and while one is worked out, those that come meanwhile take one of this age.
const OLD: Duration = Duration::from_secs(1);
/// One that took this long is worked out beside whoever asks, and nobody waits for it: what they get is the one before, …
const SLOW: Duration = Duration::from_millis(100);
/// … while that is no older than this. A reader of the newest second learns of it by the moment that the answer bears.
const STALE: Duration = Duration::from_secs(2);
/// Different questions whose answers are kept.
const QUESTIONS_MAX: usize = 8;

/// In the order in which they came.
type Questions = VecDeque<(u64, Arc<Question>)>;

/// Answers by question; a question is a number.
#[derive(Debug, Clone, Default)]
pub(super) struct Fresh(Arc<std::sync::Mutex<Questions>>);

#[derive(Debug, Default)]
struct Question {
    /// Held by whoever works its answer out.
    working: Arc<tokio::sync::Mutex<()>>,
    kept: std::sync::Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    /// When it was asked for: what it says is no newer.
    asked: Instant,
    took: Duration,
    answer: Bytes,
}

impl Kept {
    /// How old it may be for whoever does not wait for the next one; `quick`: one that takes no time to speak of.
    fn meanwhile(&self, quick: Duration) -> Duration {
        if self.took >= SLOW { STALE } else { quick }
    }
}

impl Question {
    /// The answer, if it is no older than `age` says.
    fn kept(&self, now: Instant, age: impl FnOnce(&Kept) -> Duration) -> Option<Bytes> {
        let kept = lock(&self.kept);
        kept.as_ref().filter(|kept| now < kept.asked + age(kept)).map(|kept| kept.answer.clone())
    }

    fn fresh(&self, now: Instant) -> Option<Bytes> {
        self.kept(now, |kept| (kept.took * REST).clamp(FRESH, OLD))
    }
}

impl Fresh {
    /// The answer to a question: one that is fresh, or what `work` gives. Whoever comes meanwhile takes the one before, or waits where that
    /// is old; and where the last one took long, so does whoever has it worked out. What fails is not kept.
    pub(super) async fn answer<E: Send + 'static>(
        &self,
        clock: Clock,
        question: u64,
        work: impl Future<Output = Result<Bytes, E>> + Send + 'static,
    ) -> Result<Bytes, E> {
        let of = self.question(question);
        if let Some(answer) = of.fresh(clock.monotonic()) {
            return Ok(answer);
        }
        let working = match Arc::clone(&of.working).try_lock_owned() {
            Ok(working) => working,
            Err(_) => {
                if let Some(answer) = of.kept(clock.monotonic(), |kept| kept.meanwhile(OLD)) {
                    return Ok(answer);
                }
                Arc::clone(&of.working).lock_owned().await
            }
        };
        let asked = clock.monotonic();
        if let Some(answer) = of.fresh(asked) {
            return Ok(answer);
        }
        let before = of.kept(asked, |kept| kept.meanwhile(Duration::ZERO));
        let worked_out = async move {
            let _working = working;
            let answer = work.await?;
            let took = clock.monotonic().saturating_duration_since(asked);
            *lock(&of.kept) = Some(Kept { asked, took, answer: answer.clone() });
            Ok(answer)
        };
        match before {
            // Where it fails, whoever asks when the one before is too old waits for the next try, and hears of it.
            Some(before) => {
                tokio::spawn(worked_out);
                Ok(before)
            }
            None => worked_out.await,
        }
    }

    fn question(&self, number: u64) -> Arc<Question> {
        let mut kept = lock(&self.0);
        if let Some((_, of)) = kept.iter().find(|(of, _)| *of == number) {
            return Arc::clone(of);
        }
        if kept.len() >= QUESTIONS_MAX {
            kept.pop_front();
        }
        let of = Arc::<Question>::default();
        kept.push_back((number, Arc::clone(&of)));
        of
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
                let work = async move {
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
        assert!(lock(&fresh.0).len() <= QUESTIONS_MAX);
        let before = worked.load(Ordering::Relaxed);
        keep_old(&fresh, clock, FRESH, Duration::ZERO);
        assert_eq!(ask(1, false).await.unwrap(), before.to_string(), "an old one is worked out anew");
    }

    #[tokio::test]
    async fn while_an_answer_is_worked_out_anew_others_take_the_one_before() {
        let (fresh, clock) = (Fresh::default(), Clock::default());
        let quick = |said: &'static str| async move { Ok::<_, ()>(Bytes::from_static(said.as_bytes())) };
        keep_old(&fresh, clock, FRESH, Duration::ZERO);
        let (begun, finish) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let slow = tokio::spawn({
            let (fresh, begun, finish) = (fresh.clone(), Arc::clone(&begun), Arc::clone(&finish));
            async move {
                let work = async move {
                    begun.notify_one();
                    finish.notified().await;
                    Ok::<_, ()>(Bytes::from_static(b"new"))
                };
                fresh.answer(clock, 1, work).await
            }
        });
        begun.notified().await;
        // However long it took to come to here: one that is too old for anybody would be waited for.
        keep_old(&fresh, clock, FRESH, Duration::ZERO);
        assert_eq!(fresh.answer(clock, 1, quick("nobody's")).await.unwrap(), "old");
        finish.notify_one();
        assert_eq!(slow.await.unwrap().unwrap(), "new");
        assert_eq!(lock(&fresh.question(1).kept).as_ref().unwrap().answer, "new");
    }

    /// An answer to question 1 that was asked for so long ago, and took so long.
    fn keep_old(fresh: &Fresh, clock: Clock, age: Duration, took: Duration) {
        let (asked, answer) = (clock.monotonic() - age, Bytes::from_static(b"old"));
        *lock(&fresh.question(1).kept) = Some(Kept { asked, took, answer });
    }

    #[tokio::test]
    async fn nobody_waits_for_what_takes_long_while_the_one_before_will_do() {
        let (fresh, clock) = (Fresh::default(), Clock::default());
        let kept = |age, took| keep_old(&fresh, clock, age, took);
        let ask = || fresh.answer(clock, 1, async { Ok::<_, ()>(Bytes::from_static(b"new")) });
        kept(OLD, SLOW);
        assert_eq!(ask().await.unwrap(), "old", "it is worked out beside whoever asks");
        // Until that is done it is the old one that is given.
        while ask().await.unwrap() != "new" {
            tokio::task::yield_now().await;
        }
        kept(STALE, SLOW);
        assert_eq!(ask().await.unwrap(), "new", "too old for anybody");
        kept(OLD, SLOW / 2);
        assert_eq!(ask().await.unwrap(), "new", "what is quick is waited for");
    }

    #[tokio::test]
    async fn what_fails_beside_whoever_asks_is_tried_again_and_heard_of_when_the_one_before_is_too_old() {
        let (fresh, clock) = (Fresh::default(), Clock::default());
        let tried = Arc::new(AtomicU32::new(0));
        let ask = || {
            let tried = Arc::clone(&tried);
            let work = async move {
                tried.fetch_add(1, Ordering::Relaxed);
                Err("no")
            };
            fresh.answer(clock, 1, work)
        };
        keep_old(&fresh, clock, OLD, SLOW);
        while tried.load(Ordering::Relaxed) < 2 {
            assert_eq!(ask().await.unwrap(), "old");
            tokio::task::yield_now().await;
        }
        keep_old(&fresh, clock, STALE, SLOW);
        assert_eq!(ask().await, Err("no"));
    }
}
