//! Verdicts whose truth is known: of the laboratory's recordings, of what is composed of the golden ones, and of simulated systems. Owns which
//! are taken and what is right about a root; judges nothing else.

use crate::graph::run::{self as graph, SESSION};
use crate::programs::reported::Reported;
use crate::score::golden::Golden;
use crate::score::judge::judge;
use crate::score::model::{Expectation, Injection, Plan};
use crate::score::session;
use crate::stack::Stack;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::path::Path;

/// Where a verdict's truth is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An injection into real servers.
    Laboratory,
    /// A golden recording of which something was taken away.
    Composed,
    /// An injection into a service graph of development.
    Graph,
    /// A system made from a seed.
    Simulated,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Laboratory, Self::Composed, Self::Graph, Self::Simulated];

    /// Whether it is of servers that ran, and whole: nothing was taken away from what was seen.
    #[must_use]
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Laboratory | Self::Graph)
    }

    /// As people say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Laboratory => "laboratory",
            Self::Composed => "composed",
            Self::Graph => "service graphs",
            Self::Simulated => "simulated",
        }
    }
}

/// A verdict with what is right.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Where its truth is from.
    pub source: Source,
    /// What it is of: an injection, a composition or a simulated system.
    pub of: String,
    /// What is like it: the cell, or the system. Those are held out together.
    pub group: String,
    /// The root that it names, for people.
    pub root: String,
    /// The numbers that confidence is made of, in the order of their names; `None`: it is by rule, as of everything unexplained.
    pub numbers: Option<Vec<f64>>,
    /// Whether host, workload and resource of the root are those of the truth.
    pub right: bool,
}

/// Compositions whose injection is still the cause: of the others something else is.
const SAME_CAUSE: [&str; 7] =
    ["app-1 unseen", "db-1 unseen", "half lost", "all lost", "holes", "clock ahead", "clock unsure"];
/// A root is that of what was done if their times come as near as this: windows, queues' tails and clocks (up to 40 ms wrong).
const NEAR_NS: u64 = 200_000_000;
/// The number that orders candidates by rule, for comparison.
pub const SCORE: &str = "score";

/// Something that was done to a simulated system.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Done {
    host: String,
    workload: String,
    from_unix_ns: u64,
    to_unix_ns: u64,
    resources: Vec<String>,
}

/// A line of the example `incidents`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    /// The first: what the numbers are called.
    Names { names: Vec<String> },
    /// Every other.
    Incident { recording: String, incident: Value },
}

/// What was read: names of numbers, and verdicts.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// What the numbers are called.
    pub names: Vec<String>,
    /// The verdicts.
    pub all: Vec<Verdict>,
    /// Injections of the laboratory that went as planned, and how many of them nothing was told of.
    pub injections: u64,
    /// See `injections`.
    pub missed: u64,
    /// Injections into service graphs that hurt somebody, and how many of them nothing was told of.
    pub graph_injections: u64,
    /// See `graph_injections`.
    pub graph_missed: u64,
    /// The laboratory's alarms outside of its injections' times. They are no verdicts: what else happened on the machine then is not known.
    pub strays: u64,
    /// Its other incidents that are no verdicts: they alarm nobody, or are of injections that did not go as planned.
    pub others: u64,
}

/// What was counted of a recording beside its verdicts; see [`Verdicts`].
#[derive(Debug, Default, PartialEq)]
struct Counts {
    planned: u64,
    missed: u64,
    strays: u64,
    others: u64,
}

impl Verdicts {
    /// Of what the analysis said of inputs, one incident a line, a session's under the name of its stack, a graph's under its seed. The truth of
    /// simulated systems is in `inputs`, that of composed recordings in `golden`, that of sessions in `lab` and `graphs`.
    pub fn told(&mut self, lines: impl BufRead, [inputs, golden, lab, graphs]: [&Path; 4]) -> Result<()> {
        let mut by_recording: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for line in lines.lines() {
            match serde_json::from_str(&line?)? {
                Line::Names { names } => self.names = names,
                Line::Incident { recording, incident } => {
                    by_recording.entry(recording).or_default().push(incident);
                }
            }
        }
        for (recording, incidents) in &by_recording {
            if recording.starts_with("simulated ") {
                let path = inputs.join(format!("{recording}.truth"));
                let text =
                    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                self.simulated(recording, incidents, &serde_json::from_str::<Vec<Done>>(&text)?);
            } else if let Some((cell, composition)) = recording.split_once(", ")
                && SAME_CAUSE.contains(&composition)
            {
                let injection = Golden::of(golden, cell).injection()?;
                self.judged(Source::Composed, &[injection], incidents, Some(recording));
            } else if Stack::ALL.iter().any(|stack| stack.name() == recording) {
                let injections = session::kept(&lab.join(recording))?;
                let counts = self.judged(Source::Laboratory, &injections, incidents, None);
                self.injections += counts.planned;
                self.missed += counts.missed;
                self.strays += counts.strays;
                self.others += counts.others;
            } else if graphs.join(recording).join(SESSION).is_file() {
                self.graph(recording, incidents, &graphs.join(recording))?;
            }
        }
        Ok(())
    }

