//! Which slow spans belong to an incident: those that overlap it, of each service the slowest, one for each trace. A service is told as a tier only where
//! one on the incident's way has exactly its name; nothing is guessed. Pure.

use super::slow::{Ring, Slow};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use tailwater_model::Incident;
use tailwater_model::traces::{ServiceTraces, SlowTrace};

/// Traces of one service: what somebody reads, and some more.
const TRACES_MAX: usize = 20;
/// Services of one incident; those of its way come first.
const SERVICES_MAX: usize = 16;

/// When an incident was, and what is called how on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    /// First and last moment, Unix ns.
    pub(super) span: (u64, u64),
    /// Tiers and workloads from the first drop to the root.
    names: Vec<String>,
}

impl Way {
    pub(super) fn of(incident: &Incident) -> Self {
        let mut names: Vec<String> = Vec::new();
        let drops = incident.drops.iter().flat_map(|drops| [&drops.tier, &drops.workload]);
        let hops = incident.hops.iter().flat_map(|hop| [&hop.tier, &hop.workload]);
        for name in drops.chain(hops).chain([&incident.root.tier, &incident.root.workload]) {
            if !name.is_empty() && !names.contains(name) {
                names.push(name.clone());
            }
        }
        Self { span: (incident.start_unix_ns, incident.end_unix_ns), names }
    }

    /// Where a service stands on the way; `None`: nothing there has its name.
    fn place(&self, service: &str) -> Option<usize> {
        self.names.iter().position(|name| name == service)
    }
}

/// By service, the slowest first.
pub(super) type Found = BTreeMap<Arc<str>, Vec<Slow>>;

/// The slowest of each service that overlap `span` (Unix ns, both ends in it).
pub(super) fn of(ring: &Ring, span: (u64, u64)) -> Found {
    let mut found = Found::new();
    for slow in ring.over(span) {
        let own = found.entry(Arc::clone(&slow.service)).or_default();
        // Copies are made of those only that may stay.
        if own.len() < 2 * TRACES_MAX {
            own.push(slow.clone());
            continue;
        }
        slowest(own);
        if own.last().is_none_or(|last| last.duration_ns() < slow.duration_ns()) {
            own.push(slow.clone());
        }
    }
    found.values_mut().for_each(slowest);
    found
}

/// Takes what was found later, of as many services as are told: an incident of hours may see many names.
pub(super) fn merge(into: &mut Found, more: Found, way: &Way) {
    for (service, slow) in more {
        let own = into.entry(service).or_default();
        own.extend(slow);
        slowest(own);
    }
    if into.len() > SERVICES_MAX {
        *into = ordered(std::mem::take(into), way).into_iter().collect();
    }
}

/// Services of the incident's way first, in its order, then the others, the slowest first; as many as are told.
fn ordered(found: Found, way: &Way) -> Vec<(Arc<str>, Vec<Slow>)> {
    let mut all: Vec<_> = found.into_iter().filter(|(_, own)| !own.is_empty()).collect();
    all.sort_by_key(|(service, own)| {
        (way.place(service).unwrap_or(usize::MAX), Reverse(own.first().map(Slow::duration_ns)))
    });
    all.truncate(SERVICES_MAX);
    all
}

/// The slowest ones in their order, one for each trace.
fn slowest(of: &mut Vec<Slow>) {
    of.sort_by_key(|slow| (Reverse(slow.duration_ns()), slow.trace_id, slow.span_id));
    let mut seen: Vec<[u8; 16]> = Vec::new();
    of.retain(|slow| {
        let is_new = seen.len() < TRACES_MAX && !seen.contains(&slow.trace_id);
        if is_new {
            seen.push(slow.trace_id);
        }
        is_new
    });
}

/// As it is kept and told.
pub(super) fn told(found: Found, way: &Way) -> Vec<ServiceTraces> {
    let of = |(service, own): (Arc<str>, Vec<Slow>)| ServiceTraces {
        tier: way.place(&service).map(|_| service.to_string()),
        service: service.to_string(),
        traces: own.into_iter().map(row).collect(),
    };
    ordered(found, way).into_iter().map(of).collect()
}

