//! What goes on in every data centre and is no incident, done to a graph while nothing is injected: which is done when. Pure; the doing is `world`'s.

use crate::graph::part::{Protocol, Runtime};
use crate::graph::plan::Graph;
use std::time::Duration;

/// Each takes so long …
pub const TAKES: Duration = Duration::from_secs(6);
/// … and the next begins so much later.
pub const REST: Duration = Duration::from_secs(4);

/// Something that must not be mistaken for an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Everyday {
    /// Every service that speaks HTTP is asked from outside, as health checks do.
    HealthChecks,
    /// A job takes all CPU that a host has left, at the lowest weight.
    Cron {
        /// Index of the host.
        host: usize,
    },
    /// Port after port of every host is tried.
    Scan,
    /// Clients of the entry send and read a few bytes at a time.
    SlowClients,
    /// A server takes up its settings anew, and serves on with other workers, as in a deploy.
    Reload {
        /// Index of the service.
        service: usize,
    },
}

impl Everyday {
    /// Name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Everyday::HealthChecks => "health checks",
            Everyday::Cron { .. } => "a job at the lowest weight",
            Everyday::Scan => "a port scan",
            Everyday::SlowClients => "slow clients",
            Everyday::Reload { .. } => "new workers of a server",
        }
    }

    /// What is done to a graph, one after the other, over and over: hosts and servers take turns.
    pub fn all(graph: &Graph) -> impl Iterator<Item = Everyday> + '_ {
        let reloads: Vec<usize> = (0..graph.services.len())
            .filter(|of| reload_signal(graph.services[*of].runtime).is_some())
            .collect();
        (0..).flat_map(move |round: usize| {
            let reload = reloads
                .get(round % reloads.len().max(1))
                .map(|service| Everyday::Reload { service: *service });
            let cron = Everyday::Cron { host: round % graph.hosts.len() };
            [
                Some(Everyday::HealthChecks),
                Some(cron),
                Some(Everyday::Scan),
                Some(Everyday::SlowClients),
                reload,
            ]
            .into_iter()
            .flatten()
        })
    }
}

/// The signal by which a server takes other workers without a gap. HAProxy in one process has none.
#[must_use]
pub fn reload_signal(runtime: Runtime) -> Option<libc::c_int> {
    match runtime {
        Runtime::Nginx => Some(libc::SIGHUP),
        Runtime::Apache => Some(libc::SIGUSR1),
        _ => None,
    }
}

/// Services that are asked by health checks.
pub fn checked(graph: &Graph) -> impl Iterator<Item = usize> + '_ {
    (0..graph.services.len()).filter(|of| graph.services[*of].runtime.protocol() == Protocol::Http)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_done_and_hosts_and_servers_take_turns() {
        let graph = (0..100)
            .map(|seed| Graph::of(seed, 2))
            .find(|graph| graph.services.iter().filter(|of| reload_signal(of.runtime).is_some()).count() > 1);
        let graph = graph.expect("a graph with two servers that can");
        let all: Vec<Everyday> = Everyday::all(&graph).take(5 * graph.hosts.len().max(2)).collect();
        for host in 0..graph.hosts.len() {
            assert!(all.contains(&Everyday::Cron { host }));
        }
        let reloaded = |of: &&Everyday| matches!(of, Everyday::Reload { .. });
        assert!(all.iter().filter(reloaded).collect::<Vec<_>>().windows(2).all(|two| two[0] != two[1]));
        assert!(all.contains(&Everyday::HealthChecks) && all.contains(&Everyday::Scan));
        assert!(checked(&graph).next() == Some(0));
    }

    #[test]
    fn a_graph_without_such_servers_has_none_of_them_done() {
        let mut graph = Graph::of(1, 2);
        graph.services.iter_mut().for_each(|of| of.runtime = Runtime::Threads);
        assert!(Everyday::all(&graph).take(50).all(|of| !matches!(of, Everyday::Reload { .. })));
    }
}
