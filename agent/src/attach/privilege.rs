//! Gives up root at the start, and what the agent no longer needs once its programs are attached: capabilities, and system calls
//! (`filter.rs`). Owns the list of what stays, and why.
//!
//! Users and capabilities belong to threads. Call [`leave_root`] while there is one, and [`drop_unneeded`] from the main thread after attaching and before any other thread is
//! started: they inherit the rest. What exists earlier drops by itself what it does not need. CAP_SYS_ADMIN, for setns(2), stays in the process that
//! walks the sockets of network namespaces (`sample/net/helper.rs`), and where sockets are polled in the thread that does; neither reads from the network.

use super::filter::{self, Namespaces};
use caps::{CapSet, Capability, CapsHashSet};
use std::process::{Child, Command};

/// What stays, and what for.
pub const KEPT: [(Capability, &str); 3] = [
    // bpf(2) on maps is refused to others before Linux 6.0 where kernel.unprivileged_bpf_disabled is set.
    (Capability::CAP_BPF, "giving back slots of removed cgroups"),
    (
        Capability::CAP_SYS_PTRACE,
        "/proc/PID/ns/net, /proc/PID/net and /proc/PID/wchan of other users' processes; with lock_holders /proc/PID/syscall and /proc/PID/mem, with stacks also /proc/PID/maps and the files with their code",
    ),
    (Capability::CAP_DAC_READ_SEARCH, "container engines' files with the names of containers"),
];

/// User and group of an agent that root started: one of 61001 to 61183, which systemd leaves to nobody (its UIDS-GIDS.md).
pub const OWN_ID: u32 = 61_100;

/// User or capabilities could not be given up.
#[derive(Debug, thiserror::Error)]
#[error("privileges of this process ({step}): {source}")]
pub struct PrivilegeError {
    step: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

fn error<E: std::error::Error + Send + Sync + 'static>(step: &'static str) -> impl Fn(E) -> PrivilegeError {
    move |source| PrivilegeError { step, source: Box::new(source) }
}

fn done(step: &'static str, failed: libc::c_int) -> Result<(), PrivilegeError> {
    if failed == 0 { Ok(()) } else { Err(error(step)(std::io::Error::last_os_error())) }
}

/// Where root started this: goes on as this user, with what that one may and no more. Whoever is not root stays who he is.
pub fn become_user(user: u32, group: u32) -> Result<(), PrivilegeError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // SAFETY: plain integers, and a list without elements.
    unsafe {
        done("setgroups", libc::setgroups(0, std::ptr::null()))?;
        done("setresgid", libc::setresgid(group, group, group))?;
        done("setresuid", libc::setresuid(user, user, user))
    }
}

/// Where root started the agent: goes on as [`OWN_ID`], with the capabilities that it has until they are dropped. Whoever runs as
/// that user then, or reads and writes as root's, is somebody else. Returns whether it did: a container's root mostly may not.
pub fn leave_root() -> Result<bool, PrivilegeError> {
    let had = caps::read(None, CapSet::Permitted).map_err(error("read"))?;
    if !rustix::process::geteuid().is_root()
        || !had.contains(&Capability::CAP_SETUID)
        || !had.contains(&Capability::CAP_SETGID)
    {
        return Ok(false);
    }
    let mut with_parent: libc::c_int = 0;
    // SAFETY: plain integers, one that lives here, and a list without elements.
    unsafe {
        // Whoever started the agent may have asked that it ends with them, which a change of users forgets (commit_creds).
        done("parent", libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut with_parent))?;
        if libc::setresgid(OWN_ID, OWN_ID, OWN_ID) != 0 {
            // Unknown in this user namespace, whose root is not the machine's.
            return Ok(false);
        }
        done("setgroups", libc::setgroups(0, std::ptr::null()))?;
        done("keep", libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        done("setresuid", libc::setresuid(OWN_ID, OWN_ID, OWN_ID))?;
        done("keep", libc::prctl(libc::PR_SET_KEEPCAPS, 0, 0, 0, 0))?;
        done(
            "parent",
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::c_ulong::from(with_parent.cast_unsigned())),
        )?;
    }
    caps::set(None, CapSet::Effective, &had).map_err(error("effective"))?;
    Ok(true)
}

