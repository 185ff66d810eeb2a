//! Which incident belongs to which injection into a graph, one to one, and what is right about it. Pure: a function of what was injected,
//! what the kernel and the clients counted, and what was told.

use crate::graph::injections::Cause;
use crate::graph::plan::Graph;
use crate::programs::reported::Reported;
use crate::truth::TruthRecord;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// What is told of drops fits the truth if it lies so near.
const NEAR_NS: u64 = 1_000_000_000;
/// A root that lasted longer than this is a persistent bottleneck, whoever dropped …
const PERSISTENT_NS: u64 = 2_000_000_000;
/// … and as a cause leaves work behind that is served within about this, its resource may have been short for so much longer than it.
const LEFT_BEHIND_NS: u64 = 1_000_000_000;

/// An injection with its truth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// What was done.
    pub cause: Cause,
    /// Host it was done to.
    pub host: String,
    /// Workloads that may be named as its root: services, and what runs beside some of them; where no agent is, an empty name, as that of whatever stands at an
    /// address.
    pub roots: Vec<String>,
    /// For how long it was planned, ms.
    pub duration_ms: u64,
    /// What really happened; its `tier` is the service.
    pub truth: TruthRecord,
}

impl Injection {
    /// Whether no agent is where it was done: what was short there nobody knows, and the address is to be told.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        self.roots.iter().all(String::is_empty)
    }

    /// What may be told as its resource.
    #[must_use]
    pub fn resources(&self) -> &'static [&'static str] {
        if self.is_outside() { &["unexplained"] } else { self.cause.resources() }
    }

    /// Whether host, service and resource of a root are its own.
    #[must_use]
    pub fn is_told_by(&self, root: &Reported) -> bool {
        is_root(self, root) && is_resource(self, root)
    }

    /// Whether anybody was hurt: a packet was dropped, or an answer took longer than a second by the clients' log.
    #[must_use]
    pub fn is_induced(&self) -> bool {
        self.truth.dropped() > 0 || self.truth.vlrt > 0
    }
}

/// The verdict on one injection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The injection with its truth.
    pub injection: Injection,
    /// Whether anybody was hurt; else it is held against nobody.
    pub induced: bool,
    /// Kinds that are right.
    pub kinds: BTreeSet<String>,
    /// The incident that was matched to it.
    pub reported: Option<Reported>,
    /// It was told as a further cause of another injection's incident, which is an alarm of that one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told_with_another: bool,
    /// Further alarming incidents in its time, and further causes that nobody made: each is false, also as an echo.
    pub echoes: Vec<Reported>,
    /// Kind as it must be.
    pub kind_right: bool,
    /// Host and service of the root as they must be; "unexplained" names none.
    pub root_right: bool,
    /// The root's resource as it must be.
    pub resource_right: bool,
}

impl Row {
    /// Each root that was named in its time, with whether host, service and resource are those of the truth; not what is unexplained.
    pub fn named(&self) -> impl Iterator<Item = (&Reported, bool)> {
        let own = self.reported.iter().filter(|_| !self.told_with_another);
        let all = own.chain(&self.echoes).filter(|told| told.resource != "unexplained");
        all.map(|told| (told, self.injection.is_told_by(told)))
    }

    /// Whether it was found: where packets were dropped, by an incident that says so loudly.
    #[must_use]
    pub fn is_found(&self) -> bool {
        let loud = |told: &Reported| told.severity == "critical" || self.injection.truth.dropped() == 0;
        self.reported.as_ref().is_some_and(loud)
    }
}

/// Rows of the injections, and the alarming incidents that belong to none.
#[derive(Debug, Default, PartialEq)]
pub struct Judged {
    /// In the order of the injections.
    pub rows: Vec<Row>,
    /// What is left.
    pub strays: Vec<Reported>,
}

/// Whether others were made at the same moment: what was dropped then is of all of them, and an incident belongs to the one that it names.
fn is_beside(injections: &[Injection], of: usize) -> bool {
    let moment = injections[of].truth.from_unix_ns;
    injections.iter().enumerate().any(|(other, it)| other != of && it.truth.from_unix_ns == moment)
}

