//! `tailwater diff`: two incidents beside each other, what they have in common and what not. Pure: two incidents in, text out.

use super::earlier::alike;
use super::explain::{against, from_root, wrap};
use crate::text::lines;
use std::fmt::Write;
use tailwater_model::Incident;
use tailwater_model::civil::Civil;
use tailwater_model::incident::Hop;

/// Columns: what it is of, and a value of each.
const LABEL: usize = 26;
const VALUE: usize = 20;
/// From here on a ratio of two numbers is told.
const RATIO_MIN: f64 = 1.2;

/// There is none.
const NOTHING: &str = "–";

/// One fact of both.
struct Fact {
    of: String,
    values: [String; 2],
    /// The numbers behind them, where they are such.
    numbers: Option<[f64; 2]>,
}

/// The whole text.
#[must_use]
pub fn text(a: &Incident, b: &Incident) -> String {
    let mut out = String::new();
    for (letter, i) in [("A", a), ("B", b)] {
        let civil = Civil::of(i.start_unix_ns);
        let _ = writeln!(out, "{letter}  {}  {} {} UTC", i.id, civil.date(), civil.time_ms());
        wrap(&mut out, &i.title, "   ");
    }
    out.push('\n');
    wrap(&mut out, verdict(a, b), "");
    let facts = facts(a, b);
    let (same, other): (Vec<&Fact>, Vec<&Fact>) =
        facts.iter().partition(|fact| fact.values[0] == fact.values[1]);
    for (head, facts) in [("In common", same), ("Not in common", other)] {
        // What neither has is no fact.
        let facts: Vec<&Fact> =
            facts.into_iter().filter(|fact| fact.values.iter().any(|v| v != NOTHING)).collect();
        if facts.is_empty() {
            continue;
        }
        out.push('\n');
        let _ = writeln!(out, "{head}");
        facts.into_iter().for_each(|fact| row(&mut out, fact));
    }
    lines(&out)
}

fn verdict(a: &Incident, b: &Incident) -> &'static str {
    if alike(a, b) {
        return "The same cause at the same tier, and the same chain.";
    }
    let apart = !a.hops.iter().any(|hop| b.hops.iter().any(|other| other.host == hop.host));
    match (a.root.resource == b.root.resource, a.root.tier == b.root.tier) {
        (true, true) if apart => "The same cause at a tier of the same name; they have no host in common.",
        (true, true) => "The same cause at the same tier, by another way.",
        (true, false) => "The same cause at another tier.",
        (false, true) if apart => "Another cause at a tier of the same name; they have no host in common.",
        (false, true) => "Another cause at the same tier.",
        (false, false) => "Another cause at another tier.",
    }
}

fn facts(a: &Incident, b: &Incident) -> Vec<Fact> {
    let text = |of: &str, value: fn(&Incident) -> String| Fact {
        of: of.to_owned(),
        values: [a, b].map(value),
        numbers: None,
    };
    let number = |of: &str, unit: &str, value: fn(&Incident) -> u64| {
        let numbers = [a, b].map(value);
        Fact {
            of: of.to_owned(),
            values: numbers.map(|n| format!("{n}{unit}")),
            numbers: Some(numbers.map(|n| n as f64)),
        }
    };
    let mut all = vec![
        text("kind", |i| i.kind.name().to_owned()),
        text("severity", |i| i.severity.name().to_owned()),
        text("cause", |i| i.root.resource.name().to_owned()),
        text("at", |i| i.root.place().short().to_string()),
        text("most of it by", |i| i.root.culprits.first().map_or(NOTHING.to_owned(), |c| c.comm.clone())),
        text("chain, from the root", |i| {
            let tiers: Vec<&str> = from_root(&i.hops).into_iter().map(|hop| hop.tier.as_str()).collect();
            tiers.join(" -> ")
        }),
        text("kept alive by", |i| {
            i.sustained.as_ref().map_or(NOTHING.to_owned(), |s| s.by.name().to_owned())
        }),
        number("lasted", " ms", |i| ms(i.start_unix_ns, i.end_unix_ns)),
        number("its cause lasted", " ms", |i| ms(i.root.start_unix_ns, i.root.end_unix_ns)),
        text("confidence", |i| format!("{:.2}", i.confidence)),
        number("packets dropped", "", |i| i.drops.iter().map(|drop| drop.count).sum()),
        number("connections of them", "", |i| i.drops.iter().map(|drop| drop.connections).sum()),
        number("requests over a second", "", |i| i.vlrt.all()),
    ];
    // Tiers of the first, then those that only the second went through.
    let mut tiers: Vec<&str> = Vec::new();
    for hop in a.hops.iter().chain(&b.hops) {
        if !tiers.contains(&hop.tier.as_str()) {
            tiers.push(&hop.tier);
        }
    }
    for tier in tiers {
        let hops = [a, b].map(|i| i.hops.iter().find(|hop| hop.tier == tier));
        all.extend(of_tier(tier, hops));
    }
    all
}

