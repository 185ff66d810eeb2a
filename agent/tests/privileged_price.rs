//! What the agent says of its kernel programs' price, against the kernel's own statistics of the same runs; as root.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod kernel;

use kernel::attach_config;
use serde_json::Value;
use std::io::{Read, Write};
use std::process::Command;
use tailwater_agent::attach::loader::KernelBtf;
use tailwater_agent::sample::sched::SchedSignal;

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// The kernel counts runs of all programs while this lives.
struct Statistics {
    before: String,
}

impl Statistics {
    fn on() -> Self {
        let before = std::fs::read_to_string(STATISTICS).unwrap();
        std::fs::write(STATISTICS, "1").unwrap();
        Self { before }
    }

    /// Runs of the scheduler's programs, and nanoseconds.
    fn sum() -> (u64, u64) {
        let output = Command::new("bpftool").args(["-j", "prog", "show"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let ours = all.as_array().unwrap().iter().filter(|program| {
            ["on_switch", "on_wakeup", "on_wakeup_new"]
                .contains(&program["name"].as_str().unwrap_or_default())
        });
        ours.fold((0, 0), |(runs, ns), program| {
            let of = |field: &str| program[field].as_u64().unwrap_or(0);
            (runs + of("run_cnt"), ns + of("run_time_ns"))
        })
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        std::fs::write(STATISTICS, self.before.trim()).unwrap();
    }
}

/// Two threads that wake each other, so often.
fn wake_each_other(turns: u32) {
    let (mut ping, mut pong) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let other = std::thread::spawn(move || {
        let mut byte = [0];
        for _ in 0..turns {
            ping.0.read_exact(&mut byte).unwrap();
            pong.1.write_all(&byte).unwrap();
        }
    });
    for _ in 0..turns {
        ping.1.write_all(&[1]).unwrap();
        pong.0.read_exact(&mut [0]).unwrap();
    }
    other.join().unwrap();
}

#[test]
fn privileged_the_programs_are_timed_while_it_is_asked_and_as_the_kernel_times_them() {
    let btf = KernelBtf::read().unwrap();
    let mut signal = SchedSignal::attach(&attach_config(&btf, 64)).unwrap();
    let mut price = signal.price().unwrap();
    wake_each_other(1_000);
    assert_eq!(price.sum(), (0, 0), "nobody asked");

    let _statistics = Statistics::on();
    for turn in 1..=3 {
        let ((runs_before, ns_before), (ours_ns_before, ours_before)) = (Statistics::sum(), price.sum());
        price.ask().unwrap();
        wake_each_other(50_000);
        price.rest().unwrap();
        let ((runs, ns), (ours_ns, ours)) = (Statistics::sum(), price.sum());
        let (runs, ns) = (runs - runs_before, ns - ns_before);
        let (ours, ours_ns) = (ours - ours_before, ours_ns - ours_ns_before);
        println!(
            "turn {turn}: {ours} runs of {runs}, {:.0} ns of {:.0}",
            ours_ns as f64 / ours as f64,
            ns as f64 / runs as f64
        );
        // The kernel also counts what ran while its statistics were asked for, before and after.
        assert!(ours >= 100_000 && ours <= runs && ours * 100 >= runs * 90, "{ours} runs of {runs}");
        // The kernel's time contains what our timing and its own take, which is as much again as a run.
        assert!(ours_ns * 4 >= ns && ours_ns <= ns, "{ours_ns} ns of {ns}");
    }
    let asked = price.sum();
    wake_each_other(1_000);
    assert_eq!(price.sum(), asked, "nobody asks any more");
}
