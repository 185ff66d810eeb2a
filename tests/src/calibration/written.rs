//! What is written of a calibration: the table of weights that the analysis is built with, and the results for people. Owns what is held out
//! of what; pure.

use super::logistic::Model;
use super::verdicts::{SCORE, Source, Verdict, Verdicts};
use crate::score::quality::{
    Forecast, area_under_curve, bins, brier, brier_of_constant, calibration_error, told, wilson,
};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Cells and systems are dealt to so many folds; each verdict is forecast by a model that saw none of its fold.
const FOLDS: u64 = 5;
/// Penalty of the weights. What a tenth of it, ten and a hundred times as much would give stands in the results.
pub const RIDGE: f64 = 10.0;
/// As confidences are told: never surer.
const SUREST: f64 = 0.99;
const LEAST: f64 = 0.01;
/// Below which confidence one might say "unexplained" in place of the root.
const THRESHOLDS: [f64; 5] = [0.3, 0.4, 0.5, 0.6, 0.7];

/// A calibration.
#[derive(Debug)]
pub struct Calibration<'a> {
    verdicts: &'a Verdicts,
    /// Those that have numbers, and of each the forecast by the rule's score, and by a model that did not see its like.
    named: Vec<(&'a Verdict, Forecast, Forecast)>,
    /// Of the laboratory's: by a model that saw no other verdict of its stack.
    by_stack: Vec<Forecast>,
    /// Learnt of all.
    model: Model,
    ridges: Vec<(f64, f64)>,
}

/// FNV-1a of a name: which fold it is dealt to.
fn hash(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The stack of a cell's verdict. One whose clients keep their connections has the same servers, and so is the same.
fn stack(verdict: &Verdict) -> String {
    let name = verdict.group.split('-').next().unwrap_or_default();
    name.strip_suffix("kept").unwrap_or(name).to_owned()
}

fn numbers(verdict: &Verdict) -> &[f64] {
    verdict.numbers.as_deref().unwrap_or_default()
}

/// Numbers that say how little was seen. Where one learns most verdicts are right, also of those, and so they may seem to speak for them.
const NEVER_FOR: [&str; 5] = ["behind_unseen", "unseen_below", "windows_missing", "clock_error", "polled"];

/// The places of [`NEVER_FOR`].
fn never_for(names: &[String]) -> Vec<usize> {
    (0..names.len()).filter(|n| NEVER_FOR.contains(&names[*n].as_str())).collect()
}

/// What it costs to see little is learnt of all verdicts, as it hardly happens where recordings are whole; all else of those that are, since how
/// often a root is right there is what a confidence is to say.
fn learn<'a>(
    of: impl Iterator<Item = &'a &'a Verdict> + Clone,
    ridge: f64,
    never_for: &[usize],
) -> Result<Model> {
    // That a source is harder is no cost of seeing little: each has a number of its own here, which is forgotten again.
    let marked: Vec<(Vec<f64>, bool)> = of
        .clone()
        .map(|v| {
            let marks =
                [Source::Composed, Source::Simulated].map(|source| f64::from(u8::from(v.source == source)));
            (numbers(v).iter().copied().chain(marks).collect(), v.right)
        })
        .collect();
    let all: Vec<(&[f64], bool)> = marked.iter().map(|(x, right)| (x.as_slice(), *right)).collect();
    let of_all = Model::learn(&all, ridge, never_for).context("nothing can be learnt of these verdicts")?;
    let known: Vec<(usize, f64)> =
        never_for.iter().filter_map(|place| Some((*place, *of_all.weights.get(*place)?))).collect();
    let whole: Vec<(&[f64], bool)> =
        of.filter(|v| v.source.is_whole()).map(|v| (numbers(v), v.right)).collect();
    Model::learn_beside(&whole, ridge, &known).context(
        "no verdict is of a whole recording: give those of a lab-score (LAB) or of a graph-score (GRAPHS)",
    )
}

