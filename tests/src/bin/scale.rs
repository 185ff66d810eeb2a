//! `make scale`: how many agents one collector serves, and what each of them costs it. See `tailwater_tests::scale` for what is simulated and
//! what is real.

use anyhow::{Result, bail};
use clap::Parser;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use tailwater_tests::console::failure;
use tailwater_tests::os::kernel_release;
use tailwater_tests::scale::readers::Readers;
use tailwater_tests::scale::results::Results;
use tailwater_tests::scale::run::{Plan, Row, measure};
use tailwater_tests::scale::size::Size;
use tailwater_tests::supervise::supervise;

/// Measures one collector under simulated agents. Run it with nothing else running.
#[derive(Debug, Parser)]
struct Arguments {
    /// Rows, by their number of agents; `300/4`: with time at a quarter of its speed.
    #[arg(long, value_delimiter = ',', default_value = "10,100,300/2,1000/4")]
    agents: Vec<String>,
    /// How large hosts are: `realistic`, or `small`, with a workload, a listener and an edge each, in groups of three.
    #[arg(long, default_value_t)]
    hosts: Size,
    /// Measured seconds of each row.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Seconds before them.
    #[arg(long, default_value_t = 15)]
    warm_seconds: u64,
    /// Who reads meanwhile: `pages=200,top=20,scrapers=10,greedy=1`, or some of them.
    #[arg(long)]
    readers: Option<Readers>,
    /// Five agents for a few seconds: whether it works, not what is measured. Fails where it does not.
    #[arg(long)]
    quick: bool,
    /// A further argument of the collector, such as `--set=agents_max=1000`; may be given again.
    #[arg(long, allow_hyphen_values = true)]
    collector: Vec<String>,
    /// Windows in each batch of an agent; 2 as the default of its file
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    windows_per_batch: u64,
    /// Where `scale.json` and `scale.md` go (--quick: nowhere unless it is given).
    #[arg(long)]
    out: Option<PathBuf>,
    /// Where logs go.
    #[arg(long, default_value = ".lab/scale")]
    folder: PathBuf,
    /// What is measured: a version or a commit.
    #[arg(long, default_value = concat!("version ", env!("CARGO_PKG_VERSION")))]
    version: String,
    /// Adds the rows to those that are there.
    #[arg(long)]
    append: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    supervise("scale", || failure::run("scale", None, || scale(&arguments)))
}

/// `300/4` as 300 agents at a quarter of the speed.
fn row(text: &str) -> Result<(usize, u32)> {
    let (agents, slower) = text.split_once('/').unwrap_or((text, "1"));
    match (agents.trim().parse(), slower.trim().parse()) {
        (Ok(agents @ 3..=10_000), Ok(slower @ 1..=100)) => Ok((agents, slower)),
        _ => bail!("--agents {text}: 3 to 10000 agents, and after a slash 1 to 100 times slower"),
    }
}

fn scale(arguments: &Arguments) -> Result<()> {
    let readers = arguments.readers.unwrap_or_default();
    let rows: Vec<(usize, u32)> = if arguments.quick {
        vec![(5, 1)]
    } else {
        arguments.agents.iter().map(|text| row(text)).collect::<Result<_>>()?
    };
    let out = arguments.out.clone().or_else(|| (!arguments.quick).then(|| PathBuf::from("tests/results")));
    let mut results = Results { version: arguments.version.clone(), machine: machine()?, rows: Vec::new() };
    if arguments.append
        && let Some(out) = &out
        && let Ok(before) = std::fs::read_to_string(out.join("scale.json"))
    {
        results.rows = serde_json::from_str::<Results>(&before)?.rows;
    }
    for (agents, slower) in rows {
        let folder =
            arguments.folder.join(format!("{agents}-{slower}-{}-{}", readers.pages, arguments.hosts));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let plan = Plan {
            agents,
            size: arguments.hosts,
            per_batch: arguments.windows_per_batch,
            readers,
            slower,
            warm_s: if arguments.quick { 2 } else { arguments.warm_seconds },
            seconds: if arguments.quick { 5 } else { arguments.seconds },
            collector: arguments.collector.clone(),
            folder,
        };
        let row = measure(&plan)?;
        println!("{}", told(&row));
        if arguments.quick {
            works(&row)?;
        }
        results.rows.push(row);
        if let Some(out) = &out {
            results.write(out)?;
        }
    }
    print!("{}", results.table());
    Ok(())
}

