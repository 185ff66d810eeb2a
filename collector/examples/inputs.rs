//! What recordings feed to the analysis, one input a line as JSON, for `make constants`: the analysis alone can then be built anew and run on
//! them, many times. `inputs FOLDER RECORDING...` writes `FOLDER/NAME.inputs` for each.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().context("inputs FOLDER RECORDING...")?;
    for recording in arguments {
        let name = recording.file_name().context("a file")?.to_string_lossy().into_owned();
        let stem = name.split(".trace").next().unwrap_or(&name);
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
