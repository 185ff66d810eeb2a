//! Spins on N threads for D ms and prints when it did. A binary of its own so that its command name tells what it is.

use anyhow::{Context, Result};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tailwater_tests::lab::unix_ns;

#[allow(clippy::disallowed_methods, reason = "an injector times itself")]
fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, threads, duration_ms] = &arguments[..] else {
        anyhow::bail!("usage: burner THREADS MILLISECONDS");
    };
    let threads: usize = threads.parse().context("THREADS")?;
    let duration = Duration::from_millis(duration_ms.parse().context("MILLISECONDS")?);
    let ready = Barrier::new(threads + 1);
    let spin = || {
        ready.wait();
        let end = Instant::now() + duration;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    };
    let start_unix_ns = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(spin);
        }
        let now = unix_ns();
        ready.wait();
        now
    });
    println!("{{\"start_unix_ns\":{start_unix_ns},\"end_unix_ns\":{}}}", unix_ns());
    Ok(())
}
