//! `tailwater replay`: a recorded trace through the same conversion and the same pipeline, to the same bytes. Owns the shuffling
//! of arrivals for tests; knows no clock.

use crate::convert::Converter;
use crate::series::Series;
use crate::timeline::{self, Timeline};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use tailwater_analysis::incident::State;
use tailwater_analysis::model::{Input, WINDOW_NS};
use tailwater_analysis::{Config, Incident, Output, Pipeline};
use tailwater_proto::trace::{TraceError, TraceReader};
use tailwater_proto::v1::{TraceHeader, TraceRecord, agent_message::Body as Said, trace_record::Body};

/// Windows kept for timelines: more than the longest incident with all that belongs to it.
const SERIES_MINUTES: u64 = 10;
/// Memory they may take.
const SERIES_BYTES_MAX: usize = 256 << 20;

/// What a replay found.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Final version of each incident, by start and id.
    pub incidents: Vec<Incident>,
    /// Records read.
    pub records: u64,
    /// Set when the trace ends inside a record.
    pub torn: Option<String>,
    /// What each incident looked like in time, by id, if asked for; computed when it closes, as in the live collector.
    pub timelines: BTreeMap<String, Timeline>,
    /// Messages that did not convert; the live collector refused the like.
    pub refused: u64,
}

impl Replayed {
    /// One incident per line.
    pub fn write(&self, out: &mut impl Write) -> Result<()> {
        for incident in &self.incidents {
            serde_json::to_writer(&mut *out, incident)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(())
    }
}

/// Replays a trace. `config` replaces the one it was recorded with; `shuffle` delays batches at random within the lateness bound;
/// `timelines`: also keeps the windows that they are made of.
pub fn replay(
    input: impl BufRead,
    config: Option<Config>,
    shuffle: Option<u64>,
    timelines: bool,
) -> Result<Replayed> {
    let mut result = Replayed::default();
    let mut header = None;
    let mut bodies = Vec::new();
    for record in TraceReader::new(input)? {
        let record = match record {
            Ok(record) => record,
            Err(torn @ TraceError::TornTail { .. }) => {
                result.torn = Some(torn.to_string());
                break;
            }
            Err(e) => return Err(e.into()),
        };
        result.records += 1;
        match record {
            TraceRecord { body: Some(Body::Header(h)) } => header = Some(h),
            TraceRecord { body: Some(body) } => bodies.push(body),
            TraceRecord { body: None } => {}
        }
    }
    let config = match config {
        Some(config) => config,
        None => recorded_config(header)?,
    };
    if let Some(seed) = shuffle {
        bodies = shuffled(bodies, config.lateness_ns, seed);
    }
    let mut pipeline = Pipeline::new(config);
    let mut converters: BTreeMap<String, Converter> = BTreeMap::new();
    let mut last: BTreeMap<String, Incident> = BTreeMap::new();
    let mut series = timelines.then(|| Series::new(SERIES_MINUTES, SERIES_BYTES_MAX));
    let mut timelines = BTreeMap::new();
    let mut take = |outputs: Vec<Output>, series: Option<&Series>| {
        for output in outputs {
            if let Output::Alert(incident) | Output::Incident(incident) = output {
                let long = incident.end_unix_ns.saturating_sub(incident.start_unix_ns) > timeline::SPAN_NS;
                let due = incident.state == State::Closed || long;
                let known = long && timelines.contains_key(&incident.id);
                if let Some(series) = series.filter(|_| due && !known) {
                    timelines.insert(incident.id.clone(), timeline::of(&incident, series));
                }
                last.insert(incident.id.clone(), *incident);
            }
        }
    };
    for body in bodies {
        match body {
            Body::TickUnixNs(unix_ns) => take(pipeline.feed(Input::Tick { unix_ns }), series.as_ref()),
            Body::Arrival(arrival) => {
                let Some(said) = arrival.message.and_then(|m| m.body) else { continue };
                let converter =
                    converters.entry(arrival.host.clone()).or_insert_with(|| Converter::new(&arrival.host));
                if let Some(shift) = arrival.window_shift {
                    converter.adopt_window_shift(shift);
                }
                match converter.message(&said, arrival.clock_offset_ns, arrival.clock_error_ns) {
                    Ok(inputs) => {
                        for input in inputs {
                            if let Some(series) = &mut series {
                                series.saw(&input);
                            }
                            take(pipeline.feed(input), series.as_ref());
                        }
                    }
                    Err(_) => result.refused += 1,
                }
            }
            Body::Header(_) => {}
        }
    }
    take(pipeline.finish(), series.as_ref());
    result.timelines = timelines;
    // An alert that no window confirmed is no incident of the trace.
    result.incidents = last.into_values().filter(|incident| incident.version > 0).collect();
    result.incidents.sort_by(|a, b| (a.start_unix_ns, &a.id).cmp(&(b.start_unix_ns, &b.id)));
    Ok(result)
}

fn recorded_config(header: Option<TraceHeader>) -> Result<Config> {
    let Some(header) = header else { return Ok(Config::default()) };
    if header.version != 1 {
        bail!(
            "the trace has version {}, this build reads 1: use the collector that recorded it",
            header.version
        );
    }
    toml::from_str(&header.configuration_toml)
        .context("the configuration in the trace does not fit this build: give one with --config")
}

/// Delays each batch by up to what is left until a frame stops waiting for its first window. Names and notices keep their order.
fn shuffled(bodies: Vec<Body>, lateness_ns: u64, seed: u64) -> Vec<Body> {
    // A tick may come up to one period after the moment it stands for.
    const MARGIN_NS: u64 = 60_000_000;
    let mut random = seed;
    let mut now = 0;
    let mut timed: Vec<(u64, Body)> = bodies
        .into_iter()
        .map(|body| {
            let mut at = match &body {
                Body::TickUnixNs(t) => *t,
                Body::Arrival(a) => a.arrival_unix_ns,
                Body::Header(_) => now,
            };
            // The order of the file is the order of arrival, even where a clock was set.
            at = at.max(now);
            now = at;
            if let Body::Arrival(arrival) = &body
                && let Some(Said::Batch(batch)) = arrival.message.as_ref().and_then(|m| m.body.as_ref())
            {
                let first_end = (batch.first_window.saturating_add(1)).saturating_mul(WINDOW_NS);
                let deadline = first_end
                    .saturating_add_signed(arrival.clock_offset_ns)
                    .saturating_add(lateness_ns)
                    .saturating_sub(MARGIN_NS);
                let room = deadline.saturating_sub(at);
                if room > 0 {
                    at += splitmix(&mut random) % room;
                }
            }
            (at, body)
        })
        .collect();
    timed.sort_by_key(|(at, _)| *at);
    timed.into_iter().map(|(_, body)| body).collect()
}

/// SplitMix64 (Steele, Lea, Flood 2014): the same order for the same seed on every machine.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
