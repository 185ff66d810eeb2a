//! What was there by name, for as long as it was: hosts, their workloads and listeners, and tiers. Knows neither disk nor time.

use crate::live::series::Departed;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tailwater_model::TopologyView;
use tailwater_model::names::Names;
use tailwater_model::names::Seen;
use tailwater_model::window::{EntityId, ListenerInfo, WindowIndex};

/// Where it listens, as it was written from the first version on.
fn listening(l: &ListenerInfo) -> String {
    l.path.clone().unwrap_or_else(|| std::net::SocketAddr::new(l.address, l.port).to_string())
}

/// Everything known by name of the hosts of `spans` (first and last moment, Unix ns), as far as it was there then.
pub(super) fn seen(
    spans: &BTreeMap<String, (u64, u64)>,
    names: &BTreeMap<String, Names>,
    gone: &BTreeMap<String, Departed>,
    view: &TopologyView,
) -> Vec<Seen> {
    let mut seen = Vec::new();
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
        let names = BTreeMap::from([("web-1".to_owned(), known)]);
        let gone = BTreeMap::from([("web-1".to_owned(), departed)]);
        let moments = |first: u64, last: u64| {
            let span = (WindowIndex(first).start_unix_ns(), WindowIndex(last).end_unix_ns());
            let spans = BTreeMap::from([("web-1".to_owned(), span)]);
            let all = seen(&spans, &names, &gone, &TopologyView::default());
            let of = |name: &str| {
                all.iter().find(|s| s.kind == "workload" && s.name == name).map(|s| s.last_unix_ns)
            };
            (of("stays"), of("goes"))
        };
        let end = |n| Some(WindowIndex(n).end_unix_ns());
        assert_eq!(moments(100, 140), (end(140), end(140)));
        assert_eq!(moments(140, 180), (end(180), end(150)));
        assert_eq!(moments(180, 220), (end(220), None));
    }
}
