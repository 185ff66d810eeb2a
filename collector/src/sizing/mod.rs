//! What pools should be, learnt from the traffic that is seen: time in state of every listener, joined with the windows of the same
//! seconds. A thread of its own takes both from a bounded queue, so nothing of it is on the way of an alert. This file owns the queue, the
//! thread, and when advice is worked out and kept; `hosts` and `second` join, `learners` learns, `setup` holds a change against what was before, `ends` remembers which hardware ends throughput, `short` by how much it is too little, `stealing` who takes CPU from whom in one cgroup, `told` says it, `metrics` counts it, `kept` is the disk.

mod ceilings;
mod changed;
mod ends;
mod hosts;
mod kept;
mod learned;
mod learners;
mod metrics;
mod moment;
mod names;
mod peaks;
mod queue;
mod second;
mod sentence;
mod servers;
mod setup;
mod short;
mod stealing;
mod taint;
mod told;
mod who;

use crate::clock::Clock;
use crate::counters::{Counter, Labelled, counter, gauge, labels};
use crate::lock::lock;
use ends::Ends;
use hosts::Hosts;
use learners::{Counts, Learners};
use queue::{Dropped, Span, Taken, Waiting};
use second::{Seen, Unjoined};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stealing::Stealing;
use tailwater_model::advice::AdviceView;
use tailwater_model::window::{HostWindow, Input, WindowIndex};
use tailwater_model::{Incident, TopologyView};
use who::Who;

/// How often the thread looks into its queue.
const TAKE_EVERY: Duration = Duration::from_secs(1);
/// How often advice is worked out.
const ADVISE_EVERY: Duration = Duration::from_secs(60);
/// And at the most, however often it is asked for.
const ADVISE_PAUSE: Duration = Duration::from_secs(5);
/// Whoever asks gets what is there after this, if the thread is busy.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// How often what was learnt is written.
const KEEP_EVERY: Duration = Duration::from_secs(300);
/// Windows that are taken between two looks for seconds that can be judged.
const JUDGE_EVERY: usize = 20;
/// Incidents that are kept until no second that waits can be theirs (a minute).
const INCIDENT_NS: u64 = 60_000_000_000;
/// Incidents at once.
const INCIDENTS_MAX: usize = 4096;

/// The pure part: what is known, and what was learnt.
#[derive(Debug, Default)]
struct Learning {
    hosts: Hosts,
    who: Who,
    incidents: BTreeMap<String, Span>,
    learners: Learners,
    ends: Ends,
    stealing: Stealing,
    /// Whether time in state was ever told.
    states: bool,
}

/// What is told to those who ask.
#[derive(Debug, Default)]
struct Told {
    view: Arc<AdviceView>,
    made: Option<Instant>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Waiting,
    /// Somebody asked for advice that is newer.
    asked: bool,
    open: bool,
}

/// The way in, and what is told. One per collector, in its metrics.
#[derive(Debug)]
pub struct Sizing {
    queue: Mutex<Queue>,
    wake: Condvar,
    topology: Arc<Mutex<Arc<TopologyView>>>,
    /// Of the thread alone, or of whoever hands over a recording.
    learning: Mutex<Learning>,
    counts: Mutex<Counts>,
    told: Mutex<Told>,
    made: Condvar,
    /// Everything is learnt by whoever hands it over: a recording is read as fast as that goes.
    at_once: bool,
    clock: Clock,
    dropped: Dropped,
    unjoined: Labelled,
    failures: Counter,
}

impl Default for Sizing {
    /// One that is never told anything.
    fn default() -> Self {
        Self::of(Arc::default(), Clock::default(), false)
    }
}

impl Sizing {
    fn of(topology: Arc<Mutex<Arc<TopologyView>>>, clock: Clock, at_once: bool) -> Self {
        let unjoined = Labelled::default();
        Unjoined::ALL.iter().for_each(|why| unjoined.add(why.name(), 0));
        Self {
            queue: Mutex::default(),
            wake: Condvar::new(),
            topology,
            learning: Mutex::default(),
            counts: Mutex::new(Learners::default().counts()),
            told: Mutex::default(),
            made: Condvar::new(),
            at_once,
            clock,
            dropped: Dropped::default(),
            unjoined,
            failures: Counter::default(),
        }
    }

    /// One that learns on a thread of its own, once it is started; names of tiers are those of `topology`.
    #[must_use]
    pub fn new(topology: Arc<Mutex<Arc<TopologyView>>>, clock: Clock) -> Self {
        Self::of(topology, clock, false)
    }

    /// One that learns where it is told something, for a recording, and works advice out when that ends ([`Sizing::settle`]).
    #[must_use]
    pub fn at_once(topology: Arc<Mutex<Arc<TopologyView>>>) -> Self {
        Self::of(topology, Clock::default(), true)
    }

