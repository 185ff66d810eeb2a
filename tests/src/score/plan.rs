//! Which injections a run makes, in which order: cells of the lab's table, repeated until every cause has enough. Pure.

use crate::lab::cells::Cell;
use crate::score::model::Expectation;
use crate::stack::Stack;

/// What a cell must lead to, in the words of an incident.
#[must_use]
pub fn expectation(cell: &Cell) -> Expectation {
    let root = cell.expected.root;
    Expectation {
        kind: cell.expected.class.kind().to_owned(),
        host: root.host().to_owned(),
        workload: cell.stack.workload(root).to_owned(),
        resource: cell.cause.resource().to_owned(),
        culprit: cell.expected.culprit.map(str::to_owned),
        drops_at: cell.expected.drops.map(|tier| tier.name().to_owned()),
        sustained: cell.expected.sustained,
    }
}

/// How often a cell is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Each cell so often.
    Each(usize),
    /// Each cell of a cause so often that the cause has at least so many.
    PerCause(usize),
}

/// Injections of a cell whose overload outlives its cause. Each takes a quarter of a minute, and what it leaves behind would be the usual
/// level of the next: there are few, and they come last.
const SUSTAINED_MAX: usize = 10;

/// The sequence of one stack's injections: each cell's repetitions are spread evenly over it, so that neighbours in time are different
/// causes. `cells` is all that takes part in the run, of every stack: a cause's repetitions are shared among them.
#[must_use]
pub fn sequence<'a>(cells: &[&'a Cell], stack: Stack, repeat: Repeat) -> Vec<&'a Cell> {
    let times = |cell: &Cell| match repeat {
        Repeat::Each(times) => times,
        Repeat::PerCause(enough) => {
            let of_cause = cells.iter().filter(|other| other.cause == cell.cause).count();
            let times = enough.div_ceil(of_cause.max(1));
            if cell.expected.sustained { times.min(SUSTAINED_MAX) } else { times }
        }
    };
    let mine: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.stack == stack).collect();
    let mut sequence = Vec::new();
    for cell in mine {
        let times = times(cell);
        // The middle of each of so many equal parts, as a share of the whole.
        let last = f64::from(u8::from(cell.expected.sustained));
        sequence.extend((0..times).map(|n| (last + (2 * n + 1) as f64 / (2 * times) as f64, cell)));
    }
    sequence.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    sequence.into_iter().map(|(_, cell)| cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::cells::{cells, find};

    #[test]
    fn every_cause_has_enough_over_all_stacks_and_neighbours_differ() {
        let all: Vec<&Cell> = cells().iter().collect();
        let mut run: Vec<&Cell> = Vec::new();
        for stack in Stack::ALL {
            let sequence = sequence(&all, stack, Repeat::PerCause(60));
            // What only sizes are measured with has no cells.
            if sequence.is_empty() {
                continue;
            }
            assert!(sequence.iter().all(|cell| cell.stack == stack));
            let sustained = sequence.iter().filter(|cell| cell.expected.sustained).count();
            assert!(
                sustained <= SUSTAINED_MAX
                    && sequence.iter().rev().take(sustained).all(|cell| cell.expected.sustained)
            );
            let sequence = &sequence[..sequence.len() - sustained];
            let same = sequence.windows(2).filter(|pair| pair[0] == pair[1]).count();
            assert!(same * 4 < sequence.len(), "{stack}: {same} of {} after themselves", sequence.len());
            run.extend(sequence);
        }
        for cell in all.iter().filter(|cell| !cell.expected.sustained) {
            let of_cause = run.iter().filter(|other| other.cause == cell.cause).count();
            let of_cell = run.iter().filter(|other| other.name == cell.name).count();
            assert!(of_cause >= 60 && of_cell > 0, "{}: {of_cell}, {of_cause} of its cause", cell.name);
        }
        assert_eq!(sequence(&all[..2], all[0].stack, Repeat::Each(2)), [all[0], all[1], all[0], all[1]]);
    }

    #[test]
    fn an_expectation_speaks_as_incidents_do() {
        let expected = expectation(find("nx0-app-cpu").unwrap());
        assert_eq!(
            (expected.kind.as_str(), expected.host.as_str(), expected.workload.as_str()),
            ("upstream_ctqo", "app-1", "tomcat")
        );
        assert_eq!(expected.resource, "cpu_neighbour");
        assert_eq!(
            (expected.culprit.as_deref(), expected.drops_at.as_deref()),
            (Some("burner"), Some("web"))
        );
    }
}
