//! Where in its code the root ran or waited: which of the paths that its host's agent told are of it, and which of these are worth telling. Owns that
//! choice and its clause; knows no rule by which a root is found.

use super::Report;
use crate::episode::Episode;
use crate::episode::culprits::workload_name;
use crate::path::candidate::Candidate;
use crate::path::step::Place;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tailwater_model::incident::{Code, Resource};
use tailwater_model::window::{CodePath, Doing, HostWindow};

/// Places that are told of a root.
const PLACES_MAX: usize = 3;
/// Functions of each, the innermost ones: what is further out is how a thread was begun.
const FRAMES_MAX: usize = 24;
/// A place with fewer samples than this is chance, …
const SAMPLES_MIN: u32 = 3;
/// … and so is one with a smaller part of those of its process, percent.
const PERCENT_MIN: u64 = 10;
/// A path belongs to an episode from so many windows before its first one on (50 ms), …
const BEFORE_WINDOWS: u64 = 1;
/// … until so many after its last one (200 ms): an agent looks when it has seen that something stands, and then at whole spans.
const UNTIL_WINDOWS: u64 = 4;
/// An agent tells a path at most so many windows after the last one that it is of (6 s): it looks names up when they are asked for, and may have to read the files first while the CPU is short.
const TOLD_WINDOWS: u64 = 120;

impl Report<'_> {
    /// The places in the code of a root that most samples were in, as far as they are told by now.
    pub(super) fn code(&self, root: &Candidate) -> Vec<Code> {
        let Place::Tier(key) = &root.place else { return Vec::new() };
        let Some(doing) = looked_for(&root.episode) else { return Vec::new() };
        let history = self.view.history;
        if root.episode.resource != Resource::CpuNeighbour {
            // What several servers of one control group used is measured of all of them. Who waits is a matter of each.
            let all = history.measured_under(&key.host, key.workload);
            let is_its = |path: &CodePath| {
                let own = path.workload == key.workload;
                path.workload != 0 && (own || doing == Doing::Running && path.workload == all)
            };
            return self.places(root, &key.host, |path| path.doing == doing && is_its(path));
        }
        let Some(taker) = root.episode.culprits.first() else { return Vec::new() };
        let of_process = |path: &CodePath| taker.pid != 0 && path.pid == taker.pid;
        let found = self.places(root, &key.host, |path| path.doing == doing && of_process(path));
        if !found.is_empty() || taker.workload.is_empty() {
            return found;
        }
        // One that lived for a moment, as a compiler does, is not sampled often enough; those beside it do the same.
        let names = history.hosts.get(&key.host);
        let beside = |path: &CodePath| workload_name(names, path.workload) == taker.workload;
        self.places(root, &key.host, |path| path.doing == doing && beside(path))
    }

    /// Whether no window to come can tell more of it.
    pub(super) fn code_is_complete(&self, root: &Candidate) -> bool {
        looked_for(&root.episode).is_none() || self.now >= last_told(&root.episode)
    }

    /// The first of these places as a clause of the evidence; empty where there is none.
    pub(super) fn in_code(&self, root: &Candidate, places: &[Code]) -> String {
        let Some(most) = places.first() else { return String::new() };
        let shares_group = || match &root.place {
            Place::Tier(key) => self.view.history.measured_under(&key.host, key.workload) != key.workload,
            _ => false,
        };
        if root.episode.resource == Resource::CpuNeighbour || shares_group() {
            format!("; `{}`: {}", most.comm, most.told())
        } else {
            format!("; {}", most.told())
        }
    }

    /// The places of those paths of a host that `is_its` takes, of the time of an episode.
    fn places(&self, root: &Candidate, host: &str, is_its: impl Fn(&CodePath) -> bool) -> Vec<Code> {
        let first = root.episode.first.saturating_sub(BEFORE_WINDOWS);
        let last = root.episode.last.saturating_add(UNTIL_WINDOWS);
        let windows = self.view.history.windows_of(host);
        let told = (first..=last_told(&root.episode).min(self.now)).filter_map(|index| windows.at(index));
        most(of_the_time(told, (first, last)).filter(|(_, path)| is_its(path)))
    }
}

/// The last window that can tell something of an episode.
fn last_told(episode: &Episode) -> u64 {
    episode.last.saturating_add(UNTIL_WINDOWS).saturating_add(TOLD_WINDOWS)
}

