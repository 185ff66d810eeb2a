//! Tables in Parquet files: columns of whole numbers, moments and texts, row groups of whole hosts. Owns encodings and how a
//! column is found again; knows nothing of what the columns mean.

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// How a column's cells look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A whole number.
    Int,
    /// A whole number or null.
    MaybeInt,
    /// A moment, UTC, in microseconds.
    Moment,
    /// UTF-8.
    Text,
}

/// A column of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
}

/// The cells of one column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cells {
    /// Int and Moment.
    Int(Vec<i64>),
    /// MaybeInt.
    MaybeInt(Vec<Option<i64>>),
    /// Text.
    Text(Vec<Arc<str>>),
}

impl Cells {
    /// Number in this row; `None`: null, or not a number.
    pub(super) fn int(&self, row: usize) -> Option<i64> {
        match self {
            Self::Int(values) => values.get(row).copied(),
            Self::MaybeInt(values) => values.get(row).copied().flatten(),
            Self::Text(_) => None,
        }
    }

    /// Text in this row.
    pub(super) fn text(&self, row: usize) -> &str {
        match self {
            Self::Text(values) => values.get(row).map_or("", AsRef::as_ref),
            Self::Int(_) | Self::MaybeInt(_) => "",
        }
    }

    fn append(&mut self, other: &Self) {
        match (self, other) {
            (Self::Int(to), Self::Int(from)) => to.extend(from),
            (Self::MaybeInt(to), Self::MaybeInt(from)) => to.extend(from),
            (Self::Text(to), Self::Text(from)) => to.extend(from.iter().cloned()),
            _ => debug_assert!(false, "groups of one file have the same columns"),
        }
    }

