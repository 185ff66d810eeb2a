//! `make sizing-score`: sweeps the pools of real servers, and holds advice that was frozen beforehand against what the clients saw.

#![allow(clippy::disallowed_methods, reason = "a measurement is dated by its own clock")]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailwater_tests::console::failure::{self, REMEDY};
use tailwater_tests::console::progress::{self, say, seconds, title};
use tailwater_tests::lab::{Lab, LabConfig};
use tailwater_tests::os::{is_root, kernel_release};
use tailwater_tests::sizing::cells::{CELLS, Cell, GRID};
use tailwater_tests::sizing::judged::{Staircases, advised, again, judged};
use tailwater_tests::sizing::learn::learn;
use tailwater_tests::sizing::results::{CellResult, Results, told};
use tailwater_tests::sizing::sweep::{self, Capacity, Pace};
use tailwater_tests::sizing::wang;
use tailwater_tests::supervise::supervise;

/// What a quick look takes of the whole: one cell, three pools, twice.
const QUICK_GRID: [u32; 2] = [2, 16];
const QUICK: Pace = Pace { warm_s: 2, measured_s: 5, repeats: 2 };
const QUICK_LEARN_S: u32 = 30;
/// Lab, first start and capacity of a cell.
const PREPARED_IN: Duration = Duration::from_secs(60);

/// Proves advice about pools on the laboratory.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only cells whose name begins so.
    #[arg(long, value_delimiter = ',')]
    cell: Vec<String>,
    /// One cell, a small grid, short loads: whether it works, not what is measured.
    #[arg(long)]
    quick: bool,
    /// Learns and freezes the advice, and sweeps nothing.
    #[arg(long)]
    advice_only: bool,
    /// Asks with more and more users, and neither learns nor sweeps: `sizing-steps.json`, for --again.
    #[arg(long)]
    steps_only: bool,
    /// How long the advice is learnt from, in all.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=3600))]
    learn_seconds: u32,
    /// Measured seconds of each load.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=600))]
    load_seconds: u32,
    /// Seconds of each load before them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    warm_seconds: u32,
    /// How often each pool is tried: the best is chosen on odd repeats and measured on even ones.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=50))]
    repeats: u32,
    /// These pools instead of the grid, besides the default, the rule of thumb and the advice: fewer, more often. Two starts of the same
    /// server differ by 5 %, so that a ratio of 0.97 needs many.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pools: Vec<u32>,
    /// Judges what is in this `sizing-score.json` once more, and measures nothing.
    #[arg(long)]
    again: Option<PathBuf>,
    /// With --again: what `--steps-only` measured, for cells that have none of their own.
    #[arg(long, requires = "again")]
    steps: Option<PathBuf>,
    /// Where `sizing-score.json` and `sizing-score.md` go (--quick: `.lab/sizing-quick`).
    #[arg(long)]
    out: Option<PathBuf>,
    /// Where logs and the frozen advice go.
    #[arg(long, default_value = ".lab/sizing")]
    folder: PathBuf,
    /// What is measured: a version or a commit.
    #[arg(long, default_value = concat!("version ", env!("CARGO_PKG_VERSION")))]
    label: String,
}

impl Arguments {
    fn pace(&self) -> Pace {
        let asked = Pace { warm_s: self.warm_seconds, measured_s: self.load_seconds, repeats: self.repeats };
        if self.quick { QUICK } else { asked }
    }

    fn learn_s(&self) -> u32 {
        if self.quick { QUICK_LEARN_S } else { self.learn_seconds }
    }

    fn grid(&self, cell: &Cell) -> &[u32] {
        match self.pools.as_slice() {
            [] if self.quick => &QUICK_GRID,
            [] => cell.grid,
            asked => asked,
        }
    }

    fn out(&self) -> PathBuf {
        let usual = if self.quick { ".lab/sizing-quick" } else { "tests/results" };
        self.out.clone().unwrap_or_else(|| usual.into())
    }

    fn cells(&self) -> Result<Vec<&'static Cell>> {
        let is_asked =
            |cell: &&Cell| self.cell.is_empty() || self.cell.iter().any(|name| cell.name.starts_with(name));
        let mut cells: Vec<&Cell> = CELLS.iter().filter(is_asked).collect();
        if cells.is_empty() {
            let names: Vec<&str> = CELLS.iter().map(|cell| cell.name).collect();
            bail!("no cell is left{REMEDY}there are {}", names.join(", "));
        }
        if self.quick {
            cells.truncate(1);
        }
        Ok(cells)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    supervise("sizing-score", || {
        progress::show();
        failure::run("sizing-score", Some(&arguments.folder), || execute(&arguments))
    })
}

