//! One graph from its first process to its verdicts: started, watched by agents, a collector and the truth, loaded, hurt, and judged. Has
//! the rhythm; judges nothing itself.

use crate::console::failure::{REMEDY, sentence};
use crate::console::progress::{complain, say, step};
use crate::graph::benign::{Benign, REST, TAKES};
use crate::graph::injections::{Planned, groups, sequence};
use crate::graph::judge::{Injection, judge};
use crate::graph::plan::{Graph, address};
use crate::graph::results::{GraphResult, Stray};
use crate::graph::world::{Loads, World};
use crate::lab::BEFORE_NS;
use crate::os::clock::unix_ns;
use crate::programs::daemons::{Collector, Daemon, http_get, start_agent, wait_for};
use crate::programs::reported::Reported;
use crate::score::session::{TRACE, replay};
use crate::truth::{Recorder, SlowRequests, TruthRecord, slow_requests};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How much is done to a graph, and how fast.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Injections.
    pub injections: usize,
    /// Of them so many at once.
    pub together: usize,
    /// Under load, before the first of them, with what is no incident.
    pub control: Duration,
    /// From one injection's begin to the next's, at least.
    pub spacing: Duration,
}

impl Pace {
    /// What a graph takes, about.
    #[must_use]
    pub fn takes(&self) -> Duration {
        WARM + SERVED_FOR
            + KNOWN
            + self.control
            + self.spacing * self.injections.div_ceil(self.together.max(1)) as u32
            + Duration::from_secs(30)
    }
}

/// Connections are opened and processes come into memory before anything counts.
const WARM: Duration = Duration::from_secs(4);
/// A load must be served for so long …
const SERVED_FOR: Duration = Duration::from_secs(8);
/// … or a smaller one is tried, so often.
const SERVED_TRIES: u32 = 4;
const LOWER: f64 = 0.8;
/// The usual level has to be known before anything happens.
const KNOWN: Duration = Duration::from_secs(12);
/// Nothing may have been dropped for this long before the next injection …
const CALM: Duration = Duration::from_millis(1_300);
/// … nor may a host use so much of its quota …
const CAUGHT_UP: f64 = 0.9;
const CAUGHT_UP_OVER: Duration = Duration::from_millis(400);
/// … and where it does not calm down for so long, the load is taken away, and less of it comes again.
const CALM_MAX: Duration = Duration::from_secs(20);
const RELIEVED: f64 = 0.9;
const RELIEVED_FOR: Duration = Duration::from_secs(5);

/// The file of a session's truth, beside its recording.
pub const SESSION: &str = "session.json";

/// What is kept of a session beside its recording.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    graph: Graph,
    rate_per_second: f64,
    injections: Vec<Injection>,
    /// From when to when nothing was injected, Unix ns.
    control: [u64; 2],
    broken: Option<String>,
}

/// Why a session is not whole. What was measured is kept all the same, and these reasons with it.
#[derive(Debug, Default)]
struct Broken(Vec<String>);

impl Broken {
    fn because(&mut self, why: String) {
        complain(&format!("graph: {why}"));
        self.0.push(why);
    }

    fn told(self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("; "))
    }
}

/// A graph that is watched.
struct Watched {
    agents: Vec<Daemon>,
    collector: Collector,
    world: World,
}

impl Watched {
    fn start(graph: &Graph, folder: &Path) -> Result<Self> {
        let trace = folder.join(TRACE).display().to_string();
        let starts = || World::start(graph, &folder.join("services"));
        let world = step("the services start", Duration::from_secs(2), starts)?;
        let collector = step("the collector starts", Duration::from_secs(1), || {
            Collector::start(folder, &["--record".into(), trace])
        })?;
        let mut watched = Self { agents: Vec::new(), collector, world };
        for (host, of) in graph.hosts.iter().enumerate().filter(|(_, of)| !of.is_outside) {
            let scope = watched.world.cgroup_path(host);
            let agent = start_agent(folder, &watched.collector.grpc_url(), &of.name, Some(scope), &[])?;
            watched.agents.push(agent);
        }
        step("the agents load their kernel programs", Duration::from_secs(4), || watched.wait_for_agents())?;
        Ok(watched)
    }

