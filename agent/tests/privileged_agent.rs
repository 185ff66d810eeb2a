//! The whole agent as a process, beside a second one that is left alone: paused, squeezed or stopped, it must tell the same
//! windows. Root and kernel programs, for real.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests measure real time, and fail by panic"
)]

#[allow(unreachable_pub, reason = "a module of test binaries")]
#[path = "../../tests/src/disturbed.rs"]
mod disturbed;
mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Collector, Connection, First};
use tailwater_agent::attach::privilege::{KEPT, OWN_ID};
use tailwater_agent::name::cgroup::{CpuVersion, Mounts};
use tailwater_agent::sample::namespaces::processes;
use tailwater_proto::columnar::decode_values;
use tailwater_proto::v1::{self, EntityKind, Metric, agent_message::Body, collector_message::Body as Said};

const WELCOME: First = First::Welcome { last_sequence: 0 };

/// A cgroup in every hierarchy, removed with this value.
struct Cgroup(Vec<PathBuf>);

impl Cgroup {
    fn new(name: &str) -> Self {
        let mounts = Mounts::read().unwrap();
        let roots = [mounts.unified.clone(), mounts.cpu_v1.clone()];
        let folders: Vec<PathBuf> = roots.into_iter().flatten().map(|r| r.join(name)).collect();
        for folder in &folders {
            std::fs::create_dir_all(folder).unwrap();
        }
        Self(folders)
    }

    fn take(&self, pid: u32) {
        for folder in &self.0 {
            std::fs::write(folder.join("cgroup.procs"), pid.to_string()).unwrap();
        }
    }

    /// Of one CPU; `None` lifts it.
    fn quota(&self, name: &str, percent: Option<u32>) {
        let mounts = Mounts::read().unwrap();
        let (root, version) = mounts.cpu().unwrap();
        let quota = percent.map(|p| p * 1_000);
        let (file, text) = match version {
            CpuVersion::V1 => ("cpu.cfs_quota_us", quota.map_or("-1".to_owned(), |q| q.to_string())),
            CpuVersion::V2 => ("cpu.max", quota.map_or("max".to_owned(), |q| format!("{q} 100000"))),
        };
        std::fs::write(root.join(name).join(file), text).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.0 {
            let deadline = Instant::now() + Duration::from_secs(2);
            // A killed process leaves its cgroup a moment later.
            while std::fs::remove_dir(folder).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Processes that burn and sleep in a cgroup of their own, and an echo server with a client beside them.
struct Load {
    name: String,
    port: u16,
    burners: Vec<Child>,
    stop: Arc<AtomicBool>,
    client: Option<std::thread::JoinHandle<()>>,
    _cgroup: Cgroup,
}

impl Load {
    fn start(test: &str) -> Self {
        let name = format!("tailwater-test-{test}-{}", std::process::id());
        let cgroup = Cgroup::new(&name);
        let script = "while :; do i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done; sleep 0.021; done";
        let burners: Vec<Child> =
            (0..4).map(|_| Command::new("sh").args(["-c", script]).spawn().unwrap()).collect();
        for burner in &burners {
            cgroup.take(burner.id());
        }
        // A server's port, outside of the range that clients get theirs from.
        let listener = (20_000..21_000).find_map(|p| TcpListener::bind(("127.0.0.1", p)).ok()).unwrap();
        let port = listener.local_addr().unwrap().port();
        // Ends with the process: nobody connects any more when the client has stopped.
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let mut buffer = [0; 64];
                while matches!(connection.read(&mut buffer), Ok(n) if n > 0) {
                    if connection.write_all(b"answer").is_err() {
                        break;
                    }
                }
            }
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let client = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while !stopped.load(Ordering::Acquire) {
                let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for _ in 0..20 {
                    connection.write_all(b"request").unwrap();
                    assert!(connection.read(&mut buffer).unwrap() > 0);
                    std::thread::sleep(Duration::from_millis(3));
                }
            }
        });
        Self { name, port, burners, stop, client: Some(client), _cgroup: cgroup }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(client) = self.client.take() {
            let _ = client.join();
        }
        for burner in &mut self.burners {
            let _ = burner.kill();
            let _ = burner.wait();
        }
    }
}

/// Every value that a collector got, by window.
#[derive(Default)]
struct Told {
    /// Entity id of the load's workload and listener.
    workload: Option<u32>,
    listener: Option<u32>,
    windows: BTreeMap<u64, BTreeMap<Metric, u64>>,
    lost: u64,
    late: u64,
}

