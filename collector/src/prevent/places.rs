//! Which tiers stand in the chain of an incident, each calling the next. Owns their order, and how far the chain goes on below the root;
//! knows no number of a window.

use super::seen::Server;
use std::collections::BTreeSet;
use tailwater_model::incident::{Hop, socket};
use tailwater_model::place::place;
use tailwater_model::topology::NodeView;
use tailwater_model::{Incident, TopologyView};
use tailwater_sizing::evidence::Refusal;

/// Tiers below the root that are looked at: a queue that moves there must be seen to.
const BELOW_MAX: usize = 2;

/// A tier of the chain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) server: Server,
    /// As it was read or learnt.
    pub(super) workers_limit: Option<u32>,
    /// Of its accept queue.
    pub(super) backlog: Option<u32>,
    /// Its tier, and how many servers of that the tier above calls.
    pub(super) tier: String,
    pub(super) servers: usize,
    /// `address:port` of all servers of the next tier as this one dials them; none: it is the last.
    pub(super) remotes: Vec<String>,
}

impl Place {
    fn of(hop: &Hop) -> Self {
        Self {
            server: Server {
                host: hop.host.clone(),
                workload: hop.workload.clone(),
                listener: hop.listener.clone(),
            },
            tier: hop.tier.clone(),
            servers: 1,
            workers_limit: hop.workers_limit,
            backlog: hop.accept_queue_limit,
            remotes: Vec::new(),
        }
    }

    /// `tomcat10.service@app-1`, by the name of its workload.
    pub(super) fn name(&self) -> String {
        place(&self.server.workload, &self.server.host).to_string()
    }

    pub(super) fn is(&self, host: &str, workload: &str) -> bool {
        self.server.host == host && self.server.workload == workload
    }
}

/// The tiers of `incident`, from the one that is called by none of the others. `calls` says how many calls a server made to a place.
pub(super) fn places(
    incident: &Incident,
    topology: &TopologyView,
    calls: impl Fn(&Server, &[String]) -> u64,
) -> Result<Vec<Place>, Refusal> {
    let unseen = |what: String| Refusal::NotSeen { what };
    if let Some(hop) =
        incident.hops.iter().find(|hop| !hop.observed || hop.requests_unknown || hop.connections_only)
    {
        return Err(unseen(format!("what {} did", hop.place())));
    }
    let mut places: Vec<Place> = incident.hops.iter().map(Place::of).collect();
    let down = |places: &[Place]| places.windows(2).all(|pair| calls_it(topology, &pair[0], &pair[1]));
    if !down(&places) {
        // What stored requests and sent them all at once stands behind the tier that it overflowed.
        places.reverse();
        if !down(&places) {
            return Err(unseen("which tier of the incident calls which".to_owned()));
        }
    }
    for n in 1..places.len() {
        (places[n - 1].remotes, places[n].servers) = remotes(topology, &places[n - 1], &places[n]);
    }
    for _ in 0..BELOW_MAX {
        let Some(last) = places.last() else { break };
        let Some((next, remotes)) = busiest_below(topology, &places, last, &calls) else { break };
        if let Some(last) = places.last_mut() {
            last.remotes = remotes;
        }
        places.push(next);
    }
    Ok(places)
}

fn calls_it(topology: &TopologyView, from: &Place, to: &Place) -> bool {
    let is = |host: &Option<String>, workload: &Option<String>| {
        host.as_deref().zip(workload.as_deref()).is_some_and(|(host, workload)| to.is(host, workload))
    };
    let mut own = topology.edges.iter().filter(|e| from.is(&e.from_host, &e.from_workload));
    own.any(|e| is(&e.to_host, &e.to_workload))
}

/// Where `from` dials the servers of the tier of `to`, and how many they are.
fn remotes(topology: &TopologyView, from: &Place, to: &Place) -> (Vec<String>, usize) {
    let mut servers = BTreeSet::new();
    let mut remotes = Vec::new();
    for edge in topology.edges.iter().filter(|e| from.is(&e.from_host, &e.from_workload)) {
        let Some((host, workload)) = edge.to_host.as_ref().zip(edge.to_workload.as_ref()) else { continue };
        let twin = |n: &NodeView| n.tier == to.tier && n.host == *host && n.workload == *workload;
        if to.is(host, workload) || topology.nodes.iter().any(twin) {
            servers.insert((host, workload));
            remotes.push(canonical(&edge.remote));
        }
    }
    // Edges stand by what they dial, and those to one address after another.
    remotes.dedup();
    (remotes, servers.len().max(1))
}

/// As [`socket`] writes it.
fn canonical(remote: &str) -> String {
    remote.parse::<std::net::SocketAddr>().map_or_else(|_| remote.to_owned(), |a| socket(a.ip(), a.port()))
}

/// The tier that `last` calls most, of those that are observed and not in the chain yet.
fn busiest_below(
    topology: &TopologyView,
    places: &[Place],
    last: &Place,
    calls: impl Fn(&Server, &[String]) -> u64,
) -> Option<(Place, Vec<String>)> {
    // A server beside one of the chain is called by the same, not by it.
    let below = topology.nodes.iter().filter(|node| !places.iter().any(|p| p.tier == node.tier));
    let with_calls = below.filter_map(|node| {
        let mut place = Place {
            server: Server {
                host: node.host.clone(),
                workload: node.workload.clone(),
                listener: String::new(),
            },
            tier: node.tier.clone(),
            servers: 1,
            workers_limit: node.workers_limit,
            backlog: None,
            remotes: Vec::new(),
        };
        let (remotes, servers) = remotes(topology, last, &place);
        // Which of its listeners that is says the port.
        place.server.listener.clone_from(remotes.first()?);
        place.servers = servers;
        let n = calls(&last.server, &remotes);
        (n > 0).then_some((n, place, remotes))
    });
    let busiest = with_calls.max_by_key(|(n, ..)| *n)?;
    Some((busiest.1, busiest.2))
}
