//! Refuses system calls that a measuring agent has no use for once its programs are attached: whoever got hold of one of its threads, by
//! something that it parses, starts no program with them, loads none into the kernel, writes no file and traces no process. Owns the
//! list.
//!
//! A filter belongs to a thread and to those that it starts (seccomp(2)). What is refused fails with EPERM, as it does for a user without
//! the right, so that a system on which one of these is needed after all loses one signal and not the agent.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;

/// The filter could not be made or set.
#[derive(Debug, thiserror::Error)]
#[error("filter of system calls: {0}")]
pub struct FilterError(#[from] Box<dyn std::error::Error + Send + Sync>);

/// Whether the thread may enter namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces {
    /// The walker.
    Entered,
    /// Everybody else.
    Left,
}

/// Refused whatever their arguments are.
const REFUSED: &[libc::c_long] = &[
    // Other programs, other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    // The system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_open_by_handle_at,
    // They open and write without a call that could be looked at.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_openat2,
    // Files.
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_setxattr,
];

/// The same by older numbers.
#[cfg(target_arch = "x86_64")]
const REFUSED_OLD: &[libc::c_long] = &[
    libc::SYS_creat,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OLD: &[libc::c_long] = &[];

/// Number and argument of the flags of what opens files.
#[cfg(target_arch = "x86_64")]
const OPENS: &[(libc::c_long, u8)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: &[(libc::c_long, u8)] = &[(libc::SYS_openat, 2)];

/// Commands of bpf(2) that make or attach something, or take hold of what is another's (include/uapi/linux/bpf.h).
const BPF_REFUSED: &[(u64, &str)] = &[
    (0, "BPF_MAP_CREATE"),
    (5, "BPF_PROG_LOAD"),
    (6, "BPF_OBJ_PIN"),
    (8, "BPF_PROG_ATTACH"),
    (13, "BPF_PROG_GET_FD_BY_ID"),
    (14, "BPF_MAP_GET_FD_BY_ID"),
    (17, "BPF_RAW_TRACEPOINT_OPEN"),
    (18, "BPF_BTF_LOAD"),
    (28, "BPF_LINK_CREATE"),
    (30, "BPF_LINK_GET_FD_BY_ID"),
];

/// Sets the filter for this thread and those that it starts from now on. Needs `PR_SET_NO_NEW_PRIVS`, or CAP_SYS_ADMIN.
pub fn refuse(namespaces: Namespaces) -> Result<(), FilterError> {
    let program = program(namespaces).map_err(|e| FilterError(Box::new(e)))?;
    seccompiler::apply_filter(&program).map_err(|e| FilterError(Box::new(e)))
}

fn program(namespaces: Namespaces) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in REFUSED.iter().chain(REFUSED_OLD) {
        rules.insert(*call, Vec::new());
    }
    if namespaces == Namespaces::Left {
        rules.insert(libc::SYS_setns, Vec::new());
    }
    let rule = |argument, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?])
    };
    let flag = |flag: libc::c_int| u64::from(flag.cast_unsigned());
    for (call, flags) in OPENS {
        for mode in [libc::O_WRONLY, libc::O_RDWR] {
            let masked = SeccompCmpOp::MaskedEq(flag(libc::O_ACCMODE));
            rules.entry(*call).or_default().push(rule(*flags, masked, flag(mode))?);
        }
        for also in [libc::O_CREAT, libc::O_TRUNC] {
            let masked = SeccompCmpOp::MaskedEq(flag(also));
            rules.entry(*call).or_default().push(rule(*flags, masked, flag(also))?);
        }
    }
    for (command, _) in BPF_REFUSED {
        rules.entry(libc::SYS_bpf).or_default().push(rule(0, SeccompCmpOp::Eq, *command)?);
    }
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    BpfProgram::try_from(SeccompFilter::new(rules, SeccompAction::Allow, refused, machine)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// A thread of its own: a filter is for good.
    fn refused_in(namespaces: Namespaces) {
        std::thread::spawn(move || {
            // SAFETY: plain integers.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            refuse(namespaces).unwrap();
            let folder = std::env::temp_dir();
            let denied =
                |what: std::io::Result<()>| assert_eq!(what.unwrap_err().kind(), ErrorKind::PermissionDenied);
            denied(std::fs::File::create(folder.join("tailwater-refused")).map(drop));
            denied(std::fs::create_dir(folder.join("tailwater-refused")));
            denied(std::fs::remove_file(folder.join("tailwater-refused")));
            denied(std::fs::OpenOptions::new().write(true).open("/dev/null").map(drop));
            denied(std::process::Command::new("/bin/true").spawn().map(drop));
            let last = std::io::Error::last_os_error;
            // SAFETY: plain integers; none of these descriptors exists.
            let (entered, loaded) = unsafe {
                let entered = (libc::setns(-1, 0), last().raw_os_error());
                (entered, (libc::syscall(libc::SYS_bpf, 5, 0, 0), last().raw_os_error()))
            };
            let fails = if namespaces == Namespaces::Entered { libc::EBADF } else { libc::EPERM };
            assert_eq!((entered, loaded), ((-1, Some(fails)), (-1, Some(libc::EPERM))));
            assert!(std::fs::read_to_string("/proc/self/stat").is_ok());
            assert!(std::thread::spawn(|| std::fs::read_dir("/proc").is_ok()).join().unwrap());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn nothing_is_written_started_or_loaded() {
        refused_in(Namespaces::Left);
        refused_in(Namespaces::Entered);
    }

    #[test]
    fn the_machines_that_the_agent_is_built_for_have_a_filter() {
        for machine in ["x86_64", "aarch64"] {
            assert!(TargetArch::try_from(machine).is_ok(), "{machine}");
        }
    }
}
