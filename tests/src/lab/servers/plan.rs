//! What the applications ask the database, and how it must answer: which index each statement takes, and how many rows it reads at
//! most. Reads what `EXPLAIN` says; pure, so that it knows neither servers nor files.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Whose `EXPLAIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// A line for each table, columns separated by tabs.
    MariaDb,
    /// A tree in JSON.
    Postgres,
}

/// How a table must be reached.
#[derive(Debug)]
pub(super) struct Way {
    /// The table, by the name it has in the statement.
    table: &'static str,
    /// Name of the index: MariaDB's, PostgreSQL's.
    index: [&'static str; 2],
    /// Rows that the optimiser may expect to read at most.
    rows_max: u64,
}

/// A statement of the applications.
#[derive(Debug)]
pub(super) struct Statement {
    /// As the applications send it, with `?` for each value.
    pub(super) text: &'static str,
    /// Values that stand for the usual ones.
    values: &'static [&'static str],
    ways: &'static [Way],
}

const KEY: [&str; 2] = ["PRIMARY", "stories_pkey"];
const USER: [&str; 2] = ["PRIMARY", "users_pkey"];
/// A story has ten comments at first. One that reads four times as many does not know its table.
const COMMENTS: Way = Way { table: "c", index: ["story", "comments_story"], rows_max: 40 };

/// Every statement of `Story.java`, `asyncapp.rs` and `bulletin.py`. A test compares them with those sources.
pub(super) const STATEMENTS: [Statement; 4] = [
    Statement {
        text: "SELECT title, body, author FROM stories WHERE id = ?",
        values: &["7"],
        ways: &[Way { table: "stories", index: KEY, rows_max: 1 }],
    },
    Statement {
        text: "SELECT nickname, rating FROM users WHERE id = ?",
        values: &["50"],
        ways: &[Way { table: "users", index: USER, rows_max: 1 }],
    },
    Statement {
        text: "SELECT c.body, u.nickname FROM comments c JOIN users u ON u.id = c.author WHERE c.story = ? ORDER BY c.id LIMIT 10",
        values: &["7"],
        ways: &[COMMENTS, Way { table: "u", index: USER, rows_max: 1 }],
    },
    Statement {
        text: "INSERT INTO comments (story, author, body) VALUES (?, ?, 'me too')",
        values: &["7", "50"],
        ways: &[],
    },
];

/// One table of a plan.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Step {
    pub(super) table: String,
    /// The database's own word for how it reads it.
    pub(super) access: String,
    pub(super) index: Option<String>,
    pub(super) rows: u64,
}

impl Statement {
    /// With its values in the places of the question marks.
    pub(super) fn filled(&self, first: Option<u32>) -> String {
        let mut text = self.text.to_owned();
        for (place, value) in self.values.iter().enumerate() {
            let first = first.filter(|_| place == 0).map(|value| value.to_string());
            text = text.replacen('?', first.as_deref().unwrap_or(value), 1);
        }
        text
    }

    /// Whether it only reads.
    pub(super) fn reads(&self) -> bool {
        self.text.starts_with("SELECT")
    }

    /// What is wrong with a plan, if anything is.
    pub(super) fn fault(&self, dialect: Dialect, plan: &[Step]) -> Option<String> {
        let stray = plan.iter().find(|step| !self.ways.iter().any(|way| way.table == step.table));
        if let Some(step) = stray {
            return Some(format!("reads {} as well", step.table));
        }
        self.ways.iter().find_map(|way| {
            let wanted = way.index[usize::from(dialect == Dialect::Postgres)];
            let Some(step) = plan.iter().find(|step| step.table == way.table) else {
                return Some(format!("does not read {}", way.table));
            };
            let by = step.index.as_deref().unwrap_or("no index");
            (step.index.as_deref() != Some(wanted) || step.rows > way.rows_max).then(|| {
                format!(
                    "reads {} rows of {} by {by} ({}), not at most {} by {wanted}",
                    step.rows, way.table, step.access, way.rows_max
                )
            })
        })
    }
}

impl Dialect {
    /// The statement that has a plan told.
    pub(super) fn explain(self, statement: &str) -> String {
        match self {
            Dialect::MariaDb => format!("EXPLAIN {statement};"),
            Dialect::Postgres => format!("EXPLAIN (FORMAT JSON) {statement};"),
        }
    }

    /// Reads the answer to [`Dialect::explain`], without a line of titles.
    pub(super) fn steps(self, answer: &str) -> Result<Vec<Step>> {
        match self {
            Dialect::MariaDb => answer.lines().filter_map(|line| mariadb_step(line).transpose()).collect(),
            Dialect::Postgres => {
                let plans: Value = serde_json::from_str(answer).context("PostgreSQL's plan")?;
                let mut steps = Vec::new();
                postgres_steps(plans.pointer("/0/Plan").context("PostgreSQL's plan")?, &mut steps);
                Ok(steps)
            }
        }
    }
}

/// `id select_type table type possible_keys key key_len ref rows Extra`. The line of an INSERT reads nothing.
fn mariadb_step(line: &str) -> Result<Option<Step>> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [_, kind, table, access, _, key, _, _, rows, ..] = columns[..] else {
        bail!("MariaDB's plan has the line {line:?}");
    };
    if kind == "INSERT" {
        return Ok(None);
    }
    Ok(Some(Step {
        table: table.to_owned(),
        access: access.to_owned(),
        index: (key != "NULL").then(|| key.to_owned()),
        rows: rows.parse().with_context(|| format!("rows in {line:?}"))?,
    }))
}

