//! A thread that does the same again and again until its value is dropped. Knows not what.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread; ends with this value.
#[derive(Debug)]
pub struct Repeated {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Repeated {
    /// Does `work` at once, and then with this pause in between.
    pub fn start(
        name: &str,
        pause: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = sync_channel(0);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                work();
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
