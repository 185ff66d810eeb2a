//! A long life in real maps, as root: `make endurance`, some fifteen minutes. What is told of a million processes, of a hundred thousand
//! cgroups that come and go and of a day's windows is held against what the machine says, and nothing is used up at the end.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod kernel;
mod net_probe;

use kernel::{Cgroup, Drained, Spinner, attach_config, unix_ns};
use net_probe::{Probe, namespace};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tailwater_agent::attach::loader::KernelBtf;
use tailwater_agent::sample::sched::SchedSignal;
use tailwater_agent::sample::self_stats::resident_bytes;
use tailwater_agent::signal::SignalSource;
use tailwater_agent::window::{CgroupId, WINDOW_NS, Window, WindowIndex};

const PROCESSES: u64 = 1_000_000;
const CGROUPS: u32 = 100_000;
const WINDOWS_OF_A_DAY: u64 = 24 * 3600 * 1_000_000_000 / WINDOW_NS;

fn lost(signal: &SchedSignal, what: &str) -> u64 {
    signal.losses().iter().find(|loss| loss.what == what).unwrap().count
}

#[test]
#[ignore = "minutes; make endurance"]
fn privileged_a_million_short_processes_are_counted() {
    let btf = KernelBtf::read().unwrap();
    let mut signal = SchedSignal::attach(&attach_config(&btf, 1_024)).unwrap();
    let group = Cgroup::new("short-lived");
    let mut drained = Drained::from_now();
    let began = Instant::now();
    // A subshell is a process that ends at once.
    let half = PROCESSES / 2;
    let script = format!("read go; i=0; while [ $i -lt {half} ]; do (:); i=$((i+1)); done; echo done");
    let mut shells: Vec<_> = (0..2)
        .map(|_| {
            let mut command = group.command(&script);
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    // Who enters a cgroup is counted there from its next switch on.
    std::thread::sleep(Duration::from_millis(200));
    let before = group.cpu_usage_ns();
    drained.until_now(&mut signal);
    shells.iter_mut().for_each(|shell| drop(shell.stdin.take()));
    let (mut busy_ns, mut switches) = (0, 0);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let ended = shells.iter_mut().all(|shell| shell.try_wait().unwrap().is_some());
        for window in drained.until_now(&mut signal) {
            for (_, tasks) in window.tasks.unwrap().iter().filter(|(id, _)| *id == group.id()) {
                busy_ns += tasks.busy_ns;
                switches += tasks.switches;
            }
        }
        if ended {
            break;
        }
    }
    let truth = group.cpu_usage_ns() - before;
    let off = busy_ns.abs_diff(truth) as f64 / truth as f64;
    eprintln!(
        "{PROCESSES} processes in {:?}: {busy_ns} ns on CPU told of {truth} ({:.2} %), {switches} switches, {:?}",
        began.elapsed(),
        off * 100.0,
        signal.losses()
    );
    assert!(off < 0.03, "{busy_ns} ns told of {truth}");
    assert!(switches >= PROCESSES);
    for what in ["sched_tasks_untracked", "sched_cgroups_folded", "sched_records_lapped"] {
        assert_eq!(lost(&signal, what), 0, "{what}");
    }
}

#[test]
#[ignore = "minutes; make endurance"]
fn privileged_a_hundred_thousand_cgroups_come_and_go() {
    let btf = KernelBtf::read().unwrap();
    let mut signal = SchedSignal::attach(&attach_config(&btf, 1_024)).unwrap();
    let mut drained = Drained::from_now();
    let began = Instant::now();
    let (mut of_rows, mut of_machine) = (0, 0);
    let mut met = BTreeSet::new();
    let mut see = |signal: &mut SchedSignal, drained: &mut Drained| -> BTreeSet<CgroupId> {
        let mut seen = BTreeSet::new();
        for window in drained.until_now(signal) {
            of_machine += window.machine_cpu.unwrap().busy_ns;
            for (id, tasks) in window.tasks.unwrap() {
                of_rows += tasks.busy_ns;
                if tasks.busy_ns > 0 {
                    seen.insert(id);
                }
            }
        }
        seen
    };
    for n in 0..CGROUPS {
        let group = Cgroup::new(&format!("endurance-{n}"));
        assert!(group.command("/bin/true; exit 0").status().unwrap().success());
        drop(group);
        met.extend(see(&mut signal, &mut drained));
    }
    // Slots come back when they were quiet for as long as the logs reach back.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_nanos(5 * WINDOW_NS));
        met.extend(see(&mut signal, &mut drained));
    }
    let folded = lost(&signal, "sched_cgroups_folded");
    let late: Vec<Cgroup> = (0..20).map(|n| Cgroup::new(&format!("endurance-late-{n}"))).collect();
    let spinners: Vec<Spinner> =
        late.iter().map(|group| Spinner::start(group, "while sleep 0.01; do :; done", &[0, 1])).collect();
    std::thread::sleep(Duration::from_nanos(10 * WINDOW_NS));
    let seen = see(&mut signal, &mut drained);
    let unseen = late.iter().filter(|group| !seen.contains(&group.id())).count();
    drop(spinners);
    eprintln!(
        "{CGROUPS} cgroups in {:?}: {} told apart, {} slots given back, {of_rows} ns in all rows of {of_machine} of the machine, {:?}",
        began.elapsed(),
        met.len(),
        signal.slots_released(),
        signal.losses()
    );
    assert_eq!(unseen, 0, "a new one has its own row");
    assert_eq!(lost(&signal, "sched_cgroups_folded"), folded, "there is room again");
    assert_eq!(lost(&signal, "sched_records_lapped"), 0);
    let off = of_rows.abs_diff(of_machine) as f64 / of_machine as f64;
    assert!(off < 0.01, "what is folded is in the shared row: {of_rows} ns of {of_machine}");
}

