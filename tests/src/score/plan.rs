//! Which injections a run makes, in which order: cells of the lab's table, repeated until every cause has enough. Pure.

use crate::lab::Injection;
use crate::scenario::SCENARIOS;
use crate::score::model::Expectation;

/// One kind of injection and what it must lead to.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The cell's name.
    pub cell: String,
    /// The stack's name.
    pub stack: String,
    /// The cause's name.
    pub cause: String,
    /// What is done.
    pub injection: Injection,
    /// What it must lead to.
    pub expected: Expectation,
}

/// Every cell of the lab.
#[must_use]
pub fn all() -> Vec<Planned> {
    SCENARIOS
        .iter()
        .map(|scenario| {
            let tier = scenario.injection.tier();
            let (kind, resource, culprit) = match scenario.injection {
                Injection::CpuBurn { .. } => ("upstream_ctqo", "cpu_neighbour", Some("burner")),
                Injection::DiskFlush { .. } => ("upstream_ctqo", "io", Some("logflush")),
                Injection::Pause { .. } => ("upstream_ctqo", "pause", None),
                Injection::QuotaSqueeze { .. } => ("upstream_ctqo", "cpu_throttled", None),
                Injection::TableLock { .. } => ("upstream_ctqo", "lock", None),
                Injection::Burst { .. } => ("local_overflow", "burst", None),
            };
            Planned {
                cell: format!("nx0-{}", scenario.name),
                stack: "nx0".into(),
                cause: scenario.name.rsplit('-').next().unwrap_or_default().into(),
                injection: scenario.injection.clone(),
                expected: Expectation {
                    kind: kind.into(),
                    host: crate::system::host(tier).into(),
                    workload: tier.server().into(),
                    resource: resource.into(),
                    culprit: culprit.map(str::to_owned),
                    drops_at: Some("web".into()),
                },
            }
        })
        .collect()
}

/// How often a cell is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Each cell so often.
    Each(usize),
    /// Each cell of a cause so often that the cause has at least so many.
    PerCause(usize),
}

/// The sequence of one stack's injections: rounds over its cells, so that neighbours in time are different causes. `cells` is all that
/// takes part in the run, of every stack: a cause's repetitions are shared among them.
#[must_use]
pub fn sequence(cells: &[Planned], stack: &str, repeat: Repeat) -> Vec<Planned> {
    let times = |cell: &Planned| match repeat {
        Repeat::Each(times) => times,
        Repeat::PerCause(enough) => {
            let of_cause = cells.iter().filter(|other| other.cause == cell.cause).count();
            enough.div_ceil(of_cause.max(1))
        }
    };
    let mine: Vec<&Planned> = cells.iter().filter(|cell| cell.stack == stack).collect();
    let rounds = mine.iter().map(|cell| times(cell)).max().unwrap_or(0);
    let mut sequence = Vec::new();
    for round in 0..rounds {
        sequence.extend(mine.iter().filter(|cell| round < times(cell)).map(|cell| (*cell).clone()));
    }
    sequence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(name: &str, stack: &str, cause: &str) -> Planned {
        Planned {
            cell: name.into(),
            stack: stack.into(),
            cause: cause.into(),
            injection: Injection::Burst { requests: 1 },
            expected: Expectation::default(),
        }
    }

    #[test]
    fn a_cause_has_enough_over_all_stacks_and_rounds_alternate() {
        let cells = [cell("a-cpu", "a", "cpu"), cell("a-io", "a", "io"), cell("b-cpu", "b", "cpu")];
        let names = |stack, repeat| {
            sequence(&cells, stack, repeat).into_iter().map(|planned| planned.cell).collect::<Vec<_>>()
        };
        assert_eq!(names("a", Repeat::PerCause(3)), ["a-cpu", "a-io", "a-cpu", "a-io", "a-io"]);
        assert_eq!(names("b", Repeat::PerCause(3)), ["b-cpu", "b-cpu"]);
        assert_eq!(names("b", Repeat::Each(1)), ["b-cpu"]);
    }
}
