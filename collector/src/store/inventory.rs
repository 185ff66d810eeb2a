//! What was there by name, for as long as it was: hosts, their workloads and listeners, and tiers. Knows neither disk nor time.

use std::collections::BTreeMap;
use tailwater_model::TopologyView;
use tailwater_model::names::Names;
use tailwater_model::names::Seen;

/// Everything known by name of the hosts of `spans` (first and last moment, Unix ns).
pub(super) fn seen(
    spans: &BTreeMap<String, (u64, u64)>,
    names: &BTreeMap<String, Names>,
    view: &TopologyView,
) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (host, (first_unix_ns, last_unix_ns)) in spans {
        let mut saw = |kind: &str, name: String, detail: String| {
            seen.push(Seen {
                kind: kind.to_owned(),
                host: host.clone(),
                name,
                detail,
                first_unix_ns: *first_unix_ns,
                last_unix_ns: *last_unix_ns,
            });
        };
        saw("host", host.clone(), String::new());
        let Some(names) = names.get(host) else { continue };
        for w in names.workloads.values().filter(|w| !w.name.is_empty()) {
            saw("workload", w.name.clone(), w.cgroup.clone());
        }
        for l in names.listeners.values() {
            let workload = names.workloads.get(&l.workload).map_or("", |w| w.name.as_str());
            saw("listener", std::net::SocketAddr::new(l.address, l.port).to_string(), workload.to_owned());
        }
    }
    for node in view.nodes.iter().filter(|n| !n.tier.is_empty()) {
        let Some((first_unix_ns, last_unix_ns)) = spans.get(&node.host) else { continue };
        seen.push(Seen {
            kind: "tier".to_owned(),
            host: node.host.clone(),
            name: node.tier.clone(),
            detail: node.workload.clone(),
            first_unix_ns: *first_unix_ns,
            last_unix_ns: *last_unix_ns,
        });
    }
    seen
}