/// Chances of verdicts, in their order, each by a model that saw none of what `part` deals to the same part.
fn held_out<K: Ord>(
    named: &[&Verdict],
    part: impl Fn(&Verdict) -> K,
    ridge: f64,
    never_for: &[usize],
) -> Result<Vec<f64>> {
    let parts: BTreeSet<K> = named.iter().map(|v| part(v)).collect();
    let mut models: BTreeMap<&K, Model> = BTreeMap::new();
    for one in &parts {
        models.insert(one, learn(named.iter().filter(|v| part(v) != *one), ridge, never_for)?);
    }
    let chance = |v: &&Verdict| -> Result<f64> {
        let model = models.get(&part(v)).context("each part has a model")?;
        Ok(model.chance(numbers(v)).clamp(LEAST, SUREST))
    };
    named.iter().map(chance).collect()
}

impl<'a> Calibration<'a> {
    /// Learns.
    pub fn of(verdicts: &'a Verdicts) -> Result<Self> {
        let score = verdicts.names.iter().position(|name| name == SCORE).context("no number of the score")?;
        let never_for = never_for(&verdicts.names);
        let named: Vec<&Verdict> = verdicts.all.iter().filter(|v| v.numbers.is_some()).collect();
        ensure!(!named.is_empty(), "no verdict has numbers");
        let groups: BTreeSet<&str> = named.iter().map(|v| v.group.as_str()).collect();
        let group = |v: &Verdict| groups.iter().position(|g| *g == v.group).unwrap_or(0);
        let fold = |v: &Verdict| hash(&v.group) % FOLDS;
        let forecast = |v: &Verdict, chance| Forecast { chance, right: v.right, group: group(v) };
        let ridges = [0.1, 1.0, 10.0, 100.0]
            .map(|factor| RIDGE * factor)
            .into_iter()
            .map(|ridge| {
                let chances = held_out(&named, fold, ridge, &never_for)?;
                let whole = named.iter().zip(chances).filter(|(v, _)| v.source.is_whole());
                let whole: Vec<Forecast> = whole.map(|(v, c)| forecast(v, c)).collect();
                Ok((ridge, brier(&whole)))
            })
            .collect::<Result<_>>()?;
        let chances = held_out(&named, fold, RIDGE, &never_for)?;
        let rows = named.iter().zip(chances).map(|(v, chance)| {
            let rule = numbers(v).get(score).copied().unwrap_or(0.0);
            (*v, forecast(v, rule), forecast(v, chance))
        });
        let rows = rows.collect();
        let of_lab = |v: &&&Verdict| v.source == Source::Laboratory;
        // Graphs and simulated systems are of no stack, and each of them would be one.
        let of_stacks: Vec<&Verdict> = named
            .iter()
            .filter(|v| matches!(v.source, Source::Laboratory | Source::Composed))
            .copied()
            .collect();
        let chances = held_out(&of_stacks, stack, RIDGE, &never_for)?;
        // Drawn together is what was held out together.
        let stacks: BTreeSet<String> = of_stacks.iter().map(|v| stack(v)).collect();
        let place = |v: &Verdict| stacks.iter().position(|s| *s == stack(v)).unwrap_or(0);
        let by_stack = of_stacks.iter().zip(chances).filter(|(v, _)| of_lab(v));
        let by_stack =
            by_stack.map(|(v, chance)| Forecast { chance, right: v.right, group: place(v) }).collect();
        let model = learn(named.iter(), RIDGE, &never_for)?;
        Ok(Self { verdicts, named: rows, by_stack, model, ridges })
    }

    /// The Rust source of the weights. `label`: the commit of which the verdicts are; `date`: the day.
    pub fn table(&self, label: &str, date: &str) -> Result<String> {
        let mut out = String::new();
        let right = self.named.iter().filter(|(v, ..)| v.right).count();
        writeln!(
            out,
            "//! Weights of the numbers that path/evidence.rs owns, learnt on {date} at {label} of {} verdicts, {right} of them right. `make calibrate` writes\n\
             //! this file, nobody by hand; how good it is stands in the results, calibration.md.\n\nuse crate::path::evidence::COUNT;\n",
            self.named.len()
        )?;
        writeln!(
            out,
            "/// Log-odds that a root is right whose numbers are all as usual; then of each number its name, usual value, and weight: log-odds for a value\n\
             /// higher by 1.\npub(super) type Learnt = (f64, [(&'static str, f64, f64); COUNT]);\n"
        )?;
        writeln!(out, "/// `None`: the score by rule stands in for a confidence.")?;
        writeln!(out, "pub(super) const LEARNT: Option<Learnt> = Some((")?;
        writeln!(out, "    {:?},\n    [", thousandths(self.model.of_none))?;
        for ((name, usual), weight) in
            self.verdicts.names.iter().zip(&self.model.usual).zip(&self.model.weights)
        {
            writeln!(out, "        ({name:?}, {:?}, {:?}),", thousandths(*usual), thousandths(*weight))?;
        }
        writeln!(out, "    ],\n));")?;
        Ok(out)
    }

