//! How much one message may hold: what an honest agent never reaches, and what keeps a hostile one from taking memory by saying little. Pure;
//! what is beyond a limit is refused with its text, and `session` counts it. Values of a column are bounded where they are decoded.

use tailwater_proto::columnar::VALUES_MAX;
use tailwater_proto::v1::{AgentStatus, Entities, EntityKind, Hello, WindowBatch};

/// Signals of one host that a Hello may tell of: there are nine.
const COVERAGE_MAX: usize = 64;
/// Addresses of one host that are taken, the first ones; a node that balances load holds thousands.
pub const ADDRESSES_MAX: usize = 4096;
/// Bytes of a text: a verifier's complaint is the longest.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Bytes of a cgroup's path or of a pool's setting: a path of the kernel (PATH_MAX), and a key before it.
const PATH_BYTES_MAX: usize = 4096 + 256;
/// Bytes of the name of a workload, a command or a device.
const NAME_BYTES_MAX: usize = 512;
/// Signals shed, or kinds of losses, in one status.
const STATUS_ROWS_MAX: usize = 256;
/// Rows of entities in one batch, all its windows together: what is in memory of one, however few bytes said it, is some 30 MB,
/// and as much again if it says every response time that its values can.
pub const ROWS_MAX: usize = 1 << 17;
/// Culprits in one batch: 64 windows with 64 each.
const CULPRITS_MAX: usize = 64 * 64;

/// Entities of one kind in one message: an agent has no more than this of a kind, and tells of some hundred at once.
const ENTITIES_MAX: usize = tailwater_proto::columnar::ENTITIES_MAX;
/// Accounts of levels in one batch, of a second and more each; more than windows there are not.
const STATES_MAX: usize = 64;
/// Listeners in all of them.
const STATES_LISTENERS_MAX: usize = 1 << 14;

/// Every limit by the name under which it is counted: those above, and those of `session`, `registry`, `feed`, the analysis, and of those who
/// read over HTTP.
pub const NAMES: [&str; 15] = [
    "addresses",
    "agent_queue",
    "agents",
    "analysis",
    "clock_probes",
    "coverage",
    "culprits",
    "entities",
    "host_names",
    "readers",
    "rows",
    "states",
    "status",
    "text",
    "values",
];

/// More than there can be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{got} {what}, the limit is {limit}: an agent of this version never sends so many")]
pub struct Excess {
    what: &'static str,
    kind: &'static str,
    got: usize,
    limit: usize,
}

impl Excess {
    /// For counters.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }
}

fn at_most(kind: &'static str, what: &'static str, got: usize, limit: usize) -> Result<(), Excess> {
    if got > limit { Err(Excess { what, kind, got, limit }) } else { Ok(()) }
}

fn text(what: &'static str, text: &str, limit: usize) -> Result<(), Excess> {
    at_most("text", what, text.len(), limit)
}

/// Checks the first message of a stream, and those like it.
pub fn hello(hello: &Hello) -> Result<(), Excess> {
    at_most("coverage", "signals in a Hello", hello.coverage.len(), COVERAGE_MAX)?;
    for signal in &hello.coverage {
        text("bytes in the hook of a signal", &signal.hook, TEXT_BYTES_MAX)?;
        text("bytes in the reason of a signal", &signal.reason, TEXT_BYTES_MAX)?;
    }
    for name in [&hello.boot_id, &hello.agent_version, &hello.kernel_release] {
        text("bytes in a name of a Hello", name, NAME_BYTES_MAX)?;
    }
    text("bytes in Hello.scope_cgroup", &hello.scope_cgroup, PATH_BYTES_MAX)
}

/// Checks names.
pub fn entities(entities: &Entities) -> Result<(), Excess> {
    let Entities { workloads, listeners, edges, devices, .. } = entities;
    let Entities { gone_workloads, gone_listeners, gone_edges, gone_devices, .. } = entities;
    let gone = [gone_workloads, gone_listeners, gone_edges, gone_devices].map(Vec::len);
    at_most(
        "entities",
        "entities that are gone in a message",
        gone.into_iter().max().unwrap_or(0),
        ENTITIES_MAX,
    )?;
    for (what, got) in [
        ("workloads in a message", workloads.len()),
        ("listeners in a message", listeners.len()),
        ("edges in a message", edges.len()),
        ("devices in a message", devices.len()),
    ] {
        at_most("entities", what, got, ENTITIES_MAX)?;
    }
    for workload in &entities.workloads {
        text("bytes in Workload.cgroup", &workload.cgroup, PATH_BYTES_MAX)?;
        for name in [&workload.name, &workload.unit, &workload.container, &workload.comm] {
            text("bytes in a name of a workload", name, NAME_BYTES_MAX)?;
        }
    }
    for listener in &entities.listeners {
        text("bytes in Listener.comm", &listener.comm, NAME_BYTES_MAX)?;
    }
    entities.devices.iter().try_for_each(|device| text("bytes in Device.name", &device.name, NAME_BYTES_MAX))
}

