//! The terminal while the view has it: raw mode, the alternate screen, and giving both back whatever happens. Knows nothing of what
//! is drawn.

use crossterm::cursor::{Hide, Show};
use crossterm::style::ResetColor;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{execute, queue};
use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use std::io::{self, IsTerminal, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is ours: who gives it back, gives it back once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Collects a frame and hands it over in one write, which is what a slow line wants. What a failed frame left is forgotten, so that
/// nothing of it comes after the terminal was given back.
#[derive(Debug, Default)]
struct Whole(Vec<u8>);

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.0);
        let mut out = io::stdout().lock();
        out.write_all(&frame)?;
        out.flush()
    }
}

/// The terminal, taken. Gives it back when dropped, and in a panic before its message is printed.
#[derive(Debug)]
pub struct Session {
    terminal: Terminal<CrosstermBackend<Whole>>,
}

impl Session {
    /// Takes it. Fails if standard input and output are not a terminal.
    pub fn start() -> io::Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "standard input and output are no terminal",
            ));
        }
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                before(info);
            }));
        });
        take()?;
        // From here on `drop` gives it back.
        let terminal = Terminal::new(CrosstermBackend::new(Whole::default())).inspect_err(|_| restore())?;
        Ok(Self { terminal })
    }

    /// Draws one frame. Fails when the terminal is gone.
    pub fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(view).map(|_| ())
    }

    /// Takes it again, after somebody else had it, and draws everything anew.
    pub fn take_back(&mut self) -> io::Result<()> {
        // Whoever had it may have set its modes: ours are set anew, not believed.
        restore();
        take()?;
        // A new one knows nothing to be on the screen, which taking it has cleared. `Terminal::clear` would ask the terminal where its
        // cursor is, and fail on a line that is too slow to answer.
        self.terminal = Terminal::new(CrosstermBackend::new(Whole::default()))?;
        Ok(())
    }

    /// Gives the terminal to the shell and stops, as Ctrl-Z asks; goes on when continued.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        // SAFETY: `raise` has no preconditions; SIGTSTP has its default action, which stops this process until SIGCONT.
        unsafe { libc::raise(libc::SIGTSTP) };
        self.take_back()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        restore();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| restore())
}

/// Gives the terminal back as it was, if it is ours. For every way out: end, panic, signal.
pub fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // Each of them, whatever became of the others: the terminal may be gone.
    let mut out = io::stdout();
    let _ = queue!(out, ResetColor, LeaveAlternateScreen, Show);
    let _ = out.flush();
    let _ = disable_raw_mode();
}
