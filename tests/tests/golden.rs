//! Replays the golden traces of the lab's cells: each must say what is expected of it, and what is expected must fit the cell.
//! `UPDATE=1 cargo test -p tailwater-tests --test golden` rewrites the expectations; the difference is to be reviewed.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use tailwater_tests::score::golden::{Golden, misfits, render};

/// Cells whose trace is diagnosed wrongly today, and why. An entry that is right after all fails the test: it is to be removed.
const KNOWN_WRONG: &[(&str, &str)] = &[];

/// As `tailwater replay --config /dev/null` prints them: with the thresholds of today, not of the recording.
fn replay(golden: &Golden) -> Result<Vec<serde_json::Value>> {
    let replayed =
        tailwater::replay::replay(golden.read()?.as_slice(), Some(Default::default()), None, false)?;
    ensure!(replayed.torn.is_none() && replayed.refused == 0, "{}: the trace is damaged", golden.cell);
    replayed.incidents.iter().map(|incident| Ok(serde_json::to_value(incident)?)).collect()
}

#[test]
fn golden_traces_say_what_they_said() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let all = Golden::all(&folder)?;
    ensure!(!all.is_empty(), "no golden traces in {}", folder.display());
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    for golden in &all {
        let incidents = replay(golden)?;
        let text = render(&incidents)?;
        if update {
            std::fs::write(&golden.expected, &text)?;
        }
        let expected = std::fs::read_to_string(&golden.expected)
            .with_context(|| format!("read {}: run with UPDATE=1", golden.expected.display()))?;
        if text != expected {
            wrong.push(format!("{}:\n--- expected\n{expected}--- replayed\n{text}", golden.cell));
        }
        let misfits = misfits(&golden.injection()?, &incidents);
        let known = KNOWN_WRONG.iter().find(|(name, _)| *name == golden.cell);
        match (misfits.is_empty(), known) {
            (true, None) => {}
            (false, Some((_, why))) => println!("{}: {} ({why})", golden.cell, misfits.join(", ")),
            (false, None) => {
                wrong.push(format!("{} does not fit its cell: {}", golden.cell, misfits.join(", ")))
            }
            (true, Some(_)) => {
                wrong.push(format!("{} is right now: remove it from KNOWN_WRONG", golden.cell))
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
