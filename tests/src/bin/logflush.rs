//! Writes a file past the page cache, then waits for one fsync: a log flusher at its worst. Prints when it did. A binary of
//! its own so that its command name tells what it is.

use anyhow::{Context, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use tailwater_tests::console::failure;
use tailwater_tests::os::clock::unix_ns;

const CHUNK: usize = 1 << 20;

fn main() -> ExitCode {
    ExitCode::from(failure::run("logflush", None, work))
}

fn work() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, bytes] = &arguments[..] else {
        anyhow::bail!("usage: logflush FILE BYTES");
    };
    let bytes: u64 = bytes.parse().context("BYTES")?;
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .with_context(|| format!("open {path} with O_DIRECT"))?;
    let layout = Layout::from_size_align(CHUNK, 4096)?;
    // SAFETY: the layout is not empty; the slice covers exactly what was allocated and is not used after dealloc.
    let (memory, chunk) = unsafe {
        let memory = alloc_zeroed(layout);
        anyhow::ensure!(!memory.is_null(), "no memory for a chunk of {CHUNK} bytes");
        (memory, std::slice::from_raw_parts(memory, CHUNK))
    };
    let start_unix_ns = unix_ns();
    for _ in 0..bytes.div_ceil(CHUNK as u64) {
        file.write_all(chunk).with_context(|| format!("write {path}"))?;
    }
    file.sync_all().with_context(|| format!("fsync {path}"))?;
    println!("{{\"start_unix_ns\":{start_unix_ns},\"end_unix_ns\":{}}}", unix_ns());
    // SAFETY: allocated above with this layout.
    unsafe { dealloc(memory, layout) };
    Ok(())
}
