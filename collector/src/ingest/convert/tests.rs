//! Table tests of the conversion.

use super::*;
use std::sync::Arc;
use tailwater_model::address::{is_unix, of_path};
use tailwater_model::window::{ConnectionEnd, KernelCounter, Meeting};
use tailwater_proto::columnar::TableBuilder;
use tailwater_proto::v1::Metric;

fn hello(instance: &str) -> Body {
    let covered = [Signal::Cpu, Signal::BlockIo, Signal::Requests];
    Body::Hello(v1::Hello {
        host: "web-1".into(),
        agent_instance: instance.into(),
        cpus: 2,
        addresses: vec![vec![10, 0, 0, 1]],
        coverage: covered
            .iter()
            .map(|s| v1::SignalCoverage { signal: *s as i32, covered: true, ..Default::default() })
            .collect(),
        ..v1::Hello::default()
    })
}

fn batch(entity: u32, received: u64) -> WindowBatch {
    let mut table = TableBuilder::new(EntityKind::Listener, 2);
    table.set(entity, 1, Metric::RequestsReceived, 0, received);
    WindowBatch {
        sequence: 1,
        first_window: 1000,
        window_count: 2,
        tables: vec![table.build()],
        ..Default::default()
    }
}

fn windows(inputs: Vec<Input>) -> Vec<HostWindow> {
    inputs
        .into_iter()
        .filter_map(|i| if let Input::Window(w) = i { Arc::into_inner(w) } else { None })
        .collect()
}

#[test]
fn a_batch_becomes_its_windows_and_missing_tables_stay_missing() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let got = windows(c.message(&Body::Batch(batch(9, 5)), 1_000_000, 2_000_000).unwrap());
    assert_eq!(got.iter().map(|w| w.index.0).collect::<Vec<_>>(), [1000, 1001]);
    let of = |w: &HostWindow| w.listeners.values().map(|l| l.received).collect::<Vec<_>>();
    assert_eq!((of(&got[0]), of(&got[1])), (vec![0], vec![5]));
    assert_eq!(got[0].cpu, None, "no host table is not an idle host");
    assert_eq!(
        (got[0].phase_ns, got[0].clock_error_ns),
        (1_000_000, 2_000_000),
        "what the shift leaves is the phase"
    );
    assert_eq!(got[0].start_unix_ns(), 1000 * 50_000_000 + 1_000_000);
}

#[test]
fn a_batch_that_found_no_room_and_comes_again_has_the_same_packets_and_so_have_those_after_it() {
    let drops = |sequence: u64, final_ack: u64, counted: u64| {
        let mut table = TableBuilder::new(EntityKind::Listener, 2);
        table.set(9, 1, Metric::ListenDropsFinalAck, 0, final_ack);
        table.set(9, 1, Metric::ListenDrops, 0, counted);
        let (tables, first_window) = (vec![table.build()], 1000 + 2 * sequence);
        Body::Batch(WindowBatch { sequence, first_window, tables, ..batch(9, 0) })
    };
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let mut dropped = |body: Body| -> Vec<u64> {
        let windows = windows(c.message(&body, 0, 0).unwrap());
        windows.iter().flat_map(|w| w.listeners.values().map(|l| l.drops)).collect()
    };
    // The socket's counter shows two dropped last ACKs, each of them twice, in the batch after them.
    assert_eq!(dropped(drops(1, 2, 0)), [0, 0]);
    assert_eq!(dropped(drops(1, 2, 0)), [0, 0]);
    assert_eq!(dropped(drops(2, 0, 7)), [0, 5]);
    assert_eq!(dropped(drops(2, 0, 7)), [0, 5]);
    assert_eq!(dropped(drops(3, 0, 1)), [0, 1], "nothing is owed any more");
}

