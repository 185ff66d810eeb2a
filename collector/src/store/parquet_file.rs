//! Tables in Parquet files: columns of whole numbers, moments and texts, row groups of whole hosts. Owns encodings, how a
//! column is found again, and how much memory a file may take that says what it likes; knows nothing of what the columns mean.

use super::disk::{Disk, Output};
use super::pages::{COLUMN_BYTES_MAX, Pages};
use super::thrift;
use crate::failure::fenced;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
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

    fn of(shape: Shape) -> Self {
        match shape {
            Shape::Int | Shape::Moment => Self::Int(Vec::new()),
            Shape::MaybeInt => Self::MaybeInt(Vec::new()),
            Shape::Text => Self::Text(Vec::new()),
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

/// A file that is being written, host by host. Hosts with few rows share a row group, as each column of each group costs some hundred bytes, and
/// the cells of one group at a time are in memory: those of a whole segment would be pages of the kernel's that each segment asks for anew.
pub(super) struct Writer {
    file: SerializedFileWriter<Box<dyn Output>>,
    cells: Vec<Cells>,
    scratch: Scratch,
}

/// Of a column that may be null, what the library takes in place of it.
#[derive(Default)]
struct Scratch {
    levels: Vec<i16>,
    there: Vec<i64>,
}

impl Writer {
    /// An empty file with these columns.
    pub(super) fn begin(disk: &dyn Disk, path: &Path, fields: &[Field]) -> Result<Self> {
        let file = disk.create(path)?;
        let schema = Arc::new(schema(fields)?);
        let file = SerializedFileWriter::new(file, schema, Arc::new(properties(fields)?))?;
        let cells = fields.iter().map(|field| Cells::of(field.shape)).collect();
        Ok(Self { file, cells, scratch: Scratch::default() })
    }

    /// The columns, one for each field, to which the so many rows of a host are to be appended: they stand in one row group.
    pub(super) fn host(&mut self, rows: usize) -> Result<&mut [Cells]> {
        let there = self.cells.first().map_or(0, Cells::len);
        if there > 0 && there + rows > GROUP_ROWS {
            self.group()?;
        }
        Ok(&mut self.cells)
    }

    fn group(&mut self) -> Result<()> {
        let Self { file, cells, scratch } = self;
        if cells.first().is_none_or(|cells| cells.len() == 0) {
            return Ok(());
        }
        let mut rows = file.next_row_group()?;
        for cells in cells {
            let Some(mut column) = rows.next_column()? else { break };
            match cells {
                Cells::Int(values) => {
                    column.typed::<Int64Type>().write_batch(values, None, None)?;
                    values.clear();
                }
                Cells::MaybeInt(values) => {
                    let Scratch { levels, there } = scratch;
                    levels.clear();
                    levels.extend(values.iter().map(|v| i16::from(v.is_some())));
                    there.clear();
                    there.extend(values.iter().flatten());
                    column.typed::<Int64Type>().write_batch(there, Some(levels), None)?;
                    values.clear();
                }
                Cells::Text(values) => {
                    column.typed::<ByteArrayType>().write_batch(&shared(values), None, None)?;
                    values.clear();
                }
            }
            column.close()?;
        }
        rows.close()?;
        Ok(())
    }

    /// Writes the rest, and syncs. Returns the file's bytes.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.group()?;
        self.file.into_inner()?.sync().map_err(ParquetError::from)
    }
}

/// Texts as the library takes them. Neighbours mostly are the same text: its bytes are copied once, and then shared.
fn shared(texts: &[Arc<str>]) -> Vec<ByteArray> {
    let mut bytes: Vec<ByteArray> = Vec::with_capacity(texts.len());
    let mut before: Option<&Arc<str>> = None;
    for text in texts {
        let same = bytes.last().filter(|_| before.is_some_and(|before| Arc::ptr_eq(before, text)));
        let one = same.cloned().unwrap_or_else(|| ByteArray::from(text.as_ref()));
        bytes.push(one);
        before = Some(text);
    }
    bytes
}

/// How many rows, and one entry per column asked for; `None`: the file has no such column.
pub(super) type Rows = (usize, Vec<Option<Cells>>);

/// Ends a file, after the footer's length.
const MAGIC: [u8; 4] = *b"PAR1";
/// Of the footer: three hundred row groups of fifty columns take 2 MiB.
const FOOTER_BYTES_MAX: u64 = 8 << 20;
/// Of a row group. A segment is written before its windows take 160 MiB (those of the open segment and those that wait for it), and a
/// number that is kept takes two bytes of them at least.
const CELLS_MAX: usize = 80 << 20;
/// Columns of a file; there are fifty.
const COLUMNS_MAX: u64 = 1_000;
/// Hosts of a file, each of which is read alone.
const HOSTS_MAX: usize = 16_384;

fn wrong(what: String) -> ParquetError {
    ParquetError::General(what)
}

/// What the Parquet library says of bytes that it did not write. What it does not expect it panics upon: that is an answer, too.
fn answer<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    fenced(work).unwrap_or_else(|panic| Err(wrong(format!("it cannot be read: {panic}"))))
}

