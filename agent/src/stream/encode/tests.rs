//! Windows that were made up as they are sent: which metrics there are, in which rows, and what is left out.

use super::*;
use crate::name::cgroup::Mounts;
use crate::window::{
    AcceptQueueSample, CgroupId, ConnectionSample, CpuShares, KernelCount, Meeting, MemorySample, Polled,
    ProcessShare, RESPONSE_BUCKETS, RequestSample, TaskSample, WindowIndex,
};
use std::collections::BTreeMap;
use tailwater_proto::columnar::decode_values;

const CPUS: u32 = 2;

struct World {
    folder: tempfile::TempDir,
    entities: Entities,
    encoder: Encoder,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    for path in ["lab/web", "lab/app/tomcat"] {
        std::fs::create_dir_all(folder.path().join(path)).unwrap();
    }
    std::fs::write(folder.path().join("lab/app/cpu.max"), "30000 100000\n").unwrap();
    let mounts = Mounts { unified: Some(folder.path().to_owned()), ..Mounts::default() };
    let entities = Entities::new(mounts, folder.path());
    World { folder, entities, encoder: Encoder::default() }
}

impl World {
    fn id(&self, path: &str) -> CgroupId {
        self.entities.tree().id(path).unwrap()
    }

    fn batch(&mut self, windows: &[Window], scope: Option<&str>) -> v1::WindowBatch {
        let host = HostView { cpus: CPUS, scope };
        self.encoder.batch(windows, &mut self.entities, host, &[])
    }
}

/// Values by metric and bucket, then entity and window.
type Decoded = BTreeMap<(Metric, u32), BTreeMap<(u32, usize), u64>>;

fn decode(batch: &v1::WindowBatch, kind: EntityKind) -> Decoded {
    let windows = batch.window_count as usize;
    let mut out = Decoded::new();
    for table in batch.tables.iter().filter(|t| t.kind() == kind) {
        for column in &table.columns {
            let values = decode_values(column, table.entities.len() * windows).unwrap();
            let cells = values
                .chunks(windows)
                .zip(&table.entities)
                .flat_map(|(row, id)| row.iter().enumerate().map(move |(w, v)| ((*id, w), *v)));
            out.insert((column.metric(), column.bucket), cells.collect());
        }
    }
    out
}

fn window(index: u64) -> Window {
    Window { index: WindowIndex(index), ..Window::default() }
}

fn busy(busy_ns: u64, wait_ns: u64, waiting_max: u32) -> TaskSample {
    TaskSample { busy_ns, wait_ns, waiting_max, ..TaskSample::default() }
}

fn listener(port: u16) -> ListenerKey {
    ListenerKey { netns: 5, address: Ipv6Addr::UNSPECIFIED, port, owner: CgroupId(0), pid: 0 }
}

#[test]
fn a_section_that_is_not_covered_has_no_metric_and_an_idle_entity_reads_zero() {
    let mut world = world();
    let (web, app) = (world.id("/lab/web"), world.id("/lab/app/tomcat"));
    let mut windows = [window(10), window(11)];
    windows[0].tasks = Some(vec![(web, busy(7, 0, 0)), (app, busy(9, 0, 0))]);
    windows[1].tasks = Some(vec![(app, busy(11, 0, 0))]);
    let batch = world.batch(&windows, None);
    assert_eq!((batch.first_window, batch.window_count), (10, 2));
    let workloads = decode(&batch, EntityKind::Workload);
    let expect = BTreeMap::from([((1, 0), 7), ((1, 1), 0), ((2, 0), 9), ((2, 1), 11)]);
    assert_eq!(workloads[&(Metric::CpuBusyNs, 0)], expect);
    assert!(!workloads.contains_key(&(Metric::IoBytes, 0)));
    assert!(!workloads.contains_key(&(Metric::CpuThrottledNs, 0)));
    assert_eq!(decode(&batch, EntityKind::Listener), Decoded::new());
    let capacity = &workloads[&(Metric::CpuCapacityNs, 0)];
    assert_eq!((capacity[&(1, 0)], capacity[&(2, 1)]), (100_000_000, 15_000_000));
}