    /// On the ingest path: never waits. When the thread is behind, the oldest go, with a counter.
    pub fn saw(&self, input: &Input, kept: Option<&Arc<HostWindow>>) {
        let mut queue = lock(&self.queue);
        if queue.open || self.at_once {
            queue.waiting.saw(input, kept, &self.dropped);
        }
        if self.at_once && matches!(input, Input::Tick { .. } | Input::States(_) | Input::Shares(_)) {
            let taken = queue.waiting.take();
            drop(queue);
            self.learn(taken, false);
        }
    }

    /// A version of an incident, on the analysis' thread.
    pub fn incident(&self, incident: &Incident) {
        let mut queue = lock(&self.queue);
        if queue.open || self.at_once {
            queue.waiting.incident(incident, &self.dropped);
        }
    }

    /// Takes over what was kept in `folder`, and starts the thread, which ends after [`Sizing::close`] and writes there.
    pub fn start(self: &Arc<Self>, folder: PathBuf) -> std::io::Result<std::thread::JoinHandle<()>> {
        lock(&self.queue).open = true;
        let sizing = Arc::clone(self);
        std::thread::Builder::new().name("sizing".into()).spawn(move || sizing.run(&folder))
    }

    /// Nothing more comes.
    pub fn close(&self) {
        lock(&self.queue).open = false;
        self.wake.notify_all();
    }

    /// A recording has ended at this moment: what waits is learnt, and advice worked out.
    pub fn settle(&self, at_unix_ns: u64) {
        let taken = lock(&self.queue).waiting.take();
        self.learn(taken, true);
        self.advise(at_unix_ns);
    }

    /// The newest advice; a newer one is worked out first if that is some seconds old. Waits for the thread, so this is nothing for
    /// a thread that must not.
    #[must_use]
    pub fn advice(&self) -> Arc<AdviceView> {
        let told = lock(&self.told);
        let before = told.made;
        let is_new = before.is_some_and(|made| self.clock.monotonic() < made + ADVISE_PAUSE);
        if is_new || !self.ask() {
            return Arc::clone(&told.view);
        }
        let made = self.made.wait_timeout_while(told, ASK_WITHIN, |told| told.made == before);
        Arc::clone(&made.unwrap_or_else(PoisonError::into_inner).0.view)
    }

    /// Asks the thread; `false`: there is none.
    fn ask(&self) -> bool {
        let mut queue = lock(&self.queue);
        queue.asked = queue.open;
        self.wake.notify_all();
        queue.open
    }

    fn run(&self, folder: &std::path::Path) {
        self.load(folder);
        let (mut advised, mut kept) = (None, self.clock.monotonic());
        loop {
            let (taken, asked, open) = {
                let queue = lock(&self.queue);
                let (mut queue, _) = self
                    .wake
                    .wait_timeout_while(queue, TAKE_EVERY, |q| q.open && !q.asked)
                    .unwrap_or_else(PoisonError::into_inner);
                (queue.waiting.take(), std::mem::take(&mut queue.asked), queue.open)
            };
            self.learn(taken, !open);
            let now = self.clock.monotonic();
            let due = advised.is_none_or(|at| now >= at + ADVISE_EVERY) && lock(&self.counts).listeners > 0;
            if open && (asked || due) {
                advised = Some(now);
                self.advise(self.clock.unix_ns());
            }
            if !open || now >= kept + KEEP_EVERY {
                kept = now;
                self.keep(folder);
            }
            if !open {
                return;
            }
        }
    }

    fn learn(&self, taken: Taken, all: bool) {
        let topology = Arc::clone(&lock(&self.topology));
        let mut learning = lock(&self.learning);
        learning.who.update(&topology);
        let Taken { names, windows, states, shares, incidents } = taken;
        learning.incidents.extend(incidents);
        for input in names {
            if !learning.hosts.said(input) {
                self.dropped.names.inc();
            }
        }
        learning.states |= !states.is_empty();
        for of in states {
            if !learning.hosts.states(of) {
                self.dropped.states.inc();
            }
        }
        for (n, window) in windows.into_iter().enumerate() {
            if !learning.hosts.window(window) {
                self.dropped.windows.inc();
            }
            if n % JUDGE_EVERY == JUDGE_EVERY - 1 {
                learning.judge(false, &self.unjoined);
            }
        }
        for of in shares {
            let Learning { hosts, who, stealing, .. } = &mut *learning;
            if !stealing.take(hosts, who, &of) {
                self.dropped.shares.inc();
            }
        }
        let Learning { hosts, stealing, .. } = &mut *learning;
        stealing.check(hosts);
        stealing.forget(hosts.newest());
        learning.judge(all, &self.unjoined);
        *lock(&self.counts) = learning.learners.counts();
    }

