//! Names for experiments: a server of names that can be held up, and a process that asks no other one. Knows nobody who asks.

use anyhow::{Context, Result, ensure};
use std::ffi::CString;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// The port of such servers (RFC 1035, 4.2.1).
pub const PORT: u16 = 53;
/// What every name is resolved to.
const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Bytes of a message's header.
const HEADER: usize = 12;
/// Of a question: that it is for an IPv4 address.
const TYPE_A: [u8; 2] = [0, 1];

/// Answers queries for as long as the process runs, each under `held`, which whoever holds it for writing keeps it from doing: what comes meanwhile
/// waits in the socket's buffer, and is answered then.
pub fn serve(socket: &UdpSocket, held: &RwLock<()>) -> Result<()> {
    let mut query = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut query).context("receive a query")?;
        drop(held.read().unwrap_or_else(PoisonError::into_inner));
        if let Some(answer) = answer(&query[..length]) {
            // Who asked may be gone.
            let _ = socket.send_to(&answer, from);
        }
    }
}

/// Opens the socket of such a server.
pub fn open(address: Ipv4Addr) -> Result<UdpSocket> {
    let at = SocketAddrV4::new(address, PORT);
    UdpSocket::bind(at).with_context(|| format!("bind {at}"))
}

/// The answer to a query with one question (RFC 1035, 4.1); `None`: it is none.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let (header, rest) = query.split_at_checked(HEADER)?;
    // The name ends with a label of length 0.
    let name = rest.iter().position(|byte| *byte == 0)? + 1;
    let question = rest.get(..name + 4)?;
    let is_for_v4 = question.get(name..name + 2)? == TYPE_A;
    let mut answer = header[..2].to_vec();
    // An answer, for which recursion was asked and is available; one question, and one record of whoever asked for an IPv4 address.
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_for_v4), 0, 0, 0, 0]);
    answer.extend(question);
    if is_for_v4 {
        // The question's name, type A, class IN, kept for no time, four bytes.
        answer.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(ADDRESS.octets());
    }
    Some(answer)
}

/// From here on this thread, and those that it starts, resolve names by that server alone: has `/etc/resolv.conf` be another file in a mount namespace of
/// its own. Needs root.
///
/// # Errors
/// There is no `/etc/resolv.conf`, or mounting is refused.
pub fn ask_only(server: Ipv4Addr, folder: &Path) -> Result<()> {
    const CONFIGURATION: &str = "/etc/resolv.conf";
    let file = folder.join("resolv.conf");
    std::fs::write(&file, format!("nameserver {server}\n"))
        .with_context(|| format!("write {}", file.display()))?;
    let (from, to) = (CString::new(file.as_os_str().as_bytes())?, CString::new(CONFIGURATION)?);
    // SAFETY: a plain integer.
    let failed = unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0;
    ensure!(!failed, "a mount namespace of its own: {}", std::io::Error::last_os_error());
    let mount = |from: Option<&CString>, to: &CString, flags| {
        let from = from.map_or(std::ptr::null(), |from| from.as_ptr());
        // SAFETY: texts that end with a zero and outlive the call; neither a type nor options.
        unsafe { libc::mount(from, to.as_ptr(), std::ptr::null(), flags, std::ptr::null()) == 0 }
    };
    let private = mount(None, &CString::new("/")?, libc::MS_REC | libc::MS_PRIVATE);
    ensure!(private, "keep mounts apart: {}", std::io::Error::last_os_error());
    let bound = mount(Some(&from), &to, libc::MS_BIND);
    ensure!(bound, "mount on {CONFIGURATION}: {}", std::io::Error::last_os_error());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_version_4_is_answered_and_of_version_6_there_is_none() {
        let query = |kind: u8| {
            let mut query = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            query.extend(b"\x01a\x04test\x00");
            query.extend([0, kind, 0, 1]);
            query
        };
        let v4 = answer(&query(1)).unwrap();
        assert_eq!(
            (&v4[..8], &v4[v4.len() - 4..]),
            (&[7, 9, 0x81, 0x80, 0, 1, 0, 1][..], &[127, 0, 0, 1][..])
        );
        let v6 = answer(&query(28)).unwrap();
        assert_eq!((v6[7], v6.len()), (0, query(28).len()));
        for none in [&query(1)[..11], &query(1)[..16], &query(1)[..20], &[]] {
            assert_eq!(answer(none), None, "{none:?}");
        }
    }
}