#[test]
fn response_times_are_kept_by_bucket_under_the_ids_of_their_listeners_and_only_where_something_was_counted() {
    let mut c = Converter::new("web-1");
    let Body::Hello(mut hello) = hello("a") else { panic!("it is one") };
    hello.response_buckets = 24;
    c.message(&Body::Hello(hello), 0, 0).unwrap();
    let mut table = TableBuilder::new(EntityKind::Listener, 2);
    // The first bucket is always there; of the last known one and one of a later agent, both are as open.
    for (entity, window, bucket, answers) in
        [(9, 1, 0, 0), (9, 1, 12, 4), (9, 0, 19, 1), (9, 1, 23, 2), (9, 1, 31, 3), (4, 1, 12, 7)]
    {
        table.set(entity, window, Metric::ResponseTimeHist, bucket, answers);
        table.set(entity, window, Metric::RequestsAnswered, 0, 20);
    }
    let batch = WindowBatch { tables: vec![table.build()], ..batch(9, 5) };
    let got = windows(c.message(&Body::Batch(batch), 0, 0).unwrap());
    let ids: Vec<EntityId> = got[1].listeners.keys().copied().collect();
    let [four, nine] = ids.as_slice() else { panic!("{ids:?}") };
    let of = |n: usize, id: EntityId| {
        let counts = got[n].responses.of(id);
        counts.iter().map(|c| (c.bucket, c.answers)).collect::<Vec<_>>()
    };
    assert_eq!(of(1, *nine), [(12, 4), (23, 5)]);
    assert_eq!((of(0, *nine), of(0, *four)), (vec![(19, 1)], vec![]));
    assert_eq!(of(1, *four), [(12, 7)]);
    assert_eq!(got[1].responses.bytes(), 3 * 12, "and no room beside them");
    assert_eq!(got[1].listeners[nine].answered, 20, "the other columns are as they were");
    let none = windows(c.message(&Body::Batch(self::batch(9, 5)), 0, 0).unwrap());
    assert_eq!(none[1].responses.bytes(), 0);
}

#[test]
fn the_last_bucket_of_an_agent_of_before_is_no_bucket_of_today() {
    let mut c = Converter::new("web-1");
    let Body::Hello(mut told) = hello("a") else { panic!("it is one") };
    (told.late_ns, told.very_late_ns) = (500_000_000, 3_000_000_001);
    c.message(&Body::Hello(told.clone()), 0, 0).unwrap();
    let mut table = TableBuilder::new(EntityKind::Listener, 2);
    for (window, bucket, answers) in [(1, 18, 4), (1, 19, 2)] {
        table.set(9, window, Metric::ResponseTimeHist, bucket, answers);
        table.set(9, window, Metric::RequestsAnswered, 0, 6);
        table.set(9, window, Metric::AnsweredLate, 0, 3);
        table.set(9, window, Metric::AnsweredVeryLate, 0, 1);
    }
    let batch = Body::Batch(WindowBatch { tables: vec![table.build()], ..batch(9, 5) });
    let got = windows(c.message(&batch, 0, 0).unwrap());
    let counted: Vec<_> = got[1].responses.all().iter().map(|c| (c.bucket, c.answers)).collect();
    assert_eq!(counted, [(18, 4), (24, 2)], "524 ms or more, and not 524 ms to 1 s");
    let listener = got[1].listeners.values().next().unwrap();
    let longer = [500_000_000, 400_000_000, 3_000_000_000].map(|ns| got[1].longer_than(listener, ns));
    assert_eq!(
        (got[1].late_ms, longer),
        ([0, 0], [None; 3]),
        "its late ones began later: that is something else"
    );
    told.response_buckets = BUCKETS as u32;
    c.message(&Body::Hello(told), 0, 0).unwrap();
    let got = windows(c.message(&batch, 0, 0).unwrap());
    let listener = got[1].listeners.values().next().unwrap();
    let longer = [500_000_000, 400_000_000, 3_000_000_000].map(|ns| got[1].longer_than(listener, ns));
    assert_eq!((got[1].late_ms, longer), ([500, 0], [Some(3), None, None]), "by its own threshold alone");
}

