//! Nothing lost on the way to the disk, by simulation: one seed is one history of windows and incidents, of a disk that is full, syncs no
//! folder, loses the end of a file or is slow, of a database that does not answer, of kills at any step, of power cuts, and of a clock that
//! somebody sets. What takes, writes, keeps and reads is what runs: store, queue, writer, shelf and segments, and SQLite, on real files. No
//! thread or clock has a say. Owns the history; `held` is what must be true in it, `disk` what a power cut leaves of segments.
//!
//! Of the database a power cut takes the last part of its log, from any byte on, as long as nothing of the log went into its main file. Not
//! played: a power cut while SQLite moves its log there (a history is too short for it), pages of the main file that are torn, and a full
//! disk inside a write of SQLite beyond its own bound of pages.
//!
//! Faults that were in this store, and what is to tell of each if it comes back: a segment whose folder could not be synced was left in its
//! place and written again (`windows_turned`: bytes on the disk, and those that are counted); an incident that had left memory began its
//! versions anew and was never written (`incidents_turned`: it is another one on the disk); what waited while the database did not answer was
//! hidden by the older row (`incidents_turned`: an older version is shown). A file that is not synced before its name, or a name that is
//! not synced before its windows are let go, is told by `segments_began` after a power cut (written, and gone after a start), and retention that
//! removes before it keeps by `windows_turned` (gone, and around an incident) or after a kill.

mod disk;
mod held;

use super::shelf::Limits;
use super::writer::Writer;
use super::{FILE, Past, Prepared, Settings, Store, Wanted, prepare, segment_read};
use crate::clock::{Clock, Hands};
use crate::columns::Kind;
use crate::counters::Metrics;
use crate::fixture::incident as fixture;
use crate::live::events::Events;
use crate::live::series::Series;
use crate::lock::lock;
use disk::PlayedDisk;
use held::Counts;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tailwater_model::Incident;
use tailwater_model::incident::State;
use tailwater_model::window::{HostCpu, HostWindow, Input, ListenerWindow, WindowIndex};

const BEGIN_UNIX_NS: u64 = 1_794_000_000_000_000_000;
const STEPS: u32 = 120;
/// Seeds that every run repeats. New ones are for whoever looks for faults (`TAILWATER_SIM_SEEDS`).
const FIXED_SEEDS: u64 = 12;
/// Incidents in memory: few, so that many leave it and come again.
const IN_MEMORY: usize = 2;
/// Bytes of the open segment: some thirty windows.
const OPEN_BYTES: usize = 40_000;
/// Ten minutes of windows, of which some segments fit.
const LIMITS: Limits = Limits { age_ns: 600_000_000_000, bytes: 150_000, kept_bytes: 100_000 };
const HOSTS: [&str; 2] = ["app-1", "web-1"];
/// Where the database is while something else has its name.
const HIDDEN: &str = "hidden.db";
const EVER: (WindowIndex, WindowIndex) = (WindowIndex(0), WindowIndex(u64::MAX));

/// A window by its host and index, which say all that is in it.
type Key = (String, u64);
/// What was told last of each incident, by id.
type Titles = BTreeMap<String, String>;

/// A store that runs.
struct Running {
    store: Arc<Mutex<Store>>,
    past: Past,
    writer: Writer,
    series: Arc<Mutex<Series>>,
    metrics: Arc<Metrics>,
}

/// An incident that the analysis works on.
struct Case {
    id: String,
    start_unix_ns: u64,
    end_unix_ns: u64,
    over: bool,
}

struct World {
    seed: u64,
    dice: fastrand::Rng,
    hands: &'static Hands,
    clock: Clock,
    disk: Arc<PlayedDisk>,
    running: Running,
    /// Its files go with it.
    folder: tempfile::TempDir,
    /// The main file of the database when this life began.
    main: Vec<u8>,
    /// Bytes of the database's log that a power cut left, and the next one does, too.
    log_stays: usize,
    /// Something of the log is in the main file: what of the log a power cut may take is not known any more.
    checkpointed: bool,
    /// The database cannot be opened.
    is_hidden: bool,
    /// The disk is so slow that nothing is written until then.
    stalls_until: Instant,
    healing: bool,
    cases: Vec<Case>,
    made: u32,
    told: u32,
    /// Of the analysis, which counts from the start again after a restart.
    versions: BTreeMap<String, u64>,
    /// First and last moment of an incident, by the title of its version.
    moments: BTreeMap<String, (u64, u64)>,
    /// What memory was given last in this life.
    last: Titles,
    /// Of that, what nobody said is on the disk.
    unwritten: Titles,
    /// What is on the disk.
    rows: Titles,
    /// What was there after each turn, as far back as a power cut may go.
    commits: Vec<Titles>,
    sent: BTreeSet<Key>,
    /// In no segment yet, in their order.
    waiting: Vec<Key>,
    /// In some segment.
    kept: BTreeSet<Key>,
    /// The process died while it removed segments, and could not count them.
    died_removing: bool,
    /// And of that, some may have been around an incident: the bound of what is kept was reached, or only memory knew of incidents.
    around_may_go: bool,
}

