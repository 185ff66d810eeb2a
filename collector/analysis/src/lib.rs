//! The pure pipeline: from windows of many hosts to incidents. Owns every rule of detection and diagnosis; knows no clock, no
//! file, no network, no randomness and no log, so that a recorded trace gives the same bytes everywhere.
//!
//! A window's way: `frame` (the windows of all hosts for one index, and the last 400 of them) → `topology` (which tiers there are, who
//! calls whom) → `series` (a tier's values over a span) → `baseline` (what is usual of it) → `episode` (what was short, from when to when)
//! → `path` (from a queue that overflowed to the root) → `case` (what belongs to one incident, for as long as it lives) → `report` (what is
//! told of it, and when); `pipeline` wires it. A room uses those before it in this list and none after it; what all may use are `config` and
//! the data of `tailwater-model`.
#![forbid(unsafe_code)]

mod baseline;
mod case;
pub mod config;
mod episode;
mod frame;
mod path;
pub mod pipeline;
mod report;
mod series;
mod topology;

pub use config::{Config, Thresholds, TierRule};
/// What the numbers of [`tailwater_model::incident::Incident::numbers`] are called, in their order.
pub use path::evidence::NAMES as NUMBERS;
pub use pipeline::{Finding, FindingKind, Output, Pipeline};
