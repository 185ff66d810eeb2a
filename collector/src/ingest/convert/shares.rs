//! From the wire's shares of a cgroup's CPU to the model's, and what cannot be refused. Called by `convert` alone; knows no window.

use super::place::{PlaceError, at_most, in_batch};
use tailwater_model::window::{CpuShare, EntityId, HostShares};
use tailwater_proto::v1;

/// Cgroups of one batch: an agent looks at two in a second, and the largest batch has three seconds.
const CGROUPS_MAX: usize = 64;
/// Neighbours of one cgroup: an agent tells of 32 processes, and of the rest as one.
const NEIGHBOURS_MAX: usize = 33;
/// A command has 15 characters.
const COMM_MAX: usize = 64;
/// Time between two looks that is believed, ns: an agent tells of 0.5 to 8 s.
const SPAN_NS: std::ops::RangeInclusive<u64> = 500_000_000..=10_000_000_000;
/// Threads of one neighbour: the kernel's own limit (PID_MAX_LIMIT, 2^22).
const THREADS_MAX: u32 = 1 << 22;

/// Why shares of a CPU are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharesError {
    /// In no window of its batch, or more than an agent tells.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// More time than there was, or a name that is none.
    #[error(
        "shares of the CPU of workload {workload}: times that do not fit into one another, or a command of more than {COMM_MAX} bytes"
    )]
    Absurd {
        /// The cgroup's id on the wire.
        workload: u32,
    },
}

/// Each with its window in the batch and how many windows before that one it is about; its host and last window are for the caller to fill in.
/// `known` gives the id of a workload; a cgroup that has none is left out.
pub(super) fn of_cgroups(
    all: &[v1::CpuShares],
    count: u32,
    mut known: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<(u32, u32, HostShares)>, SharesError> {
    at_most("cgroups with shares of their CPU in one batch", all.len(), CGROUPS_MAX)?;
    let mut found = Vec::new();
    for of in all {
        let offset = in_batch("shares of a CPU", of.window_offset, count)?;
        at_most("neighbours of a cgroup", of.neighbours.len(), NEIGHBOURS_MAX)?;
        let span_ns = of.span_ns;
        let fits = |one: &v1::CpuShare| {
            // Each thread runs or waits, never both; where clocks of CPUs differ, a little of both.
            let most_ns = span_ns.saturating_mul(u64::from(one.threads));
            one.threads <= THREADS_MAX
                && one.ran_ns <= most_ns
                && one.waited_ns <= most_ns
                && one.comm.len() <= COMM_MAX
        };
        if !SPAN_NS.contains(&span_ns) || !of.neighbours.iter().all(fits) {
            return Err(SharesError::Absurd { workload: of.workload });
        }
        let Some(workload) = known(of.workload).filter(|id| *id != 0) else { continue };
        let one = |one: &v1::CpuShare| CpuShare {
            workload: known(one.workload).filter(|id| *id != 0).unwrap_or(workload),
            comm: one.comm.clone(),
            ran_ns: one.ran_ns,
            waited_ns: one.waited_ns,
            threads: one.threads,
        };
        let neighbours = of.neighbours.iter().map(one).collect();
        found.push((
            offset,
            of.windows_ago,
            HostShares { span_ns, workload, neighbours, ..HostShares::default() },
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_taken_with_the_ids_of_here_and_what_cannot_be_is_refused() {
        let one = |workload, comm: &str| v1::CpuShare {
            workload,
            comm: comm.into(),
            ran_ns: 600,
            waited_ns: 4_000,
            threads: 5,
        };
        let whole = v1::CpuShares {
            window_offset: 1,
            workload: 3,
            windows_ago: 19,
            span_ns: 1_000_000_000,
            neighbours: vec![one(4, "java"), one(3, "backup"), one(9, "java")],
        };
        let read =
            |of: &v1::CpuShares| of_cgroups(std::slice::from_ref(of), 2, |id| (id < 5).then_some(id + 100));
        let told = read(&whole).unwrap();
        let (offset, ago, shares) = &told[0];
        assert_eq!((*offset, *ago, shares.workload, shares.span_ns), (1, 19, 103, 1_000_000_000));
        let ids: Vec<EntityId> = shares.neighbours.iter().map(|of| of.workload).collect();
        assert_eq!(ids, [104, 103, 103], "a server that is not known is one of the cgroup's programs");
        assert_eq!(shares.neighbours[0].waited_ns, 4_000);
        assert_eq!(read(&v1::CpuShares { workload: 7, ..whole.clone() }), Ok(Vec::new()));

        let absurd = Err(SharesError::Absurd { workload: 3 });
        let with = |change: fn(&mut v1::CpuShare)| {
            let mut of = whole.clone();
            change(&mut of.neighbours[1]);
            read(&of)
        };
        assert_eq!(with(|one| one.ran_ns = 5_000_000_001), absurd);
        assert_eq!(with(|one| one.waited_ns = u64::MAX), absurd);
        assert_eq!(with(|one| one.threads = u32::MAX), absurd);
        assert_eq!(with(|one| one.comm = "x".repeat(65)), absurd);
        assert_eq!(read(&v1::CpuShares { span_ns: SPAN_NS.start() - 1, ..whole.clone() }), absurd);
        assert_eq!(read(&v1::CpuShares { span_ns: SPAN_NS.end() + 1, ..whole.clone() }), absurd);
        let outside = read(&v1::CpuShares { window_offset: 2, ..whole.clone() }).unwrap_err();
        assert_eq!(outside.to_string(), "shares of a CPU in window 2 of 2");
        let many = v1::CpuShares { neighbours: vec![one(4, "x"); NEIGHBOURS_MAX + 1], ..whole.clone() };
        assert!(matches!(read(&many), Err(SharesError::Place(PlaceError::Many { .. }))));
        let cgroups = vec![whole; CGROUPS_MAX + 1];
        assert!(matches!(
            of_cgroups(&cgroups, 2, |_| None),
            Err(SharesError::Place(PlaceError::Many { .. }))
        ));
    }
}
