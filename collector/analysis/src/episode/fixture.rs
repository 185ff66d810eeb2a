//! A small past of one host, for the table tests of the rules.

use crate::frame::align::Frame;
use crate::frame::history::{History, Update};
use std::sync::Arc;
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
