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
    // SAFETY: an all-zero set is a valid one; the call reads no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
