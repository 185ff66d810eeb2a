//! What the analysis says of inputs that `make constants` took from recordings: a line for each incident, with what of it is a verdict.
//! `verdicts INPUTS...`

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::Incident;

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args_os().skip(1) {
        let mut pipeline = Pipeline::new(Config::default());
        let mut last: BTreeMap<String, Incident> = BTreeMap::new();
        let mut hear = |outputs: Vec<Output>| {
            for output in outputs {
                if let Output::Incident(incident) = output {
                    last.insert(incident.id.clone(), *incident);
                }
            }
        };
        for line in BufReader::new(File::open(&path)?).lines() {
            hear(pipeline.feed(serde_json::from_str(&line?)?));
        }
        hear(pipeline.finish());
        let name = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for (id, i) in &last {
            let (root, culprit) = (&i.root, i.root.culprits.first().map_or("", |c| c.comm.as_str()));
            println!(
                "{name}\t{id}\t{} {}\t{}/{} {}\t{culprit}",
                i.severity.name(),
                i.kind.name(),
                root.host,
                root.tier,
                root.resource.name()
            );
        }
    }
    Ok(())
}
