//! What a score of graphs leaves: `graph-score.json` and `graph-score.md`, and a line of the ledger, in which every scoring ever made
//! stands. Knows shapes and texts; measures and judges nothing.

use crate::console::written::written;
use crate::graph::judge::Row;
use crate::graph::plan::Graph;
use crate::programs::reported::{self, Reported, Way};
use crate::score::quality::{
    Forecast, area_under_curve, bins, brier, brier_of_constant, calibration_error, told,
};
use crate::score::totals::Share;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// Name of the results' files.
pub const NAME: &str = "graph-score";
/// The file of every scoring.
pub const LEDGER: &str = "graph-ledger.md";

/// What was told of one graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphResult {
    /// The graph.
    pub graph: Graph,
    /// Requests a second that were sent in the end.
    pub rate_per_second: f64,
    /// Every injection's verdict.
    pub rows: Vec<Row>,
    /// Alarms that belong to no injection.
    pub strays: Vec<Stray>,
    /// Seconds under load in which nothing was injected, before the first injection.
    pub control_s: u64,
    /// Why it ended early or is not whole, if so; what was measured is scored.
    pub broken: Option<String>,
}

/// An alarm that belongs to no injection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stray {
    /// What was said.
    pub reported: Reported,
    /// Packets that the kernel did drop in its time: above zero the machine itself stalled, and the alarm is right.
    pub dropped: u64,
    /// Whether it came while nothing had been injected yet.
    pub in_control: bool,
}

/// Everything that `graph-score.json` holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What was measured: a version or commit, as given on the command line.
    pub label: String,
    /// The seeds, also of graphs that could not be run.
    pub seeds: Vec<u64>,
    /// Whether the seeds were not known before the commit.
    pub scored: bool,
    /// When it began, Unix s.
    pub begun_unix_s: u64,
    /// How long it took, s.
    pub took_s: u64,
    /// Kernel release.
    pub kernel: String,
    /// CPUs of the machine.
    pub cpus: u64,
    /// Each graph.
    pub graphs: Vec<GraphResult>,
    /// Graphs of which there is nothing: seed and why.
    pub failed: Vec<String>,
}

/// Sums over graphs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Injections made.
    pub injections: u64,
    /// Those that hurt somebody: all shares but precision are of these.
    pub induced: u64,
    /// Found.
    pub recall: Share,
    /// Alarms about an injection, each injection's first, of all alarms; without those in the quiet that the kernel bears out.
    pub precision: Share,
    /// Kind and root right.
    pub kind_and_root: Share,
    /// Resource right.
    pub resource: Share,
    /// Found, and told as unexplained.
    pub unexplained: u64,
    /// Further alarms in an injection's time.
    pub echoes: u64,
    /// Alarms in the quiet that nothing bears out.
    pub strays: u64,
    /// Those of them in the control.
    pub in_control: u64,
    /// Alarms in the quiet that the kernel's drops bear out.
    pub unplanned_real: u64,
    /// Seconds of control.
    pub control_s: u64,
    /// Very long requests of what was found: told, and by the clients' log.
    pub vlrt: [u64; 2],
}

impl Totals {
    /// Of these graphs.
    #[must_use]
    pub fn of(graphs: &[GraphResult]) -> Self {
        let rows = || graphs.iter().flat_map(|of| &of.rows);
        let induced = || rows().filter(|row| row.induced);
        let strays = || graphs.iter().flat_map(|of| &of.strays);
        let is_false = |stray: &&Stray| stray.dropped == 0;
        // What was injected and hurt nobody may be told all the same, if it is told rightly.
        let alarms = |right: bool| {
            rows()
                .filter(|row| {
                    !row.told_with_another && row.reported.as_ref().is_some_and(Reported::is_alarming)
                })
                .filter(|row| (row.induced || row.root_right) == right)
                .count() as u64
        };
        let echoes = rows().map(|row| row.echoes.len() as u64).sum();
        let false_strays = strays().filter(is_false).count() as u64;
        let (right, wrong) = (alarms(true), alarms(false) + echoes + false_strays);
        let unexplained =
            |row: &&Row| row.reported.as_ref().is_some_and(|told| told.resource == "unexplained");
        Self {
            injections: rows().count() as u64,
            induced: induced().count() as u64,
            recall: Share::count(induced(), |row| row.is_found()),
            precision: Share { right, of: right + wrong },
            kind_and_root: Share::count(induced(), |row| row.kind_right && row.root_right),
            resource: Share::count(induced(), |row| row.resource_right),
            unexplained: induced().filter(unexplained).count() as u64,
            echoes,
            strays: false_strays,
            in_control: strays().filter(is_false).filter(|stray| stray.in_control).count() as u64,
            unplanned_real: strays().filter(|stray| stray.dropped > 0).count() as u64,
            control_s: graphs.iter().map(|of| of.control_s).sum(),
            vlrt: induced()
                .filter_map(|row| Some([row.reported.as_ref()?.vlrt, row.injection.truth.vlrt]))
                .fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]]),
        }
    }
}