/// What is looked for: what ran, where the CPU is what was short, and where the threads of a tier were that waited for something else. `None`: neither
/// says why, as of a process that was stopped or had more to do than ever.
fn looked_for(episode: &Episode) -> Option<Doing> {
    match episode.resource {
        Resource::Cpu | Resource::CpuNeighbour | Resource::CpuThrottled => Some(Doing::Running),
        Resource::EventLoop => {
            let slept = episode.event_loop.as_ref().is_some_and(|it| !it.slept_in.is_empty());
            Some(if slept { Doing::Waiting } else { Doing::Running })
        }
        Resource::Io | Resource::Lock | Resource::Dns | Resource::Network => Some(Doing::Waiting),
        Resource::CpuSteal | Resource::Memory | Resource::Pause | Resource::Burst | Resource::Unexplained => {
            None
        }
    }
}

/// The paths that are of some window in `[first, last]`, each with the window that tells it.
fn of_the_time<'a>(
    told: impl Iterator<Item = &'a HostWindow>,
    (first, last): (u64, u64),
) -> impl Iterator<Item = (u64, &'a CodePath)> {
    told.flat_map(|window| window.code_paths.iter().map(move |path| (window.index, path)))
        .filter(move |(at, path)| {
            let (from, to) = path.span(*at);
            from <= last && to >= first
        })
        .map(|(at, path)| (at.0, path))
}

