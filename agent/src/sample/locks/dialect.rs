//! How each kind of database is asked who holds locks, and how its client answers. Owns the statements; starts no client.

use super::statement::without_values;
use crate::config::DatabaseKind;
use crate::window::Blocker;

/// Between two values of a row of PostgreSQL's.
const SEPARATOR: char = '\u{1f}';
/// In place of a line's end inside of a value of PostgreSQL's.
const NEW_LINE: char = '\u{1e}';
/// Holders of whom is told.
pub(super) const BLOCKERS_MAX: usize = 3;

/// One statement, so that it is one request among those of the database: how many wait for a lock; who holds those, and waits for none; and a row by which
/// one knows that this was all. Of many that want one row the first waits for its holder, and the others for the first (a tuple lock): from each of a
/// hundred the way is followed to whoever waits for nobody. To see others' statements a user needs `pg_read_all_stats`. Of a transaction that failed the
/// last statement may be none, and is left out.
const POSTGRESQL: &str = "\
WITH RECURSIVE waits(pid, by) AS MATERIALIZED (SELECT pid, unnest(pg_blocking_pids(pid)) FROM \
(SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' LIMIT 100) w), \
way(pid, by) AS (SELECT pid, by FROM waits UNION SELECT way.pid, waits.by FROM way JOIN waits ON waits.pid = way.by) \
SELECT 0 AS kind, 0 AS connection, count(DISTINCT pid) AS waiting, false AS idle, '' AS held_ms, '' AS statement FROM waits \
UNION ALL (SELECT 1, b.pid, count(DISTINCT way.pid), b.state LIKE 'idle%', \
coalesce(round(extract(epoch FROM clock_timestamp() - b.xact_start) * 1000)::bigint::text, ''), \
CASE WHEN b.state IN ('active', 'idle in transaction') \
THEN translate(left(coalesce(b.query, ''), 2000), E'\\n\\r\\t\\x1e\\x1f', E'\\x1e\\x1e   ') ELSE '' END \
FROM way JOIN pg_stat_activity b ON b.pid = way.by WHERE b.pid NOT IN (SELECT pid FROM waits) \
GROUP BY b.pid, b.state, b.xact_start, b.query ORDER BY 3 DESC, 2 LIMIT 3) \
UNION ALL SELECT 2, 0, 0, false, '', '' ORDER BY 1;";

/// The same of InnoDB's locks of rows, whose holders it knows; of its locks of tables it says who waits alone. Its transactions begin at whole seconds,
/// and of one that is idle it keeps no statement. Its user needs the privilege PROCESS.
const MARIADB: &str = "\
SELECT 0 AS kind, 0 AS connection, COUNT(*) AS waiting, 0 AS idle, '' AS held_ms, '' AS statement FROM information_schema.processlist \
WHERE STATE LIKE 'Waiting for%lock' OR ID IN (SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT') \
UNION ALL SELECT * FROM (SELECT 1 AS kind, t.trx_mysql_thread_id AS connection, COUNT(DISTINCT w.requesting_trx_id) AS waiting, \
t.trx_query IS NULL AS idle, '' AS held_ms, LEFT(COALESCE(t.trx_query, ''), 2000) AS statement \
FROM information_schema.innodb_lock_waits w JOIN information_schema.innodb_trx t ON t.trx_id = w.blocking_trx_id \
WHERE t.trx_state <> 'LOCK WAIT' GROUP BY t.trx_mysql_thread_id, t.trx_query ORDER BY 3 DESC, 2 LIMIT 3) b \
UNION ALL SELECT 2, 0, 0, 0, '', '' ORDER BY 1;";

/// What a line of a client's is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// So many wait.
    Waiting(u32),
    /// Of one that holds a lock.
    Blocker(Blocker),
    /// That was all.
    End,
    /// What the client has to say.
    Said,
}