#[test]
fn time_in_state_follows_its_windows_under_the_ids_that_they_use() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let states = v1::InFlightStates {
        window_offset: 1,
        windows: 20,
        listeners: vec![v1::ListenerStates {
            listener: 9,
            bins: vec![3],
            time_ns: vec![70],
            answered: vec![2],
        }],
    };
    let with = |states: &v1::InFlightStates| {
        Body::Batch(WindowBatch { in_flight_states: vec![states.clone()], ..batch(9, 5) })
    };
    // By a clock that is 3 windows behind.
    let got = c.message(&with(&states), 150_000_000, 0).unwrap();
    let [.., Input::Window(window), Input::States(told)] = got.as_slice() else { panic!("{got:?}") };
    assert_eq!((told.host.as_str(), told.last, told.windows), ("web-1", window.index, 20));
    assert_eq!(told.listeners[0].listener, *window.listeners.keys().next().unwrap());
    let [cell] = told.listeners[0].cells.as_slice() else { panic!("{told:?}") };
    assert_eq!((cell.bin, cell.time_ns, cell.answered), (3, 70, 2));

    let wrong = v1::InFlightStates { window_offset: 2, ..states };
    let refused = c.message(&with(&wrong), 150_000_000, 0).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string().as_str()),
        ("undecodable", "time in state in window 2 of 2")
    );
}

#[test]
fn ends_of_connections_come_with_their_window_under_the_ids_that_it_uses() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let end = v1::meeting::End::Listener(9);
    let meeting = v1::Meeting { window_offset: 1, pair: 5, end: Some(end) };
    let with = |meeting| Body::Batch(WindowBatch { meetings: vec![meeting], ..batch(9, 5) });
    let got = windows(c.message(&with(meeting), 0, 0).unwrap());
    let listener = *got[1].listeners.keys().next().unwrap();
    assert_eq!(got[1].meetings, [Meeting { pair: 5, end: ConnectionEnd::Accepted(listener) }]);
    assert!(got[0].meetings.is_empty());
    let refused = c.message(&with(v1::Meeting { window_offset: 2, ..meeting }), 0, 0).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string().as_str()),
        ("undecodable", "an end of a connection in window 2 of 2")
    );
}

#[test]
fn counts_of_the_kernel_come_with_the_window_that_tells_them() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let counter = v1::KernelCounter::ConntrackDropped.into();
    let count = v1::KernelCount { window_offset: 1, windows_ago: 1, windows: 20, counter, count: 3 };
    let with = |count| Body::Batch(WindowBatch { kernel_counts: vec![count], ..batch(9, 5) });
    let got = windows(c.message(&with(count), 0, 0).unwrap());
    let [told] = got[1].kernel_counts.as_slice() else { panic!("{got:?}") };
    assert_eq!((told.counter, told.count), (KernelCounter::ConntrackDropped, 3));
    let last = got[1].index.0 - 1;
    assert_eq!(told.span(got[1].index), (last - 19, last));
    assert!(got[0].kernel_counts.is_empty());
    let refused = c.message(&with(v1::KernelCount { window_offset: 2, ..count }), 0, 0).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string().as_str()),
        ("undecodable", "a count of the kernel in window 2 of 2")
    );
}

#[test]
fn shares_of_a_cpu_are_of_the_window_in_which_they_were_looked_at() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let share = v1::CpuShare { workload: 7, threads: 1, ran_ns: 3, ..v1::CpuShare::default() };
    let shares = v1::CpuShares {
        window_offset: 1,
        workload: 7,
        windows_ago: 4,
        span_ns: 1_000_000_000,
        neighbours: vec![share],
    };
    let with = |shares: v1::CpuShares| Body::Batch(WindowBatch { cpu_shares: vec![shares], ..batch(9, 5) });
    // By a clock that is 3 windows behind.
    let got = c.message(&with(shares.clone()), 150_000_000, 0).unwrap();
    let [.., Input::Window(window), Input::Shares(told)] = got.as_slice() else { panic!("{got:?}") };
    assert_eq!((told.host.as_str(), told.last.0), ("web-1", window.index.0 - 4));
    assert_eq!((told.neighbours.len(), told.neighbours[0].workload), (1, told.workload));
    let wrong = v1::CpuShares { window_offset: 2, ..shares };
    let refused = c.message(&with(wrong), 150_000_000, 0).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string().as_str()),
        ("undecodable", "shares of a CPU in window 2 of 2")
    );
}

