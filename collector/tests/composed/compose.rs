//! Recordings made of recordings: the same seconds with a host that no agent watches, with windows that are missing, with a clock that is
//! ahead, or with something that no machine of the laboratory has (a hypervisor that takes CPU, reclaim, a stopped thread). Owns what is
//! changed of a recording's inputs and of which recordings; what is told of them is the caller's.

use std::collections::BTreeMap;
use std::sync::Arc;
use tailwater_model::window::{
    CulpritResource, EntityId, HostWindow, Input, ListenerWindow, WINDOW_NS, WindowIndex,
};

/// The injection of a recording, as the recorder of truth wrote it.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    /// What was injected: `pause`, `app_lock`, `cpu_burn`, `burst` and others.
    pub(crate) kind: String,
    /// Host of the tier that it was injected into.
    pub(crate) host: String,
    /// Port on which that tier is called.
    pub(crate) port: u16,
    /// Host of the tier that drops, or would: the first that clients meet.
    pub(crate) front: String,
    /// From when to when, Unix ns.
    pub(crate) during: (u64, u64),
}

impl Truth {
    /// Reads the file beside a golden recording. `None`: something that is needed is not in it.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let of: serde_json::Value = serde_json::from_str(text).ok()?;
        let places = of["places"].as_array()?;
        let tier = of["tier"].as_str()?;
        let own = places.iter().find(|place| place["tier"] == tier)?;
        Some(Self {
            kind: of["kind"].as_str()?.to_owned(),
            host: own["host"].as_str()?.to_owned(),
            port: u16::try_from(own["port"].as_u64()?).ok()?,
            front: places.first()?["host"].as_str()?.to_owned(),
            during: (of["start_unix_ns"].as_u64()?, of["end_unix_ns"].as_u64()?),
        })
    }

    fn has(&self, index: WindowIndex) -> bool {
        let (from, to) = self.during;
        (WindowIndex::at(from)..=WindowIndex::at(to)).contains(&index)
    }
}

/// What a recording's inputs become.
type Change = fn(&[Input], &Truth) -> Vec<Input>;

/// One way to change a recording.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Composition {
    /// What stands behind the recording's name.
    pub(crate) name: &'static str,
    /// Of which injections; a recording that has no such host is left out by [`Composition::of`].
    of: fn(&Truth) -> bool,
    change: Change,
}

/// All of them.
pub(crate) const COMPOSITIONS: &[Composition] = &[
    // Partial sight: agents on some of the hosts only.
    Composition { name: "app-1 unseen", of: |_| true, change: |inputs, _| without(inputs, "app-1") },
    Composition { name: "db-1 unseen", of: |_| true, change: |inputs, _| without(inputs, "db-1") },
    // Windows that did not come: of the root's host while the injection began, or now and then.
    Composition { name: "half lost", of: |t| t.kind != "burst", change: |inputs, t| lost(inputs, t, 2) },
    Composition { name: "all lost", of: |t| t.kind != "burst", change: |inputs, t| lost(inputs, t, 1) },
    Composition { name: "holes", of: |_| true, change: each_seventh_lost },
    // Of the root's host: 60 ms ahead and known to 80 ms; right, and known to 6 ms.
    Composition { name: "clock ahead", of: |_| true, change: |inputs, t| ahead(inputs, t, 60, 80) },
    Composition { name: "clock unsure", of: |_| true, change: |inputs, t| ahead(inputs, t, 0, 6) },
    // What the laboratory's machines do not have.
    Composition { name: "stolen", of: |t| t.kind == "cpu_burn", change: stolen },
    Composition {
        name: "reclaim",
        of: stands,
        change: |inputs, t| own(inputs, t, |w| w.reclaim_ns = 2 * WINDOW_NS),
    },
    Composition {
        name: "little reclaim",
        of: stands,
        change: |inputs, t| own(inputs, t, |w| w.reclaim_ns = WINDOW_NS * 4 / 10),
    },
    Composition { name: "swapping", of: stands, change: |inputs, t| own(inputs, t, |w| w.swap_ins = 100) },
    Composition {
        name: "stopped",
        of: stands,
        change: |inputs, t| own(inputs, t, |w| stop(w, 4 * WINDOW_NS, 4)),
    },
    Composition {
        name: "traced",
        of: stands,
        change: |inputs, t| own(inputs, t, |w| stop(w, WINDOW_NS / 14, 1)),
    },
    Composition { name: "flooded", of: |t| t.kind == "burst", change: |inputs, t| flooded(inputs, t, 20) },
    Composition {
        name: "a little flooded",
        of: |t| t.kind == "burst",
        change: |inputs, t| flooded(inputs, t, 3),
    },
];

