//! The configurable service of a service graph: serves as its part says, from the network namespace that it is started in, and takes
//! orders on standard input. `graphnode names` is the server of names there.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tailwater_tests::console::failure;
use tailwater_tests::graph::node;
use tailwater_tests::os::process;

fn main() -> ExitCode {
    ExitCode::from(failure::run("graphnode", None, work))
}

fn work() -> Result<()> {
    let what = std::env::args_os().nth(1).context("usage: graphnode PART.json, or graphnode names")?;
    if what == "names" {
        return node::serve_names();
    }
    let file = PathBuf::from(what);
    let part = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    let part = serde_json::from_slice(&part).with_context(|| format!("{}", file.display()))?;
    process::raise_file_limit()?;
    node::serve(part, file.parent().unwrap_or(Path::new(".")))
}
