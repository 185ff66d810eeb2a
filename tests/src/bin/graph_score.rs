//! `make graph-score`: service graphs from seeds, hurt, and what Tailwater says of it held against the truth. Seeds that follow from the
//! commit are scored in the ledger; those of development are not.

#![allow(clippy::disallowed_methods, reason = "a measurement is dated by its own clock")]

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailwater_tests::console::failure::{self, REMEDY};
use tailwater_tests::console::progress::{self, complain, say, seconds, title};
use tailwater_tests::graph::golden;
use tailwater_tests::graph::injections;
use tailwater_tests::graph::plan::Graph;
use tailwater_tests::graph::results::{self, Results};
use tailwater_tests::graph::run::{self, Pace};
use tailwater_tests::lab;
use tailwater_tests::load::Random;
use tailwater_tests::os::{is_root, kernel_release};
use tailwater_tests::supervise::supervise;

/// Graphs of a scoring.
const SCORED: usize = 5;
/// Hexadecimal digits of a commit that its seeds follow from.
const DIGITS: usize = 16;
/// Where injections are kept for the tests.
const GOLDEN: &str = "tests/golden/graph";
/// From one injection to the next, at least: whoever was refused twice comes again after three seconds.
const SPACING: Duration = Duration::from_secs(8);
/// Of --quick.
const QUICK: Pace = Pace {
    injections: 8,
    together: 1,
    control: Duration::from_secs(10),
    spacing: Duration::from_millis(6_500),
};

/// Scores the diagnosis on service graphs.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seeds of development: `1..5` with both ends, or `3,7`.
    #[arg(long, default_value = "1..5", value_parser = seeds_of, conflicts_with = "scored")]
    seeds: Seeds,
    /// Five graphs whose seeds follow from --commit; a line of the ledger is written before anything is run, and one with the result.
    #[arg(long, conflicts_with = "quick")]
    scored: bool,
    /// The smallest of the graphs and a few injections: about two minutes.
    #[arg(long)]
    quick: bool,
    /// Injections into each graph.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    injections: u32,
    /// So many of them at once, each of another cause and on another host.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8), conflicts_with_all = ["scored", "quick"])]
    together: u32,
    /// Seconds under load in which nothing is injected, for each graph.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    control: u64,
    /// Where `graph-score.json` and `graph-score.md` go (with --scored: `tests/results`, else `.lab/graph-score`).
    #[arg(long)]
    out: Option<PathBuf>,
    /// Where the ledger is.
    #[arg(long, default_value = "tests/results")]
    ledger: PathBuf,
    /// Where logs, recordings and the truth of each graph go.
    #[arg(long, default_value = ".lab/graph")]
    folder: PathBuf,
    /// What is measured: a version or a commit.
    #[arg(long, default_value = concat!("version ", env!("CARGO_PKG_VERSION")))]
    label: String,
    /// The commit that is scored, in full; `-dirty` at its end where something is not committed.
    #[arg(long)]
    commit: Option<String>,
    /// Judges what an earlier run left in --folder by what this version says of its recordings, and runs nothing.
    #[arg(long)]
    replay: bool,
    /// Keeps injections of earlier runs that are in --folder, by their ids, for the tests: `SEED/SERVICE-CAUSE#NUMBER`.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    keep: Vec<String>,
    /// Prints the graphs and what would be done to them, and runs nothing.
    #[arg(long)]
    show: bool,
}

/// Seeds as they are asked for.
#[derive(Debug, Clone)]
struct Seeds(Vec<u64>);

fn seeds_of(text: &str) -> Result<Seeds> {
    let number = |text: &str| text.trim().parse::<u64>().with_context(|| format!("{text:?} is no seed"));
    let seeds = match text.split_once("..") {
        Some((from, to)) => {
            let (from, to) = (number(from)?, number(to)?);
            ensure!(from <= to && to - from < 1_000, "from {from} to {to} are no seeds");
            (from..=to).collect()
        }
        None => text.split(',').map(number).collect::<Result<_>>()?,
    };
    Ok(Seeds(seeds))
}

