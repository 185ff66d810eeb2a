//! The run that advice is learnt from: the cell's lab under the default pool, watched by agents and a collector, loaded from low to high;
//! then the advice, frozen in a file. The agents are gone before anything is swept.

use crate::console::progress::step;
use crate::lab::Lab;
use crate::load::Mode;
use crate::programs::daemons::http_get;
use crate::sizing::advice::Advice;
use crate::sizing::cells::Cell;
use crate::sizing::sweep::{Capacity, plan};
use crate::system::System;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The last windows of a load are with the collector by then, and incidents closed.
const SETTLED: Duration = Duration::from_secs(5);
/// The answer as it came, in the cell's folder.
const FROZEN: &str = "advice.json";

/// Loads `lab` for `seconds` in all, and returns it with what was advised.
pub fn learn(
    cell: &Cell,
    lab: Lab,
    capacity: &Capacity,
    seconds: u32,
    folder: &Path,
) -> Result<(Lab, Advice)> {
    let system = System::around(lab, folder, &[])?;
    let each = (seconds / cell.learnt_from.len().max(1) as u32).max(1);
    for (index, load) in cell.learnt_from.iter().enumerate() {
        let what = format!("{}: advice is learnt at {load} of the capacity", cell.name);
        step(&what, Duration::from_secs(u64::from(each) + 2), || -> Result<()> {
            let mode = Mode::Open { rate_per_second: load * capacity.per_second };
            system.lab.load(&plan(cell, mode, each, 100 + index as u64))?.wait()?;
            Ok(())
        })?;
    }
    std::thread::sleep(SETTLED);
    let (status, body) = http_get(system.collector.http, "/api/v1/advice")?;
    let file = folder.join(FROZEN);
    fs::write(&file, &body).with_context(|| format!("write {}", file.display()))?;
    let port = system.lab.stack().listener(cell.critical).port();
    let advice = Advice::read(status, &body, cell.critical.host(), port)?;
    let System { lab, .. } = system;
    Ok((lab, advice))
}
