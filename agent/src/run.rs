//! The daemon and `dump`: starts the sampler's thread, the stream and the housekeeping, and ends them in order. Owns the life
//! cycle; every rule is in the modules that it wires. Its own files are the command line, which signals are attached, a window's way
//! from the sampler to the outbox, and what an operator reads: `doctor`, `dump` and failures.

pub mod attached;
pub mod budget;
pub mod cli;
pub mod doctor;
pub mod dump;
pub mod failure;
pub mod pipeline;
mod renewer;
pub mod steering;

use crate::attach::price::Price;
use crate::attach::privilege;
use crate::attach::probe;
use crate::clock::{Clock, monotonic_ns, process_cpu_ns};
use crate::config::{Config, SignalName};
use crate::name::cgroup::Mounts;
use crate::name::scope::Scope;
use crate::name::unseen::udp_beside_tcp;
use crate::name::workload::Entities;
use crate::run::attached::{Attached, Wanted};
use crate::run::budget::{Budget, Change};
use crate::run::doctor::{Collector, Live, Report};
use crate::run::dump::{Dump, Form};
use crate::run::pipeline::{Identity, Pipeline, Shared, View};
use crate::run::renewer::Renewer;
use crate::run::steering::Steering;
use crate::sample::futexes::Futexes;
use crate::sample::locks::Locks;
use crate::sample::polled::Watched;
use crate::sample::sampler::{Handle, Sampler, Sink};
use crate::sample::self_stats::{cpu_ratio, listen_counters, resident_bytes};
use crate::sample::stacks::Outside;
use crate::sample::throttle::Quotas;
use crate::signal::{Loss, SignalKind};
use crate::stream::outbox::Outbox;
use crate::stream::{Control, Stream, connect};
use crate::window::{ListenDrop, WINDOW_NS, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tailwater_proto::v1;
use tokio::signal::unix::{SignalKind as UnixSignal, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// From the wish to stop to the exit, at most, of what is on its way to the collector.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// This program, also when another version was put in its place.
const THIS: &str = "/proc/self/exe";

/// Between two looks at our own cost.
const STATS_PERIOD: Duration = Duration::from_secs(5);

/// How often the kernel programs are timed, and for how long.
const TIMED_EVERY: Duration = Duration::from_secs(1);
const TIMED_FOR: Duration = Duration::from_millis(20);

/// What keeps the agent from starting, or ends it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum RunError {
    #[error("/proc/self/mountinfo: {0}; mount /proc")]
    Mounts(std::io::Error),
    #[error("{what}: {source}")]
    Start { what: &'static str, source: std::io::Error },
    #[error(transparent)]
    Privilege(#[from] privilege::PrivilegeError),
    #[error("the sampling thread ended by itself; the lines above say why")]
    SamplerDied,
}

/// What both `run` and `dump` begin with.
struct Begun {
    clock: Clock,
    attached: Attached,
    view: View,
    handle: Handle,
    cpus: u32,
}

/// Arrays with an element for each possible CPU and entity are touched in few places, and are zeros that the kernel gives when one is.
/// Two things would make whole ones of them resident, 26 MB with 128 CPUs: pages that are huge by default, and an allocator that
/// takes them from memory that was used before. A system that refuses costs that memory and nothing else: prctl(2), mallopt(3).
fn touch_little_memory() {
    const OWN_MAPPING_FROM: libc::c_int = 1 << 20;
    // SAFETY: plain integers.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        #[cfg(target_env = "gnu")]
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING_FROM);
    };
}

fn begin(config: &Config) -> Result<Begun, RunError> {
    touch_little_memory();
    // With what it still has of root, it measures all the same.
    if let Err(error) = privilege::leave_root() {
        tracing::warn!("this agent stays root: {error}");
    }
    let mounts = Mounts::read().map_err(RunError::Mounts)?;
    let clock = Clock::new(config.clock_shift_ms.saturating_mul(1_000_000)).drifting(config.clock_drift_ppm);
    let disabled: BTreeSet<SignalKind> = config.disabled_signals.iter().map(|s| s.0).collect();
    let entities = Entities::new(mounts.clone(), Path::new("/"));
    if let Some(path) = &config.scope_cgroup
        && entities.tree().id(path).is_none()
    {
        tracing::warn!("scope_cgroup {path}: there is no such cgroup yet; nothing is seen until it is made");
    }
    let quotas = Quotas::default();
    let watched = Watched::default();
    let outside = Outside::default();
    let wanted = wanted(config, &disabled, &outside);
    let attached = Attached::attach(wanted, &clock, &mounts, quotas.clone(), watched.clone());
    give_back_memory();
    let view = View::new(entities, config.scope_cgroup.as_deref().map(Scope::new), quotas, watched);
    let futexes = Futexes::new(config.lock_holders.then_some(Path::new("/")));
    let view = view
        .with_locks(Locks::of(&config.databases, Path::new(THIS)), futexes)
        .telling(config.stacks.then_some(outside));
    let handle = Handle::new(disabled).map_err(|source| RunError::Start { what: "eventfd", source })?;
    // From here on only /proc and maps that are open already are needed; threads started later inherit the rest.
    privilege::drop_unneeded()?;
    Ok(Begun { clock, attached, view, handle, cpus: probe::online_cpus() })
}

/// Parsing the kernel's type information took tens of megabytes that are never needed again.
fn give_back_memory() {
    // SAFETY: takes a plain integer and touches free heap only.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Runs the sampler on a thread of its own; the receiver resolves when it has ended, with an error if it panicked.
fn start_sampler<S: Sink + 'static>(sampler: Sampler<S>) -> Result<oneshot::Receiver<()>, RunError> {
    let (ended, end) = oneshot::channel();
    std::thread::Builder::new()
        .name("sampler".to_owned())
        .spawn(move || {
            sampler.run();
            // Nobody waits any more: then nobody needs to know.
            let _ = ended.send(());
        })
        .map_err(|source| RunError::Start { what: "sampling thread", source })?;
    Ok(end)
}

fn runtime() -> Result<tokio::runtime::Runtime, RunError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| RunError::Start { what: "event loop", source })
}