#[test]
fn values_of_cgroups_that_wait_for_their_names_are_in_the_row_of_the_rest() {
    let mut world = world();
    let mut w = window(10);
    w.tasks = Some([1, 2].map(|n| (CgroupId(u64::MAX - n), busy(7, 0, 0))).to_vec());
    let batch = world.batch(&[w], None);
    let other = world.entities.workload(CgroupId::default());
    let workloads = decode(&batch, EntityKind::Workload);
    assert_eq!(workloads[&(Metric::CpuBusyNs, 0)], BTreeMap::from([((other, 0), 14)]));
}

#[test]
fn a_scope_under_a_quota_is_a_host_of_that_size() {
    let mut world = world();
    let (app, quota) = (world.id("/lab/app/tomcat"), world.id("/lab/app"));
    let mut w = window(3);
    w.machine_cpu = Some(MachineCpu { cpus: CPUS, busy_ns: 99, ..MachineCpu::default() });
    w.tasks = Some(vec![(app, busy(10_000_000, 120_000_000, 2)), (quota, busy(1, 0, 0))]);
    w.throttled = Some(vec![(quota, 40)]);
    let batch = world.batch(std::slice::from_ref(&w), Some("/lab/app"));
    let host: BTreeMap<Metric, u64> = decode(&batch, EntityKind::Host)
        .into_iter()
        .map(|((metric, _), cells)| (metric, cells[&(0, 0)]))
        .collect();
    assert_eq!(host[&Metric::CpuCapacityNs], 15_000_000);
    assert_eq!(host[&Metric::CpuBusyNs], 10_000_001, "the scope's, not the machine's");
    assert_eq!(host[&Metric::CpuIdleNs], 4_999_999);
    assert_eq!(host[&Metric::RunQueueWaitingMax], 3, "three waited on average");
    assert_eq!(host[&Metric::CpuThrottledNs], 40);
    assert!(!host.contains_key(&Metric::CpuStealNs), "the machine's steal is not the scope's");
    let workloads = decode(&batch, EntityKind::Workload);
    assert_eq!(workloads[&(Metric::CpuThrottledNs, 0)][&(1, 0)], 40, "by its parent's quota");

    let batch = world.batch(&[w], None);
    let host = decode(&batch, EntityKind::Host);
    assert_eq!(host[&(Metric::CpuBusyNs, 0)][&(0, 0)], 99);
    assert!(!host.contains_key(&(Metric::CpuThrottledNs, 0)));
}

#[test]
fn limits_are_held_while_nothing_tells_them() {
    let mut world = world();
    let queue = AcceptQueueSample { limit: 128, depth_max: 3, ..AcceptQueueSample::default() };
    let request = RequestSample { received: 1, ..RequestSample::default() };
    let mut windows = [window(1), window(2)];
    windows[0].accept_queues = Some(vec![(listener(80), queue)]);
    windows[1].accept_queues = Some(vec![]);
    for w in &mut windows {
        w.requests = Some(vec![(listener(80), request)]);
    }
    let listeners = decode(&world.batch(&windows, None), EntityKind::Listener);
    let row = |metric| -> Vec<u64> { listeners[&(metric, 0)].values().copied().collect() };
    assert_eq!(row(Metric::AcceptQueueLimit), [128, 128]);
    assert_eq!(row(Metric::AcceptQueueDepthMax), [3, 0]);
    assert_eq!(row(Metric::RequestsReceived), [1, 1]);
}

#[test]
fn histograms_send_the_buckets_in_use() {
    let mut world = world();
    let mut request = RequestSample::default();
    request.response_hist[10] = 4;
    request.response_hist[RESPONSE_BUCKETS - 1] = 2;
    let mut w = window(1);
    w.requests = Some(vec![(listener(80), request)]);
    let listeners = decode(&world.batch(&[w], None), EntityKind::Listener);
    let buckets: Vec<(u32, u64)> = listeners
        .iter()
        .filter(|((m, _), _)| *m == Metric::ResponseTimeHist)
        .map(|((_, bucket), cells)| (*bucket, cells[&(1, 0)]))
        .collect();
    assert_eq!(buckets, [(0, 0), (10, 4), (23, 2)]);
}

