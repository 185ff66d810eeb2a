//! What Tailwater's end-to-end tests stand on: a laboratory of real servers, its load generator, and the programs under test
//! started as an operator would. None of it shares code with what it tests.
//!
//! From below: `os`, `console` and `names` → `stack`, `load`, `truth`, `programs` → `lab`, `guests` → `system` → `score`, `controls`, `sizing`, `stealing`, `prevention`,
//! `demo`, `graph`, `peers`; `scale` beside them.
//! Which room may use which is the table in `tests/tests/arrows/table.rs`.
#![allow(
    clippy::disallowed_methods,
    reason = "a test's clock is the real one: it judges those of the programs"
)]

pub mod bench;
pub mod calibration;
pub mod console;
pub mod controls;
pub mod demo;
pub mod disturbed;
pub mod graph;
pub mod guests;
pub mod lab;
pub mod load;
pub mod names;
pub mod os;
pub mod peers;
pub mod prevention;
pub mod programs;
pub mod scale;
pub mod score;
pub mod sizing;
pub mod stack;
pub mod stealing;
pub mod supervise;
pub mod system;
pub mod truth;
