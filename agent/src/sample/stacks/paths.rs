//! Samples with the same calls are one path through the code. Pure: names of functions in, what is told out.

use crate::window::{CgroupId, CodePath, Doing};
use std::collections::HashMap;

/// Paths of a process that are told in one look: those that most of its samples have.
const PATHS_MAX: usize = 4;
/// Functions of one path, innermost first.
const FRAMES_MAX: usize = 24;

/// A process in one look.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) workload: CgroupId,
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) doing: Doing,
    /// Of each sample the functions, innermost first, and whether those are all.
    pub(super) calls: Vec<(Vec<String>, bool)>,
}

/// What is told of it: of so many windows, the last of which is that of the look.
pub(super) fn of(seen: Seen, windows: u32) -> Vec<CodePath> {
    let Seen { workload, pid, comm, doing, calls } = seen;
    let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
    let of = count(calls.len());
    let mut same: HashMap<Vec<String>, (usize, bool)> = HashMap::new();
    for (mut frames, is_whole) in calls {
        let is_cut = !is_whole || frames.len() > FRAMES_MAX;
        frames.truncate(FRAMES_MAX);
        // One function that calls itself, or two instructions of one, are one place.
        frames.dedup();
        let (samples, cut) = same.entry(frames).or_insert((0, false));
        *samples += 1;
        *cut |= is_cut;
    }
    let mut all: Vec<(Vec<String>, (usize, bool))> = same.into_iter().collect();
    all.sort_by(|(a, (a_samples, _)), (b, (b_samples, _))| b_samples.cmp(a_samples).then_with(|| a.cmp(b)));
    all.truncate(PATHS_MAX);
    all.into_iter()
        .map(|(frames, (samples, cut))| CodePath {
            windows_ago: 0,
            windows,
            workload,
            pid,
            comm: comm.clone(),
            doing,
            samples: count(samples),
            of,
            frames,
            cut,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_with_the_same_calls_are_one_path_and_the_commonest_comes_first() {
        let call = |frames: &[&str]| (frames.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>(), true);
        let mut calls = vec![call(&["b", "main"]), call(&["a", "a", "main"]), call(&["a", "main"])];
        calls.extend((0..6).map(|n| call(&[&format!("rare{n}"), "main"])));
        calls.push((vec!["c".to_owned(); 30], true));
        let seen =
            Seen { workload: CgroupId(2), pid: 7, comm: "server".to_owned(), doing: Doing::Running, calls };
        let told = of(seen, 4);
        assert_eq!(told.len(), PATHS_MAX);
        assert_eq!((told[0].frames.join(" "), told[0].samples, told[0].of), ("a main".to_owned(), 2, 10));
        assert!(!told[0].cut && told.iter().find(|path| path.frames == ["c"]).is_some_and(|path| path.cut));
    }
}
