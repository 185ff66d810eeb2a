//! What of an incident was seen before: earlier ones with the same cause at the same tier that went the same way, and how often they came before
//! and after a server was set up otherwise. Pure: asks nobody.

use super::explain::labelled;
use crate::text::{lines, minute, span};
use tailwater_model::Incident;
use tailwater_model::advice::{AdviceView, SetUpChange, TierAdvice};

/// Whether both have the same cause at the same tier and went through the same tiers. Tiers of the same names that have no host in common are
/// another application's.
#[must_use]
pub fn alike(a: &Incident, b: &Incident) -> bool {
    let cause = |i: &Incident| (i.root.resource, i.root.tier.clone());
    cause(a) == cause(b)
        && a.hops.iter().map(|hop| &hop.tier).eq(b.hops.iter().map(|hop| &hop.tier))
        && a.hops.iter().any(|hop| b.hops.iter().any(|other| other.host == hop.host))
}

/// The lines below an explained incident. `kept`: the incidents that were asked for, in any order, the incident may be among them; `cut`: there may
/// be older ones. `advice`: how servers are set up, where that is known.
#[must_use]
pub fn text(incident: &Incident, kept: &[Incident], cut: bool, advice: Option<&AdviceView>) -> String {
    let mut out = String::new();
    let mut before: Vec<&Incident> =
        kept.iter().filter(|i| i.id != incident.id && i.start_unix_ns < incident.start_unix_ns).collect();
    before.sort_unstable_by_key(|i| i.start_unix_ns);
    let Some(oldest) = before.first() else {
        labelled(&mut out, "Before", "no earlier incident is kept");
        return lines(&out);
    };
    let same: Vec<&Incident> = before.iter().copied().filter(|i| alike(i, incident)).collect();
    let (Some(first), Some(last)) = (same.first(), same.last()) else {
        let line = format!(
            "nothing like it among the {} that are kept, since {}",
            before.len(),
            minute(oldest.start_unix_ns)
        );
        labelled(&mut out, "Before", &line);
        return lines(&out);
    };
    let dropped: u64 = same.iter().flat_map(|i| &i.drops).map(|drop| drop.count).sum();
    let line = format!(
        "{}{} since {}, the last {} before ({}): the same cause at the same tier, and the same chain; {dropped} packets dropped in all",
        if cut { "at least " } else { "" },
        times(same.len()),
        minute(first.start_unix_ns),
        span(between_s(last.start_unix_ns, incident.start_unix_ns)),
        last.id,
    );
    labelled(&mut out, "Before", &line);
    for (of, change) in changes(incident, advice) {
        // What was changed before the first or after this one says nothing of them.
        if !(first.start_unix_ns..=incident.start_unix_ns).contains(&change.at_unix_ns) {
            continue;
        }
        labelled(&mut out, "Changed", &changed(of, change, &same, incident));
    }
    lines(&out)
}

/// What was last set up otherwise at the tiers that it went through.
fn changes<'a>(
    incident: &'a Incident,
    advice: Option<&'a AdviceView>,
) -> impl Iterator<Item = (&'a TierAdvice, &'a SetUpChange)> {
    let through =
        |of: &&TierAdvice| incident.hops.iter().any(|hop| hop.host == of.host && hop.workload == of.workload);
    let tiers = advice.into_iter().flat_map(|view| &view.tiers);
    tiers.filter(through).filter_map(|of| Some((of, of.change.as_ref()?)))
}

fn changed(of: &TierAdvice, change: &SetUpChange, same: &[&Incident], incident: &Incident) -> String {
    let sizes: Vec<String> =
        change.sizes.iter().map(|size| format!("{} {} → {}", size.what, size.from, size.to)).collect();
    let (before, since): (Vec<&Incident>, Vec<&Incident>) =
        same.iter().copied().partition(|i| i.start_unix_ns < change.at_unix_ns);
    let first = same.first().map_or(change.at_unix_ns, |i| i.start_unix_ns);
    format!(
        "{} of {} at {}: {} in the {} before, {} in the {} since, this one among them",
        sizes.join(", "),
        of.tier,
        minute(change.at_unix_ns),
        times(before.len()),
        span(between_s(first, change.at_unix_ns)),
        times(since.len() + 1),
        span(between_s(change.at_unix_ns, incident.start_unix_ns)),
    )
}

fn between_s(from_unix_ns: u64, to_unix_ns: u64) -> f64 {
    to_unix_ns.saturating_sub(from_unix_ns) as f64 / 1e9
}

