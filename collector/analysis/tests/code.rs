//! Where in its code the root of an incident ran or waited: by the paths that its agent told some time after the windows that they are of.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs, told};
use tailwater_analysis::Config;
use tailwater_model::Incident;
use tailwater_model::incident::{Resource, State};
use tailwater_model::window::{CodePath, Doing};

/// The workloads of each host of the simulation: its server, and one beside it that takes the CPU in process 4242.
const SERVER: u32 = 1;
const OTHER: u32 = 2;

/// Of half a second, until so many windows before the one that tells it.
fn path(workload: u32, pid: u32, windows_ago: u32, samples: u32, frames: &[&str]) -> CodePath {
    CodePath {
        windows_ago,
        windows: 10,
        workload,
        pid,
        comm: if workload == SERVER { "server".into() } else { "burner".into() },
        doing: Doing::Running,
        samples,
        of: 25,
        frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
        cut: false,
    }
}

/// Every version of the incidents of a simulation in which these hosts tell paths in the windows that end then, ms.
fn versions(sim: Sim, paths: &[(&str, u64, CodePath)]) -> Vec<Incident> {
    let mut trace: Trace = sim.run();
    let first = trace.windows.iter().map(|w| w.index.0).min().unwrap();
    for window in &mut trace.windows {
        let end_ms = (window.index.0 - first + 1) * 50;
        let of = paths.iter().filter(|(host, at, _)| *host == window.host && *at == end_ms);
        window.code_paths.extend(of.map(|(_, _, path)| path.clone()));
    }
    // So that it is open when the last of them is told.
    let config = Config { quiet_ns: 6_000_000_000, ..Config::default() };
    told(&outputs(&config, inputs(&trace)))
}

/// The last version of the one that dropped.
fn last(versions: &[Incident]) -> &Incident {
    versions.iter().rfind(|incident| !incident.drops.is_empty()).unwrap()
}

fn functions(incident: &Incident) -> Vec<(&str, u32, u32)> {
    incident.root.code.iter().map(|code| (code.frames[0].as_str(), code.samples, code.percent)).collect()
}

#[test]
fn a_neighbour_is_named_with_the_functions_that_took_the_cpu() {
    let sim = Sim::default().act(At::App, 6000..6700, Do::Neighbour(0.95));
    let spin = ["spin", "burn", "main"];
    let versions = versions(
        sim,
        &[
            // Before, of the victim, and of another host.
            ("app-1", 5000, path(OTHER, 4242, 10, 25, &["idle"])),
            ("app-1", 7500, path(SERVER, 101, 20, 25, &["serve"])),
            ("web-1", 7500, path(OTHER, 4242, 20, 25, &["elsewhere"])),
            ("app-1", 7500, path(OTHER, 4242, 20, 20, &spin)),
            ("app-1", 7500, path(OTHER, 4242, 20, 5, &["rest", "main"])),
            // Three seconds after the last window that it is of, when all else of the incident is settled.
            ("app-1", 9700, path(OTHER, 4242, 60, 25, &spin)),
        ],
    );
    let incident = last(&versions);
    assert_eq!(incident.root.resource, Resource::CpuNeighbour, "{}", incident.title);
    assert_eq!(functions(incident), [("spin", 45, 90), ("rest", 5, 10)], "{:#?}", incident.root);
    assert_eq!(incident.root.code[0].frames, spin);
    let clause = "; `burner`: 90 % of its CPU samples in `spin`, called by `burn`. ";
    assert!(incident.root.evidence.contains(clause), "{}", incident.root.evidence);
    assert!(versions.first().is_some_and(|first| first.root.code.is_empty()), "nothing was told yet");
    let of_open = versions.iter().filter(|incident| incident.state == State::Open);
    let first_told = of_open.map(functions).find(|code| !code.is_empty());
    assert_eq!(first_told.unwrap(), [("spin", 20, 80), ("rest", 5, 20)], "told while it is open");
}

#[test]
fn of_a_lock_it_is_told_where_the_threads_of_the_tier_waited() {
    let sim = Sim::default().act(At::Db, 6000..6700, Do::Lock);
    let waits = |workload, samples, frames: &[&str]| CodePath {
        doing: Doing::Waiting,
        ..path(workload, 102, 10, samples, frames)
    };
    let versions = versions(
        sim,
        &[
            ("db-1", 7000, waits(SERVER, 22, &["pthread_mutex_lock", "transfer"])),
            ("db-1", 7000, waits(OTHER, 25, &["sleep"])),
            ("db-1", 7000, path(SERVER, 102, 10, 25, &["run"])),
            ("app-1", 7000, waits(SERVER, 25, &["recv"])),
        ],
    );
    let incident = last(&versions);
    assert_eq!(incident.root.resource, Resource::Lock, "{}", incident.title);
    assert_eq!(functions(incident), [("pthread_mutex_lock", 22, 88)]);
    let clause = "; 88 % of its waiting threads in `pthread_mutex_lock`, called by `transfer`. ";
    assert!(incident.root.evidence.contains(clause), "{}", incident.root.evidence);
}

#[test]
fn of_a_process_that_was_stopped_code_says_nothing_and_without_paths_all_is_as_ever() {
    let sim = || Sim::default().act(At::App, 6000..6700, Do::Pause);
    let stopped = CodePath { doing: Doing::Waiting, ..path(SERVER, 101, 10, 25, &["epoll_wait"]) };
    let with = versions(sim(), &[("app-1", 7000, stopped)]);
    assert_eq!(last(&with).root.resource, Resource::Pause);
    assert_eq!(with, versions(sim(), &[]));
    let all = last_versions(&outputs(&Config::default(), inputs(&sim().run())));
    assert!(all.iter().all(|incident| incident.root.code.is_empty()));
}
