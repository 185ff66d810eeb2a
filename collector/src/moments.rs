//! How an early alert came here: when it was where. Plain data, filled on its way and read by `alert/latency.rs`.

/// When an early alert was where, Unix ns by the collector's clock. An agent of before has not said `read` and `sent`: 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    /// The kernel's timer saw the drop, at most its period of 5 ms after it.
    pub dropped: u64,
    /// The agent's sampler had it.
    pub read: u64,
    /// The agent handed it to the connection.
    pub sent: u64,
    /// It reached the collector's end of the stream.
    pub received: u64,
    /// The analysis took it from its queue.
    pub taken: u64,
    /// The analysis had decided that it is an alert, and told the hooks.
    pub decided: u64,
}
