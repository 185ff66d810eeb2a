//! How the command tells that it failed: one sentence, then what to do; never a backtrace. Owns the text, and what counts as an error of the
//! program; the exit code is `main`'s.

use std::cell::Cell;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Begins the remedy in the text of an error.
const REMEDY: &str = "\n  remedy: ";

/// An error and its causes as one sentence, the remedies of all of them after it. What a cause repeats is said once: some errors say
/// their cause themselves.
#[must_use]
pub fn told(error: &(dyn Error + 'static)) -> String {
    let (mut said, mut remedies) = (String::new(), String::new());
    let mut part = Some(error);
    while let Some(error) = part {
        let text = error.to_string();
        // A cause of the text before: that text has its remedy in the middle then, and the cause behind it.
        let (what, remedy) = text.split_once(REMEDY).unwrap_or((&text, ""));
        let what = what.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        if !said.contains(&what) {
            let _ = write!(said, "{}{what}", if said.is_empty() { "" } else { ": " });
        }
        if !remedy.is_empty() && !remedies.contains(remedy) {
            let _ = write!(remedies, "{REMEDY}{remedy}");
        }
        part = error.source();
    }
    said + &remedies
}

thread_local! {
    static FENCED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in [`fenced`]: what a panic hook asks.
#[must_use]
pub fn is_fenced() -> bool {
    FENCED.get()
}

/// Lets somebody else's code work on bytes that nobody vouches for. Where it panics upon them its message is the answer: the bytes are
/// wrong, and not this program. `work` must leave nothing half done behind that is used afterwards.
///
/// # Errors
/// What it panicked with.
pub fn fenced<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = FENCED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    FENCED.set(before);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
    })
}

/// Replaces what Rust prints for a panic, with or without RUST_BACKTRACE. One behind a fence is told by whoever made the fence.
pub fn one_sentence_for_panics() {
    std::panic::set_hook(Box::new(|info| {
        if is_fenced() {
            return;
        }
        let message = info.payload_as_str().unwrap_or("no message").lines().collect::<Vec<_>>().join("; ");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        // Nobody may be there to read it.
        let _ = writeln!(
            std::io::stderr(),
            "tailwater: an error of the program itself: {message} ({place}){REMEDY}report it with the lines above"
        );
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_behind_a_fence_is_an_answer() {
        assert_eq!(fenced(|| 7), Ok(7));
        assert_eq!(fenced(|| -> u8 { panic!("byte {}", 9) }), Err("byte 9".to_owned()));
        assert_eq!(fenced(|| fenced(is_fenced)), Ok(Ok(true)));
        assert!(!is_fenced());
    }

    #[test]
    fn the_cause_comes_before_the_remedy_and_once() {
        let taken = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        let error =
            anyhow::Error::new(taken).context("listen on 127.0.0.1:1 for http\n  remedy: choose another");
        assert_eq!(told(&*error), "listen on 127.0.0.1:1 for http: address in use\n  remedy: choose another");
        let error =
            anyhow::anyhow!("disk full").context("write x: disk full").context("record\n  remedy: make room");
        assert_eq!(told(&*error), "record: write x: disk full\n  remedy: make room");
        assert_eq!(told(&*anyhow::anyhow!("a\n  b")), "a; b");
    }
}
