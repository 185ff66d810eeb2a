//! Looks at every listening socket each 5 ms where the kernel gives programs no timer (PREEMPT_RT): reads an iterator over the table
//! of them. Owns one thread; knows no window.

use crate::attach::iterator::KernelIterator;
use crate::attach::privilege;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// As `cfg_tick_ns` of the kernel's timer.
const EVERY: Duration = Duration::from_millis(5);

/// The thread; ends with this value.
#[derive(Debug)]
pub(super) struct Ticker {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Looks once, so that an iterator that this kernel refuses is an error here, and then every 5 ms.
    pub(super) fn start(listeners: KernelIterator) -> std::io::Result<Self> {
        listeners.run()?;
        let (stop, stopped) = sync_channel(0);
        let thread = std::thread::Builder::new().name("listener-tick".to_owned()).spawn(move || {
            if let Err(error) = privilege::drop_unneeded() {
                tracing::warn!("listener-tick: {error}");
            }
            let mut refused = false;
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let looked = listeners.run();
                if let Err(error) = &looked
                    && !refused
                {
                    tracing::warn!("listeners cannot be looked at: {error}; drops are not seen meanwhile");
                }
                refused = looked.is_err();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
