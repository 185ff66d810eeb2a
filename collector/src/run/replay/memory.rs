//! What a replay says, kept as a collector that ran then would have kept it: incidents with their timelines, windows, topology, and who
//! reported. Bounded: the oldest windows and the oldest closed incidents go first, and what went is told.

use super::Hears;
use crate::alert::Alerts;
use crate::counters::Metrics;
use crate::ingest::offset::OffsetEstimate;
use crate::ingest::registry::{HOSTS_MAX, Lease, Registry};
use crate::live::events::Events;
use crate::live::series::Series;
use crate::run::config::Config;
use crate::run::outlet::Outlet;
use crate::run::provisional::Provisionals;
use crate::serve::{Recording, Shown};
use crate::sizing::Sizing;
use crate::store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tailwater_analysis::{Output, Pipeline};
use tailwater_model::window::{Input, WINDOW_NS, WindowIndex};
use tailwater_proto::v1::{self, Arrival, agent_message::Body as Said};

/// A host whose last window is older than this at the end was away: agents send every window within a second.
const AWAY_NS: u64 = 5_000_000_000;
/// Windows are bounded by their bytes alone.
const SERIES_MINUTES: u64 = 60 * 24 * 366;

/// See above.
pub(super) struct Memory {
    pub(super) shown: Shown,
    pub(super) registry: Arc<Registry>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) sizing: Arc<Sizing>,
    outlet: Outlet,
    leases: BTreeMap<String, Lease>,
    /// First and last moment with a window of each host.
    spans: BTreeMap<String, (u64, u64)>,
    incidents: BTreeSet<String>,
}

impl Memory {
    /// Bounded as `config` says.
    pub(super) fn new(config: &Config) -> Self {
        let metrics = Arc::new(Metrics::default());
        let series = Arc::new(Mutex::new(Series::new(SERIES_MINUTES, config.series_mib_max << 20)));
        let live = Events::default();
        let (store, past) =
            store::in_memory(config.incidents_max, Arc::clone(&series), live.clone(), &metrics);
        let (topology, congestion) = (Arc::default(), Arc::default());
        let shown = Shown { store, past, series, topology, congestion, live };
        let sizing = Arc::new(Sizing::at_once(Arc::clone(&shown.topology)));
        let outlet = Outlet {
            shown: shown.clone(),
            metrics: Arc::clone(&metrics),
            // Nobody is woken by what was.
            export: Arc::default(),
            sizing: Arc::clone(&sizing),
            traces: Arc::default(),
            alerts: Alerts::nobody(&Arc::default()),
            provisionals: Provisionals::default(),
        };
        Self {
            shown,
            registry: Arc::new(Registry::new(HOSTS_MAX)),
            metrics,
            sizing,
            outlet,
            leases: BTreeMap::new(),
            spans: BTreeMap::new(),
            incidents: BTreeSet::new(),
        }
    }

    /// The newest moment with a window so far.
    pub(super) fn end_unix_ns(&self) -> u64 {
        self.spans.values().map(|span| span.1).max().unwrap_or(0)
    }

    /// The recording ends. `None`: it holds no window.
    pub(super) fn settle(&mut self, pipeline: &Pipeline) -> Option<Recording> {
        let start_unix_ns = self.spans.values().map(|span| span.0).min()?;
        let end_unix_ns = self.end_unix_ns();
        for (host, lease) in &self.leases {
            let newest = self.spans.get(host).map_or(0, |span| span.1);
            if end_unix_ns.saturating_sub(newest) > AWAY_NS {
                lease.end(newest);
            }
        }
        self.outlet.topology(pipeline.topology());
        self.outlet.congestion(pipeline.congestion());
        self.sizing.settle(end_unix_ns);
        let (names, gone, held) = {
            let series = self.shown.series.lock().unwrap_or_else(PoisonError::into_inner);
            let known =
                |host: &String| ((host.clone(), series.names(host)), (host.clone(), series.gone(host)));
            let (names, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = self.spans.keys().map(known).unzip();
            let held = series.hosts().filter_map(|host| series.span(host)).map(|(first, _)| first).min();
            (names, gone, held.map_or(end_unix_ns, WindowIndex::start_unix_ns))
        };
        let view = Arc::clone(&self.shown.topology.lock().unwrap_or_else(PoisonError::into_inner));
        self.shown.past.remember(&self.spans, &names, &gone, &view);
        let kept = self.shown.store.lock().unwrap_or_else(PoisonError::into_inner).settle();
        Some(Recording {
            file: String::new(),
            start_unix_ns,
            end_unix_ns,
            windows_from_unix_ns: held.max(start_unix_ns),
            incidents: kept,
            incidents_dropped: self.incidents.len().saturating_sub(kept),
            records: 0,
            torn: None,
            refused: 0,
        })
    }

    /// Another boot or program of a host speaks for it from now on.
    fn hello(&mut self, arrival: &Arrival, hello: &v1::Hello) {
        if let Some(before) = self.leases.remove(&arrival.host) {
            before.end(arrival.arrival_unix_ns);
        }
        // Beyond as many hosts as a collector takes, their windows are there without who sent them.
        if let Ok(lease) = self.registry.take(hello, "recording", arrival.arrival_unix_ns) {
            self.leases.insert(arrival.host.clone(), lease);
        }
    }
}

impl Hears for Memory {
    fn arrived(&mut self, arrival: &Arrival, said: &Said) {
        if let Said::Hello(hello) = said {
            self.hello(arrival, hello);
        }
        let Some(lease) = self.leases.get(&arrival.host) else { return };
        let mut slot = lease.slot();
        slot.offset = OffsetEstimate::default();
        slot.offset.report(arrival.clock_offset_ns, arrival.clock_error_ns);
        if let Said::Batch(batch) = said {
            slot.batches += 1;
            slot.windows_lost += batch.windows_lost;
            slot.last_sequence = slot.last_sequence.max(batch.sequence);
            let end = batch.first_window.saturating_add(batch.window_count.into()).saturating_mul(WINDOW_NS);
            let end = end.saturating_add_signed(arrival.clock_offset_ns);
            slot.newest_window_end_unix_ns = slot.newest_window_end_unix_ns.max(end);
        }
    }

    fn saw(&mut self, input: &Input) {
        if let Input::Window(window) = input {
            let (from, to) = (window.index.start_unix_ns(), window.index.end_unix_ns());
            match self.spans.get_mut(&window.host) {
                Some(span) => *span = (span.0.min(from), span.1.max(to)),
                None => drop(self.spans.insert(window.host.clone(), (from, to))),
            }
        }
        self.outlet.saw(input);
    }

    fn looks(&mut self, pipeline: &Pipeline) {
        self.outlet.topology(pipeline.topology());
    }

    fn said(&mut self, output: Output) {
        if let Output::Incident(incident) = &output
            && !self.incidents.contains(&incident.id)
        {
            self.incidents.insert(incident.id.clone());
        }
        self.outlet.output(output, None);
    }
}