/// The places that most samples were in. What was told of one process at several times is one.
fn most<'a>(paths: impl Iterator<Item = (u64, &'a CodePath)>) -> Vec<Code> {
    // All samples of a process stand in each path of one look at it.
    let mut looks: BTreeMap<(u32, Doing, u64, u32, u32), u32> = BTreeMap::new();
    let mut places: BTreeMap<(u32, Doing, &'a [String]), Code> = BTreeMap::new();
    for (at, path) in paths {
        let of = looks.entry((path.pid, path.doing, at, path.windows_ago, path.windows)).or_default();
        *of = (*of).max(path.of);
        let frames = path.frames.get(..FRAMES_MAX).unwrap_or(&path.frames);
        let place = places.entry((path.pid, path.doing, frames)).or_insert_with(|| Code {
            doing: path.doing,
            pid: path.pid,
            comm: path.comm.clone(),
            percent: 0,
            samples: 0,
            frames: frames.to_vec(),
            cut: false,
        });
        place.samples = place.samples.saturating_add(path.samples);
        place.cut |= path.cut || frames.len() < path.frames.len();
    }
    let mut all: BTreeMap<(u32, Doing), u64> = BTreeMap::new();
    for ((pid, doing, ..), of) in looks {
        let sum = all.entry((pid, doing)).or_default();
        *sum = sum.saturating_add(of.into());
    }
    let mut found: Vec<Code> = places
        .into_values()
        .filter_map(|place| {
            let of = all.get(&(place.pid, place.doing)).copied().filter(|of| *of > 0)?;
            let hundredfold = u64::from(place.samples).saturating_mul(100);
            let is_chance = place.samples < SAMPLES_MIN || hundredfold < PERCENT_MIN.saturating_mul(of);
            let percent = u32::try_from(hundredfold.saturating_add(of / 2) / of).unwrap_or(100).min(100);
            (!is_chance).then_some(Code { percent, ..place })
        })
        .collect();
    // Those with as many stay in the order of their processes and functions.
    found.sort_by_key(|place| Reverse(place.samples));
    found.truncate(PLACES_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture;
    use tailwater_model::incident::EventLoop;

    /// Of process 7, in `windows` windows until so many before the one that tells it.
    fn path(frames: &[&str], (windows_ago, windows): (u32, u32), (samples, of): (u32, u32)) -> CodePath {
        CodePath {
            windows_ago,
            windows,
            workload: 1,
            pid: 7,
            comm: "mariadbd".into(),
            doing: Doing::Running,
            samples,
            of,
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            cut: false,
        }
    }

    fn told(paths: &[(u64, CodePath)]) -> Vec<Code> {
        most(paths.iter().map(|(at, path)| (*at, path)))
    }

    #[test]
    fn what_is_told_of_one_place_at_several_times_is_one_and_all_samples_count_once_a_time() {
        let found = told(&[
            (20, path(&["spin", "main"], (0, 10), (20, 30))),
            (20, path(&["read", "main"], (0, 10), (5, 30))),
            (30, path(&["spin", "main"], (0, 10), (19, 20))),
            // Of another process of the same program.
            (30, CodePath { pid: 8, ..path(&["spin", "main"], (0, 10), (20, 20)) }),
        ]);
        let places: Vec<_> =
            found.iter().map(|of| (of.pid, &*of.frames[0], of.samples, of.percent)).collect();
        assert_eq!(places, [(7, "spin", 39, 78), (8, "spin", 20, 100), (7, "read", 5, 10)]);
    }

    #[test]
    fn few_samples_and_a_small_part_are_chance_and_no_more_than_three_are_told() {
        let at = |frames: &[&str], samples| (20, path(frames, (0, 10), (samples, 100)));
        let found = told(&[at(&["few"], 2), at(&["small"], 9), at(&["least"], 10)]);
        assert_eq!(found.iter().map(|of| of.percent).collect::<Vec<_>>(), [10]);
        assert!(told(&[(20, path(&["few"], (0, 10), (2, 2)))]).is_empty());
        assert!(told(&[(20, path(&["none"], (0, 10), (0, 0)))]).is_empty());
        let found = told(&[at(&["d"], 20), at(&["b"], 20), at(&["a"], 20), at(&["c"], 40)]);
        assert_eq!(found.iter().map(|of| &*of.frames[0]).collect::<Vec<_>>(), ["c", "a", "b"]);
    }

    #[test]
    fn the_innermost_functions_are_told_and_what_is_left_out_is_a_cut() {
        let deep: Vec<String> = (0..40).map(|n| format!("f{n}")).collect();
        let mut other = deep[..FRAMES_MAX].to_vec();
        other.push("g".to_owned());
        let of =
            |frames: &[String]| (20, CodePath { frames: frames.to_vec(), ..path(&[], (0, 10), (5, 10)) });
        let found = told(&[of(&deep), of(&other)]);
        assert_eq!((found.len(), found[0].samples, found[0].frames.len()), (1, 10, FRAMES_MAX));
        assert!(found[0].cut);
        let found = told(&[of(&deep[..FRAMES_MAX])]);
        assert!(!found[0].cut);
    }

    #[test]
    fn a_path_counts_where_its_windows_are_those_of_the_episode() {
        let (first, last) = (100, 110);
        let counts = |at: u64, span: (u32, u32)| {
            let history = fixture::history(200, |index, window| {
                if index == at {
                    window.code_paths.push(path(&["spin"], span, (5, 5)));
                }
            });
            let windows = history.windows_of("h");
            let told = (0..200).filter_map(|index| windows.at(index));
            of_the_time(told, (first, last)).count() == 1
        };
        assert!(counts(105, (0, 1)) && counts(160, (50, 10)) && counts(110, (0, 60)));
        assert!(counts(100, (0, 5)) && !counts(99, (0, 5)), "it ends before");
        assert!(counts(130, (10, 11)) && !counts(130, (10, 10)), "it begins after");
    }

    #[test]
    fn what_is_looked_for_depends_on_what_was_short() {
        let of = |resource| looked_for(&fixture::short_of(resource, (100, 110)));
        for resource in [Resource::Cpu, Resource::CpuNeighbour, Resource::CpuThrottled] {
            assert_eq!(of(resource), Some(Doing::Running), "{resource:?}");
        }
        for resource in [Resource::Lock, Resource::Io, Resource::Dns, Resource::Network] {
            assert_eq!(of(resource), Some(Doing::Waiting), "{resource:?}");
        }
        for resource in [Resource::Pause, Resource::Burst, Resource::CpuSteal, Resource::Unexplained] {
            assert_eq!(of(resource), None, "{resource:?}");
        }
        let blocked = |slept_in: &str| {
            let it = EventLoop {
                thread: 1,
                comm: "node".into(),
                blocked_ms: 500,
                ran_ratio: 0.5,
                slept_in: slept_in.into(),
            };
            let episode = fixture::short_of(Resource::EventLoop, (100, 110));
            looked_for(&Episode { event_loop: Some(it), ..episode })
        };
        assert_eq!(blocked(""), Some(Doing::Running));
        assert_eq!(blocked("futex_wait_queue"), Some(Doing::Waiting));
    }
}
