//! Which incident belongs to which injection, and what is right about it. Pure: a function of what was injected, what the kernel
//! and the load generator counted, and what was said.

use crate::programs::reported::Reported;
use crate::score::model::{Expectation, Injection, Plan, Row, Told};

/// Rows of the injections, and the alarming incidents that belong to none.
#[derive(Debug, Default, PartialEq)]
pub struct Judged {
    /// In the order of the injections.
    pub rows: Vec<Row>,
    /// What is left.
    pub strays: Vec<Reported>,
}

/// Judges one session. Injections in order of time; an incident belongs to the injection in whose time it is felt.
#[must_use]
pub fn judge(injections: &[Injection], incidents: &[Reported], told: &[Told]) -> Judged {
    let mut claimed: Vec<Vec<&Reported>> = vec![Vec::new(); injections.len()];
    let mut judged = Judged::default();
    for incident in incidents {
        let felt = felt_unix_ns(incident);
        let of = injections
            .iter()
            .position(|injection| (injection.truth.from_unix_ns..injection.truth.to_unix_ns).contains(&felt));
        match of.and_then(|index| claimed.get_mut(index)) {
            Some(list) => list.push(incident),
            None if incident.is_alarming() => judged.strays.push(incident.clone()),
            None => {}
        }
    }
    judged.rows =
        injections.iter().zip(&claimed).map(|(injection, claimed)| row(injection, claimed, told)).collect();
    judged
}

/// The moment by which an incident is placed: its first drop; without drops the middle of its root, for queues have tails.
fn felt_unix_ns(incident: &Reported) -> u64 {
    let (start, end) = match incident.root_end_unix_ns {
        0 => (incident.start_unix_ns, incident.end_unix_ns),
        end => (incident.root_start_unix_ns, end),
    };
    incident.first_drop_unix_ns.unwrap_or(start + end.saturating_sub(start) / 2)
}

/// Best first: severity, then drops, then how long its root overlaps the injection, then confidence.
fn rank(injection: &Injection, incident: &Reported) -> (u8, u64, u64, u64) {
    let severity = match incident.severity.as_str() {
        "critical" => 2,
        "warning" => 1,
        _ => 0,
    };
    let end = incident.root_end_unix_ns.min(injection.truth.end_unix_ns);
    let overlap = end.saturating_sub(incident.root_start_unix_ns.max(injection.truth.start_unix_ns));
    (severity, incident.dropped, overlap, (incident.confidence * 1e6) as u64)
}

/// Drops that end sooner after their cause are its echo.
pub(super) const SUSTAINED_NS: u64 = 5_000_000_000;

/// Whether an injection did what its cell is about, by the truth alone.
#[must_use]
pub fn plan(injection: &Injection) -> Plan {
    let last = injection.truth.places.iter().map(|place| place.last_drop_unix_ns).max().unwrap_or(0);
    if injection.expected.sustained && last < injection.truth.end_unix_ns.saturating_add(SUSTAINED_NS) {
        return Plan::NotInduced;
    }
    match (&injection.expected.drops_at, injection.truth.dropping_tiers().first()) {
        (None, None) => Plan::AsPlanned,
        (None, Some(_)) => Plan::DroppedUnexpectedly,
        (Some(_), None) => Plan::NotInduced,
        (Some(planned), Some(really)) if planned == really => Plan::AsPlanned,
        (Some(_), Some(_)) => Plan::DroppedElsewhere,
    }
}

fn row(injection: &Injection, claimed: &[&Reported], told: &[Told]) -> Row {
    let Injection { cell, stack, cause, expected, truth } = injection;
    let best = claimed.iter().copied().max_by_key(|incident| rank(injection, incident));
    let extra = claimed
        .iter()
        .filter(|incident| incident.is_alarming() && best.is_some_and(|best| best.id != incident.id))
        .map(|incident| incident.id.clone())
        .collect();
    let right = |is: &dyn Fn(&Reported, &Expectation) -> bool| best.is_some_and(|best| is(best, expected));
    let vlrt_reported = best.map_or(0, |best| best.vlrt);
    let main_drop_host = truth
        .dropping_tiers()
        .first()
        .and_then(|tier| truth.places.iter().find(|place| place.tier == *tier && place.dropped > 0))
        .map(|place| place.host.clone());
    let (alert_ms, verdict_ms) = best.map_or((None, None), |best| times(injection, best, told));
    Row {
        id: truth.id.clone(),
        cell: cell.clone(),
        stack: stack.clone(),
        cause: cause.clone(),
        plan: plan(injection),
        expected: expected.clone(),
        reported: best.cloned(),
        extra,
        kind_right: right(&|is, wanted| is.kind == wanted.kind && (is.sustained || !wanted.sustained)),
        root_right: right(&|is, wanted| is.host == wanted.host && is.workload == wanted.workload),
        resource_right: right(&|is, wanted| is.resource == wanted.resource),
        culprit_right: expected.culprit.as_ref().map(|_| right(&|is, wanted| is.culprit == wanted.culprit)),
        drops_right: right(&|is, _| match &main_drop_host {
            None => is.dropped == 0,
            Some(host) => is.drop_hosts.contains(host),
        }),
        dropped: [best.map_or(0, |best| best.dropped), truth.dropped()],
        connections: [
            best.map_or(0, |best| best.connections),
            truth.places.iter().map(|place| place.connections).sum(),
        ],
        vlrt: [vlrt_reported, truth.vlrt],
        onset_error_ms: best.map(|best| ms_between(truth.start_unix_ns, best.root_start_unix_ns)),
        alert_ms,
        verdict_ms,
        truth: truth.clone(),
    }
}

