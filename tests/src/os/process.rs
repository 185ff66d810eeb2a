//! Starts processes, runs commands to their end, sends signals, and makes sure that what a program started dies with it. Knows
//! nothing of what they are.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Has a process that this thread will start receive `death_signal` when this thread ends, however it ends.
pub fn die_with_parent(command: &mut Command, death_signal: libc::c_int) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only system calls on plain integers.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, death_signal) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before prctl.
            if libc::getppid() != parent as libc::pid_t {
                libc::_exit(1);
            }
            Ok(())
        });
    }
}

/// Sends a signal to one process. A process that is gone already is no error.
pub fn signal(pid: i32, signal: libc::c_int) -> Result<()> {
    if pid <= 1 {
        bail!("refusing to signal pid {pid}");
    }
    // SAFETY: plain integers.
    if unsafe { libc::kill(pid, signal) } != 0 {
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ESRCH) {
            return Err(error).with_context(|| format!("signal {signal} to pid {pid}"));
        }
    }
    Ok(())
}

/// Raises this process's limit of open files as far as it goes, and returns it.
pub fn raise_file_limit() -> Result<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid struct that lives through both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return Err(std::io::Error::last_os_error()).context("limit of open files");
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
            return Err(std::io::Error::last_os_error()).context("raise the limit of open files");
        }
    }
    Ok(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Waits until something can be read of a pipe or a socket, or its other end is closed. False: neither was so within this long.
pub fn readable(pipe: &impl AsRawFd, within: Duration) -> Result<bool> {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let left = libc::c_int::try_from(left).unwrap_or(libc::c_int::MAX);
        let mut of = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid struct that lives through the call.
        match unsafe { libc::poll(&mut of, 1, left) } {
            0 => return Ok(false),
            1.. => return Ok(true),
            _ => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error).context("wait for a pipe");
                }
            }
        }
    }
}

/// Polls `ready` every 20 ms until it yields a value.
pub fn wait_for<T>(what: &str, longest: Duration, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + longest;
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("waited {} s for {what}", longest.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A binary of this build, beside the running program.
pub fn sibling_binary(name: &str) -> Result<PathBuf> {
    let mut folder = std::env::current_exe().context("path of the running program")?;
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let path = folder.join(name);
    if !path.exists() {
        bail!("{} is not built: run `cargo build --workspace --bins`", path.display());
    }
    Ok(path)
}

/// Runs a command to its end and fails with what it said.
pub fn run(command: &mut Command) -> Result<String> {
    run_with(command, None)
}

/// As [`run`], with something to read.
pub(crate) fn run_with(command: &mut Command, input: Option<File>) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(input.map_or_else(Stdio::null, Stdio::from))
        .output()
        .with_context(|| format!("run {name} (tests/lab/install.sh installs the lab's software)"))?;
    if !output.status.success() {
        bail!(
            "{name}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_says_nothing_is_waited_for_only_so_long_and_an_end_is_heard() {
        let (mut speaks, listens) = UnixStream::pair().unwrap();
        assert!(!readable(&listens, Duration::from_millis(20)).unwrap());
        speaks.write_all(b"ready\n").unwrap();
        assert!(readable(&listens, Duration::from_secs(10)).unwrap());
        let (ends, listens) = UnixStream::pair().unwrap();
        drop(ends);
        assert!(readable(&listens, Duration::from_secs(10)).unwrap());
    }
}
