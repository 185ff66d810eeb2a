//! A small past of one host, and what a queue of it dropped, for the table tests of the rules.

use crate::episode::Episode;
use crate::episode::drop::Dropped;
use crate::frame::align::Frame;
use crate::frame::history::{History, Update};
use crate::topology::tier::TierKey;
use std::sync::Arc;
use tailwater_model::incident::Resource;
use tailwater_model::window::{HostWindow, WindowIndex, WorkloadInfo};

pub(crate) const MS: u64 = 1_000_000;

/// Host `h` with workloads 1 (`victim`) and 2 (`other`), windows `0..count` filled by `fill`.
pub(crate) fn history(count: u64, fill: impl Fn(u64, &mut HostWindow)) -> History {
    let mut history = History::default();
    let workload = |id, name: &str| WorkloadInfo { id, name: name.into(), ..WorkloadInfo::default() };
    let workloads = vec![workload(1, "victim"), workload(2, "other")];
    history.update("h", 0, Update::Entities { workloads, listeners: vec![], edges: vec![] });
    for index in 0..count {
        let mut window = HostWindow { host: "h".into(), index: WindowIndex(index), ..HostWindow::default() };
        fill(index, &mut window);
        history.push(Frame { index: WindowIndex(index), hosts: [("h".to_owned(), Arc::new(window))].into() });
    }
    history
}

/// An episode of something that was short from one window to another.
pub(crate) fn short_of(resource: Resource, (first, last): (u64, u64)) -> Episode {
    Episode {
        resource,
        first,
        last,
        peak: 1.0,
        unit: "ratio",
        quality: 0.9,
        by_load: false,
        of_host: false,
        culprits: Vec::new(),
        event_loop: None,
        lookups: None,
        lost: None,
        why: String::new(),
    }
}

/// What listener 7 of workload 1 on host `h` dropped in a window: packets, last ACKs among them, and of those the ones of connections that were
/// dropped before.
pub(crate) fn dropped(drops: u64, final_ack: u64, repeated: u64) -> Dropped {
    Dropped {
        tier: TierKey { host: "h".into(), workload: 1, listener: 0 },
        listener: 7,
        drops,
        sk_drops: drops.saturating_add(final_ack),
        final_ack,
        repeated,
        slow: 0,
        refused: false,
        arrivals: 0,
        depth: 25,
        limit: 24,
    }
}