impl Composition {
    /// The recording's inputs with the change; `None`: there is nothing of the kind to change in it.
    pub(crate) fn of(&self, inputs: &[Input], truth: &Truth) -> Option<Vec<Input>> {
        let composed = (self.of)(truth).then(|| (self.change)(inputs, truth))?;
        (composed != inputs).then_some(composed)
    }
}

/// A server that stands: what is told of it depends on what is seen besides.
fn stands(truth: &Truth) -> bool {
    matches!(truth.kind.as_str(), "pause" | "app_lock" | "table_lock")
}

/// Whose it is; a tick is nobody's.
pub(crate) fn host_of(input: &Input) -> Option<&str> {
    match input {
        Input::Host(info) => Some(&info.host),
        Input::Entities { host, .. } | Input::Gone { host, .. } => Some(host),
        Input::Window(window) => Some(&window.host),
        Input::States(states) => Some(&states.host),
        Input::Shares(shares) => Some(&shares.host),
        Input::Drop(notice) => Some(&notice.host),
        Input::Tick { .. } => None,
    }
}

/// No agent on `host`.
fn without(inputs: &[Input], host: &str) -> Vec<Input> {
    inputs.iter().filter(|input| host_of(input) != Some(host)).cloned().collect()
}

/// Of the windows from 200 ms before the injection until 400 ms after its beginning, one in `every` did not come from the root's host.
fn lost(inputs: &[Input], truth: &Truth, every: u64) -> Vec<Input> {
    let begun = WindowIndex::at(truth.during.0).0;
    let gone = |w: &HostWindow| {
        w.host == truth.host
            && (begun.saturating_sub(4)..begun + 8).contains(&w.index.0)
            && w.index.0.is_multiple_of(every)
    };
    inputs.iter().filter(|input| !matches!(input, Input::Window(w) if gone(w))).cloned().collect()
}

/// Of each host one window in seven did not come, of no two the same.
fn each_seventh_lost(inputs: &[Input], _: &Truth) -> Vec<Input> {
    let mut hosts: Vec<&str> = inputs.iter().filter_map(host_of).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let place = |host: &str| hosts.iter().position(|h| *h == host).unwrap_or(0) as u64;
    let gone = |w: &HostWindow| (w.index.0 + 2 * place(&w.host)).is_multiple_of(7);
    inputs.iter().filter(|input| !matches!(input, Input::Window(w) if gone(w))).cloned().collect()
}

/// The root's host says everything `ms` later than it was, and its clock is known to `error_ms`.
fn ahead(inputs: &[Input], truth: &Truth, ms: u64, error_ms: u64) -> Vec<Input> {
    let by = ms * 1_000_000;
    changed(inputs, |window| {
        if window.host == truth.host {
            let start = window.start_unix_ns() + by;
            window.index = WindowIndex::at(start);
            window.phase_ns = i64::try_from(start - window.index.start_unix_ns()).unwrap_or(0);
            window.clock_error_ns = error_ms * 1_000_000;
        }
    })
    .into_iter()
    .map(|input| match input {
        Input::Drop(mut notice) if notice.host == truth.host => {
            notice.unix_ns += by;
            Input::Drop(notice)
        }
        other => other,
    })
    .collect()
}

