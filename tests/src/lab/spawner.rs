//! Starts the lab's processes in their place (cgroup and network namespace) and makes sure that they die with the lab. Knows nothing
//! of what they are.

use crate::os::cgroup::Cgroup;
use crate::os::netns::NetNs;
use anyhow::{Context, Result};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

type Order = (Command, SyncSender<std::io::Result<Child>>);

/// Starts processes from one thread that lives as long as the lab. The kernel sends a parent-death signal when the *thread*
/// that forked is gone, so a caller's own short-lived thread would take the servers with it.
#[derive(Debug)]
pub struct Spawner {
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Spawner {
    /// Starts the thread.
    pub fn start() -> Result<Self> {
        let (orders, inbox): (SyncSender<Order>, Receiver<Order>) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("lab-spawner".into())
            .spawn(move || {
                for (mut command, answer) in inbox {
                    // A caller that went away does not want the child either; it dies with this thread.
                    let _ = answer.send(command.spawn());
                }
            })
            .context("start the lab's spawner thread")?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Starts `command` inside `cgroup` and `netns`; it receives `death_signal` when the lab's process dies.
    pub fn spawn(
        &self,
        mut command: Command,
        cgroup: &Cgroup,
        netns: Option<&NetNs>,
        death_signal: libc::c_int,
    ) -> Result<Child> {
        let program = command.get_program().to_string_lossy().into_owned();
        let procs = cgroup.procs_files()?;
        let netns = netns.map(|netns| CString::new(netns.path().as_os_str().as_bytes())).transpose()?;
        let parent = std::process::id();
        // SAFETY: between fork and exec only system calls on memory prepared before the fork.
        unsafe {
            command.pre_exec(move || enter(&procs, netns.as_ref(), death_signal, parent));
        }
        let (answer, child) = sync_channel(1);
        self.orders
            .as_ref()
            .context("the lab is stopping")?
            .send((command, answer))
            .ok()
            .context("the lab's spawner thread is gone")?;
        child
            .recv()
            .context("the lab's spawner thread is gone")?
            .with_context(|| format!("start {program} (tests/lab/install.sh installs the lab's software)"))
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.orders.take();
        if let Some(thread) = self.thread.take() {
            // It ends by itself once no orders can come; a panic in it has nothing left to harm.
            let _ = thread.join();
        }
    }
}

fn enter(
    procs: &[CString],
    netns: Option<&CString>,
    death_signal: libc::c_int,
    parent: u32,
) -> std::io::Result<()> {
    let failed = std::io::Error::last_os_error;
    for file in procs {
        // SAFETY: a NUL-terminated path, a one-byte buffer, a descriptor just opened.
        unsafe {
            let fd = libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if fd < 0 || libc::write(fd, c"0".as_ptr().cast(), 1) != 1 {
                return Err(failed());
            }
            libc::close(fd);
        }
    }
    // SAFETY: as above; setsid and prctl take plain integers.
    unsafe {
        if let Some(netns) = netns {
            let fd = libc::open(netns.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if fd < 0 || libc::setns(fd, libc::CLONE_NEWNET) != 0 {
                return Err(failed());
            }
            libc::close(fd);
        }
        // Ctrl-C in the terminal is for the lab, which stops its processes in order.
        libc::setsid();
        if libc::prctl(libc::PR_SET_PDEATHSIG, death_signal) != 0 {
            return Err(failed());
        }
        // The parent may have died before prctl.
        if libc::getppid() != parent as libc::pid_t {
            libc::_exit(1);
        }
    }
    Ok(())
}