#[test]
fn a_restarted_agent_gets_fresh_ids_and_a_reconnected_one_keeps_them() {
    let mut c = Converter::new("web-1");
    let mut id = |instance: &str| {
        c.message(&hello(instance), 0, 0).unwrap();
        let got = windows(c.message(&Body::Batch(batch(9, 5)), 0, 0).unwrap());
        *got[1].listeners.keys().next().unwrap()
    };
    let first = id("a");
    assert_eq!(id("a"), first);
    assert_ne!(id("b"), first);
}

#[test]
fn windows_shift_by_whole_windows_and_do_not_flap() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let mut first = |offset_ms: i64| {
        windows(c.message(&Body::Batch(batch(9, 5)), offset_ms * 1_000_000, 0).unwrap())[0].index.0
    };
    assert_eq!(first(24), 1000);
    assert_eq!(first(26), 1001);
    assert_eq!(first(24), 1001, "stays until the offset is clearly elsewhere");
    assert_eq!(first(10), 1000);
    assert_eq!(first(3_600_000), 73_000);
    assert_eq!(first(-3_600_000), 0, "before 1970 there is nothing");
}

#[test]
fn coverage_that_goes_within_the_stream_is_told_before_the_windows() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let mut without = batch(9, 5);
    without.uncovered = vec![Signal::BlockIo as i32];
    let told = |inputs: &[Input]| match inputs.first() {
        Some(Input::Host(info)) => Some(info.coverage.block_io),
        _ => None,
    };
    let uncovered = |inputs: &[Input]| match inputs.last() {
        Some(Input::Window(w)) => w.uncovered.names().any(|name| name == "block_io"),
        other => panic!("{other:?}"),
    };
    assert!(!uncovered(&c.message(&Body::Batch(batch(9, 5)), 0, 0).unwrap()));
    let inputs = c.message(&Body::Batch(without.clone()), 0, 0).unwrap();
    assert_eq!(told(&inputs), Some(false));
    assert!(uncovered(&inputs), "each window says so itself");
    assert_eq!(told(&c.message(&Body::Batch(without), 0, 0).unwrap()), None, "told once");
    assert_eq!(told(&c.message(&Body::Batch(batch(9, 5)), 0, 0).unwrap()), Some(true));
}

#[test]
fn what_does_not_decode_says_why() {
    let mut c = Converter::new("web-1");
    let mut say = |edit: fn(&mut WindowBatch)| {
        let mut b = batch(9, 5);
        edit(&mut b);
        c.message(&Body::Batch(b), 0, 0).unwrap_err().to_string()
    };
    assert_eq!(say(|b| b.window_count = 0), "0 windows in one batch: it must be 1 to 64");
    assert!(say(|b| b.window_count = 3).starts_with("table of kind 3: column 80[0]: ends after"));
    assert!(say(|b| b.tables[0].columns[0].values = vec![0xff; 11]).contains("malformed at byte 0"));
    assert!(say(|b| b.tables.push(b.tables[0].clone())).contains("two tables of kind 3"));
    let mut entities = v1::Entities::default();
    entities.listeners.push(v1::Listener { id: 1, address: vec![1, 2, 3], ..Default::default() });
    let bad = c.message(&Body::Entities(entities), 0, 0).unwrap_err().to_string();
    assert_eq!(bad, "Listener.address: an address of 3 bytes; it must be 4 or 16");
}

