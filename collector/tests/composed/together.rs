//! Recordings of several systems as one of all of them: hosts, machines and addresses of each its own, and what was injected begins in all of
//! them at the same time. Owns what tells them apart; of which recordings, and what is told of them, is the caller's.

use crate::compose::{Truth, host_of};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tailwater_model::window::{HostInfo, Input, WINDOW_NS, WindowIndex};

/// The name of a host of the system with that number.
pub(crate) fn host(name: &str, system: usize) -> String {
    format!("{name}.{system}")
}

/// The inputs of all, in the order of time. Ticks say what time it is: whatever stands between two of them came then.
pub(crate) fn together(systems: &[(Vec<Input>, Truth)]) -> Vec<Input> {
    let begun = |truth: &Truth| WindowIndex::at(truth.during.0).0;
    let latest = systems.iter().map(|(_, truth)| begun(truth)).max().unwrap_or(0);
    let mut all: Vec<(u64, Input)> = Vec::new();
    for (number, (inputs, truth)) in systems.iter().enumerate() {
        let mut now = 0;
        for input in inputs {
            let input = apart(input, number, latest - begun(truth));
            if let Input::Tick { unix_ns } = input {
                now = unix_ns;
            }
            all.push((now, input));
        }
    }
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, input)| input).collect()
}

/// The inputs of one with that number, by itself.
pub(crate) fn alone((inputs, _): &(Vec<Input>, Truth), system: usize) -> Vec<Input> {
    inputs.iter().map(|input| apart(input, system, 0)).collect()
}

/// An input of the system with that number, so many windows later.
fn apart(input: &Input, system: usize, later: u64) -> Input {
    let mut input = input.clone();
    let by = later * WINDOW_NS;
    let name = host_of(&input).map(|name| host(name, system));
    let name = name.unwrap_or_default();
    match &mut input {
        Input::Host(HostInfo { host, machine, addresses, .. }) => {
            *host = name;
            // What is not known stays so.
            if !machine.is_empty() {
                *machine = format!("{machine}.{system}");
            }
            addresses.iter_mut().for_each(|address| *address = moved(*address, system));
        }
        Input::Entities { host, listeners, edges, .. } => {
            *host = name;
            listeners.iter_mut().for_each(|of| of.address = moved(of.address, system));
            edges.iter_mut().for_each(|of| of.remote_address = moved(of.remote_address, system));
        }
        Input::Gone { host, .. } => *host = name,
        Input::Window(window) => {
            let window = Arc::make_mut(window);
            (window.host, window.index.0) = (name, window.index.0 + later);
            for edge in window.edges.values_mut().filter(|edge| edge.first_try_unix_ns > 0) {
                edge.first_try_unix_ns += by;
            }
            window.meetings.iter_mut().for_each(|meeting| meeting.pair ^= (system as u64) << 48);
        }
        Input::States(states) => (states.host, states.last.0) = (name, states.last.0 + later),
        Input::Shares(shares) => (shares.host, shares.last.0) = (name, shares.last.0 + later),
        Input::Drop(notice) => (notice.host, notice.unix_ns) = (name, notice.unix_ns + by),
        Input::Tick { unix_ns } => *unix_ns += by,
    }
    input
}

/// An address in the network of that system; what every machine has for itself stays what it is.
fn moved(address: IpAddr, system: usize) -> IpAddr {
    match address {
        IpAddr::V4(v4) if !v4.is_loopback() && !v4.is_unspecified() => {
            let [a, b, c, d] = v4.octets();
            Ipv4Addr::new(a, b.wrapping_add(system as u8), c, d).into()
        }
        other => other,
    }
}
