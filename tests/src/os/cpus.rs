//! The CPUs that this process may run on. Knows no program.

use anyhow::{Context, Result};

/// How many. `available_parallelism` would say what the cgroup's quota comes to, which in a tier is one.
///
/// # Errors
/// Where the kernel has more CPUs than `cpu_set_t` tells apart.
pub fn allowed() -> Result<usize> {
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
pub fn pin(cpu: usize) {
    // Nobody is told: whoever pins itself does not depend on it.
    let _ = pin_process(0, cpu);
}

/// Keeps a process of one thread on one CPU (0: this thread).
///
/// # Errors
/// Where the kernel does not allow it, or the process is gone.
pub fn pin_process(pid: libc::pid_t, cpu: usize) -> Result<()> {
    // SAFETY: an all-zero set is a valid one; the call reads no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        let failed = libc::sched_setaffinity(pid, std::mem::size_of::<libc::cpu_set_t>(), &raw const set);
        anyhow::ensure!(failed == 0, "pin {pid} to CPU {cpu}: {}", std::io::Error::last_os_error());
    }
    Ok(())
}
