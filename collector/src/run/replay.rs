//! `tailwater replay`: a recorded trace through the same conversion and the same pipeline, to the same bytes. Owns the shuffling
//! of arrivals for tests; `memory` keeps what a replay says for those who ask, `page` serves it. Knows no clock.

mod against;
mod memory;
mod page;
mod records;

pub use against::differences;
pub use page::{Options, routes, serve};
pub use records::{OpenError, open};

use crate::ingest::convert::Converter;
use crate::live::series::Series;
use crate::live::timeline::{self, Timeline};
use crate::prevent;
use crate::run::driver::TOPOLOGY_EVERY_TICKS;
use crate::text::json_line;
use anyhow::{Context, Result, bail};
use records::Records;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::incident::State;
use tailwater_model::window::{Input, WINDOW_NS};
use tailwater_model::{Incident, PreventionView, TopologyView};
use tailwater_proto::v1::{Arrival, TraceHeader, agent_message::Body as Said, trace_record::Body};

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
    /// Windows, and who called whom at the end, if timelines were asked for.
    windows: Option<(Series, TopologyView)>,
}

impl Replayed {
    /// One incident per line.
    pub fn write(&self, out: &mut impl Write) -> Result<()> {
        for incident in &self.incidents {
            writeln!(out, "{}", json_line(incident)?)?;
        }
        out.flush()?;
        Ok(())
    }

    /// What would have prevented one of its incidents; `None`: no windows were asked for.
    #[must_use]
    pub fn prevention(&self, incident: &Incident) -> Option<PreventionView> {
        let (series, topology) = self.windows.as_ref()?;
        let read = |host: &str, first, last| vec![series.part(host, first, last)];
        Some(prevent::prevention(incident, topology, read))
    }
}

/// Hears what a replay does, in its order.
trait Hears {
    /// A message came, and converted.
    fn arrived(&mut self, _arrival: &Arrival, _said: &Said) {}
    /// The pipeline is about to get this.
    fn saw(&mut self, _input: &Input) {}
    /// As often as a live collector looks at who calls whom.
    fn looks(&mut self, _pipeline: &Pipeline) {}
    /// The pipeline said this.
    fn said(&mut self, output: Output);
}

/// A pipeline that is fed from a recording.
struct Player<H> {
    pipeline: Pipeline,
    converters: BTreeMap<String, Converter>,
    hears: H,
    refused: u64,
    ticks: u64,
}

impl<H: Hears> Player<H> {
    fn new(config: Config, hears: H) -> Self {
        Self { pipeline: Pipeline::new(config), converters: BTreeMap::new(), hears, refused: 0, ticks: 0 }
    }

    fn feed(&mut self, input: Input) {
        self.hears.saw(&input);
        self.pipeline.feed(input).into_iter().for_each(|output| self.hears.said(output));
    }

    fn play(&mut self, body: Body) {
        match body {
            Body::TickUnixNs(unix_ns) => {
                self.feed(Input::Tick { unix_ns });
                self.ticks += 1;
                if self.ticks % TOPOLOGY_EVERY_TICKS == 1 {
                    self.hears.looks(&self.pipeline);
                }
            }
            Body::Arrival(mut arrival) => {
                let Some(said) = arrival.message.take().and_then(|m| m.body) else { return };
                let host = &arrival.host;
                let converter = self.converters.entry(host.clone()).or_insert_with(|| Converter::new(host));
                if let Some(shift) = arrival.window_shift {
                    converter.adopt_window_shift(shift);
                }
                match converter.message(&said, arrival.clock_offset_ns, arrival.clock_error_ns) {
                    Ok(inputs) => {
                        self.hears.arrived(&arrival, &said);
                        inputs.into_iter().for_each(|input| self.feed(input));
                    }
                    Err(_) => self.refused += 1,
                }
            }
            Body::Header(_) => {}
        }
    }

    fn finish(&mut self) {
        self.pipeline.finish().into_iter().for_each(|output| self.hears.said(output));
    }
}

/// What a replay prints: the last version of each incident, and timelines if asked for.
#[derive(Default)]
struct Found {
    last: BTreeMap<String, Incident>,
    series: Option<Series>,
    timelines: BTreeMap<String, Timeline>,
}

impl Hears for Found {
    fn saw(&mut self, input: &Input) {
        if let Some(series) = &mut self.series {
            series.saw(input);
        }
    }

    fn said(&mut self, output: Output) {
        if let Output::Alert(incident) | Output::Incident(incident) = output {
            // A long one gets its timeline while its onset is still in memory.
            let long = incident.end_unix_ns.saturating_sub(incident.start_unix_ns) > timeline::SPAN_NS;
            let due = incident.state == State::Closed || long;
            let known = long && self.timelines.contains_key(&incident.id);
            if let Some(series) = self.series.as_ref().filter(|_| due && !known) {
                self.timelines.insert(incident.id.clone(), timeline::of(&incident, series));
            }
            self.last.insert(incident.id.clone(), *incident);
        }
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
    let mut records = Records::new(input)?;
    let config = config.map_or_else(|| recorded_config(records.header.as_ref()), Ok)?;
    let lateness_ns = config.lateness_ns;
    let series = timelines.then(|| Series::new(SERIES_MINUTES, SERIES_BYTES_MAX));
    let mut player = Player::new(config, Found { series, ..Found::default() });
    match shuffle {
        None => records.by_ref().try_for_each(|body| body.map(|body| player.play(body)))?,
        Some(seed) => {
            let bodies = records.by_ref().collect::<Result<Vec<_>, _>>()?;
            shuffled(bodies, lateness_ns, seed).into_iter().for_each(|body| player.play(body));
        }
    }
    player.finish();
    let topology = player.pipeline.topology();
    let Found { last, timelines, series } = player.hears;
    let windows = series.map(|series| (series, topology));
    // An alert that no window confirmed is no incident of the trace.
    let mut incidents: Vec<Incident> = last.into_values().filter(|incident| incident.version > 0).collect();
    incidents.sort_by(|a, b| (a.start_unix_ns, &a.id).cmp(&(b.start_unix_ns, &b.id)));
    Ok(Replayed {
        incidents,
        records: records.count,
        torn: records.torn,
        timelines,
        refused: player.refused,
        windows,
    })
}

/// Hands on what a recording feeds to the analysis, in its order. Returns the configuration that it was recorded with.
pub fn inputs(input: impl BufRead, take: impl FnMut(&Input)) -> Result<Config> {
    struct Taken<F>(F);
    impl<F: FnMut(&Input)> Hears for Taken<F> {
        fn saw(&mut self, input: &Input) {
            (self.0)(input);
        }
        fn said(&mut self, _: Output) {}
    }
    let mut records = Records::new(input)?;
    let config = recorded_config(records.header.as_ref())?;
    let mut player = Player::new(config.clone(), Taken(take));
    records.by_ref().try_for_each(|body| body.map(|body| player.play(body)))?;
    Ok(config)
}

fn recorded_config(header: Option<&TraceHeader>) -> Result<Config> {
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

/// Delays each batch by up to what is left until a frame stops waiting for its first window. What one host sent keeps its order, as in its
/// stream: the packets of a window are known from the windows before it.
fn shuffled(bodies: Vec<Body>, lateness_ns: u64, seed: u64) -> Vec<Body> {
    // A tick may come up to one period after the moment it stands for.
    const MARGIN_NS: u64 = 60_000_000;
    let mut random = seed;
    let mut now = 0;
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
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
            if let Body::Arrival(arrival) = &body {
                let before = newest.entry(arrival.host.clone()).or_default();
                at = at.max(*before);
                *before = at;
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