/// The seeds that follow from a commit.
fn seeds_of_commit(commit: &str) -> Result<Vec<u64>> {
    let digits = commit.get(..DIGITS).context("a commit in full")?;
    let seed = u64::from_str_radix(digits, 16).with_context(|| format!("{commit:?} is no commit"))?;
    let mut random = Random::new(seed);
    Ok((0..SCORED).map(|_| random.bits()).collect())
}

impl Arguments {
    fn seeds(&self) -> Result<Vec<u64>> {
        if self.scored {
            return seeds_of_commit(self.scored_commit()?);
        }
        let all = &self.seeds.0;
        if self.quick {
            let size = |seed: &&u64| Graph::of(**seed, lab::cpus()).services.len();
            return Ok(all.iter().min_by_key(size).copied().into_iter().collect());
        }
        Ok(all.clone())
    }

    fn scored_commit(&self) -> Result<&str> {
        let commit = self.commit.as_deref().with_context(|| {
            format!("--scored needs --commit{REMEDY}run `make graph-score GRAPH_SCORE_FLAGS=--scored`")
        })?;
        ensure!(
            !commit.ends_with("-dirty"),
            "what is scored is a commit, and something is not committed{REMEDY}commit it, or run seeds of development"
        );
        Ok(commit)
    }

    fn pace(&self) -> Pace {
        if self.quick {
            return QUICK;
        }
        Pace {
            injections: self.injections as usize,
            together: self.together as usize,
            control: Duration::from_secs(self.control),
            spacing: SPACING,
        }
    }

    fn out(&self) -> PathBuf {
        let other = || PathBuf::from(if self.scored { "tests/results" } else { ".lab/graph-score" });
        self.out.clone().unwrap_or_else(other)
    }

    fn folder(&self, seed: u64) -> PathBuf {
        self.folder.join(format!("{seed:x}"))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    supervise("graph-score", || {
        progress::show();
        failure::run("graph-score", Some(&arguments.folder), || execute(&arguments))
    })
}

fn execute(arguments: &Arguments) -> Result<()> {
    let seeds = arguments.seeds()?;
    if arguments.show {
        show(&seeds, arguments.pace());
        return Ok(());
    }
    if !arguments.keep.is_empty() {
        return keep(arguments);
    }
    if arguments.replay {
        return again(arguments, &seeds);
    }
    if !is_root() {
        bail!("the laboratory needs root{REMEDY}run `make graph-score`, which asks for it");
    }
    let (begun, pace) = (Instant::now(), arguments.pace());
    let at_once = match arguments.together {
        1 => String::new(),
        many => format!(", up to {many} at once"),
    };
    let mut results = Results {
        label: format!("{}{at_once}", arguments.label),
        seeds: seeds.clone(),
        scored: arguments.scored,
        begun_unix_s: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
        kernel: kernel_release()?,
        cpus: lab::cpus() as u64,
        ..Results::default()
    };
    if arguments.scored {
        let line = results::begun(arguments.scored_commit()?, results.begun_unix_s, &seeds);
        results::append(&arguments.ledger, &line)?;
    }
    for (number, seed) in seeds.iter().enumerate() {
        let graph = Graph::of(*seed, lab::cpus());
        let left = seconds(pace.takes() * (seeds.len() - number) as u32);
        title(&format!("graph {seed:x} ({} of {}, {left} left at least)", number + 1, seeds.len()));
        say(&format!("  {}", graph.told()));
        match run::run(&graph, pace, &arguments.folder(*seed)) {
            Ok(of) => results.graphs.push(of),
            Err(error) => {
                let failed = format!("`{seed:x}` was not run: {}", failure::sentence(&error));
                complain(&format!("graph-score: {failed}"));
                results.failed.push(failed);
            }
        }
        results.took_s = begun.elapsed().as_secs();
        // What was measured of a long run is kept, however it ends.
        results.write(&arguments.out())?;
    }
    if arguments.scored {
        results::append(&arguments.ledger, &results.line(arguments.scored_commit()?))?;
    }
    tell(&results, &arguments.out())
}

/// Prints the table, and fails if a graph was not run to its end.
fn tell(results: &Results, out: &Path) -> Result<()> {
    say(&results.markdown()?);
    say(&format!("{}/{}.md and .json", out.display(), results::NAME));
    let broken = results.graphs.iter().filter_map(|of| of.broken.as_deref());
    let broken: Vec<&str> = results.failed.iter().map(String::as_str).chain(broken).collect();
    if !broken.is_empty() {
        bail!("not all graphs were run to their end: {}", broken.join("; "));
    }
    Ok(())
}

fn keep(arguments: &Arguments) -> Result<()> {
    for id in &arguments.keep {
        let (seed, _) = id.split_once('/').with_context(|| format!("{id:?} is no id of an injection"))?;
        let seed = u64::from_str_radix(seed, 16).with_context(|| format!("{seed:?} is no seed"))?;
        let name = golden::keep(&arguments.folder(seed), id, Path::new(GOLDEN))?;
        say(&format!("{GOLDEN}/{name}"));
    }
    Ok(())
}

/// What a replay begins with. It scores nothing, also of seeds that a commit was scored on: whoever replays them knows them.
fn of_replay(arguments: &Arguments, seeds: &[u64]) -> Result<Results> {
    Ok(Results {
        label: format!("{}, by replay of earlier recordings", arguments.label),
        seeds: seeds.to_vec(),
        scored: false,
        cpus: lab::cpus() as u64,
        kernel: kernel_release()?,
        ..Results::default()
    })
}

fn again(arguments: &Arguments, seeds: &[u64]) -> Result<()> {
    let mut results = of_replay(arguments, seeds)?;
    for seed in seeds {
        results.graphs.push(run::again(&arguments.folder(*seed))?);
    }
    // The report of the run itself is not written over.
    let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from(".lab/graph-replay"));
    results.write(&out)?;
    tell(&results, &out)
}

