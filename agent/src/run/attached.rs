//! Attaches every signal that this host allows; one that fails costs only itself, and is polled where it can be. Knows the signals'
//! constructors and nothing of what they measure.

use crate::attach::loader::{AttachConfig, KernelBtf, LoadError, possible_cpus};
use crate::attach::price::Price;
use crate::clock::Clock;
use crate::config::Late;
use crate::name::cgroup::Mounts;
use crate::sample::block::BlockSignal;
use crate::sample::memory::MemorySignal;
use crate::sample::net::{NetConfig, NetSignals};
use crate::sample::polled::{PolledQueues, PolledResources, Watched};
use crate::sample::sched::SchedSignal;
use crate::sample::slots;
use crate::sample::stacks::{Outside, StackSignal};
use crate::sample::throttle::{Quotas, ThrottleSignal};
use crate::signal::{Coverage, SignalKind, SignalSource};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Cgroups, listeners and edges that the kernel side tells apart; with the row of the rest as many edges as the wire has ids for.
const WORKLOADS_MAX: u32 = 1_024;
const LISTENERS_MAX: u32 = 1_024;
const EDGES_MAX: u32 = 4_095;
/// A minute.
const LISTENERS_KEPT_WINDOWS: u64 = 1_200;

const SCHED: &[SignalKind] = &[SignalKind::Cpu, SignalKind::RunQueue];
const BLOCK: &[SignalKind] = &[SignalKind::BlockIo];
const MEMORY: &[SignalKind] = &[SignalKind::Memory];
const NET: &[SignalKind] =
    &[SignalKind::AcceptQueue, SignalKind::Requests, SignalKind::Calls, SignalKind::Retransmits];

/// What attached, and what is known of the signals that did not.
pub struct Attached {
    /// In the order in which they are drained: what reads files comes first, while its window has only just closed.
    pub sources: Vec<Box<dyn SignalSource>>,
    /// Signals without a source, with the reason.
    pub unattached: Vec<Coverage>,
    /// Of the sources that have kernel programs, by name.
    pub prices: Vec<(&'static str, Price)>,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.sources.iter().map(|s| s.name()).collect();
        f.debug_struct("Attached").field("sources", &names).finish_non_exhaustive()
    }
}

/// Why nothing is attached where nobody wants it.
pub const POLL_ONLY: &str = "poll_only is set: no kernel program is loaded";

/// What attaching depends on.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Signals not to measure.
    pub disabled: &'a BTreeSet<SignalKind>,
    /// Load no kernel program.
    pub poll_only: bool,
    /// Tell which code runs and waits, but for those outside of the scope; `None`: nobody's.
    pub stacks: Option<&'a Outside>,
    /// Count the streams of HTTP/2 by the headers of their frames.
    pub frame_headers: bool,
    /// This program, for what another process does.
    pub helper: Option<&'a Path>,
    /// When an answer is late.
    pub late: Late,
}

