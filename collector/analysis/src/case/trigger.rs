//! What makes a case: a tier whose queue felt something in a frame, or that dropped. Owns what of a window counts as dropped in it; knows
//! no open case and no cause.

use crate::baseline::{Baseline, Level};
use crate::episode::drop::Dropped;
use crate::episode::stopped::STOPPED_MOST;
use crate::path::view::View;
use crate::series::mean;
use crate::series::sample::tier_sample;
use crate::topology::tier::{ListenerName, TierKey};
use std::collections::BTreeMap;
use tailwater_model::address::is_unix;
use tailwater_model::window::ListenerWindow;

/// What a tier felt in one frame.
#[derive(Debug, Clone)]
pub(crate) struct Trigger {
    pub(crate) tier: TierKey,
    pub(crate) level: Level,
    pub(crate) ratio: f64,
}

/// What every tier felt in a frame, and what every listener dropped.
pub(crate) fn felt(
    view: View<'_>,
    baselines: &mut BTreeMap<TierKey, Baseline>,
    now: u64,
) -> (Vec<Trigger>, Vec<Dropped>) {
    let mut triggers = Vec::new();
    let mut drops = Vec::new();
    // Tiers and what is usual of them stand in one order: walked side by side, neither is searched for, in each frame of each of them.
    let mut known = baselines.iter_mut().peekable();
    let mut new: Vec<(TierKey, Baseline)> = Vec::new();
    let mut windows = view.history.windows_in_order(now);
    for (key, tier) in &view.topology.servers {
        let Some((_, window)) = windows.of(&key.host) else { continue };
        let sample = tier_sample(window, tier);
        while known.next_if(|(of, _)| *of < key).is_some() {}
        let baseline = match known.next_if(|(of, _)| *of == key) {
            Some((_, baseline)) => baseline,
            None => {
                new.push((key.clone(), Baseline::default()));
                let Some((_, baseline)) = new.last_mut() else { continue };
                baseline
            }
        };
        let felt = baseline.observe(&sample, tier.workers_limit, view.thresholds);
        // Clients of a few connections that wait for answers before they ask anew send nothing that could lie unread. That threads were stopped
        // meanwhile is measured.
        let is_stopped = sample.connections_only && {
            let is_silent = baseline.is_silent(&sample, view.thresholds);
            let own = || window.workloads.get(&key.workload).and_then(|w| w.stopped_ns).unwrap_or(0);
            let stands = is_silent && mean(own()) >= STOPPED_MOST;
            let wrote_lately = baseline.wrote_lately(&sample, stands || sample.is_deaf(), view.thresholds);
            stands && wrote_lately
        };
        let felt = felt.or_else(|| is_stopped.then_some((Level::Felt, 0.0)));
        if let Some((level, ratio)) = felt {
            triggers.push(Trigger { tier: key.clone(), level, ratio });
            if level == Level::Drop {
                let of = |l: &&ListenerName| window.listeners.get(&l.id).is_some_and(|w| w.drops > 0);
                drops.extend(tier.listeners.iter().filter(of).filter_map(|l| {
                    let w = window.listeners.get(&l.id)?;
                    // A dropped segment is seen at once, the socket's counter some ms later: maybe in the next window.
                    let before = now.checked_sub(1).and_then(|i| view.history.window(&key.host, i));
                    let before = before.and_then(|b| b.listeners.get(&l.id)).filter(|b| b.drops == 0);
                    let with = |of: fn(&ListenerWindow) -> u64| of(w).saturating_add(before.map_or(0, of));
                    Some(Dropped {
                        tier: key.clone(),
                        listener: l.id,
                        drops: w.drops,
                        sk_drops: with(|w| w.sk_drops),
                        final_ack: with(|w| w.drops_final_ack),
                        repeated: with(|w| w.drops_repeated),
                        slow: with(|w| w.drops_slow),
                        refused: is_unix(l.address),
                        arrivals: w.arrivals,
                        depth: w.depth_max,
                        limit: if w.limit > 0 { w.limit } else { baseline.accept_queue_limit().unwrap_or(0) },
                    })
                }));
            }
        }
    }
    drop(known);
    baselines.extend(new);
    (triggers, drops)
}
