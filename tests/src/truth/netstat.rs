//! Counters of a network namespace, by name, from `/proc/thread-self/net/netstat` of a thread inside it.

use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The four counters that the truth is made of, since the namespace exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// `ListenOverflows`: packets refused because an accept queue was full, each once.
    pub listen_overflows: u64,
    /// `ListenDrops`: those and other packets refused by listeners, each once; of all listeners of the namespace together.
    pub listen_drops: u64,
    /// `TCPDeferAcceptDrop`: bare ACKs that a deferring listener discards on purpose. Not drops, but in `sk_drops`.
    pub deferred_acks: u64,
    /// `TCPSynRetrans`: connection attempts sent again from inside.
    pub syn_retransmits: u64,
}

/// An open counter file.
#[derive(Debug)]
pub struct Netstat {
    file: File,
    text: Vec<u8>,
}

impl Netstat {
    /// Opens the file of the namespace that this thread is in.
    pub fn open() -> Result<Self> {
        // The thread's own view: /proc/net would be that of the process, which may be elsewhere.
        let file =
            File::open("/proc/thread-self/net/netstat").context("open /proc/thread-self/net/netstat")?;
        Ok(Self { file, text: vec![0; 16 << 10] })
    }

    /// Reads the counters.
    pub fn read(&mut self) -> Result<Counters> {
        let mut length = 0;
        loop {
            match self.file.read_at(&mut self.text[length..], length as u64)? {
                0 => break,
                more => length += more,
            }
        }
        parse(std::str::from_utf8(&self.text[..length])?)
    }
}

fn parse(text: &str) -> Result<Counters> {
    let value = |key| value(text, key);
    Ok(Counters {
        listen_overflows: value("ListenOverflows")?,
        listen_drops: value("ListenDrops")?,
        deferred_acks: value("TCPDeferAcceptDrop")?,
        syn_retransmits: value("TCPSynRetrans")?,
    })
}

/// A value of the `TcpExt:` pair of lines.
fn value(netstat: &str, key: &str) -> Result<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = lines.next().unwrap_or_default().split(' ');
    let values = lines.next().unwrap_or_default().split(' ');
    names
        .zip(values)
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.parse().ok())
        .with_context(|| format!("netstat has no {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name_and_a_missing_one_is_an_error() {
        let text = "TcpExt: A ListenDrops ListenOverflows TCPDeferAcceptDrop TCPSynRetrans\nTcpExt: 9 2 1 3 4\nIpExt: A\nIpExt: 9\n";
        let counters = parse(text).unwrap();
        assert_eq!(
            counters,
            Counters { listen_overflows: 1, listen_drops: 2, deferred_acks: 3, syn_retransmits: 4 }
        );
        assert!(parse("TcpExt: ListenDrops\nTcpExt: 1\n").is_err());
    }

    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: A ListenOverflows ListenDrops\nTcpExt: 1 22 33\nIpExt: A\nIpExt: 9\n";
        assert_eq!(value(text, "ListenOverflows").unwrap(), 22);
        assert_eq!(value(text, "ListenDrops").unwrap(), 33);
        assert!(value(text, "Missing").is_err());
    }
}
