//! Verdicts whose truth is known: of the laboratory's recordings, of what is composed of the golden ones, and of simulated systems. Owns which
//! are taken and what is right about a root; judges nothing else.

use crate::programs::reported::Reported;
use crate::score::golden::Golden;
use crate::score::judge::judge;
use crate::score::model::{Injection, Plan};
use crate::score::session;
use crate::stack::Stack;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

/// Where a verdict's truth is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An injection into real servers.
    Laboratory,
    /// A golden recording of which something was taken away.
    Composed,
    /// A system made from a seed.
    Simulated,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Laboratory, Self::Composed, Self::Simulated];

    /// As people say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Laboratory => "laboratory",
            Self::Composed => "composed",
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
}

impl Verdicts {
    /// Of what the analysis said of inputs, one incident a line, a session's under the name of its stack. The truth of simulated systems is in
    /// `inputs`, that of composed recordings in `golden`, that of sessions in `lab`.
    pub fn told(&mut self, lines: impl BufRead, inputs: &Path, golden: &Path, lab: &Path) -> Result<()> {
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
                let (planned, missed) = self.judged(Source::Laboratory, &injections, incidents, None);
                self.injections += planned;
                self.missed += missed;
            }
        }
        Ok(())
    }

    /// Takes the incident that belongs to each injection, and the further alarms in its time: they claim a root as well. Returns how many
    /// injections went as planned, and of how many of these nothing was told.
    fn judged(
        &mut self,
        source: Source,
        injections: &[Injection],
        incidents: &[Value],
        of: Option<&str>,
    ) -> (u64, u64) {
        let reported: Vec<Reported> = incidents.iter().map(Reported::of).collect();
        let (mut planned, mut missed) = (0, 0);
        for row in judge(injections, &reported, &[]).rows {
            if row.plan != Plan::AsPlanned {
                continue;
            }
            planned += 1;
            missed += u64::from(row.reported.is_none());
            let ids = row.reported.iter().map(|best| &best.id).chain(&row.extra);
            for id in ids {
                let both = incidents.iter().zip(&reported).find(|(_, reported)| reported.id == *id);
                let Some((incident, is)) = both else { continue };
                let wanted = &row.expected;
                let right = (&is.host, &is.workload, &is.resource)
                    == (&wanted.host, &wanted.workload, &wanted.resource);
                let of = of.unwrap_or(&row.id);
                self.all.push(self.verdict(source, of, &row.cell, incident, is, right));
            }
        }
        (planned, missed)
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

/// Whether a root is something that was done to the system, at that time.
fn was_done(is: &Reported, done: &[Done]) -> bool {
    done.iter().any(|done| {
        let meets = is.root_start_unix_ns <= done.to_unix_ns.saturating_add(NEAR_NS)
            && done.from_unix_ns <= is.root_end_unix_ns.saturating_add(NEAR_NS);
        done.host == is.host && done.resources.contains(&is.resource) && meets
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_root_is_right_where_it_names_what_was_done_where_and_when() {
        let done = [Done {
            host: "db-1".into(),
            from_unix_ns: 5000 * MS,
            to_unix_ns: 5600 * MS,
            resources: vec!["cpu".into(), "cpu_throttled".into()],
        }];
        let root = |host: &str, resource: &str, from: u64| Reported {
            host: host.into(),
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