/// What a row says in a few lines, as soon as it is there.
fn told(row: &Row) -> String {
    let mut out = format!(
        "{} agents on {} hosts, {} pages, time 1/{}: the collector took {:.1} % of a core ({:.3} % for each agent), {:.0} MB; this program {:.1} %; {:.1} % stolen; {} refused; {} of {} episodes found, {} across",
        row.agents,
        row.size,
        row.pages,
        row.slower,
        row.collector_cpu_ratio * 100.0,
        row.cpu_per_agent() * 100.0,
        row.resident_bytes as f64 / 1e6,
        row.generator_cpu_ratio * 100.0,
        row.stolen_ratio * 100.0,
        row.refused,
        row.heard.found,
        row.heard.episodes,
        row.heard.across,
    );
    for (what, of) in
        [("connected again at once", &row.storm), ("met a collector that was restarted", &row.restart)]
    {
        let Some(of) = of else { continue };
        let ms = of.p99_ms.map_or("?".to_owned(), |ms| format!("{ms:.0}"));
        out += &format!(
            "\n  all {what}: {} back, p99 {ms} ms, {} refused, {} batches lost",
            of.back, of.refused, of.batches_lost
        );
        out += &of.ready_ms.map_or(String::new(), |ms| format!(", blind for {ms:.0} ms"));
    }
    if let Some(ms) = row.read_p99_ms {
        let (failed, others, greedy) = (row.read_failed, row.others_failed, row.greedy_answered);
        out += &format!(
            "\n  /api/v1/now p99 {ms:.0} ms, {failed} failed; {others} of others failed; {greedy} answers to what is greedy"
        );
    }
    for (reason, count) in &row.reasons {
        out += &format!("\n  {count} times: {reason}");
    }
    for missed in &row.heard.missed {
        out += &format!("\n  not found: {missed}");
    }
    out
}

/// That a quick run did everything that a long one measures.
fn works(row: &Row) -> Result<()> {
    let heard = &row.heard;
    let facts = [
        ("every agent connected, and none was refused", row.connected == 5 && row.refused == 0),
        (
            "batches were sent, and all but the last were acknowledged",
            row.batches > 100 && row.unacknowledged <= 10,
        ),
        ("no batch was refused or lost", row.batches_refused == 0 && row.batches_lost == 0),
        ("the collector used CPU and memory", row.collector_cpu_ratio > 0.0 && row.resident_bytes > 1 << 20),
        ("an episode was told by a webhook", heard.episodes > 0 && heard.alerted == heard.episodes),
        (
            "after all connections went, and after a restart, all were back with nothing lost",
            [&row.storm, &row.restart].into_iter().all(|of| {
                of.as_ref().is_some_and(|of| of.back == 5 && of.batches_lost == 0 && of.batches_refused == 0)
            }),
        ),
        ("its root was found, in its own application", heard.found == heard.episodes && heard.across == 0),
    ];
    let wrong: Vec<&str> = facts.iter().filter(|(_, holds)| !holds).map(|(fact, _)| *fact).collect();
    anyhow::ensure!(wrong.is_empty(), "it does not hold that {}: {row:#?}", wrong.join("; that "));
    Ok(())
}

/// When, and on what.
fn machine() -> Result<String> {
    let cpus = std::thread::available_parallelism()?;
    let kernel = kernel_release()?;
    let today = tailwater_tests::os::process::run(Command::new("date").args(["-u", "+%F"]))?;
    Ok(format!("{}, {cpus} CPUs, kernel {kernel}", today.trim()))
}
