//! Scores the diagnosis: runs the matrix of stacks and causes on the laboratory, holds each reported incident against the truth of
//! its injection, and keeps the outcome in a form that two versions can be compared in.
//!
//! `judge`, `totals` and `quality` are pure; `session` is the only part that starts anything.

pub mod compare;
pub mod cut;
pub mod golden;
pub mod judge;
pub mod model;
pub mod plan;
pub mod quality;
pub mod results;
pub mod session;
pub mod totals;