fn row(slow: Slow) -> SlowTrace {
    SlowTrace {
        trace_id: hex(&slow.trace_id),
        span_id: hex(&slow.span_id),
        name: slow.name.into(),
        host: slow.host.to_string(),
        start_unix_ns: slow.start_unix_ns,
        end_unix_ns: slow.end_unix_ns,
        error: slow.error,
        link: None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::super::slow::Fate;
    use super::*;
    use crate::fixture;

    const NOW: u64 = 1_700_000_000_000_000_000;
    const MS: u64 = 1_000_000;

    fn slow(n: u8, service: &str, ms: u64) -> Slow {
        Slow {
            trace_id: [n; 16],
            span_id: [n; 8],
            service: service.into(),
            host: "h".into(),
            name: "GET /".into(),
            start_unix_ns: NOW - ms * MS,
            end_unix_ns: NOW,
            error: n.is_multiple_of(2),
        }
    }

    fn ring(of: impl IntoIterator<Item = Slow>) -> Ring {
        let mut ring = Ring::default();
        of.into_iter().for_each(|slow| assert_eq!(ring.put(slow, NOW).0, Fate::Kept));
        ring
    }

    fn told_by_name(found: Found) -> Vec<(String, Option<String>, usize)> {
        let all = told(found, &Way::of(&fixture::incident("01", 1)));
        all.into_iter().map(|of| (of.service, of.tier, of.traces.len())).collect()
    }

    #[test]
    fn services_of_the_way_come_first_under_its_names_and_others_are_listed_by_theirs() {
        let slow = [
            slow(1, "checkout", 900),
            slow(2, "app", 300),
            slow(3, "apache2.service", 250),
            slow(4, "App", 400),
            slow(5, "web-1", 500),
        ];
        let of = |service: &str, tier: Option<&str>| (service.to_owned(), tier.map(str::to_owned), 1);
        let expect = [
            of("apache2.service", Some("apache2.service")),
            of("app", Some("app")),
            of("checkout", None),
            // A host is no tier, and nearly the same name is another.
            of("web-1", None),
            of("App", None),
        ];
        assert_eq!(told_by_name(super::of(&ring(slow), (0, NOW))), expect);
    }

    #[test]
    fn of_a_service_there_are_the_slowest_traces_each_once() {
        let all = (0..60).map(|n| slow(n % 30, "web", 200 + u64::from(n)));
        // In three seconds, as many as a second holds in each.
        let spread = all.enumerate().map(|(n, slow)| {
            let ago = (n as u64 / 20) * 1000 * MS;
            Slow {
                start_unix_ns: slow.start_unix_ns - ago,
                end_unix_ns: slow.end_unix_ns - ago,
                span_id: [n as u8; 8],
                ..slow
            }
        });
        let found = super::of(&ring(spread), (0, NOW));
        let told = told(found, &Way::of(&fixture::incident("01", 1)));
        let durations: Vec<u64> = told[0].traces.iter().map(|t| t.duration_ns() / MS).collect();
        assert_eq!(durations, (240..260).rev().collect::<Vec<u64>>());
        let first = &told[0].traces[0];
        assert_eq!((first.trace_id.as_str(), first.span_id.len()), ("1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d", 16));
        assert!(!first.error && told[0].traces[1].error);
    }

    #[test]
    fn what_was_found_at_several_times_is_one_list_of_as_many_services_as_are_told() {
        let way = Way::of(&fixture::incident("01", 1));
        let mut found = super::of(&ring([slow(1, "web", 300), slow(2, "web", 900)]), way_all());
        merge(&mut found, super::of(&ring([slow(1, "web", 300), slow(3, "web", 600)]), way_all()), &way);
        let ids = |found: &Found| found["web"].iter().map(|s| s.trace_id[0]).collect::<Vec<_>>();
        assert_eq!(ids(&found), [2, 3, 1]);
        for n in 0..40 {
            merge(&mut found, super::of(&ring([slow(n, &format!("s{n}"), 1000)]), way_all()), &way);
        }
        assert_eq!((found.len(), ids(&found)), (SERVICES_MAX, vec![2, 3, 1]), "a tier of the way stays");
    }

    fn way_all() -> (u64, u64) {
        (0, u64::MAX)
    }
}
