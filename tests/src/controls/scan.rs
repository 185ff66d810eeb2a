//! A port scan: a TCP connect to port after port of every host. Nearly all are answered with a reset.

use anyhow::Result;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Waits no longer for an answer; within the lab it comes in microseconds.
const ANSWER_WITHIN: Duration = Duration::from_millis(50);

/// Tries the ports from 1 on, until the time is over. From a thread inside the scanning namespace.
pub(crate) fn scan(hosts: &[Ipv4Addr], duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    for port in (1..=u16::MAX).cycle() {
        for host in hosts {
            // Open ports are closed again at once, closed ones refuse: both are what a scan does.
            drop(TcpStream::connect_timeout(&SocketAddr::from((*host, port)), ANSWER_WITHIN));
        }
        // Some thousand ports a second.
        if port % 64 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        if Instant::now() > end {
            break;
        }
    }
    Ok(())
}
