//! What a measurement leaves: its numbers as JSON, for programs, and its table, for people. Owns that both stand side by side; knows no
//! measurement.

use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// Writes `NAME.json` and `NAME.md` into a folder, which is made.
pub fn written(folder: &Path, name: &str, numbers: &impl Serialize, table: &str) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let json = serde_json::to_string_pretty(numbers)? + "\n";
    for (ending, text) in [("json", json.as_str()), ("md", table)] {
        let file = folder.join(format!("{name}.{ending}"));
        std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}