fn show(seeds: &[u64], pace: Pace) {
    for seed in seeds {
        let graph = Graph::of(*seed, lab::cpus());
        title(&format!("graph {seed:x}"));
        say(&format!("  {}", graph.told()));
        let sequence = injections::sequence(&graph, pace.injections);
        for planned in injections::groups(&graph, sequence, pace.together).into_iter().flatten() {
            let of = &graph.services[planned.service];
            say(&format!(
                "  {} at {} on {}, {} ms, {:.2}",
                planned.cause.name(),
                of.name,
                graph.hosts[of.host].name,
                planned.duration_ms,
                planned.amount
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_a_commit_are_its_own_and_what_is_none_is_refused() {
        let commit = "b295b43aa0e1c7d2f00d1234567890abcdef1234";
        let seeds = seeds_of_commit(commit).unwrap();
        assert_eq!((seeds.len(), &seeds), (SCORED, &seeds_of_commit(commit).unwrap()));
        assert_ne!(seeds, seeds_of_commit(&commit.replace('b', "c")).unwrap());
        assert!(seeds_of_commit("b295b43").is_err() && seeds_of_commit("not a commit at all").is_err());
    }

    #[test]
    fn seeds_are_a_range_or_a_list() {
        assert_eq!(seeds_of("1..5").unwrap().0, [1, 2, 3, 4, 5]);
        assert_eq!(seeds_of("7, 3").unwrap().0, [7, 3]);
        assert!(seeds_of("5..1").is_err() && seeds_of("x").is_err() && seeds_of("0..100000").is_err());
    }

    #[test]
    fn a_replay_of_what_was_scored_scores_nothing() {
        let commit = "b295b43aa0e1c7d2f00d1234567890abcdef1234";
        let arguments = Arguments::parse_from(["graph-score", "--replay", "--scored", "--commit", commit]);
        let seeds = arguments.seeds().unwrap();
        assert_eq!(seeds, seeds_of_commit(commit).unwrap());
        assert!(!of_replay(&arguments, &seeds).unwrap().scored);
    }

    #[test]
    fn what_is_not_committed_is_not_scored() {
        let of = |commit: &str| Arguments::parse_from(["graph-score", "--scored", "--commit", commit]);
        let commit = "b295b43aa0e1c7d2f00d1234567890abcdef1234";
        assert!(of(commit).seeds().is_ok());
        assert!(of(&format!("{commit}-dirty")).seeds().is_err());
        assert!(Arguments::parse_from(["graph-score", "--scored"]).seeds().is_err());
    }
}
