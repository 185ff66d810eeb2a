//! Closed networks of one class of requests: what a tier does that was never seen full. Owns exact throughput per
//! number of requests in flight and the fewest that a model needs; knows no curve and no chain of tiers.
//!
//! The answers are those of exact mean value analysis (Reiser, Lavenberg 1980). Where all stations are plain queues
//! and delays they are computed by its recursion. With stations whose speed depends on their load that recursion
//! loses all its digits near saturation (the probability of an empty station is what is left of 1), so there it is
//! Buzen's convolution, in logarithms: sums of positive terms only.

mod convolution;
mod least;
mod network;

pub use least::{FULL_PART, least_jobs, least_jobs_bound, least_pool, pool_for};
pub use network::{JOBS_MAX, Network, Station};
