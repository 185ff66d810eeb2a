//! Sizes: what the kernel side holds for a machine of 128 CPUs, and how much it tells apart there, as root.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod kernel;
mod net_probe;

use kernel::{Cgroup, Drained, attach_config, epoch_offset_ns};
use net_probe::{Probe, namespace};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tailwater_agent::attach::loader::{AttachConfig, KernelBtf};
use tailwater_agent::config::Late;
use tailwater_agent::sample::block::BlockSignal;
use tailwater_agent::sample::memory::MemorySignal;
use tailwater_agent::sample::net::{NetConfig, NetSignals};
use tailwater_agent::sample::sched::SchedSignal;
use tailwater_agent::sample::slots::cgroup_hierarchy;
use tailwater_agent::signal::SignalSource;
use tailwater_agent::window::WINDOW_NS;

/// Of all maps of this process, as the kernel accounts them.
fn maps_bytes() -> u64 {
    let infos = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    // A map may be open more than once.
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    for info in infos.filter_map(|f| std::fs::read_to_string(f.path()).ok()) {
        let value = |key: &str| info.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok());
        if let (Some(memlock), Some(id)) = (value("memlock:"), value("map_id:"))
            && seen.insert(id)
        {
            bytes += memlock;
        }
    }
    bytes
}

fn cpu_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) }, 0);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap())
}

fn attach(cpus: u32) -> Vec<Box<dyn SignalSource>> {
    let btf = KernelBtf::read().unwrap();
    let config = AttachConfig { cpus, ..attach_config(&btf, 1_024) };
    let net = NetConfig {
        btf: &btf,
        cgroup_hierarchy: cgroup_hierarchy(),
        epoch_offset_ns: epoch_offset_ns(),
        cpus,
        listeners_max: 1_024,
        listeners_kept_windows: 1_200,
        edges_max: 4_095,
        late: Late::default(),
        helper: None,
        frame_headers: None,
    };
    vec![
        Box::new(SchedSignal::attach(&config).unwrap()),
        Box::new(BlockSignal::attach(&config).unwrap()),
        Box::new(MemorySignal::attach(&config).unwrap()),
        Box::new(NetSignals::attach(&net).unwrap()),
    ]
}

#[test]
fn privileged_what_the_kernel_holds_for_128_cpus_has_a_bound() {
    let mut told = Vec::new();
    for cpus in [2, 8, 32, 128] {
        let mut sources = attach(cpus);
        let bytes = maps_bytes();
        let mut drained = Drained::from_now();
        std::thread::sleep(Duration::from_nanos(20 * WINDOW_NS));
        let (before, mut windows) = (cpu_time(), 0);
        for source in &mut sources {
            windows = drained.clone().until_now(source.as_mut()).len();
        }
        drained.skip_lapped(sources[0].as_mut());
        let each = (cpu_time() - before) / u32::try_from(windows.max(1)).unwrap();
        eprintln!("{cpus} CPUs: {:.1} MB of maps, {each:?} to read a window", bytes as f64 / 1e6);
        told.push(bytes);
    }
    // It leaves the agent itself its part of 120.
    assert!(told[3] < 105_000_000, "{told:?}");
    assert!(told[0] < 30_000_000, "{told:?}");
}

#[test]
fn privileged_a_thousand_cgroups_are_told_apart_on_128_cpus() {
    let btf = KernelBtf::read().unwrap();
    // First: a thousand folders in every tree take longer than the ring holds on some machines.
    let groups: Vec<Cgroup> = (0..1_000).map(|n| Cgroup::new(&format!("of-many-{n}"))).collect();
    let config = AttachConfig { cpus: 128, ..attach_config(&btf, 1_024) };
    let mut signal = SchedSignal::attach(&config).unwrap();
    let mut drained = Drained::from_the_open();
    let mut seen = BTreeSet::new();
    let mut see = |signal: &mut SchedSignal, drained: &mut Drained| {
        for window in drained.until_now(signal) {
            seen.extend(window.tasks.unwrap().iter().filter(|(_, t)| t.busy_ns > 0).map(|(id, _)| *id));
        }
    };
    let began = Instant::now();
    for group in &groups {
        // A child, because who enters a cgroup is counted there from its next switch on.
        assert!(group.command("/bin/true; exit 0").status().unwrap().success());
        see(&mut signal, &mut drained);
    }
    std::thread::sleep(Duration::from_nanos(3 * WINDOW_NS));
    see(&mut signal, &mut drained);
    let missed = groups.iter().filter(|g| !seen.contains(&g.id())).count();
    assert_eq!(missed, 0, "of 1,000 cgroups that ran a shell each, in {:?}", began.elapsed());
    assert_eq!((signal.slot_overflows(), signal.lapped()), (0, 0));
}

#[test]
fn privileged_four_thousand_servers_that_one_workload_calls_are_told_apart() {
    const SERVERS: u16 = 4_000;
    const PORT: u16 = 9_100;
    // Each at an address of its own: all of 127/8 is this machine.
    let address = |n: u16| std::net::Ipv4Addr::new(127, 7, (n >> 8) as u8, n as u8);
    let told = std::thread::spawn(move || {
        namespace::enter_new();
        let mut probe = Probe::attach_with_edges(4_095);
        let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
        let server = std::thread::spawn(move || {
            for mut stream in listener.incoming().take(SERVERS.into()).map(Result::unwrap) {
                stream.read_exact(&mut [0]).unwrap();
                stream.write_all(b"!").unwrap();
            }
        });
        for n in 0..SERVERS {
            let mut stream = TcpStream::connect((address(n), PORT)).unwrap();
            stream.write_all(b"?").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            if n % 100 == 0 {
                probe.drain();
            }
        }
        server.join().unwrap();
        probe.drain_past_now();
        let netns = namespace::inode();
        let mut calls: BTreeMap<_, [u64; 3]> = BTreeMap::new();
        for (key, call) in probe.windows.iter().flat_map(|w| w.calls.as_deref().unwrap()) {
            if key.netns == netns && key.remote_port == PORT {
                let sum = calls.entry(key.remote_address).or_default();
                *sum = [sum[0] + call.connects, sum[1] + call.started, sum[2] + call.answered];
            }
        }
        (calls, format!("{:?}", probe.net.losses()))
    });
    let (calls, losses) = told.join().unwrap();
    let expected = (0..SERVERS).map(|n| (address(n).to_ipv6_mapped(), [1, 1, 1])).collect();
    assert_eq!(calls.len(), usize::from(SERVERS), "{losses}");
    assert!(calls == expected, "each was connected to and asked once: {losses}");
}
