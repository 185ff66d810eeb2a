//! Tailwater's kernel programs as bytes, and the shapes of the records that they write. Owns the mirror of `bpf/include` in
//! Rust; knows no loader, no file system and no signal's meaning.

pub mod block;
pub mod memory;
pub mod net;
pub mod record;
pub mod sched;

#[repr(C, align(8))]
struct Aligned<const N: usize>([u8; N]);

/// One constant per `bpf/*.bpf.c`, named after the file. ELF readers want the bytes aligned to 8.
pub mod objects {
    use super::Aligned;
    include!(concat!(env!("OUT_DIR"), "/objects.rs"));
}
