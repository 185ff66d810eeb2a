//! What the kernel offers, as the rest of this crate uses it: control groups, network namespaces, processes, CPUs, the clock. Knows
//! nothing of what runs in them or on them, and nothing else of this crate.

pub mod cgroup;
pub mod clock;
pub mod cpus;
pub mod netns;
pub mod process;

/// Release of the kernel that runs.
pub fn kernel_release() -> anyhow::Result<String> {
    const FILE: &str = "/proc/sys/kernel/osrelease";
    let text = anyhow::Context::with_context(std::fs::read_to_string(FILE), || format!("read {FILE}"))?;
    Ok(text.trim().to_owned())
}

/// Whether this process may do what only root may.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Clock ticks of `/proc` in a second.
#[must_use]
pub fn ticks_per_second() -> f64 {
    // SAFETY: a plain integer; cannot fail for this name.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}