    fn advise(&self, now_unix_ns: u64) {
        let view = {
            let learning = lock(&self.learning);
            let Learning { learners, ends, stealing, who, states, .. } = &*learning;
            let view = told::view(learners, ends, who, *states, now_unix_ns);
            let stealing = stealing.told();
            let nothing = view.nothing.filter(|_| stealing.is_empty());
            AdviceView { nothing, stealing, ..view }
        };
        let mut told = lock(&self.told);
        told.view = Arc::new(view);
        told.made = Some(self.clock.monotonic());
        self.made.notify_all();
    }

    fn load(&self, folder: &std::path::Path) {
        match kept::read(folder) {
            Ok(None) => {}
            Ok(Some(listeners)) => lock(&self.learning).learners = Learners::from_kept(listeners),
            Err(why) => {
                self.failures.inc();
                match kept::put_aside(folder) {
                    Ok(to) => tracing::error!("{why}: moved to {}; sizes are learnt anew", to.display()),
                    Err(e) => {
                        tracing::error!("{why}; and it cannot be moved aside: {e}; sizes are learnt anew")
                    }
                }
            }
        }
    }

    fn keep(&self, folder: &std::path::Path) {
        if let Err(why) = kept::write(folder, &lock(&self.learning).learners.to_keep()) {
            self.failures.inc();
            tracing::warn!("{why}: what was learnt of sizes is not kept, and would be lost with a restart");
        }
    }

    /// Bytes of windows that wait for the thread, and at most may.
    #[must_use]
    pub fn fill(&self) -> (usize, usize) {
        lock(&self.queue).waiting.fill()
    }

    /// Appends what it says of itself and of pools, as OpenMetrics text.
    pub fn render(&self, out: &mut String) {
        metrics::render(&lock(&self.told).view, out);
        let one = |value: f64| vec![(String::new(), value)];
        let Counts { listeners, refused, bytes, seconds } = lock(&self.counts).clone();
        gauge(out, "sizing_listeners", "Listeners whose best size is learnt.", &one(listeners as f64));
        gauge(
            out,
            "sizing_listeners_refused",
            "Listeners that are not learnt, because of the limit on them.",
            &one(refused as f64),
        );
        gauge(out, "sizing_bytes", "Memory of what was learnt, about.", &one(bytes as f64));
        let seconds: Vec<_> =
            seconds.iter().map(|(taint, n)| (labels(&[("of", taint)]), *n as f64)).collect();
        counter(
            out,
            "sizing_listener_seconds",
            "Seconds of listeners that were judged: clean ones are learnt, others left out for what they are told by; one with two reasons counts for both.",
            &seconds,
        );
        let unjoined: Vec<_> = Unjoined::ALL
            .map(|why| (labels(&[("reason", why.name())]), self.unjoined.get(why.name()) as f64))
            .into();
        counter(
            out,
            "sizing_unjoined_seconds",
            "Seconds of listeners without a name, or without a window of theirs.",
            &unjoined,
        );
        let Dropped { windows, states, shares, names, incidents } = &self.dropped;
        let dropped: Vec<_> = [
            ("windows", windows),
            ("states", states),
            ("shares", shares),
            ("names", names),
            ("incidents", incidents),
        ]
        .map(|(what, n)| (labels(&[("what", what)]), n.get() as f64))
        .into();
        counter(out, "sizing_dropped", "What was not learnt from because its thread was behind.", &dropped);
        counter(
            out,
            "sizing_file_failures",
            "What was learnt could not be written or read.",
            &one(self.failures.get() as f64),
        );
    }
}

impl Learning {
    /// Learns from the seconds that can be judged now.
    fn judge(&mut self, all: bool, unjoined: &Labelled) {
        let due = self.hosts.due(all);
        if due.is_empty() {
            return;
        }
        for states in &due {
            for of in &states.listeners {
                let seen = Seen { hosts: &self.hosts, who: &self.who, incidents: &self.incidents };
                match seen.join(states, of) {
                    Ok(second) => {
                        self.learners.learn(&second);
                        let first = states.last.0.saturating_sub(u64::from(states.windows) - 1);
                        self.ends.take(&self.hosts, &self.who, &second.server, first, states.last.0);
                    }
                    Err(why) => unjoined.inc(why.name()),
                }
            }
        }
        let now = WindowIndex(self.hosts.newest()).end_unix_ns();
        self.learners.forget(now);
        self.ends.forget(self.hosts.newest());
        self.hosts.sweep();
        let oldest = now.saturating_sub(INCIDENT_NS);
        self.incidents.retain(|_, span| span.open || span.end_unix_ns >= oldest);
        while self.incidents.len() > INCIDENTS_MAX {
            self.incidents.pop_first();
        }
    }
}
