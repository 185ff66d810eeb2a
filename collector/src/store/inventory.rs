//! What was there by name, for as long as it was: hosts, their workloads and listeners, and tiers. Knows neither disk nor time.

use crate::live::series::Departed;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tailwater_model::TopologyView;
use tailwater_model::names::Names;
use tailwater_model::names::Seen;
use tailwater_model::topology::NodeView;
use tailwater_model::window::{EntityId, ListenerInfo, WindowIndex};

/// Where it listens, as it was written from the first version on.
fn listening(l: &ListenerInfo) -> String {
    l.path.clone().unwrap_or_else(|| std::net::SocketAddr::new(l.address, l.port).to_string())
}

/// Everything known by name of the hosts of `spans` (first and last moment, Unix ns), as far as it was there then.
pub(super) fn seen(
    spans: &BTreeMap<String, (u64, u64)>,
    names: &BTreeMap<String, Arc<Names>>,
    gone: &BTreeMap<String, Departed>,
    view: &TopologyView,
) -> Vec<Seen> {
    let mut seen: Vec<Seen> = Vec::new();
    for (host, (first_unix_ns, last_unix_ns)) in spans {
        let mut saw = |kind: &str, name: String, detail: String, gone: Option<&WindowIndex>| {
            let last_unix_ns = gone.map_or(*last_unix_ns, |gone| gone.end_unix_ns().min(*last_unix_ns));
            // Of what went before the first of these windows only the name is there still.
            if last_unix_ns >= *first_unix_ns {
                let (kind, host, first_unix_ns) = (kind.to_owned(), host.clone(), *first_unix_ns);
                seen.push(Seen { kind, host, name, detail, first_unix_ns, last_unix_ns });
            }
        };
        saw("host", host.clone(), String::new(), None);
        let Some(names) = names.get(host) else { continue };
        let gone_at = |of: fn(&Departed) -> &BTreeMap<EntityId, WindowIndex>, id| of(gone.get(host)?).get(id);
        for w in names.workloads.values().filter(|w| !w.name.is_empty()) {
            saw("workload", w.name.clone(), w.cgroup.clone(), gone_at(|gone| &gone.workloads, &w.id));
        }
        for l in names.listeners.values() {
            let workload = names.workloads.get(&l.workload).map_or("", |w| w.name.as_str());
            saw("listener", listening(l), workload.to_owned(), gone_at(|gone| &gone.listeners, &l.id));
        }
    }
    // A tier is there as long as the newest workload of its name is.
    let mut until: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for of in seen.iter().filter(|of| of.kind == "workload") {
        let last = until.entry((&of.host, &of.name)).or_default();
        *last = (*last).max(of.last_unix_ns);
    }
    let tier = |node: &NodeView| {
        let (first_unix_ns, _) = spans.get(&node.host)?;
        let last_unix_ns = until.get(&(node.host.as_str(), node.workload.as_str()))?;
        Some(Seen {
            kind: "tier".to_owned(),
            host: node.host.clone(),
            name: node.tier.clone(),
            detail: node.workload.clone(),
            first_unix_ns: *first_unix_ns,
            last_unix_ns: *last_unix_ns,
        })
    };
    let tiers: Vec<Seen> = view.nodes.iter().filter(|n| !n.tier.is_empty()).filter_map(tier).collect();
    seen.extend(tiers);
    seen
}

/// What was there by name, told once.
#[derive(Debug, Default)]
pub(super) struct Remembered(OnceLock<Vec<Seen>>);

impl Remembered {
    /// A second time changes nothing.
    pub(super) fn tell(&self, mut all: Vec<Seen>) {
        // One that was started again is one.
        all.sort_by(|a, b| (&a.kind, &a.host, &a.name).cmp(&(&b.kind, &b.host, &b.name)));
        all.dedup_by(|a, b| (&a.kind, &a.host, &a.name) == (&b.kind, &b.host, &b.name));
        let _ = self.0.set(all);
    }

    /// As the database answers.
    pub(super) fn inventory(&self, span: (u64, u64), kind: Option<&str>, host: Option<&str>) -> Vec<Seen> {
        let all = self.0.get().into_iter().flatten();
        let fits = |s: &&Seen| {
            s.last_unix_ns >= span.0
                && s.first_unix_ns <= span.1
                && kind.is_none_or(|kind| s.kind == kind)
                && host.is_none_or(|host| s.host == host)
        };
        all.filter(fits).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_model::window::WorkloadInfo;

    #[test]
    fn what_has_gone_was_there_until_it_went_and_not_in_what_is_written_later() {
        let (mut known, mut departed) = (Names::default(), Departed::default());
        for (id, name) in [(1, "stays"), (2, "goes")] {
            let info = WorkloadInfo { id, name: name.to_owned(), ..WorkloadInfo::default() };
            known.workloads.insert(id, info);
        }
        departed.workloads.insert(2, WindowIndex(150));
        let names = BTreeMap::from([("web-1".to_owned(), Arc::new(known))]);
        let nodes = ["stays", "goes"].map(|workload| NodeView {
            host: "web-1".into(),
            workload: workload.into(),
            tier: format!("tier of {workload}"),
            listeners: Vec::new(),
            workers_limit: None,
        });
        let view = TopologyView { nodes: nodes.into(), ..TopologyView::default() };
        let gone = BTreeMap::from([("web-1".to_owned(), departed)]);
        let moments = |first: u64, last: u64| {
            let span = (WindowIndex(first).start_unix_ns(), WindowIndex(last).end_unix_ns());
            let spans = BTreeMap::from([("web-1".to_owned(), span)]);
            let all = seen(&spans, &names, &gone, &view);
            let of = |name: &str| {
                let of = |kind, name: &str| {
                    all.iter().find(|s| s.kind == kind && s.name == name).map(|s| s.last_unix_ns)
                };
                let workload = of("workload", name);
                assert_eq!(of("tier", &format!("tier of {name}")), workload, "a tier is as its workload");
                workload
            };
            (of("stays"), of("goes"))
        };
        let end = |n| Some(WindowIndex(n).end_unix_ns());
        assert_eq!(moments(100, 140), (end(140), end(140)));
        assert_eq!(moments(140, 180), (end(180), end(150)));
        assert_eq!(moments(180, 220), (end(220), None));
    }
}
