//! What the collector's rooms tell each other, as plain data. A window's way: the wire becomes [`window`]s of hosts, the analysis makes
//! of them [`incident`]s, the [`topology`] and the [`congestion`] points, sizing makes [`advice`] of them, an incident replayed with other
//! sizes is [`prevention`], what others' exporters tell of meanwhile is [`traces`], and store, hooks and pages keep
//! and show these. How a [`place`] and a [`civil`] moment are written is here too: all of them write both. Owns the values, their JSON
//! shapes and names; knows no protobuf, no clock, no file, and no rule by which anything is found.
#![forbid(unsafe_code)]

pub mod address;
pub mod advice;
pub mod civil;
pub mod congestion;
pub mod incident;
pub mod names;
pub mod place;
pub mod prevention;
pub mod responses;
pub mod rows;
pub mod topology;
pub mod traces;
#[allow(missing_docs, reason = "names and units are those of telemetry.proto, which documents them")]
pub mod window;

pub use advice::AdviceView;
pub use congestion::{CongestionCurve, CongestionInterval, CongestionState, CongestionView};
pub use incident::Incident;
pub use prevention::PreventionView;
pub use topology::TopologyView;
pub use traces::TracesView;