/// A share with its interval.
fn figure(share: Share) -> String {
    let [low, high] = share.wilson();
    format!("{:.3} ({} of {}, {low:.3} to {high:.3})", share.ratio(), share.right, share.of)
}

impl Results {
    /// Writes both files into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        written(folder, NAME, self, &self.markdown()?)
    }

    /// The table: totals, a line for each cause and graph, then every failure by name.
    pub fn markdown(&self) -> Result<String> {
        let mut out = String::new();
        let totals = Totals::of(&self.graphs);
        writeln!(out, "# Graph score\n")?;
        let seeds = if self.scored { "seeds that follow from the commit" } else { "seeds of development" };
        writeln!(
            out,
            "{} injections into {} graphs ({seeds}) and {} s of control in {} min on kernel {}, {} CPUs. {}\n",
            totals.injections,
            self.graphs.len(),
            totals.control_s,
            self.took_s / 60,
            self.kernel,
            self.cpus,
            self.label
        )?;
        writeln!(out, "| | share (of, Wilson 95 %) |\n|---|---|")?;
        for (name, share) in [
            ("recall", totals.recall),
            ("precision", totals.precision),
            ("kind and root", totals.kind_and_root),
            ("resource", totals.resource),
        ] {
            writeln!(out, "| {name} | {} |", figure(share))?;
        }
        writeln!(
            out,
            "\n{} of {} injections hurt nobody (no drop, no answer slower than a second) and are held against nobody. {} were told as unexplained. \
             {} echoes, {} false alarms outside of injections ({} of them in the control), {} that the kernel's own drops bear out.",
            totals.injections - totals.induced,
            totals.injections,
            totals.unexplained,
            totals.echoes,
            totals.strays,
            totals.in_control,
            totals.unplanned_real
        )?;
        let [told, real] = totals.vlrt;
        writeln!(
            out,
            "\nRequests of a second or more: {told} told where the clients' logs have {real} ({:+.1} %).",
            100.0 * (told as f64 / real.max(1) as f64 - 1.0)
        )?;
        self.ways(&mut out)?;
        self.causes(&mut out)?;
        self.confidence(&mut out)?;
        self.of_graphs(&mut out)?;
        self.misses(&mut out)?;
        Ok(out)
    }

    /// Of the tiers above a root that was named rightly, where the slowest request of each was.
    fn ways(&self, out: &mut String) -> Result<()> {
        let rows = self.graphs.iter().flat_map(|of| &of.rows).filter(|row| row.induced && row.root_right);
        let ways: Vec<Way> =
            rows.filter_map(|row| row.reported.as_ref()).flat_map(|told| told.ways.clone()).collect();
        let count = |of: Way| ways.iter().filter(|way| **way == of).count();
        if !ways.is_empty() {
            writeln!(
                out,
                "\nThe slowest requests of {} tiers above a root that was named rightly: {} are told to have waited for it, {} for something else, {} were unread \
                 most of the time, and of {} it is not known.",
                ways.len(),
                count(Way::ToRoot),
                count(Way::Elsewhere),
                count(Way::Unread),
                count(Way::Unknown)
            )?;
        }
        Ok(())
    }

    fn causes(&self, out: &mut String) -> Result<()> {
        let mut causes: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in self.graphs.iter().flat_map(|of| &of.rows) {
            causes.entry(row.injection.cause.name()).or_default().push(row);
        }
        writeln!(
            out,
            "\n| cause | made | induced | found | kind and root | resource |\n|---|---|---|---|---|---|"
        )?;
        for (cause, rows) in causes {
            let induced = || rows.iter().filter(|row| row.induced);
            let count = |is: &dyn Fn(&Row) -> bool| induced().filter(|row| is(row)).count();
            writeln!(
                out,
                "| {cause} | {} | {} | {} | {} | {} |",
                rows.len(),
                induced().count(),
                count(&Row::is_found),
                count(&|row| row.kind_right && row.root_right),
                count(&|row| row.resource_right)
            )?;
        }
        Ok(())
    }

    /// Of every root that was named in an injection's time, and in the quiet where the kernel dropped nothing: there each is wrong.
    fn forecasts(&self) -> Vec<Forecast> {
        let rows = self.graphs.iter().flat_map(|of| &of.rows).map(|row| row.named().collect::<Vec<_>>());
        let strays = self.graphs.iter().flat_map(|of| &of.strays).filter(|stray| stray.dropped == 0);
        let strays = strays.filter(|stray| stray.reported.resource != "unexplained");
        let all = rows.chain(strays.map(|stray| vec![(&stray.reported, false)]));
        all.enumerate()
            .flat_map(|(group, named)| {
                named.into_iter().map(move |(told, right)| Forecast { chance: told.confidence, right, group })
            })
            .collect()
    }

    fn confidence(&self, out: &mut String) -> Result<()> {
        let forecasts = self.forecasts();
        writeln!(
            out,
            "\n## Confidence\n\nOf {} roots that were named, {} of them right (host, service and resource); intervals are 95 %, by the bootstrap over injections.\n\n\
             | | |\n|---|---|\n| expected calibration error | {} |\n| Brier score | {} |\n| of the constant that knows the share | {:.3} |\n\
             | area under the curve | {} |\n\n| said | mean | right | bounds (Wilson) | roots |\n|---|---|---|---|---|",
            forecasts.len(),
            forecasts.iter().filter(|f| f.right).count(),
            told(&forecasts, 3, |f| Some(calibration_error(f))),
            told(&forecasts, 3, |f| Some(brier(f))),
            brier_of_constant(&forecasts),
            told(&forecasts, 3, area_under_curve)
        )?;
        for bin in bins(&forecasts) {
            let (low, high) = bin.bounds;
            writeln!(
                out,
                "| {:.2} to {:.2} | {:.3} | {:.3} | {low:.3} to {high:.3} | {} |",
                bin.from, bin.to, bin.said, bin.right, bin.count
            )?;
        }
        Ok(())
    }

    fn of_graphs(&self, out: &mut String) -> Result<()> {
        writeln!(out, "\n## Graphs\n")?;
        for of in &self.graphs {
            let totals = Totals::of(std::slice::from_ref(of));
            let told = of.graph.told().replace("\n  ", ": ");
            writeln!(
                out,
                "- `{:x}`: {told}. {:.0} requests a second were sent. Induced {} of {}, found {}, kind and root {}.",
                of.graph.seed,
                of.rate_per_second,
                totals.induced,
                totals.injections,
                totals.recall.right,
                totals.kind_and_root.right
            )?;
            if let Some(why) = &of.broken {
                writeln!(out, "  It broke off: {why}")?;
            }
        }
        for failed in &self.failed {
            writeln!(out, "- {failed}")?;
        }
        Ok(())
    }

    fn misses(&self, out: &mut String) -> Result<()> {
        writeln!(out, "\n## What was told wrongly\n")?;
        let mut all_right = true;
        for of in &self.graphs {
            for row in of.rows.iter().filter(|row| row.induced) {
                let right = row.is_found() && row.kind_right && row.root_right && row.resource_right;
                if right && row.echoes.is_empty() {
                    continue;
                }
                all_right = false;
                let wrong = |is: bool, what: &'static str| (!is).then_some(what);
                let wrongs: Vec<&str> = [
                    wrong(row.is_found(), "not found"),
                    wrong(row.kind_right, "kind"),
                    wrong(row.root_right, "root"),
                    wrong(row.resource_right, "resource"),
                    wrong(row.echoes.is_empty(), "echo"),
                ]
                .into_iter()
                .flatten()
                .collect();
                let truth = &row.injection.truth;
                let told = row.reported.as_ref().map_or("nothing was told".to_owned(), reported::brief);
                writeln!(
                    out,
                    "- {} ({}): {} on {} for {} ms, {} packets dropped at {}, {} slow; kinds {}. Told: {told}",
                    truth.id,
                    wrongs.join(", "),
                    row.injection.roots.join(" or "),
                    row.injection.host,
                    row.injection.duration_ms,
                    truth.dropped(),
                    truth.dropping_tiers().join(", "),
                    truth.vlrt,
                    row.kinds.iter().map(String::as_str).collect::<Vec<_>>().join(" or ")
                )?;
            }
            for stray in &of.strays {
                all_right &= stray.dropped > 0;
                let when = if stray.in_control { "in the control" } else { "outside of injections" };
                writeln!(
                    out,
                    "- `{:x}`, {when}, {} packets dropped by the kernel: {}",
                    of.graph.seed,
                    stray.dropped,
                    reported::brief(&stray.reported)
                )?;
            }
        }
        if all_right {
            writeln!(out, "Nothing.")?;
        }
        Ok(())
    }

    /// The ledger's line of the result.
    #[must_use]
    pub fn line(&self, commit: &str) -> String {
        let totals = Totals::of(&self.graphs);
        let broken = self.failed.len() + self.graphs.iter().filter(|of| of.broken.is_some()).count();
        let broken = if broken > 0 { format!("; {broken} graphs broke off") } else { String::new() };
        format!(
            "| {commit} | {} | {} | {} of {} | {} | {} | {} | {} | {} in {} s{broken} |",
            date(self.begun_unix_s + self.took_s),
            hex(&self.seeds),
            totals.induced,
            totals.injections,
            figure(totals.recall),
            figure(totals.precision),
            figure(totals.kind_and_root),
            figure(totals.resource),
            totals.in_control,
            totals.control_s
        )
    }
}

