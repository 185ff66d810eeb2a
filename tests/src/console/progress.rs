//! What a program is doing while a person waits: on a terminal one living line, in a log plain lines. Programs turn it on; in tests it
//! says nothing. Knows nothing of what is done.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Steps that take less are not worth a line.
const WORTH_A_LINE: Duration = Duration::from_secs(2);
/// Between two pictures of the living line.
const PAINTED_EVERY: Duration = Duration::from_millis(250);
/// Between two lines of a log about one step.
const LINE_EVERY: Duration = Duration::from_secs(15);

#[derive(Debug)]
struct Running {
    id: u64,
    what: String,
    usually: Duration,
    begun: Instant,
    told: Option<Instant>,
}

#[derive(Debug, Default)]
struct Screen {
    living: bool,
    painted: bool,
    steps: Vec<Running>,
    next: u64,
}

static SCREEN: OnceLock<Mutex<Screen>> = OnceLock::new();

/// Turns it on: a living line if standard output is a terminal. Starts a thread, so not before a fork.
pub fn show() {
    let living =
        std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    if SCREEN.set(Mutex::new(Screen { living, ..Screen::default() })).is_ok() {
        // Without the thread a step is told at its begin and its end only.
        let _ = std::thread::Builder::new().name("progress".into()).spawn(|| {
            loop {
                std::thread::sleep(PAINTED_EVERY);
                if let Some(mut screen) = screen() {
                    screen.tick();
                }
            }
        });
    }
}

fn screen() -> Option<MutexGuard<'static, Screen>> {
    Some(SCREEN.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Prints lines that stay. A reader that went away is no error.
pub fn say(text: &str) {
    let mut held = screen();
    if let Some(screen) = &mut held {
        screen.clear();
    }
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints a headline: bold on a terminal.
pub fn title(text: &str) {
    let living = screen().is_some_and(|screen| screen.living);
    say(&if living { format!("\n\x1b[1m{text}\x1b[0m") } else { format!("\n{text}") });
}

/// Prints lines to standard error, from wherever, also from a panic.
pub fn complain(text: &str) {
    let mut held = SCREEN.get().and_then(|screen| match screen.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        // This very thread may hold it.
        Err(TryLockError::WouldBlock) => None,
    });
    if let Some(screen) = &mut held {
        screen.clear();
    }
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Does one step, and tells of it: what, how long it usually takes, how long it took.
pub fn step<T, E>(what: &str, usually: Duration, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let step = Step::begin(what, usually);
    let result = work();
    step.end(result.is_ok());
    result
}

/// A step under way. Dropped without [`Step::end`] it is over and nothing more is said.
#[derive(Debug)]
struct Step(Option<u64>);

impl Step {
    fn begin(what: &str, usually: Duration) -> Self {
        Self(screen().map(|mut screen| {
            screen.next += 1;
            let id = screen.next;
            let running = Running { id, what: what.to_owned(), usually, begun: Instant::now(), told: None };
            screen.steps.push(running);
            screen.tick();
            id
        }))
    }

    fn end(mut self, well: bool) {
        if let (Some(id), Some(mut screen)) = (self.0.take(), screen()) {
            screen.end(id, well);
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let (Some(id), Some(mut screen)) = (self.0.take(), screen()) {
            screen.end(id, false);
        }
    }
}

impl Screen {
    fn clear(&mut self) {
        if std::mem::take(&mut self.painted) {
            let _ = write!(std::io::stdout(), "\r\x1b[K");
            let _ = std::io::stdout().flush();
        }
    }

    /// Tells of the innermost step, if it is time to.
    fn tick(&mut self) {
        let living = self.living;
        let Some(running) = self.steps.last_mut() else { return };
        if living {
            let line = running.living(terminal_columns());
            let _ = write!(std::io::stdout(), "\r{line}\x1b[K");
            let _ = std::io::stdout().flush();
            self.painted = true;
        } else if running.is_due() {
            running.told = Some(Instant::now());
            let _ = writeln!(std::io::stdout(), "{}", running.line());
        }
    }

    fn end(&mut self, id: u64, well: bool) {
        self.clear();
        let Some(at) = self.steps.iter().position(|running| running.id == id) else { return };
        let running = self.steps.remove(at);
        let took = running.begun.elapsed();
        if well && (took >= WORTH_A_LINE || running.told.is_some()) {
            let _ = writeln!(std::io::stdout(), "  {}: {}", running.what, seconds(took));
        }
    }
}

impl Running {
    fn living(&self, columns: usize) -> String {
        let line = format!(
            "  {} … {} (usually {})",
            self.what,
            seconds(self.begun.elapsed()),
            seconds(self.usually)
        );
        line.chars().take(columns.saturating_sub(1)).collect()
    }

    /// A long step is announced at once, a short one only if it takes long.
    fn is_due(&self) -> bool {
        match self.told {
            Some(told) => told.elapsed() >= LINE_EVERY,
            None => self.usually > WORTH_A_LINE || self.begun.elapsed() >= WORTH_A_LINE,
        }
    }

    fn line(&self) -> String {
        let usually = seconds(self.usually);
        match self.begun.elapsed() {
            so_far if so_far < WORTH_A_LINE => format!("  {} … (usually {usually})", self.what),
            so_far => format!("  {} … {} so far (usually {usually})", self.what, seconds(so_far)),
        }
    }
}

/// `0.4 s`, `12 s`, `3 min 5 s`.
#[must_use]
pub fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        s @ 10..120 => format!("{s} s"),
        s => format!("{} min {} s", s / 60, s % 60),
    }
}

fn terminal_columns() -> usize {
    // SAFETY: an all-zero struct is a valid one; the call writes no more than it.
    let columns = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) == 0 { size.ws_col } else { 0 }
    };
    if columns == 0 { 80 } else { usize::from(columns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_what_is_done_how_long_it_usually_takes_and_how_long_it_took_so_far() {
        let began = |ago| Running {
            id: 1,
            what: "MariaDB starts".to_owned(),
            usually: Duration::from_secs(3),
            begun: Instant::now() - ago,
            told: None,
        };
        assert_eq!(began(Duration::ZERO).line(), "  MariaDB starts … (usually 3.0 s)");
        assert_eq!(began(Duration::from_secs(17)).line(), "  MariaDB starts … 17 s so far (usually 3.0 s)");
        assert_eq!(began(Duration::from_secs(17)).living(80), "  MariaDB starts … 17 s (usually 3.0 s)");
        assert_eq!(began(Duration::from_secs(17)).living(20).chars().count(), 19);
        assert!(began(Duration::ZERO).is_due());
        let short = Running { usually: Duration::from_millis(300), ..began(Duration::ZERO) };
        assert!(!short.is_due());
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 5 s");
    }

    #[test]
    fn what_fails_in_a_step_is_passed_on() {
        assert_eq!(step("it", Duration::ZERO, || Err::<(), _>("no")), Err("no"));
    }
}