    /// The results, as Markdown.
    pub fn markdown(&self, label: &str, date: &str) -> Result<String> {
        let mut out = String::new();
        writeln!(
            out,
            "# Confidence: {label}, {date}\n\nA verdict is right here if host, workload and resource of its root are those of the truth; of a simulated system, and of what is told of a composed \
             recording beside its injection's own incident, the time as well. Every figure is of verdicts that the model which \
             forecasts them has not seen: cells and simulated systems are dealt to {FOLDS} parts by a hash of their names, and each part is forecast by a model of the \
             other {}. What it costs to see little ({}) is learnt of all sources, everything else of the laboratory and of service graphs alone: in them most is \
             seen, as with whoever uses this. The weights that the analysis is built with are learnt of all parts. Intervals are 95 %, by the bootstrap over cells and systems, where a stack \
             is held out over stacks (of a calibration error rather too high than too low); bounds of shares are Wilson's.\n",
            FOLDS - 1,
            NEVER_FOR.map(|name| format!("`{name}`")).join(", ")
        )?;
        self.sources(&mut out)?;
        self.figures(&mut out)?;
        self.reliability(&mut out)?;
        self.thresholds(&mut out)?;
        self.wrong(&mut out)?;
        self.weights(&mut out)?;
        Ok(out)
    }

    fn sources(&self, out: &mut String) -> Result<()> {
        writeln!(
            out,
            "| source | roots named | wrong | right, with bounds | unexplained or by rule |\n|---|---|---|---|---|"
        )?;
        for source in Source::ALL {
            let all = || self.verdicts.all.iter().filter(move |v| v.source == source);
            let named = all().filter(|v| v.numbers.is_some()).count();
            let right = all().filter(|v| v.numbers.is_some() && v.right).count();
            let (low, high) = wilson(right, named);
            let (rest, share) = (all().count() - named, 100.0 * (all().count() - named) as f64);
            writeln!(
                out,
                "| {} | {named} | {} | {:.3} ({low:.3} to {high:.3}) | {rest} ({:.0} %) |",
                source.name(),
                named - right,
                right as f64 / named.max(1) as f64,
                share / all().count().max(1) as f64
            )?;
        }
        writeln!(
            out,
            "\nOf {} injections into service graphs that hurt somebody nothing was told of {}. Of {} injections of the laboratory that went as planned nothing was told of {}. No verdicts, for their truth is not known, are its {} alarms \
             outside of injections, and {} more incidents that alarm nobody or are of injections that did not go as planned.\n",
            self.verdicts.graph_injections,
            self.verdicts.graph_missed,
            self.verdicts.injections,
            self.verdicts.missed,
            self.verdicts.strays,
            self.verdicts.others
        )?;
        Ok(())
    }

    fn figures(&self, out: &mut String) -> Result<()> {
        writeln!(
            out,
            "| verdicts | forecast | calibration error | Brier score | of the constant | area under the curve |\n|---|---|---|---|---|---|"
        )?;
        let of = |source: Option<Source>, rule: bool| -> Vec<Forecast> {
            let rows = self.named.iter().filter(|(v, ..)| source.is_none_or(|source| v.source == source));
            rows.map(|(_, by_rule, learnt)| if rule { *by_rule } else { *learnt }).collect()
        };
        for source in Source::ALL.map(Some).into_iter().chain([None]) {
            let name = source.map_or("all", Source::name);
            figure(out, name, "score by rule, as before", &of(source, true))?;
            figure(out, name, "learnt, cell or system held out", &of(source, false))?;
            if source == Some(Source::Laboratory) {
                figure(
                    out,
                    name,
                    "learnt without graphs and simulated ones, stack held out",
                    &self.by_stack,
                )?;
            }
        }
        writeln!(out)?;
        Ok(())
    }

