//! A program that may be ended at any second and leaves nothing behind. It works in a second process; the first one only waits for that and
//! for signals. On a signal it ends the worker and all that it started, waits for the lab's guard, looks again by itself, and says
//! so. Knows of the lab only how to clean up after one.

use crate::console::failure::{self, REMEDY};
use crate::console::progress::complain;
use crate::lab::{BUILDING, CACHE, reaper};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The guard of a lab ends within this, also while the machine is busy.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// As a shell tells of a process that a signal ended.
const SIGNALLED: u8 = 128;

/// Does `work` in a process of its own and returns its exit code, or says what ended it. Call it before any thread is started.
pub fn supervise(program: &str, work: impl FnOnce() -> u8) -> ExitCode {
    let begun = Instant::now();
    match fork() {
        Ok(Role::Worker) => std::process::exit(work().into()),
        Ok(Role::Waiter { worker, signals }) => ExitCode::from(wait(program, begun, worker, &signals)),
        Err(error) => {
            complain(&format!("{program}: start a second process: {error}"));
            ExitCode::FAILURE
        }
    }
}

enum Role {
    Worker,
    Waiter { worker: libc::pid_t, signals: libc::sigset_t },
}

/// Those that end a program from outside, unless whoever started it said that they should not (`nohup`).
fn ending() -> impl Iterator<Item = libc::c_int> {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().filter(|signal| {
        // SAFETY: an all-zero struct is a valid one; the call writes no more than it and changes nothing.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction != libc::SIG_IGN
        }
    })
}

fn fork() -> std::io::Result<Role> {
    let failed = std::io::Error::last_os_error;
    // SAFETY: plain integers and structs that live through the calls; there is one thread, so the child may go on as the parent would.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGCHLD);
        for signal in ending() {
            libc::sigaddset(&raw mut signals, signal);
        }
        // Held back from here on, so that one that comes before the worker is known is not lost.
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, &raw mut before) != 0 {
            return Err(failed());
        }
        // What the worker leaves behind is ours to wait for.
        if libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) != 0 {
            return Err(failed());
        }
        let parent = libc::getpid();
        match libc::fork() {
            -1 => Err(failed()),
            0 => {
                // A group of its own: Ctrl-C is for the first process, which ends this group.
                libc::setsid();
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                // The parent may have died before prctl.
                if libc::getppid() != parent {
                    libc::_exit(1);
                }
                Ok(Role::Worker)
            }
            worker => Ok(Role::Waiter { worker, signals }),
        }
    }
}

fn wait(program: &str, begun: Instant, worker: libc::pid_t, signals: &libc::sigset_t) -> u8 {
    loop {
        // SAFETY: a set that lives through the call; nothing is wanted but the number.
        let signal = unsafe { libc::sigwaitinfo(signals, std::ptr::null_mut()) };
        if signal == libc::SIGCHLD {
            if let Some(status) = ended(worker) {
                return told(program, status, begun, worker);
            }
        } else if signal > 0 {
            let after = begun.elapsed().as_secs_f64();
            complain(&format!("{program}: interrupted after {after:.0} s; removing what it made …"));
            let left = clean_up(worker);
            complain(&match left {
                Ok(()) => format!("{program}: interrupted; everything removed"),
                Err(why) => format!("{program}: interrupted, and not everything could be removed: {why}"),
            });
            return SIGNALLED + u8::try_from(signal).unwrap_or(0);
        }
    }
}

/// Takes the exit status of every process that ended; that of the worker, if it is one of them.
fn ended(worker: libc::pid_t) -> Option<libc::c_int> {
    let mut of_worker = None;
    loop {
        let mut status = 0;
        // SAFETY: one integer is written.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid == worker {
            of_worker = Some(status);
        }
        if pid <= 0 {
            return of_worker;
        }
    }
}

/// The exit code of a worker that ended by itself. One that was killed could not clean up.
fn told(program: &str, status: libc::c_int, begun: Instant, worker: libc::pid_t) -> u8 {
    if libc::WIFEXITED(status) {
        return u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(1);
    }
    let (signal, after) = (libc::WTERMSIG(status), begun.elapsed().as_secs_f64());
    let why = if signal == libc::SIGKILL {
        "something killed it; the kernel does when memory ends"
    } else {
        "an error of its own"
    };
    let left = match clean_up(worker) {
        Ok(()) => "everything was removed".to_owned(),
        Err(left) => format!("not everything could be removed: {left}"),
    };
    complain(&format!(
        "{program}: ended by signal {signal} after {after:.0} s ({why}); {left}{REMEDY}look into `dmesg`, close what takes memory, and start it again"
    ));
    SIGNALLED + u8::try_from(signal).unwrap_or(0)
}

/// Ends the worker and its group, waits for all that descends from it (its lab's guard among them), and removes what is left then.
fn clean_up(worker: libc::pid_t) -> Result<(), String> {
    // SAFETY: plain integers. The worker is our child and was not waited for, or its group's number is still taken by its members.
    unsafe {
        libc::kill(-worker, libc::SIGKILL);
        libc::kill(worker, libc::SIGKILL);
    }
    let deadline = Instant::now() + ENDS_WITHIN;
    loop {
        // SAFETY: plain integers; the status is not wanted.
        let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
        match pid {
            1.. => {}
            0 if Instant::now() < deadline => {
                end_orphans();
                std::thread::sleep(LOOK_EVERY);
            }
            0 => return Err(format!("a process of it still runs after {} s", ENDS_WITHIN.as_secs())),
            _ => break,
        }
    }
    // A database that was being made for the next lab too; its folder has the maker's pid in its name.
    for entry in std::fs::read_dir(CACHE).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&format!("{BUILDING}{worker}-")) {
            std::fs::remove_dir_all(entry.path())
                .map_err(|error| format!("{}: {error}", entry.path().display()))?;
        }
    }
    reaper::reap_stale().map(drop).map_err(|error| failure::sentence(&error))
}

/// Ends what came to us because its parent ended, and had left the worker's group. The guard ends by itself, when it has cleaned up.
fn end_orphans() {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    for pid in children.split_ascii_whitespace().filter_map(|pid| pid.parse::<libc::pid_t>().ok()) {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if line.split(|byte| *byte == 0).nth(1) != Some(reaper::GUARD.as_bytes()) {
            // SAFETY: plain integers; a child that is not waited for keeps its number.
            let _ = unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}