    fn wait_for_agents(&mut self) -> Result<()> {
        wait_for("every agent to stream", Duration::from_secs(40), || {
            for agent in &mut self.agents {
                if let Some(status) = agent.exited()? {
                    bail!(agent.told_end(status));
                }
            }
            let (_, body) = http_get(self.collector.http, "/api/v1/agents")?;
            let mut hosts = self.world.graph().hosts.iter().filter(|host| !host.is_outside);
            Ok(hosts.all(|host| body.contains(&format!("\"{}\"", host.name))).then_some(()))
        })
    }

    /// The largest of a few rates that is served for some seconds without a drop, a failure or an answer slower than a second.
    fn served_rate(&self, recorder: &Recorder) -> Result<f64> {
        let mut rate = self.world.graph().rate_per_second;
        self.world.load(rate / 2.0, WARM, 1)?.wait()?;
        let mut said = String::new();
        for number in 0..SERVED_TRIES {
            let begun = unix_ns();
            let summary = self.world.highest_load(rate, SERVED_FOR, 2 + u64::from(number))?.wait()?;
            let dropped = recorder.last_drop_unix_ns() >= begun;
            if summary.failed == 0 && summary.vlrt == 0 && !dropped {
                say(&format!("  {rate:.0} requests a second are served, p99 {} ms", summary.p99_us / 1_000));
                return Ok(rate);
            }
            let drops = if dropped { "packets were dropped" } else { "nothing was dropped" };
            said = format!(
                "{rate:.0} requests a second: {} of {} failed, {} took more than a second, p99 {} ms, {drops}",
                summary.failed,
                summary.sent,
                summary.vlrt,
                summary.p99_us / 1_000
            );
            complain(&format!("graph: {said}: a smaller load"));
            rate *= LOWER;
        }
        bail!("no load is served: {said}{REMEDY}end what takes this machine's CPUs, or take another seed")
    }
}

