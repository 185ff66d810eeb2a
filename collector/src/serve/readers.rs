//! The threads on which readers are served: below those of ingest, analysis and alerts, in the eyes of the kernel's scheduler. Owns how far below, and
//! how many there are; knows no route.

use std::sync::Once;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Beside a thread of ordinary priority on the same CPU one of these gets about a tenth of it; a CPU that nobody else wants it has for itself.
const NICE: i32 = 10;
/// The lowest priority that there is.
const NICE_MAX: i32 = 19;
/// Threads that may wait for files or locks: as many as there are kinds of questions that do, each with its own limit.
const WAITING_THREADS_MAX: usize = 16;

/// A runtime of their own, which ends with this value and waits for nobody.
#[derive(Debug)]
pub struct Readers(Option<Runtime>);

impl Readers {
    /// Starts the threads: one for each CPU.
    pub fn start() -> std::io::Result<Self> {
        // Below this thread, also those that one of them starts, which begin with its priority.
        let own = rustix::process::getpriority_process(None)?;
        let nice = own.saturating_add(NICE).min(NICE_MAX);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cpus())
            .max_blocking_threads(WAITING_THREADS_MAX)
            .thread_name("readers")
            .on_thread_start(move || give_way(nice))
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs `task` there, and whatever it spawns.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        match &self.0 {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        // A runtime may not be waited for on a thread of another.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// CPUs of this process; where that is not told, one.
pub(super) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Lowers this thread's priority: on Linux each thread has its own, and anybody may lower it.
fn give_way(nice: i32) {
    let lowered = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice);
    static TOLD: Once = Once::new();
    if let Err(e) = lowered {
        TOLD.call_once(|| {
            tracing::warn!("readers are served at the priority of agents and alerts, which they may delay: setpriority: {e}");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_threads_stand_below_the_others_and_so_do_those_that_wait_for_them() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let before = own();
        let readers = Readers::start().unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        let asked = readers.spawn(async move {
            let waiting = tokio::task::spawn_blocking(move || rustix::process::getpriority_process(None));
            (rustix::process::getpriority_process(None).unwrap(), waiting.await.unwrap().unwrap())
        });
        let lower = (before + NICE).min(NICE_MAX);
        assert_eq!(runtime.block_on(asked).unwrap(), (lower, lower));
        assert_eq!(own(), before, "nobody else's changes");
    }
}