/// The CPU that a neighbour took was taken by the hypervisor: the neighbour is not there, and its time is steal.
fn stolen(inputs: &[Input], truth: &Truth) -> Vec<Input> {
    let neighbour = inputs.iter().find_map(|input| match input {
        Input::Window(w) if w.host == truth.host && truth.has(w.index) => w
            .culprits
            .iter()
            .find(|c| c.resource == CulpritResource::Cpu && c.comm == "burner")
            .map(|c| c.workload),
        _ => None,
    });
    let Some(neighbour) = neighbour else { return inputs.to_vec() };
    changed(inputs, |window| {
        if window.host != truth.host {
            return;
        }
        let took = window.workloads.remove(&neighbour).map_or(0, |w| w.busy_ns);
        window.culprits.retain(|c| c.workload != neighbour);
        if let Some(cpu) = &mut window.cpu {
            cpu.busy_ns = cpu.busy_ns.saturating_sub(took);
            cpu.steal_ns += took;
        }
    })
}

/// Something of the root's own workload while the injection lasts.
fn own(
    inputs: &[Input],
    truth: &Truth,
    change: impl Fn(&mut tailwater_model::window::WorkloadWindow),
) -> Vec<Input> {
    let owner =
        listeners(inputs).into_iter().find(|(_, (host, port, _))| *host == truth.host && *port == truth.port);
    let Some((_, (_, _, workload))) = owner else { return inputs.to_vec() };
    changed(inputs, |window| {
        if window.host == truth.host && truth.has(window.index) {
            change(window.workloads.entry(workload).or_default());
        }
    })
}

fn stop(window: &mut tailwater_model::window::WorkloadWindow, ns: u64, threads: u32) {
    window.stopped_ns = Some(ns);
    window.stopped_max = threads;
}

/// In place of the burst, `syns` packets a window for a second at the front, which nobody completes.
fn flooded(inputs: &[Input], truth: &Truth, syns: u64) -> Vec<Input> {
    let begun = WindowIndex::at(truth.during.0).0;
    let front: Vec<EntityId> = listeners(inputs)
        .into_iter()
        .filter(|(_, (host, port, _))| *host == truth.front && *port == truth.port)
        .map(|((_, id), _)| id)
        .collect();
    // As it was a second before, wherever the burst and what followed from it would be.
    let mut before: BTreeMap<(String, u64), Arc<HostWindow>> = BTreeMap::new();
    for input in inputs {
        if let Input::Window(w) = input {
            before.insert((w.host.clone(), w.index.0), Arc::clone(w));
        }
    }
    let composed = changed(inputs, |window| {
        if window.index.0 < begun {
            return;
        }
        let like = begun.saturating_sub(20) + (window.index.0 - begun) % 20;
        if let Some(calm) = before.get(&(window.host.clone(), like)) {
            let (index, phase_ns) = (window.index, window.phase_ns);
            *window = HostWindow { index, phase_ns, ..calm.as_ref().clone() };
        }
        if window.host == truth.front && (begun..begun + 20).contains(&window.index.0) {
            for id in &front {
                let listener: &mut ListenerWindow = window.listeners.entry(*id).or_default();
                (listener.drops, listener.drops_syn, listener.sk_drops) = (syns, syns, syns);
                listener.arrivals = listener.arrivals.min(syns / 2);
            }
        }
    });
    composed.into_iter().filter(|input| !matches!(input, Input::Drop(_))).collect()
}

/// Host, port and workload of each listener that is named.
fn listeners(inputs: &[Input]) -> BTreeMap<(String, EntityId), (String, u16, EntityId)> {
    let named = inputs.iter().filter_map(|input| match input {
        Input::Entities { host, listeners, .. } => Some((host, listeners)),
        _ => None,
    });
    named
        .flat_map(|(host, all)| {
            all.iter().map(move |l| ((host.clone(), l.id), (host.clone(), l.port, l.workload)))
        })
        .collect()
}

/// Each window changed.
fn changed(inputs: &[Input], change: impl Fn(&mut HostWindow)) -> Vec<Input> {
    let one = |input: &Input| match input {
        Input::Window(window) => {
            let mut window = window.as_ref().clone();
            change(&mut window);
            Input::Window(Arc::new(window))
        }
        other => other.clone(),
    };
    inputs.iter().map(one).collect()
}