/// Runs one graph; logs, truth and recording go into `folder`, which is emptied.
pub fn run(graph: &Graph, pace: Pace, folder: &Path) -> Result<GraphResult> {
    // What an earlier session's collector kept would be read again.
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let planned = groups(graph, sequence(graph, pace.injections), pace.together);
    let watched = Watched::start(graph, folder)?;
    let recorder = Recorder::start(&watched.world.places())?;
    let served = || watched.served_rate(&recorder);
    let mut rate = step("a load is tried", WARM + SERVED_FOR, served)?;
    // Longer than it can take; it is stopped at the end.
    let longest = KNOWN + pace.control + (pace.spacing + CALM_MAX + KNOWN) * (planned.len() as u32 + 1);
    let mut loads = Some(watched.world.load(rate, longest, 100)?);
    std::thread::sleep(KNOWN);
    let control_from = unix_ns();
    let mut broken = Broken::default();
    let goes_on = || go_on(&watched.world, pace.control);
    if let Err(error) = step("nothing is injected, and what is no incident goes on", pace.control, goes_on) {
        broken.because(format!("the control: {}", sentence(&error)));
    }
    let control = [control_from, unix_ns()];

    let (mut injections, mut prepared_from) = (Vec::new(), Vec::new());
    let mut groups_of = Vec::new();
    for (number, group) in planned.iter().enumerate() {
        let (begun, begun_unix_ns) = (Instant::now(), unix_ns());
        match watched.world.inject_together(group) {
            Ok(spans) => {
                let from = spans.iter().map(|(start, _)| *start).min().unwrap_or(begun_unix_ns);
                let from = from.saturating_sub(BEFORE_NS);
                // What is dropped while one is prepared belongs to none.
                prepared_from.push(begun_unix_ns.min(from));
                for (plan, (start, end)) in group.iter().zip(spans) {
                    let mut injection = injection(graph, plan, injections.len() + 1, [start, end]);
                    injection.truth.from_unix_ns = from;
                    groups_of.push(number);
                    injections.push(injection);
                }
            }
            Err(error) => {
                broken.because(format!(
                    "injection {} of {}: {}",
                    number + 1,
                    planned.len(),
                    sentence(&error)
                ));
                break;
            }
        }
        std::thread::sleep(pace.spacing.saturating_sub(begun.elapsed()));
        let calmed = |watched: &Watched| {
            let dropped = unix_ns().saturating_sub(recorder.last_drop_unix_ns()) < CALM.as_nanos() as u64;
            !dropped && watched.world.utilisation(CAUGHT_UP_OVER).is_ok_and(|used| used <= CAUGHT_UP)
        };
        let mut calm = calmed(&watched);
        while !calm && begun.elapsed() < pace.spacing + CALM_MAX {
            std::thread::sleep(Duration::from_millis(20));
            calm = calmed(&watched);
        }
        let dropped = recorder.last_drop_unix_ns() >= begun_unix_ns;
        say(&told(graph, group, number + 1, planned.len(), dropped));
        if !calm {
            rate *= RELIEVED;
            complain(&format!(
                "graph: {CALM_MAX:?} after it the load was not served again: it ends, and {rate:.0} a second go on"
            ));
            match loads.take().map(|loads| relieved(&watched, loads, rate, longest)).transpose() {
                Ok(less) => loads = less,
                Err(error) => {
                    broken.because(format!(
                        "the load after injection {} of {}: {}",
                        number + 1,
                        planned.len(),
                        sentence(&error)
                    ));
                    break;
                }
            }
        }
    }
    let end_unix_ns = unix_ns();
    if let Some(Err(error)) = loads.map(Loads::end) {
        broken.because(format!("the load's end: {}", sentence(&error)));
    }
    let incidents = wait_for("every incident to close", Duration::from_secs(20), || {
        let all = watched.collector.incidents()?;
        Ok(all.iter().all(|incident| incident["state"] == "closed").then_some(all))
    })
    .or_else(|_| watched.collector.incidents());
    if let Err(error) = &incidents {
        broken.because(format!("the incidents, which are taken from the recording: {}", sentence(error)));
    }
    // Without the truth there is nothing to hold verdicts against: nothing dropped would be no measurement.
    let log = recorder.stop()?;
    let slow = slow_requests(watched.world.folder())
        .unwrap_or_else(|error| SlowRequests { starts: Vec::new(), unread: vec![sentence(&error)] });
    if !slow.unread.is_empty() {
        broken.because(format!("slow answers are not known of {}", slow.unread.join("; ")));
    }
    for (injection, group) in injections.iter_mut().zip(groups_of) {
        injection.truth.to_unix_ns = prepared_from.get(group + 1).copied().unwrap_or(end_unix_ns);
        injection.truth.observe(&log, &slow.starts);
    }
    let broken = broken.told();
    let kept = Kept { graph: graph.clone(), rate_per_second: rate, injections, control, broken };
    let file = folder.join(SESSION);
    fs::write(&file, serde_json::to_string_pretty(&kept)? + "\n")
        .with_context(|| format!("write {}", file.display()))?;
    let incidents = incidents.or_else(|_| replay(&folder.join(TRACE)))?;
    let reported: Vec<Reported> = incidents.iter().map(Reported::of).collect();
    // The kernel's counts, in an alarm's time and a little around it.
    Ok(kept.judged(&reported, |alarm| {
        log.dropped_between(alarm.start_unix_ns.saturating_sub(BEFORE_NS), alarm.end_unix_ns + BEFORE_NS)
    }))
}

