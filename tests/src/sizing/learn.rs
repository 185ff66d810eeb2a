//! The run that advice is learnt from: the cell's lab under the default pool, watched by agents and a collector, loaded from low to high;
//! then the advice, frozen in a file, and the recording that it was learnt from. The agents are gone before anything is swept.

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
/// How often all loads are sent: up and then down, so that what drifts with the minutes is not taken for what the load does.
const ROUNDS: u32 = 2;
/// The answer as it came, in the cell's folder.
const FROZEN: &str = "advice.json";
/// What it was learnt from, likewise: `tailwater replay --serve` gives the advice of whatever version reads it.
const RECORDING: &str = "learn.trace";

/// Loads `lab` for `seconds` in all, and returns it with what was advised.
pub fn learn(
    cell: &Cell,
    lab: Lab,
    capacity: &Capacity,
    seconds: u32,
    folder: &Path,
) -> Result<(Lab, Advice)> {
    let recording = folder.join(RECORDING).display().to_string();
    let system = System::around(lab, folder, &["--record".into(), recording])?;
    send(cell, &system.lab, capacity, seconds)?;
    let (status, body) = http_get(system.collector.http, "/api/v1/advice")?;
    let file = folder.join(FROZEN);
    fs::write(&file, &body).with_context(|| format!("write {}", file.display()))?;
    let port = system.lab.stack().listener(cell.advised).port();
    let advice = Advice::read(status, &body, cell.advised.host(), port)?;
    let System { lab, .. } = system;
    Ok((lab, advice))
}

/// Sends the cell's loads for `seconds` in all, and waits until what was seen of them is told.
pub fn send(cell: &Cell, lab: &Lab, capacity: &Capacity, seconds: u32) -> Result<()> {
    let each = (seconds / (ROUNDS * cell.learnt_from.len().max(1) as u32)).max(1);
    for round in 0..ROUNDS {
        let mut loads: Vec<f64> = cell.learnt_from.to_vec();
        if round % 2 == 1 {
            loads.reverse();
        }
        for (index, load) in loads.into_iter().enumerate() {
            let what = format!("{}: advice is learnt at {load} of the capacity", cell.name);
            step(&what, Duration::from_secs(u64::from(each) + 2), || -> Result<()> {
                let mode = Mode::Open { rate_per_second: load * capacity.per_second };
                let seed = 100 + u64::from(round) * 10 + index as u64;
                lab.load(&plan(cell, mode, each, seed))?.wait()?;
                Ok(())
            })?;
        }
    }
    std::thread::sleep(SETTLED);
    Ok(())
}
