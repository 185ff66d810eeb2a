//! Proof that a database serves the bulletin board as it must: its statistics are those of its rows, each statement takes its index,
//! and a page takes no time to speak of. Asks a running server through whatever reaches it, judges, and keeps what it saw as JSON beside
//! the template that it is about. Knows no server's command line.

use super::plan::{Dialect, STATEMENTS, Step};
use crate::os::clock::unix_ns;
use crate::os::process::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Part of a template's name: what an older prover found good is not looked at. To be raised with any change of what is proved.
pub(super) const VERSION: &str = "prover 1";

/// The proof's file in a template, beside its `data`.
const FILE: &str = "proof.json";

/// A statistic may differ from what it is of by this share: those of a sample do, those of luck by all of it.
const TOLERANCE: f64 = 0.1;
/// Pages read one after the other to see how long one takes. The median counts, so that a stalled machine does not.
const PAGES: u32 = 40;
/// A page's statements take 0.3 ms; those of a join without an index took 15 s. In ms.
const PAGE_MAX_MS: f64 = 20.0;

/// A number of the database, and what its statistics take it for.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Counted {
    /// `TABLE` for its rows, `TABLE.COLUMN` for the values of a column that differ.
    what: String,
    rows: u64,
    /// One figure for each place that the optimiser may take it from; none where there is none yet.
    statistics: Vec<Option<f64>>,
}

/// How a statement is executed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Planned {
    statement: String,
    plan: Vec<Step>,
}

/// What a running server said of itself.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Seen {
    counted: Vec<Counted>,
    planned: Vec<Planned>,
}

/// What is kept with a template.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Proof {
    prover: String,
    proved_unix_ns: u64,
    seen: Seen,
    /// The median page's statements, ms.
    page_ms: f64,
    /// SHA-256 over the names and contents of the files that the server was started on.
    files_sha256: String,
}

/// How large the board is: what the schemas fill in, and the places of their statistics.
const ROWS: [(&str, u64); 4] =
    [("users", 5000), ("stories", 2000), ("comments", 20_000), ("comments.story", 2000)];

impl Seen {
    /// Looks at a server. `ask` runs statements and returns what they print, columns separated by tabs, without titles.
    pub(super) fn of(dialect: Dialect, ask: &impl Fn(&str) -> Result<String>) -> Result<Self> {
        let lines = ask(&counting(dialect))?;
        let counted = lines.lines().map(read_counted).collect::<Result<_>>()?;
        let plan = |statement: &super::plan::Statement| -> Result<Planned> {
            let answer = ask(&dialect.explain(&statement.filled(None)))?;
            Ok(Planned { statement: statement.text.to_owned(), plan: dialect.steps(&answer)? })
        };
        Ok(Self { counted, planned: STATEMENTS.iter().map(plan).collect::<Result<_>>()? })
    }

    /// The first thing that is wrong, if anything is.
    pub(super) fn fault(&self, dialect: Dialect) -> Option<String> {
        for (what, rows) in ROWS {
            let Some(counted) = self.counted.iter().find(|counted| counted.what == what) else {
                return Some(format!("{what} was not counted"));
            };
            if counted.rows != rows {
                return Some(format!("{what}: {} instead of {rows}", counted.rows));
            }
            for statistic in &counted.statistics {
                match statistic {
                    None => return Some(format!("{what}: no statistics")),
                    Some(told) if (told / rows as f64 - 1.0).abs() > TOLERANCE => {
                        return Some(format!("{what}: the statistics say {told:.0} of {rows}"));
                    }
                    Some(_) => {}
                }
            }
        }
        STATEMENTS.iter().find_map(|statement| {
            let planned = self.planned.iter().find(|planned| planned.statement == statement.text);
            let fault = match planned {
                Some(planned) => statement.fault(dialect, &planned.plan)?,
                None => "was not explained".to_owned(),
            };
            Some(format!("`{}` {fault}", statement.text))
        })
    }
}