/// Does what goes on everywhere and is no incident, until the time is over.
fn go_on(world: &World, duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    for benign in Benign::all(world.graph()) {
        let left = end.saturating_duration_since(Instant::now());
        if left < TAKES {
            std::thread::sleep(left);
            break;
        }
        say(&format!("  {}", benign.name()));
        world.go_on(benign, TAKES).with_context(|| benign.name())?;
        std::thread::sleep(REST.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Ends the load, waits, and lets less of it come; what is usual then has to be known anew.
fn relieved(watched: &Watched, loads: Loads, rate: f64, longest: Duration) -> Result<Loads> {
    loads.end()?;
    std::thread::sleep(RELIEVED_FOR);
    let loads = watched.world.load(rate, longest, 101)?;
    std::thread::sleep(KNOWN);
    Ok(loads)
}

fn injection(graph: &Graph, plan: &Planned, number: usize, [start, end]: [u64; 2]) -> Injection {
    let of = &graph.services[plan.service];
    let roots = || plan.roots(graph).into_iter().flat_map(|root| graph.workloads(root)).collect();
    // Nobody knows more of it than where it is dialled.
    let (host, roots) = match graph.is_outside(plan.service) {
        true => (address(of.host).to_string(), vec![String::new()]),
        false => (graph.hosts[of.host].name.clone(), roots()),
    };
    Injection {
        cause: plan.cause,
        host,
        roots,
        duration_ms: plan.duration_ms,
        truth: TruthRecord {
            id: format!("{:x}/{}-{}#{number}", graph.seed, of.name, plan.cause.name()),
            kind: plan.cause.name().to_owned(),
            tier: of.name.clone(),
            start_unix_ns: start,
            end_unix_ns: end,
            from_unix_ns: start.saturating_sub(BEFORE_NS),
            ..TruthRecord::default()
        },
    }
}

fn told(graph: &Graph, group: &[Planned], number: usize, of: usize, dropped: bool) -> String {
    let one = |plan: &Planned| {
        let service = &graph.services[plan.service];
        let host = &graph.hosts[service.host].name;
        format!("{} at {} on {host}, {} ms", plan.cause.name(), service.name, plan.duration_ms)
    };
    let drops = if dropped { "packets were dropped" } else { "nothing was dropped" };
    let all: Vec<String> = group.iter().map(one).collect();
    format!("  {number} of {of}: {}: {drops}", all.join("; "))
}

impl Kept {
    /// The verdicts; `dropped`: what the kernel counted in the time of an alarm that belongs to no injection.
    fn judged(self, reported: &[Reported], dropped: impl Fn(&Reported) -> u64) -> GraphResult {
        let judged = judge(&self.graph, &self.injections, reported);
        let [from, to] = self.control;
        let strays = judged.strays.into_iter().map(|told| Stray {
            dropped: dropped(&told),
            in_control: (from..to).contains(&told.start_unix_ns),
            reported: told,
        });
        GraphResult {
            strays: strays.collect(),
            graph: self.graph,
            rate_per_second: self.rate_per_second,
            rows: judged.rows,
            control_s: (to - from) / 1_000_000_000,
            broken: self.broken,
        }
    }
}

/// Judges an earlier session anew by what this version says of its recording. What the kernel dropped outside of injections is not
/// known then, so that an alarm there counts as false.
pub fn again(folder: &Path) -> Result<GraphResult> {
    let reported: Vec<Reported> = replay(&folder.join(TRACE))?.iter().map(Reported::of).collect();
    judged(folder, &reported)
}

/// The same of what was told of its recording elsewhere.
pub fn judged(folder: &Path, reported: &[Reported]) -> Result<GraphResult> {
    Ok(kept(folder)?.judged(reported, |_| 0))
}

fn kept(folder: &Path) -> Result<Kept> {
    let file = folder.join(SESSION);
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no session of a graph", file.display()))
}

/// One injection of an earlier session, by the id of its truth, and those that were made at the same moment.
pub fn injection_of(folder: &Path, id: &str) -> Result<(Injection, Vec<Injection>)> {
    let mut all = kept(folder)?.injections;
    let at = all.iter().position(|injection| injection.truth.id == id);
    let found = all.remove(at.with_context(|| format!("{} has no injection {id}", folder.display()))?);
    all.retain(|beside| beside.truth.from_unix_ns == found.truth.from_unix_ns);
    Ok((found, all))
}