/// The footer of a file of so many bytes. What it says is walked over before anything is made of it.
fn footer(file: &File, length: u64) -> Result<ParquetMetaData> {
    let mut end = [0; 8];
    let (before, after) = (MAGIC.len() as u64, end.len() as u64);
    let most =
        length.checked_sub(before + after).ok_or_else(|| wrong(format!("{length} bytes are no file")))?;
    file.read_exact_at(&mut end, length - after)?;
    let [a, b, c, d, magic @ ..] = end;
    if magic != MAGIC {
        return Err(wrong("it does not end as a Parquet file does".into()));
    }
    let said = u64::from(u32::from_le_bytes([a, b, c, d]));
    if said > most.min(FOOTER_BYTES_MAX) {
        return Err(wrong(format!("a footer of {said} bytes in {length}")));
    }
    let mut bytes = vec![0; usize::try_from(said)?];
    file.read_exact_at(&mut bytes, length - after - said)?;
    // Of the schema's elements the first has children, which are the columns; one with more would be read by a function that calls itself.
    let (mut parents, mut children) = (0, 0);
    let walked = thrift::walk(&bytes, &mut |field, number| {
        if matches!(field, [2, 5]) && number != 0 {
            parents += 1;
            children = number.unsigned_abs().max(children);
        }
    });
    walked.map_err(|e| wrong(format!("its footer: {e}")))?;
    if parents > 1 || children > COLUMNS_MAX {
        return Err(wrong("its footer: columns in columns, or a thousand of them".into()));
    }
    answer(|| ParquetMetaDataReader::decode_metadata(&bytes))
}

/// An open file.
pub(super) struct Reader {
    file: File,
    length: u64,
    metadata: ParquetMetaData,
}

