//! The Rust mirror of every record against the type information of the compiled objects: name, offset and size of each field.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::mem::offset_of;
use std::process::Command;
use tailwater_ebpf::{block, memory, net, objects, record, sched, stacks};

/// Field name to offset in bytes.
type Fields = BTreeMap<String, usize>;

/// Size and fields by name.
type Structs = BTreeMap<String, (usize, Fields)>;

/// The structs of an object.
fn structs_of(object: &[u8]) -> Structs {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(object).unwrap();
    let output = Command::new("bpftool").args(["-j", "btf", "dump", "file"]).arg(file.path()).output();
    let output = output.expect("bpftool runs; install the Debian package bpftool");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let types = json["types"].as_array().unwrap();
    let number = |v: &Value| usize::try_from(v.as_u64().unwrap()).unwrap();
    let is_struct = |t: &&Value| t["kind"] == "STRUCT";
    types
        .iter()
        .filter(is_struct)
        .map(|t| {
            let members = t["members"].as_array().unwrap().iter();
            let fields =
                members.map(|m| (m["name"].as_str().unwrap().to_owned(), number(&m["bits_offset"]) / 8));
            (t["name"].as_str().unwrap().to_owned(), (number(&t["size"]), fields.collect()))
        })
        .collect()
}

macro_rules! same {
    ($structs:expr, $name:literal, $type:ty: $($field:ident),+) => {{
        let (size, fields) = $structs.get($name).unwrap_or_else(|| panic!("no struct {}", $name));
        let ours: Fields =
            [$((stringify!($field).to_owned(), offset_of!($type, $field))),+].into_iter().collect();
        assert_eq!((*size, fields), (size_of::<$type>(), &ours), "struct {}", $name);
    }};
}

/// A struct of so many words of 64 bits has these fields at these bytes: as its `decode` takes the words apart.
fn words(structs: &Structs, name: &str, words: usize, expected: &[(&str, usize)]) {
    let (size, fields) = structs.get(name).unwrap_or_else(|| panic!("no struct {name}"));
    assert_eq!(*size, words * 8, "struct {name}");
    for (field, byte) in expected {
        assert_eq!(fields.get(*field), Some(byte), "struct {name}: {field}");
    }
}

#[test]
fn sched_records_are_those_of_the_object() {
    let structs = structs_of(objects::SCHED);
    same!(structs, "edge_sum", record::EdgeSum: integral_ns, carry, level_start);
    same!(structs, "clock_control", record::ClockControl: epoch_offset_ns);
    same!(structs, "price", record::Price: ns, runs, asked, depth, since_ns);
    same!(structs, "task_record", sched::TaskRecord: window, edges, uncharged_ns, wait_max_ns, waiting_max,
        blocked_max, switches, reserved, wait_hist);
    same!(structs, "culprit", sched::Culprit: ns, over_ns, tgid, slot, comm);
    same!(structs, "machine_record", sched::MachineRecord: window, edges, uncharged_ns, stolen_ns, switches,
        missed, cpu, io);
    same!(structs, "cpu_state", sched::CpuState: sequence, since_ns, steal_ns, charged_ns, slot, tgid, running,
        iowait, pid, untracked, window, window_start_ns, clock_offset_ns, clock_checked_ns);
    same!(structs, "blocked_now", sched::BlockedNow: since_ns, slot, tgid, comm);
    same!(structs, "stopped_record", sched::StoppedRecord: window, edges, stopped_max, reserved);
    same!(structs, "stopped_process", sched::StoppedProcess: process, stopped, reserved);
    same!(structs, "slot_state", sched::SlotState: cgroup_id, removed, overflows, waiting, blocked, reserved);
}

#[test]
fn block_records_are_those_of_the_object() {
    let structs = structs_of(objects::BLOCK);
    same!(structs, "device_record", block::DeviceRecord: window, edges, bytes, latency_ns, latency_max_ns,
        in_flight_max, issued, completed, flushes);
    same!(structs, "io_record", block::IoRecord: window, edges, bytes, requests, flushes);
    same!(structs, "submitter", block::Submitter: bytes, over_bytes, tgid, slot, comm);
    same!(structs, "submitters_record", block::SubmittersRecord: window, edges, submitters);
    same!(structs, "device_state", block::DeviceState: device, in_flight);
    same!(structs, "block_losses", block::BlockLosses: untracked, stale);
}

#[test]
fn memory_records_are_those_of_the_object() {
    let structs = structs_of(objects::MEMORY);
    same!(structs, "memory_record", memory::MemoryRecord: window, edges, pause_ns);
}

#[test]
fn samples_of_stacks_are_those_of_the_object() {
    let structs = structs_of(objects::STACKS);
    same!(structs, "stack_sample", stacks::StackSample: sequence, mono_ns, cgroup_id, tgid, tid, comm, frames, copied,
        calls);
    same!(structs, "stack_copy", stacks::StackCopy: registers, stack);
    same!(structs, "waiting_thread", stacks::WaitingThread: tgid, tid, registers);
}