/// One line for each of [`ROWS`]: what, how many, and each of its statistics.
fn counting(dialect: Dialect) -> String {
    let mut text = String::new();
    for (what, _) in ROWS {
        text += &match (dialect, what.split_once('.')) {
            (Dialect::MariaDb, None) => format!(
                "SELECT '{what}', (SELECT COUNT(*) FROM {what}), \
                 (SELECT n_rows FROM mysql.innodb_table_stats WHERE database_name = 'bulletin' AND table_name = '{what}'), \
                 (SELECT cardinality FROM mysql.table_stats WHERE db_name = 'bulletin' AND table_name = '{what}');\n"
            ),
            (Dialect::MariaDb, Some((table, column))) => format!(
                "SELECT '{what}', (SELECT COUNT(DISTINCT {column}) FROM {table}), \
                 (SELECT stat_value FROM mysql.innodb_index_stats WHERE database_name = 'bulletin' AND table_name = '{table}' \
                 AND index_name = '{column}' AND stat_name = 'n_diff_pfx01'), \
                 (SELECT t.cardinality / i.avg_frequency FROM mysql.index_stats i JOIN mysql.table_stats t USING (db_name, table_name) \
                 WHERE i.db_name = 'bulletin' AND i.table_name = '{table}' AND i.index_name = '{column}' AND i.prefix_arity = 1);\n"
            ),
            (Dialect::Postgres, None) => format!(
                "SELECT '{what}', (SELECT COUNT(*) FROM {what}), \
                 (SELECT reltuples FROM pg_class WHERE oid = '{what}'::regclass);\n"
            ),
            // A negative figure is a share of the rows.
            (Dialect::Postgres, Some((table, column))) => format!(
                "SELECT '{what}', (SELECT COUNT(DISTINCT {column}) FROM {table}), \
                 (SELECT CASE WHEN s.n_distinct < 0 THEN -s.n_distinct * c.reltuples ELSE s.n_distinct END FROM pg_stats s, pg_class c \
                 WHERE s.tablename = '{table}' AND s.attname = '{column}' AND c.oid = '{table}'::regclass);\n"
            ),
        };
    }
    text
}

fn read_counted(line: &str) -> Result<Counted> {
    let mut columns = line.split('\t');
    let (Some(what), Some(rows)) = (columns.next(), columns.next()) else {
        bail!("the database counted {line:?}");
    };
    Ok(Counted {
        what: what.to_owned(),
        rows: rows.parse().with_context(|| format!("rows in {line:?}"))?,
        // `NULL`, or nothing: no statistics.
        statistics: columns.map(|figure| figure.parse().ok()).collect(),
    })
}

/// What one page's statements take, ms: the median of [`PAGES`], by the server's own clock.
fn page_ms(dialect: Dialect, ask: &impl Fn(&str) -> Result<String>) -> Result<f64> {
    const MARK: &str = "page-at ";
    let now = match dialect {
        Dialect::MariaDb => format!("SELECT CONCAT('{MARK}', UNIX_TIMESTAMP(SYSDATE(6)));\n"),
        Dialect::Postgres => format!("SELECT '{MARK}' || extract(epoch FROM clock_timestamp());\n"),
    };
    let mut text = now.clone();
    for page in 0..PAGES {
        for statement in STATEMENTS.iter().filter(|statement| statement.reads()) {
            text += &format!("{};\n", statement.filled(Some(1 + page * 47)));
        }
        text += &now;
    }
    let answer = ask(&text)?;
    let marks = answer.lines().filter_map(|line| line.strip_prefix(MARK)?.parse::<f64>().ok());
    let marks: Vec<f64> = marks.collect();
    let mut took: Vec<f64> = marks.windows(2).map(|pair| (pair[1] - pair[0]) * 1000.0).collect();
    took.sort_by(f64::total_cmp);
    took.get(took.len() / 2).copied().context("the database told no time")
}

/// Asks a server that was started on `data` before this, and that nobody else uses, for everything; fails at what is wrong.
/// `files_sha256` is of those files before the server ran.
pub(super) fn prove(
    dialect: Dialect,
    files_sha256: String,
    ask: &impl Fn(&str) -> Result<String>,
) -> Result<Proof> {
    let proof = Proof {
        prover: VERSION.to_owned(),
        proved_unix_ns: unix_ns(),
        seen: Seen::of(dialect, ask)?,
        page_ms: page_ms(dialect, ask)?,
        files_sha256,
    };
    match proof.fault(dialect) {
        Some(fault) => bail!("{fault}"),
        None => Ok(proof),
    }
}

impl Proof {
    fn fault(&self, dialect: Dialect) -> Option<String> {
        if self.prover != VERSION {
            return Some(format!("its proof is by {:?}, not by {VERSION:?}", self.prover));
        }
        if self.page_ms > PAGE_MAX_MS {
            return Some(format!("a page's statements take {:.1} ms, not {PAGE_MAX_MS}", self.page_ms));
        }
        self.seen.fault(dialect)
    }

    /// Writes it into a template.
    pub(super) fn keep(&self, template: &Path) -> Result<()> {
        let file = template.join(FILE);
        fs::write(&file, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("write {}", file.display()))
    }
}

/// Why a template must not be used, if there is a reason: it has no proof, a bad one, or one of other files.
pub(super) fn fault_of(dialect: Dialect, template: &Path) -> Option<String> {
    let Ok(text) = fs::read_to_string(template.join(FILE)) else {
        return Some("it has no proof".to_owned());
    };
    let proof: Proof = match serde_json::from_str(&text) {
        Ok(proof) => proof,
        Err(_) => return Some("its proof cannot be read".to_owned()),
    };
    if let Some(fault) = proof.fault(dialect) {
        return Some(fault);
    }
    match fingerprint(&template.join("data")) {
        Ok(now) if now == proof.files_sha256 => None,
        Ok(_) => Some("its files are not those that were proved".to_owned()),
        Err(error) => Some(format!("its files cannot be read: {error:#}")),
    }
}

