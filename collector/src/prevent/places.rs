//! Which tiers stand in the chain of an incident, each calling the next. Owns their order, and how far the chain goes on below the root;
//! knows no number of a window.

use super::seen::Server;
use tailwater_model::incident::{Hop, socket};
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
    /// `address:port` of the next tier as this one dials it; none: it is the last.
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
            workers_limit: hop.workers_limit,
            backlog: hop.accept_queue_limit,
            remotes: Vec::new(),
        }
    }

    /// `tomcat10@app-1`, by the name of its workload.
    pub(super) fn name(&self) -> String {
        format!("{}@{}", self.server.workload, self.server.host)
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
    if let Some(hop) = incident.hops.iter().find(|hop| !hop.observed || hop.requests_unknown) {
        return Err(unseen(format!("what {}@{} did", hop.workload, hop.host)));
    }
    let mut places: Vec<Place> = incident.hops.iter().map(Place::of).collect();
    let called = |from: &Place, to: &Place| remotes(topology, from, to);
    let down = |places: &[Place]| places.windows(2).all(|pair| !called(&pair[0], &pair[1]).is_empty());
    if !down(&places) {
        // What stored requests and sent them all at once stands behind the tier that it overflowed.
        places.reverse();
        if !down(&places) {
            return Err(unseen("which tier of the incident calls which".to_owned()));
        }
    }
    for n in 1..places.len() {
        places[n - 1].remotes = called(&places[n - 1], &places[n]);
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

/// Where `from` dials `to`.
fn remotes(topology: &TopologyView, from: &Place, to: &Place) -> Vec<String> {
    let between = topology.edges.iter().filter(|e| {
        from.is(&e.from_host, &e.from_workload)
            && e.to_host.as_deref() == Some(&to.server.host)
            && e.to_workload.as_deref() == Some(&to.server.workload)
    });
    between.map(|e| canonical(&e.remote)).collect()
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
    let below = topology.nodes.iter().filter(|node| !places.iter().any(|p| p.is(&node.host, &node.workload)));
    let with_calls = below.filter_map(|node| {
        let mut place = Place {
            server: Server {
                host: node.host.clone(),
                workload: node.workload.clone(),
                listener: String::new(),
            },
            workers_limit: node.workers_limit,
            backlog: None,
            remotes: Vec::new(),
        };
        let remotes = remotes(topology, last, &place);
        // Which of its listeners that is says the port.
        place.server.listener.clone_from(remotes.first()?);
        let n = calls(&last.server, &remotes);
        (n > 0).then_some((n, place, remotes))
    });
    let busiest = with_calls.max_by_key(|(n, ..)| *n)?;
    Some((busiest.1, busiest.2))
}
