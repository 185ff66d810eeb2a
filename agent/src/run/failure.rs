//! How the agent's command tells that it failed: one sentence, without a backtrace. Owns the text; the exit code is `main`'s.

use crate::fence::is_fenced;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;

/// An error and its causes on one line. What a cause repeats is said once: some errors say their cause themselves.
#[must_use]
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut said = String::new();
    let mut part = Some(error);
    while let Some(error) = part {
        let text = error.to_string();
        let text = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        if !said.contains(&text) {
            let _ = write!(said, "{}{text}", if said.is_empty() { "" } else { ": " });
        }
        part = error.source();
    }
    said
}

/// Replaces what Rust prints for a panic, with or without RUST_BACKTRACE: an operator can do nothing with it, and a journal keeps it in
/// twenty entries.
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
            "tailwater-agent: an error of the program itself: {message} ({place}); report it with the lines above"
        );
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunError;

    #[test]
    fn causes_are_told_once_and_on_one_line() {
        let source = std::io::Error::other("no more\n files");
        let error = RunError::Start { what: "eventfd", source };
        assert_eq!(sentence(&error), "eventfd: no more\n files".replace('\n', ";").as_str());
        let error = anyhow::Error::new(std::io::Error::other("disk full")).context("write the configuration");
        assert_eq!(sentence(&*error), "write the configuration: disk full");
    }
}