    /// Takes the incident that belongs to each injection, and the further alarms in its time: they claim a root as well. A composed recording
    /// holds nothing but its injection, so that whatever else is told of it is a verdict, too.
    fn judged(
        &mut self,
        source: Source,
        injections: &[Injection],
        incidents: &[Value],
        of: Option<&str>,
    ) -> Counts {
        let reported: Vec<Reported> = incidents.iter().map(Reported::of).collect();
        let judged = judge(injections, &reported, &[]);
        let mut counts = Counts { strays: judged.strays.len() as u64, ..Counts::default() };
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        for row in &judged.rows {
            if row.plan != Plan::AsPlanned {
                continue;
            }
            counts.planned += 1;
            counts.missed += u64::from(row.reported.is_none());
            let ids = row.reported.iter().map(|best| &best.id).chain(&row.extra);
            for id in ids {
                let both = incidents.iter().zip(&reported).find(|(_, reported)| reported.id == *id);
                let Some((incident, is)) = both else { continue };
                taken.insert(&is.id);
                let of = of.unwrap_or(&row.id);
                let right = names(is, &row.expected);
                self.all.push(self.verdict(source, of, &row.cell, incident, is, right));
            }
        }
        let all = incidents.iter().zip(&reported);
        let left: Vec<(&Value, &Reported)> = all.filter(|(_, is)| !taken.contains(is.id.as_str())).collect();
        counts.others = (left.len() as u64).saturating_sub(counts.strays);
        if let (Source::Composed, [injection], 1) = (source, injections, counts.planned) {
            let (truth, of) = (&injection.truth, of.unwrap_or(&injection.truth.id));
            for (incident, is) in left {
                let right =
                    names(is, &injection.expected) && meets(is, truth.start_unix_ns, truth.end_unix_ns);
                self.all.push(self.verdict(source, of, &injection.cell, incident, is, right));
            }
        }
        counts
    }

    /// Takes each root that was named in an injection's time.
    fn graph(&mut self, seed: &str, incidents: &[Value], folder: &Path) -> Result<()> {
        let reported: Vec<Reported> = incidents.iter().map(Reported::of).collect();
        let of = graph::judged(folder, &reported)?;
        for row in &of.rows {
            self.graph_injections += u64::from(row.induced);
            self.graph_missed += u64::from(row.induced && row.reported.is_none());
            for (told, right) in row.named() {
                let Some(incident) = incidents.iter().find(|incident| incident["id"] == told.id.as_str())
                else {
                    continue;
                };
                let verdict =
                    self.verdict(Source::Graph, &row.injection.truth.id, seed, incident, told, right);
                self.all.push(verdict);
            }
        }
        Ok(())
    }

    fn simulated(&mut self, recording: &str, incidents: &[Value], done: &[Done]) {
        for incident in incidents {
            let is = Reported::of(incident);
            let verdict =
                self.verdict(Source::Simulated, recording, recording, incident, &is, was_done(&is, done));
            self.all.push(verdict);
        }
    }

    fn verdict(
        &self,
        source: Source,
        of: &str,
        group: &str,
        incident: &Value,
        is: &Reported,
        right: bool,
    ) -> Verdict {
        let told = incident["numbers"].as_array().filter(|numbers| !numbers.is_empty());
        let numbers = told.map(|told| {
            let value = |name: &String| {
                let number = told.iter().find(|number| number["name"] == name.as_str());
                // What is not told is 0.
                number.and_then(|number| number["value"].as_f64()).unwrap_or(0.0)
            };
            self.names.iter().map(value).collect()
        });
        Verdict {
            source,
            of: of.to_owned(),
            group: group.to_owned(),
            root: format!("{} at {}@{}", is.resource, is.workload, is.host),
            numbers,
            right,
        }
    }
}

/// Whether host, workload and resource of a root are those that are expected.
fn names(is: &Reported, wanted: &Expectation) -> bool {
    (&is.host, &is.workload, &is.resource) == (&wanted.host, &wanted.workload, &wanted.resource)
}