const LEDGER_HEAD: &str = "# Ledger of graph scores

Every scoring of seeds that follow from a commit (`make graph-score GRAPH_SCORE_FLAGS=--scored`), in order: a line when it begins, and one with its
result, written by the program before anybody looks into it. A line that begins and has no result is a run that broke off. Shares with
Wilson's interval of 95 %; false alarms in the control.

| commit | date (UTC) | seeds | induced of injections | recall | precision | kind and root | resource | false alarms in control |
|---|---|---|---|---|---|---|---|---|
";

/// Adds a line to the ledger in a folder, which is begun if there is none. Nothing that stands in it is changed.
pub fn append(folder: &Path, line: &str) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let file = folder.join(LEDGER);
    let is_new = !file.exists();
    let mut open = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&file)
        .with_context(|| format!("open {}", file.display()))?;
    let text = if is_new { format!("{LEDGER_HEAD}{line}\n") } else { format!("{line}\n") };
    open.write_all(text.as_bytes())
        .and_then(|()| open.sync_all())
        .with_context(|| format!("write {}", file.display()))
}

/// The ledger's line of a scoring that begins.
#[must_use]
pub fn begun(commit: &str, begun_unix_s: u64, seeds: &[u64]) -> String {
    format!("| {commit} | {} | {} | begun | | | | | |", date(begun_unix_s), hex(seeds))
}