impl Reader {
    /// Reads the footer.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let metadata = footer(&file, length)?;
        for group in metadata.row_groups() {
            let cells = usize::try_from(group.num_rows())?.checked_mul(group.num_columns().max(1));
            if cells.is_none_or(|cells| cells > CELLS_MAX) {
                let (rows, columns) = (group.num_rows(), group.num_columns());
                return Err(wrong(format!("its footer: {rows} rows of {columns} columns together")));
            }
        }
        Ok(Self { file, length, metadata })
    }

    /// Rows in all groups.
    #[cfg(test)]
    fn rows(&self) -> usize {
        self.metadata.row_groups().iter().map(rows_of).sum()
    }

    /// The hosts that have rows.
    pub(super) fn hosts(&self) -> Result<Vec<String>> {
        let mut hosts = BTreeSet::new();
        for group in self.metadata.row_groups() {
            let Some(Cells::Text(mut texts)) = self.column(group, "host")? else {
                return Err(wrong("it has no hosts".into()));
            };
            // A host's rows follow each other.
            texts.dedup();
            hosts.extend(texts.iter().map(ToString::to_string));
        }
        if hosts.len() > HOSTS_MAX {
            return Err(wrong(format!("{} hosts", hosts.len())));
        }
        Ok(hosts.into_iter().collect())
    }

    fn column(&self, group: &RowGroupMetaData, name: &str) -> Result<Option<Cells>> {
        let found = group.columns().iter().find(|c| c.column_path().string() == name);
        let Some(about) = found else { return Ok(None) };
        let description = about.column_descr_ptr();
        if description.max_rep_level() > 0 || description.max_def_level() > 1 {
            return Err(wrong(format!("{name}: a column of columns")));
        }
        let rows = rows_of(group);
        let pages = Pages::new(self.bytes(about)?.into(), about.compression(), rows)?;
        answer(|| column(get_column_reader(description, Box::new(pages)), rows)).map(Some)
    }

    /// All pages of a column.
    fn bytes(&self, about: &ColumnChunkMetaData) -> Result<Vec<u8>> {
        let first = about.dictionary_page_offset().unwrap_or_else(|| about.data_page_offset());
        let (first, length) = (u64::try_from(first)?, usize::try_from(about.compressed_size())?);
        let end = first.checked_add(length as u64);
        if length > COLUMN_BYTES_MAX || end.is_none_or(|end| end > self.length) {
            return Err(wrong(format!("{length} bytes of a column at {first}, of {} in all", self.length)));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, first)?;
        Ok(bytes)
    }

    /// The columns `wanted` of the rows of `host`, in their order; `None` for one that this file does not have.
    pub(super) fn read(&self, host: &str, wanted: &[&str]) -> Result<Option<Rows>> {
        for group in self.metadata.row_groups() {
            let range = match holds(group, host) {
                Holds::None => continue,
                // The texts of a column cost more than its numbers.
                Holds::Only => 0..rows_of(group),
                Holds::Maybe => {
                    let Some(Cells::Text(hosts)) = self.column(group, "host")? else { continue };
                    let Some(first) = hosts.iter().position(|h| h.as_ref() == host) else { continue };
                    first..first + hosts.iter().skip(first).take_while(|h| h.as_ref() == host).count()
                }
            };
            let cells = wanted
                .iter()
                .map(|name| Ok(self.column(group, name)?.map(|c| c.rows(range.clone()))))
                .collect::<Result<_>>()?;
            return Ok(Some((range.len(), cells)));
        }
        Ok(None)
    }
}

