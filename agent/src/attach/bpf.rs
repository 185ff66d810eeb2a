//! bpf(2) where the loader's library has no call for it. Owns that system call and the descriptors that it makes; knows no command.

use std::io::{Error, Result};
use std::os::fd::{FromRawFd, OwnedFd};

/// Gives the kernel a command with its attributes, which it may write to. Returns what the call returns.
///
/// # Safety
/// `A` is what the command reads of `union bpf_attr`, or a beginning of it: the kernel takes the rest as zero. What it points to lives
/// across the call, and is as long as it says.
pub(super) unsafe fn bpf<A: ?Sized>(command: libc::c_long, attributes: &mut A) -> Result<i32> {
    // Thin: of a slice, its length would take the place of the size.
    let (at, size) = (std::ptr::from_mut(attributes).cast::<libc::c_void>(), size_of_val(attributes));
    // SAFETY: the caller's.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, at, size) };
    i32::try_from(result).ok().filter(|result| *result >= 0).ok_or_else(Error::last_os_error)
}

/// The same, of a command that makes a descriptor.
///
/// # Safety
/// As [`bpf`]; and the command returns a new descriptor.
pub(super) unsafe fn descriptor<A: ?Sized>(command: libc::c_long, attributes: &mut A) -> Result<OwnedFd> {
    // SAFETY: the caller's; a descriptor just made is owned by nobody else.
    unsafe { bpf(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd)) }
}
