//! How sure a rule is when it speaks alone, 0 to 1: the confidence of a root before its place on the way counts. Owns these numbers, side
//! by side, because their order decides which of two causes is named; knows no rule.
//!
//! Three classes. What was measured as taken from the tier, or as its threads standing, is above 0.9: nothing else explains it. What is
//! concluded from what is missing (answers, requests read) is below that. What has a likelier cause elsewhere, or none, is below
//! 0.7. Within a class the differences only break ties; `make constants` shows which of them matter.

/// A signal or a tracer stopped the threads: told by the kernel.
pub(crate) const STOPPED: f64 = 0.97;
/// The thread that serves all connections was seen to run on, or to sleep elsewhere, while requests lay unread.
pub(crate) const EVENT_LOOP: f64 = 0.96;
/// It hardly answered while as many lookups as half of its requests waited for a server of names, or its event loop's did: that is why it stood, and
/// no such stand is surer (`PAUSE` with `FROZEN`).
pub(crate) const DNS: f64 = 0.95;
/// It hardly answered while fewer did, as where a runtime resolves one name for all that wait: more than a lock, less than a pause.
pub(crate) const DNS_ONE: f64 = 0.91;
/// It answered on: what holds its requests up may be something else.
pub(crate) const DNS_FEW: f64 = 0.68;
/// Calls waited that nobody had, while segments of theirs were sent again: both ends were seen, and as with [`DNS`] no stand of the caller is surer.
pub(crate) const NETWORK: f64 = 0.95;
/// Another workload took the CPU, and more of it than this one lost.
pub(crate) const NEIGHBOUR: f64 = 0.95;
/// Tasks were in reclaim or dirty throttling: a tier that stands because of it does not merely pause.
pub(crate) const MEMORY: f64 = 0.94;
/// The hypervisor says that it took the CPU.
pub(crate) const STOLEN: f64 = 0.93;
/// A quota gave less CPU than usual.
pub(crate) const THROTTLED: f64 = 0.92;
/// Nothing was read, nothing answered, and no CPU used.
pub(crate) const PAUSE: f64 = 0.92;
/// Requests were taken on, hardly any answered, and no CPU used.
pub(crate) const LOCK: f64 = 0.88;
/// Tasks were blocked on block I/O; more where one process submitted most of it, and where the device had a queue.
pub(crate) const IO: f64 = 0.85;
pub(crate) const IO_NAMED: f64 = 0.07;
pub(crate) const IO_QUEUED: f64 = 0.03;
/// The same, asleep as for a disk: a disk that was short is the cause, and the loop only where it made it wait.
pub(crate) const EVENT_LOOP_DISK: f64 = 0.84;
/// More requests came than usual, from clients.
pub(crate) const BURST: f64 = 0.85;
/// More SYNs came than anybody completed.
pub(crate) const FLOOD: f64 = 0.85;
/// The tier's own load filled its CPU or quota.
pub(crate) const OWN_LOAD: f64 = 0.8;
/// Nobody who is seen had the CPU for which tasks waited.
pub(crate) const TAKEN_UNSEEN: f64 = 0.75;
/// As `PAUSE` and `LOCK`, but CPU was used meanwhile: something went on, and it may be what holds up the requests.
pub(crate) const STALL_BUSY: f64 = 0.65;
/// A tier that no agent sees sent a stored batch: more than that a burst came (0.85 x 0.7).
pub(crate) const UNSEEN_BATCH: f64 = 0.65;
/// More requests came because a tier had stored them, without anything known that held them back.
pub(crate) const BURST_STORED: f64 = 0.6;
/// The way ends at a tier that no agent sees.
pub(crate) const UNOBSERVED: f64 = 0.5;
/// The way ends at a tier whose windows are missing.
pub(crate) const MISSING: f64 = 0.4;
/// The CPU was full, hardly more than ever.
pub(crate) const AS_EVER: f64 = 0.4;
/// A queue grew, and nothing measured explains it.
pub(crate) const UNEXPLAINED: f64 = 0.3;
/// What half of a stall's windows beyond the congestion point add: less than any difference between classes, so that they confirm a stall
/// and never outrank another cause.
pub(crate) const FROZEN: f64 = 0.02;
