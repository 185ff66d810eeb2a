//! Spins on N threads for D ms and prints when it did; 0 threads are one for each CPU. They take turns at the CPUs: two that the
//! scheduler put on one would leave the other to the server. A binary of its own so that its command name tells what it is.

use anyhow::{Context, Result};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tailwater_tests::failure;
use tailwater_tests::lab::unix_ns;

fn main() -> ExitCode {
    ExitCode::from(failure::run("burner", None, work))
}

#[allow(clippy::disallowed_methods, reason = "an injector times itself")]
fn work() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, threads, duration_ms] = &arguments[..] else {
        anyhow::bail!("usage: burner THREADS MILLISECONDS");
    };
    let threads: usize = threads.parse().context("THREADS")?;
    let duration = Duration::from_millis(duration_ms.parse().context("MILLISECONDS")?);
    let cpus = cpus()?;
    let threads = if threads == 0 { cpus } else { threads };
    let ready = Barrier::new(threads + 1);
    let spin = |cpu: usize| {
        pin(cpu);
        ready.wait();
        let end = Instant::now() + duration;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    };
    let start_unix_ns = std::thread::scope(|scope| {
        for thread in 0..threads {
            let spin = &spin;
            scope.spawn(move || spin(thread % cpus));
        }
        let now = unix_ns();
        ready.wait();
        now
    });
    println!("{{\"start_unix_ns\":{start_unix_ns},\"end_unix_ns\":{}}}", unix_ns());
    Ok(())
}

/// CPUs that this process may run on. `available_parallelism` would say what the tier's quota comes to, which is one.
fn cpus() -> Result<usize> {
    // SAFETY: an all-zero set is a valid one; the call writes no more than its size.
    let count = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let failed = libc::sched_getaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &raw mut set);
        anyhow::ensure!(failed == 0, "sched_getaffinity: {}", std::io::Error::last_os_error());
        libc::CPU_COUNT(&set)
    };
    usize::try_from(count).context("CPUs")
}

/// Keeps this thread on one CPU. Where that is not allowed, the scheduler's choice has to do.
fn pin(cpu: usize) {
    // SAFETY: an all-zero set is a valid one; the call reads no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