/// Whether a root's time is that of something.
fn meets(is: &Reported, from_unix_ns: u64, to_unix_ns: u64) -> bool {
    is.root_start_unix_ns <= to_unix_ns.saturating_add(NEAR_NS)
        && from_unix_ns <= is.root_end_unix_ns.saturating_add(NEAR_NS)
}

/// Whether a root is something that was done to the system, at that time.
fn was_done(is: &Reported, done: &[Done]) -> bool {
    done.iter().any(|done| {
        let there = (&done.host, &done.workload) == (&is.host, &is.workload);
        there && done.resources.contains(&is.resource) && meets(is, done.from_unix_ns, done.to_unix_ns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::TruthRecord;
    use serde_json::json;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_root_is_right_where_it_names_what_was_done_where_and_when() {
        let done = [Done {
            host: "db-1".into(),
            workload: "mariadb.service".into(),
            from_unix_ns: 5000 * MS,
            to_unix_ns: 5600 * MS,
            resources: vec!["cpu".into(), "cpu_throttled".into()],
        }];
        let root = |host: &str, resource: &str, from: u64| Reported {
            host: host.into(),
            workload: "mariadb.service".into(),
            resource: resource.into(),
            root_start_unix_ns: from * MS,
            root_end_unix_ns: (from + 100) * MS,
            ..Reported::default()
        };
        assert!(was_done(&root("db-1", "cpu_throttled", 5100), &done));
        assert!(was_done(&root("db-1", "cpu", 5750), &done), "its queue's tail");
        assert!(!was_done(&root("db-1", "cpu", 5900), &done), "later");
        assert!(!was_done(&root("app-1", "cpu", 5100), &done), "elsewhere");
        assert!(!was_done(&root("db-1", "pause", 5100), &done), "another resource");
        let neighbour = Reported { workload: "burner.service".into(), ..root("db-1", "cpu", 5100) };
        assert!(!was_done(&neighbour, &done), "another workload of the same host");
    }

    #[test]
    fn whatever_is_told_of_a_composed_recording_is_a_verdict_and_of_a_session_the_rest_is_counted() {
        let injection = Injection {
            cell: "nx0-app-cpu".into(),
            expected: Expectation {
                host: "app-1".into(),
                workload: "tomcat".into(),
                resource: "cpu_neighbour".into(),
                ..Expectation::default()
            },
            truth: TruthRecord {
                id: "nx0-app-cpu#1".into(),
                start_unix_ns: 5000 * MS,
                end_unix_ns: 5600 * MS,
                from_unix_ns: 4900 * MS,
                to_unix_ns: 9900 * MS,
                ..TruthRecord::default()
            },
            ..Injection::default()
        };
        let incident = |id: &str, severity: &str, host: &str, from: u64| {
            json!({ "id": id, "severity": severity, "root": {
                "host": host, "workload": "tomcat", "resource": "cpu_neighbour",
                "start_unix_ns": from * MS, "end_unix_ns": (from + 200) * MS,
            } })
        };
        let incidents = [
            incident("alarm before it", "warning", "app-1", 3000),
            incident("its own", "warning", "app-1", 5000),
            incident("again", "info", "app-1", 5500),
            incident("elsewhere", "info", "db-1", 5300),
        ];
        let mut composed = Verdicts::default();
        let injections = [injection];
        composed.judged(Source::Composed, &injections, &incidents, Some("nx0-app-cpu, holes"));
        let right: Vec<bool> = composed.all.iter().map(|verdict| verdict.right).collect();
        assert_eq!(right, [true, false, true, false], "{:?}", composed.all);
        let mut session = Verdicts::default();
        let counts = session.judged(Source::Laboratory, &injections, &incidents, None);
        assert_eq!(session.all.len(), 1, "{:?}", session.all);
        assert_eq!(counts, Counts { planned: 1, missed: 0, strays: 1, others: 2 });
    }

    #[test]
    fn numbers_that_are_not_told_are_0_and_a_verdict_by_rule_has_none() {
        let verdicts = Verdicts { names: vec!["score".into(), "far".into()], ..Verdicts::default() };
        let of = |incident: &Value| {
            verdicts.verdict(Source::Laboratory, "a#1", "a", incident, &Reported::of(incident), true).numbers
        };
        let told = json!({ "numbers": [{ "name": "far", "value": 0.25, "adds": 0.1 }] });
        assert_eq!(of(&told), Some(vec![0.0, 0.25]));
        assert_eq!(of(&json!({ "root": { "resource": "unexplained" } })), None);
    }
}
