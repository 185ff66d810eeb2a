//! Who used a resource during an episode: processes from the agents' samples, else whole workloads.
//! Owns shares and their order; knows no rule of saturation.

use crate::frame::history::{History, HostHistory};
use std::collections::BTreeMap;
use tailwater_model::incident::Culprit;
use tailwater_model::window::{CulpritResource, EntityId, WorkloadWindow};

/// Culprits that are named.
pub(crate) const NAMED_MAX: usize = 5;

/// Name of a workload; empty: not known.
pub(crate) fn workload_name(host: Option<&HostHistory>, id: EntityId) -> String {
    host.and_then(|h| h.workloads.get(&id)).map_or_else(String::new, |w| w.name.clone())
}

/// Processes by their amounts in `[from, to]`, most first; those that `also` refuses count for the total only.
pub(crate) fn processes(
    history: &History,
    host: &str,
    resource: CulpritResource,
    (from, to): (u64, u64),
    also: impl Fn(EntityId) -> bool,
) -> Vec<Culprit> {
    let mut amounts: BTreeMap<(u32, &str, EntityId), u64> = BTreeMap::new();
    let windows = history.windows_of(host);
    for window in (from..=to).filter_map(|index| windows.at(index)) {
        for sample in window.culprits.iter().filter(|s| s.resource == resource) {
            let amount = amounts.entry((sample.pid, sample.comm.as_str(), sample.workload)).or_default();
            *amount = amount.saturating_add(sample.amount);
        }
    }
    let names = history.hosts.get(host);
    let total: f64 = amounts.values().map(|a| *a as f64).sum();
    let named = amounts
        .into_iter()
        .filter(|((_, _, workload), amount)| *amount > 0 && also(*workload))
        .map(|((pid, comm, workload), amount)| Culprit {
            pid,
            comm: comm.to_owned(),
            workload: workload_name(names, workload),
            share: share(amount as f64, total),
        })
        .collect();
    most(named)
}

/// Sum of a value per workload over `[from, to]`.
pub(crate) fn per_workload(
    history: &History,
    host: &str,
    (from, to): (u64, u64),
    value: impl Fn(&WorkloadWindow) -> u64,
) -> BTreeMap<EntityId, f64> {
    let mut sums = BTreeMap::new();
    let windows = history.windows_of(host);
    for window in (from..=to).filter_map(|index| windows.at(index)) {
        for (id, sample) in &window.workloads {
            let value = value(sample);
            if value > 0 {
                *sums.entry(*id).or_insert(0.0) += value as f64;
            }
        }
    }
    sums
}

/// Whole workloads as culprits, most first.
pub(crate) fn workloads(
    history: &History,
    host: &str,
    sums: &BTreeMap<EntityId, f64>,
    also: impl Fn(EntityId) -> bool,
) -> Vec<Culprit> {
    let names = history.hosts.get(host);
    let total: f64 = sums.values().sum();
    let named = sums
        .iter()
        .filter(|(id, _)| also(**id))
        .map(|(id, amount)| Culprit {
            pid: 0,
            comm: names.and_then(|h| h.workloads.get(id)).map_or_else(String::new, |w| w.comm.clone()),
            workload: workload_name(names, *id),
            share: share(*amount, total),
        })
        .collect();
    most(named)
}

/// Two decimals: shares are for people, and sums of floats are not.
fn share(amount: f64, total: f64) -> f64 {
    if total <= 0.0 { 0.0 } else { (100.0 * amount / total).round() / 100.0 }
}

fn most(mut culprits: Vec<Culprit>) -> Vec<Culprit> {
    culprits.sort_by(|a, b| b.share.total_cmp(&a.share));
    culprits.truncate(NAMED_MAX);
    culprits
}
