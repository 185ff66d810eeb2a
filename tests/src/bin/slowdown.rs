//! Runs a command on a machine that is slower than this one: takes a share of each CPU in slices of a millisecond, before everything
//! else that wants it. What this takes is seen as another program's time, not as a hypervisor's.

use anyhow::{Context, Result};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use tailwater_tests::console::failure;
use tailwater_tests::os::cpus;

const PERIOD: Duration = Duration::from_millis(2);
/// The kernel leaves a twentieth to others than real-time tasks (`sched_rt_runtime_us`).
const SPEEDS: std::ops::RangeInclusive<u32> = 10..=95;

fn main() -> ExitCode {
    let mut code = 0;
    let failed = failure::run("slowdown", None, || {
        code = work()?;
        Ok(())
    });
    ExitCode::from(failed.max(code))
}

#[allow(clippy::disallowed_methods, reason = "an injector times itself")]
fn work() -> Result<u8> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [speed, program, rest @ ..] = &arguments[..] else {
        anyhow::bail!("usage: slowdown PERCENT COMMAND [ARGUMENT]...");
    };
    let speed: u32 = speed.parse().context("PERCENT, of this machine's speed, that is left")?;
    anyhow::ensure!(SPEEDS.contains(&speed), "PERCENT is from {} to {}", SPEEDS.start(), SPEEDS.end());
    let taken = PERIOD * (100 - speed) / 100;
    let (tell, told) = std::sync::mpsc::sync_channel(cpus::allowed()?);
    for cpu in 0..cpus::allowed()? {
        let tell = tell.clone();
        std::thread::spawn(move || {
            cpus::pin(cpu);
            let begun = before_all_others();
            let failed = begun.is_err();
            // Nobody listens any more once one of them failed.
            let _ = tell.send(begun);
            let mut next = Instant::now();
            if failed {
                return;
            }
            loop {
                while next.elapsed() < taken {
                    std::hint::spin_loop();
                }
                next += PERIOD;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                if next.elapsed() > 10 * PERIOD {
                    next = Instant::now();
                }
            }
        });
    }
    drop(tell);
    told.iter().take(cpus::allowed()?).collect::<Result<()>>()?;
    let status = Command::new(program).args(rest).status().with_context(|| program.clone())?;
    // Of a command that a signal ended there is no code.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn before_all_others() -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 50 };
    // SAFETY: reads one value that lives here; 0 is this thread.
    let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    anyhow::ensure!(
        failed == 0,
        "no real-time priority: {}{}run it as root",
        std::io::Error::last_os_error(),
        failure::REMEDY
    );
    Ok(())
}
