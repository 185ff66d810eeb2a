//! What recordings feed to the analysis, one input a line as JSON, for `make constants`: the analysis alone can then be built anew and run on
//! them, many times. `inputs FOLDER RECORDING...` writes `FOLDER/NAME.inputs` for each; a recording that its session left as
//! `session.trace` has the name of its folder. Of a recording with its truth beside it (`NAME.truth`) also what the test `composed` makes of it.

#[path = "../tests/composed/compose.rs"]
mod compose;

use anyhow::{Context, Result};
use compose::{COMPOSITIONS, Truth};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tailwater_model::window::Input;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().context("inputs FOLDER RECORDING...")?;
    for recording in arguments {
        let name = recording.file_name().context("a file")?.to_string_lossy().into_owned();
        let stem = match name.split(".trace").next().unwrap_or(&name) {
            "session" => recording
                .parent()
                .and_then(|of| of.file_name())
                .context("a session in a folder")?
                .to_string_lossy(),
            stem => stem.into(),
        };
        let mut inputs = Vec::new();
        tailwater::run::replay::inputs(tailwater::run::replay::open(&recording)?, |input| {
            inputs.push(input.clone())
        })
        .with_context(|| recording.display().to_string())?;
        write(&folder.join(format!("{stem}.inputs")), &inputs)?;
        let beside = recording.with_file_name(format!("{stem}.truth"));
        let Ok(text) = std::fs::read_to_string(&beside) else { continue };
        let truth = Truth::read(&text).with_context(|| format!("{}: no truth", beside.display()))?;
        for composition in COMPOSITIONS {
            if let Some(composed) = composition.of(&inputs, &truth) {
                write(&folder.join(format!("{stem}, {}.inputs", composition.name)), &composed)?;
            }
        }
    }
    Ok(())
}

/// One input a line.
fn write(path: &Path, inputs: &[Input]) -> Result<()> {
    let mut out = BufWriter::new(File::create(path).with_context(|| path.display().to_string())?);
    for input in inputs {
        writeln!(out, "{}", serde_json::to_string(input)?).with_context(|| path.display().to_string())?;
    }
    out.flush().with_context(|| path.display().to_string())
}
