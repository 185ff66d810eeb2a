//! What goes on in every data centre and is no incident, done to a graph while nothing is injected: which is done when. Pure; the doing is `world`'s.

use crate::graph::part::{Protocol, Runtime};
use crate::graph::plan::Graph;
use std::time::Duration;

/// Each takes so long …
pub const TAKES: Duration = Duration::from_secs(6);
/// … and the next begins so much later.
pub const REST: Duration = Duration::from_secs(4);

/// Kinds of it.
pub const KINDS: usize = 6;

/// Something that must not be mistaken for an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benign {
    /// Every service that speaks HTTP is asked from outside, as health checks do.
    HealthChecks,
    /// A job takes a tenth of a host's CPU, at the lowest weight.
    Cron {
        /// Index of the host.
        host: usize,
    },
    /// Port after port of every host is tried.
    Scan,
    /// Two of a hundred packets that a service sends for one of its calls are lost.
    Loss {
        /// Index of the service.
        service: usize,
        /// Index of the call.
        call: usize,
    },
    /// Clients of the entry send and read a few bytes at a time.
    SlowClients,
    /// A server takes up its settings anew, and serves on with other workers, as in a deploy.
    Reload {
        /// Index of the service.
        service: usize,
    },
}

impl Benign {
    /// Name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Benign::HealthChecks => "health checks",
            Benign::Cron { .. } => "a job at the lowest weight",
            Benign::Scan => "a port scan",
            Benign::Loss { .. } => "a link that loses 2 % of its packets",
            Benign::SlowClients => "slow clients",
            Benign::Reload { .. } => "new workers of a server",
        }
    }

    /// What is done to a graph, one after the other, over and over: hosts, links and servers take turns, and each graph begins with another of them.
    pub fn all(graph: &Graph) -> impl Iterator<Item = Benign> + '_ {
        let reloads: Vec<usize> =
            (0..graph.services.len()).filter(|of| can_reload(graph.services[*of].runtime)).collect();
        let calls =
            |service: usize| (0..graph.services[service].calls.len()).map(move |call| (service, call));
        let away = |(service, call): &(usize, usize)| {
            let of = &graph.services[*service];
            graph.services[of.calls[*call].to].host != of.host
        };
        let links: Vec<(usize, usize)> = (0..graph.services.len()).flat_map(calls).filter(away).collect();
        let begin = graph.seed as usize % 1_000;
        (begin..)
            .flat_map(move |round: usize| {
                let reload = reloads
                    .get(round % reloads.len().max(1))
                    .map(|service| Benign::Reload { service: *service });
                let loss = links
                    .get(round % links.len().max(1))
                    .map(|(service, call)| Benign::Loss { service: *service, call: *call });
                let cron = Benign::Cron { host: round % graph.hosts.len() };
                [
                    Some(Benign::HealthChecks),
                    Some(cron),
                    Some(Benign::Scan),
                    Some(Benign::SlowClients),
                    loss,
                    reload,
                ]
                .into_iter()
                .flatten()
            })
            .skip(begin % KINDS)
    }
}

/// Whether a server takes other workers at SIGHUP, without a gap: HAProxy in one process does not, and Apache with one child leaves a gap of a second.
#[must_use]
fn can_reload(runtime: Runtime) -> bool {
    runtime == Runtime::Nginx
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
            .find(|graph| graph.services.iter().filter(|of| can_reload(of.runtime)).count() > 1);
        let graph = graph.expect("a graph with two servers that can");
        let all: Vec<Benign> = Benign::all(&graph).take(KINDS * (graph.hosts.len().max(2) + 1)).collect();
        for host in 0..graph.hosts.len() {
            assert!(all.contains(&Benign::Cron { host }));
        }
        let reloaded = |of: &&Benign| matches!(of, Benign::Reload { .. });
        assert!(all.iter().filter(reloaded).collect::<Vec<_>>().windows(2).all(|two| two[0] != two[1]));
        assert!(all.contains(&Benign::HealthChecks) && all.contains(&Benign::Scan));
        assert!(all.iter().any(|of| matches!(of, Benign::Loss { .. })));
        assert!(checked(&graph).next() == Some(0));
    }

    #[test]
    fn a_graph_without_such_servers_has_none_of_them_done() {
        let mut graph = Graph::of(1, 2);
        graph.services.iter_mut().for_each(|of| of.runtime = Runtime::Threads);
        assert!(Benign::all(&graph).take(50).all(|of| !matches!(of, Benign::Reload { .. })));
    }
}
