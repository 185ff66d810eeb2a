//! What the analysis says of inputs that `make constants` took from recordings: a line for each incident, with what of it is a verdict
//! and a digest of all the rest, and one for each recording with a digest of what else was said (topology, congestion, findings).
//! `verdicts INPUTS...`

mod each;

use each::{Failed, print_of_each};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::Path;
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::Incident;

fn main() -> Result<(), Failed> {
    print_of_each(verdicts)
}

/// The lines of one recording.
fn verdicts(path: &Path) -> Result<String, Failed> {
    let mut pipeline = Pipeline::new(Config::default());
    let mut last: BTreeMap<String, Incident> = BTreeMap::new();
    let mut besides = DefaultHasher::new();
    let mut hear = |outputs: Vec<Output>| {
        for output in outputs {
            match output {
                Output::Incident(incident) => {
                    last.insert(incident.id.clone(), *incident);
                }
                other => format!("{other:?}").hash(&mut besides),
            }
        }
    };
    for line in BufReader::new(File::open(path)?).lines() {
        hear(pipeline.feed(serde_json::from_str(&line?)?));
    }
    hear(pipeline.finish());
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut lines = String::new();
    for (id, i) in &last {
        let (root, culprit) = (&i.root, i.root.culprits.first().map_or("", |c| c.comm.as_str()));
        writeln!(
            lines,
            "{name}\t{id}\t{:x}\t{} {}\t{}/{} {}\t{culprit}",
            digest(i),
            i.severity.name(),
            i.kind.name(),
            root.host,
            root.tier,
            root.resource.name()
        )?;
    }
    writeln!(lines, "{name}\t\t{:x}", besides.finish())?;
    Ok(lines)
}

/// Of all that an incident tells in its last version: confidence, chain, counts, words.
fn digest(incident: &Incident) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{incident:?}").hash(&mut hasher);
    hasher.finish()
}