#[test]
fn socket_records_are_those_of_the_object() {
    let structs = structs_of(objects::NET);
    same!(structs, "listener_record", net::ListenerRecord: window, edges, wait_max_ns, response_ns,
        response_max_ns, bytes_in, bytes_out, pieces_in, pieces_read, pieces_out, unanswered_max, multiplexed_max, arrivals, drops, drops_final_ack, drops_cookie, drops_repeated, drops_slow, syn_ack_retransmits, received, answered, aborted,
        depth_max, in_flight_max, unread_max, busy_max, shared_max, open_max, limit, late, very_late, very_long_retried, very_long_queued, very_long_unread,
        very_long_inside, response_hist);
    same!(structs, "edge_record", net::EdgeRecord: window, edges, response_ns, response_max_ns,
        first_try_unix_ns, bytes_in, bytes_out, pieces_in, pieces_out, unanswered_max, multiplexed_max, started, answered, aborted, connects, established, in_flight_max, open_max,
        syn_retransmits, data_retransmits, reserved, response_hist);
}

#[test]
fn no_object_carries_debugging_sections() {
    let all = [objects::SCHED, objects::BLOCK, objects::MEMORY, objects::NET].map(|object| (object, 520_000));
    for (object, most) in all.into_iter().chain([(objects::NET_STREAMS, 600_000)]) {
        assert!(object.len() < most, "BTF stays, DWARF goes: {} bytes", object.len());
        let text = String::from_utf8_lossy(object);
        assert!(text.contains(".BTF.ext") && !text.contains(".debug_info"));
    }
}

#[test]
fn time_in_state_lies_where_user_space_reads_it() {
    let structs = structs_of(objects::NET);
    words(&structs, "listener_level", net::ListenerLevel::WORDS, &[("turns", 0), ("changed_ns", 6 * 8)]);
    words(&structs, "state_cell", 2, &[("time_ns", 0), ("answered", 8)]);
    words(&structs, "listener_states", net::STATES_WORDS, &[]);
}

#[test]
fn names_and_tables_lie_where_user_space_reads_their_words() {
    let structs = structs_of(objects::NET);
    same!(structs, "listener_key", net::ListenerAddress: netns, port, reserved, address);
    same!(structs, "edge_key", net::EdgeAddress: cgroup, netns, port, reserved, address);
    let is = |name, size, expected: &[(&str, usize)]| words(&structs, name, size, expected);
    let workers_seen = net::ListenerLevel::workers_seen_at(0) * 8;
    let of_level =
        [("levels", 8), ("multiplexed", 24), ("limit", 28), ("sockets", 32), ("workers_seen", workers_seen)];
    is("listener_level", net::ListenerLevel::WORDS, &of_level);
    is("edge_level", net::EdgeLevel::WORDS, &[("levels", 0), ("multiplexed", 12)]);
    let of_name = [("generation", 0), ("owner_cgroup", 8), ("owner_pid", 16), ("key", 24)];
    is("listener_name", net::ListenerName::WORDS, &of_name);
    is("edge_name", net::EdgeName::WORDS, &[("generation", 0), ("key", 8)]);
    is("unix_path", net::UnixPath::WORDS, &[("length", 0), ("bytes", 4)]);
    let of_worker = [
        ("key", 0),
        ("held", 8),
        ("connections", 12),
        ("read_ns", 16),
        ("loop_score", 24),
        ("connections_max", 28),
    ];
    is("worker", net::Worker::WORDS, &of_worker);
    same!(structs, "waiting_lookup", net::WaitingLookup: key, since_ns, pid, queries);
    is(
        "waiting_lookup",
        net::WaitingLookup::WORDS,
        &[("key", 0), ("since_ns", 32), ("pid", 40), ("queries", 44)],
    );
    same!(structs, "slow_turn", net::SlowTurn: cookie, established_ns, arrived_ns, began_ns, ended_ns, slot, began_by, ended_by, of, aborted, waited_as, shared);
    is("lookup_counts", net::LOOKUP_COUNTS_WORDS, &[("asked", 0), ("answered", 8)]);
    let losses = [
        "listeners_folded",
        "edges_folded",
        "listen_sockets_untracked",
        "drop_events",
        "workers_untracked",
        "connections_untracked",
        "connections_unknown",
        "ticks",
        "unix_refusals_unnamed",
        "lookups_untracked",
        "slow_turns",
        "connections_unfollowed",
        "streams_untracked",
    ];
    let in_order: Vec<(&str, usize)> = losses.iter().enumerate().map(|(i, name)| (*name, 8 * i)).collect();
    is("net_losses", net::NetLosses::WORDS, &in_order);
}