impl Attached {
    /// Attaches what is not disabled. `quotas` and `watched` are where the sources that read files take their cgroups from.
    pub fn attach(
        wanted: Wanted<'_>,
        clock: &Clock,
        mounts: &Mounts,
        quotas: Quotas,
        watched: Watched,
    ) -> Self {
        let disabled = wanted.disabled;
        let mut attached = Self { sources: Vec::new(), unattached: Vec::new(), prices: Vec::new() };
        match mounts.cpu() {
            _ if disabled.contains(&SignalKind::Throttling) => attached.disabled(&[SignalKind::Throttling]),
            Some((_, version)) => attached.sources.push(Box::new(ThrottleSignal::new(quotas, version))),
            None => attached.failed(&[SignalKind::Throttling], "no cgroup hierarchy has the cpu controller"),
        }
        let btf = if wanted.poll_only {
            Err(POLL_ONLY.to_owned())
        } else {
            KernelBtf::read().map_err(|error| error.to_string())
        };
        let mut failed: BTreeMap<SignalKind, String> = BTreeMap::new();
        let mut attach = |signals: &[SignalKind], how: &dyn Fn(&AttachConfig<'_>) -> Attempted| {
            if signals.iter().all(|s| disabled.contains(s)) {
                return attached.disabled(signals);
            }
            let attempt = btf
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|btf| how(&attach_config(btf, clock)).map_err(|e| e.to_string()));
            match attempt {
                Ok(source) => attached.works(source),
                Err(reason) => failed.extend(signals.iter().map(|s| (*s, reason.clone()))),
            }
        };
        attach(SCHED, &|config| priced(SchedSignal::attach(config)?, SchedSignal::price));
        attach(BLOCK, &|config| priced(BlockSignal::attach(config)?, BlockSignal::price));
        attach(MEMORY, &|config| priced(MemorySignal::attach(config)?, MemorySignal::price));
        attach(NET, &|config| {
            let config = NetConfig {
                btf: config.btf,
                cgroup_hierarchy: config.cgroup_hierarchy,
                epoch_offset_ns: config.epoch_offset_ns,
                cpus: config.cpus,
                listeners_max: LISTENERS_MAX,
                listeners_kept_windows: LISTENERS_KEPT_WINDOWS,
                edges_max: EDGES_MAX,
                late: wanted.late,
                helper: wanted.helper,
                frame_headers: wanted.frame_headers.then_some(mounts),
            };
            priced(NetSignals::attach(&config)?, NetSignals::price)
        });
        failed.retain(|signal, _| !disabled.contains(signal));
        if let Some(outside) = wanted.stacks {
            attached.stacks(clock, btf, outside.clone());
        }
        attached.poll(&mut failed, mounts, watched);
        attached.refused(failed);
        attached
    }

    /// A source that is attached, after all others.
    fn works(&mut self, (source, price): Priced) {
        match price {
            Ok(price) => self.prices.push((source.name(), price)),
            Err(error) => tracing::warn!("what its kernel programs cost is not measured: {error}"),
        }
        self.sources.push(source);
    }

    /// No signal of its own, and drained after all others, by which it knows when to look.
    fn stacks(&mut self, clock: &Clock, btf: Result<KernelBtf, String>, outside: Outside) {
        let attempt = btf.and_then(|btf| {
            let attached = StackSignal::attach(&attach_config(&btf, clock), outside);
            attached.and_then(|source| priced(source, StackSignal::price)).map_err(|error| error.to_string())
        });
        match attempt {
            Ok(source) => self.works(source),
            Err(reason) => tracing::warn!("stacks: which code runs and waits is not seen: {reason}"),
        }
    }

    /// Polls what no program tells, and takes it out of `failed`. Such sources are drained first, while their window has only just closed.
    fn poll(&mut self, failed: &mut BTreeMap<SignalKind, String>, mounts: &Mounts, watched: Watched) {
        if let Some(reason) = failed.get(&SignalKind::AcceptQueue) {
            match PolledQueues::start(mounts, reason.clone()) {
                Ok(source) => {
                    failed.remove(&SignalKind::AcceptQueue);
                    self.sources.insert(0, Box::new(source));
                }
                Err(error) => tracing::warn!("accept queues cannot be polled either: sock_diag: {error}"),
            }
        }
        if let Some(source) = PolledResources::start(failed, mounts, watched) {
            self.sources.insert(0, Box::new(source));
        }
        let sampled: Vec<Coverage> = self.coverage().into_iter().filter(|c| c.sampled).collect();
        if let Some(first) = sampled.first() {
            let names: Vec<String> =
                sampled.iter().map(|c| crate::config::SignalName(c.signal).to_string()).collect();
            tracing::warn!(
                signals = names.join(","),
                "sampled: polled every 50 ms, as no kernel program serves: {}",
                first.reason
            );
        }
    }

    /// One line for each reason.
    fn refused(&mut self, failed: BTreeMap<SignalKind, String>) {
        let mut by_reason: BTreeMap<String, Vec<SignalKind>> = BTreeMap::new();
        for (signal, reason) in failed {
            by_reason.entry(reason).or_default().push(signal);
        }
        for (reason, signals) in by_reason {
            self.failed(&signals, &reason);
        }
    }

    fn failed(&mut self, signals: &[SignalKind], reason: &str) {
        let names: Vec<String> = signals.iter().map(|s| crate::config::SignalName(*s).to_string()).collect();
        tracing::warn!(
            signals = names.join(","),
            "not covered: {reason}; `tailwater-agent doctor` tells what to do"
        );
        self.uncovered(signals, reason);
    }

    fn disabled(&mut self, signals: &[SignalKind]) {
        self.uncovered(signals, "disabled by configuration (disabled_signals)");
    }

    fn uncovered(&mut self, signals: &[SignalKind], reason: &str) {
        self.unattached.extend(signals.iter().map(|signal| Coverage {
            signal: *signal,
            covered: false,
            sampled: false,
            hook: String::new(),
            reason: reason.to_owned(),
        }));
    }

    /// Everything that is known about coverage.
    pub fn coverage(&self) -> Vec<Coverage> {
        let of_sources = self.sources.iter().flat_map(|s| s.coverage());
        of_sources.chain(self.unattached.iter().cloned()).collect()
    }
}

fn attach_config<'a>(btf: &'a KernelBtf, clock: &Clock) -> AttachConfig<'a> {
    AttachConfig {
        btf,
        cgroup_hierarchy: slots::cgroup_hierarchy(),
        cpus: possible_cpus(),
        workloads_max: WORKLOADS_MAX,
        epoch_offset_ns: clock.epoch_offset_ns(),
    }
}

/// A source, and what its kernel programs cost; that this cannot be measured costs it nothing else.
type Priced = (Box<dyn SignalSource>, Result<Price, LoadError>);
type Attempted = Result<Priced, LoadError>;

fn priced<S: SignalSource + 'static>(
    mut source: S,
    price: impl FnOnce(&mut S) -> Result<Price, LoadError>,
) -> Attempted {
    let price = price(&mut source);
    Ok((Box::new(source), price))
}