fn ms_between(from: u64, to: u64) -> f64 {
    (to.cast_signed() - from.cast_signed()) as f64 / 1e6
}

/// From the first dropped packet, by the tap, to the first webhook of the incident (also under an id that it replaced) and to the
/// first with its final kind, root and resource. `None` where nothing was dropped or nothing came.
fn times(injection: &Injection, best: &Reported, told: &[Told]) -> (Option<f64>, Option<f64>) {
    let Some(first_drop) = injection.truth.first_drop_unix_ns() else { return (None, None) };
    let mut ids = vec![best.id.as_str()];
    for message in told.iter().filter(|message| message.reported.id == best.id) {
        ids.extend(message.replaces.iter().map(String::as_str));
    }
    let arrival = |is: &dyn Fn(&Reported) -> bool| {
        told.iter()
            .filter(|message| is(&message.reported))
            .map(|message| message.received_unix_ns)
            .min()
            .map(|at| ms_between(first_drop, at))
    };
    let alert = arrival(&|said| ids.contains(&said.id.as_str()));
    let verdict = arrival(&|said| {
        said.id == best.id
            && (&said.kind, &said.host, &said.workload, &said.resource)
                == (&best.kind, &best.host, &best.workload, &best.resource)
    });
    (alert, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::{PlaceTruth, TruthRecord};

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    /// An injection of 700 ms at `at`, whose time is five seconds; web dropped `web` packets, app `app`.
    fn injection(at: u64, drops_at: Option<&str>, web: u64, app: u64) -> Injection {
        let place = |tier: &str, dropped| PlaceTruth {
            tier: tier.into(),
            host: format!("{tier}-1"),
            dropped,
            listen_drops: dropped,
            connections: dropped,
            first_drop_unix_ns: if dropped > 0 { at + 300 * MS } else { 0 },
            ..PlaceTruth::default()
        };
        Injection {
            cell: "nx0-app-cpu".into(),
            stack: "nx0".into(),
            cause: "cpu".into(),
            expected: Expectation {
                kind: "upstream_ctqo".into(),
                host: "app-1".into(),
                workload: "tomcat".into(),
                resource: "cpu_neighbour".into(),
                culprit: Some("burner".into()),
                drops_at: drops_at.map(str::to_owned),
                sustained: false,
            },
            truth: TruthRecord {
                id: format!("nx0-app-cpu#{}", at / S),
                start_unix_ns: at,
                end_unix_ns: at + 700 * MS,
                from_unix_ns: at - 100 * MS,
                to_unix_ns: at + 5 * S - 100 * MS,
                places: vec![place("web", web), place("app", app)],
                vlrt: web,
                ..TruthRecord::default()
            },
        }
    }

    fn incident(id: &str, at: u64, dropped: u64) -> Reported {
        Reported {
            id: id.into(),
            kind: "upstream_ctqo".into(),
            severity: if dropped > 0 { "critical" } else { "info" }.into(),
            confidence: 0.9,
            start_unix_ns: at,
            end_unix_ns: at + S,
            host: "app-1".into(),
            workload: "tomcat".into(),
            resource: "cpu_neighbour".into(),
            root_start_unix_ns: at,
            root_end_unix_ns: at + 700 * MS,
            culprit: Some("burner".into()),
            drop_hosts: if dropped > 0 { vec!["web-1".into()] } else { vec![] },
            dropped,
            connections: dropped,
            first_drop_unix_ns: (dropped > 0).then_some(at + 300 * MS),
            vlrt: dropped,
            sustained: false,
            title: String::new(),
            also: Vec::new(),
            ways: Vec::new(),
        }
    }

    fn told(at: u64, reported: Reported, replaces: &[&str]) -> Told {
        Told {
            received_unix_ns: at,
            reported,
            replaces: replaces.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    #[test]
    fn each_incident_goes_to_the_injection_in_whose_time_it_dropped() {
        let injections = [injection(10 * S, Some("web"), 50, 0), injection(15 * S, Some("web"), 70, 0)];
        // The second one's root is said to begin before its injection's time: its drops are inside.
        let mut early = incident("B", 15 * S, 70);
        early.start_unix_ns = 14 * S;
        early.root_start_unix_ns = 14 * S;
        let judged = judge(&injections, &[incident("A", 10 * S + 20 * MS, 50), early], &[]);
        let ids: Vec<_> = judged.rows.iter().map(|row| row.reported.as_ref().unwrap().id.as_str()).collect();
        assert_eq!(ids, ["A", "B"]);
        assert!(judged.strays.is_empty());
        let first = &judged.rows[0];
        assert!(first.kind_right && first.root_right && first.resource_right && first.drops_right);
        assert_eq!(first.culprit_right, Some(true));
        assert_eq!((first.dropped, first.onset_error_ms), ([50, 50], Some(20.0)));
        assert_eq!(judged.rows[1].onset_error_ms, Some(-1000.0));
    }

    #[test]
    fn a_second_alarm_for_one_cause_is_an_extra_and_one_outside_is_a_stray() {
        let injections = [injection(10 * S, Some("web"), 50, 0)];
        let mut warning = incident("W", 12 * S, 0);
        warning.severity = "warning".into();
        let mut outside = incident("X", 30 * S, 0);
        outside.severity = "warning".into();
        let info_outside = incident("Y", 30 * S, 0);
        let all = [warning, incident("A", 10 * S, 50), incident("I", 10 * S, 0), outside, info_outside];
        let judged = judge(&injections, &all, &[]);
        assert_eq!(judged.rows[0].reported.as_ref().unwrap().id, "A");
        assert_eq!(judged.rows[0].extra, ["W"]);
        assert_eq!(judged.strays.iter().map(|stray| stray.id.as_str()).collect::<Vec<_>>(), ["X"]);
    }

    #[test]
    fn what_was_not_found_is_wrong_in_everything() {
        let judged = judge(&[injection(10 * S, Some("web"), 50, 0)], &[], &[]);
        let row = &judged.rows[0];
        assert!(!row.kind_right && !row.root_right && !row.resource_right && !row.drops_right);
        assert_eq!((row.culprit_right, row.dropped, row.alert_ms), (Some(false), [0, 50], None));
    }

    #[test]
    fn the_truth_decides_whether_an_injection_went_as_planned() {
        for (planned, web, app, wanted) in [
            (Some("web"), 9, 0, Plan::AsPlanned),
            (Some("web"), 9, 2, Plan::AsPlanned),
            (Some("web"), 0, 0, Plan::NotInduced),
            (Some("web"), 0, 2, Plan::DroppedElsewhere),
            (Some("web"), 1, 2, Plan::DroppedElsewhere),
            (None, 0, 0, Plan::AsPlanned),
            (None, 1, 0, Plan::DroppedUnexpectedly),
        ] {
            assert_eq!(plan(&injection(10 * S, planned, web, app)), wanted, "{planned:?} {web} {app}");
        }
    }

    #[test]
    fn drops_that_retries_keep_alive_must_go_on_and_be_told_as_such() {
        let mut kept = injection(10 * S, Some("web"), 50, 0);
        kept.expected.sustained = true;
        let place = &mut kept.truth.places[0];
        place.last_drop_unix_ns = 10 * S + 3 * S;
        assert_eq!(plan(&kept), Plan::NotInduced, "an echo");
        kept.truth.places[0].last_drop_unix_ns = 10 * S + 9 * S;
        assert_eq!(plan(&kept), Plan::AsPlanned);
        let mut said = incident("A", 10 * S, 50);
        let right = |said: &Reported| {
            judge(std::slice::from_ref(&kept), std::slice::from_ref(said), &[]).rows[0].kind_right
        };
        assert!(!right(&said));
        said.sustained = true;
        assert!(right(&said));
    }

    #[test]
    fn without_drops_the_incident_with_the_overlapping_root_counts() {
        let injections = [injection(10 * S, None, 0, 0)];
        let all = [incident("late", 13 * S, 0), incident("right", 10 * S + 50 * MS, 0)];
        let judged = judge(&injections, &all, &[]);
        let row = &judged.rows[0];
        assert_eq!(row.reported.as_ref().unwrap().id, "right");
        assert!(row.drops_right && row.extra.is_empty());
    }

    #[test]
    fn times_count_from_the_tap_to_the_first_message_and_to_the_final_verdict() {
        let injections = [injection(10 * S, Some("web"), 50, 0)];
        let drop_at = 10 * S + 300 * MS;
        let (mut early, mut wrong) = (incident("EARLY", 10 * S, 50), incident("A", 10 * S, 50));
        early.resource = "unexplained".into();
        wrong.resource = "lock".into();
        let messages = [
            told(drop_at + 8 * MS, early, &[]),
            told(drop_at + 100 * MS, wrong, &["EARLY"]),
            told(drop_at + 250 * MS, incident("A", 10 * S, 50), &[]),
            told(drop_at + MS, incident("OTHER", 10 * S, 50), &[]),
        ];
        let judged = judge(&injections, &[incident("A", 10 * S, 50)], &messages);
        assert_eq!((judged.rows[0].alert_ms, judged.rows[0].verdict_ms), (Some(8.0), Some(250.0)));
    }
}
