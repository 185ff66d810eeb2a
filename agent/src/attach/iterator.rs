//! BPF iterators: programs that run once for each of the kernel's objects of a kind when user space reads a file to its end. Owns the
//! commands for it, which the loader's library has for some kinds only; knows no signal.

use crate::attach::bpf::descriptor;
use aya::programs::ProgramFd;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Commands of bpf(2), and the attach type of iterators.
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;

/// An iterator program bound to what it walks; each [`KernelIterator::run`] walks all of it once.
#[derive(Debug)]
pub struct KernelIterator {
    link: OwnedFd,
}

impl KernelIterator {
    /// Over objects of the kernel's own, such as sockets.
    pub fn new(program: &ProgramFd) -> std::io::Result<Self> {
        let program = word(program.as_fd());
        // prog_fd, target_fd, attach_type, flags.
        Ok(Self { link: made(BPF_LINK_CREATE, [program, 0, BPF_TRACE_ITER, 0])? })
    }

    /// Over the elements of a map.
    pub fn over_map(program: &ProgramFd, map: BorrowedFd<'_>) -> std::io::Result<Self> {
        // `union bpf_iter_link_info`, of which the map's descriptor comes first.
        let info = [word(map)];
        let at = info.as_ptr() as u64;
        let [low, high] = [at as u32, (at >> 32) as u32];
        let program = word(program.as_fd());
        // prog_fd, target_fd, attach_type, flags, iter_info, iter_info_len.
        let attributes = [program, 0, BPF_TRACE_ITER, 0, low, high, size_of_val(&info) as u32];
        Ok(Self { link: made(BPF_LINK_CREATE, attributes)? })
    }

    /// Bound to what it walks already, by another process.
    pub fn of_link(link: OwnedFd) -> Self {
        Self { link }
    }

    /// What it is bound by, for another process.
    pub fn link(&self) -> std::io::Result<OwnedFd> {
        self.link.try_clone()
    }

    /// Walks once; the kernel's objects are those of the namespace that the calling thread is in (`bpf_iter_init_seq_net`). Of programs that
    /// write nothing: reading to the end drives them.
    pub fn run(&self) -> std::io::Result<()> {
        let mut file = self.open()?;
        let mut nothing = [0; 4096];
        while file.read(&mut nothing)? > 0 {}
        Ok(())
    }

    /// Walks once, of a program that writes: appends what it wrote, and stops where that would be more than `most` bytes. Returns whether it was all.
    pub fn read(&self, into: &mut Vec<u8>, most: usize) -> std::io::Result<bool> {
        let begun = into.len();
        self.open()?.take(most as u64 + 1).read_to_end(into)?;
        let all = into.len() - begun <= most;
        into.truncate(begun + most);
        Ok(all)
    }

    fn open(&self) -> std::io::Result<File> {
        // link_fd, flags.
        Ok(File::from(made(BPF_ITER_CREATE, [word(self.link.as_fd()), 0])?))
    }
}

fn word(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// A command whose attributes are 32-bit words (of a 64-bit one, the lower half comes first on the machines that this runs on) and whose
/// result is a descriptor.
fn made(command: libc::c_long, mut attributes: impl AsMut<[u32]>) -> std::io::Result<OwnedFd> {
    // SAFETY: both commands take words from the beginning on; the one pointer among them is to a word that its caller keeps.
    unsafe { descriptor(command, attributes.as_mut()) }
}
