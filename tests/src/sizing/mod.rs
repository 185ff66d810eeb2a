//! What was advised of pools, held against sweeps of them: cells, learning run, sweep, goodput from the clients' log, verdicts, results.
//! The truth here is the clients' log alone, and shares no code with agent or collector.
//!
//! From below: [`advice`], [`goodput`] → [`judge`], [`dcm`], [`gradient2`], [`wang`]; [`cells`] → [`sweep`], [`learn`]; all of it → [`results`] → [`judged`].

pub mod advice;
pub mod cells;
pub mod dcm;
pub mod goodput;
pub mod gradient2;
pub mod judge;
pub mod judged;
pub mod learn;
pub mod results;
pub mod sweep;
pub mod wang;