fn window(host: &str, index: u64) -> HostWindow {
    // Whole microseconds, as they are kept.
    let n = |k: u64| (index.wrapping_mul(2_654_435_761).wrapping_add(k * 7_919) % 50_000) * 1_000;
    let mut window = HostWindow {
        host: host.to_owned(),
        index: WindowIndex(index),
        clock_error_ns: n(1),
        lost_before: index % 3,
        cpu: Some(HostCpu { capacity_ns: 100_000_000, busy_ns: n(2), ..HostCpu::default() }),
        ..HostWindow::default()
    };
    if index.is_multiple_of(4) {
        let (drops, response_ns) = (index % 11, n(host.len() as u64));
        let row = ListenerWindow { drops, limit: 128, answered: 3, response_ns, ..ListenerWindow::default() };
        window.listeners.insert(1, row);
    }
    window
}

fn key(window: &HostWindow) -> Key {
    (window.host.clone(), window.index.0)
}

impl Running {
    fn begin(folder: &Path, disk: &Arc<PlayedDisk>, clock: Clock) -> Self {
        let series = Arc::new(Mutex::new(Series::new(10, 1 << 24)));
        let metrics = Arc::new(Metrics::default());
        let settings = Settings {
            folder: folder.to_owned(),
            incidents_max: IN_MEMORY,
            segment_seconds: 60,
            windows_hours: 1,
            windows_mib_max: 1,
            kept_mib_max: 1,
        };
        let (of_series, of_metrics) = (Arc::clone(&series), Arc::clone(&metrics));
        let disk = Arc::<PlayedDisk>::clone(disk);
        let Prepared { store, past, mut writer, .. } =
            prepare(settings, of_series, Arc::default(), Events::default(), of_metrics, clock, disk);
        writer.limits = LIMITS;
        writer.open_bytes_max = OPEN_BYTES;
        Self { store, past, writer, series, metrics }
    }
}