#[test]
fn names_and_values_of_one_entity_meet_under_one_id_in_either_order() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let got = windows(c.message(&Body::Batch(batch(9, 5)), 0, 0).unwrap());
    let mut entities = v1::Entities::default();
    entities.workloads.push(v1::Workload { id: 4, name: "apache2.service".into(), ..Default::default() });
    entities.listeners.push(v1::Listener {
        id: 9,
        workload: 4,
        address: vec![0; 4],
        port: 80,
        pid: 4242,
        pool: Some(v1::Pool {
            size: 150,
            set_by: "x".repeat(5000),
            open_files: Some(1024),
            processes: Some(0),
            held_by_connection: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    });
    let named = c.message(&Body::Entities(entities), 0, 0).unwrap();
    let [Input::Entities { workloads, listeners, .. }] = named.as_slice() else { panic!("{named:?}") };
    assert_eq!(got[1].listeners.keys().next(), Some(&listeners[0].id));
    assert_eq!(listeners[0].workload, workloads[0].id);
    assert_eq!(listeners[0].pid, 4242);
    assert_ne!(listeners[0].workload, 0);
    let pool = listeners[0].pool.as_ref().unwrap();
    assert_eq!((pool.size, pool.set_by.len()), (150, 1000), "a place has a bound");
    assert_eq!((pool.open_files, pool.processes, pool.memory_limit_bytes), (Some(1024), None, None));
    assert_eq!(pool.held_by_connection, Some(true));
}

#[test]
fn a_unix_socket_is_called_by_its_path_at_both_ends() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let place = of_path("/run/php.sock");
    let IpAddr::V6(v6) = place else { panic!("{place}") };
    let mut entities = v1::Entities::default();
    let path = format!("/run/\n{}", "x".repeat(500));
    entities.listeners.push(v1::Listener { id: 9, address: v6.octets().into(), path, ..Default::default() });
    let edge = v1::Edge { id: 3, remote_address: v6.octets().into(), ..Default::default() };
    entities.edges.push(v1::Edge { path: "/run/php.sock".into(), ..edge.clone() });
    entities.edges.push(v1::Edge { id: 4, ..edge });
    let named = c.message(&Body::Entities(entities), 0, 0).unwrap();
    let [Input::Entities { listeners, edges, .. }] = named.as_slice() else { panic!("{named:?}") };
    assert_eq!((listeners[0].address, listeners[0].port), (place, 0));
    assert_eq!(listeners[0].socket(), format!("/run/{}", "x".repeat(103)), "text, of a bounded length");
    assert_eq!(edges[0].socket(), "/run/php.sock");
    assert!(is_unix(edges[1].remote_address) && edges[1].path.is_none(), "an agent that knew no path");
}

/// The model knows no wire, so it says once more which addresses stand for Unix sockets.
#[test]
fn the_model_takes_for_unix_sockets_what_the_wire_does() {
    let edges = ["ff::", "100::", "100::ffff:ffff:ffff:ffff", "100:0:0:1::", "100:0:1::", "100:1::", "101::"];
    let others = ["::", "::1", "::ffff:1.0.0.0", "fe80::1"];
    let told = |text: &str| {
        let address: std::net::Ipv6Addr = text.parse().unwrap();
        assert_eq!(is_unix(address.into()), tailwater_proto::is_unix(address), "{text}");
        is_unix(address.into())
    };
    assert_eq!(edges.iter().chain(&others).filter(|text| told(text)).count(), 2);
    let IpAddr::V6(made) = of_path("/run/php.sock") else { panic!("no IPv6 address") };
    assert!(tailwater_proto::is_unix(made), "{made}");
}

