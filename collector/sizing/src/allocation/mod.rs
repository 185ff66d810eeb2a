//! From the critical resource to every pool of a chain of tiers. Owns A's equations 1 to 6 and its Algorithm 1 with
//! their defects repaired, the buffer of the front tier and the smallest set of changes; knows no curve and no
//! configuration key.

mod buffer;
mod changes;
mod critical;
pub mod equations;
mod pools;
mod search;

pub use buffer::{Buffer, FrontLoad, STALL_MAX_S, front_buffer};
pub use changes::{Change, Changes, Limits, smallest_changes};
pub use critical::{Resource, critical_resource};
pub use pools::{Allocation, Chain, Pool, Tier, TierPools, Workers, allocate};
pub use search::{
    CriticalFound, Experiment, GAIN_MIN, LOAD_STEP, MinJobs, Step, find_critical, infer_min_jobs,
    least_saturating,
};
