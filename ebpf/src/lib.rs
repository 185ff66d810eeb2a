//! Tailwater's kernel programs as bytes, and the shapes of the records that they write. Owns the mirror of `bpf/include` in
//! Rust; knows no loader, no file system and no signal's meaning.
//!
//! A window begins here: a hook of `bpf/NAME.bpf.c` finds the record of its copy for the window that its timestamp is in
//! (`bpf/include/window_log.h`) and adds to it. The record is the struct that a module of this crate mirrors (`sched`, `net`, `block`, `memory`);
//! the agent reads it when the window is over. Samples of `stacks` belong to no window: they are read by their time.

pub mod block;
pub mod memory;
pub mod net;
pub mod record;
pub mod sched;
pub mod stacks;

#[repr(C, align(8))]
struct Aligned<const N: usize>([u8; N]);

/// One constant per `bpf/*.bpf.c`, named after the file. ELF readers want the bytes aligned to 8.
pub mod objects {
    use super::Aligned;
    include!(concat!(env!("OUT_DIR"), "/objects.rs"));
}