/// Every scan of a table; a bitmap's index is told by the node below the one that reads the table.
fn postgres_steps(node: &Value, steps: &mut Vec<Step>) {
    let text = |node: &Value, key: &str| node[key].as_str().map(str::to_owned);
    let below = || node["Plans"].as_array().into_iter().flatten();
    let kind = text(node, "Node Type").unwrap_or_default();
    if kind.ends_with("Scan")
        && let Some(table) = text(node, "Alias")
    {
        steps.push(Step {
            table,
            index: text(node, "Index Name").or_else(|| below().find_map(|node| text(node, "Index Name"))),
            access: kind,
            rows: node["Plan Rows"].as_f64().unwrap_or(f64::INFINITY) as u64,
        });
    }
    below().for_each(|node| postgres_steps(node, steps));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const JOIN: &Statement = &STATEMENTS[2];

    #[test]
    fn a_plan_of_mariadb_that_takes_other_ways_is_refused() {
        let fault = |answer: &str| JOIN.fault(Dialect::MariaDb, &Dialect::MariaDb.steps(answer).unwrap());
        let users = "1\tSIMPLE\tu\teq_ref\tPRIMARY\tPRIMARY\t4\tbulletin.c.author\t1\t\n";
        let right = "1\tSIMPLE\tc\tref\tstory\tstory\t4\tconst\t10\tUsing where\n";
        assert_eq!(fault(&format!("{right}{users}")), None);
        let full = "1\tSIMPLE\tc\tALL\tstory\tNULL\tNULL\tNULL\t1\tUsing where; Using join buffer\n";
        assert_eq!(
            fault(&format!("{users}{full}")).unwrap(),
            "reads 1 rows of c by no index (ALL), not at most 40 by story"
        );
        let many = right.replace("\t10\t", "\t139\t");
        assert!(fault(&format!("{many}{users}")).unwrap().contains("139 rows"));
        assert_eq!(fault(users).unwrap(), "does not read c");
        let insert = "1\tINSERT\tcomments\tALL\tNULL\tNULL\tNULL\tNULL\tNULL\tNULL\n";
        assert_eq!(Dialect::MariaDb.steps(insert).unwrap(), []);
        assert!(Dialect::MariaDb.steps("nonsense").is_err());
    }

    #[test]
    fn a_plan_of_postgres_is_read_through_its_bitmap() {
        let scan = r#"{"Node Type":"Bitmap Heap Scan","Relation Name":"comments","Alias":"c","Plan Rows":10,
            "Plans":[{"Node Type":"Bitmap Index Scan","Index Name":"comments_story","Plan Rows":10}]}"#;
        let user = r#"{"Node Type":"Index Scan","Index Name":"users_pkey","Relation Name":"users","Alias":"u","Plan Rows":1}"#;
        let tree = |users: &str| {
            format!(
                r#"[{{"Plan":{{"Node Type":"Limit","Plans":[{{"Node Type":"Nested Loop","Plans":[{scan},{users}]}}]}}}}]"#
            )
        };
        let fault =
            |users: &str| JOIN.fault(Dialect::Postgres, &Dialect::Postgres.steps(&tree(users)).unwrap());
        assert_eq!(fault(user), None);
        let whole = r#"{"Node Type":"Seq Scan","Relation Name":"users","Alias":"u","Plan Rows":5000}"#;
        assert_eq!(
            fault(whole).unwrap(),
            "reads 5000 rows of u by no index (Seq Scan), not at most 1 by users_pkey"
        );
        assert!(Dialect::Postgres.steps("[]").is_err());
    }

    /// Every statement in a source, with `?` for whatever stands for a value there.
    fn statements_in(source: &str) -> BTreeSet<String> {
        // A string that ends a line goes on if the next line begins with one.
        let mut text = String::new();
        for line in source.lines().map(str::trim) {
            let goes_on = text.ends_with('"') && line.starts_with('"');
            if goes_on {
                text.pop();
                text.push_str(&line[1..]);
            } else {
                text.push('\n');
                text.push_str(line);
            }
        }
        for placeholder in ["%s", "{id}", "{story}", "{author}"] {
            text = text.replace(placeholder, "?");
        }
        let verbs = ["\"SELECT ", "\"INSERT ", "\"UPDATE ", "\"DELETE "];
        let begins = verbs.iter().flat_map(|verb| text.match_indices(verb));
        begins.filter_map(|(at, _)| text[at + 1..].split('"').next().map(str::to_owned)).collect()
    }

    #[test]
    fn the_applications_ask_these_statements_and_no_other() {
        let wanted: BTreeSet<String> = STATEMENTS.iter().map(|statement| statement.text.to_owned()).collect();
        for (name, source) in [
            ("Story.java", include_str!("../../../lab/Story.java")),
            ("asyncapp.rs", include_str!("../../bin/asyncapp.rs")),
            ("bulletin.py", include_str!("../../../lab/bulletin.py")),
        ] {
            assert_eq!(statements_in(source), wanted, "{name}");
        }
    }

    #[test]
    fn values_take_the_places_of_the_question_marks() {
        assert_eq!(
            STATEMENTS[3].filled(Some(9)),
            "INSERT INTO comments (story, author, body) VALUES (9, 50, 'me too')"
        );
        assert!(STATEMENTS.iter().all(|statement| !statement.filled(None).contains('?')));
    }
}
