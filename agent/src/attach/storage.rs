//! Whether the kernel has memory for what programs keep with a task or a socket. It may take the map, and every program, and never give
//! any: Linux 7.3 on a processor without cmpxchg16b. Knows no map's meaning.

use crate::attach::bpf::bpf;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::io::Result;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_NOEXIST: u64 = 1;

/// What a map keeps something with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A task (`BPF_MAP_TYPE_TASK_STORAGE`).
    Task,
    /// A socket (`BPF_MAP_TYPE_SK_STORAGE`).
    Socket,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Task => "task",
            Self::Socket => "socket",
        })
    }
}

impl Owner {
    /// One of our own, by which user space names it to the kernel.
    fn example(self) -> Result<OwnedFd> {
        Ok(match self {
            Self::Task => pidfd_open(getpid(), PidfdFlags::empty())?,
            Self::Socket => socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?,
        })
    }
}

/// `union bpf_attr` of BPF_MAP_UPDATE_ELEM and BPF_MAP_DELETE_ELEM.
#[repr(C)]
struct ElementAttributes {
    map: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Keeps zeroes with a task or a socket of our own and takes them away again. To be asked before a program is attached that would find
/// them.
pub(super) fn try_out(map: BorrowedFd<'_>, value_bytes: usize, owner: Owner) -> Result<()> {
    let example = owner.example()?;
    let key = example.as_raw_fd();
    let value = vec![0_u64; value_bytes.div_ceil(8)];
    let mut attributes = ElementAttributes {
        map: map.as_raw_fd().cast_unsigned(),
        reserved: 0,
        key: std::ptr::from_ref(&key) as u64,
        value: value.as_ptr() as u64,
        flags: BPF_NOEXIST,
    };
    // SAFETY: the key is a descriptor's number, the value as long as the map's values; both live across the calls.
    unsafe {
        bpf(BPF_MAP_UPDATE_ELEM, &mut attributes)?;
        (attributes.value, attributes.flags) = (0, 0);
        bpf(BPF_MAP_DELETE_ELEM, &mut attributes)?;
    }
    Ok(())
}
