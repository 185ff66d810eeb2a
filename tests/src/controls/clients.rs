//! Clients with bad manners: some never read what they asked for, some send and read a few bytes at a time. Few enough that the servers
//! have room for them.

use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const REQUEST: &[u8] = b"GET /story?id=7 HTTP/1.1\r\nHost: lab\r\nConnection: keep-alive\r\n\r\n";

fn connect(server: SocketAddr) -> Result<TcpStream> {
    let client = TcpStream::connect_timeout(&server, Duration::from_secs(3)).context("a control's client")?;
    client.set_nonblocking(true)?;
    Ok(client)
}

/// A server that closes on such a client is in its right; the client comes again.
fn went(result: std::io::Result<usize>) -> bool {
    match result {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Asks again and again on connections whose answers are never read, until neither side has room.
pub(super) fn never_read(server: SocketAddr, count: usize, duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    let mut clients: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
    while Instant::now() < end {
        for client in &mut clients {
            match client {
                Some(stream) => {
                    if went(stream.write(REQUEST)) {
                        *client = None;
                    }
                }
                None => *client = Some(connect(server)?),
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Sends requests seven bytes at a time and reads their answers 200 bytes at a time, every 50 ms.
pub(crate) fn slow(server: SocketAddr, count: usize, duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    let mut clients: Vec<Option<(TcpStream, usize)>> = (0..count).map(|_| None).collect();
    let mut buffer = [0; 200];
    while Instant::now() < end {
        for client in &mut clients {
            match client {
                Some((stream, sent)) if *sent < REQUEST.len() => {
                    let until = (*sent + 7).min(REQUEST.len());
                    if went(stream.write(&REQUEST[*sent..until])) {
                        *client = None;
                    } else {
                        *sent = until;
                    }
                }
                Some((stream, sent)) => {
                    let read = stream.read(&mut buffer);
                    if matches!(read, Ok(read) if read < buffer.len()) {
                        // The end of an answer.
                        *sent = 0;
                    }
                    if went(read) {
                        *client = None;
                    }
                }
                None => *client = Some((connect(server)?, 0)),
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
