//! The process that goes through other network namespaces in the agent's place, so that CAP_SYS_ADMIN is in no process that reads from the
//! network, or what others wrote. Owns both ends of the socket between the two.
//!
//! It is this program again, with two descriptors: the socket, and the iterator that the agent bound to the sockets of TCP. A question is one byte.
//! An answer is the number of namespaces (u32), the CPU time that the walk took in ns (u64), the length of a text (u16, at most 400) and the
//! text: why not all. All numbers are little-endian. It ends when the socket does.

use crate::attach::iterator::KernelIterator;
use crate::attach::privilege::{self, PrivilegeError};
use crate::clock::timed;
use crate::sample::namespaces::in_every_namespace;
use caps::Capability;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The command that makes this program the helper.
pub const COMMAND: &str = "walk-namespaces";
/// What it is asked.
const WALK: u8 = b'w';
/// Longest text of an answer, bytes.
const TEXT_MAX: usize = 400;
/// A walk through 256 namespaces with all their sockets takes less.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// What it needs beside CAP_SYS_ADMIN, for setns(2): other processes' `/proc/PID/ns/net`, and the iterator.
const NEEDED: [Capability; 4] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_BPF,
];

/// How a walk went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) namespaces: u32,
    /// Why not more.
    pub(super) trouble: Option<String>,
    /// What it took of whoever walked.
    pub(super) cpu_ns: u64,
}

/// The agent's end.
#[derive(Debug)]
pub(super) struct Helper {
    socket: UnixStream,
    child: Child,
}

impl Helper {
    /// Starts `program`, which is this one. `None` where the agent could not enter namespaces either.
    pub(super) fn start(program: &Path, iterator: &KernelIterator) -> std::io::Result<Option<Self>> {
        if !privilege::has(Capability::CAP_SYS_ADMIN) {
            return Ok(None);
        }
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_read_timeout(Some(ANSWERS_WITHIN))?;
        socket.set_write_timeout(Some(ANSWERS_WITHIN))?;
        let mut command = Command::new(program);
        command
            .arg0("tailwater-agent")
            .arg(COMMAND)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(iterator.link()?);
        // Ctrl-C in a terminal is for the agent, which still asks while it ends.
        command.process_group(0).stderr(Stdio::inherit());
        Ok(Some(Self { child: privilege::spawn_with(&NEEDED, &mut command)?, socket }))
    }

    /// Lets it walk once.
    pub(super) fn walk(&mut self) -> Walked {
        self.asked().unwrap_or_else(|error| {
            let ended = self.child.try_wait().ok().flatten();
            let ended = ended.map(|status| format!(" ({status})")).unwrap_or_default();
            let trouble =
                format!("the process that walks network namespaces{ended}: {error}; restart the agent");
            Walked { trouble: Some(trouble), ..Walked::default() }
        })
    }

    fn asked(&mut self) -> std::io::Result<Walked> {
        self.socket.write_all(&[WALK])?;
        read_answer(&mut self.socket)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Its socket ends; in the middle of a walk it would go on to the end of that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_answer(from: &mut impl Read) -> std::io::Result<Walked> {
    let (mut namespaces, mut cpu_ns, mut length) = ([0; 4], [0; 8], [0; 2]);
    from.read_exact(&mut namespaces)?;
    from.read_exact(&mut cpu_ns)?;
    from.read_exact(&mut length)?;
    let length = usize::from(u16::from_le_bytes(length));
    if length > TEXT_MAX {
        return Err(Error::new(ErrorKind::InvalidData, format!("an answer of {length} bytes")));
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(|e| Error::new(ErrorKind::InvalidData, e))?;
    Ok(Walked {
        namespaces: u32::from_le_bytes(namespaces),
        trouble: (!text.is_empty()).then_some(text),
        cpu_ns: u64::from_le_bytes(cpu_ns),
    })
}

fn answer(walked: Walked) -> Vec<u8> {
    let text = walked.trouble.unwrap_or_default();
    let text = &text[..text.floor_char_boundary(TEXT_MAX)];
    let mut bytes = walked.namespaces.to_le_bytes().to_vec();
    bytes.extend(walked.cpu_ns.to_le_bytes());
    bytes.extend(u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// Walks through all network namespaces, from the calling thread.
pub(super) fn walk_all(iterator: &KernelIterator) -> Walked {
    let ((namespaces, trouble), cpu_ns) = timed(|| match iterator.run() {
        Ok(()) => in_every_namespace(&mut |_| iterator.run()),
        Err(error) => (0, Some(format!("tcp iterator: {error}"))),
    });
    Walked { namespaces, trouble, cpu_ns }
}

/// The helper could not begin.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// It was started by somebody else than an agent.
    #[error("{COMMAND} is for the agent's own use: its standard input is the agent's socket: {0}")]
    Socket(Error),
    /// It would have kept more than it needs.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
}

/// The helper: answers until the agent's end of the socket is gone.
pub fn serve() -> Result<(), HelperError> {
    let own = |fd: std::io::Result<OwnedFd>| fd.map_err(HelperError::Socket);
    let mut socket = UnixStream::from(own(std::io::stdin().as_fd().try_clone_to_owned())?);
    socket.peer_addr().map_err(HelperError::Socket)?;
    let iterator = KernelIterator::of_link(own(std::io::stdout().as_fd().try_clone_to_owned())?);
    privilege::drop_unneeded_of_walker()?;
    let mut question = [0];
    while socket.read_exact(&mut question).is_ok() && question == [WALK] {
        if socket.write_all(&answer(walk_all(&iterator))).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reads_back_as_it_was_given_and_a_long_text_is_cut() {
        let of = |namespaces, trouble: Option<&str>| Walked {
            namespaces,
            trouble: trouble.map(str::to_owned),
            cpu_ns: 1 << 40,
        };
        for given in [of(1, None), of(256, Some("more than 256 network namespaces"))] {
            assert_eq!(read_answer(&mut answer(given.clone()).as_slice()).unwrap(), given);
        }
        let long = of(7, Some(&"ä".repeat(TEXT_MAX)));
        let told = read_answer(&mut answer(long).as_slice()).unwrap();
        assert_eq!(told, of(7, Some(&"ä".repeat(TEXT_MAX / 2))));
    }

    #[test]
    fn what_is_no_answer_is_an_error_and_takes_no_memory() {
        for end in [&b""[..], &[5, 0, b'a'], &[0xFF, 0xFF], &[1, 0, 0xFF]] {
            let wrong = [&b"\x01\0\0\0\x09\0\0\0\0\0\0\0"[..], end].concat();
            assert!(read_answer(&mut wrong.as_slice()).is_err(), "{wrong:?}");
        }
        assert!(read_answer(&mut &b"\x01\0\0\0\x09"[..]).is_err());
    }

    #[test]
    fn a_helper_that_dies_is_told() {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let child = Command::new("/bin/true").stdin(OwnedFd::from(theirs)).spawn().unwrap();
        let mut helper = Helper { socket, child };
        helper.child.wait().unwrap();
        let walked = helper.walk();
        let trouble = walked.trouble.unwrap();
        assert!(walked.namespaces == 0 && trouble.contains("restart the agent"), "{trouble}");
    }
}
