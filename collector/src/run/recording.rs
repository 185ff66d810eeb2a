//! Recordings of the pipeline's inputs: who listens to them, what they begin with, and the thread that writes one to a file.
//! Never blocks the pipeline: a record that a listener has no room for is left out, counted, and told in the log.

use crate::counters::Metrics;
use crate::ingest::feed::TAP_RECORDS_MAX;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use tailwater_proto::trace::{MAGIC, encode_arrival, encode_record};
use tailwater_proto::v1::{
    self, AgentMessage, Arrival, Entities, TraceHeader, TraceRecord, agent_message::Body as Said,
    trace_record::Body,
};

/// Entities of one kind remembered per host, as many as `convert` maps.
const NAMES_MAX: usize = tailwater_model::names::ENTITIES_PER_HOST_MAX;

/// What is known of hosts by name: what a recording that begins now must begin with.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, HostNames>);

#[derive(Debug, Default)]
struct HostNames {
    arrival: Arrival,
    hello: v1::Hello,
    workloads: BTreeMap<u32, v1::Workload>,
    listeners: BTreeMap<u32, v1::Listener>,
    edges: BTreeMap<u32, v1::Edge>,
    devices: BTreeMap<u32, v1::Device>,
}

fn keep<T: Clone>(into: &mut BTreeMap<u32, T>, from: &[T], gone: &[u32], id: impl Fn(&T) -> u32) {
    for entity in from {
        if into.len() < NAMES_MAX || into.contains_key(&id(entity)) {
            into.insert(id(entity), entity.clone());
        }
    }
    for id in gone {
        into.remove(id);
    }
}

impl Names {
    /// Whether nothing is known of a host.
    pub fn is_new(&self, host: &str) -> bool {
        !self.0.contains_key(host)
    }

    /// Forgets hosts that nobody knows any more.
    pub fn forget(&mut self, known: impl Fn(&str) -> bool) {
        self.0.retain(|host, _| known(host));
    }

    /// A Hello or Entities arrived.
    pub fn said(&mut self, arrival: &Arrival, said: Said) {
        let names = self.0.entry(arrival.host.clone()).or_default();
        if names.arrival.agent_instance != arrival.agent_instance {
            *names = HostNames::default();
        }
        names.arrival = arrival.clone();
        match said {
            Said::Hello(hello) => names.hello = hello,
            Said::Entities(e) => {
                keep(&mut names.workloads, &e.workloads, &e.gone_workloads, |w| w.id);
                keep(&mut names.listeners, &e.listeners, &e.gone_listeners, |l| l.id);
                keep(&mut names.edges, &e.edges, &e.gone_edges, |e| e.id);
                keep(&mut names.devices, &e.devices, &e.gone_devices, |d| d.id);
            }
            _ => {}
        }
    }

    fn records(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.0.values().flat_map(|names| {
            let entities = Entities {
                workloads: names.workloads.values().cloned().collect(),
                listeners: names.listeners.values().cloned().collect(),
                edges: names.edges.values().cloned().collect(),
                devices: names.devices.values().cloned().collect(),
                ..Entities::default()
            };
            [Said::Hello(names.hello.clone()), Said::Entities(entities)].map(|said| {
                let message = Some(AgentMessage { body: Some(said) });
                encode_record(&TraceRecord {
                    body: Some(Body::Arrival(Arrival { message, ..names.arrival.clone() })),
                })
            })
        })
    }
}

/// Who listens to the inputs.
#[derive(Debug)]
pub struct Taps {
    taps: Vec<SyncSender<Vec<u8>>>,
    configuration_toml: String,
    metrics: Arc<Metrics>,
    complained: bool,
}

impl Taps {
    /// Nobody yet. The configuration goes into each header, so that a replay runs with the same.
    #[must_use]
    pub fn new(configuration_toml: String, metrics: Arc<Metrics>) -> Self {
        Self { taps: Vec::new(), configuration_toml, metrics, complained: false }
    }

    /// Another listener; it gets a file's beginning first.
    pub fn add(&mut self, tap: SyncSender<Vec<u8>>, names: &Names) {
        let header = TraceHeader {
            version: 1,
            collector_version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration_toml: self.configuration_toml.clone(),
        };
        let mut start = MAGIC.to_vec();
        start.extend(encode_record(&TraceRecord { body: Some(Body::Header(header)) }));
        names.records().for_each(|record| start.extend(record));
        if tap.try_send(start).is_ok() {
            self.taps.push(tap);
        }
    }

    /// An arrival, with its message as it came.
    pub fn arrival(&mut self, arrival: &Arrival, raw: &[u8]) {
        if !self.taps.is_empty() {
            self.send(&encode_arrival(arrival, raw));
        }
    }

    /// Any other record.
    pub fn record(&mut self, record: &TraceRecord) {
        if !self.taps.is_empty() {
            self.send(&encode_record(record));
        }
    }

    fn send(&mut self, record: &[u8]) {
        let (metrics, complained) = (&self.metrics, &mut self.complained);
        self.taps.retain(|tap| match tap.try_send(record.to_vec()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                metrics.trace_records_dropped.inc();
                if !std::mem::replace(complained, true) {
                    tracing::error!("a recording cannot keep up: it misses inputs from here on, and its replay will differ");
                }
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
    }
}

/// Why a recording could not begin.
#[derive(Debug, thiserror::Error)]
#[error("record to {}: {source}\n  remedy: give a path in an existing folder with room", path.display())]
pub struct RecordError {
    path: PathBuf,
    source: std::io::Error,
}

/// Starts a thread that writes to `path` until the pipeline ends.
pub fn to_file(path: &Path) -> Result<(SyncSender<Vec<u8>>, std::thread::JoinHandle<()>), RecordError> {
    let failed = |source| RecordError { path: path.to_owned(), source };
    let mut file = BufWriter::with_capacity(1 << 18, File::create(path).map_err(failed)?);
    let (tap, records) = sync_channel::<Vec<u8>>(TAP_RECORDS_MAX);
    let name = path.display().to_string();
    let thread = std::thread::Builder::new()
        .name("record".into())
        .spawn(move || {
            // Whatever waits is written at once, then flushed: a reader beside it, or a crash, misses one round.
            while let Ok(first) = records.recv() {
                let round = std::iter::once(first).chain(records.try_iter());
                let written = round.into_iter().try_for_each(|record| file.write_all(&record));
                if let Err(e) = written.and_then(|()| file.flush()) {
                    tracing::error!("recording {name} ends here: {e}");
                    return;
                }
            }
        })
        .map_err(failed)?;
    Ok((tap, thread))
}
