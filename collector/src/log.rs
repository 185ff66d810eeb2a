//! The log's way to standard error: through a bounded queue and a thread of its own. Standard error is a file on the very disk whose stall
//! is being told, or a pipe to somebody who reads slowly; whoever has something to say must not wait for either. Owns the queue, and
//! what is lost of it; knows no message.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that may wait; beyond it new ones are dropped and counted.
const LINES_MAX: usize = 4096;
/// At the end what waits gets this long.
const FLUSH_WITHIN: Duration = Duration::from_millis(200);

static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines that were dropped because standard error was behind.
#[must_use]
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

enum Op {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// The way in. One write is one line.
#[derive(Debug, Clone)]
pub struct Log(SyncSender<Op>);

impl Log {
    /// To standard error.
    pub fn start() -> std::io::Result<Self> {
        Self::to(std::io::stderr())
    }

    fn to(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (lines, waiting) = sync_channel(LINES_MAX);
        // Taken here: lines may be lost before the thread first runs.
        let told = lost();
        std::thread::Builder::new().name("log".into()).spawn(move || write(&waiting, told, out))?;
        Ok(Self(lines))
    }

    /// Waits until what was said is written, but not for long.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.0.try_send(Op::Flush(done)).is_ok() {
            // Too slow, or gone: what is left unsaid stays so.
            let _ = written.recv_timeout(FLUSH_WITHIN);
        }
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if self.0.try_send(Op::Line(line.to_vec())).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn write(waiting: &Receiver<Op>, mut told: u64, mut out: impl Write) {
    while let Ok(op) = waiting.recv() {
        // A log that nobody can write must not end what it is the log of.
        match op {
            Op::Line(line) => _ = out.write_all(&line),
            Op::Flush(done) => {
                let _ = out.flush();
                let _ = done.send(());
            }
        }
        let lost = lost();
        if lost > told {
            let _ = writeln!(
                out,
                "tailwater: {} lines are missing around here: what takes this log was behind",
                lost - told
            );
            told = lost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Takes nothing until it may.
    struct Stalled(Arc<Mutex<Vec<u8>>>);

    impl Write for Stalled {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_log_that_stands_still_and_what_is_missing_is_told() {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let stalled = taken.lock().unwrap();
        let mut log = Log::to(Stalled(Arc::clone(&taken))).unwrap();
        for n in 0..LINES_MAX + 100 {
            log.write_all(format!("{n}\n").as_bytes()).unwrap();
        }
        log.flush();
        let dropped = lost();
        assert!((98..=100).contains(&dropped), "{dropped}");
        drop(stalled);
        // Room comes as lines are taken.
        while {
            log.flush();
            !String::from_utf8_lossy(&taken.lock().unwrap()).contains("4000\n")
        } {}
        let text = String::from_utf8(taken.lock().unwrap().clone()).unwrap();
        assert!(text.starts_with("0\n") && text.contains(&format!("{dropped} lines are missing")), "{text}");
    }
}