/// What a tier went through in each.
fn of_tier(tier: &str, hops: [Option<&Hop>; 2]) -> Vec<Fact> {
    let of = |what: &str, value: &dyn Fn(&Hop) -> String, number: &dyn Fn(&Hop) -> u64| {
        let of = if what.is_empty() { tier.to_owned() } else { format!("{tier}: {what}") };
        let values = hops.map(|hop| hop.map_or("not in the chain".to_owned(), value));
        let numbers = match hops {
            [Some(a), Some(b)] => Some([a, b].map(|hop| number(hop) as f64)),
            _ => None,
        };
        Fact { of, values, numbers }
    };
    // Of a tier that one of them did not go through there is nothing to hold against each other.
    if hops.iter().any(Option::is_none) {
        return vec![of("", &|hop| format!("queued {}", queued(hop)), &|_| 0)];
    }
    // Of one that nobody observes its callers say what they had in flight to it, and no more.
    if hops.iter().flatten().any(|hop| !hop.observed) {
        return vec![
            of("host", &|hop| hop.host.clone(), &|_| 0),
            of("queued", &queued, &|hop| hop.queued_max),
        ];
    }
    let mut facts = vec![
        of("host", &|hop| hop.host.clone(), &|_| 0),
        of("queued", &queued, &|hop| if hop.requests_unknown { 0 } else { hop.queued_max }),
        of("accept queue", &|hop| against(hop.accept_queue_max, hop.accept_queue_limit), &|hop| {
            hop.accept_queue_max.into()
        }),
    ];
    if hops.iter().flatten().any(|hop| hop.workers_busy_max > 0) {
        let busy = |hop: &Hop| against(hop.workers_busy_max, hop.workers_limit);
        facts.push(of("workers", &busy, &|hop| hop.workers_busy_max.into()));
    }
    facts
}

/// What it had in its hands at most, as far as that is known.
fn queued(hop: &Hop) -> String {
    match hop.queued_max {
        _ if hop.requests_unknown => "not measured".to_owned(),
        n if hop.connections_only => format!("{n} pieces of data"),
        n if !hop.observed => format!("{n} calls to it"),
        n => n.to_string(),
    }
}

fn ms(from_unix_ns: u64, to_unix_ns: u64) -> u64 {
    to_unix_ns.saturating_sub(from_unix_ns) / 1_000_000
}

/// One fact: once where it is the same of both, else both in their columns, or below each other where they are too long for that.
fn row(out: &mut String, fact: &Fact) {
    let [a, b] = &fact.values;
    let label = &fact.of;
    if a == b {
        let mut value = String::new();
        wrap(&mut value, a, &" ".repeat(LABEL + 2));
        let _ = write!(out, "  {label:<LABEL$}{}{}", gap(label), value.trim_start());
        return;
    }
    let ratio = fact.numbers.filter(|[a, b]| *a > 0.0 && *b > 0.0).map(|[a, b]| b / a);
    let ratio = ratio.filter(|ratio| *ratio >= RATIO_MIN || *ratio <= 1.0 / RATIO_MIN);
    let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2} times"));
    if [a, b].iter().all(|value| value.chars().count() < VALUE) && label.chars().count() < LABEL {
        let line = format!("  {label:<LABEL$}{a:<VALUE$}{b:<VALUE$}{ratio}");
        let _ = writeln!(out, "{}", line.trim_end());
        return;
    }
    let _ = writeln!(out, "  {label}");
    for (letter, value) in [("A", a), ("B", b)] {
        let mut block = String::new();
        wrap(&mut block, value, "      ");
        let _ = write!(out, "    {letter} {}", block.trim_start());
    }
}

