//! Gives up what the agent no longer needs once its programs are attached. Owns the list of what stays, and why.
//!
//! Capabilities belong to threads. Call [`drop_unneeded`] from the main thread after attaching and before any other thread is
//! started: they inherit the rest. The one thread that exists earlier, which walks the sockets of network namespaces, drops by itself
//! what it does not need and keeps CAP_SYS_ADMIN for setns(2); it reads nothing from the network.

use caps::{CapSet, Capability, CapsHashSet};

/// What stays, and what for.
pub const KEPT: [(Capability, &str); 3] = [
    // bpf(2) on maps is refused to others before Linux 6.0 where kernel.unprivileged_bpf_disabled is set.
    (Capability::CAP_BPF, "giving back slots of removed cgroups"),
    (Capability::CAP_SYS_PTRACE, "/proc/PID/ns/net and /proc/PID/net of other users' processes"),
    (Capability::CAP_DAC_READ_SEARCH, "container engines' files with the names of containers"),
];

/// Capabilities could not be dropped.
#[derive(Debug, thiserror::Error)]
#[error("capabilities of this process ({step}): {source}")]
pub struct PrivilegeError {
    step: &'static str,
    source: caps::errors::CapsError,
}

/// Drops everything but [`KEPT`], for good: nothing started from here can get more.
pub fn drop_unneeded() -> Result<(), PrivilegeError> {
    drop_but(&[])
}

/// The same in the calling thread, but for CAP_SYS_ADMIN, if it has that.
pub fn drop_unneeded_of_walker() -> Result<(), PrivilegeError> {
    drop_but(&[Capability::CAP_SYS_ADMIN])
}

fn drop_but(also: &[Capability]) -> Result<(), PrivilegeError> {
    let error = |step| move |source| PrivilegeError { step, source };
    let had = caps::read(None, CapSet::Permitted).map_err(error("read"))?;
    let wanted = KEPT.iter().map(|(c, _)| c).chain(also);
    let stay: CapsHashSet = wanted.copied().filter(|c| had.contains(c)).collect();
    if had.contains(&Capability::CAP_SETPCAP) {
        for capability in caps::all() {
            // The kernel may know fewer capabilities than this library: what it does not know cannot be gained either.
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    // Fails where ambient capabilities are not known, before Linux 4.3.
    let _ = caps::clear(None, CapSet::Ambient);
    caps::set(None, CapSet::Effective, &stay).map_err(error("effective"))?;
    caps::set(None, CapSet::Permitted, &stay).map_err(error("permitted"))?;
    caps::clear(None, CapSet::Inheritable).map_err(error("inheritable"))?;
    // SAFETY: prctl with plain integers; it cannot fail for this option.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileged_only_what_is_needed_stays_and_it_is_for_good() {
        // Capabilities are a thread's own: this one's are spent.
        let left = std::thread::spawn(|| {
            drop_unneeded().unwrap();
            let raised = caps::raise(None, CapSet::Effective, Capability::CAP_SYS_ADMIN);
            assert!(raised.is_err());
            caps::read(None, CapSet::Effective).unwrap()
        })
        .join()
        .unwrap();
        assert!(!left.contains(&Capability::CAP_SYS_ADMIN));
        assert!(left.contains(&Capability::CAP_BPF), "{left:?}");
        assert!(left.len() <= KEPT.len());
    }
}
