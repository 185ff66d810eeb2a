//! Spins on N threads for D ms and prints when it did; 0 threads are one for each CPU. They take turns at the CPUs: two that the
//! scheduler put on one would leave the other to the server. A binary of its own so that its command name tells what it is.

use anyhow::{Context, Result};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tailwater_tests::console::failure;
use tailwater_tests::os::clock::unix_ns;
use tailwater_tests::os::cpus;

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
    let cpus = cpus::allowed()?;
    let threads = if threads == 0 { cpus } else { threads };
    let ready = Barrier::new(threads + 1);
    let start_unix_ns = std::thread::scope(|scope| {
        for thread in 0..threads {
            let ready = &ready;
            scope.spawn(move || {
                cpus::pin(thread % cpus);
                ready.wait();
                spin(duration);
            });
        }
        let now = unix_ns();
        ready.wait();
        now
    });
    println!("{{\"start_unix_ns\":{start_unix_ns},\"end_unix_ns\":{}}}", unix_ns());
    Ok(())
}

/// By its name it is told which code took the CPU.
#[inline(never)]
#[allow(clippy::disallowed_methods, reason = "an injector times itself")]
fn spin(duration: Duration) {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
