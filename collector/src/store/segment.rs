//! One segment: a folder with a Parquet file per kind. Owns its name, its columns, what is named in it, and their documentation;
//! `segment_write` fills it and `segment_read` takes out of it.

use super::parquet_file::{Field, Shape};
use crate::columns::{self, Column, Kind};
use std::path::PathBuf;
use tailwater_model::civil::Civil;
use tailwater_model::window::{WINDOW_NS, WindowIndex};

/// Ends the name of a segment that is being written.
pub(super) const TEMPORARY: &str = ".tmp";

/// Why a segment is not written or not read.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The folder.
    #[error("{}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What.
        source: std::io::Error,
    },
    /// One of its files.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What.
        source: parquet::errors::ParquetError,
    },
}

impl SegmentError {
    /// The operating system's error behind it, if it is one.
    #[must_use]
    pub fn io(&self) -> Option<&std::io::Error> {
        match self {
            Self::Folder { source, .. } => Some(source),
            Self::File { source: parquet::errors::ParquetError::External(e), .. } => e.downcast_ref(),
            Self::File { .. } => None,
        }
    }

    /// The error behind it where that says nothing of the file: this process, or the machine, has no more open files, or no memory.
    pub(super) fn lacking(&self) -> Option<std::io::Error> {
        let code = self.io()?.raw_os_error()?;
        let lacks = matches!(code, libc::EMFILE | libc::ENFILE | libc::ENOMEM);
        lacks.then(|| std::io::Error::from_raw_os_error(code))
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// On disk.
    pub bytes: u64,
    /// Rows of all files.
    pub rows: u64,
    /// Measured numbers in them: cells that are not null, without keys and names.
    pub values: u64,
    /// Of those, not zero.
    pub nonzero: u64,
}

/// What to read of a segment.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// Everything.
    All,
    /// These columns of these files, and names. Values of other columns come as zero.
    Columns(&'a [(Kind, &'a [&'a str])]),
    /// The same of the host as a whole: in each window one row, of id 0, for all of a kind together, as `series::fold` makes it.
    Whole(&'a [(Kind, &'a [&'a str])]),
}

impl Wanted<'_> {
    pub(super) fn of<R>(&self, kind: Kind, all: &[Column<R>]) -> Option<Vec<&'static str>> {
        match self {
            Self::All => Some(all.iter().map(|c| c.name).collect()),
            Self::Columns(some) | Self::Whole(some) => {
                let (_, names) = some.iter().find(|(k, _)| *k == kind)?;
                Some(all.iter().map(|c| c.name).filter(|name| names.contains(name)).collect())
            }
        }
    }
}

/// The name of a segment over these windows: two moments, UTC, and a number that tells segments of the same span apart.
pub(super) fn name(first: WindowIndex, last: WindowIndex, number: u64) -> String {
    let moment = |ns: u64| {
        let civil = Civil::of(ns);
        let text = format!("{}T{}", civil.date(), civil.time_ms());
        text.chars().filter(|c| !matches!(c, '-' | ':')).collect::<String>()
    };
    format!("{}Z-{}Z-{number:04}", moment(first.start_unix_ns()), moment(last.end_unix_ns()))
}

/// The windows that a segment of this name is over; `None`: no such name.
pub(super) fn span_of(name: &str) -> Option<(WindowIndex, WindowIndex)> {
    let mut parts = name.split('-');
    let (first, end, number) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || number.parse::<u64>().is_err() {
        return None;
    }
    let (first, end) = (moment_ms(first)?, moment_ms(end)?);
    let window_ms = WINDOW_NS / 1_000_000;
    let last = (end / window_ms).checked_sub(1)?;
    (first / window_ms <= last).then_some((WindowIndex(first / window_ms), WindowIndex(last)))
}

/// Milliseconds since 1970 of `20261121T143000.050Z`.
fn moment_ms(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, ms) = time.split_once('.')?;
    if date.len() != 8 || time.len() != 6 || ms.len() != 3 {
        return None;
    }
    let part = |text: &str, from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (part(date, 0, 4)?, part(date, 4, 6)?, part(date, 6, 8)?);
    // Days from civil, Howard Hinnant's algorithm for years from 1970.
    let shifted = if month <= 2 { year.checked_sub(1)? } else { year };
    let (era, of_era) = (shifted / 400, shifted % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.checked_sub(1)?;
    let days = (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)?;
    let seconds = days * 86_400 + part(time, 0, 2)? * 3_600 + part(time, 2, 4)? * 60 + part(time, 4, 6)?;
    Some(seconds * 1_000 + ms.parse::<u64>().ok()?)
}

fn field(name: &'static str, shape: Shape) -> Field {
    Field { name, shape }
}

/// Before the values, in every file.
pub(super) fn keys(kind: Kind) -> Vec<Field> {
    let text = |name| field(name, Shape::Text);
    let int = |name| field(name, Shape::Int);
    let mut fields = vec![text("host"), field("start", Shape::Moment)];
    fields.extend(match kind {
        Kind::Host => {
            vec![
                int("clock_error_us"),
                int("clock_corrected"),
                int("lost_before"),
                text("uncovered"),
                text("sampled"),
            ]
        }
        Kind::Workload => {
            vec![
                int("id"),
                text("workload"),
                text("cgroup"),
                text("comm"),
                int("cpu_quota_us"),
                int("shares_id"),
            ]
        }
        Kind::Listener => {
            vec![int("id"), int("workload_id"), text("workload"), text("address"), int("port"), text("comm")]
        }
        Kind::Edge => {
            vec![int("id"), int("workload_id"), text("workload"), text("remote_address"), int("remote_port")]
        }
        Kind::Device => vec![int("id"), text("device")],
        Kind::Culprit => {
            vec![
                text("resource"),
                int("pid"),
                text("comm"),
                int("workload_id"),
                text("workload"),
                int("amount"),
            ]
        }
    });
    fields
}

pub(super) fn fields<R>(kind: Kind, values: &[Column<R>], all_optional: bool) -> Vec<Field> {
    let mut fields = keys(kind);
    fields.extend(values.iter().map(|c| {
        let shape = if c.optional || all_optional { Shape::MaybeInt } else { Shape::Int };
        field(c.name, shape)
    }));
    fields
}

/// The columns of each file as a table in Markdown, for the documentation.
#[must_use]
pub fn documentation() -> String {
    use std::fmt::Write;
    fn rows<R>(columns: &[Column<R>], all_optional: bool) -> Vec<(&'static str, &'static str, &'static str)> {
        let kind = |c: &Column<R>| if c.optional || all_optional { "INT64, may be null" } else { "INT64" };
        columns.iter().map(|c| (c.name, kind(c), c.about)).collect()
    }
    let mut out = String::new();
    for kind in [Kind::Host, Kind::Workload, Kind::Listener, Kind::Edge, Kind::Device, Kind::Culprit] {
        let _ = write!(
            out,
            "### `{}`\n\n{}.\n\n| column | type | what |\n|---|---|---|\n",
            kind.file(),
            kind.about()
        );
        let keys = keys(kind).into_iter().map(|f| {
            let shape = match f.shape {
                Shape::Int => "INT64",
                Shape::MaybeInt => "INT64, may be null",
                Shape::Moment => "TIMESTAMP(us, UTC)",
                Shape::Text => "STRING",
            };
            (f.name, shape, columns::key_about(f.name))
        });
        let values = match kind {
            Kind::Host => rows(&columns::cpu(), true),
            Kind::Workload => rows(&columns::workload(), false),
            Kind::Listener => rows(&columns::listener(), false),
            Kind::Edge => rows(&columns::edge(), false),
            Kind::Device => rows(&columns::device(), false),
            Kind::Culprit => Vec::new(),
        };
        for (name, shape, about) in keys.chain(values) {
            let _ = writeln!(out, "| `{name}` | {shape} | {about} |");
        }
        out.push('\n');
    }
    out
}
