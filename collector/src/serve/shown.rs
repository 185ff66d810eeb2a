//! What the HTTP side shows: handles to incidents, windows, topology and congestion points, which the analysis' thread fills.

use crate::live::events::Events;
use crate::live::series::Series;
use crate::store::{Past, Store};
use std::sync::{Arc, Mutex};
use tailwater_model::{CongestionView, TopologyView};

/// What others read.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Incidents.
    pub store: Arc<Mutex<Store>>,
    /// What is on disk.
    pub past: Past,
    /// Windows in memory.
    pub series: Arc<Mutex<Series>>,
    /// Who calls whom.
    pub topology: Arc<Mutex<Arc<TopologyView>>>,
    /// Load against throughput of every listener.
    pub congestion: Arc<Mutex<Arc<CongestionView>>>,
    /// New versions of incidents.
    pub live: Events,
}
