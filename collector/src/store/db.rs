//! Incidents and inventory in SQLite. Owns the schema, its migrations and the import of what earlier versions wrote; knows no
//! thread and no Parquet.

use super::{Line, shelf::Span};
use crate::live::timeline::Timeline;
use rusqlite::{Connection, MAIN_DB, OpenFlags, OptionalExtension, Row, params};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tailwater_model::Incident;
use tailwater_model::incident::{State, Which};
use tailwater_model::names::Seen;
use tailwater_model::traces::IncidentTraces;
use tailwater_model::window::WindowIndex;

/// The file in the data folder.
pub const FILE: &str = "tailwater.db";
/// What earlier versions wrote.
const JSON_LINES: &str = "incidents.jsonl";
/// Evidence kept before and after an incident.
pub const MARGIN_NS: u64 = 30_000_000_000;
/// Rows of inventory; what was seen last stays.
const SEEN_MAX: u64 = 200_000;

/// Each takes the schema one version further; `PRAGMA user_version` counts them.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE incident (
        id TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        state TEXT NOT NULL,
        kind TEXT NOT NULL,
        severity TEXT NOT NULL,
        title TEXT NOT NULL,
        start_unix_ns INTEGER NOT NULL,
        end_unix_ns INTEGER NOT NULL,
        incident TEXT NOT NULL,
        timeline TEXT
    );
    CREATE INDEX incident_start ON incident (start_unix_ns);
    CREATE INDEX incident_end ON incident (end_unix_ns);
    CREATE TABLE seen (
        kind TEXT NOT NULL,
        host TEXT NOT NULL,
        name TEXT NOT NULL,
        detail TEXT NOT NULL,
        first_unix_ns INTEGER NOT NULL,
        last_unix_ns INTEGER NOT NULL,
        PRIMARY KEY (kind, host, name)
    ) WITHOUT ROWID;
    CREATE INDEX seen_last ON seen (last_unix_ns);
",
    "
    CREATE TABLE traces (
        incident TEXT PRIMARY KEY,
        settled INTEGER NOT NULL,
        services TEXT NOT NULL
    );
    CREATE TRIGGER traces_of_gone AFTER DELETE ON incident BEGIN
        DELETE FROM traces WHERE incident = old.id;
    END;
",
];

/// Why the database does not answer.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// SQLite says no.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What.
        source: rusqlite::Error,
    },
    /// The folder or the old file.
    #[error("{}: {source}\n  remedy: give --data a folder that this user may write", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What.
        source: std::io::Error,
    },
    /// SQLite opens such a file all the same, and would say so at the first write only.
    #[error(
        "{}: read-only, nothing can be kept\n  remedy: make its disk writable again, or give --data a folder that this user may write",
        path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Written by a later version.
    #[error(
        "{}: its schema is version {found}, this build knows {}\n  remedy: start the later version again, or move the file away",
        path.display(), MIGRATIONS.len()
    )]
    Later {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
}

impl DbError {
    /// The file is no database, or a damaged one.
    pub(super) fn is_damage(&self) -> bool {
        let Self::Sqlite { source, .. } = self else { return false };
        matches!(
            source.sqlite_error_code(),
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
        )
    }
}

/// An open database.
#[derive(Debug)]
pub struct Db {
    path: PathBuf,
    connection: Connection,
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn word<T: serde::Serialize>(value: T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The address of a file that is not written by anybody while it is open.
fn immutable(path: &Path) -> PathBuf {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte))
            }
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    uri.into()
}

impl Db {
    /// Opens or makes the database in `folder`, brings its schema up to date and takes over `incidents.jsonl`.
    pub fn open(folder: &Path) -> Result<Self, DbError> {
        let path = folder.join(FILE);
        std::fs::create_dir_all(folder).map_err(|source| DbError::Io { path: folder.to_owned(), source })?;
        let failed = |source| DbError::Sqlite { path: path.clone(), source };
        let connection = Connection::open(&path).map_err(failed)?;
        if connection.is_readonly(MAIN_DB).map_err(failed)? {
            return Err(DbError::ReadOnly { path });
        }
        connection.busy_timeout(Duration::from_secs(2)).map_err(failed)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        // A killed process loses nothing that was committed; a power cut may take the commits since the last checkpoint.
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        let mut db = Self { path: path.clone(), connection };
        db.migrate()?;
        db.import(&folder.join(JSON_LINES))?;
        Ok(db)
    }