/// SHA-256 over the names and contents of a folder's files.
pub(super) fn fingerprint(folder: &Path) -> Result<String> {
    let script = "set -eu; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum -- | sha256sum";
    let sum = run(Command::new("sh").args(["-c", script]).current_dir(folder))
        .with_context(|| format!("fingerprint of {}", folder.display()))?;
    sum.split_whitespace().next().map(str::to_owned).context("a fingerprint")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Seen {
        let counted = ROWS.map(|(what, rows)| Counted {
            what: what.to_owned(),
            rows,
            statistics: vec![Some(rows as f64), Some(rows as f64 * 0.97)],
        });
        let answers = [
            "1\tSIMPLE\tstories\tconst\tPRIMARY\tPRIMARY\t4\tconst\t1\t",
            "1\tSIMPLE\tusers\tconst\tPRIMARY\tPRIMARY\t4\tconst\t1\t",
            "1\tSIMPLE\tc\tref\tstory\tstory\t4\tconst\t10\tUsing where\n1\tSIMPLE\tu\teq_ref\tPRIMARY\tPRIMARY\t4\tc.author\t1\t",
            "1\tINSERT\tcomments\tALL\tNULL\tNULL\tNULL\tNULL\tNULL\tNULL",
        ];
        let planned = STATEMENTS.iter().zip(answers).map(|(statement, answer)| Planned {
            statement: statement.text.to_owned(),
            plan: Dialect::MariaDb.steps(answer).unwrap(),
        });
        Seen { counted: counted.into(), planned: planned.collect() }
    }

    /// A template of plain files, with a proof of them.
    fn template(change: impl FnOnce(&mut Proof)) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join("bulletin")).unwrap();
        fs::write(data.join("bulletin/users"), "5000 rows").unwrap();
        let mut proof = Proof {
            prover: VERSION.to_owned(),
            proved_unix_ns: 1,
            seen: good(),
            page_ms: 0.4,
            files_sha256: fingerprint(&data).unwrap(),
        };
        change(&mut proof);
        proof.keep(folder.path()).unwrap();
        folder
    }

    fn fault(template: &tempfile::TempDir) -> Option<String> {
        fault_of(Dialect::MariaDb, template.path())
    }

    #[test]
    fn statistics_of_luck_and_missing_plans_are_faults() {
        assert_eq!(good().fault(Dialect::MariaDb), None);
        let mut stale = good();
        stale.counted[2].statistics[0] = Some(0.0);
        assert_eq!(stale.fault(Dialect::MariaDb).unwrap(), "comments: the statistics say 0 of 20000");
        let mut none = good();
        none.counted[0].statistics[1] = None;
        assert_eq!(none.fault(Dialect::MariaDb).unwrap(), "users: no statistics");
        let mut empty = good();
        empty.counted[0].rows = 0;
        assert_eq!(empty.fault(Dialect::MariaDb).unwrap(), "users: 0 instead of 5000");
        let mut unplanned = good();
        unplanned.planned.pop();
        assert!(unplanned.fault(Dialect::MariaDb).unwrap().ends_with("was not explained"));
    }

    #[test]
    fn a_template_is_good_with_a_good_new_proof_of_its_own_files_only() {
        assert_eq!(fault(&template(|_| {})), None);
        assert!(fault(&template(|proof| proof.prover = "prover 0".to_owned())).unwrap().contains("prover 0"));
        let slow = template(|proof| proof.page_ms = 15_000.0);
        assert_eq!(fault(&slow).unwrap(), "a page's statements take 15000.0 ms, not 20");
        let stale = template(|proof| proof.seen.counted[0].statistics[0] = Some(139.0));
        assert_eq!(fault(&stale).unwrap(), "users: the statistics say 139 of 5000");

        let changed = template(|_| {});
        fs::write(changed.path().join("data/bulletin/users"), "139 rows?").unwrap();
        assert_eq!(fault(&changed).unwrap(), "its files are not those that were proved");
        let more = template(|_| {});
        fs::write(more.path().join("data/more"), "").unwrap();
        assert_eq!(fault(&more).unwrap(), "its files are not those that were proved");
        let bare = template(|_| {});
        fs::remove_file(bare.path().join(FILE)).unwrap();
        assert_eq!(fault(&bare).unwrap(), "it has no proof");
        fs::write(bare.path().join(FILE), "{").unwrap();
        assert_eq!(fault(&bare).unwrap(), "its proof cannot be read");
    }
}