/// Never too many: that is looked at when a file is opened.
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
            // Neighbours mostly are the same text, and many rows have one of few: each is allocated once, however often it is there.
            let mut texts: Vec<Arc<str>> = Vec::with_capacity(rows);
            let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
            for value in &values {
                let text = std::str::from_utf8(value.data())?;
                match texts.last() {
                    Some(last) if last.as_ref() == text => texts.push(Arc::clone(last)),
                    _ => match known.get(text) {
                        Some(one) => texts.push(Arc::clone(one)),
                        None => {
                            let one: Arc<str> = text.into();
                            known.insert(Arc::clone(&one));
                            texts.push(one);
                        }
                    },
                }
            }
            Ok(Cells::Text(texts))
        }
        _ => Err(ParquetError::General("a column of a type that this build does not write".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::RealDisk;
    use super::*;

    const ROWS: usize = 12_345;
    const FIELDS: [Field; 3] = [
        Field { name: "host", shape: Shape::Text },
        Field { name: "start", shape: Shape::Moment },
        Field { name: "n", shape: Shape::MaybeInt },
    ];

    /// A file of one host.
    fn write(path: &Path, fields: &[Field], host: &[Cells]) {
        let mut file = Writer::begin(&RealDisk, path, fields).unwrap();
        file.host(host[0].len()).unwrap().clone_from_slice(host);
        file.finish().unwrap();
    }

    /// The same, as bytes.
    fn written(path: &Path) -> Vec<u8> {
        let numbers: Vec<i64> = (0..ROWS as i64).collect();
        let host = vec![Arc::from("web-1"); ROWS];
        let some = numbers.iter().map(|n| (n % 3 > 0).then_some(*n)).collect();
        let cells = vec![Cells::Text(host), Cells::Int(numbers), Cells::MaybeInt(some)];
        write(path, &FIELDS, &cells);
        std::fs::read(path).unwrap()
    }

    fn varint(number: i64) -> Vec<u8> {
        let mut out = Vec::new();
        prost::encoding::encode_varint(((number << 1) ^ (number >> 63)).cast_unsigned(), &mut out);
        out
    }

    /// The same with another footer.
    fn with_footer(file: &[u8], other: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let (rest, end) = file.split_at(file.len() - 8);
        let length = u32::from_le_bytes(end[..4].try_into().unwrap()) as usize;
        let (pages, footer) = rest.split_at(rest.len() - length);
        let footer = other(footer);
        [pages, &footer, &(footer.len() as u32).to_le_bytes(), &MAGIC].concat()
    }

    /// The same, that says another number of rows wherever it says them.
    fn of_rows(file: &[u8], rows: i64) -> Vec<u8> {
        let (from, to) = (varint(ROWS as i64), varint(rows));
        with_footer(file, |footer| {
            let (mut out, mut left) = (Vec::new(), footer);
            while let Some((first, rest)) = left.split_first() {
                match left.strip_prefix(&from[..]) {
                    Some(after) => {
                        out.extend(&to);
                        left = after;
                    }
                    None => {
                        out.push(*first);
                        left = rest;
                    }
                }
            }
            out
        })
    }

    fn told(path: &Path, bytes: &[u8]) -> String {
        std::fs::write(path, bytes).unwrap();
        match Reader::open(path).and_then(|reader| reader.read("web-1", &["start", "n"])) {
            Ok(read) => panic!("it was read: {:?}", read.map(|(rows, _)| rows)),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn columns_come_back_and_a_text_of_many_rows_is_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        written(&path);
        let reader = Reader::open(&path).unwrap();
        assert_eq!((reader.rows(), reader.hosts().unwrap()), (ROWS, vec!["web-1".to_owned()]));
        let (rows, cells) = reader.read("web-1", &["n", "nothing", "host"]).unwrap().unwrap();
        assert_eq!((rows, cells[0].as_ref().unwrap().int(7), cells[1].as_ref()), (ROWS, Some(7), None));
        assert_eq!(cells[0].as_ref().unwrap().int(9), None);
        assert_eq!(reader.read("web-2", &["n"]).unwrap(), None);
        let path = folder.path().join("b.parquet");
        let turns: Vec<Arc<str>> = ["a", "b"].repeat(500).into_iter().map(Arc::from).collect();
        let numbers = Cells::Int(vec![0; turns.len()]);
        let cells = vec![Cells::Text(turns), numbers.clone(), numbers];
        let fields = FIELDS.map(|f| if f.name == "n" { Field { shape: Shape::Int, ..f } } else { f });
        write(&path, &fields, &cells);
        let about = Reader::open(&path).unwrap();
        let Some(Cells::Text(texts)) = about.column(&about.metadata.row_groups()[0], "host").unwrap() else {
            panic!("texts")
        };
        assert!(Arc::ptr_eq(&texts[0], &texts[998]) && Arc::ptr_eq(&texts[1], &texts[999]));
    }

    #[test]
    fn a_footer_is_not_believed_beyond_what_a_segment_can_hold() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let file = written(&path);
        for rows in [i64::MAX, 1 << 40, 30_000_000] {
            assert!(told(&path, &of_rows(&file, rows)).contains("of 3 columns together"), "{rows}");
        }
        assert!(!told(&path, &of_rows(&file, -1)).is_empty());
        assert!(told(&path, &of_rows(&file, ROWS as i64 + 1)).contains("12345 of 12346 rows"));
        // Four gigabytes of footer; a footer of text; one that is not there.
        let mut long = file.clone();
        let at = long.len() - 8;
        long[at..at + 4].fill(0xff);
        assert!(told(&path, &long).contains("a footer of 4294967295 bytes"));
        assert!(told(&path, &with_footer(&file, |_| b"not a footer".to_vec())).contains("its footer: "));
        assert!(!told(&path, &with_footer(&file, |_| Vec::new())).is_empty());
        for cut in [0, 3, 11, 12, file.len() / 2, file.len() - 1] {
            assert!(!told(&path, &file[..cut]).is_empty());
        }
        // Columns in columns in columns: a reader that calls itself for each would have no stack left.
        let element = [0x48, 1, b'a', 0x15, 2, 0];
        let schema =
            [[0x15, 2, 0x19, 0xfc].as_slice(), &[0xa0, 0x8d, 0x06], &element.repeat(100_000)].concat();
        let schema = [&schema[..], &[0]].concat();
        assert!(told(&path, &with_footer(&file, |_| schema.clone())).contains("columns in columns"));
    }
}
