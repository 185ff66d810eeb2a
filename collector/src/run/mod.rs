//! Wiring: the command line, the configuration, the analysis at work, replay, and the collector as a whole. May use every room.

pub mod cli;
pub mod config;
pub mod doctor;
pub mod driver;
pub mod endpoint;
pub mod enrol;
mod machine;
pub mod outlet;
pub mod provisional;
pub mod recording;
pub mod replay;
pub mod server;
pub mod tokens;
pub mod up;
