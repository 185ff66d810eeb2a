//! Why a number is not told. Owns every reason and its sentence; knows no model.

use serde::Serialize;

/// A resource's part in a bottleneck that has several.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// The resource.
    pub resource: String,
    /// Part of the observed time in which it was full, 0 to 1.
    pub full_ratio: f64,
}

/// Why there is no number. Each is one sentence that says what was seen.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the sentences say what the fields are; units are in the fields' names")]
pub enum Refusal {
    /// An input that no measurement gives.
    #[error("{what} cannot be {value}")]
    Input { what: &'static str, value: f64 },
    /// Fewer loads than the law has parameters to tell apart.
    #[error("{seen} different numbers in flight were seen, and {needed} are needed")]
    TooFewLoads { seen: usize, needed: usize },
    /// Too little traffic for an interval.
    #[error("{seen} blocks of traffic were seen, and an interval needs {needed}")]
    TooFewBlocks { seen: usize, needed: usize },
    /// The loads are too alike.
    #[error(
        "the numbers in flight that were seen are too alike to tell service time, contention and coherency apart"
    )]
    NoSpread,
    /// β ≤ 0, or not seen to be more.
    #[error(
        "throughput is not seen to fall with more in flight (β = {:.2} µs), so no number is the best", .beta_s * 1e6
    )]
    NoPenalty { beta_s: f64 },
    /// S0 ≤ α.
    #[error(
        "more in flight brings nothing (S0 = {:.3} ms, α = {:.3} ms): one at a time is as fast",
        .service_s * 1e3, .contention_s * 1e3
    )]
    NoGain { service_s: f64, contention_s: f64 },
    /// Parameters under which throughput would have no bound.
    #[error("the fitted law has no finite maximum")]
    NoMaximum,
    /// There is a penalty, and too little to trust the law that would place the best.
    #[error(
        "throughput falls with more in flight, but too little is known for a law: {known_levels} loads up to \
         {known_to} in flight, R² of held-out traffic {holdout_r2:.2}"
    )]
    LawNotHeld { known_levels: usize, known_to: f64, holdout_r2: f64 },
    /// No level is flat enough, or none has traffic enough.
    #[error("no plateau of throughput was seen")]
    NoPlateau,
    /// A pool ends the curve before its bend.
    #[error(
        "the pool of {limit} was full (up to {seen} in flight) before throughput bent: what lies beyond was never seen"
    )]
    PoolCapped { limit: u32, seen: f64 },
    /// Another mix of requests than the one that was learnt.
    #[error("the mix of requests or the version changed while this was learnt")]
    MixDrift,
    /// Windows that something else decided.
    #[error("what was seen is not the tier's own: {by}")]
    Tainted { by: String },
    /// Hardware was never full.
    #[error(
        "no hardware was full for long (its fullest second used {:.0} %): where throughput ends was not seen",
        .used_ratio * 100.0
    )]
    NotSaturated { used_ratio: f64 },
    /// Several resources are full by turns, or at once.
    #[error("the bottleneck has several resources: {}", named(.resources))]
    SeveralCritical { resources: Vec<Share> },
    /// Throughput ended and nothing was full.
    #[error("throughput stopped rising at a load of {workload}, and neither hardware nor a pool was full")]
    NothingSaturates { workload: f64 },
    /// The search ended by its own limit.
    #[error("throughput still rose at a load of {workload}, where the search ends")]
    StillRising { workload: f64 },
    /// Pools stay the limit however large.
    #[error("a pool is the limit even at {factor} times its size")]
    PoolsNeverSuffice { factor: u32 },
    /// No response time of a tier.
    #[error("the response time of {tier} is not known")]
    NoResponse { tier: String },
    /// No hold time of a tier's connections.
    #[error("how long {tier} holds a connection is not known")]
    NoHold { tier: String },
    /// Nothing to size.
    #[error("{tier} is event-driven: no pool of workers limits it")]
    EventDriven { tier: String },
    /// What is in flight is not what connections say.
    #[error(
        "{tier} has several requests on one connection at a time: its requests in flight cannot be counted"
    )]
    Multiplexed { tier: String },
    /// Too short, or too seldom asked.
    #[error(
        "{seconds:.0} s of clean traffic with {answered:.0} answers were seen, and {needed_s:.0} s with {needed:.0} are needed"
    )]
    LittleTraffic { seconds: f64, answered: f64, needed_s: f64, needed: f64 },
    /// What the callee needs is more than what it stands.
    #[error("{needed} connections are needed below, and more than {most} cost throughput there")]
    Conflict { needed: f64, most: f64 },
    /// Two measurements that must be of different numbers of servers.
    #[error("γ needs two numbers of servers, and both are {servers}")]
    SameServers { servers: u32 },
    /// Autogroup: thread counts do not decide there.
    #[error("these are in the root cgroup, where the scheduler groups by session, not by thread")]
    RootLevel,
    /// Siblings share by weight.
    #[error("these have cgroups of their own, which share by weight and not by thread")]
    SeparateCgroups,
    /// A share needs two.
    #[error("nobody else wanted the CPU")]
    NoNeighbour,
    /// No overflow to prevent.
    #[error("nothing was dropped, so there is nothing to prevent")]
    NothingDropped,
    /// A model that does not give what was seen gives nothing else.
    #[error(
        "the model drops {predicted} packets where {seen} were dropped: what it would say of other sizes is worth nothing"
    )]
    NotReproduced { predicted: u64, seen: u64 },
    /// Windows are missing, or nobody looks.
    #[error("not known: {what}")]
    NotSeen { what: String },
    /// What holds a queue of connections does not hold requests on connections that are open.
    #[error(
        "{tier} gets {per_connection:.1} requests on each connection: what waits on an open connection is in no accept queue"
    )]
    KeptConnections { tier: String, per_connection: f64 },
    /// It may still grow.
    #[error("the incident is not over yet")]
    NotOver,
    /// Too many to be replayed in the time there is.
    #[error("{requests} first attempts are too many to replay: {most} are the limit")]
    TooManyRequests { requests: u64, most: u64 },
    /// The same, of what becomes of them.
    #[error("the replay takes more than {most} events: the chain is too far beyond its capacity")]
    TooManyEvents { most: u64 },
}