/// A clock that is put forward by a window whenever one was drained: a day goes by in minutes, in real maps. Windows are drained two
/// behind the open one, because a hook may be at work with the time of before.
struct Hasty {
    ahead_ns: u64,
    next: u64,
}

impl Hasty {
    fn now_ns(&self) -> u64 {
        unix_ns() + self.ahead_ns
    }

    /// Puts the clock forward, and drains what is closed by it.
    fn go_on(&mut self, probe: &mut Probe, sched: &mut SchedSignal, mut see: impl FnMut(&Window)) {
        self.ahead_ns += WINDOW_NS;
        let offset = kernel::epoch_offset_ns() + self.ahead_ns.cast_signed();
        probe.net.set_epoch_offset_ns(offset);
        sched.set_epoch_offset_ns(offset);
        while self.next + 2 < self.now_ns() / WINDOW_NS {
            let mut window = Window { index: WindowIndex(self.next), ..Window::default() };
            probe.net.drain(&mut window);
            sched.drain(&mut window);
            see(&window);
            self.next += 1;
        }
    }
}

/// One question over a connection, and its answer.
fn ask(client: &TcpStream, server: &TcpStream) {
    for (mut from, mut to) in [(client, server), (server, client)] {
        from.write_all(b"!").unwrap();
        to.read_exact(&mut [0]).unwrap();
    }
}

/// What was told of a listener and of the calls that go to it.
#[derive(Debug, Default, PartialEq)]
struct Told {
    received: u64,
    answered: u64,
    calls_answered: u64,
    connects: u64,
    open_last: u32,
    in_flight_last: u32,
}

impl Told {
    fn add(&mut self, window: &Window, netns: u32, port: u16) {
        let requests = window.requests.as_deref().unwrap().iter();
        for (_, requests) in requests.filter(|(key, _)| (key.netns, key.port) == (netns, port)) {
            self.received += requests.received;
            self.answered += requests.answered;
            (self.open_last, self.in_flight_last) = (requests.open_last, requests.in_flight_last);
        }
        let calls = window.calls.as_deref().unwrap().iter();
        for (_, call) in calls.filter(|(key, _)| (key.netns, key.remote_port) == (netns, port)) {
            self.calls_answered += call.answered;
            self.connects += call.connects;
        }
    }
}

