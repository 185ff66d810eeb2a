//! The pure pipeline: from windows of many hosts to incidents. Owns every rule of detection and diagnosis; knows no clock, no
//! file, no network, no randomness and no log, so that a recorded trace gives the same bytes everywhere.
#![forbid(unsafe_code)]

mod alert;
mod align;
mod baseline;
mod bridge;
mod candidate;
mod cases;
mod chain;
pub mod config;
mod congestion;
mod episode;
mod history;
mod hops;
pub mod incident;
mod ledger;
#[allow(missing_docs, reason = "names and units are those of telemetry.proto, which documents them")]
pub mod model;
mod order;
pub mod pipeline;
mod report;
mod series;
mod skew;
mod sustain;
pub mod title;
pub mod topology;
mod trigger;

pub use config::{Config, Thresholds, TierRule};
pub use congestion::{CongestionCurve, CongestionInterval, CongestionState, CongestionView};
pub use incident::Incident;
pub use pipeline::{Finding, FindingKind, Output, Pipeline};
pub use topology::TopologyView;
