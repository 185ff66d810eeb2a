//! What scenario tests share: the simulated tiers and a way to run a pipeline over them.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "test support, used in part by each test file"
)]

pub mod sim;

use sim::{Sim, Trace};
use std::sync::Arc;
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::Incident;
use tailwater_model::window::{Input, WINDOW_NS};

/// Names first, then every window as it would arrive, with ticks in between.
pub fn inputs(trace: &Trace) -> Vec<Input> {
    let mut inputs = trace.names.clone();
    let first = trace.windows.first().map_or(0, |w| w.index.0);
    inputs.push(Input::Tick { unix_ns: first * WINDOW_NS });
    for window in &trace.windows {
        // A window arrives 100 ms after its end.
        inputs.push(Input::Tick { unix_ns: (window.index.0 + 3) * WINDOW_NS });
        inputs.push(Input::Window(Arc::new(window.clone())));
    }
    inputs
}

/// Everything a pipeline says about the inputs.
pub fn outputs(config: &Config, inputs: Vec<Input>) -> Vec<Output> {
    let mut pipeline = Pipeline::new(config.clone());
    let mut outputs: Vec<Output> = inputs.into_iter().flat_map(|input| pipeline.feed(input)).collect();
    outputs.extend(pipeline.finish());
    outputs
}

pub fn told(outputs: &[Output]) -> Vec<Incident> {
    let incident = |o: &Output| match o {
        Output::Incident(i) => Some((**i).clone()),
        _ => None,
    };
    outputs.iter().filter_map(incident).collect()
}

/// The last version of each incident.
pub fn last_versions(outputs: &[Output]) -> Vec<Incident> {
    let mut last: std::collections::BTreeMap<String, Incident> = std::collections::BTreeMap::new();
    for incident in told(outputs) {
        last.insert(incident.id.clone(), incident);
    }
    last.into_values().collect()
}

pub fn diagnose(sim: Sim) -> Vec<Incident> {
    diagnose_with(&Config::default(), sim)
}

pub fn diagnose_with(config: &Config, sim: Sim) -> Vec<Incident> {
    last_versions(&outputs(config, inputs(&sim.run())))
}
