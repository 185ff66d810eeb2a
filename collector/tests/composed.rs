//! What is told of recordings that were made of the golden ones (`composed/compose.rs`): with hosts that no agent watches, with windows
//! that are missing, with clocks that disagree, with what no machine of the laboratory has. `UPDATE=1` rewrites what is expected; the
//! difference is to be reviewed as an operator would: nothing at all is better than a wrong root.

#[path = "composed/compose.rs"]
mod compose;

use anyhow::{Context, Result, ensure};
use compose::{COMPOSITIONS, Truth};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::incident::Incident;
use tailwater_model::window::Input;

/// Recordings by name, with the truth beside them.
fn recordings(folder: &Path) -> Result<Vec<(String, PathBuf, Truth)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".trace.zst") else { continue };
        let beside = folder.join(format!("{name}.truth"));
        let text = std::fs::read_to_string(&beside).with_context(|| beside.display().to_string())?;
        let truth = Truth::read(&text).with_context(|| format!("{}: no truth", beside.display()))?;
        all.push((name.to_owned(), path, truth));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

/// Incidents in their last version, by their beginning.
fn told(inputs: Vec<Input>) -> Vec<Incident> {
    let mut pipeline = Pipeline::new(Config::default());
    let mut outputs: Vec<Output> = inputs.into_iter().flat_map(|input| pipeline.feed(input)).collect();
    outputs.extend(pipeline.finish());
    let mut last: BTreeMap<String, Incident> = BTreeMap::new();
    for output in outputs {
        if let Output::Incident(incident) = output {
            last.insert(incident.id.clone(), *incident);
        }
    }
    let mut all: Vec<Incident> = last.into_values().collect();
    all.sort_by(|a, b| (a.start_unix_ns, &a.id).cmp(&(b.start_unix_ns, &b.id)));
    all
}

/// One line for each: what, where, how sure.
fn verdict(incident: &Incident) -> String {
    let root = &incident.root;
    format!(
        "{} {} {}@{} {:.2}",
        incident.kind.name(),
        root.resource.name(),
        root.workload,
        root.host,
        incident.confidence
    )
}

#[test]
fn recordings_with_less_or_more_in_them_are_told_as_written() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let all = recordings(&folder)?;
    ensure!(!all.is_empty(), "no golden traces in {}", folder.display());
    let mut lines: Vec<Vec<String>> = vec![Vec::new(); COMPOSITIONS.len()];
    for (name, path, truth) in &all {
        let mut inputs = Vec::new();
        tailwater::run::replay::inputs(tailwater::run::replay::open(path)?, |input| {
            inputs.push(input.clone());
        })?;
        for (composition, lines) in COMPOSITIONS.iter().zip(&mut lines) {
            let Some(composed) = composition.of(&inputs, truth) else { continue };
            let verdicts: Vec<String> = told(composed).iter().map(verdict).collect();
            let verdicts = if verdicts.is_empty() { "nothing".to_owned() } else { verdicts.join("; ") };
            lines.push(format!("{name}: {verdicts}"));
        }
    }
    let mut text = String::new();
    for (composition, lines) in COMPOSITIONS.iter().zip(&lines) {
        ensure!(!lines.is_empty(), "{}: of no recording", composition.name);
        writeln!(text, "# {}\n{}", composition.name, lines.join("\n"))?;
    }
    let expected = folder.join("composed.expected");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&expected, &text)?;
    }
    let before = std::fs::read_to_string(&expected)
        .with_context(|| format!("read {}: run with UPDATE=1", expected.display()))?;
    ensure!(text == before, "{} is not what is said now:\n{text}", expected.display());
    Ok(())
}
