//! What the analysis says of inputs that `inputs` and `simulated` wrote, for `make calibrate`: each incident in its last version as a line of JSON,
//! `{"recording": NAME, "incident": {…}}`, after a line with the names of its numbers. `incidents INPUTS...`

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::Incident;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    println!("{}", serde_json::json!({ "names": tailwater_analysis::NUMBERS }));
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let next = AtomicUsize::new(0);
    let told: Vec<OnceLock<_>> = paths.iter().map(|_| OnceLock::new()).collect();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(path), Some(place)) = (paths.get(at), told.get(at)) else { return };
                    place.get_or_init(|| incidents(path));
                }
            });
        }
    });
    for one in told {
        print!("{}", one.into_inner().ok_or("a recording was left out")??);
    }
    Ok(())
}

/// The lines of one recording.
fn incidents(path: &Path) -> Result<String, Box<dyn Error + Send + Sync>> {
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
