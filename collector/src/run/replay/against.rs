//! What this version says of a recording, held against what another said of it: which verdicts differ, and in what. So a change of a rule is
//! reviewed by its effect. Pure; both sides are what `tailwater replay` prints.

use crate::text::line;
use std::collections::BTreeMap;
use std::fmt::Write;
use tailwater_model::Incident;
use tailwater_model::civil::Civil;
use tailwater_model::place::place;

/// What of an incident is a verdict, by name, as people say it.
fn verdict(i: &Incident) -> [(&'static str, String); 8] {
    let root = &i.root;
    let hop = |h: &tailwater_model::incident::Hop| {
        let role = format!("{:?}", h.role).to_lowercase();
        format!("{} {role}", place(named(&h.tier, &h.workload), &h.host))
    };
    let culprits = root.culprits.iter().map(|c| named(&c.comm, &c.workload).to_owned());
    let drops = i.drops.iter().map(|d| format!("{}@{} {}", d.listener, d.host, d.count));
    [
        ("kind", format!("{} {}", i.severity.name(), i.kind.name())),
        (
            "root",
            format!("{} {}", place(named(&root.tier, &root.workload), &root.host), root.resource.name()),
        ),
        ("from", Civil::of(root.start_unix_ns).time_ms()),
        ("culprits", culprits.collect::<Vec<_>>().join(", ")),
        ("confidence", format!("{:.2}", i.confidence)),
        ("chain", i.hops.iter().map(hop).collect::<Vec<_>>().join(" ← ")),
        ("drops", drops.collect::<Vec<_>>().join(", ")),
        ("kept alive", i.sustained.as_ref().map_or_else(|| "no".to_owned(), |s| s.by.name().to_owned())),
    ]
}

fn named<'a>(first: &'a str, second: &'a str) -> &'a str {
    if first.is_empty() { second } else { first }
}

/// A line for each incident that one side does not have or that differs, with what differs below it, and a last line that counts.
#[must_use]
pub fn differences(before: &[Incident], now: &[Incident]) -> String {
    fn by_id(all: &[Incident]) -> BTreeMap<&str, &Incident> {
        all.iter().map(|i| (i.id.as_str(), i)).collect()
    }
    let (before, now) = (by_id(before), by_id(now));
    let ids: std::collections::BTreeSet<&str> = before.keys().chain(now.keys()).copied().collect();
    let (mut out, mut different) = (String::new(), 0);
    for id in &ids {
        let (old, new) = (before.get(id), now.get(id));
        let (Some(of), sides) = (old.or(new), (old.map(|i| verdict(i)), new.map(|i| verdict(i)))) else {
            continue;
        };
        let head = format!("{id} {}", line(&of.title));
        match sides {
            (Some(old), Some(new)) if old != new => {
                let _ = writeln!(out, "{head}");
                for ((name, was), (_, is)) in old.iter().zip(&new).filter(|(a, b)| a != b) {
                    let _ = writeln!(out, "  {name:<10} {} → {}", line(was), line(is));
                }
            }
            (Some(_), Some(_)) => continue,
            (Some(_), None) => _ = writeln!(out, "{head}\n  was told, and is not any more"),
            (None, _) => _ = writeln!(out, "{head}\n  was not told before"),
        }
        different += 1;
    }
    let _ = writeln!(out, "{different} of {} incidents differ", ids.len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::incident;
    use tailwater_model::incident::Resource;

    #[test]
    fn only_what_differs_is_told_and_versions_and_words_are_no_difference() {
        let old = [incident("01A", 1), incident("01B", 1), incident("01C", 1)];
        let mut new = [incident("01A", 7), incident("01B", 1), incident("01D", 1)];
        new[0].title = "other words".into();
        assert_eq!(differences(&old[..1], &new[..1]), "0 of 1 incidents differ\n");
        (new[1].root.resource, new[1].confidence) = (Resource::Lock, 0.5);
        let told = differences(&old, &new);
        let was = verdict(&old[1]);
        let of = |name: &str| was.iter().find(|(n, _)| *n == name).unwrap().1.clone();
        let (root, confidence) = (of("root"), of("confidence"));
        let now = root.replace(old[1].root.resource.name(), "lock");
        assert_eq!(
            told.lines().filter(|l| l.starts_with("  ")).collect::<Vec<_>>(),
            [
                format!("  root       {root} → {now}"),
                format!("  confidence {confidence} → 0.50"),
                "  was told, and is not any more".to_owned(),
                "  was not told before".to_owned(),
            ]
        );
        assert!(told.ends_with("\n3 of 4 incidents differ\n"), "{told}");
    }
}