    fn rows(self, range: Range<usize>) -> Self {
        fn cut<T>(mut values: Vec<T>, range: Range<usize>) -> Vec<T> {
            values.truncate(range.end);
            values.drain(..range.start.min(values.len()));
            values
        }
        match self {
            Self::Int(values) => Self::Int(cut(values, range)),
            Self::MaybeInt(values) => Self::MaybeInt(cut(values, range)),
            Self::Text(values) => Self::Text(cut(values, range)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Int(values) => values.len(),
            Self::MaybeInt(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }
}

/// zstd's level: beyond it the files hardly shrink.
const LEVEL: i32 = 3;

/// Rows up to which hosts share a row group.
const GROUP_ROWS: usize = 16_384;

fn schema(fields: &[Field]) -> Result<Type> {
    let columns = fields
        .iter()
        .map(|field| {
            let (physical, logical) = match field.shape {
                Shape::Int | Shape::MaybeInt => (Physical::INT64, None),
                Shape::Moment => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
                Shape::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            let repetition =
                if field.shape == Shape::MaybeInt { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            Type::primitive_type_builder(field.name, physical)
                .with_logical_type(logical)
                .with_repetition(repetition)
                .build()
                .map(Arc::new)
        })
        .collect::<Result<_>>()?;
    Type::group_type_builder("window").with_fields(columns).build()
}

fn properties(fields: &[Field]) -> Result<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("tailwater ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_statistics_truncate_length(None)
        .set_offset_index_disabled(true);
    for field in fields {
        let path = ColumnPath::from(field.name);
        if matches!(field.name, "host" | "start") {
            // What readers skip row groups by.
            properties = properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::Chunk);
        }
        // Measured on windows of the lab, bytes per value: dictionary 1.58, delta 1.11, plain 1.10, split bytes 0.89.
        let encoding = match field.shape {
            Shape::Int | Shape::MaybeInt => Encoding::BYTE_STREAM_SPLIT,
            Shape::Moment => Encoding::DELTA_BINARY_PACKED,
            Shape::Text => continue,
        };
        properties =
            properties.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding);
    }
    Ok(properties.build())
}

/// Hosts with few rows share a row group: each column of each group costs some hundred bytes.
fn packed(hosts: Vec<Vec<Cells>>) -> Vec<Vec<Cells>> {
    let rows = |group: &[Cells]| group.first().map_or(0, Cells::len);
    let mut groups: Vec<Vec<Cells>> = Vec::new();
    for host in hosts {
        match groups.last_mut() {
            Some(last) if rows(last) + rows(&host) <= GROUP_ROWS => {
                last.iter_mut().zip(&host).for_each(|(to, from)| to.append(from));
            }
            _ => groups.push(host),
        }
    }
    groups
}

/// Writes the rows of each host, one entry per field, and syncs. Returns the file's bytes.
pub(super) fn write(path: &Path, fields: &[Field], hosts: Vec<Vec<Cells>>) -> Result<u64> {
    let groups = packed(hosts);
    let file = File::create(path)?;
    let schema = Arc::new(schema(fields)?);
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties(fields)?))?;
    for group in &groups {
        if group.first().is_none_or(|cells| cells.len() == 0) {
            continue;
        }
        let mut rows = writer.next_row_group()?;
        for cells in group {
            let Some(mut column) = rows.next_column()? else { break };
            match cells {
                Cells::Int(values) => {
                    column.typed::<Int64Type>().write_batch(values, None, None)?;
                }
                Cells::MaybeInt(values) => {
                    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
                    let there: Vec<i64> = values.iter().flatten().copied().collect();
                    column.typed::<Int64Type>().write_batch(&there, Some(&levels), None)?;
                }
                Cells::Text(values) => {
                    let bytes: Vec<ByteArray> = values.iter().map(|v| ByteArray::from(v.as_ref())).collect();
                    column.typed::<ByteArrayType>().write_batch(&bytes, None, None)?;
                }
            }
            column.close()?;
        }
        rows.close()?;
    }
    let file = writer.into_inner()?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

/// How many rows, and one entry per column asked for; `None`: the file has no such column.
pub(super) type Rows = (usize, Vec<Option<Cells>>);

/// An open file.
pub(super) struct Reader(SerializedFileReader<File>);

impl Reader {
    /// Reads the footer.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self(SerializedFileReader::new(File::open(path)?)?))
    }

    /// Rows in all groups.
    pub(super) fn rows(&self) -> usize {
        self.0.metadata().row_groups().iter().map(rows_of).sum()
    }

    /// The hosts that have rows.
    pub(super) fn hosts(&self) -> Result<Vec<String>> {
        let mut hosts = Vec::new();
        for (number, meta) in self.0.metadata().row_groups().iter().enumerate() {
            let texts = self.column(number, meta, "host")?;
            for row in 0..rows_of(meta) {
                let host = texts.as_ref().map_or("", |t| t.text(row));
                if hosts.last().is_none_or(|last| last != host) {
                    hosts.push(host.to_owned());
                }
            }
        }
        Ok(hosts)
    }

    fn column(&self, number: usize, meta: &RowGroupMetaData, name: &str) -> Result<Option<Cells>> {
        let found = meta.columns().iter().position(|c| c.column_path().string() == name);
        found.map(|n| column(self.0.get_row_group(number)?.get_column_reader(n)?, rows_of(meta))).transpose()
    }

    /// The columns `wanted` of the rows of `host`, in their order; `None` for one that this file does not have.
    pub(super) fn read(&self, host: &str, wanted: &[&str]) -> Result<Option<Rows>> {
        for (number, meta) in self.0.metadata().row_groups().iter().enumerate() {
            let range = match holds(meta, host) {
                Holds::None => continue,
                // The texts of a column cost more than its numbers.
                Holds::Only => 0..rows_of(meta),
                Holds::Maybe => {
                    let Some(Cells::Text(hosts)) = self.column(number, meta, "host")? else { continue };
                    let Some(first) = hosts.iter().position(|h| h.as_ref() == host) else { continue };
                    first..first + hosts.iter().skip(first).take_while(|h| h.as_ref() == host).count()
                }
            };
            let cells = wanted
                .iter()
                .map(|name| Ok(self.column(number, meta, name)?.map(|c| c.rows(range.clone()))))
                .collect::<Result<_>>()?;
            return Ok(Some((range.len(), cells)));
        }
        Ok(None)
    }
}

fn rows_of(group: &RowGroupMetaData) -> usize {
    usize::try_from(group.num_rows()).unwrap_or(0)
}

enum Holds {
    None,
    Maybe,
    Only,
}

/// By the statistics of its column `host`, which are never cut short.
fn holds(group: &RowGroupMetaData, host: &str) -> Holds {
    let column = group.columns().iter().find(|c| c.column_path().string() == "host");
    let statistics = column.and_then(|c| c.statistics());
    let Some((min, max)) = statistics.and_then(|s| s.min_bytes_opt().zip(s.max_bytes_opt())) else {
        return Holds::Maybe;
    };
    match (min.cmp(host.as_bytes()), max.cmp(host.as_bytes())) {
        (Less | Equal, Greater) | (Less, Equal) => Holds::Maybe,
        (Equal, Equal) => Holds::Only,
        _ => Holds::None,
    }
}

fn column(reader: ColumnReader, rows: usize) -> Result<Cells> {
    let short = |read: usize| ParquetError::General(format!("{read} of {rows} rows of a column"));
    match reader {
        ColumnReader::Int64ColumnReader(mut reader) => {
            let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::new());
            let (mut read, mut nullable) = (0, false);
            while read < rows {
                let (records, there, _) =
                    reader.read_records(rows - read, Some(&mut levels), None, &mut values)?;
                if records == 0 {
                    return Err(short(read));
                }
                read += records;
                nullable |= there < records || !levels.is_empty();
            }
            if !nullable {
                return Ok(Cells::Int(values));
            }
            let mut there = values.into_iter();
            Ok(Cells::MaybeInt(levels.iter().map(|l| if *l > 0 { there.next() } else { None }).collect()))
        }
        ColumnReader::ByteArrayColumnReader(mut reader) => {
            let mut values: Vec<ByteArray> = Vec::with_capacity(rows);
            while values.len() < rows {
                let (records, ..) = reader.read_records(rows - values.len(), None, None, &mut values)?;
                if records == 0 {
                    return Err(short(values.len()));
                }
            }
            // Neighbours mostly are the same text: one allocation for a run of them.
            let mut texts: Vec<Arc<str>> = Vec::with_capacity(rows);
            for value in &values {
                let text = std::str::from_utf8(value.data())?;
                match texts.last() {
                    Some(last) if last.as_ref() == text => texts.push(Arc::clone(last)),
                    _ => texts.push(text.into()),
                }
            }
            Ok(Cells::Text(texts))
        }
        _ => Err(ParquetError::General("a column of a type that this build does not write".into())),
    }
}
