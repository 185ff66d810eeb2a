//! Load against throughput of listeners, and where it bends (N*), as people and pages see it. Owns the JSON shape; knows nothing of how
//! the point is estimated.

use crate::window::Host;
use serde::{Deserialize, Serialize};

/// The curves of all listeners, as kept now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CongestionView {
    /// By host, workload, address and port.
    pub listeners: Vec<CongestionCurve>,
    /// Windows of listeners that were not kept: there are more than the collector keeps.
    pub refused: u64,
}

/// Load against throughput of one listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CongestionCurve {
    /// Host.
    pub host: Host,
    /// Name of the workload.
    pub workload: String,
    /// Name of its tier.
    pub tier: String,
    /// `address:port`.
    pub listener: String,
    /// Whether its congestion point is known.
    pub state: CongestionState,
    /// N*: mean queued requests beyond which more of them bring no more throughput; `null`: not known.
    pub congestion_point: Option<f64>,
    /// Answers per 50 ms at N*; `null`: not known.
    pub throughput: Option<f64>,
    /// How much there is to go by, 0 to 1: 1 from a minute of windows under load on.
    pub coverage: f64,
    /// Windows in which it stood still while requests waited, old ones counting less. They are not part of the intervals.
    pub frozen_windows: f64,
    /// The curve, by load.
    pub intervals: Vec<CongestionInterval>,
}

/// Whether a congestion point is known, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CongestionState {
    /// It is.
    Known,
    /// Fewer windows under load, or fewer different loads, than an estimate needs.
    TooFewWindows,
    /// So few answers per window that 50 ms cannot show a rate.
    TooFewAnswers,
    /// More load still brought more throughput: congestion was not seen yet.
    StillRising,
}

/// One interval of load and what was answered there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CongestionInterval {
    /// Mean queued requests.
    pub load: f64,
    /// Mean answers per window.
    pub answered: f64,
    /// Windows behind it, old ones counting less.
    pub windows: f64,
}