/// Checks what an agent says of itself.
pub fn status(status: &AgentStatus) -> Result<(), Excess> {
    at_most("status", "signals shed in a status", status.shed_signals.len(), STATUS_ROWS_MAX)?;
    at_most("status", "losses in a status", status.losses.len(), STATUS_ROWS_MAX)?;
    let names = status.shed_signals.iter().chain(status.losses.iter().map(|loss| &loss.what));
    names.into_iter().try_for_each(|name| text("bytes in a name of a status", name, NAME_BYTES_MAX))
}

/// Checks how large a batch would be, by what its tables declare, before any of them is decoded.
pub fn batch(batch: &WindowBatch) -> Result<(), Excess> {
    let windows = batch.window_count as usize;
    let known = batch.tables.iter().filter(|table| EntityKind::try_from(table.kind).is_ok());
    let (mut rows, mut values) = (0_usize, 0_usize);
    for table in known {
        let more = table.entities.len().saturating_mul(windows);
        rows = rows.saturating_add(more);
        values = values.saturating_add(more.saturating_mul(table.columns.len()));
    }
    at_most("rows", "rows in a batch", rows, ROWS_MAX)?;
    // Each table has the same bound of its own, with a text that names the remedy.
    at_most("values", "values in a batch", values, 2 * VALUES_MAX)?;
    at_most("states", "accounts of levels in a batch", batch.in_flight_states.len(), STATES_MAX)?;
    let listeners = batch.in_flight_states.iter().map(|states| states.listeners.len()).sum();
    at_most("states", "listeners in a batch's accounts of levels", listeners, STATES_LISTENERS_MAX)?;
    at_most("culprits", "culprits in a batch", batch.culprits.len(), CULPRITS_MAX)?;
    batch.culprits.iter().try_for_each(|culprit| text("bytes in Culprit.comm", &culprit.comm, NAME_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_proto::v1::{
        Column, Culprit, InFlightStates, ListenerStates, Loss, SignalCoverage, Table, Workload,
    };

    #[test]
    fn a_batch_is_judged_by_what_it_declares_and_not_by_its_bytes() {
        let table = |kind: i32, entities: u32, columns: i32| Table {
            kind,
            entities: (0..entities).collect(),
            columns: (0..columns).map(|metric| Column { metric, ..Column::default() }).collect(),
        };
        let of = |tables| WindowBatch { window_count: 64, tables, ..WindowBatch::default() };
        assert_eq!(batch(&of(vec![table(1, 2048, 10)])), Ok(()));
        let rows = batch(&of(vec![table(1, 2048, 1), table(2, 1, 1)])).unwrap_err();
        assert_eq!((rows.kind(), rows.got), ("rows", ROWS_MAX + 64));
        let values = batch(&of(vec![table(1, 1024, 40), table(2, 1000, 40)])).unwrap_err();
        assert_eq!(values.kind(), "values");
        // A later version's kinds are passed over, so they weigh nothing.
        assert_eq!(batch(&of((90..900).map(|kind| table(kind, 4096, 200)).collect())), Ok(()));
    }

    #[test]
    fn each_list_and_each_text_has_a_limit_that_is_named() {
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let signal = SignalCoverage { reason: long.clone(), ..SignalCoverage::default() };
        let refused = hello(&Hello { coverage: vec![signal.clone()], ..Hello::default() }).unwrap_err();
        assert!(refused.to_string().starts_with("16385 bytes in the reason of a signal, the limit is 16384"));
        let many = Hello { coverage: vec![SignalCoverage::default(); 65], ..Hello::default() };
        assert_eq!(hello(&many).unwrap_err().kind(), "coverage");
        let workload = Workload { name: long.clone(), ..Workload::default() };
        let names = Entities { workloads: vec![workload], ..Entities::default() };
        assert_eq!(entities(&names).unwrap_err().kind(), "text");
        let names =
            Entities { workloads: vec![Workload::default(); ENTITIES_MAX + 1], ..Entities::default() };
        assert_eq!(entities(&names).unwrap_err().kind(), "entities");
        let in_flight_states = vec![InFlightStates::default(); STATES_MAX + 1];
        let many = WindowBatch { window_count: 1, in_flight_states, ..WindowBatch::default() };
        assert_eq!(batch(&many).unwrap_err().kind(), "states");
        let listeners = vec![ListenerStates::default(); STATES_LISTENERS_MAX + 1];
        let in_flight_states = vec![InFlightStates { listeners, ..InFlightStates::default() }];
        let many = WindowBatch { window_count: 1, in_flight_states, ..WindowBatch::default() };
        assert_eq!(batch(&many).unwrap_err().kind(), "states");
        let losses = vec![Loss { what: "a".into(), count: 1 }; STATUS_ROWS_MAX + 1];
        assert_eq!(status(&AgentStatus { losses, ..AgentStatus::default() }).unwrap_err().kind(), "status");
        let culprits = vec![Culprit::default(); CULPRITS_MAX + 1];
        let many = WindowBatch { window_count: 1, culprits, ..WindowBatch::default() };
        assert_eq!(batch(&many).unwrap_err().kind(), "culprits");
    }
}
