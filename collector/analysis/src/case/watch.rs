//! Whether what began an incident still holds, long after the windows that showed how it was before have left the history. Owns what is
//! kept of the root for that: the levels that its episode's rule found, and whose they were; finds no root.

use crate::config::RETRY_WINDOWS;
use crate::episode::cpu::{LESS_CAPACITY, LESS_THAN_USUAL, is_withheld, never_idle, served_alone, taken};
use crate::episode::{GROWTH, MOST, lookups};
use crate::path::candidate::Candidate;
use crate::path::step::Place;
use crate::path::view::{BEFORE_WINDOWS, View};
use crate::series::growth::{LEAD_WINDOWS, RISE_MIN, quiet, usual};
use crate::series::sample::{TierSample, UseSample, tier_sample, tier_series, use_series};
use crate::series::{Series, average, mean};
use crate::topology::tier::TierKey;
use tailwater_model::incident::Resource;
use tailwater_model::window::EntityId;

/// By what a root is known to hold in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sign {
    /// A neighbour uses at least so many CPUs.
    Neighbour { workload: EntityId, busy: f64 },
    /// Less CPU than usual, by a quota.
    Throttled { busy: f64, capacity: f64 },
    /// At least so many tasks wait for a CPU that is taken; or the only thread that serves, if there is but one, had work all the time.
    Waiting { tasks: f64, alone: bool },
    /// A neighbour submits I/O.
    Submits { workload: EntityId },
    /// At least so many tasks are blocked on I/O.
    Blocked { tasks: f64 },
    /// Or on memory.
    Stalled { tasks: f64 },
    /// At least so many lookups of names wait, with at most so many answers.
    Lookups { waiting: f64, answers: f64 },
    /// At most so many answers, with at least so many requests waiting.
    Silent { answers: f64, queued: f64 },
}

/// A root that is watched to its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RootWatch {
    key: TierKey,
    sign: Sign,
    /// The last window in which it held.
    pub(crate) last: u64,
    seen: u64,
}

impl RootWatch {
    /// `None`: nothing that is measured tells whether it goes on.
    pub(crate) fn of(view: View<'_>, root: &Candidate) -> Option<Self> {
        let Place::Tier(key) = &root.place else { return None };
        let (host, episode, t) = (key.host.as_str(), &root.episode, view.thresholds);
        let first = episode.first.saturating_sub(BEFORE_WINDOWS);
        let used = use_series(view.history, host, key.workload, first, episode.last);
        let before = (first, episode.first.saturating_sub(LEAD_WINDOWS));
        let mean_before =
            |f: &dyn Fn(&UseSample) -> f64| average(used.range(before.0, before.1).map(|(_, s)| f(s)));
        let level = |f: &dyn Fn(&UseSample) -> f64| quiet(&used.map(f), episode.first);
        let other = || {
            let names = &view.history.hosts.get(host)?.workloads;
            let culprit = episode.culprits.first()?;
            names.values().find(|w| w.name == culprit.workload && w.id != key.workload).map(|w| w.id)
        };
        let windows = view.history.windows_of(host);
        let of_other = |id: EntityId, index: u64| {
            windows.at(index).and_then(|w| w.workloads.get(&id)).map_or(0.0, |w| mean(w.busy_ns))
        };
        // How the tier served, and up to how many answers of a window it stands.
        let served = || {
            let tier = view.topology.tiers.get(key)?;
            let served = tier_series(view.history, host, tier, first, episode.last);
            let answers = t.stall_rate_ratio * usual(&served.map(|s| s.answered), episode.first);
            Some((served, answers))
        };
        let sign = match episode.resource {
            Resource::CpuNeighbour => {
                let workload = other()?;
                let busy = average((episode.first..=episode.last).map(|i| of_other(workload, i)));
                Sign::Neighbour { workload, busy: MOST * busy }
            }
            Resource::CpuThrottled if !episode.by_load => Sign::Throttled {
                busy: LESS_THAN_USUAL * mean_before(&|s| s.busy),
                capacity: LESS_CAPACITY * mean_before(&|s| s.capacity),
            },
            Resource::Cpu | Resource::CpuThrottled | Resource::CpuSteal => Sign::Waiting {
                tasks: t.cpu_wait_tasks.max(t.cpu_wait_growth * level(&|s| s.wait)),
                alone: view.topology.tiers.get(key).is_some_and(|tier| {
                    let served = tier_series(view.history, host, tier, first, episode.last);
                    served_alone(view.history, key, &served)
                }),
            },
            Resource::Io => match other() {
                Some(workload) => Sign::Submits { workload },
                None => Sign::Blocked { tasks: t.io_blocked_tasks.max(GROWTH * level(&|s| s.blocked_io)) },
            },
            Resource::Memory => {
                Sign::Stalled { tasks: t.memory_stalled_tasks.max(GROWTH * level(&|s| s.stalled_memory)) }
            }
            Resource::Dns => {
                let waiting = Series::draw(view.history, host, first, episode.last, |window| {
                    lookups::in_window(window, key.workload)
                });
                Sign::Lookups { waiting: lookups::least(&waiting, episode.first), answers: served()?.1 }
            }
            Resource::Lock | Resource::Pause | Resource::EventLoop | Resource::Network => {
                let (served, answers) = served()?;
                Sign::Silent {
                    answers,
                    queued: quiet(&served.map(TierSample::queued), episode.first) + RISE_MIN,
                }
            }
            Resource::Burst | Resource::Unexplained => return None,
        };
        Some(Self { key: key.clone(), sign, last: episode.last, seen: episode.last })
    }

    /// Looks at the windows up to `now` that it did not see yet. A root that is away for longer than a dropped client waits is over: what the
    /// clients meet when they come again is another.
    pub(crate) fn watch(&mut self, view: View<'_>, now: u64) {
        for index in self.seen.saturating_add(1)..=now {
            if index.saturating_sub(self.last) <= RETRY_WINDOWS && self.holds(view, index) {
                self.last = index;
            }
        }
        self.seen = self.seen.max(now);
    }

    fn holds(&self, view: View<'_>, index: u64) -> bool {
        let (host, t) = (self.key.host.as_str(), view.thresholds);
        let Some(window) = view.history.window(host, index) else { return false };
        let of = |id: EntityId| window.workloads.get(&id).copied().unwrap_or_default();
        let used = use_series(view.history, host, self.key.workload, index, index);
        let Some(s) = used.get(index) else { return false };
        let sample = || view.topology.tiers.get(&self.key).map(|tier| tier_sample(window, tier));
        match self.sign {
            Sign::Neighbour { workload, busy } => mean(of(workload).busy_ns) >= busy.max(f64::MIN_POSITIVE),
            Sign::Throttled { busy, capacity } => {
                is_withheld(s, t) && (s.busy < busy || s.capacity < capacity)
            }
            Sign::Waiting { tasks, alone } => s.wait >= tasks && taken(s, t) || alone && never_idle(s),
            Sign::Submits { workload } => of(workload).io_bytes > 0 || of(workload).blocked_io_ns > 0,
            Sign::Blocked { tasks } => s.blocked_io >= tasks,
            Sign::Stalled { tasks } => s.stalled_memory >= tasks || s.swap_ins >= t.memory_swap_ins.max(1),
            Sign::Lookups { waiting, answers } => {
                let waits = lookups::in_window(window, self.key.workload) >= waiting;
                waits && sample().is_some_and(|s| s.answered <= answers)
            }
            Sign::Silent { answers, queued } => {
                sample().is_some_and(|s| s.answered <= answers && s.queued_max > queued)
            }
        }
    }
}