impl Told {
    fn take(&mut self, body: Body, load: (&str, u16)) -> Option<u64> {
        match body {
            Body::Entities(entities) => {
                let cgroup = format!("/{}", load.0);
                let workload = entities.workloads.iter().find(|w| w.cgroup == cgroup);
                self.workload = workload.map(|w| w.id).or(self.workload);
                let listener = entities.listeners.iter().find(|l| l.port == u32::from(load.1));
                self.listener = listener.map(|l| l.id).or(self.listener);
                None
            }
            Body::Batch(batch) => {
                self.lost += batch.windows_lost;
                self.late += batch.flags.iter().filter(|f| **f & 2 != 0).count() as u64;
                let count = batch.window_count as usize;
                for offset in 0..count {
                    let window = batch.first_window + offset as u64;
                    let before = self.windows.insert(window, self.values(&batch, offset, count));
                    assert!(before.is_none(), "window {window} told twice");
                }
                Some(batch.sequence)
            }
            _ => None,
        }
    }

    fn values(&self, batch: &v1::WindowBatch, offset: usize, count: usize) -> BTreeMap<Metric, u64> {
        let mut found = BTreeMap::new();
        for table in &batch.tables {
            let wanted = match table.kind() {
                EntityKind::Workload => self.workload,
                EntityKind::Listener => self.listener,
                _ => None,
            };
            let Some(row) = wanted.and_then(|id| table.entities.iter().position(|e| *e == id)) else {
                continue;
            };
            for column in table.columns.iter().filter(|c| c.bucket == 0) {
                let values = decode_values(column, table.entities.len() * count).unwrap();
                found.insert(column.metric(), values[row * count + offset]);
            }
        }
        found
    }

    fn first(&self) -> u64 {
        *self.windows.keys().next().unwrap()
    }

    fn last(&self) -> u64 {
        *self.windows.keys().next_back().unwrap()
    }

    fn get(&self, window: u64, metric: Metric) -> u64 {
        self.windows[&window].get(&metric).copied().unwrap_or(0)
    }
}