#[test]
fn a_covered_signal_without_a_section_is_told() {
    let mut world = world();
    let covered = |signal| Coverage {
        signal,
        covered: true,
        sampled: false,
        hook: String::new(),
        reason: String::new(),
    };
    let mut w = window(1);
    w.late = true;
    w.tasks = Some(vec![]);
    let host = HostView { cpus: CPUS, scope: None };
    let coverage = [SignalKind::Cpu, SignalKind::Throttling].map(covered);
    let batch = world.encoder.batch(&[w], &mut world.entities, host, &coverage);
    assert_eq!(batch.uncovered, [v1::Signal::Throttling as i32]);
    assert_eq!(batch.flags, [WindowFlag::Late as u32]);
    drop(world.folder);
}

#[test]
fn what_polling_cannot_tell_has_no_column() {
    let mut world = world();
    let mut w = window(1);
    let web = world.id("/lab/web");
    let edge = EdgeKey { workload: web, netns: 5, remote_address: Ipv6Addr::LOCALHOST, remote_port: 3306 };
    w.polled = Polled { tasks: true, memory: true, devices: true, accept_queues: true, blocked_io: false };
    w.tasks = Some(vec![(web, busy(7, 5, 1))]);
    w.memory = Some(vec![(web, MemorySample { reclaim_ns: 3, ..MemorySample::default() })]);
    let queue = AcceptQueueSample { depth_last: 2, limit: 128, drops: 4, ..AcceptQueueSample::default() };
    w.accept_queues = Some(vec![(listener(80), queue)]);
    w.connections = Some(vec![(edge, ConnectionSample { open: 9 })]);
    let batch = world.batch(&[w], None);
    let has = |kind, metric| decode(&batch, kind).keys().any(|(m, _)| *m == metric);
    for (kind, there, absent) in [
        (EntityKind::Workload, Metric::RunQueueWaitNs, Metric::RunQueueWaitMaxNs),
        (EntityKind::Workload, Metric::CpuBusyNs, Metric::BlockedIoNs),
        (EntityKind::Workload, Metric::ReclaimNs, Metric::SwapIns),
        (EntityKind::Workload, Metric::CpuCapacityNs, Metric::RunQueueWaitHist),
        (EntityKind::Listener, Metric::ListenDrops, Metric::AcceptQueueArrivals),
        (EntityKind::Listener, Metric::AcceptQueueLimit, Metric::WorkersBusyMax),
        (EntityKind::Edge, Metric::ConnectionsOpenLast, Metric::CallsStarted),
        (EntityKind::Host, Metric::RunQueueWaitNs, Metric::RunQueueSwitches),
    ] {
        assert!(has(kind, there), "{there:?}");
        assert!(!has(kind, absent), "{absent:?}");
    }
    let mut other = window(2);
    other.polled.tasks = true;
    assert_ne!(sections(&window(1)), sections(&other), "they are in no batch together");
    drop(world.folder);
}

#[test]
fn every_signal_has_a_number() {
    for SignalName(kind) in SignalName::all() {
        assert_eq!(signal_kind(signal(kind) as i32), Some(kind));
    }
    assert_eq!(signal_kind(0), None);
    assert_eq!(signal_kind(99), None);
}

#[test]
fn addresses_have_four_or_sixteen_bytes() {
    assert_eq!(address("::ffff:10.0.0.1".parse().unwrap()), [10, 0, 0, 1]);
    assert_eq!(address(Ipv6Addr::UNSPECIFIED), [0; 16]);
}