fn times(count: usize) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::incident;
    use serde_json::json;
    use tailwater_model::incident::Resource;

    const MINUTE_NS: u64 = 60_000_000_000;

    /// So many minutes before the one that is explained.
    fn earlier(id: &str, minutes: u64) -> Incident {
        let of = incident(id, 1);
        Incident { start_unix_ns: of.start_unix_ns - minutes * MINUTE_NS, ..of }
    }

    fn joined(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_same_cause_at_the_same_tier_by_the_same_way_is_counted() {
        let this = incident("01Z", 1);
        let mut another_cause = earlier("01B", 20);
        another_cause.root.resource = Resource::Io;
        let mut another_way = earlier("01C", 15);
        another_way.hops.remove(0);
        let mut another_application = earlier("01D", 12);
        another_application.hops.iter_mut().for_each(|hop| hop.host.push_str("-of-others"));
        let mut another_replica = earlier("01E", 10);
        another_replica.root.host = "app-2".into();
        another_replica.hops[1].host = "app-2".into();
        let later = Incident { start_unix_ns: this.start_unix_ns + 1, ..incident("01ZZ", 1) };
        let kept = [
            this.clone(),
            earlier("01A", 90),
            another_cause,
            another_way,
            another_application,
            another_replica,
            later,
        ];
        assert_eq!(
            joined(&text(&this, &kept, false, None)),
            "Before 2 times since 2026-11-06 19:50 UTC, the last 10 min 0 s before (01E): the same cause at the same tier, and the same chain; \
             244 packets dropped in all"
        );
        assert!(joined(&text(&this, &kept, true, None)).starts_with("Before at least 2 times since"));
        assert_eq!(
            joined(&text(&this, &kept[2..5], false, None)),
            "Before nothing like it among the 3 that are kept, since 2026-11-06 21:00 UTC"
        );
        assert_eq!(joined(&text(&this, &kept[..1], false, None)), "Before no earlier incident is kept");
    }

    #[test]
    fn how_often_it_came_before_and_after_a_change_of_its_tiers_is_told() {
        let this = incident("01Z", 1);
        let kept = [earlier("01A", 120), earlier("01B", 100), earlier("01C", 80), earlier("01D", 20)];
        let unknown = json!({ "refused": { "reason": "little_traffic" }, "why": "" });
        let tier = |host: &str, workload: &str, minutes: u64| {
            json!({
                "tier": format!("app@{host}"), "host": host, "workload": workload, "address": "10.0.0.2", "port": 8080, "servers": 1,
                "visits": null, "setting": null, "limit": 200, "learnt_s": 60.0, "seen_to": 0.0, "cpu_s_per_request": null, "cpus": null,
                "critical": null, "model": "none", "little": null, "left_out": [], "points": [], "sentence": "", "pool": unknown, "throughput_max": unknown, "in_flight": unknown, "expected_loss": unknown,
                "change": {
                    "at_unix_ns": this.start_unix_ns - minutes * MINUTE_NS,
                    "sizes": [{ "what": "pool", "from": 150, "to": 200 }], "verdict": "too_little", "ratio": null, "before_s": null,
                    "after_s": null, "load_from": null, "load_to": null, "common_s": 0.0, "needed_s": 120.0, "seconds_before": 0.0,
                    "drops_before": 0.0, "seconds_after": 0.0, "drops_after": 0.0, "sentence": "",
                },
            })
        };
        let told = |tiers: serde_json::Value| {
            let view = json!({
                "learning_since_unix_ns": null, "made_unix_ns": null, "nothing": null, "tiers": tiers, "refused_listeners": 0,
            });
            let view: AdviceView = serde_json::from_value(view).unwrap();
            text(&this, &kept, false, Some(&view))
        };
        let of_its_own = told(json!([tier("app-1", "tomcat10.service", 30)]));
        assert!(
            joined(&of_its_own).ends_with(
                "Changed pool 150 → 200 of app@app-1 at 2026-11-06 20:50 UTC: 3 times in the 1 h 30 min before, 2 times in the 30 min 0 s since, \
                 this one among them"
            ),
            "{of_its_own}"
        );
        for nothing in [tier("app-9", "tomcat10.service", 30), tier("app-1", "tomcat10.service", 130)] {
            let told = told(json!([nothing]));
            assert!(!told.contains("Changed"), "{told}");
        }
    }

    #[test]
    fn no_name_is_a_command_to_the_terminal() {
        let this = incident("01Z", 1);
        let got = text(&this, &[earlier("01\u{1b}]0;x\u{7}", 5)], false, None);
        assert!(got.chars().all(|c| c == '\n' || !c.is_control()), "{got:?}");
    }
}