    fn reliability(&self, out: &mut String) -> Result<()> {
        writeln!(
            out,
            "## Reliability\n\nBins of equally many verdicts, held out. A model that means what it says has its mean within the bounds.\n"
        )?;
        for source in Source::ALL.map(Some).into_iter().chain([None]) {
            let rows = self.named.iter().filter(|(v, ..)| source.is_none_or(|source| v.source == source));
            let forecasts: Vec<Forecast> = rows.map(|(.., learnt)| *learnt).collect();
            writeln!(
                out,
                "| {}: said | mean | right | bounds | verdicts | |\n|---|---|---|---|---|---|",
                source.map_or("all", Source::name)
            )?;
            for bin in bins(&forecasts) {
                let (low, high) = bin.bounds;
                let within = if (low..=high).contains(&bin.said) { "" } else { "outside" };
                writeln!(
                    out,
                    "| {:.2} to {:.2} | {:.3} | {:.3} | {low:.3} to {high:.3} | {} | {within} |",
                    bin.from, bin.to, bin.said, bin.right, bin.count
                )?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn thresholds(&self, out: &mut String) -> Result<()> {
        writeln!(
            out,
            "## If roots below a confidence were told as unexplained\n\nHeld out. Wrong roots that would not be named, and right ones that would be lost. Nothing of this is done today.\n\n| source | below | wrong ones spared | right ones lost |\n|---|---|---|---|"
        )?;
        for source in Source::ALL {
            let of =
                |right: bool| self.named.iter().filter(move |(v, ..)| v.source == source && v.right == right);
            for threshold in THRESHOLDS {
                let below = |right| of(right).filter(|(.., learnt)| learnt.chance < threshold).count();
                writeln!(
                    out,
                    "| {} | {threshold:.1} | {} of {} | {} of {} |",
                    source.name(),
                    below(false),
                    of(false).count(),
                    below(true),
                    of(true).count()
                )?;
            }
        }
        writeln!(out)?;
        Ok(())
    }

    fn wrong(&self, out: &mut String) -> Result<()> {
        writeln!(
            out,
            "## The laboratory's wrong ones\n\n| injection | told | score | confidence, held out |\n|---|---|---|---|"
        )?;
        for (verdict, rule, learnt) in
            self.named.iter().filter(|(v, ..)| v.source == Source::Laboratory && !v.right)
        {
            writeln!(
                out,
                "| {} | {} | {:.2} | {:.2} |",
                verdict.of, verdict.root, rule.chance, learnt.chance
            )?;
        }
        writeln!(out)?;
        Ok(())
    }

    fn weights(&self, out: &mut String) -> Result<()> {
        writeln!(
            out,
            "## Weights\n\nLog-odds of a root whose numbers are all as usual: {:.2}. Numbers go together, so that a single weight is no cause: only their sum was tested.\n\n| number | usual | weight for 1 |\n|---|---|---|",
            self.model.of_none
        )?;
        for ((name, usual), weight) in
            self.verdicts.names.iter().zip(&self.model.usual).zip(&self.model.weights)
        {
            writeln!(out, "| `{name}` | {usual:.3} | {weight:+.2} |")?;
        }
        writeln!(out, "\n| penalty | Brier score of laboratory and service graphs, held out |\n|---|---|")?;
        for (ridge, brier) in &self.ridges {
            writeln!(out, "| {ridge} | {brier:.4} |")?;
        }
        Ok(())
    }
}

fn thousandths(n: f64) -> f64 {
    (n * 1000.0).round() / 1000.0
}

fn figure(out: &mut String, of: &str, how: &str, forecasts: &[Forecast]) -> Result<()> {
    writeln!(
        out,
        "| {of} | {how} | {} | {} | {:.4} | {} |",
        told(forecasts, 3, |f| Some(calibration_error(f))),
        told(forecasts, 4, |f| Some(brier(f))),
        brier_of_constant(forecasts),
        told(forecasts, 3, area_under_curve),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells whose verdicts are right where their number is high, one in ten excepted.
    fn verdicts() -> Verdicts {
        let all = (0..400).map(|n: u32| {
            let high = !n.is_multiple_of(4);
            Verdict {
                source: if n < 200 { Source::Laboratory } else { Source::Composed },
                of: format!("nx{}-cell{}#1", n % 3, n % 40),
                group: format!("nx{}-cell{}", n % 3, n % 40),
                root: "io at mariadb@db-1".into(),
                numbers: (n % 50 != 7).then(|| vec![0.9, if high { 0.8 } else { 0.2 }]),
                right: high != (n / 7).is_multiple_of(10),
            }
        });
        Verdicts {
            names: vec!["score".into(), "held".into()],
            all: all.collect(),
            injections: 201,
            missed: 1,
            strays: 3,
            others: 2,
            ..Verdicts::default()
        }
    }

    #[test]
    fn what_is_told_of_a_calibration_is_of_verdicts_that_were_held_out() {
        let verdicts = verdicts();
        let calibration = Calibration::of(&verdicts).unwrap();
        let seen: Vec<f64> =
            calibration.named.iter().map(|(v, ..)| calibration.model.chance(numbers(v))).collect();
        let differs =
            calibration.named.iter().zip(&seen).filter(|((.., f), seen)| (f.chance - *seen).abs() > 1e-6);
        assert!(differs.count() > 300, "a model that saw a verdict forecasts it otherwise");
        let text = calibration.markdown("a commit", "2026-01-01").unwrap();
        assert!(text.contains("| laboratory | 196 |") && text.contains("201 injections"), "{text}");
        assert!(text.contains("its 3 alarms outside of injections, and 2 more incidents"), "{text}");
        assert!(text.contains("| score by rule, as before |") && text.contains("stack held out"), "{text}");
    }

    #[test]
    fn what_is_held_out_by_stack_is_drawn_by_stack_and_kept_connections_are_no_other_stack() {
        let mut verdicts = verdicts();
        for verdict in verdicts.all.iter_mut().filter(|v| v.group.starts_with("nx2-")) {
            verdict.group = verdict.group.replace("nx2-", "nx1kept-");
        }
        let calibration = Calibration::of(&verdicts).unwrap();
        let groups: BTreeSet<usize> = calibration.by_stack.iter().map(|forecast| forecast.group).collect();
        assert_eq!(groups.into_iter().collect::<Vec<_>>(), [0, 1], "nx0 and nx1");
        assert_eq!(calibration.by_stack.len(), 196);
    }

    /// Fails where what was taken away from recordings says how often a root is right in those that are whole.
    #[test]
    fn of_recordings_that_are_not_whole_only_the_cost_of_seeing_little_is_learnt() {
        let learnt = |flip: bool| {
            let mut verdicts = verdicts();
            verdicts.names = vec!["score".into(), "held".into(), "windows_missing".into()];
            for (n, verdict) in verdicts.all.iter_mut().enumerate() {
                let composed = verdict.source == Source::Composed;
                let missing = composed && n % 3 == 0;
                verdict.right ^= composed && (flip != missing);
                verdict.numbers.iter_mut().for_each(|numbers| numbers.push(f64::from(u8::from(missing))));
            }
            Calibration::of(&verdicts).unwrap().model
        };
        let (model, flipped) = (learnt(false), learnt(true));
        assert!((model.weights[1] - flipped.weights[1]).abs() < 0.01, "{model:?} {flipped:?}");
        assert!(model.weights[2] < -0.5, "{model:?}");
        assert_eq!(model.usual[2].to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn the_table_has_a_line_for_each_number_in_their_order() {
        let verdicts = verdicts();
        let table = Calibration::of(&verdicts).unwrap().table("a commit", "2026-01-01").unwrap();
        let (first, second) =
            (table.find("(\"score\", 0.9, 0.0)").unwrap(), table.find("(\"held\", ").unwrap());
        assert!(first < second && table.contains("at a commit of 392 verdicts"), "{table}");
    }
}
