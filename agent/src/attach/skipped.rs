//! How often the kernel skipped a program because it had interrupted itself on its CPU, which it counts and tells nobody by itself.
//! Knows no signal.

use crate::attach::bpf::bpf;
use std::os::fd::{AsRawFd, BorrowedFd};

const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
/// `struct bpf_prog_info` up to `recursion_misses`, its 27th 64-bit word, which came with Linux 5.12.
const WORDS: usize = 27;

/// `union bpf_attr` of BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct InfoAttributes {
    fd: u32,
    info_len: u32,
    info: u64,
}

/// Runs of a program that did not happen since it was loaded; none is known of where the kernel does not count them.
pub(super) fn skipped_runs(program: BorrowedFd<'_>) -> Option<u64> {
    let mut info = [0_u64; WORDS];
    let mut attributes = InfoAttributes {
        fd: program.as_raw_fd().cast_unsigned(),
        info_len: size_of_val(&info) as u32,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the kernel writes no more than `info_len` bytes to `info`, and the length that it knows into the attributes.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attributes) }.ok()?;
    (attributes.info_len as usize >= size_of_val(&info)).then(|| info[WORDS - 1])
}