#[test]
fn what_is_gone_is_told_by_our_ids_and_leaves_room_for_others() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let seen = |c: &mut Converter, entity: u32| {
        let got = windows(c.message(&Body::Batch(batch(entity, 5)), 0, 0).unwrap());
        got[1].listeners.keys().next().copied()
    };
    let first = seen(&mut c, 9).unwrap();
    let gone = |ids: Vec<u32>| Body::Entities(v1::Entities { gone_listeners: ids, ..Default::default() });
    let told = c.message(&gone(vec![9, 77]), 0, 0).unwrap();
    let [Input::Entities { .. }, Input::Gone { host, gone: ours }] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!((host.as_str(), &ours.listeners), ("web-1", &vec![first]));
    // Of a message that found no room the analysis heard nothing, and the agent sends it again.
    assert_eq!(c.message(&gone(vec![77, 9]), 0, 0).unwrap(), told, "it is told again");
    let second = seen(&mut c, 9).unwrap();
    assert_ne!(second, first);
    let told = c.message(&gone(vec![9]), 0, 0).unwrap();
    let [_, Input::Gone { gone: ours, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(ours.listeners, [second], "what has the number now, not what had it before");
    let third = seen(&mut c, 9).unwrap();
    let told = c.message(&hello("b"), 0, 0).unwrap();
    let [Input::Gone { gone: ours, .. }, Input::Host(_)] = told.as_slice() else { panic!("{told:?}") };
    assert!(ours.listeners.contains(&third), "what the run before had is gone with it: {ours:?}");
    assert_eq!(c.message(&gone(vec![9]), 0, 0).unwrap().len(), 1, "another run told no such thing");
    for id in 10..10 + ENTITIES_PER_HOST_MAX as u32 {
        seen(&mut c, id);
        c.message(&gone(vec![id]), 0, 0).unwrap();
    }
    assert_eq!(c.rows_refused(), 0);
}

#[test]
fn names_of_a_host_have_so_many_bytes_together() {
    let mut c = Converter::new("web-1");
    c.message(&hello("a"), 0, 0).unwrap();
    let mut named = |ids: std::ops::Range<u32>, gone: Vec<u32>| {
        let workload = |id| v1::Workload { id, cgroup: "x".repeat(4_096), ..v1::Workload::default() };
        let workloads = ids.map(workload).collect();
        let told = v1::Entities { workloads, gone_workloads: gone, ..v1::Entities::default() };
        let told = c.message(&Body::Entities(told), 0, 0).unwrap();
        let [Input::Entities { workloads, .. }, ..] = told.as_slice() else { panic!("{told:?}") };
        (workloads.len(), c.rows_refused())
    };
    let room = (NAMES_BYTES_MAX / 4_096) as u32;
    assert_eq!(named(1..room + 1, vec![]), (room as usize, 0));
    assert_eq!(named(1..room + 1, vec![]), (room as usize, 0), "the same again takes no more");
    assert_eq!(named(room + 1..room + 11, vec![]), (0, 10));
    assert_eq!(named(0..0, (1..6).collect()), (0, 10));
    assert_eq!(
        named(room + 1..room + 11, vec![]),
        (5, 15),
        "there is room for what took the place of what went"
    );
}

proptest::proptest! {
    #[test]
    fn no_message_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400), offset: i64, error: u64) {
        use prost::Message;
        if let Ok(v1::AgentMessage { body: Some(body) }) = v1::AgentMessage::decode(bytes.as_slice()) {
            let _ = Converter::new("x").message(&body, offset, error);
        }
        if let Ok(batch) = v1::WindowBatch::decode(bytes.as_slice()) {
            let _ = Converter::new("x").message(&Body::Batch(batch), offset, error);
        }
    }
}

#[test]
fn what_is_polled_is_said_of_the_host_and_of_each_window() {
    let mut c = Converter::new("web-1");
    let Body::Hello(mut hello) = hello("a") else { panic!("a hello") };
    hello.coverage.iter_mut().filter(|s| s.signal == Signal::Cpu as i32).for_each(|s| s.sampled = true);
    let told = c.message(&Body::Hello(hello), 0, 0).unwrap();
    let Some(Input::Host(info)) = told.first() else { panic!("{told:?}") };
    assert_eq!(info.coverage.sampled.names().collect::<Vec<_>>(), ["cpu"]);
    assert!(info.coverage.cpu, "covered all the same");
    let windows = windows(c.message(&Body::Batch(batch(9, 5)), 0, 0).unwrap());
    assert!(windows.iter().all(|w| w.sampled.has("cpu") && !w.sampled.has("block_io")));
}
