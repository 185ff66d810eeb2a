//! Fifty thousand connections at once, before the agent and with it: each is counted, and what that costs is told.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod net_probe;

use net_probe::{Probe, namespace};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Both ends of a connection are a descriptor of the same process, which may have 20,000 here.
const PROCESSES: u16 = 6;
const OF_EACH: u64 = 8_334;
const FIRST_PORT: u16 = 9_001;
const CONNECTIONS: u64 = OF_EACH * PROCESSES as u64;
const LONGEST: Duration = Duration::from_secs(120);

/// Listens, connects to itself, and sends one request over each connection whenever it hears a line.
const HOLDER: &str = "
import resource, socket, sys
count, port = int(sys.argv[1]), int(sys.argv[2])
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
listener = socket.create_server(('127.0.0.1', port), backlog=64)
held = []
for _ in range(count):
    client = socket.create_connection(('127.0.0.1', port))
    held.append((client, listener.accept()[0]))
print('ready', flush=True)
for _ in sys.stdin:
    for client, server in held:
        client.send(b'?')
        server.recv(1)
        server.send(b'!')
        client.recv(1)
    print('asked', flush=True)
";

struct Holder {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Holder {
    fn start(port: u16) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", HOLDER, &OF_EACH.to_string(), &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    fn ask(&mut self) {
        writeln!(self.to.as_ref().unwrap()).unwrap();
    }

    fn hear(&mut self, wanted: &str) {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), wanted);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

fn ports() -> impl Iterator<Item = u16> {
    FIRST_PORT..FIRST_PORT + PROCESSES
}

/// Received, answered, calls started and answered, connections open at servers and at clients, in all windows so far.
fn counted(probe: &Probe) -> [u64; 6] {
    let mut sum = [0; 6];
    for port in ports() {
        let (requests, calls) = (probe.requests(port), probe.calls(port));
        let of = [
            requests.received,
            requests.answered,
            calls.started,
            calls.answered,
            u64::from(requests.open_last),
            u64::from(calls.open_last),
        ];
        sum = std::array::from_fn(|i| sum[i] + of[i]);
    }
    sum
}

/// Drains until that is counted.
fn drain_until(probe: &mut Probe, wanted: [u64; 6]) {
    let begun = Instant::now();
    let mut looked = Instant::now();
    loop {
        probe.drain();
        if looked.elapsed() > Duration::from_secs(1) {
            looked = Instant::now();
            if counted(probe) == wanted {
                return;
            }
            assert!(
                begun.elapsed() < LONGEST,
                "{:?} instead of {wanted:?}; losses {:?}, walk {:?}",
                counted(probe),
                probe.net.kernel_losses(),
                probe.net.walk_report()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// CPU time of this thread for a window in which nothing happens.
fn quiet_window(probe: &mut Probe) -> Duration {
    let cpu_time = || {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one timespec.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) }, 0);
        Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap())
    };
    probe.drain_past_now();
    std::thread::sleep(Duration::from_secs(2));
    let (before, windows) = (cpu_time(), probe.windows.len());
    probe.drain();
    (cpu_time() - before) / u32::try_from(probe.windows.len() - windows).unwrap()
}

/// Kernel memory that is neither pages of files nor of processes, in bytes.
fn slab_bytes() -> i64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let slab = meminfo.lines().find_map(|line| line.strip_prefix("Slab:")).unwrap();
    slab.trim().trim_end_matches(" kB").trim().parse::<i64>().unwrap() * 1024
}

#[test]
#[ignore = "a minute; make bench-sizes"]
fn privileged_fifty_thousand_connections_are_counted_one_by_one() {
    std::thread::scope(|s| {
        s.spawn(|| {
            namespace::enter_new();
            let mut holders: Vec<Holder> = ports().map(Holder::start).collect();
            holders.iter_mut().for_each(|holder| holder.hear("ready"));

            // Older than the agent: each is met at its first request.
            let begun = Instant::now();
            let before = slab_bytes();
            let mut probe = Probe::attach();
            let attached = begun.elapsed();
            let n = CONNECTIONS;
            for round in 1..=2 {
                holders.iter_mut().for_each(Holder::ask);
                drain_until(&mut probe, [n * round, n * round, n * round, n * round, n, n]);
                holders.iter_mut().for_each(|holder| holder.hear("asked"));
            }
            let kept = (slab_bytes() - before) / (2 * CONNECTIONS).cast_signed();
            let quiet = quiet_window(&mut probe);
            eprintln!(
                "{CONNECTIONS} connections: attached in {attached:?}, {kept} bytes of slab more for each socket, {quiet:?} to read a \
                 quiet window; losses {:?}",
                probe.net.kernel_losses()
            );
            drop(holders);
            drain_until(&mut probe, [2 * n, 2 * n, 2 * n, 2 * n, 0, 0]);

            // Younger than the agent.
            let mut probe = Probe::attach();
            let mut holders: Vec<Holder> = ports().map(Holder::start).collect();
            drain_until(&mut probe, [0, 0, 0, 0, n, n]);
            holders.iter_mut().for_each(|holder| holder.hear("ready"));
            holders.iter_mut().for_each(Holder::ask);
            drain_until(&mut probe, [n, n, n, n, n, n]);
            drop(holders);
            drain_until(&mut probe, [n, n, n, n, 0, 0]);
        });
    });
}
