//! How a program of the laboratory fails: one sentence, what to do about it, where the logs are. Never a backtrace, never what a value
//! looks like inside. Knows no program.

use crate::console::progress;
use anyhow::{Error, Result};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::path::{Path, PathBuf};

/// Begins the remedy in the text of an error: what follows it in that text is shown on a line of its own.
pub const REMEDY: &str = "\n  remedy: ";
/// Of one line: the rest is in the log.
const LINE_CHARS: usize = 400;

/// Runs the work of a program and tells how it failed. Returns its exit code.
pub fn run(program: &'static str, logs: Option<&Path>, work: impl FnOnce() -> Result<()>) -> u8 {
    let logs = logs.map(Path::to_owned);
    one_sentence_for_panics(program, logs.clone());
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            progress::complain(&told(program, &error, logs.as_deref()));
            1
        }
        // The hook told it.
        Err(_) => 1,
    }
}

/// The text of a failure.
fn told(program: &str, error: &Error, logs: Option<&Path>) -> String {
    let mut text = format!("{program}: {}", sentence(error));
    for remedy in remedies(error) {
        let _ = write!(text, "{REMEDY}{remedy}");
    }
    append_logs(&mut text, logs);
    text
}

fn append_logs(text: &mut String, logs: Option<&Path>) {
    // Before the first of them is written there is nothing to look at.
    if let Some(logs) = logs.filter(|logs| logs.exists()) {
        let _ = write!(text, "\n  logs:   {}", logs.display());
    }
}

/// An error and its causes as one sentence on one line, without remedies. What a cause repeats is said once.
#[must_use]
pub fn sentence(error: &Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for part in error.chain() {
        let part = part.to_string();
        let part = one_line(part.split(REMEDY).next().unwrap_or_default());
        if !part.is_empty() && !said.iter().any(|before| before.contains(&part)) {
            said.push(part);
        }
    }
    said.join(": ")
}

fn remedies(error: &Error) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for part in error.chain() {
        for remedy in part.to_string().split(REMEDY).skip(1).map(one_line) {
            if !found.contains(&remedy) {
                found.push(remedy);
            }
        }
    }
    found
}

/// Several lines as one: what another program printed may be long, its first line and its last two say what it was.
#[must_use]
pub fn one_line(text: &str) -> String {
    let short = |line: &str| match line.char_indices().nth(LINE_CHARS) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(short).collect();
    match &lines[..] {
        [first, middle @ .., before, last] if !middle.is_empty() => format!("{first}; …; {before}; {last}"),
        all => all.join("; "),
    }
}

/// Replaces what Rust prints for a panic, with or without RUST_BACKTRACE.
fn one_sentence_for_panics(program: &'static str, logs: Option<PathBuf>) {
    std::panic::set_hook(Box::new(move |info| {
        progress::complain(&told_panic(program, info, logs.as_deref()))
    }));
}

fn told_panic(program: &str, info: &PanicHookInfo<'_>, logs: Option<&Path>) -> String {
    let message = info.payload_as_str().unwrap_or("no message");
    let place =
        info.location().map(|place| format!(" ({}:{})", place.file(), place.line())).unwrap_or_default();
    let mut text = format!("{program}: an error of the program itself: {}{place}", one_line(message));
    let _ = write!(text, "{REMEDY}report it, with this line and the logs");
    append_logs(&mut text, logs);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn an_error_is_one_sentence_then_what_to_do_then_the_logs() {
        let error = Err::<(), _>(std::io::Error::from_raw_os_error(libc::ENOSPC))
            .context("write /x/y\n  remedy: make room on /x")
            .context("start the collector")
            .unwrap_err();
        let folder = tempfile::tempdir().unwrap();
        let wanted = format!(
            "demo: start the collector: write /x/y: No space left on device (os error 28)\n  remedy: make room on /x\n  logs:   {}",
            folder.path().display()
        );
        assert_eq!(told("demo", &error, Some(folder.path())), wanted);
        assert!(!told("demo", &error, Some(Path::new("/not/there"))).contains("logs:"));
    }

    #[test]
    fn what_another_program_printed_is_cut_to_what_matters_and_said_once() {
        let printed = "apache2: exit status: 1\n\none\ntwo\n  three\nAH00526: Syntax error on line 3\n";
        let error = anyhow!(printed).context("start the front");
        assert_eq!(
            sentence(&error),
            "start the front: apache2: exit status: 1; …; three; AH00526: Syntax error on line 3"
        );
        let twice = anyhow!("no such file").context("read x: no such file");
        assert_eq!(sentence(&twice), "read x: no such file");
        assert_eq!(one_line("a\nb\nc"), "a; b; c");
        assert!(one_line(&"x".repeat(2000)).chars().count() < 420);
    }

    #[test]
    fn the_exit_code_says_whether_it_failed() {
        assert_eq!(run("it", None, || Ok(())), 0);
        assert_eq!(run("it", None, || Err(anyhow!("no"))), 1);
        assert_eq!(run("it", None, || panic!("a bug")), 1);
        let _ = std::panic::take_hook();
    }
}
