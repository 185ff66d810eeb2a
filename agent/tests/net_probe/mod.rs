//! What the socket tests share: signals attached beside the test, windows drained as the sampler drains them, and sums over
//! them by listener and by edge. Owns no assertion but that levels are sane.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses its part")]
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]

use std::net::{Ipv6Addr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tailwater_agent::attach::loader::{KernelBtf, LoadError, possible_cpus};
use tailwater_agent::clock::Clock;
use tailwater_agent::config::Late;
use tailwater_agent::name::cgroup::Mounts;
use tailwater_agent::sample::net::{Looking, NetConfig, NetSignals};
use tailwater_agent::sample::slots::cgroup_hierarchy;
use tailwater_agent::signal::{SignalKind, SignalSource};
use tailwater_agent::window::{
    AcceptQueueSample, CallSample, ListenDrop, MultiplexedSample, RequestSample, RetransmitSample, WINDOW_NS,
    Window, WindowIndex,
};

/// A closed window is read only after hooks that began inside it are done.
const MARGIN_NS: u64 = 10_000_000;
/// What is waited for and does not come by then will not: a test says so in place of hanging.
const HANGS_AFTER: Duration = Duration::from_secs(120);

pub struct Probe {
    pub net: NetSignals,
    pub clock: Clock,
    pub next: u64,
    pub windows: Vec<Window>,
}

/// Tells threads to end, also where a check fails before the end of their scope, which would wait for them for ever.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Probe {
    pub fn attach() -> Self {
        Self::attach_by(NetSignals::attach)
    }

    /// As on a kernel that gives programs no timer.
    pub fn attach_without_timer() -> Self {
        Self::attach_by(|config| NetSignals::attach_with(config, Looking::Thread))
    }

    /// With room for few listeners, which is free again soon after they are closed.
    pub fn attach_with_little_room() -> Self {
        Self::attach_by(|config| {
            NetSignals::attach(&NetConfig { listeners_max: 16, listeners_kept_windows: 20, ..*config })
        })
    }

    /// With the room that the agent has.
    pub fn attach_with_all_room() -> Self {
        Self::attach_by(|config| {
            NetSignals::attach(&NetConfig { listeners_max: 1_024, edges_max: 4_095, ..*config })
        })
    }

    /// With room for so many edges.
    pub fn attach_with_edges(edges_max: u32) -> Self {
        Self::attach_by(|config| NetSignals::attach(&NetConfig { edges_max, ..*config }))
    }

    /// Answers are late, and very late, after these.
    pub fn attach_with_late(late: Late) -> Self {
        Self::attach_by(|config| NetSignals::attach(&NetConfig { late, ..*config }))
    }

    /// Streams of HTTP/2 are counted by the headers of their frames.
    pub fn attach_with_frame_headers() -> Self {
        let mounts = Mounts::read().unwrap();
        let probe = Self::attach_by(|config| {
            NetSignals::attach(&NetConfig { frame_headers: Some(&mounts), ..*config })
        });
        let requests = probe.net.coverage().into_iter().find(|c| c.signal == SignalKind::Requests).unwrap();
        assert!(requests.hook.contains("cgroup_skb/ingress"), "{requests:?}");
        probe
    }

    /// Why this machine refuses programs that walk a map before it looks at them, as its policy may; `None`: it takes them. Measured by loading one.
    pub fn walks_refused() -> Option<String> {
        let refused =
            Self::try_attach(|config| NetSignals::attach_with(config, Looking::Thread)).err()?.to_string();
        let by_policy = refused.contains("iter/bpf_map_elem") && refused.contains("Operation not permitted");
        by_policy.then_some(refused)
    }

    /// The same of the sockets that wait for a server of names, by what this one was refused.
    pub fn lookups_refused(&self) -> Option<String> {
        let calls = self.net.coverage().into_iter().find(|c| c.signal == SignalKind::Calls)?;
        let by_policy = calls.reason.contains("iter/bpf_sk_storage_map: refused before verification")
            && calls.reason.contains("Operation not permitted");
        by_policy.then_some(calls.reason)
    }

    fn attach_by(attach: impl FnOnce(&NetConfig<'_>) -> Result<NetSignals, LoadError>) -> Self {
        Self::try_attach(attach).unwrap()
    }

    fn try_attach(
        attach: impl FnOnce(&NetConfig<'_>) -> Result<NetSignals, LoadError>,
    ) -> Result<Self, LoadError> {
        let clock = Clock::new(0);
        let btf = KernelBtf::read().unwrap();
        let next = clock.window().0;
        let net = attach(&NetConfig {
            btf: &btf,
            cgroup_hierarchy: cgroup_hierarchy(),
            epoch_offset_ns: clock.epoch_offset_ns(),
            cpus: possible_cpus(),
            listeners_max: 64,
            listeners_kept_windows: 1_200,
            edges_max: 128,
            late: Late::default(),
            helper: None,
            frame_headers: None,
        })?;
        Ok(Self { net, clock, next, windows: Vec::new() })
    }

    /// Drains what is closed.
    pub fn drain(&mut self) {
        let open = (self.clock.unix_ns() - MARGIN_NS) / WINDOW_NS;
        assert!(open - self.next < 60, "the test left {} windows undrained", open - self.next);
        self.drain_to(open);
    }

    fn drain_to(&mut self, open: u64) {
        while self.next < open {
            let mut window = Window { index: WindowIndex(self.next), ..Window::default() };
            self.net.drain(&mut window);
            self.windows.push(window);
            self.next += 1;
        }
    }

    /// Waits for a program that succeeds, and drains meanwhile.
    pub fn until_done(&mut self, command: &mut Command) {
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > HANGS_AFTER {
                let _ = child.kill();
                panic!("{command:?} goes on for ever");
            }
            self.wait();
        };
        assert!(status.success(), "{command:?}: {status}");
    }

    /// Waits for threads that end by themselves, and drains meanwhile.
    pub fn until_ended(&mut self, is_over: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_over() {
            assert!(begun.elapsed() < HANGS_AFTER, "something goes on for ever");
            self.wait();
        }
    }

    /// Some milliseconds, and drains.
    pub fn wait(&mut self) {
        std::thread::sleep(Duration::from_millis(20));
        self.drain();
    }

    /// As the sampler does when it was away for too long; returns how many windows were lost.
    pub fn drain_lapped(&mut self) -> u64 {
        let open = (self.clock.unix_ns() - MARGIN_NS) / WINDOW_NS;
        let first = open.saturating_sub(60).max(self.next);
        let lost = first - self.next;
        if lost > 0 {
            self.net.skip_to(WindowIndex(first));
            self.next = first;
        }
        self.drain_to(open);
        lost
    }

    /// Drains until the window that is open now is in.
    pub fn drain_past_now(&mut self) {
        let now = self.clock.window().0;
        while self.next <= now {
            std::thread::sleep(Duration::from_millis(10));
            self.drain();
        }
    }

    /// Drains until `reached` holds, at most ten seconds.
    pub fn drain_until(&mut self, what: &str, reached: impl FnMut(&mut Self) -> bool) {
        self.drain_within(10, what, reached);
    }

    /// The same, where chance decides how long it takes.
    pub fn drain_within(&mut self, seconds: u32, what: &str, mut reached: impl FnMut(&mut Self) -> bool) {
        for _ in 0..seconds * 100 {
            self.drain();
            if reached(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!(
            "not reached in {seconds} s: {what}; losses {:?}, walk {:?}",
            self.net.kernel_losses(),
            self.net.walk_report()
        );
    }

    /// Waits for the first drop event of a listener.
    pub fn drops(&mut self, port: u16) -> Vec<ListenDrop> {
        let mut events = Vec::new();
        self.net.take_drop_events(&mut events);
        events.retain(|e| e.listener.port == port);
        events
    }

    /// What each window told of a listener's losses, for a failure's message.
    pub fn story(&self, at: impl Into<At>) -> String {
        let at = at.into();
        let mut text = String::new();
        for window in &self.windows {
            let of = |w: &Window| w.accept_queues.clone().unwrap_or_default();
            for (_, s) in of(window).iter().filter(|(key, _)| at.is(key.netns, key.port)) {
                let lost = (s.drops, s.drops_final_ack, s.drops_repeated);
                if s.arrivals > 0 || lost != (0, 0, 0) {
                    text += &format!(
                        "\n  window {}: {} arrivals, {} drops, {} of them last ACKs, {} repeated",
                        window.index.0, s.arrivals, lost.0, lost.1, lost.2
                    );
                }
            }
        }
        text + &format!("\n  losses {:?}", self.net.losses())
    }

    pub fn queue(&self, at: impl Into<At>) -> AcceptQueueSample {
        let at = at.into();
        let mut sum = AcceptQueueSample::default();
        for window in &self.windows {
            for (key, s) in window.accept_queues.as_deref().unwrap() {
                if !at.is(key.netns, key.port) {
                    continue;
                }
                sum.depth_last = s.depth_last;
                sum.depth_max = sum.depth_max.max(s.depth_max);
                sum.depth_ns += s.depth_ns;
                sum.limit = sum.limit.max(s.limit);
                sum.arrivals += s.arrivals;
                sum.accepts += s.accepts;
                sum.wait_max_ns = sum.wait_max_ns.max(s.wait_max_ns);
                sum.drops += s.drops;
                sum.drops_final_ack += s.drops_final_ack;
                sum.drops_cookie += s.drops_cookie;
                sum.drops_repeated += s.drops_repeated;
                sum.drops_slow += s.drops_slow;
                sum.syn_ack_retransmits += s.syn_ack_retransmits;
            }
        }
        sum
    }

    pub fn requests(&self, at: impl Into<At>) -> RequestSample {
        let at = at.into();
        let mut sum = RequestSample::default();
        for window in &self.windows {
            for (key, s) in window.requests.as_deref().unwrap() {
                if !at.is(key.netns, key.port) {
                    continue;
                }
                assert!(
                    s.in_flight_max >= s.in_flight_last
                        && s.in_flight_ns <= u64::from(s.in_flight_max) * WINDOW_NS,
                    "in flight: {s:?}"
                );
                assert!(
                    s.workers_busy_ns <= u64::from(s.workers_busy_max) * WINDOW_NS,
                    "busy workers: {s:?}"
                );
                sum.received += s.received;
                sum.answered += s.answered;
                sum.aborted += s.aborted;
                sum.late += s.late;
                sum.very_late += s.very_late;
                sum.very_long_retried += s.very_long_retried;
                sum.very_long_queued += s.very_long_queued;
                sum.very_long_unread += s.very_long_unread;
                sum.very_long_inside += s.very_long_inside;
                sum.in_flight_last = s.in_flight_last;
                sum.in_flight_max = sum.in_flight_max.max(s.in_flight_max);
                sum.in_flight_ns += s.in_flight_ns;
                sum.unread_max = sum.unread_max.max(s.unread_max);
                sum.unread_ns += s.unread_ns;
                sum.workers_busy_max = sum.workers_busy_max.max(s.workers_busy_max);
                sum.workers_busy_ns += s.workers_busy_ns;
                sum.workers_seen = s.workers_seen;
                sum.worker_shared_max = sum.worker_shared_max.max(s.worker_shared_max);
                sum.response_ns += s.response_ns;
                sum.response_max_ns = sum.response_max_ns.max(s.response_max_ns);
                for (n, m) in sum.response_hist.iter_mut().zip(s.response_hist) {
                    *n += m;
                }
                add(&mut sum.multiplexed, &s.multiplexed);
                sum.open_last = s.open_last;
                sum.open_max = sum.open_max.max(s.open_max);
            }
        }
        sum
    }

    /// Very long answers: retried, queued, unread, inside.
    pub fn very_long(&self, at: impl Into<At>) -> [u64; 4] {
        let s = self.requests(at);
        [s.very_long_retried, s.very_long_queued, s.very_long_unread, s.very_long_inside]
    }

    pub fn calls(&self, at: impl Into<At>) -> CallSample {
        let at = at.into();
        let mut sum = CallSample::default();
        for window in &self.windows {
            for (key, s) in window.calls.as_deref().unwrap() {
                if !at.is(key.netns, key.remote_port) {
                    continue;
                }
                assert!(
                    s.in_flight_max >= s.in_flight_last
                        && s.in_flight_ns <= u64::from(s.in_flight_max) * WINDOW_NS,
                    "in flight: {s:?}"
                );
                sum.started += s.started;
                sum.answered += s.answered;
                sum.aborted += s.aborted;
                sum.in_flight_last = s.in_flight_last;
                sum.in_flight_max = sum.in_flight_max.max(s.in_flight_max);
                sum.in_flight_ns += s.in_flight_ns;
                sum.open_last = s.open_last;
                sum.open_max = sum.open_max.max(s.open_max);
                sum.connects += s.connects;
                sum.established += s.established;
                sum.response_ns += s.response_ns;
                add(&mut sum.multiplexed, &s.multiplexed);
                sum.response_max_ns = sum.response_max_ns.max(s.response_max_ns);
            }
        }
        sum
    }

    pub fn retransmits(&self, at: impl Into<At>) -> RetransmitSample {
        let at = at.into();
        let mut sum = RetransmitSample::default();
        for window in &self.windows {
            for (key, s) in window.retransmits.as_deref().unwrap() {
                if at.is(key.netns, key.remote_port) {
                    sum.syn += s.syn;
                    sum.data += s.data;
                    if sum.first_try_unix_ns == 0 {
                        sum.first_try_unix_ns = s.first_try_unix_ns;
                    }
                }
            }
        }
        sum
    }
}

fn add(sum: &mut MultiplexedSample, s: &MultiplexedSample) {
    sum.connections = sum.connections.max(s.connections);
    sum.pieces_in += s.pieces_in;
    sum.pieces_read += s.pieces_read;
    sum.pieces_out += s.pieces_out;
    sum.bytes_in += s.bytes_in;
    sum.bytes_out += s.bytes_out;
    sum.unanswered_max = sum.unanswered_max.max(s.unanswered_max);
    sum.unanswered_ns += s.unanswered_ns;
}

/// A port, in one network namespace or in any.
#[derive(Clone, Copy)]
pub struct At {
    pub netns: Option<u32>,
    pub port: u16,
}

impl At {
    fn is(&self, netns: u32, port: u16) -> bool {
        self.port == port && self.netns.is_none_or(|n| n == netns)
    }
}

impl From<u16> for At {
    fn from(port: u16) -> Self {
        Self { netns: None, port }
    }
}

impl From<(u32, u16)> for At {
    fn from((netns, port): (u32, u16)) -> Self {
        Self { netns: Some(netns), port }
    }
}

pub fn loopback() -> Ipv6Addr {
    std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped()
}

pub fn until_it_listens(port: u16) {
    for _ in 0..1000 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nobody listens at {port} after 10 s");
}

pub mod namespace {
    //! A network namespace of the calling thread's own; it goes with the thread.
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    pub fn inode() -> u32 {
        u32::try_from(std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino()).unwrap()
    }

    pub fn enter_new() {
        // SAFETY: affects the calling thread only.
        let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(moved, 0, "unshare: {}", std::io::Error::last_os_error());
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    }

    /// Runs on a thread that entered one of its own first.
    pub fn apart(test: impl FnOnce() + Send) {
        std::thread::scope(|s| {
            s.spawn(|| {
                enter_new();
                test();
            })
            .join()
            .unwrap();
        });
    }
}
