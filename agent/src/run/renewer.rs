//! The process that renews this agent's certificate: this program again, started before the agent gives up writing files. Owns its start and its
//! end; a failed renewal is its own log's.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends with the agent.
#[derive(Debug)]
pub(super) struct Renewer(Child);

impl Renewer {
    /// Starts `program`, which is this one.
    pub(super) fn start(program: &str, identity: &Path) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg0("tailwater-agent").args(["renew", "--keep", "--identity"]).arg(identity);
        // Ctrl-C in a terminal is for the agent, which ends it.
        command.env_clear().process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: prctl is async-signal-safe and touches nothing of the parent.
        unsafe {
            command.pre_exec(|| {
                // An agent that is killed takes it along.
                let signal = rustix::process::Signal::TERM;
                Ok(rustix::process::set_parent_process_death_signal(Some(signal))?)
            });
        }
        command.spawn().map(Self)
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
