//! What is told of recordings that were made of the golden ones (`composed/compose.rs`): with hosts that no agent watches, with windows
//! that are missing, with clocks that disagree, with what no machine of the laboratory has. `UPDATE=1` rewrites what is expected; the
//! difference is to be reviewed as an operator would: nothing at all is better than a wrong root. And of eight of them at once
//! (`composed/together.rs`): each is told as it is alone.

#[path = "composed/compose.rs"]
mod compose;
#[path = "composed/together.rs"]
mod together;

use anyhow::{Context, Result, ensure};
use compose::{COMPOSITIONS, Truth};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tailwater::draw::explain;
use tailwater::live::timeline::Timeline;
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::incident::Incident;
use tailwater_model::window::{Input, WINDOW_NS};

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

/// What the pipeline gets of a recording.
fn inputs_of(path: &Path) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    tailwater::run::replay::inputs(tailwater::run::replay::open(path)?, |input| {
        inputs.push(input.clone());
    })?;
    Ok(inputs)
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
    format!("{} {} {} {:.2}", incident.kind.name(), root.resource.name(), root.place(), incident.confidence)
}

#[test]
fn recordings_with_less_or_more_in_them_are_told_as_written() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let all = recordings(&folder)?;
    ensure!(!all.is_empty(), "no golden traces in {}", folder.display());
    let mut lines: Vec<Vec<String>> = vec![Vec::new(); COMPOSITIONS.len()];
    for (name, path, truth) in &all {
        let inputs = inputs_of(path)?;
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

/// Three front servers, two ways through a proxy, and eight causes.
const AT_ONCE: [(&str, &str); 8] = [
    ("nx0-app-cpu", "cpu_neighbour"),
    ("nx0-db-io", "io"),
    ("nx0-db-lock", "lock"),
    ("nx0-app-pause", "pause"),
    ("nx0-db-squeeze", "cpu_throttled"),
    ("nx1-app-lock", "lock"),
    ("haproxy-cache-pause", "pause"),
    ("nx0-web-burst", "burst"),
];

/// What is told of each system, in its own names, in the order of time: verdict, chain and drops.
fn told_of(incidents: &[Incident], system: usize) -> Vec<String> {
    let own = together::host("", system);
    let of = |incident: &&Incident| incident.root.host.ends_with(&own);
    let line = |incident: &Incident| {
        let hops: Vec<&str> = incident.hops.iter().map(|hop| hop.host.as_str()).collect();
        let drops: u64 = incident.drops.iter().map(|drop| drop.count).sum();
        format!("{}; {}; {drops} dropped", verdict(incident), hops.join(" ")).replace(&own, "")
    };
    incidents.iter().filter(of).map(line).collect()
}

#[test]
fn eight_causes_at_once_are_eight_incidents_and_each_is_told_as_it_is_alone() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let all = recordings(&folder)?;
    let mut systems = Vec::new();
    for (name, _) in AT_ONCE {
        let (_, path, truth) = all.iter().find(|(of, ..)| of == name).with_context(|| name.to_owned())?;
        let inputs = inputs_of(path)?;
        systems.push((inputs, truth.clone()));
    }
    let together = told(together::together(&systems));
    for (number, ((name, resource), system)) in AT_ONCE.into_iter().zip(&systems).enumerate() {
        let alone = told_of(&told(together::alone(system, number)), number);
        let among = told_of(&together, number);
        ensure!(among == alone, "{name}, among others: {among:#?}\nalone: {alone:#?}");
        let named = format!(" {resource} ");
        let right =
            alone.iter().filter(|line| line.contains(&named) && line.contains(&system.1.host)).count();
        ensure!(right == 1, "{name}: {resource} at {} once: {alone:#?}", system.1.host);
    }
    let of_systems: usize = (0..systems.len()).map(|number| told_of(&together, number).len()).sum();
    ensure!(of_systems == together.len(), "{} incidents are of no system", together.len() - of_systems);
    Ok(())
}

/// The moments that a text names: `14:03:07.350`.
fn moments(text: &str) -> BTreeSet<&str> {
    let words = text.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_ascii_digit()));
    words.filter(|word| word.len() == 12 && word.matches(':').count() == 2 && word.contains('.')).collect()
}

/// Clocks are corrected by parts of a millisecond, and whoever reads a title looks for its moments in what `explain` tells of them. Here every
/// window begins half a millisecond before a whole one, as at x.9995 s: what is cut off there in place of being rounded is told a
/// millisecond earlier.
#[test]
fn a_title_and_what_explain_tells_of_it_name_the_same_moments() -> Result<()> {
    const PHASE_NS: i64 = -500_000;
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/nx0-app-cpu.trace.zst");
    let mut inputs = inputs_of(&trace)?;
    for input in &mut inputs {
        if let Input::Window(window) = input {
            Arc::make_mut(window).phase_ns = PHASE_NS;
        }
    }
    let told = told(inputs);
    let dropped: Vec<&Incident> = told.iter().filter(|i| i.version > 0 && !i.drops.is_empty()).collect();
    ensure!(!dropped.is_empty(), "nothing dropped: {told:?}");
    for incident in dropped {
        let untitled = Incident { title: String::new(), ..incident.clone() };
        let nothing = Timeline {
            start_unix_ns: incident.start_unix_ns,
            window_ns: WINDOW_NS,
            tiers: Vec::new(),
            resource: None,
        };
        let text = explain::text(&untitled, &nothing);
        let (of_title, of_text) = (moments(&incident.title), moments(&text));
        ensure!(of_title.len() > 1, "when it dropped and when its root was: {}", incident.title);
        ensure!(of_title.is_subset(&of_text), "{}\n{text}", incident.title);
        let is_whole = |moment: &&str| moment.ends_with("00") || moment.ends_with("50");
        ensure!(of_text.iter().all(is_whole), "a window begins at a multiple of 50 ms: {of_text:?}");
    }
    Ok(())
}
