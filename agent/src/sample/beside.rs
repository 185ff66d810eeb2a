//! A thread beside the one that drains windows, for what takes longer to read than a window may. Owns that it begins with the first question, that one
//! question at most waits while it works, and what it found until a window takes it; knows no file.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was found and waits for a window.
#[derive(Debug)]
pub(super) struct Found<F>(Arc<Mutex<Vec<F>>>);

impl<F> Found<F> {
    fn all(&self) -> MutexGuard<'_, Vec<F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to what waits, up to `most` in all.
    pub(super) fn keep(&self, new: impl IntoIterator<Item = F>, most: usize) {
        let mut all = self.all();
        let room = most.saturating_sub(all.len());
        all.extend(new.into_iter().take(room));
    }
}

/// The thread, and what passes between it and the one that drains windows.
#[derive(Debug)]
pub(super) struct Beside<Q, F> {
    /// `None`: it has not begun. `None` inside: the system has no room for a thread, and nothing is told.
    questions: Option<Option<SyncSender<Q>>>,
    found: Found<F>,
}

impl<Q, F> Default for Beside<Q, F> {
    fn default() -> Self {
        Self { questions: None, found: Found(Arc::default()) }
    }
}

impl<Q: Send + 'static, F: Send + 'static> Beside<Q, F> {
    /// Takes out what was found.
    pub(super) fn take(&self) -> Vec<F> {
        std::mem::take(&mut *self.found.all())
    }

    /// Asks, unless it still works at the questions before; whether it did. With the first question a thread of that name begins with `answer`; where there is no room
    /// for one, it is said what is `unseen`.
    pub(super) fn ask(
        &mut self,
        question: Q,
        name: &str,
        unseen: &str,
        answer: impl FnOnce(Receiver<Q>, Found<F>) + Send + 'static,
    ) -> bool {
        let found = &self.found;
        let questions = self.questions.get_or_insert_with(|| {
            let (questions, asked) = sync_channel(1);
            let found = Found(Arc::clone(&found.0));
            let thread = std::thread::Builder::new().name(name.into());
            match thread.spawn(move || answer(asked, found)) {
                Ok(_) => Some(questions),
                Err(error) => {
                    tracing::warn!("{unseen} is not seen: no thread: {error}");
                    None
                }
            }
        });
        questions.as_ref().is_some_and(|questions| questions.try_send(question).is_ok())
    }
}
