//! What a request needs, and what a pool may cost. Plain data that the models of this folder share; computes nothing.

/// Part of the best throughput that a pool inside the told interval may cost.
pub const LOSS_MAX: f64 = 0.02;

/// Part of a quota that is used, at the least, where it is the limit: some is left over on each CPU, in slices, when the others have used
/// theirs up (`sched_cfs_bandwidth_slice_us`). With 140 requests waiting a server used 0.90 to 0.93 of one with periods of 10 ms.
pub const QUOTA_USED: f64 = 0.85;

/// A request's needs, measured in one regime of load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unsaturated {
    /// CPUs that the server may use; a quota counts as a fraction.
    pub cpus: f64,
    /// D, CPU time of a request, s.
    pub cpu_s: f64,
    /// W, what it waits elsewhere, s.
    pub wait_s: f64,
}
