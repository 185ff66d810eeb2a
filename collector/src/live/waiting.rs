//! Windows that wait for a thread off the ingest path, in order, bounded by memory: the oldest go first, and are counted. Knows no
//! lock and no thread.

use crate::counters::Counter;
use crate::live::windows::size_of;
use std::collections::VecDeque;
use std::sync::Arc;
use tailwater_model::window::HostWindow;

/// See above.
#[derive(Debug, Default)]
pub(crate) struct WindowQueue {
    windows: VecDeque<(Arc<HostWindow>, usize)>,
    bytes: usize,
}

impl WindowQueue {
    /// Adds a window; what is over `bytes_max` then goes, oldest first, into `dropped`.
    pub(crate) fn push(&mut self, window: Arc<HostWindow>, bytes_max: usize, dropped: &Counter) {
        let size = size_of(&window);
        self.bytes += size;
        self.windows.push_back((window, size));
        while self.bytes > bytes_max {
            let Some((_, size)) = self.windows.pop_front() else { break };
            self.bytes -= size;
            dropped.inc();
        }
    }

    /// Memory of what waits, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Everything, each with its size.
    pub(crate) fn take(&mut self) -> Vec<(Arc<HostWindow>, usize)> {
        self.bytes = 0;
        std::mem::take(&mut self.windows).into()
    }
}