fn named(resources: &[Share]) -> String {
    let one = |of: &Share| format!("{} ({:.0} % of the time)", of.resource, of.full_ratio * 100.0);
    resources.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A finite number above 0, or the refusal that names it.
pub(crate) fn positive(what: &'static str, value: f64) -> Result<f64, Refusal> {
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(Refusal::Input { what, value }) }
}

/// A finite number, 0 or above, or the refusal that names it.
pub(crate) fn not_negative(what: &'static str, value: f64) -> Result<f64, Refusal> {
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(Refusal::Input { what, value }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_name_what_was_seen() {
        let share = |resource: &str, full_ratio| Share { resource: resource.into(), full_ratio };
        let several =
            Refusal::SeveralCritical { resources: vec![share("app CPU", 0.55), share("db disk", 0.4)] };
        assert_eq!(
            several.to_string(),
            "the bottleneck has several resources: app CPU (55 % of the time), db disk (40 % of the time)"
        );
        let not_full = Refusal::NotSaturated { used_ratio: 0.690_198_964 }.to_string();
        assert!(not_full.contains("its fullest second used 69 %"), "{not_full}");
        let flat = Refusal::NoPenalty { beta_s: 2.95e-8 }.to_string();
        assert!(flat.contains("(β = 0.03 µs)"), "{flat}");
        let no_gain = Refusal::NoGain { service_s: -0.000_935_2, contention_s: 0.000_617_65 }.to_string();
        assert!(no_gain.contains("(S0 = -0.935 ms, α = 0.618 ms)"), "{no_gain}");
        assert_eq!(positive("a rate", -1.0).unwrap_err().to_string(), "a rate cannot be -1");
        assert!(positive("a rate", f64::NAN).is_err() && positive("a rate", 0.0).is_err());
        assert!(not_negative("a rate", 0.0).is_ok() && not_negative("a rate", f64::INFINITY).is_err());
    }
}
