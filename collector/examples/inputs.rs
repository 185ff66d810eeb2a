//! What recordings feed to the analysis, one input a line as JSON, for `make constants`: the analysis alone can then be built anew and run on
//! them, many times. `inputs FOLDER RECORDING...` writes `FOLDER/NAME.inputs` for each; a recording that its session left as
//! `session.trace` has the name of its folder.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

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
        let path = folder.join(format!("{stem}.inputs"));
        let mut out = BufWriter::new(File::create(&path).with_context(|| path.display().to_string())?);
        let mut failed = None;
        tailwater::run::replay::inputs(tailwater::run::replay::open(&recording)?, |input| {
            let line = serde_json::to_string(input).map_err(anyhow::Error::from);
            let written = line.and_then(|line| Ok(writeln!(out, "{line}")?));
            failed = failed.take().or(written.err());
        })
        .with_context(|| recording.display().to_string())?;
        if let Some(error) = failed {
            return Err(error).with_context(|| path.display().to_string());
        }
        out.flush()?;
    }
    Ok(())
}