#[test]
fn one_end_of_a_connection_is_told_by_the_listener_or_edge_that_it_is_of() {
    let mut world = world();
    let (app, web) = (world.id("/lab/app"), world.id("/lab/web"));
    let address = Ipv6Addr::LOCALHOST;
    let listener = ListenerKey { netns: 1, address, port: 80, owner: app, pid: 0 };
    let edge = EdgeKey { workload: web, netns: 1, remote_address: address, remote_port: 80 };
    let ends = [ConnectionEnd::Accepted(listener), ConnectionEnd::Connected(edge)];
    let meetings = ends.map(|end| Meeting { pair: 1 << 46, end }).to_vec();
    let windows = [window(1), Window { meetings, ..window(2) }];
    let batch = world.batch(&windows, None);
    let (listener, edge) = (world.entities.listener(listener), world.entities.edge(edge));
    let told = |end| v1::Meeting { window_offset: 1, pair: 1 << 46, end: Some(end) };
    let expected = [v1::meeting::End::Listener(listener), v1::meeting::End::Edge(edge)].map(told);
    assert_eq!(batch.meetings, expected);
}

#[test]
fn whose_the_cpu_of_a_group_was_is_told_by_server_and_else_by_command() {
    let mut world = world();
    let (app, tomcat, web) = (world.id("/lab/app"), world.id("/lab/app/tomcat"), world.id("/lab/web"));
    let process = |cgroup, pid, comm: &str, ran_ns| ProcessShare {
        cgroup,
        pid,
        comm: comm.into(),
        ran_ns,
        waited_ns: 1,
        threads: 2,
    };
    let shares = CpuShares {
        cgroup: app,
        windows_ago: 3,
        span_ns: 100,
        processes: vec![
            process(app, 1, "backup", 90),
            process(app, 0, "~other", 5),
            process(tomcat, 2, "java", 20),
            process(tomcat, 3, "sh", 30),
            process(web, 4, "apache2", 60),
        ],
    };
    let windows = [window(1), Window { cpu_shares: vec![shares], ..window(2) }];
    let batch = world.batch(&windows, None);
    let [told] = batch.cpu_shares.as_slice() else { panic!("{:?}", batch.cpu_shares) };
    let [app, tomcat, web] = [app, tomcat, web].map(|cgroup| world.entities.workload(cgroup));
    assert_eq!((told.window_offset, told.workload, told.windows_ago, told.span_ns), (1, app, 3, 100));
    let of = |n: &v1::CpuShare| (n.workload, n.comm.clone(), n.ran_ns, n.waited_ns, n.threads);
    let neighbours: Vec<_> = told.neighbours.iter().map(of).collect();
    // A whole cgroup is one, whatever runs in it; of the group's own it is not known whose they are.
    assert_eq!(
        neighbours,
        [
            (web, String::new(), 60, 1, 2),
            (tomcat, String::new(), 50, 2, 4),
            (app, "backup".to_owned(), 90, 1, 2),
            (app, "~other".to_owned(), 5, 1, 2),
        ]
    );
}

#[test]
fn what_the_kernel_counted_is_told_by_its_name_with_its_window() {
    let mut world = world();
    let count = |counter, count| KernelCount { counter, count, windows: 20, windows_ago: 1 };
    let counts = KernelCounter::ALL.into_iter().zip(5..).map(|(counter, n)| count(counter, n)).collect();
    let windows = [window(1), Window { kernel_counts: counts, ..window(2) }];
    let told = world.batch(&windows, None).kernel_counts;
    let named: Vec<(String, u64)> =
        told.iter().map(|of| (of.counter().as_str_name().to_owned(), of.count)).collect();
    // As the model's names follow the wire's, so do these.
    let snake = |counter: KernelCounter| {
        let mut name = "KERNEL_COUNTER".to_owned();
        for letter in format!("{counter:?}").chars() {
            if letter.is_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        name
    };
    let expected: Vec<(String, u64)> = KernelCounter::ALL.into_iter().map(snake).zip(5..).collect();
    assert_eq!(named, expected);
    assert!(told.iter().all(|of| (of.window_offset, of.windows, of.windows_ago) == (1, 20, 1)), "{told:?}");
}
