//! The process that renews this agent's certificate: this program again, started before the agent gives up writing files. Owns its start and its
//! end; a failed renewal is its own log's.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends with the agent, however that ends: its standard input is a pipe whose other end only the agent has. A signal would not do: an agent that
/// root started has left root by then, and may send none to what still is root's.
#[derive(Debug)]
pub(super) struct Renewer(Child);

impl Renewer {
    /// Starts `program`, which is this one.
    pub(super) fn start(program: &str, identity: &Path) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg0("tailwater-agent").args(["renew", "--keep", "--with-input", "--identity"]).arg(identity);
        // Ctrl-C in a terminal is for the agent, which ends it.
        command.env_clear().process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().map(Self)
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        // Nobody waits for it: it may be writing to a disk that does not answer, and the agent ends anyway.
        drop(self.0.stdin.take());
    }
}