fn hex(seeds: &[u64]) -> String {
    seeds.iter().map(|seed| format!("{seed:x}")).collect::<Vec<_>>().join(" ")
}

/// `2026-11-27 01:05`, by the days of the civil calendar.
fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Years begin in March, so that the leap day is the last: days since 0000-03-01.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::injections::Cause;
    use crate::graph::judge::{Injection, judge};
    use crate::truth::{PlaceTruth, TruthRecord};

    fn injection(id: &str, start_unix_ns: u64, dropped: u64) -> Injection {
        let place = PlaceTruth {
            tier: "entry".into(),
            host: "hosta".into(),
            dropped,
            listen_drops: dropped,
            first_drop_unix_ns: start_unix_ns * u64::from(dropped > 0),
            last_drop_unix_ns: start_unix_ns * u64::from(dropped > 0),
            ..PlaceTruth::default()
        };
        Injection {
            cause: Cause::Pause,
            host: "hosta".into(),
            roots: vec!["entry".into()],
            duration_ms: 700,
            truth: TruthRecord {
                id: id.into(),
                start_unix_ns,
                end_unix_ns: start_unix_ns + 1,
                from_unix_ns: start_unix_ns - 1,
                to_unix_ns: start_unix_ns + 9_000_000_000,
                places: vec![place],
                ..TruthRecord::default()
            },
        }
    }

    fn results() -> Results {
        let graph = Graph::of(1, 2);
        let s = 1_000_000_000;
        let injections = [
            injection("right#1", 100 * s, 5),
            injection("missed#1", 200 * s, 7),
            injection("none#1", 300 * s, 0),
        ];
        let told = Reported {
            id: "a".into(),
            kind: "local_overflow".into(),
            severity: "critical".into(),
            host: "hosta".into(),
            workload: "entry".into(),
            resource: "pause".into(),
            first_drop_unix_ns: Some(100 * s),
            ..Reported::default()
        };
        let rows = judge(&graph, &injections, std::slice::from_ref(&told)).rows;
        let stray = |dropped| Stray { reported: told.clone(), dropped, in_control: true };
        let graphs = vec![GraphResult {
            graph,
            rate_per_second: 200.0,
            rows,
            strays: vec![stray(0), stray(4)],
            control_s: 60,
            broken: None,
        }];
        Results { graphs, seeds: vec![1], took_s: 60, begun_unix_s: 1_795_741_200, ..Results::default() }
    }

    #[test]
    fn totals_are_of_what_was_induced_and_a_borne_out_alarm_counts_for_nobody() {
        let totals = Totals::of(&results().graphs);
        assert_eq!((totals.injections, totals.induced), (3, 2));
        assert_eq!(totals.recall, Share { right: 1, of: 2 });
        assert_eq!(totals.precision, Share { right: 1, of: 2 });
        assert_eq!(totals.kind_and_root, Share { right: 1, of: 2 });
        assert_eq!((totals.strays, totals.in_control, totals.unplanned_real), (1, 1, 1));
    }

    #[test]
    fn a_miss_stands_by_name_in_the_table_and_what_hurt_nobody_does_not() {
        let text = results().markdown().unwrap();
        assert!(text.contains("missed#1 (not found, kind, root, resource)"), "{text}");
        assert!(!text.contains("right#1") && !text.contains("none#1"), "{text}");
        assert!(text.contains("| recall | 0.500 (1 of 2, "), "{text}");
        assert!(text.contains("Of 2 roots that were named, 1 of them right"), "one in the quiet: {text}");
    }

    #[test]
    fn the_ledger_only_grows_and_has_a_line_before_there_is_a_result() {
        let folder = tempfile::tempdir().unwrap();
        let results = results();
        append(folder.path(), &begun("abc", results.begun_unix_s, &[1])).unwrap();
        let before = std::fs::read_to_string(folder.path().join(LEDGER)).unwrap();
        append(folder.path(), &results.line("abc")).unwrap();
        let after = std::fs::read_to_string(folder.path().join(LEDGER)).unwrap();
        assert!(after.starts_with(&before) && after.starts_with("# Ledger"));
        let lines: Vec<&str> = after.lines().filter(|line| line.starts_with("| abc |")).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("2026-11-27 01:00 | 1 | begun"), "{}", lines[0]);
        assert!(lines[1].contains("2026-11-27 01:01 | 1 | 2 of 3 | 0.500 (1 of 2"), "{}", lines[1]);
        let columns = |line: &str| line.matches('|').count();
        assert!(lines.iter().all(|line| columns(line) == 10), "{lines:?}");
    }

    #[test]
    fn the_committed_ledger_begins_as_one_does() {
        assert!(include_str!("../../results/graph-ledger.md").starts_with(LEDGER_HEAD));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(1_709_164_800), "2024-02-29 00:00");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59");
    }
}