/// Resolves at SIGTERM, SIGINT, or when the terminal is closed, which ends the agent as Ctrl-C does, with its last windows sent.
async fn asked_to_stop() -> Result<(), RunError> {
    let error = |source| RunError::Start { what: "signal handler", source };
    let mut term = signal(UnixSignal::terminate()).map_err(error)?;
    let mut int = signal(UnixSignal::interrupt()).map_err(error)?;
    let hung_up = hung_up().map_err(error)?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        () = hung_up => {}
    }
    Ok(())
}

/// Resolves at SIGHUP, unless whoever started the agent wanted it to go on: to listen for that signal would end that it is ignored.
fn hung_up() -> std::io::Result<impl Future<Output = ()>> {
    let hup = (!hangups_are_ignored()).then(|| signal(UnixSignal::hangup())).transpose()?;
    Ok(async move {
        match hup {
            Some(mut hup) => _ = hup.recv().await,
            None => std::future::pending().await,
        }
    })
}

/// As nohup(1) starts a program.
fn hangups_are_ignored() -> bool {
    // SAFETY: an all-zero struct is a valid one; the call writes no more than it and changes nothing.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// `run`: until SIGTERM or SIGINT.
pub fn daemon(config: &Config) -> Result<(), RunError> {
    // First: the agent gives up writing files.
    let start = |folder: &PathBuf| Renewer::start(THIS, folder, config.join.as_ref());
    let renewer = config.identity.as_ref().map(start).transpose();
    let renewer =
        renewer.map_err(|source| RunError::Start { what: "process that renews certificates", source })?;
    let begun = begin(config)?;
    let Begun { clock, attached, view, handle, cpus } = begun;
    let outbox = Arc::new(Outbox::new(config.buffered_batches));
    let shared = Arc::new(Shared::default());
    shared.windows_per_batch.store(config.windows_per_batch, Ordering::Relaxed);
    let identity = Identity::read(&config.host, config.scope_cgroup.as_deref(), cpus, config.late);
    let names: Vec<&'static str> = attached.sources.iter().map(|s| s.name()).collect();
    let agent = Arc::new(Agent {
        outbox: outbox.clone(),
        handle: handle.clone(),
        shared: shared.clone(),
        steering: steering_of(config, &handle, &shared),
        cpus,
        cost: Mutex::default(),
        timed: Mutex::default(),
        renewer,
    });
    let unattached = attached.unattached.clone();
    let source_coverage = attached.coverage();
    let pipeline = Pipeline::new(identity, view, handle.clone(), outbox.clone(), shared);
    let sampler = Sampler::new(clock.clone(), attached.sources, unattached, pipeline, handle.clone());
    let covered = source_coverage.iter().filter(|c| c.covered).count();
    tracing::info!(
        host = config.host,
        collector = config.collector,
        scope = config.scope_cgroup.as_deref().unwrap_or("whole machine"),
        "{covered} of {} signals attached ({})",
        source_coverage.len(),
        names.join(", ")
    );
    runtime()?.block_on(async {
        let mut sampler_ended = start_sampler(sampler)?;
        let stop = CancellationToken::new();
        let stream = Stream {
            url: config.collector.clone(),
            tls: config.tls.clone(),
            outbox,
            control: agent.clone(),
            clock,
        };
        let mut streaming = tokio::spawn(stream.run(stop.clone()));
        let caring = tokio::spawn(agent.clone().care(config.cpu_budget_ratio));
        let timing = tokio::spawn(agent.clone().time_programs(attached.prices));
        notify(&[sd_notify::NotifyState::Ready]);
        tokio::select! {
            asked = asked_to_stop() => asked?,
            _ = &mut sampler_ended => return Err(RunError::SamplerDied),
        }
        notify(&[sd_notify::NotifyState::Stopping]);
        tracing::info!("stopping: sending what is measured");
        caring.abort();
        timing.abort();
        handle.stop();
        if tokio::time::timeout(Duration::from_secs(1), sampler_ended).await.is_err() {
            tracing::warn!("the sampling thread did not end within 1 s");
        }
        stop.cancel();
        if tokio::time::timeout(DRAIN_TIMEOUT, &mut streaming).await.is_err() {
            streaming.abort();
            let waiting = agent.outbox.totals().waiting_batches;
            tracing::warn!(waiting, "the collector did not take everything in time");
        }
        Ok(())
    })
}

/// `dump`: until as many windows are written, SIGTERM or SIGINT.
pub fn dump(config: &Config, form: Form, windows: Option<u64>) -> Result<(), RunError> {
    let Begun { clock, attached, view, handle, cpus } = begin(config)?;
    let sink = Dump::new(view, cpus, form, windows, std::io::BufWriter::new(std::io::stdout()));
    let sampler = Sampler::new(clock, attached.sources, attached.unattached, sink, handle.clone());
    runtime()?.block_on(async {
        let mut ended = start_sampler(sampler)?;
        tokio::select! {
            asked = asked_to_stop() => asked?,
            end = &mut ended => return end.map_err(|_| RunError::SamplerDied),
        }
        handle.stop();
        ended.await.map_err(|_| RunError::SamplerDied)
    })
}

/// What of the signals to attach, and how.
fn wanted<'a>(config: &Config, disabled: &'a BTreeSet<SignalKind>, outside: &'a Outside) -> Wanted<'a> {
    Wanted {
        disabled,
        poll_only: config.poll_only,
        stacks: config.stacks.then_some(outside),
        frame_headers: config.frame_headers,
        helper: Some(Path::new(THIS)),
        late: config.late,
    }
}

/// `doctor`: tries everything once. With `ask_collector` also whether the collector can be reached; with `live` it measures for so many
/// seconds.
pub fn doctor(config: &Config, ask_collector: bool, live: Option<u64>) -> Result<Report, RunError> {
    let mounts = Mounts::read().map_err(RunError::Mounts)?;
    let facts = probe::facts(&mounts);
    let clock = Clock::new(0);
    let disabled: BTreeSet<SignalKind> = config.disabled_signals.iter().map(|s| s.0).collect();
    let watched = Watched::default();
    let outside = Outside::default();
    let wanted = wanted(config, &disabled, &outside);
    let attached = Attached::attach(wanted, &clock, &mounts, Quotas::default(), watched.clone());
    watched.publish(&Entities::new(mounts.clone(), Path::new("/")), None);
    let coverage = attached.coverage();
    let live = live.map(|seconds| measure(attached, clock, seconds)).transpose()?;
    let collector = if ask_collector { Some(runtime()?.block_on(ask(config))) } else { None };
    let report = Report::new(facts, &coverage, collector, live);
    Ok(Report { unseen_udp_ports: udp_beside_tcp(), ..report })
}

/// Drains windows for so many seconds, and looks what was lost.
fn measure(attached: Attached, clock: Clock, seconds: u64) -> Result<Live, RunError> {
    let handle =
        Handle::new(BTreeSet::new()).map_err(|source| RunError::Start { what: "eventfd", source })?;
    let sink = Counted { left: seconds.saturating_mul(1_000_000_000 / WINDOW_NS) };
    Sampler::new(clock, attached.sources, attached.unattached, sink, handle.clone()).run();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    Ok(Live {
        seconds,
        windows: count(&handle.counters.windows),
        windows_lost: count(&handle.counters.windows_lost),
        windows_late: count(&handle.counters.windows_late),
        losses: handle.losses().into_iter().map(|loss| (loss.what, loss.count)).collect(),
    })
}

/// A sink that has enough after some windows.
struct Counted {
    left: u64,
}

impl Sink for Counted {
    fn window(&mut self, _: Window) {
        self.left = self.left.saturating_sub(1);
    }
    fn lost(&mut self, windows: u64) {
        self.left = self.left.saturating_sub(windows);
    }
    fn drops(&mut self, _: &[ListenDrop]) {}
    fn finish(&mut self) {}
    fn done(&self) -> bool {
        self.left == 0
    }
}

async fn ask(config: &Config) -> Collector {
    let answer = connect::connect(&config.collector, config.tls.as_ref()).await;
    Collector {
        url: config.collector.clone(),
        reachable: answer.is_ok(),
        reason: answer.err().map(|e| e.to_string()).unwrap_or_default(),
    }
}

fn notify(state: &[sd_notify::NotifyState<'_>]) {
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(state);
}

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    cpu_ratio: f64,
    /// Of the kernel programs; none where there are none, or nothing was timed.
    kernel_cpu_ratio: Option<f64>,
    resident_bytes: u64,
}

/// By what a collector may change how this machine is measured; none where its operator refuses that.
fn steering_of(config: &Config, handle: &Handle, shared: &Arc<Shared>) -> Option<Steering> {
    config.take_configuration.then(|| {
        let disabled = config.disabled_signals.iter().map(|s| s.0).collect();
        Steering::new(config.windows_per_batch, disabled, handle.clone(), shared.clone())
    })
}

/// The parts of the agent that the stream and the housekeeping share.
struct Agent {
    outbox: Arc<Outbox>,
    handle: Handle,
    shared: Arc<Shared>,
    /// None where the operator takes nothing of a collector's configuration.
    steering: Option<Steering>,
    cpus: u32,
    cost: Mutex<Cost>,
    timed: Mutex<Timed>,
    /// Where this machine has joined. It ends when this is dropped.
    renewer: Option<Renewer>,
}

/// What the kernel programs of each source took while they were timed, and how long that was.
#[derive(Debug, Clone, Default)]
struct Timed {
    cpu_ns: BTreeMap<&'static str, u64>,
    during: Duration,
}

impl Agent {
    fn cost(&self) -> std::sync::MutexGuard<'_, Cost> {
        self.cost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that could not be kept or named.
    fn losses(&self) -> Vec<v1::Loss> {
        let unnamed = Loss { what: "entities_unnamed", count: self.shared.unnamed.load(Ordering::Relaxed) };
        let of = |loss: Loss| v1::Loss { what: loss.what.to_owned(), count: loss.count };
        self.handle.losses().into_iter().chain([unnamed]).map(of).collect()
    }

    /// Times the kernel programs, a fiftieth of the time: often enough for a ratio of five seconds, and rarely enough to cost nothing.
    async fn time_programs(self: Arc<Self>, mut prices: Vec<(&'static str, Price)>) {
        let sums = |prices: &[(_, Price)]| prices.iter().map(|(_, price)| price.sum().0).collect::<Vec<_>>();
        let mut timer = tokio::time::interval(TIMED_EVERY);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !prices.is_empty() {
            timer.tick().await;
            let (before, since_ns) = (sums(&prices), monotonic_ns());
            let asked = prices.iter_mut().try_for_each(|(_, price)| price.ask());
            tokio::time::sleep(TIMED_FOR).await;
            if let Err(error) = asked.and_then(|()| prices.iter_mut().try_for_each(|(_, price)| price.rest()))
            {
                tracing::warn!("what the kernel programs cost is no longer measured: {error}");
                return;
            }
            let during = Duration::from_nanos(monotonic_ns().saturating_sub(since_ns));
            let mut timed = self.timed.lock().unwrap_or_else(PoisonError::into_inner);
            for (((source, _), after), before) in prices.iter().zip(sums(&prices)).zip(before) {
                *timed.cpu_ns.entry(source).or_default() += after.wrapping_sub(before);
            }
            timed.during += during;
        }
    }

    /// What was timed since this was asked last, as parts of one core.
    fn take_timed(&self) -> Option<BTreeMap<&'static str, f64>> {
        let timed = std::mem::take(&mut *self.timed.lock().unwrap_or_else(PoisonError::into_inner));
        let of = |(source, ns)| (source, cpu_ratio(ns, timed.during));
        (!timed.during.is_zero()).then(|| timed.cpu_ns.into_iter().map(of).collect())
    }

    /// What this process used so far, and those that help it.
    fn cpu_ns(&self) -> u64 {
        process_cpu_ns() + self.handle.counters.helpers_cpu_ns.load(Ordering::Relaxed)
    }

    /// Measures our own cost, sheds signals when it is too high, and tells systemd that windows are still drained.
    async fn care(self: Arc<Self>, cpu_budget_ratio: f64) {
        let mut drained = BTreeMap::new();
        let mut budget = Budget::new(cpu_budget_ratio);
        let watchdog = sd_notify::watchdog_enabled().map(|longest| longest / 3);
        let mut timer = tokio::time::interval(watchdog.unwrap_or(STATS_PERIOD).min(STATS_PERIOD));
        let (mut last_cpu_ns, mut last_ns, mut last_windows) = (self.cpu_ns(), monotonic_ns(), 0);
        loop {
            timer.tick().await;
            let windows = self.handle.counters.windows.load(Ordering::Relaxed);
            if std::mem::replace(&mut last_windows, windows) != windows {
                notify(&[sd_notify::NotifyState::Watchdog]);
            }
            let elapsed = Duration::from_nanos(monotonic_ns().saturating_sub(last_ns));
            if elapsed < STATS_PERIOD.mul_f64(0.9) {
                continue;
            }
            last_ns = monotonic_ns();
            let cpu_ns = self.cpu_ns();
            let ratio =
                cpu_ratio(cpu_ns.saturating_sub(std::mem::replace(&mut last_cpu_ns, cpu_ns)), elapsed);
            let programs = self.take_timed();
            let kernel = programs.as_ref().map(|of| of.values().sum::<f64>());
            *self.cost() =
                Cost { cpu_ratio: ratio, kernel_cpu_ratio: kernel, resident_bytes: resident_bytes() };
            // Their price grows with the machine, which they serve on all its CPUs.
            let cpus = f64::from(self.cpus.max(1));
            let before = std::mem::replace(&mut drained, self.handle.cpu_ns());
            let of = |(source, ns): (&&'static str, &u64)| {
                let own = ns.saturating_sub(before.get(source).copied().unwrap_or(0));
                let programs = programs.as_ref().and_then(|of| of.get(source)).copied().unwrap_or(0.0);
                (*source, cpu_ratio(own, elapsed) + programs / cpus)
            };
            let sources: BTreeMap<&str, f64> = drained.iter().map(of).collect();
            let all = ratio + kernel.unwrap_or(0.0) / cpus;
            match budget.measured(all, &sources) {
                Some(Change::Shed(source)) => {
                    let until = match budget::is_for_good(source) {
                        true => "the agent is started again",
                        false => "there is room for it again",
                    };
                    tracing::error!(
                        cpu_ratio = ratio,
                        kernel_cpu_ratio = kernel,
                        its_ratio = sources.get(source),
                        cpu_budget_ratio,
                        "above the CPU budget for 15 s: {source} is shed until {until}"
                    );
                    self.handle.shed(source);
                }
                Some(Change::TakeBack(source)) => {
                    tracing::warn!(
                        cpu_ratio = ratio,
                        cpu_budget_ratio,
                        "there is room again: {source} is taken back"
                    );
                    self.handle.take_back(source);
                }
                None => {}
            }
        }
    }
}

impl Control for Agent {
    fn status(&self) -> v1::AgentStatus {
        let totals = self.outbox.totals();
        let cost = *self.cost();
        let process = self.shared.netns_process.load(Ordering::Relaxed);
        let (netns_listen_overflows, netns_listen_drops) = listen_counters(process).unwrap_or_default();
        v1::AgentStatus {
            windows_lost: self.handle.counters.windows_lost.load(Ordering::Relaxed) + totals.windows_dropped,
            batches_dropped: totals.batches_dropped,
            drop_events_dropped: totals.drop_events_dropped,
            cpu_ratio: cost.cpu_ratio,
            kernel_cpu_ratio: cost.kernel_cpu_ratio,
            resident_bytes: cost.resident_bytes,
            shed_signals: self.handle.shed_signals().into_iter().map(|s| SignalName(s).to_string()).collect(),
            netns_listen_overflows,
            netns_listen_drops,
            losses: self.losses(),
            ..v1::AgentStatus::default()
        }
    }

    fn configure(&self, configuration: &v1::Configuration) {
        if let Some(steering) = &self.steering {
            steering.configure(configuration);
        }
    }

    fn takes_configuration(&self) -> bool {
        self.steering.is_some()
    }

    fn certificate_refused(&self) {
        if let Some(renewer) = &self.renewer {
            renewer.certificate_refused();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layer, load};
    use crate::stream::heard::Heard;
    use tailwater_proto::v1::collector_message::Body as Said;

    /// Fails if anything of a collector's configuration is done though the agent's file refuses it, or nothing though it does not.
    #[test]
    fn what_a_collector_asks_for_is_done_unless_the_agents_file_refuses_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.toml");
        let asked_for = (64, BTreeSet::from([SignalKind::BlockIo]));
        for (refusal, windows, now) in [("", 64, Some(asked_for)), ("take_configuration = false\n", 3, None)]
        {
            let text = format!("collector = \"unix:///c\"\nwindows_per_batch = 3\n{refusal}");
            std::fs::write(&file, text).unwrap();
            let config = load(Some(&file), Layer::default()).unwrap();
            let outbox = Arc::new(Outbox::new(1));
            let handle = Handle::new(BTreeSet::new()).unwrap();
            let shared = Arc::new(Shared::default());
            shared.windows_per_batch.store(config.windows_per_batch, Ordering::Relaxed);
            let agent = Agent {
                outbox: outbox.clone(),
                handle: handle.clone(),
                shared: shared.clone(),
                steering: steering_of(&config, &handle, &shared),
                cpus: 1,
                cost: Mutex::default(),
                timed: Mutex::default(),
                renewer: None,
            };
            let disabled = vec![v1::Signal::BlockIo as i32];
            let wanted = v1::Configuration { version: 1, windows_per_batch: 64, disabled };
            let message = v1::CollectorMessage { body: Some(Said::Configuration(wanted)) };
            Heard::new("unix:///c", true, &outbox, &agent).then(message, 0).unwrap();
            assert_eq!(shared.windows_per_batch.load(Ordering::Relaxed), windows, "{refusal}");
            assert_eq!(agent.steering.as_ref().and_then(Steering::now), now, "{refusal}");
        }
    }

    #[tokio::test]
    async fn a_terminal_that_is_closed_ends_the_agent_unless_it_was_started_to_go_on() {
        const SOON: Duration = Duration::from_millis(100);
        let set = |what: libc::sighandler_t| {
            // SAFETY: plain integers. No other test of this program has to do with this signal.
            let before = unsafe { libc::signal(libc::SIGHUP, what) };
            assert_ne!(before, libc::SIG_ERR);
        };
        let hang_up = || {
            // SAFETY: a signal that is ignored, or that is listened for.
            let raised = unsafe { libc::raise(libc::SIGHUP) };
            assert_eq!(raised, 0);
        };
        set(libc::SIG_IGN);
        {
            let mut closed = std::pin::pin!(hung_up().unwrap());
            assert!(tokio::time::timeout(SOON, &mut closed).await.is_err());
            hang_up();
            assert!(tokio::time::timeout(SOON, &mut closed).await.is_err(), "it ended what nohup started");
        }
        set(libc::SIG_DFL);
        let mut closed = std::pin::pin!(hung_up().unwrap());
        assert!(tokio::time::timeout(SOON, &mut closed).await.is_err());
        hang_up();
        assert!(tokio::time::timeout(Duration::from_secs(10), &mut closed).await.is_ok());
    }
}