fn execute(arguments: &Arguments) -> Result<()> {
    if let Some(file) = &arguments.again {
        let results = again(file, arguments.steps.as_deref(), &arguments.label)?;
        results.write(&arguments.out())?;
        say(&results.markdown()?);
        return Ok(());
    }
    let cells = arguments.cells()?;
    if !is_root() {
        bail!("the laboratory needs root{REMEDY}run `make sizing-score`, which asks for it");
    }
    if arguments.steps_only {
        return staircases(&cells, arguments);
    }
    // The default, the rule of thumb, minJobs and the advice are tried besides the grid.
    let pools = sweep::pools(&GRID, []).len() + 3;
    let each = PREPARED_IN
        + arguments.pace().staircase_takes()
        + Duration::from_secs(u64::from(arguments.learn_s()) + 15)
        + arguments.pace().sweep_takes(pools);
    title(&format!("{} cells, {} at most for each", cells.len(), seconds(each)));
    let begun = Instant::now();
    let mut results = Results::new(arguments.label.clone(), arguments.pace(), arguments.learn_s());
    results.begun_unix_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    results.kernel = kernel_release()?;
    results.cpus = std::thread::available_parallelism()?.get() as u64;
    for (number, cell) in cells.iter().enumerate() {
        let left = seconds(each * (cells.len() - number) as u32);
        title(&format!(
            "{}: {} ({} of {}, {left} left at most)",
            cell.name,
            cell.about,
            number + 1,
            cells.len()
        ));
        let swept = cell.swept_as.and_then(|name| results.cells.iter().find(|other| other.name == name));
        let measured = measure(cell, arguments, swept);
        match measured {
            Ok(cell) => results.cells.extend(cell),
            Err(error) => results.broken.push(format!("{}: {}", cell.name, failure::sentence(&error))),
        }
        results.took_s = begun.elapsed().as_secs();
        // What was measured of a long run is kept, however it ends.
        if !arguments.advice_only {
            results.write(&arguments.out())?;
        }
    }
    if !arguments.advice_only {
        say(&results.markdown()?);
    }
    if !results.broken.is_empty() {
        bail!("not all cells were run: {}", results.broken.join("; "));
    }
    Ok(())
}

/// What more and more users get of each cell that has servers of its own.
fn staircases(cells: &[&Cell], arguments: &Arguments) -> Result<()> {
    let mut all = Staircases::new();
    let file = arguments.out().join("sizing-steps.json");
    std::fs::create_dir_all(arguments.out())?;
    for cell in cells.iter().filter(|cell| cell.swept_as.is_none() && has_steps(cell)) {
        title(&format!("{}: {}", cell.name, cell.about));
        let lab = started(cell, &arguments.folder.join(cell.name))?;
        let steps = sweep::staircase(cell, &lab, arguments.pace())?;
        for step in &steps {
            say(&format!("  {:>4} users: {:.0} answers a second", step.users, step.per_second));
        }
        say(&format!("  minJobs: {:?}", wang::min_jobs(&steps)));
        all.insert(cell.name.to_owned(), steps);
        // What was measured of a long run is kept, however it ends.
        std::fs::write(&file, serde_json::to_string_pretty(&all)? + "\n")
            .with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

fn has_steps(cell: &Cell) -> bool {
    cell.advised == cell.critical
}

/// The cell's lab with its default pool, in a folder of which nothing older is left.
fn started(cell: &Cell, folder: &Path) -> Result<Lab> {
    // What an earlier collector kept would be learnt from again.
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let default = cell.lab(cell.default_pool);
    // Not warmed up, it is not fitted to the machine either.
    let unfitted = LabConfig { warm_up_requests: 0, ..default.clone() };
    let mut lab = Lab::start_logging(unfitted, Some(folder.join("servers")))?;
    lab.restart_with(default)?;
    Ok(lab)
}

/// Learns, freezes, sweeps and judges one cell; `None`: it was not to be swept. `swept` is what was measured of the same servers already.
fn measure(cell: &Cell, arguments: &Arguments, swept: Option<&CellResult>) -> Result<Option<CellResult>> {
    let folder = arguments.folder.join(cell.name);
    let pace = arguments.pace();
    let mut lab = started(cell, &folder)?;
    let capacity = match swept {
        Some(swept) => swept.capacity.clone(),
        None => {
            if let Some(pool) = cell.capacity_pool {
                lab.restart_with(cell.lab(pool))?;
            }
            let capacity = sweep::capacity(cell, &lab, pace)?;
            // minJobs is of the critical tier, and says nothing of another one's pool.
            let steps = if has_steps(cell) { sweep::staircase(cell, &lab, pace)? } else { Vec::new() };
            // A server that fell over under its users may not come back by itself.
            lab.restart_with(cell.lab(cell.default_pool))?;
            Capacity { steps, ..capacity }
        }
    };
    say(&format!(
        "  {:.0} requests a second; the {} tier took {:.0} % of its quota, the load generator {:.2} CPUs",
        capacity.per_second,
        cell.critical.name(),
        capacity.critical_ratio * 100.0,
        capacity.client_cores
    ));
    let (mut lab, advice) = learn(cell, lab, &capacity, arguments.learn_s(), &folder)?;
    say(&format!("  advice, frozen: {}", told(&advice)));
    if arguments.advice_only {
        return Ok(None);
    }

    let candidates = advised(cell, &capacity, &advice);
    let pools = sweep::pools(arguments.grid(cell), candidates.iter().map(|(_, pool)| *pool));
    let swept_already =
        swept.filter(|swept| pools.iter().all(|pool| swept.runs.iter().any(|run| run.pool == *pool)));
    // A lower bound would be held against a sweep; silence is not.
    let is_silent = !cell.answerable && advice.pool().is_none();
    let runs = match swept_already {
        None if is_silent => Vec::new(),
        Some(swept) => {
            say(&format!("  pools {pools:?}: as swept for {}", swept.name));
            swept.runs.clone()
        }
        None => {
            say(&format!("  pools {pools:?}: {}", seconds(pace.sweep_takes(pools.len()))));
            sweep::sweep(cell, &mut lab, &pools, &capacity, pace)?
        }
    };
    let result = judged(cell, capacity, advice, &runs, swept_already.and(cell.swept_as));
    say(&format!("  {}", result.verdict.text()));
    Ok(Some(result))
}