/// An agent process with a collector of its own in this one.
struct Agent {
    process: Child,
    told: Arc<Mutex<Told>>,
    _collector: Collector,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Agent {
    async fn start(load: &Load, host: &str) -> Self {
        let mut collector = Collector::plain("127.0.0.1:0", WELCOME).await;
        let process = Command::new(env!("CARGO_BIN_EXE_tailwater-agent"))
            .args(["run", "--collector", &format!("http://{}", collector.address), "--host", host])
            .args(["--log", "warn", "--cpu-budget-ratio", "1"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let connected = tokio::time::timeout(Duration::from_secs(60), collector.connections.recv()).await;
        let mut connection = connected.expect("the agent connects within a minute").unwrap();
        let told: Arc<Mutex<Told>> = Arc::default();
        let (kept, name, port) = (told.clone(), load.name.clone(), load.port);
        tokio::spawn(async move {
            while let Some(message) = Self::receive(&mut connection).await {
                let Some(body) = message.body else { continue };
                let sequence = kept.lock().unwrap().take(body, (&name, port));
                if let Some(sequence) = sequence {
                    connection.say(Said::Ack(v1::Ack { sequence })).await;
                }
            }
        });
        Self { process, told, _collector: collector }
    }

    async fn receive(connection: &mut Connection) -> Option<v1::AgentMessage> {
        connection.from_agent.recv().await
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes plain integers; the child is not reaped, so the pid is its own.
        assert_eq!(unsafe { libc::kill(self.process.id().cast_signed(), signal) }, 0);
    }

    /// Until it told a window at or after `window`, with the load in it.
    async fn told_up_to(&self, window: u64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            {
                let told = self.told.lock().unwrap();
                let ready = told.workload.is_some() && told.listener.is_some();
                if ready && !told.windows.is_empty() && told.last() >= window {
                    return;
                }
                assert!(
                    Instant::now() < deadline,
                    "no window {window} in 30 s; workload {:?}, listener {:?}",
                    told.workload,
                    told.listener
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn last(&self) -> u64 {
        self.told.lock().unwrap().last()
    }
}

/// Two agents that have both told the load for half a second, and the window from which to compare them.
async fn pair(load: &Load) -> (Agent, Agent, u64) {
    let disturbed = Agent::start(load, "disturbed").await;
    let beside = Agent::start(load, "beside").await;
    disturbed.told_up_to(0).await;
    beside.told_up_to(0).await;
    let from = disturbed.last().max(beside.last()) + 10;
    disturbed.told_up_to(from).await;
    beside.told_up_to(from).await;
    (disturbed, beside, from)
}

/// Within 1 %, or within what two clocks that are read apart from each other may differ at a boundary.
fn same(metric: Metric, a: u64, b: u64) -> bool {
    let slack = match metric {
        Metric::CpuBusyNs | Metric::RunQueueWaitNs => 100_000,
        Metric::RunQueueSwitches => 3,
        _ => 1,
    };
    a.abs_diff(b) <= slack.max(a.max(b) / 100)
}

/// Every window from `from` on, one by one, and the sums.
fn compare(disturbed: &Told, beside: &Told, from: u64) -> u64 {
    let to = disturbed.last().min(beside.last());
    assert!(to > from + 60, "enough to compare: {from} to {to}");
    let metrics = [
        Metric::CpuBusyNs,
        Metric::RunQueueWaitNs,
        Metric::RunQueueSwitches,
        Metric::RequestsReceived,
        Metric::RequestsAnswered,
    ];
    let mut compared = 0;
    for metric in metrics {
        let (mut sum_disturbed, mut sum_beside, mut unlike) = (0, 0, Vec::new());
        for window in from..=to {
            if !disturbed.windows.contains_key(&window) {
                continue;
            }
            let (a, b) = (disturbed.get(window, metric), beside.get(window, metric));
            (sum_disturbed, sum_beside) = (sum_disturbed + a, sum_beside + b);
            compared += 1;
            if !same(metric, a, b) {
                unlike.push((window, a, b));
            }
        }
        assert!(unlike.is_empty(), "{metric:?} differs in {} windows: {unlike:?}", unlike.len());
        assert!(sum_beside > 0, "{metric:?} saw no load");
        assert!(
            sum_disturbed.abs_diff(sum_beside) <= sum_beside / 100 + 1,
            "{metric:?}: {sum_disturbed} and {sum_beside}"
        );
    }
    compared
}

fn gaps(told: &Told, from: u64) -> u64 {
    (from..=told.last()).filter(|w| !told.windows.contains_key(w)).count() as u64
}

/// Agents on a machine that is taken away are late themselves, and more than was meant.
fn experiment<F: Future<Output = ()>>(name: &str, make: impl Fn() -> F) {
    let made = disturbed::experiment(name, || {
        tokio::runtime::Runtime::new()?.block_on(make());
        Ok(())
    });
    made.unwrap();
}

#[test]
fn privileged_a_pause_of_two_seconds_loses_no_window_and_changes_none() {
    experiment("a pause of two seconds", a_pause_of_two_seconds);
}

async fn a_pause_of_two_seconds() {
    let load = Load::start("pause");
    let (disturbed, beside, from) = pair(&load).await;
    let stopped = beside.last();
    disturbed.signal(libc::SIGSTOP);
    beside.told_up_to(stopped + 42).await;
    disturbed.signal(libc::SIGCONT);
    let end = beside.last() + 40;
    disturbed.told_up_to(end).await;
    beside.told_up_to(end).await;
    let (disturbed, beside) = (disturbed.told.lock().unwrap(), beside.told.lock().unwrap());
    assert_eq!((disturbed.lost, beside.lost), (0, 0));
    assert_eq!((gaps(&disturbed, disturbed.first()), gaps(&beside, beside.first())), (0, 0));
    assert!(disturbed.late >= 35, "the pause made {} windows late", disturbed.late);
    println!("{} values compared", compare(&disturbed, &beside, from));
}

#[test]
fn privileged_an_agent_squeezed_to_a_fiftieth_of_a_cpu_loses_no_window() {
    experiment("a fiftieth of a CPU", a_fiftieth_of_a_cpu);
}

async fn a_fiftieth_of_a_cpu() {
    let load = Load::start("squeeze");
    let name = format!("tailwater-test-squeezed-{}", std::process::id());
    // Before the agents: what is in it must be gone when it is removed.
    let squeezed = Cgroup::new(&name);
    let (disturbed, beside, from) = pair(&load).await;
    // Twice what it may use in the mean: with that alone a window that takes longer is never made up for, and after three seconds of it the ring ends.
    squeezed.quota(&name, Some(2));
    squeezed.take(disturbed.process.id());
    beside.told_up_to(from + 120).await;
    squeezed.quota(&name, None);
    let end = beside.last() + 20;
    disturbed.told_up_to(end).await;
    beside.told_up_to(end).await;
    let (disturbed, beside) = (disturbed.told.lock().unwrap(), beside.told.lock().unwrap());
    assert_eq!((disturbed.lost, beside.lost), (0, 0));
    assert_eq!(gaps(&disturbed, disturbed.first()), 0);
    println!("{} values compared, {} windows late", compare(&disturbed, &beside, from), disturbed.late);
}

#[tokio::test]
async fn privileged_an_agent_that_root_starts_goes_on_as_a_user_of_its_own() {
    let load = Load::start("user");
    let agent = Agent::start(&load, "user").await;
    // All that it measures is told by that user.
    agent.told_up_to(0).await;
    let field_of = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<String>>()
    };
    let parent = [agent.process.id().to_string()];
    let is_helper = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|l| l.starts_with("PPid:")) && field_of(&status, "PPid") == parent
    };
    let helpers: Vec<u32> = processes().filter(is_helper).collect();
    let [helper] = helpers[..] else { panic!("one process walks namespaces, not {helpers:?}") };
    let of = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let (mut threads, mut walkers) = (0, 0);
    for thread in of(agent.process.id()).chain(of(helper)) {
        // One that ends meanwhile has nothing any more.
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let field = |name: &str| field_of(&status, name);
        let own = [OWN_ID.to_string(), OWN_ID.to_string(), OWN_ID.to_string(), OWN_ID.to_string()];
        assert_eq!((field("Uid"), field("Gid")), (own.clone().into(), own.into()), "{status}");
        assert!(
            field("Groups").is_empty() && field("NoNewPrivs") == ["1"] && field("Seccomp") == ["2"],
            "{status}"
        );
        let kept = KEPT.iter().map(|(capability, _)| capability.bitmask()).sum::<u64>();
        let walker = caps::Capability::CAP_SYS_ADMIN.bitmask();
        let walks = field("Tgid") == [helper.to_string()];
        for set in ["CapEff", "CapPrm"] {
            let has = u64::from_str_radix(&field(set)[0], 16).unwrap();
            let may = if walks { kept | walker } else { kept };
            assert_eq!((has & !may, has & walker != 0), (0, walks), "{status}");
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&field(set)[0], 16), Ok(0), "{status}");
        }
        walkers += u32::from(walks);
        threads += 1;
    }
    assert!(threads > 2 && walkers == 1, "{threads} threads");
    // It goes with its agent, also with one that is killed.
    drop(agent);
    let gone = async {
        while is_helper(&helper) || Path::new(&format!("/proc/{helper}")).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the helper ends");
}

#[test]
fn privileged_a_stop_of_five_seconds_counts_every_lapped_window() {
    experiment("a stop of five seconds", a_stop_of_five_seconds);
}

async fn a_stop_of_five_seconds() {
    let load = Load::start("stop");
    let (disturbed, beside, from) = pair(&load).await;
    let stopped = beside.last();
    disturbed.signal(libc::SIGSTOP);
    beside.told_up_to(stopped + 102).await;
    disturbed.signal(libc::SIGCONT);
    let end = beside.last() + 40;
    disturbed.told_up_to(end).await;
    beside.told_up_to(end).await;
    let (disturbed, beside) = (disturbed.told.lock().unwrap(), beside.told.lock().unwrap());
    let missing = gaps(&disturbed, disturbed.first());
    assert!(missing >= 30, "100 windows in a ring of 64: {missing} missing");
    assert_eq!(disturbed.lost, missing, "each missing window is counted, and nothing else");
    assert_eq!(beside.lost, 0);
    println!("{missing} lost, {} values compared", compare(&disturbed, &beside, from));
}

#[tokio::test]
async fn privileged_sigterm_sends_what_is_measured_and_exits_zero() {
    let load = Load::start("term");
    let mut agent = Agent::start(&load, "term").await;
    agent.told_up_to(0).await;
    agent.signal(libc::SIGTERM);
    let asked = Instant::now();
    let status = loop {
        if let Some(status) = agent.process.try_wait().unwrap() {
            break status;
        }
        // A second of the sampler, three to send what is kept, and the detaching of its programs.
        assert!(asked.elapsed() < Duration::from_secs(20), "still there after 20 s");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(status.code(), Some(0));
    let told = agent.told.lock().unwrap();
    assert_eq!(gaps(&told, told.first()), 0);
}