/// Judges one session; injections in order of time.
#[must_use]
pub fn judge(graph: &Graph, injections: &[Injection], incidents: &[Reported]) -> Judged {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (of, injection) in injections.iter().enumerate() {
        pairs.extend(
            (0..incidents.len()).filter(|told| fits(injection, &incidents[*told])).map(|told| (of, told)),
        );
    }
    let beside: Vec<bool> = (0..injections.len()).map(|of| is_beside(injections, of)).collect();
    pairs.sort_by_key(|(of, told)| {
        let (injection, told) = (&injections[*of], &incidents[*told]);
        Reverse((beside[*of] && is_root(injection, told), rank(injection, told)))
    });
    let mut matched: Vec<Option<usize>> = vec![None; injections.len()];
    let mut taken = vec![false; incidents.len()];
    for (of, told) in pairs {
        if matched[of].is_none() && !taken[told] {
            (matched[of], taken[told]) = (Some(told), true);
        }
    }
    let mut judged = Judged::default();
    let mut echoes: Vec<Vec<Reported>> = vec![Vec::new(); injections.len()];
    for (told, incident) in incidents.iter().enumerate() {
        if taken[told] || !incident.is_alarming() {
            continue;
        }
        let felt = incident.first_drop_unix_ns.unwrap_or(incident.start_unix_ns);
        let during = |of: &Injection| (of.truth.from_unix_ns..of.truth.to_unix_ns).contains(&felt);
        match injections.iter().position(during).and_then(|of| echoes.get_mut(of)) {
            Some(echoes) => echoes.push(incident.clone()),
            None => judged.strays.push(incident.clone()),
        }
    }
    for (of, ((injection, told), echoes)) in injections.iter().zip(matched).zip(echoes).enumerate() {
        let beside = beside[of];
        let told = told.and_then(|told| incidents.get(told)).cloned();
        // Of two that were made at once one may be told with the other, as a further cause of the same overflow.
        let with_another = || {
            let all = incidents.iter().filter(|told| fits(injection, told)).flat_map(Reported::further);
            all.into_iter().find(|told| is_root(injection, told))
        };
        let own = told.is_some();
        let further = told.iter().flat_map(Reported::further);
        let made = |cause: &Reported| injections.iter().any(|of| fits(of, cause) && is_root(of, cause));
        let wrong = further.filter(|cause| !made(cause)).collect::<Vec<_>>();
        let told = told.or_else(|| beside.then(with_another).flatten());
        let mut row = row(graph, injection, told.as_ref(), echoes.into_iter().chain(wrong).collect());
        row.told_with_another = !own && told.is_some();
        row.induced &= !beside || may_have_hurt(graph, injection);
        judged.rows.push(row);
    }
    judged
}

/// Whether somebody was hurt where an injection may hurt: at its roots, before or behind them.
fn may_have_hurt(graph: &Graph, injection: &Injection) -> bool {
    let tiers = injection.truth.dropping_tiers();
    let at = || tiers.iter().filter_map(|tier| graph.find(tier));
    let mut roots = causes(graph, injection);
    tiers.is_empty()
        || roots.any(|root| at().any(|at| at == root || graph.reaches(at, root) || graph.reaches(root, at)))
}

/// Whether an incident can be about an injection, by its time alone.
fn fits(injection: &Injection, told: &Reported) -> bool {
    let truth = &injection.truth;
    let near = |at: u64, from: u64, to: u64| (from.saturating_sub(NEAR_NS)..=to + NEAR_NS).contains(&at);
    if let Some(first) = told.first_drop_unix_ns {
        let dropped = truth.places.iter().filter(|place| place.first_drop_unix_ns > 0);
        let last = dropped.map(|place| place.last_drop_unix_ns).max();
        // A tap that saw no packet of those that the kernel counted leaves the injection's own time.
        let (from, to) =
            truth.first_drop_unix_ns().zip(last).unwrap_or((truth.start_unix_ns, truth.end_unix_ns));
        return near(first, from, to);
    }
    let (from, to) = match told.root_end_unix_ns {
        0 => (told.start_unix_ns, told.end_unix_ns),
        end => (told.root_start_unix_ns, end),
    };
    from <= truth.end_unix_ns + NEAR_NS && to >= truth.start_unix_ns.saturating_sub(NEAR_NS)
}

