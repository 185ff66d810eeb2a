//! Systems made from seeds, as inputs of the analysis, for `make constants` and `make calibrate`: shapes, loads, causes, clocks and gaps that
//! nobody chose, so that rules are asked of more than what the laboratory can stage. `simulated FOLDER COUNT` writes `FOLDER/simulated N.inputs`
//! for each seed N, and beside it as `simulated N.truth` what was done to the system: to which host and workload, from when to when, and
//! which resources may be named for it.

#[path = "../tests/support/sim/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "the tests' simulator, used in part"
)]
mod sim;

use sim::{At, Do, Sim, SimClock};
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use tailwater_model::window::{Input, WINDOW_NS};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("simulated FOLDER COUNT")?);
    let count: u64 = arguments.next().ok_or("simulated FOLDER COUNT")?.to_string_lossy().parse()?;
    for seed in 1..=count {
        let system = system(seed);
        let truth = File::create(folder.join(format!("simulated {seed}.truth")))?;
        serde_json::to_writer(truth, &truth_of(&system))?;
        let trace = system.run();
        let mut out = BufWriter::new(File::create(folder.join(format!("simulated {seed}.inputs")))?);
        let mut tell = |input: &Input| {
            writeln!(out, "{}", serde_json::to_string(input)?).map_err(Box::<dyn Error>::from)
        };
        for name in &trace.names {
            tell(name)?;
        }
        let first = trace.windows.first().map_or(0, |w| w.index.0);
        tell(&Input::Tick { unix_ns: first * WINDOW_NS })?;
        for window in trace.windows {
            tell(&Input::Tick { unix_ns: (window.index.0 + 3) * WINDOW_NS })?;
            tell(&Input::Window(Arc::new(window)))?;
        }
        out.flush()?;
    }
    Ok(())
}

/// What was done to a system, as a list of `host`, `workload`, `from_unix_ns`, `to_unix_ns` and `resources`. The workload is the server that is
/// short of something, whoever took it. Times are the true ones, whatever its clocks say.
fn truth_of(sim: &Sim) -> serde_json::Value {
    let unix_ns = |ms: u64| sim.first_window * WINDOW_NS + ms * 1_000_000;
    let done = |(host, workload): (&str, &str), during: &std::ops::Range<u64>, resources: &[&str]| {
        serde_json::json!({
            "host": host,
            "workload": workload,
            "from_unix_ns": unix_ns(during.start),
            "to_unix_ns": unix_ns(during.end),
            "resources": resources,
        })
    };
    let web = ("web-1", "apache2.service");
    let acts = sim.acts.iter().map(|(at, during, what)| {
        let place = match at {
            At::Web => web,
            At::App => ("app-1", "tomcat10.service"),
            At::App2 => ("app-2", "tomcat10.service"),
            At::Db => ("db-1", "mariadb.service"),
        };
        let resources: &[&str] = match what {
            Do::Neighbour(_) => &["cpu_neighbour"],
            Do::Squeeze(_) => &["cpu_throttled"],
            Do::Pause => &["pause"],
            Do::Lock => &["lock"],
            Do::Disk => &["io"],
            Do::Unreached => &["network"],
            // It fills the tier's quota, and what is throttled then is by its own load.
            Do::Costly(_) => &["cpu", "cpu_throttled"],
        };
        done(place, during, resources)
    });
    let bursts = sim.bursts.iter().map(|(during, _)| done(web, during, &["burst"]));
    acts.chain(bursts).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `[low, high)`.
    fn of(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    /// Once in `n` times.
    fn once_in(&mut self, n: u64) -> bool {
        self.of(0, n) == 0
    }

    fn part(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn tier(&mut self) -> At {
        [At::Web, At::App, At::Db][self.of(0, 3) as usize]
    }
}

fn system(seed: u64) -> Sim {
    let mut random = Random(seed);
    let r = &mut random;
    let mut sim =
        Sim { seconds: 11, rate: r.part(600.0, 1000.0), app_work_ms: r.part(0.06, 0.15), ..Sim::default() };
    match r.of(0, 6) {
        0 => sim.web_workers = None,
        1 => {
            (sim.web_workers, sim.app_workers, sim.db_workers, sim.app_work_ms) = (None, None, Some(50), 0.02)
        }
        2 => sim.two_apps = true,
        3 => sim.polled = true,
        4 => (sim.db_threads, sim.backlogs) = (Some(r.of(4, 40) as usize), [64, 64, 64]),
        _ => {}
    }
    match r.of(0, 8) {
        0 | 1 => sim.observed[1] = false,
        2 => sim.observed[2] = false,
        _ => {}
    }
    if r.once_in(4) {
        for clock in &mut sim.clocks {
            let wrong_ms = r.of(0, 80) as i64 - 40;
            *clock =
                SimClock { ahead_ms: r.of(0, 60) as i64 - 30, wrong_ms, bound_ns: r.of(2, 60) * 1_000_000 };
        }
    }
    if r.once_in(6) {
        let at = r.of(4500, 7000);
        sim.gaps.push((r.tier(), at..at + r.of(50, 1500)));
    }
    if r.once_in(4) {
        let at = r.of(4500, 8000);
        sim.bursts.push((at..at + r.of(50, 600), r.part(1.5, 8.0)));
    }
    if r.once_in(12) {
        let at = r.of(4500, 7000);
        sim.flood = Some((at..at + r.of(100, 800), 1 + r.of(0, 4)));
    }
    // Up to three things happen, more often than not close together.
    let mut at = r.of(4000, 6500);
    for _ in 0..1 + r.of(0, 3) {
        let (tier, length) = (r.tier(), r.of(60, 900));
        let what = match r.of(0, 6) {
            0 | 1 => Do::Neighbour(r.part(0.5, 0.99)),
            2 => Do::Squeeze(r.part(0.02, 0.5)),
            3 => Do::Pause,
            4 if matches!(tier, At::Db) => [Do::Lock, Do::Disk][r.of(0, 2) as usize],
            _ => Do::Costly(r.part(1.5, 20.0)),
        };
        sim = sim.act(tier, at..at + length, what);
        at += r.of(0, 1800);
    }
    sim
}
