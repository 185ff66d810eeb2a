//! What Tailwater's end-to-end tests stand on: a laboratory of real servers, its load generator, and the programs under test
//! started as an operator would. None of it shares code with what it tests.
#![allow(
    clippy::disallowed_methods,
    reason = "a test's clock is the real one: it judges those of the programs"
)]

pub mod alert_latency;
pub mod bench;
pub mod clean_system;
pub mod console;
pub mod controls;
pub mod disturbed;
pub mod kernels;
pub mod lab;
pub mod load;
pub mod os;
pub mod preflight;
pub mod programs;
pub mod score;
pub mod stack;
pub mod supervise;
pub mod system;
pub mod truth;
pub mod verdict;