/// Best first: one that would wake somebody, one with drops where there were some, more drops, and what was felt nearest to the injection's
/// begin. Nothing of what is scored has a say: the best of several would be right more often than what people read.
fn rank(injection: &Injection, told: &Reported) -> (bool, bool, u64, Reverse<u64>) {
    let both = told.first_drop_unix_ns.is_some() == (injection.truth.dropped() > 0);
    let felt = told.first_drop_unix_ns.unwrap_or(told.start_unix_ns);
    (told.is_alarming(), both, told.dropped, Reverse(felt.abs_diff(injection.truth.start_unix_ns)))
}

fn is_root(injection: &Injection, told: &Reported) -> bool {
    let says_what = told.resource != "unexplained" || injection.is_outside();
    says_what && told.host == injection.host && injection.roots.contains(&told.workload)
}

fn is_resource(injection: &Injection, told: &Reported) -> bool {
    injection.resources().contains(&told.resource.as_str())
}

/// The services that the cause may have been at.
fn causes<'a>(graph: &'a Graph, injection: &'a Injection) -> impl Iterator<Item = usize> + 'a {
    let own = injection.is_outside().then_some(&injection.truth.tier);
    let named = injection.roots.iter().filter(|root| !root.is_empty());
    named.chain(own).filter_map(|root| graph.find(root))
}

/// Which kinds are right, by where the kernel dropped, where the cause was and how long it lasted. Where several services share the cause, each
/// of them may be told as the root; and where several dropped, any of them may be what the root is upstream or downstream of.
#[must_use]
pub fn kinds(graph: &Graph, injection: &Injection) -> BTreeSet<String> {
    let (upstream, downstream, local) = ("upstream_ctqo", "downstream_ctqo", "local_overflow");
    let truth = &injection.truth;
    let lasted = truth.end_unix_ns.saturating_sub(truth.start_unix_ns);
    let persistent = (lasted + LEFT_BEHIND_NS > PERSISTENT_NS).then_some("persistent_bottleneck");
    let tiers = truth.dropping_tiers();
    if tiers.is_empty() {
        // How near a queue came to its limit is nothing that the truth knows.
        let kinds = ["millibottleneck", "near_overflow"].into_iter().chain(persistent);
        return kinds.map(str::to_owned).collect();
    }
    let mut kinds = BTreeSet::new();
    for at in tiers.iter().filter_map(|tier| graph.find(tier)) {
        for root in causes(graph, injection) {
            if at == root {
                // Upstream of the entry are clients only.
                kinds.insert(if at == 0 { local } else { downstream });
            } else if graph.reaches(at, root) {
                kinds.insert(upstream);
            } else if graph.reaches(root, at) {
                kinds.insert(downstream);
            }
        }
    }
    // Neither before nor behind it: what a caller of both had stored overflowed another of its callees.
    if kinds.is_empty() {
        kinds.extend([upstream, downstream]);
    }
    kinds.into_iter().chain(persistent).map(str::to_owned).collect()
}

