//! The configurable service of a graph, in two runtimes: threads and an event loop; those of goroutines and of Node are programs of their own
//! (`tests/graph`). It speaks HTTP/1.1, takes CPU, sleeps, locks, allocates
//! and calls as its part says, and takes orders on its standard input that hurt it. Knows nothing of graphs.

mod control;
mod event_loop;
mod http;
mod names;
mod threads;
mod work;

pub use names::{SERVER, serve as serve_names};

use crate::graph::part::{Part, Runtime};
use anyhow::{Result, bail};
use std::path::Path;

/// Serves until standard input ends. Writes `ready` when it listens, then a line for each order. In `folder` a file may be left.
pub fn serve(part: Part, folder: &Path) -> Result<()> {
    match part.runtime {
        Runtime::Threads => threads::serve(part, folder),
        Runtime::EventLoop => event_loop::serve(part),
        other => bail!("a service of {} is another program: see tests/graph", other.name()),
    }
}