impl DatabaseKind {
    /// What its client is told to do beside what is configured: to take statements from its input, and to write rows and nothing else. A client that
    /// meets an error ends, and is started again.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Postgresql => &["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1", "-F", "\u{1f}"],
            Self::Mariadb => {
                &["--batch", "--skip-column-names", "--unbuffered", "--default-character-set=utf8mb4"]
            }
        }
    }

    /// The statement that asks who holds locks.
    pub(super) fn question(self) -> &'static str {
        match self {
            Self::Postgresql => POSTGRESQL,
            Self::Mariadb => MARIADB,
        }
    }

    /// One that asks for nothing.
    pub(super) fn idle(self) -> &'static str {
        "SELECT 2, 0, 0, 0, '', '';"
    }

    /// Reads a line of an answer.
    pub(super) fn read(self, line: &str) -> Line {
        let separator = if self == Self::Postgresql { SEPARATOR } else { '\t' };
        let values: Vec<&str> = line.split(separator).collect();
        let [kind, connection, waiting, idle, held_ms, statement] = values.as_slice() else {
            return Line::Said;
        };
        match (*kind, connection.parse(), waiting.parse()) {
            ("0", Ok(0_u64), Ok(waiting)) => Line::Waiting(waiting),
            ("1", Ok(connection), Ok(waiting)) => Line::Blocker(Blocker {
                connection,
                waiting,
                idle: matches!(*idle, "t" | "1"),
                held_ms: held_ms.parse().ok(),
                statement: without_values(&self.unfolded(statement), self),
            }),
            ("2", Ok(0), Ok(0)) => Line::End,
            _ => Line::Said,
        }
    }

    /// A statement as it was, of which a row has one line.
    fn unfolded(self, statement: &str) -> String {
        if self == Self::Postgresql {
            return statement.replace(NEW_LINE, "\n");
        }
        let mut out = String::new();
        let mut chars = statement.chars();
        while let Some(c) = chars.next() {
            out.push(match c {
                '\\' => match chars.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('0') => '\0',
                    Some(other) => other,
                    None => break,
                },
                c => c,
            });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocker(connection: u64, waiting: u32, idle: bool, held_ms: Option<u64>, statement: &str) -> Line {
        Line::Blocker(Blocker { connection, waiting, idle, held_ms, statement: statement.to_owned() })
    }

    #[test]
    fn an_answer_is_read_and_what_is_none_is_told_apart() {
        let postgresql = |line: &str| DatabaseKind::Postgresql.read(&line.replace('|', "\u{1f}"));
        assert_eq!(postgresql("0|0|14|f||"), Line::Waiting(14));
        let holder = blocker(4242, 13, true, Some(640), "UPDATE a SET b = ?");
        assert_eq!(postgresql("1|4242|13|t|640|UPDATE a SET b = 7"), holder);
        assert_eq!(postgresql("2|0|0|f||"), Line::End);
        for said in ["psql: error: connection refused", "1|x|13|t||", "3|0|0|f||", "1|4242|13|t|640", ""] {
            assert_eq!(postgresql(said), Line::Said, "{said}");
        }
        let mariadb = |line: &str| DatabaseKind::Mariadb.read(&line.replace('|', "\t"));
        assert_eq!(mariadb("1|7|2|1||"), blocker(7, 2, true, None, ""));
        assert_eq!(
            mariadb("1|8|1|0||DELETE FROM t WHERE a = \"x\""),
            blocker(8, 1, false, None, "DELETE FROM t WHERE a = ?")
        );
        assert_eq!(mariadb("2|0|0|0||"), Line::End);
    }

    #[test]
    fn a_statement_of_several_lines_is_one_again_before_its_comments_go() {
        let of = |kind: DatabaseKind, line: &str| match kind.read(line) {
            Line::Blocker(by) => by.statement,
            other => panic!("{other:?}"),
        };
        let folded = "1\t9\t1\t0\t\tSELECT 'a\\\\\\\\b' -- of x\\nFROM t";
        assert_eq!(of(DatabaseKind::Mariadb, folded), "SELECT ? FROM t");
        let folded = "1\u{1f}9\u{1f}1\u{1f}f\u{1f}\u{1f}SELECT 'a' -- of x\u{1e}FROM t";
        assert_eq!(of(DatabaseKind::Postgresql, folded), "SELECT ? FROM t");
    }
}
