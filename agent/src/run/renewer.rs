//! The process that renews this agent's certificate, and joins anew where it is good for nothing any more: this program again, started before the agent
//! gives up writing files. Owns its start, its end and what it is told; what becomes of it is its own log's.

use crate::config::Join;
use std::io::{Error, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends with the agent, however that ends: its standard input is a pipe whose other end only the agent has. A signal would not do: an agent that
/// root started has left root by then, and may send none to what still is root's.
#[derive(Debug)]
pub(super) struct Renewer(Child);

impl Renewer {
    /// Starts `program`, which is this one.
    pub(super) fn start(program: &str, identity: &Path, join: Option<&Join>) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg0("tailwater-agent").args(["renew", "--keep", "--with-input", "--identity"]).arg(identity);
        if let Some(join) = join {
            command.arg("--join-token-file").arg(&join.token_file);
            if let Some(ca) = &join.ca {
                command.arg("--join-ca").arg(ca);
            }
        }
        // Ctrl-C in a terminal is for the agent, which ends it.
        command.env_clear().process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn()?;
        if let Some(input) = &child.stdin {
            // The agent waits for nobody who does not read.
            rustix::io::ioctl_fionbio(input, true)?;
        }
        Ok(Self(child))
    }

    /// That the collector refuses this machine's certificate, or shows one of an authority that is not known here.
    pub(super) fn certificate_refused(&self) {
        if let Some(mut input) = self.0.stdin.as_ref() {
            // A byte, whatever it is. One that does not fit follows many that were not read; and where nobody reads any more, nobody can do anything.
            let _ = input.write_all(b"r");
        }
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        // Nobody waits for it: it may be writing to a disk that does not answer, and the agent ends anyway.
        drop(self.0.stdin.take());
    }
}
