//! What the kernel counts in a server's network namespace: a receiver that nobody reads from is full, and that is told.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv6Addr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tailwater_agent::sample::counters::Counters;
use tailwater_agent::window::{
    AcceptQueueSample, CgroupId, KernelCount, KernelCounter, ListenerKey, Window, WindowIndex,
};

/// Both ends in a namespace of their own: the client sends, at each line that it hears, as much as is taken, and the server reads nothing.
const DEAF: &str = "
import socket, sys
server = socket.create_server(('127.0.0.1', 8080))
client = socket.create_connection(('127.0.0.1', 8080))
held = server.accept()
client.settimeout(0.5)
print('ready', flush=True)
for _ in sys.stdin:
    try:
        while True:
            client.send(b'x' * 65536)
    except socket.timeout:
        pass
    print('full', flush=True)
";

/// A process that ends with the test.
struct Deaf {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Deaf {
    fn start() -> Self {
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && exec python3 -c \"$0\"", DEAF])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let mut deaf = Self { child, says };
        deaf.hear("ready");
        deaf
    }

    fn hear(&mut self, wanted: &str) {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), wanted);
    }

    fn send(&mut self) {
        writeln!(self.child.stdin.as_ref().unwrap()).unwrap();
        self.hear("full");
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Longer than a read rests.
const RESTED: Duration = Duration::from_millis(5_100);

/// What is told with a window of that number, in which the server's listener had something to do.
fn told(counters: &mut Counters, index: u64, netns: u32, pid: u32) -> Vec<KernelCount> {
    let key = ListenerKey { netns, address: Ipv6Addr::UNSPECIFIED, port: 8080, owner: CgroupId(1), pid };
    let rows = vec![(key, AcceptQueueSample::default())];
    let mut window = Window { index: WindowIndex(index), accept_queues: Some(rows), ..Window::default() };
    counters.step(&mut window, std::process::id);
    window.kernel_counts
}

/// Fails where packets that a shaper gives up are told by nobody.
#[test]
fn privileged_what_a_queueing_discipline_drops_is_told() {
    // A thread of its own, whose network namespace the thread that reads has from it.
    let counted = std::thread::spawn(|| {
        // SAFETY: a plain integer; it concerns this thread alone.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
        // Less than a packet a second, and room for one.
        let shape = "ip link set lo up && tc qdisc replace dev lo root tbf rate 8kbit burst 1600 limit 1600";
        assert!(Command::new("sh").args(["-c", shape]).status().unwrap().success());
        let mut counters = Counters::new(Path::new("/"));
        assert_eq!(told(&mut counters, 20, 1, 0), [], "nothing was read before");
        std::thread::sleep(RESTED);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        // One that is dropped here may be an error of whoever sends it.
        let sent = (0..50).filter(|_| socket.send_to(&[0; 1_000], "127.0.0.1:9").is_ok()).count();
        assert_eq!(told(&mut counters, 40, 1, 0), [], "it is read now");
        std::thread::sleep(RESTED);
        println!("{sent} of 50 sent without an error");
        told(&mut counters, 60, 1, 0)
    });
    let counts = counted.join().unwrap();
    println!("{counts:?}");
    let of_queues = counts.iter().find(|told| told.counter == KernelCounter::QdiscDropped);
    assert!(of_queues.is_some_and(|told| (40..=60).contains(&told.count)), "{counts:?}");
}

#[test]
fn privileged_a_receiver_that_nobody_reads_from_is_told_in_its_own_namespace() {
    let mut deaf = Deaf::start();
    let pid = deaf.child.id();
    let netns = u32::try_from(std::fs::metadata(format!("/proc/{pid}/ns/net")).unwrap().ino()).unwrap();
    let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    assert_ne!(u64::from(netns), own, "it has a namespace of its own");
    let mut counters = Counters::new(Path::new("/"));
    assert_eq!(told(&mut counters, 20, netns, pid), [], "nothing was read before");
    std::thread::sleep(RESTED);
    deaf.send();
    assert_eq!(told(&mut counters, 40, netns, pid), [], "it is read now");
    std::thread::sleep(RESTED);
    let counts = told(&mut counters, 60, netns, pid);
    println!("{counts:?}");
    // Newer kernels count the segment that found no room, where they did not tell its sender before.
    let of_it = [KernelCounter::ZeroWindow, KernelCounter::ReceiveBufferFull];
    let full: Vec<_> = counts.iter().filter(|told| of_it.contains(&told.counter)).collect();
    assert!(full.iter().any(|told| told.count >= 1), "{counts:?}");
    assert!(full.iter().all(|told| (told.windows, told.windows_ago) == (20, 20)), "{counts:?}");
}