    /// For reading beside the writer; `None`: there is none to read.
    pub fn reader(folder: &Path) -> Option<Self> {
        let path = folder.join(FILE);
        let open = |name: &Path| {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_NO_MUTEX
                | OpenFlags::SQLITE_OPEN_URI;
            let connection = Connection::open_with_flags(name, flags)?;
            connection.busy_timeout(Duration::from_millis(500))?;
            // The first statement is what takes the lock, and the files beside it.
            connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?;
            Ok::<_, rusqlite::Error>(connection)
        };
        let connection = open(&path).or_else(|e| match e.sqlite_error_code() {
            // On a disk that became read-only after a clean end the write-ahead log is gone and cannot be made: then nobody writes.
            Some(rusqlite::ErrorCode::CannotOpen) => open(&immutable(&path)),
            _ => Err(e),
        });
        Some(Self { connection: connection.ok()?, path })
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> DbError + use<> {
        let path = self.path.clone();
        move |source| DbError::Sqlite { path: path.clone(), source }
    }

    fn migrate(&mut self) -> Result<(), DbError> {
        let failed = self.failed();
        let version: i64 =
            self.connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(&failed)?;
        let done = usize::try_from(version).unwrap_or(usize::MAX);
        if done > MIGRATIONS.len() {
            return Err(DbError::Later { path: self.path.clone(), found: version });
        }
        for (n, step) in MIGRATIONS.iter().enumerate().skip(done) {
            let transaction = self.connection.transaction().map_err(&failed)?;
            transaction.execute_batch(step).map_err(&failed)?;
            transaction
                .pragma_update(None, "user_version", i64::try_from(n + 1).unwrap_or(i64::MAX))
                .map_err(&failed)?;
            transaction.commit().map_err(&failed)?;
        }
        Ok(())
    }

    /// Takes the incidents of the JSON lines that earlier versions wrote; the file then gets another name.
    fn import(&mut self, lines: &Path) -> Result<(), DbError> {
        let io = |source| DbError::Io { path: lines.to_owned(), source };
        let file = match std::fs::File::open(lines) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(io(e)),
        };
        let mut newest: BTreeMap<String, Line> = BTreeMap::new();
        let (mut reader, mut bytes, mut bad) = (BufReader::new(file), Vec::new(), 0_u64);
        while reader.read_until(b'\n', &mut bytes).map_err(io)? > 0 {
            match serde_json::from_slice::<Line>(&bytes) {
                Ok(line) => {
                    let old = newest.get(&line.incident.id);
                    if old.is_none_or(|old| old.incident.version <= line.incident.version) {
                        newest.insert(line.incident.id.clone(), line);
                    }
                }
                Err(_) => bad += 1,
            }
            bytes.clear();
        }
        // What is there is newer: a start before this one took it over.
        self.put(newest.values(), |_, _| None)?;
        std::fs::rename(lines, lines.with_extension("jsonl.imported")).map_err(io)?;
        tracing::info!(
            "{}: {} incidents imported, {bad} damaged lines left out",
            lines.display(),
            newest.len()
        );
        Ok(())
    }

