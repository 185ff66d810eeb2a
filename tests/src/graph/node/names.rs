//! The server of names of a graph's host, which takes orders as a service does: while its lock is held it answers nobody.

use super::control::{self, Order};
use crate::lab::Span;
use crate::names;
use crate::os::clock::unix_ns;
use anyhow::{Context, Result, bail};
use std::net::Ipv4Addr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Where the services of its host ask it.
pub const SERVER: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Answers until standard input ends.
pub fn serve() -> Result<()> {
    let socket = names::open(SERVER)?;
    let held = Arc::new(RwLock::new(()));
    let answered_under = Arc::clone(&held);
    let answers = move || {
        if let Err(error) = names::serve(&socket, &answered_under) {
            eprintln!("graphnode: {error:#}");
            std::process::exit(1);
        }
    };
    std::thread::Builder::new().name("names".into()).spawn(answers).context("start a thread")?;
    control::ready();
    control::obey(|order| {
        let Order::Lock { ms } = order else { bail!("a server of names is only locked") };
        let start_unix_ns = unix_ns();
        let _held = held.write().unwrap_or_else(PoisonError::into_inner);
        std::thread::sleep(Duration::from_millis(ms));
        Ok(Span { start_unix_ns, end_unix_ns: unix_ns() })
    })
}