impl World {
    fn begin(seed: u64) -> Self {
        let hands: &'static Hands = Box::leak(Box::new(Hands::at(BEGIN_UNIX_NS)));
        let clock = Clock::moved(hands);
        let folder = folder();
        let disk = Arc::new(PlayedDisk::new(folder.path()));
        let mut running = Running::begin(folder.path(), &disk, clock);
        running.writer.scan();
        let main = std::fs::read(folder.path().join(FILE)).unwrap();
        Self {
            seed,
            dice: fastrand::Rng::with_seed(seed),
            hands,
            clock,
            disk,
            running,
            folder,
            main,
            log_stays: 0,
            checkpointed: false,
            is_hidden: false,
            stalls_until: clock.monotonic(),
            healing: false,
            cases: Vec::new(),
            made: 0,
            told: 0,
            versions: BTreeMap::new(),
            moments: BTreeMap::new(),
            last: Titles::new(),
            unwritten: Titles::new(),
            rows: Titles::new(),
            commits: vec![Titles::new()],
            sent: BTreeSet::new(),
            waiting: Vec::new(),
            kept: BTreeSet::new(),
            died_removing: false,
            around_may_go: false,
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.dice.u32(0..n) == 0
    }

    fn again(&self) -> String {
        format!(
            "seed {0}: TAILWATER_SIM_SEED={0} cargo test --workspace --locked --lib store::simulation\n",
            self.seed
        )
    }

    /// One step of the analysis: an incident begins, or comes again, or is told once more.
    fn analysis(&mut self) {
        if self.cases.len() < 4 && self.one_in(3) {
            let comes_again = self.made > 0 && self.one_in(4);
            let n = if comes_again { self.dice.u32(0..self.made) } else { self.made };
            self.made = self.made.max(n + 1);
            let (id, now) = (format!("01SIM{n:05}"), self.clock.unix_ns());
            if self.cases.iter().all(|case| case.id != id) {
                self.cases.push(Case { id, start_unix_ns: now, end_unix_ns: now, over: false });
            }
        }
        if self.cases.is_empty() {
            return;
        }
        let (at, over, early) = (self.dice.usize(0..self.cases.len()), self.one_in(3), self.one_in(4));
        let now = self.clock.unix_ns();
        let case = &mut self.cases[at];
        case.end_unix_ns = case.end_unix_ns.max(now);
        case.over = over;
        let version = self.versions.get(&case.id).map_or(u64::from(!early), |before| before + 1);
        self.versions.insert(case.id.clone(), version);
        self.say(at, version);
        if over {
            self.cases.swap_remove(at);
        }
    }

    fn say(&mut self, at: usize, version: u64) {
        let case = &self.cases[at];
        self.told += 1;
        let title = format!("told as number {}", self.told);
        let incident = Incident {
            title: title.clone(),
            state: if case.over { State::Closed } else { State::Open },
            start_unix_ns: case.start_unix_ns,
            end_unix_ns: case.end_unix_ns,
            ..fixture(&case.id, version)
        };
        self.moments.insert(title.clone(), (case.start_unix_ns, case.end_unix_ns));
        let id = case.id.clone();
        let taken = lock(&self.running.store).put(incident, None);
        let taken = taken.unwrap_or_else(|| panic!("{}version {version} of {id} is not taken", self.again()));
        // An early alert is not kept on disk.
        if taken.version > 0 {
            self.last.insert(id.clone(), title.clone());
            self.unwritten.insert(id, title);
        }
    }

    /// Each host sends its newest windows.
    fn windows(&mut self) {
        let now = WindowIndex::at(self.clock.unix_ns()).0;
        for host in HOSTS {
            for index in now - self.dice.u64(0..3)..=now {
                let window = window(host, index);
                self.sent.insert(key(&window));
                self.waiting.push(key(&window));
                let kept = lock(&self.running.series).saw(&Input::Window(Arc::new(window)));
                self.running.past.queue.window(kept.unwrap());
            }
        }
    }

    /// The writer does what its thread would now.
    fn turn(&mut self) {
        let before = Counts::of(&self.running.metrics);
        let waited: BTreeSet<String> =
            self.running.writer.unwritten.keys().chain(self.unwritten.keys()).cloned().collect();
        self.running.writer.turn(Duration::ZERO);
        self.turned(before, &waited);
        if self.disk.has_ended() {
            self.restart(false);
        }
    }

    /// Where the database is.
    fn database(&self) -> PathBuf {
        self.folder.path().join(if self.is_hidden { HIDDEN } else { FILE })
    }

    /// The database takes no more, and cannot be opened again.
    fn hide(&mut self) {
        if self.is_hidden {
            return;
        }
        if let Some(db) = &self.running.writer.db {
            db.set_full(true).unwrap();
        }
        std::fs::rename(self.database(), self.folder.path().join(HIDDEN)).unwrap();
        std::fs::create_dir(self.folder.path().join(FILE)).unwrap();
        self.is_hidden = true;
    }

    fn show(&mut self) {
        if !self.is_hidden {
            return;
        }
        std::fs::remove_dir(self.folder.path().join(FILE)).unwrap();
        std::fs::rename(self.database(), self.folder.path().join(FILE)).unwrap();
        self.is_hidden = false;
        // Still open: nothing was to be written.
        if let Some(db) = &self.running.writer.db {
            db.set_full(false).unwrap();
        }
    }

    /// A medium loses the end of a file of a segment. Says which, and what is in it.
    fn rot(&mut self, disk: &PlayedDisk, folder: &Path) -> Option<(PathBuf, BTreeSet<Key>)> {
        let mut segments = segments(folder);
        segments.retain(|path| !is_half(path));
        if segments.is_empty() {
            return None;
        }
        let segment = segments.swap_remove(self.dice.usize(0..segments.len()));
        let mut windows = BTreeSet::new();
        let read = segment_read::of_all_hosts(&segment, EVER, Wanted::All, |input| {
            if let Input::Window(window) = input {
                windows.insert(key(&window));
            }
        });
        if let Err(why) = read {
            panic!("{}a segment is there in part: {why}", self.again());
        }
        let kinds = Kind::ALL;
        let path = segment.join(kinds[self.dice.usize(0..kinds.len())].file());
        let bytes = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
        disk.rots(&path, self.dice.usize(0..bytes));
        Some((segment, windows))
    }

    /// SIGKILL, or the machine loses its power; and a start after it.
    fn restart(&mut self, power_cut: bool) {
        let left = folder();
        let main = std::fs::read(self.database()).unwrap();
        let log_name = format!("{FILE}-wal");
        let mut log = std::fs::read(self.folder.path().join(&log_name)).unwrap_or_default();
        self.checkpointed |= main != self.main;
        let is_cut = power_cut && !self.checkpointed;
        if is_cut {
            let least = self.log_stays.min(log.len());
            self.log_stays = self.dice.usize(least..=log.len());
            log.truncate(self.log_stays);
        }
        let hidden = if self.is_hidden { self.dice.bool() } else { self.one_in(10) };
        let hidden = hidden && !power_cut && !self.healing;
        std::fs::write(left.path().join(if hidden { HIDDEN } else { FILE }), &main).unwrap();
        if !log.is_empty() {
            std::fs::write(left.path().join(&log_name), &log).unwrap();
        }
        if hidden {
            std::fs::create_dir(left.path().join(FILE)).unwrap();
        }
        let disk = Arc::new(self.disk.after(left.path(), power_cut.then_some(&mut self.dice)));
        let rots = !self.healing && self.one_in(5);
        let rotten = if rots { self.rot(&disk, left.path()) } else { None };
        let half: Vec<PathBuf> = segments(left.path()).into_iter().filter(|path| is_half(path)).collect();
        self.around_may_go |= half.iter().any(|path| path.starts_with(left.path().join("kept")));
        self.running = Running::begin(left.path(), &disk, self.clock);
        self.folder = left;
        self.disk = disk;
        self.is_hidden = hidden;
        self.main = std::fs::read(self.database()).unwrap();
        self.stalls_until = self.clock.monotonic();
        self.versions.clear();
        self.last.clear();
        self.unwritten.clear();
        self.waiting.clear();
        // The agents send again what was not acknowledged: some of what was open is found once more.
        let dice = &mut self.dice;
        self.cases.retain(|_| dice.bool());
        if !hidden {
            self.database_began(is_cut);
        }
        if rotten.is_none() && !self.healing && self.one_in(10) {
            self.disk.end_after(Some(self.dice.u64(0..8)));
        }
        self.running.writer.scan();
        if self.disk.has_ended() {
            return self.restart(false);
        }
        self.segments_began(half.len() as u64, rotten);
    }

    fn step(&mut self) {
        match self.dice.u32(0..100) {
            0..=34 => self.analysis(),
            35..=79 => self.windows(),
            80..=82 => self.restart(false),
            83..=85 => self.restart(true),
            86..=87 => self.disk.set_room(self.dice.u64(0..60_000)),
            88..=91 => self.disk.set_room(u64::MAX),
            92..=93 => self.disk.refuse_sync(self.dice.u64(0..2)),
            94 => self.hide(),
            95..=96 => self.show(),
            97 => {
                let stalls = Duration::from_millis(self.dice.u64(0..30_000));
                self.stalls_until = self.clock.monotonic() + stalls;
            }
            98 => {
                let (now, by) = (self.clock.unix_ns(), self.dice.u64(0..1_200_000_000_000));
                self.hands.set(if self.dice.bool() { now + by } else { now - by });
            }
            _ => self.disk.end_after(Some(self.dice.u64(0..80))),
        }
        let most = if self.one_in(10) { 60_000 } else { 9_000 };
        self.hands.pass(Duration::from_millis(self.dice.u64(0..=most)));
        if self.stalls_until <= self.clock.monotonic() {
            self.turn();
        }
    }

    /// A while in which nothing happens any more that is not healed.
    fn settle(&mut self) {
        self.hands.pass(Duration::from_secs(2));
        self.turn();
        self.hands.pass(Duration::from_secs(61));
        self.turn();
        self.hands.pass(Duration::from_secs(2));
        self.turn();
    }

    fn run(mut self) {
        (0..STEPS).for_each(|_| self.step());
        self.healing = true;
        self.disk.heal();
        self.show();
        self.windows();
        self.analysis();
        self.settle();
        self.nothing_waits();
        // An end in good order, with something to write.
        self.windows();
        self.analysis();
        lock(&self.running.store).close();
        self.turn();
        self.nothing_waits();
        // And it goes on.
        self.restart(false);
        self.windows();
        self.analysis();
        self.settle();
        self.nothing_waits();
    }
}

/// In memory where that can be: nothing here is to survive this machine.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// All that is where segments are, in order.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let lists = ["windows", "kept"].map(|below| std::fs::read_dir(folder.join(below)));
    let mut all: Vec<PathBuf> =
        lists.into_iter().flatten().flatten().map(|item| item.unwrap().path()).collect();
    all.sort();
    all
}

fn is_half(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "tmp")
}

#[test]
fn whatever_happens_what_was_kept_is_read_or_counted_and_the_store_goes_on() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("TAILWATER_SIM_SEED") {
        return World::begin(seed).run();
    }
    let (first, new) = (RandomState::new().hash_one(0) >> 1, number("TAILWATER_SIM_SEEDS").unwrap_or(0));
    (0..FIXED_SEEDS).chain(first..first + new).for_each(|seed| World::begin(seed).run());
}
