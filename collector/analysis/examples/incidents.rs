//! What the analysis says of inputs that `inputs` and `simulated` wrote, for `make calibrate`: each incident in its last version as a line of JSON,
//! `{"recording": NAME, "incident": {…}}`, after a line with the names of its numbers. `incidents INPUTS...`

mod each;

use each::{Failed, print_of_each};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::Incident;

fn main() -> Result<(), Failed> {
    println!("{}", serde_json::json!({ "names": tailwater_analysis::NUMBERS }));
    print_of_each(incidents)
}

/// The lines of one recording.
fn incidents(path: &Path) -> Result<String, Failed> {
    let mut pipeline = Pipeline::new(Config::default());
    let mut last: BTreeMap<String, Incident> = BTreeMap::new();
    let mut hear = |outputs: Vec<Output>| {
        for output in outputs {
            if let Output::Incident(incident) = output {
                last.insert(incident.id.clone(), *incident);
            }
        }
    };
    for line in BufReader::new(File::open(path)?).lines() {
        hear(pipeline.feed(serde_json::from_str(&line?)?));
    }
    hear(pipeline.finish());
    let recording = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut lines = String::new();
    for incident in last.values().filter(|incident| incident.version > 0) {
        lines += &serde_json::json!({ "recording": recording, "incident": incident }).to_string();
        lines.push('\n');
    }
    Ok(lines)
}