/// Drops everything but [`KEPT`], and what no such agent asks of the kernel, for good: nothing started from here can get more.
pub fn drop_unneeded() -> Result<(), PrivilegeError> {
    drop_but(&[], Namespaces::Left)
}

/// The same in the calling thread, but for CAP_SYS_ADMIN, if it has that.
pub fn drop_unneeded_of_walker() -> Result<(), PrivilegeError> {
    drop_but(&[Capability::CAP_SYS_ADMIN], Namespaces::Entered)
}

/// Whether this thread has a capability now.
pub fn has(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// Gives up all capabilities, for good: what is left is what the files of its user allow.
pub fn drop_all() -> Result<(), PrivilegeError> {
    keep_only(&CapsHashSet::new())
}

/// The same, but that what only root may read can still be read, as the agent may: a token to join by. Who had not that does not get it.
pub fn drop_all_but_reading() -> Result<(), PrivilegeError> {
    let had = caps::read(None, CapSet::Permitted).map_err(error("read"))?;
    let stay: CapsHashSet =
        [Capability::CAP_DAC_READ_SEARCH].into_iter().filter(|c| had.contains(c)).collect();
    keep_only(&stay)
}

/// These capabilities stay, and nothing started from here can get more.
fn keep_only(stay: &CapsHashSet) -> Result<(), PrivilegeError> {
    // Fails where ambient capabilities are not known, before Linux 4.3.
    let _ = caps::clear(None, CapSet::Ambient);
    caps::set(None, CapSet::Effective, stay).map_err(error("effective"))?;
    caps::set(None, CapSet::Permitted, stay).map_err(error("permitted"))?;
    caps::clear(None, CapSet::Inheritable).map_err(error("inheritable"))?;
    rustix::thread::set_no_new_privs(true).map_err(error("no new privileges"))
}

/// Starts a program that keeps these capabilities, of those that this thread has (capabilities(7): only ambient ones outlive execve(2) of
/// whoever is not root). It has to drop what it does not need by itself.
pub fn spawn_with(capabilities: &[Capability], command: &mut Command) -> std::io::Result<Child> {
    let all: CapsHashSet = capabilities.iter().copied().filter(|c| has(*c)).collect();
    let inheritable = caps::read(None, CapSet::Inheritable).map_err(std::io::Error::other)?;
    let both: CapsHashSet = inheritable.union(&all).copied().collect();
    caps::set(None, CapSet::Inheritable, &both).map_err(std::io::Error::other)?;
    let ambient = caps::set(None, CapSet::Ambient, &all).map_err(std::io::Error::other);
    let child = ambient.and_then(|()| command.spawn());
    // What was ambient before was the unit's, and is in the other sets.
    caps::clear(None, CapSet::Ambient).map_err(std::io::Error::other)?;
    caps::set(None, CapSet::Inheritable, &inheritable).map_err(std::io::Error::other)?;
    child
}

fn drop_but(also: &[Capability], namespaces: Namespaces) -> Result<(), PrivilegeError> {
    let had = caps::read(None, CapSet::Permitted).map_err(error("read"))?;
    let wanted = KEPT.iter().map(|(c, _)| c).chain(also);
    let stay: CapsHashSet = wanted.copied().filter(|c| had.contains(c)).collect();
    if had.contains(&Capability::CAP_SETPCAP) {
        for capability in caps::all() {
            // The kernel may know fewer capabilities than this library: what it does not know cannot be gained either.
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    keep_only(&stay)?;
    if let Err(error) = filter::refuse(namespaces) {
        tracing::warn!("{error}; this agent may ask everything of the kernel that its user may");
    }
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