fn row(graph: &Graph, injection: &Injection, told: Option<&Reported>, echoes: Vec<Reported>) -> Row {
    let kinds = kinds(graph, injection);
    Row {
        told_with_another: false,
        induced: injection.is_induced(),
        kind_right: told.is_some_and(|told| kinds.contains(&told.kind)),
        root_right: told.is_some_and(|told| is_root(injection, told)),
        resource_right: told.is_some_and(|told| is_resource(injection, told)),
        injection: injection.clone(),
        kinds,
        reported: told.cloned(),
        echoes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::PlaceTruth;

    const S: u64 = 1_000_000_000;

    /// A pause of the entry's first call that has the entry drop for half a second.
    fn paused(graph: &Graph, at_s: u64, dropped: u64) -> Injection {
        let service = graph.services[0].calls[0].to;
        let of = &graph.services[service];
        let place = PlaceTruth {
            tier: "entry".into(),
            host: graph.hosts[graph.services[0].host].name.clone(),
            dropped,
            listen_drops: dropped,
            first_drop_unix_ns: if dropped > 0 { at_s * S + S / 2 } else { 0 },
            last_drop_unix_ns: if dropped > 0 { at_s * S + S } else { 0 },
            ..PlaceTruth::default()
        };
        Injection {
            cause: Cause::Pause,
            host: graph.hosts[of.host].name.clone(),
            roots: vec![of.name.clone()],
            duration_ms: 700,
            truth: TruthRecord {
                start_unix_ns: at_s * S,
                end_unix_ns: at_s * S + 7 * S / 10,
                from_unix_ns: at_s * S - S / 10,
                to_unix_ns: at_s * S + 9 * S,
                places: vec![place],
                ..TruthRecord::default()
            },
        }
    }

    fn told(injection: &Injection, id: &str) -> Reported {
        Reported {
            id: id.into(),
            kind: "upstream_ctqo".into(),
            severity: "critical".into(),
            confidence: 0.9,
            start_unix_ns: injection.truth.start_unix_ns,
            end_unix_ns: injection.truth.start_unix_ns + 2 * S,
            host: injection.host.clone(),
            workload: injection.roots[0].clone(),
            resource: "pause".into(),
            root_start_unix_ns: injection.truth.start_unix_ns,
            root_end_unix_ns: injection.truth.end_unix_ns,
            first_drop_unix_ns: Some(injection.truth.start_unix_ns + S / 2),
            dropped: 40,
            ..Reported::default()
        }
    }

    #[test]
    fn an_incident_at_the_right_time_is_matched_and_a_second_one_is_an_echo() {
        let graph = Graph::of(1, 2);
        let injections = [paused(&graph, 100, 40), paused(&graph, 110, 30)];
        let mut echo = told(&injections[0], "echo");
        echo.first_drop_unix_ns = Some(103 * S);
        let incidents = [echo, told(&injections[0], "first"), told(&injections[1], "second")];
        let judged = judge(&graph, &injections, &incidents);
        assert!(judged.strays.is_empty());
        for (row, (id, echoes)) in judged.rows.iter().zip([("first", vec!["echo"]), ("second", vec![])]) {
            assert_eq!(row.reported.as_ref().map(|told| told.id.as_str()), Some(id));
            assert_eq!(row.echoes.iter().map(|told| &*told.id).collect::<Vec<_>>(), echoes);
            assert!(row.named().all(|(_, right)| right), "an echo names the right root, too: {row:?}");
            assert!(row.is_found() && row.kind_right && row.root_right && row.resource_right, "{row:?}");
        }
    }

    /// Fails where a resource that nobody can know is asked for, or where the address of a caller would do.
    #[test]
    fn of_what_no_agent_sees_the_address_is_right_and_nothing_else() {
        let graph = Graph::of(1, 2);
        let mut outside = paused(&graph, 100, 40);
        (outside.truth.tier, outside.host) = (outside.roots[0].clone(), "10.77.0.9".into());
        outside.roots = vec![String::new()];
        let unseen = Reported { resource: "unexplained".into(), ..told(&outside, "unseen") };
        let rows = |told: Reported| judge(&graph, &[outside.clone()], &[told]).rows;
        let [row] = &rows(unseen.clone())[..] else { panic!("one row") };
        assert!(row.is_found() && row.kind_right && row.root_right && row.resource_right, "{row:?}");
        for (host, resource) in [("10.77.0.8", "unexplained"), ("10.77.0.9", "pause")] {
            let wrong = Reported { host: host.into(), resource: resource.into(), ..unseen.clone() };
            assert!(!outside.is_told_by(&wrong), "{host} {resource}");
        }
    }

    #[test]
    fn one_incident_is_not_the_verdict_on_two_injections() {
        let graph = Graph::of(1, 2);
        // A second apart: the time alone fits both.
        let injections = [paused(&graph, 100, 40), paused(&graph, 101, 40)];
        let judged = judge(&graph, &injections, &[told(&injections[0], "one")]);
        assert_eq!(judged.rows.iter().filter(|row| row.reported.is_some()).count(), 1);
    }

    /// Of two services on two hosts, neither of them the entry.
    fn two_at_once(graph: &Graph) -> [Injection; 2] {
        let first = paused(graph, 100, 40);
        let other = graph.services.iter().find(|of| {
            graph.hosts[of.host].name != first.host && of.name != "entry" && of.name != first.roots[0]
        });
        let other = other.expect("a graph has several hosts");
        let host = graph.hosts[other.host].name.clone();
        let second = Injection { host, roots: vec![other.name.clone()], ..first.clone() };
        [first, second]
    }

    /// Fails where of two that were made at once the one that is told first is held against the other.
    #[test]
    fn of_those_that_were_made_at_once_an_incident_is_the_verdict_on_the_one_that_it_names() {
        let graph = Graph::of(1, 2);
        let injections = two_at_once(&graph);
        let incidents = [
            Reported { dropped: 400, ..told(&injections[1], "second") },
            told(&injections[0], "first"),
            told(&injections[0], "echo"),
        ];
        let judged = judge(&graph, &injections, &incidents);
        for (row, id) in judged.rows.iter().zip(["first", "second"]) {
            assert_eq!(row.reported.as_ref().map(|told| told.id.as_str()), Some(id));
            assert!(row.root_right && row.resource_right, "{row:?}");
        }
        assert_eq!(judged.rows.iter().map(|row| row.echoes.len()).sum::<usize>(), 1);
    }

    #[test]
    fn one_of_two_that_were_made_at_once_may_be_told_as_a_further_cause_and_a_wrong_one_is_none() {
        let graph = Graph::of(1, 2);
        let injections = two_at_once(&graph);
        let [host, other] = [injections[1].host.clone(), injections[1].roots[0].clone()];
        let named = |workload: &str| Reported {
            also: vec![[host.clone(), workload.to_owned(), "pause".into()]],
            ..told(&injections[0], "both")
        };
        let both = judge(&graph, &injections, &[named(&other)]);
        assert!(both.rows.iter().all(|row| row.root_right && row.resource_right), "{both:#?}");
        assert!(both.rows[1].told_with_another && both.rows[1].named().count() == 0, "{both:#?}");
        let wrong = judge(&graph, &injections, &[named("nobody")]);
        assert!(wrong.rows[0].root_right && wrong.rows[1].reported.is_none(), "{wrong:#?}");
        assert_eq!(wrong.rows[0].echoes.len(), 1, "a cause that nobody made is false");
    }

    #[test]
    fn what_is_unexplained_is_found_and_has_no_right_root() {
        let graph = Graph::of(1, 2);
        let injection = paused(&graph, 100, 40);
        let unexplained = Reported { resource: "unexplained".into(), ..told(&injection, "x") };
        let judged = judge(&graph, std::slice::from_ref(&injection), &[unexplained]);
        let row = &judged.rows[0];
        assert!(row.is_found() && row.kind_right && !row.root_right && !row.resource_right);
        assert_eq!(row.named().count(), 0, "it names none");
        // Another host, and a whisper where packets were dropped.
        let elsewhere = Reported { host: "hostz".into(), severity: "info".into(), ..told(&injection, "y") };
        let row = &judge(&graph, &[injection], &[elsewhere]).rows[0];
        assert!(!row.is_found() && !row.root_right && row.resource_right);
        assert_eq!(row.named().map(|(_, right)| right).collect::<Vec<_>>(), [false]);
    }

    #[test]
    fn what_hurt_nobody_was_not_induced_and_an_alarm_in_the_quiet_is_a_stray() {
        let graph = Graph::of(1, 2);
        let quiet = paused(&graph, 100, 0);
        let alarm =
            Reported { first_drop_unix_ns: Some(130 * S), start_unix_ns: 130 * S, ..told(&quiet, "stray") };
        let alarm = Reported { root_start_unix_ns: 130 * S, root_end_unix_ns: 131 * S, ..alarm };
        let judged = judge(&graph, std::slice::from_ref(&quiet), &[alarm]);
        assert!(!judged.rows[0].induced && judged.rows[0].reported.is_none());
        assert_eq!((judged.strays.len(), judged.rows[0].kinds.contains("millibottleneck")), (1, true));
        let slow = Injection { truth: TruthRecord { vlrt: 3, ..quiet.truth.clone() }, ..quiet };
        assert!(slow.is_induced());
    }

    #[test]
    fn the_kind_follows_from_where_was_dropped_and_where_the_cause_was() {
        let graph = Graph::of(1, 2);
        let mut injection = paused(&graph, 100, 40);
        let of = |injection: &Injection| kinds(&graph, injection).into_iter().collect::<Vec<_>>();
        assert_eq!(of(&injection), ["upstream_ctqo"]);
        let root = injection.roots[0].clone();
        injection.truth.places[0].tier = root.clone();
        assert_eq!(of(&injection), ["downstream_ctqo"]);
        injection.roots = vec!["entry".into()];
        assert_eq!(of(&injection), ["downstream_ctqo"], "behind the root");
        injection.truth.places[0].tier = "entry".into();
        assert_eq!(of(&injection), ["local_overflow"]);
        injection.roots.push(root.clone());
        assert_eq!(of(&injection), ["local_overflow", "upstream_ctqo"]);
        // Where several dropped, also the one that dropped less.
        injection.roots = vec![root.clone()];
        injection.truth.places.push(PlaceTruth { tier: root, dropped: 7, ..PlaceTruth::default() });
        assert_eq!(of(&injection), ["downstream_ctqo", "upstream_ctqo"]);
    }

    #[test]
    fn what_lasted_long_may_be_told_as_persistent_and_a_full_queue_that_dropped_nothing_as_such() {
        let graph = Graph::of(1, 2);
        let lasted = |injection: &Injection, ms: u64| {
            let end_unix_ns = injection.truth.start_unix_ns + ms * 1_000_000;
            let truth = TruthRecord { end_unix_ns, ..injection.truth.clone() };
            let kinds = kinds(&graph, &Injection { truth, ..injection.clone() });
            kinds.into_iter().collect::<Vec<_>>()
        };
        let (loud, quiet) = (paused(&graph, 100, 40), paused(&graph, 100, 0));
        assert_eq!(lasted(&loud, 900), ["upstream_ctqo"]);
        assert_eq!(lasted(&loud, 3_500), ["persistent_bottleneck", "upstream_ctqo"]);
        assert_eq!(lasted(&quiet, 900), ["millibottleneck", "near_overflow"]);
        assert_eq!(lasted(&quiet, 3_500), ["millibottleneck", "near_overflow", "persistent_bottleneck"]);
    }

    #[test]
    fn of_two_incidents_the_louder_one_is_the_verdict_though_another_has_the_right_root() {
        let graph = Graph::of(1, 2);
        let injection = paused(&graph, 100, 40);
        let right = Reported { dropped: 3, ..told(&injection, "right") };
        let louder = Reported { host: "hostz".into(), dropped: 37, ..told(&injection, "louder") };
        let judged = judge(&graph, std::slice::from_ref(&injection), &[right, louder]);
        let row = &judged.rows[0];
        assert_eq!(row.reported.as_ref().map(|told| told.id.as_str()), Some("louder"));
        assert!(!row.root_right && row.echoes[0].id == "right", "{row:?}");
    }
}
