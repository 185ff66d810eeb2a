//! The configurable service of a graph, in two runtimes: threads and an event loop; that of goroutines is a program of Go
//! (`tests/goroutines`). It speaks HTTP/1.1, takes CPU, sleeps, locks, allocates
//! and calls as its part says, and takes orders on its standard input that hurt it. Knows nothing of graphs.

mod control;
mod event_loop;
mod http;
mod threads;
mod work;

use crate::graph::part::{Part, Runtime};
use anyhow::{Result, bail};

/// Serves until standard input ends. Writes `ready` when it listens, then a line for each order.
pub fn serve(part: Part) -> Result<()> {
    match part.runtime {
        Runtime::Threads => threads::serve(part),
        Runtime::EventLoop => event_loop::serve(part),
        Runtime::Goroutines => bail!("a service of goroutines is another program: see tests/goroutines"),
    }
}