/// A label that fills its column is followed by a space all the same.
fn gap(label: &str) -> &'static str {
    if label.chars().count() < LABEL { "" } else { " " }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::incident;
    use tailwater_model::incident::Resource;

    #[test]
    fn what_is_alike_is_told_once_and_what_is_not_beside_each_other() {
        let a = incident("01A", 1);
        let mut b = Incident { end_unix_ns: a.end_unix_ns + 900_000_000, ..incident("01B", 1) };
        b.drops[0].count = 400;
        b.hops[0].workers_busy_max = 140;
        let got = text(&a, &b);
        for line in [
            "A  01A  2026-11-06 21:20:00.000 UTC",
            "The same cause at the same tier, and the same chain.",
            "  cause                     cpu_neighbour",
            "  chain, from the root      app -> web",
            "  lasted                    900 ms              1800 ms             2.00 times",
            "  packets dropped           122                 400                 3.28 times",
            "  web: workers              150/150             140/150",
        ] {
            assert!(got.lines().any(|is| is == line), "missing: {line}\n{got}");
        }
        let (common, other) = got.split_once("Not in common").expect("both parts");
        assert!(common.contains("In common") && common.contains("web: accept queue"), "{got}");
        assert!(!other.contains("cpu_neighbour") && !got.contains("kept alive"), "{got}");
        assert!(got.lines().all(|line| line.chars().count() <= 80), "{got}");
        let same = text(&a, &incident("01C", 1));
        assert!(same.contains("In common") && !same.contains("Not in common"), "{same}");
    }

    #[test]
    fn another_cause_and_another_way_are_told() {
        let a = incident("01A", 1);
        let mut b = incident("01B", 1);
        b.root.resource = Resource::Io;
        assert!(text(&a, &b).contains("Another cause at the same tier."));
        b.root.tier = "db".into();
        b.hops.push(Hop { tier: "db".into(), host: "db-1".into(), queued_max: 31, ..b.hops[1].clone() });
        let got = text(&a, &b);
        assert!(got.contains("Another cause at another tier."), "{got}");
        assert!(
            got.lines().any(|l| l == "  db                        not in the chain    queued 31"),
            "{got}"
        );
        b.root.resource = a.root.resource;
        assert!(text(&a, &b).contains("The same cause at another tier."));
        b.root.tier.clone_from(&a.root.tier);
        assert!(text(&a, &b).contains("The same cause at the same tier, by another way."));
        b.hops.iter_mut().for_each(|hop| hop.host.push_str("-of-others"));
        assert!(
            text(&a, &b).contains("The same cause at a tier of the same name; they have no host in common.")
        );
    }

    #[test]
    fn what_is_not_known_of_a_tier_is_not_told_as_zero() {
        let mut a = incident("01A", 1);
        let mut b = incident("01B", 1);
        (b.hops[0].requests_unknown, a.hops[1].connections_only, b.hops[1].observed) = (true, true, false);
        let got = text(&a, &b);
        for line in [
            "  web: queued               279                 not measured",
            "  app: queued               279 pieces of data  279 calls to it",
        ] {
            assert!(got.lines().any(|is| is == line), "missing: {line}\n{got}");
        }
        assert!(!got.contains("app: accept queue"), "{got}");
    }

    #[test]
    fn what_is_too_long_for_its_column_stands_below() {
        let a = incident("01A", 1);
        let mut b = incident("01B", 1);
        b.root.workload = "a-workload-with-a-name-that-is-longer-than-its-column.service".into();
        let got = text(&a, &b);
        assert!(got.contains("  at\n    A tomcat10@app-1\n    B a-workload-with-a-name"), "{got}");
    }

    #[test]
    fn no_name_is_a_command_to_the_terminal() {
        let mut b = incident("01B", 1);
        b.title = "a\u{1b}]0;owned\u{7}".into();
        b.hops[0].tier = "web\u{9b}2J".into();
        let got = text(&incident("01A", 1), &b);
        assert!(got.chars().all(|c| c == '\n' || !c.is_control()), "{got:?}");
    }
}
