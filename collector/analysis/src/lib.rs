//! The pure pipeline: from windows of many hosts to incidents. Owns every rule of detection and diagnosis; knows no clock, no
//! file, no network, no randomness and no log, so that a recorded trace gives the same bytes everywhere.
#![forbid(unsafe_code)]

mod align;
mod baseline;
mod below;
mod bridge;
mod candidate;
mod case;
mod chain;
pub mod config;
mod congestion;
mod episode;
mod history;
mod order;
pub mod pipeline;
mod report;
mod series;
mod skew;
mod step;
mod surge;
pub mod topology;
mod view;

pub use config::{Config, Thresholds, TierRule};
pub use pipeline::{Finding, FindingKind, Output, Pipeline};

// What has moved to tailwater-model, under the paths by which callers still ask for it: gone when they name that crate. So are then
// the `pub` of `topology` and of the views in it.
pub use tailwater_model::{
    CongestionCurve, CongestionInterval, CongestionState, CongestionView, Incident, TopologyView, incident,
    window as model,
};
