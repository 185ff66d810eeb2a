//! Pure models of soft resources: threads, connections and backlogs against the hardware that they feed. Owns the
//! mathematics of sizing and what may be said of its results; knows no clock, no file, no network, no randomness and
//! no log, and no listener, window or server by name: curves and measurements come in as plain data, answers go out
//! as plain data. The same input gives the same bytes everywhere.
//!
//! What is learnt and from where: `curve` (time in each number of requests in flight, and completions there) → `mva`
//! (a tier that was never full), `concurrency` (the best number in flight of one server, and what another number of
//! servers changes), `learn` (one listener's curve and costs, second by second), `allocation` (from the critical resource to every pool of a chain), `stealing` (neighbours
//! under one scheduler), `compare` (before a change against after it) and `prevent` (the replay of an overflow with other sizes). `evidence` is for all: no number leaves this crate without its class, and what cannot be
//! said is a [`evidence::Refusal`] with its reason.
//!
//! Sources, by the letters used throughout:
//! * A: Wang, Zhang et al., soft-resource allocation, TOMPECS 2019: equations 1 to 6, Algorithm 1, Table 2;
//! * B: Chen et al., DCM, dynamic concurrency management: equations 1 to 8, Table I. Its equation 7 is Gunther's
//!   universal scalability law;
//! * C: Li et al., consolidated n-tier applications: CPU stealing between neighbours with different numbers of
//!   threads.
//!
//! "The digest" is this project's notes on them: their defects, and numbers that were computed from theirs.
//!
//! Symbols: N requests in flight in one server, X throughput (1/s), K servers of a tier, V visits of a tier for each
//! request of the system, S0, α, β service time, contention and coherency (s), γ how much of K servers' capacity
//! there is together (0 to 1), D CPU time of a request (s), W what it waits elsewhere (s).
#![forbid(unsafe_code)]

pub mod allocation;
pub mod compare;
pub mod concurrency;
pub mod curve;
pub mod evidence;
pub mod headroom;
pub mod learn;
pub mod mva;
mod numeric;
pub mod prevent;
pub mod stealing;
