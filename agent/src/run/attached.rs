//! Attaches every signal that this host allows; one that fails costs only itself. Knows the signals' constructors and nothing
//! of what they measure.

use crate::attach::loader::{AttachConfig, KernelBtf, LoadError};
use crate::clock::Clock;
use crate::name::cgroup::Mounts;
use crate::sample::block::BlockSignal;
use crate::sample::memory::MemorySignal;
use crate::sample::net::{NetConfig, NetSignals};
use crate::sample::sched::SchedSignal;
use crate::sample::slots;
use crate::sample::throttle::{Quotas, ThrottleSignal};
use crate::signal::{Coverage, SignalKind, SignalSource};
use std::collections::BTreeSet;

/// Cgroups, listeners and edges that the kernel side tells apart.
const WORKLOADS_MAX: u32 = 256;
const LISTENERS_MAX: u32 = 64;
const EDGES_MAX: u32 = 128;
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
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.sources.iter().map(|s| s.name()).collect();
        f.debug_struct("Attached").field("sources", &names).finish_non_exhaustive()
    }
}

impl Attached {
    /// Attaches what is not disabled.
    pub fn attach(disabled: &BTreeSet<SignalKind>, clock: &Clock, mounts: &Mounts, quotas: Quotas) -> Self {
        let mut attached = Self { sources: Vec::new(), unattached: Vec::new() };
        match mounts.cpu() {
            _ if disabled.contains(&SignalKind::Throttling) => attached.disabled(&[SignalKind::Throttling]),
            Some((_, version)) => attached.sources.push(Box::new(ThrottleSignal::new(quotas, version))),
            None => attached.failed(&[SignalKind::Throttling], "no cgroup hierarchy has the cpu controller"),
        }
        let btf = KernelBtf::read();
        let mut attach = |signals: &[SignalKind], how: &dyn Fn(&AttachConfig<'_>) -> Attempted| {
            if signals.iter().all(|s| disabled.contains(s)) {
                return attached.disabled(signals);
            }
            let attempt = btf.as_ref().map_err(ToString::to_string).and_then(|btf| {
                let config = AttachConfig {
                    btf,
                    cgroup_hierarchy: slots::cgroup_hierarchy(),
                    workloads_max: WORKLOADS_MAX,
                    epoch_offset_ns: clock.epoch_offset_ns(),
                };
                how(&config).map_err(|e| e.to_string())
            });
            match attempt {
                Ok(source) => attached.sources.push(source),
                Err(reason) => attached.failed(signals, &reason),
            }
        };
        attach(SCHED, &|config| Ok(Box::new(SchedSignal::attach(config)?)));
        attach(BLOCK, &|config| Ok(Box::new(BlockSignal::attach(config)?)));
        attach(MEMORY, &|config| Ok(Box::new(MemorySignal::attach(config)?)));
        attach(NET, &|config| {
            let config = NetConfig {
                btf: config.btf,
                cgroup_hierarchy: config.cgroup_hierarchy,
                epoch_offset_ns: config.epoch_offset_ns,
                listeners_max: LISTENERS_MAX,
                listeners_kept_windows: LISTENERS_KEPT_WINDOWS,
                edges_max: EDGES_MAX,
            };
            Ok(Box::new(NetSignals::attach(&config)?))
        });
        attached
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

type Attempted = Result<Box<dyn SignalSource>, LoadError>;