#[test]
#[ignore = "minutes; make endurance"]
fn privileged_after_a_day_of_windows_everything_is_counted_as_on_the_first() {
    // The namespace goes with its thread.
    std::thread::spawn(a_day).join().unwrap();
}

fn a_day() {
    const PORT: u16 = 9_200;
    const ASKED_EVERY: u64 = 16;
    const CALLED_EVERY: u64 = 64;
    namespace::enter_new();
    let netns = namespace::inode();
    let btf = KernelBtf::read().unwrap();
    let mut probe = Probe::attach_with_edges(4_095);
    let mut sched = SchedSignal::attach(&attach_config(&btf, 1_024)).unwrap();
    let mut hasty = Hasty { ahead_ns: 0, next: unix_ns() / WINDOW_NS };
    let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
    let kept = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).unwrap();
    let (server, _) = listener.accept().unwrap();
    let began = Instant::now();
    let (mut told, mut resident_early) = (Told::default(), 0);
    for n in 0..WINDOWS_OF_A_DAY {
        if n % ASKED_EVERY == 0 {
            ask(&kept, &server);
        }
        if n % CALLED_EVERY == 0 {
            // Each time another server: 27,000 edges in a day.
            let [_, _, middle, low] = u32::try_from(n / CALLED_EVERY).unwrap().to_be_bytes();
            let client = TcpStream::connect((Ipv4Addr::new(127, 8, middle, low), PORT)).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            ask(&client, &accepted);
        }
        hasty.go_on(&mut probe, &mut sched, |window| told.add(window, netns, PORT));
        if n == WINDOWS_OF_A_DAY / 10 {
            resident_early = resident_bytes();
        }
    }
    for _ in 0..4 {
        hasty.go_on(&mut probe, &mut sched, |window| told.add(window, netns, PORT));
    }
    let grown = resident_bytes().saturating_sub(resident_early);
    let losses = [probe.net.losses(), sched.losses()].concat();
    eprintln!("{WINDOWS_OF_A_DAY} windows in {:?}: {told:?}, {grown} B grown, {losses:?}", began.elapsed());
    let called = WINDOWS_OF_A_DAY.div_ceil(CALLED_EVERY);
    let asked = WINDOWS_OF_A_DAY.div_ceil(ASKED_EVERY) + called;
    let expected = Told {
        received: asked,
        answered: asked,
        calls_answered: asked,
        connects: called + 1,
        open_last: 1,
        in_flight_last: 0,
    };
    assert_eq!(told, expected);
    for loss in losses.iter().filter(|loss| !loss.what.ends_with("_runs_skipped")) {
        assert_eq!(loss.count, 0, "{}", loss.what);
    }
    assert!(grown < 2 << 20, "{grown} B more than after a tenth of the day");

    // And then time goes by as always.
    let group = Cgroup::new("after-a-day");
    let spinner = Spinner::start(&group, "while :; do :; done", &[0]);
    std::thread::sleep(Duration::from_millis(300));
    let first = hasty.now_ns() / WINDOW_NS + 1;
    std::thread::sleep(Duration::from_nanos(12 * WINDOW_NS));
    drop(spinner);
    let mut busy_ns = Vec::new();
    for index in hasty.next..first + 10 {
        let mut window = Window { index: WindowIndex(index), ..Window::default() };
        sched.drain(&mut window);
        let of_group = window.tasks.unwrap().into_iter().find(|(id, _)| *id == group.id());
        if index >= first {
            busy_ns.push(of_group.map_or(0, |(_, tasks)| tasks.busy_ns));
        }
    }
    assert!(busy_ns.iter().all(|ns| (1..=WINDOW_NS).contains(ns)), "a spinner's windows: {busy_ns:?}");
}