    /// Writes these versions, all or none. Of one that is older than what is there `go_on` is told, with the version that is there; what it
    /// returns is written in place of it, with the others.
    pub(super) fn put<'a>(
        &mut self,
        lines: impl Iterator<Item = &'a Line>,
        mut go_on: impl FnMut(&Line, u64) -> Option<Line>,
    ) -> Result<(), DbError> {
        let failed = self.failed();
        let transaction = self.connection.transaction().map_err(&failed)?;
        {
            let mut there =
                transaction.prepare("SELECT version FROM incident WHERE id = ?1").map_err(&failed)?;
            let mut statement = transaction
                .prepare(
                    "INSERT INTO incident (id, version, state, kind, severity, title, start_unix_ns, end_unix_ns, incident, timeline)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                     ON CONFLICT (id) DO UPDATE SET version = excluded.version, state = excluded.state, kind = excluded.kind,
                         severity = excluded.severity, title = excluded.title, start_unix_ns = excluded.start_unix_ns,
                         end_unix_ns = excluded.end_unix_ns, incident = excluded.incident,
                         timeline = coalesce(excluded.timeline, timeline)
                     WHERE excluded.version >= version",
                )
                .map_err(&failed)?;
            let mut write = |line: &Line| -> rusqlite::Result<bool> {
                let Line { incident: i, timeline } = line;
                let Ok(json) = serde_json::to_string(i) else { return Ok(true) };
                let timeline = timeline.as_ref().and_then(|t| serde_json::to_string(t).ok());
                let rows = statement.execute(params![
                    i.id,
                    int(i.version),
                    word(i.state),
                    word(i.kind),
                    word(i.severity),
                    i.title,
                    int(i.start_unix_ns),
                    int(i.end_unix_ns),
                    json,
                    timeline
                ])?;
                Ok(rows > 0)
            };
            for line in lines {
                if write(line).map_err(&failed)? {
                    continue;
                }
                let version = there.query_row([&line.incident.id], |row| row.get(0)).map_err(&failed)?;
                if let Some(newer) = go_on(line, unsigned(version)) {
                    write(&newer).map_err(&failed)?;
                }
            }
        }
        transaction.commit().map_err(failed)
    }

    /// The newest `limit` incidents with an id below `before`, that end at `since_unix_ns` or later and have `state`.
    pub(super) fn incidents(
        &self,
        before: Option<&str>,
        since_unix_ns: u64,
        state: Option<State>,
        limit: usize,
    ) -> Result<Vec<Line>, DbError> {
        self.within(before, (since_unix_ns, u64::MAX), state, limit)
    }

    /// The same of those that touch `span` (Unix ns, both ends in it).
    pub(super) fn within(
        &self,
        before: Option<&str>,
        span: (u64, u64),
        wanted: impl Into<Which>,
        limit: usize,
    ) -> Result<Vec<Line>, DbError> {
        let (failed, wanted) = (self.failed(), wanted.into());
        let mut statement = self
            .connection
            .prepare(
                "SELECT incident, timeline FROM incident
                 WHERE (?1 IS NULL OR id < ?1) AND end_unix_ns >= ?2 AND start_unix_ns <= ?3
                     AND (?4 IS NULL OR state = ?4)
                     AND (?6 IS NULL OR (json_extract(incident, '$.sustained.by') IS NOT NULL) = ?6)
                 ORDER BY id DESC LIMIT ?5",
            )
            .map_err(&failed)?;
        // What is in an incident decides when it has been read: then as many are read as it takes. -1 is no limit.
        let rows_max = if wanted.is_of_content() { -1 } else { i64::try_from(limit).unwrap_or(i64::MAX) };
        let rows = statement
            .query_map(
                params![before, int(span.0), int(span.1), wanted.state.map(word), rows_max, wanted.sustained],
                line,
            )
            .map_err(&failed)?;
        // A row that this build cannot read is left where it is.
        rows.filter_map(|row| row.transpose())
            .filter(|row| row.as_ref().map_or(true, |line| wanted.fits(&line.incident)))
            .take(limit)
            .collect::<Result<_, _>>()
            .map_err(failed)
    }

    /// One incident.
    pub(super) fn incident(&self, id: &str) -> Result<Option<Line>, DbError> {
        let row = self
            .connection
            .query_row("SELECT incident, timeline FROM incident WHERE id = ?1", [id], line)
            .optional()
            .map_err(self.failed())?;
        Ok(row.flatten())
    }

    /// Stretches around incidents that touch `span`.
    pub(super) fn spans(&self, span: Span) -> Result<Vec<Span>, DbError> {
        let failed = self.failed();
        let mut statement = self
            .connection
            .prepare("SELECT start_unix_ns, end_unix_ns FROM incident WHERE start_unix_ns <= ?1 AND end_unix_ns >= ?2")
            .map_err(&failed)?;
        let latest_start = int(span.1.end_unix_ns().saturating_add(MARGIN_NS));
        let earliest_end = int(span.0.start_unix_ns().saturating_sub(MARGIN_NS));
        let rows = statement
            .query_map(params![latest_start, earliest_end], |row| {
                let (start, end) = (unsigned(row.get(0)?), unsigned(row.get(1)?));
                Ok((
                    WindowIndex::at(start.saturating_sub(MARGIN_NS)),
                    WindowIndex::at(end.saturating_add(MARGIN_NS)),
                ))
            })
            .map_err(&failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    /// Writes traces of incidents, all or none, in place of what is there of the same ones. Those of an incident that the disk never took are left out:
    /// nothing would ever remove them.
    pub(super) fn put_traces<'a>(
        &mut self,
        of: impl Iterator<Item = &'a IncidentTraces>,
    ) -> Result<(), DbError> {
        let failed = self.failed();
        let transaction = self.connection.transaction().map_err(&failed)?;
        {
            let mut statement = transaction
                .prepare(
                    "INSERT INTO traces (incident, settled, services)
                     SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM incident WHERE id = ?1)
                     ON CONFLICT (incident) DO UPDATE SET settled = excluded.settled, services = excluded.services",
                )
                .map_err(&failed)?;
            for IncidentTraces { incident, settled, services } in of {
                let Ok(json) = serde_json::to_string(services) else { continue };
                statement.execute(params![incident, settled, json]).map_err(&failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }

    /// The traces of an incident; `None`: there are none, or this build cannot read them.
    pub(super) fn traces(&self, incident: &str) -> Result<Option<IncidentTraces>, DbError> {
        let query = "SELECT settled, services FROM traces WHERE incident = ?1";
        let row = |row: &Row<'_>| Ok((row.get::<_, bool>(0)?, row.get::<_, String>(1)?));
        let found = self.connection.query_row(query, [incident], row).optional().map_err(self.failed())?;
        Ok(found.and_then(|(settled, json)| {
            let services = serde_json::from_str(&json).ok()?;
            Some(IncidentTraces { incident: incident.to_owned(), settled, services })
        }))
    }

    /// Removes the oldest closed incidents beyond `max`, and by a trigger their traces.
    pub(super) fn prune(&mut self, max: usize) -> Result<(), DbError> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let failed = self.failed();
        self.connection
            .execute(
                "DELETE FROM incident WHERE id IN (SELECT id FROM incident WHERE state = 'closed' ORDER BY id
                 LIMIT max(0, (SELECT count(*) FROM incident) - ?1))",
                [max],
            )
            .map_err(&failed)?;
        self.connection
            .execute(
                "DELETE FROM seen WHERE (SELECT count(*) FROM seen) > ?1 AND last_unix_ns <
                 (SELECT last_unix_ns FROM seen ORDER BY last_unix_ns DESC LIMIT 1 OFFSET ?1)",
                [int(SEEN_MAX)],
            )
            .map_err(failed)?;
        Ok(())
    }

    /// Writes what was seen; the first time of what is known stays.
    pub(super) fn saw(&mut self, seen: &[Seen]) -> Result<(), DbError> {
        let failed = self.failed();
        let transaction = self.connection.transaction().map_err(&failed)?;
        {
            let mut statement = transaction
                .prepare(
                    "INSERT INTO seen (kind, host, name, detail, first_unix_ns, last_unix_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT (kind, host, name) DO UPDATE SET detail = excluded.detail,
                         first_unix_ns = min(first_unix_ns, excluded.first_unix_ns),
                         last_unix_ns = max(last_unix_ns, excluded.last_unix_ns)",
                )
                .map_err(&failed)?;
            for s in seen {
                statement
                    .execute(params![
                        s.kind,
                        s.host,
                        s.name,
                        s.detail,
                        int(s.first_unix_ns),
                        int(s.last_unix_ns)
                    ])
                    .map_err(&failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }

    /// Whether this host was ever seen.
    pub(super) fn knows(&self, host: &str) -> Result<bool, DbError> {
        let query = "SELECT EXISTS (SELECT 1 FROM seen WHERE kind = 'host' AND host = ?1)";
        self.connection.query_row(query, [host], |row| row.get(0)).map_err(self.failed())
    }

    /// What was there at some moment of `span` (Unix ns, both ends in it): of this kind, of this host.
    pub fn inventory(
        &self,
        span: (u64, u64),
        kind: Option<&str>,
        host: Option<&str>,
    ) -> Result<Vec<Seen>, DbError> {
        let failed = self.failed();
        let mut statement = self
            .connection
            .prepare(
                "SELECT kind, host, name, detail, first_unix_ns, last_unix_ns FROM seen
                 WHERE last_unix_ns >= ?1 AND first_unix_ns <= ?2 AND (?3 IS NULL OR kind = ?3) AND (?4 IS NULL OR host = ?4)
                 ORDER BY kind, host, name LIMIT 10000",
            )
            .map_err(&failed)?;
        let rows = statement
            .query_map(params![int(span.0), int(span.1), kind, host], |row| {
                Ok(Seen {
                    kind: row.get(0)?,
                    host: row.get(1)?,
                    name: row.get(2)?,
                    detail: row.get(3)?,
                    first_unix_ns: unsigned(row.get(4)?),
                    last_unix_ns: unsigned(row.get(5)?),
                })
            })
            .map_err(&failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}

#[cfg(test)]
impl Db {
    /// Title and state of every incident, by id.
    pub(super) fn titles(&self) -> rusqlite::Result<BTreeMap<String, (String, String)>> {
        let mut rows = self.connection.prepare("SELECT id, title, state FROM incident")?;
        rows.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?.collect()
    }

    /// As on a disk that is full, or is not any more: what takes another page is refused from now on.
    pub(super) fn set_full(&self, full: bool) -> rusqlite::Result<()> {
        let pages: i64 = self.connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        self.connection.pragma_update(None, "max_page_count", if full { pages } else { 1 << 30 })
    }
}

fn line(row: &Row<'_>) -> rusqlite::Result<Option<Line>> {
    let (incident, timeline): (String, Option<String>) = (row.get(0)?, row.get(1)?);
    let timeline = timeline.and_then(|text| serde_json::from_str::<Timeline>(&text).ok());
    Ok(serde_json::from_str::<Incident>(&incident).ok().map(|incident| Line { incident, timeline }))
}
