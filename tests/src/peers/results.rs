//! How often each method put the injected root first, or among its first three. Owns the counting and the report; runs nothing.

use crate::score::quality::wilson;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What was injected into one recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Case {
    pub cell: String,
    /// Host of the injected root.
    pub host: String,
    /// Hosts that tell something.
    pub hosts: usize,
    /// Begin of the injection, seconds since the epoch.
    pub injected_at: f64,
}

/// What one method said about one recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Answer {
    pub cell: String,
    pub method: String,
    /// `50 ms` or `1 s`.
    pub signals: String,
    /// Hosts, the likeliest root first, each once.
    pub hosts: Vec<String>,
    /// Why there is none.
    pub error: Option<String>,
    /// How long it took.
    pub seconds: f64,
}

/// Everything that was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Results {
    pub label: String,
    pub cases: Vec<Case>,
    pub answers: Vec<Answer>,
}

#[derive(Default)]
struct Count {
    first: usize,
    of_three: usize,
    failed: usize,
    all: usize,
    seconds: f64,
}

impl Results {
    /// As Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let mut counts: BTreeMap<(String, String), Count> = BTreeMap::new();
        let roots: BTreeMap<&str, &str> =
            self.cases.iter().map(|case| (case.cell.as_str(), case.host.as_str())).collect();
        for answer in &self.answers {
            let Some(root) = roots.get(answer.cell.as_str()) else { continue };
            let count = counts.entry((answer.signals.clone(), answer.method.clone())).or_default();
            let place = answer.hosts.iter().position(|host| host == root);
            count.all += 1;
            count.first += usize::from(place == Some(0));
            count.of_three += usize::from(place.is_some_and(|place| place < 3));
            count.failed += usize::from(answer.error.is_some());
            count.seconds += answer.seconds;
        }
        let mut rows: Vec<_> = counts.iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(count.first));
        let mut out = format!("# `make peers`: {}\n\n", self.label);
        let _ = writeln!(
            out,
            "{} recordings, of 3 to {} hosts. Every method but Tailwater is told when the injection began; of Tailwater the first incident after that counts in which something was dropped, and where nothing was, the first. *chance* is the columns in a random order. In brackets the 95 % interval (Wilson). A method that gave no answer is counted as wrong.\n",
            self.cases.len(),
            self.cases.iter().map(|case| case.hosts).max().unwrap_or(0)
        );
        out += "| method | signals | root's host first | among the first three | no answer | seconds for each |\n";
        out += "|---|---|---|---|---|---|\n";
        for ((signals, method), count) in rows {
            let share = |hits: usize| {
                let (low, high) = wilson(hits, count.all);
                format!("{hits} of {} ({low:.2} to {high:.2})", count.all)
            };
            let _ = writeln!(
                out,
                "| {method} | {signals} | {} | {} | {} | {:.2} |",
                share(count.first),
                share(count.of_three),
                count.failed,
                count.seconds / count.all.max(1) as f64
            );
        }
        let mut why: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for answer in &self.answers {
            if let Some(error) = &answer.error {
                *why.entry((&answer.method, error)).or_default() += 1;
            }
        }
        if !why.is_empty() {
            out += "\nWhy there was no answer:\n\n";
        }
        for ((method, error), times) in why {
            let _ = writeln!(out, "* {method}: {error} ({times} times)");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_first_among_three_and_no_answer_are_counted_apart() {
        let case = |cell: &str| Case { cell: cell.into(), host: "db-1".into(), hosts: 4, injected_at: 1.0 };
        let answer = |cell: &str, hosts: &[&str], error: Option<&str>| Answer {
            cell: cell.into(),
            method: "nsigma".into(),
            signals: "1 s".into(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            error: error.map(str::to_owned),
            seconds: 0.5,
        };
        let results = Results {
            label: "v".into(),
            cases: ["a", "b", "c", "d"].map(case).into(),
            answers: vec![
                answer("a", &["db-1", "web-1"], None),
                answer("b", &["web-1", "app-1", "db-1"], None),
                answer("c", &["web-1", "app-1", "cache-1", "db-1"], None),
                answer("d", &[], Some("it broke")),
            ],
        };
        let table = results.table();
        assert!(
            table.contains("| nsigma | 1 s | 1 of 4 (0.05 to 0.70) | 2 of 4 (0.15 to 0.85) | 1 | 0.50 |"),
            "{table}"
        );
        assert!(table.contains("* nsigma: it broke (1 times)"), "{table}");
    }
}
