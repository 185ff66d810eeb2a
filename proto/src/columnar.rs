//! The codec of [`Column::values`](crate::v1::Column): zigzag varints of the difference to the value before, with runs of
//! zero differences counted. Works on whole tables; knows no metric's meaning.
//!
//! Rows are entity-major: all windows of the first entity, then all of the second. A difference of zero is written as a
//! zero byte and a varint that counts how many *more* zero differences follow. Differences wrap at 2^64, so every `u64`
//! survives.

use crate::v1::{Column, EntityKind, Metric, Table};
use std::collections::BTreeMap;

/// Windows in one batch, at most: what the kernel side keeps.
pub const WINDOWS_MAX: u32 = 64;
/// Entities in one table, at most.
pub const ENTITIES_MAX: usize = 4096;
/// Columns in one table, at most.
pub const COLUMNS_MAX: usize = 256;
/// Values in one table, at most: counted runs could otherwise turn a few bytes into hundreds of megabytes. A busy agent's largest
/// table, 4096 workloads with 32 columns over 2 windows, fits eight times.
pub const VALUES_MAX: usize = 1 << 21;

/// Why a table could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a value, or before the last row.
    #[error("column {metric}[{bucket}]: ends after {got} of {want} values")]
    Short {
        /// Metric number.
        metric: i32,
        /// Histogram bucket.
        bucket: u32,
        /// Values decoded.
        got: usize,
        /// Values the table declares.
        want: usize,
    },
    /// More bytes than the declared rows need.
    #[error("column {metric}[{bucket}]: {extra} bytes left over after {want} values")]
    Long {
        /// Metric number.
        metric: i32,
        /// Histogram bucket.
        bucket: u32,
        /// Bytes left.
        extra: usize,
        /// Values the table declares.
        want: usize,
    },
    /// A varint longer than 64 bits, or a zero run longer than the column.
    #[error("column {metric}[{bucket}]: malformed at byte {at}")]
    Malformed {
        /// Metric number.
        metric: i32,
        /// Histogram bucket.
        bucket: u32,
        /// Offset in the column's bytes.
        at: usize,
    },
    /// Declared sizes beyond what any agent sends.
    #[error(
        "table of {entities} entities, {columns} columns and {windows} windows is beyond the limits of {ENTITIES_MAX}, {COLUMNS_MAX} and {WINDOWS_MAX}"
    )]
    TooLarge {
        /// Entities declared.
        entities: usize,
        /// Columns sent.
        columns: usize,
        /// Windows declared.
        windows: u32,
    },
    /// More values than any agent sends.
    #[error("table of {values} values is beyond the limit of {VALUES_MAX}: send fewer windows in one batch")]
    TooManyValues {
        /// Entities times windows times columns.
        values: usize,
    },
    /// The same column twice.
    #[error("column {metric}[{bucket}] appears twice")]
    Repeated {
        /// Metric number.
        metric: i32,
        /// Histogram bucket.
        bucket: u32,
    },
    /// The same entity twice.
    #[error("entity {entity} appears twice")]
    RepeatedEntity {
        /// Entity id.
        entity: u32,
    },
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// `None`: the bytes end inside the varint, or it does not fit 64 bits.
fn take_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// Encodes `values` in order.
#[must_use]
pub fn encode_values(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len());
    let mut before = 0_u64;
    let mut rest = values.iter().copied().peekable();
    while let Some(value) = rest.next() {
        let difference = value.wrapping_sub(before) as i64;
        before = value;
        put_varint(&mut out, zigzag(difference));
        if difference == 0 {
            let mut more = 0;
            while rest.next_if_eq(&before).is_some() {
                more += 1;
            }
            put_varint(&mut out, more);
        }
    }
    out
}

/// Decodes exactly `want` values of `column`. Never allocates more than `want` values.
pub fn decode_values(column: &Column, want: usize) -> Result<Vec<u64>, DecodeError> {
    let mut values = Vec::with_capacity(want);
    append_values(column, want, &mut values)?;
    Ok(values)
}

/// The same, behind what is in `values`.
fn append_values(column: &Column, want: usize, values: &mut Vec<u64>) -> Result<(), DecodeError> {
    let (metric, bucket) = (column.metric, column.bucket);
    let bytes = &column.values;
    let (begin, end) = (values.len(), values.len() + want);
    let mut before = 0_u64;
    let mut at = 0;
    while values.len() < end {
        if at == bytes.len() {
            return Err(DecodeError::Short { metric, bucket, got: values.len() - begin, want });
        }
        let begun = at;
        let malformed = || DecodeError::Malformed { metric, bucket, at: begun };
        let coded = take_varint(bytes, &mut at).ok_or_else(malformed)?;
        let difference = unzigzag(coded);
        before = before.wrapping_add(difference as u64);
        values.push(before);
        if difference == 0 {
            let more = take_varint(bytes, &mut at).ok_or_else(malformed)?;
            let room = end - values.len();
            let more = usize::try_from(more).ok().filter(|more| *more <= room).ok_or_else(malformed)?;
            values.resize(values.len() + more, before);
        }
    }
    if at != bytes.len() {
        return Err(DecodeError::Long { metric, bucket, extra: bytes.len() - at, want });
    }
    Ok(())
}

/// Collects values of one entity kind over the windows of a batch, and becomes a [`Table`].
///
/// Values that are never set are zero. A metric that is never mentioned is absent: "not covered". Mention it with
/// [`TableBuilder::cover`] when its signal is covered but quiet.
#[derive(Debug, Clone)]
pub struct TableBuilder {
    kind: EntityKind,
    windows: usize,
    rows: BTreeMap<u32, usize>,
    columns: BTreeMap<(i32, u32), Vec<u64>>,
}

impl TableBuilder {
    /// A table for `windows` consecutive windows.
    #[must_use]
    pub fn new(kind: EntityKind, windows: usize) -> Self {
        Self { kind, windows, rows: BTreeMap::new(), columns: BTreeMap::new() }
    }

    /// States that `metric` is covered, whether or not any value is set.
    pub fn cover(&mut self, metric: Metric) {
        self.columns.entry((metric as i32, 0)).or_default();
    }

    /// Sets a value; `bucket` is 0 except for histograms.
    pub fn set(&mut self, entity: u32, window: usize, metric: Metric, bucket: u32, value: u64) {
        if window >= self.windows {
            debug_assert!(false, "window {window} of {}", self.windows);
            return;
        }
        let next = self.rows.len();
        let row = *self.rows.entry(entity).or_insert(next);
        let column = self.columns.entry((metric as i32, bucket)).or_default();
        let at = row * self.windows + window;
        if column.len() <= at {
            column.resize(at + 1, 0);
        }
        column[at] = value;
    }

    /// Nothing covered, nothing set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Entities in ascending order, columns in order of metric and bucket.
    #[must_use]
    pub fn build(self) -> Table {
        let entities: Vec<u32> = self.rows.keys().copied().collect();
        let columns = self
            .columns
            .into_iter()
            .map(|((metric, bucket), values)| {
                let mut sorted = Vec::with_capacity(entities.len() * self.windows);
                for row in self.rows.values() {
                    let begin = row * self.windows;
                    sorted
                        .extend((begin..begin + self.windows).map(|at| values.get(at).copied().unwrap_or(0)));
                }
                Column { metric, bucket, values: encode_values(&sorted) }
            })
            .collect();
        Table { kind: self.kind as i32, entities, columns }
    }
}

/// A decoded table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableValues {
    windows: usize,
    /// Entities with their rows, ascending.
    rows: Vec<(u32, usize)>,
    /// By metric number and bucket, ascending; each with where its values begin.
    columns: Vec<((i32, u32), usize)>,
    /// Of all columns, which have as many each: a message has a hundred of them, and each would be memory of its own.
    values: Vec<u64>,
}

/// Sorts by key; the first key that is there twice.
fn sorted<K: Ord + Copy, V>(all: &mut [(K, V)]) -> Option<K> {
    // What agents send is in order already.
    if !all.is_sorted_by(|a, b| a.0 < b.0) {
        all.sort_by_key(|(key, _)| *key);
    }
    all.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[0].0)
}

/// The value of a key in a list that is sorted.
fn find<K: Ord + Copy, V>(all: &[(K, V)], key: K) -> Option<&V> {
    all.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| &all[at].1)
}

impl TableValues {
    /// Decodes every column of `table`, which spans `windows` windows.
    pub fn decode(table: &Table, windows: u32) -> Result<Self, DecodeError> {
        let (entities, columns) = (table.entities.len(), table.columns.len());
        if entities > ENTITIES_MAX || columns > COLUMNS_MAX || windows > WINDOWS_MAX {
            return Err(DecodeError::TooLarge { entities, columns, windows });
        }
        let windows = windows as usize;
        let values = entities.saturating_mul(columns).saturating_mul(windows);
        if values > VALUES_MAX {
            return Err(DecodeError::TooManyValues { values });
        }
        let mut rows: Vec<(u32, usize)> =
            table.entities.iter().enumerate().map(|(row, entity)| (*entity, row)).collect();
        if let Some(entity) = sorted(&mut rows) {
            return Err(DecodeError::RepeatedEntity { entity });
        }
        let mut decoded = Vec::with_capacity(columns);
        let mut all = Vec::with_capacity(values);
        for column in &table.columns {
            decoded.push(((column.metric, column.bucket), all.len()));
            append_values(column, entities * windows, &mut all)?;
        }
        if let Some((metric, bucket)) = sorted(&mut decoded) {
            return Err(DecodeError::Repeated { metric, bucket });
        }
        Ok(Self { windows, rows, columns: decoded, values: all })
    }

    /// Entities that have a row, ascending.
    pub fn entities(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().map(|(entity, _)| *entity)
    }

    /// Columns in order of metric number and bucket. Values are row-major: see [`TableValues::rows`].
    pub fn columns(&self) -> impl Iterator<Item = (i32, u32, &[u64])> + '_ {
        self.columns.iter().map(|((metric, bucket), begin)| (*metric, *bucket, self.of(*begin)))
    }

    fn of(&self, begin: usize) -> &[u64] {
        self.values.get(begin..begin + self.rows.len() * self.windows).unwrap_or_default()
    }

    /// Each entity with its row: its values are `windows` many, from `row * windows`.
    pub fn rows(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        self.rows.iter().map(|(entity, row)| (*entity, *row))
    }

    /// Windows that each row spans.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// Whether the metric's column is there at all.
    #[must_use]
    pub fn covers(&self, metric: Metric) -> bool {
        find(&self.columns, (metric as i32, 0)).is_some()
    }

    /// The value, `None` when the metric is not covered; zero when it is but the entity has no row.
    #[must_use]
    pub fn get(&self, entity: u32, window: usize, metric: Metric) -> Option<u64> {
        self.bucket(entity, window, metric, 0)
    }

    /// As [`TableValues::get`], of one histogram bucket.
    #[must_use]
    pub fn bucket(&self, entity: u32, window: usize, metric: Metric, bucket: u32) -> Option<u64> {
        let column = find(&self.columns, (metric as i32, bucket))?;
        let Some(row) = find(&self.rows, entity) else { return Some(0) };
        if window >= self.windows {
            return None;
        }
        self.of(*column).get(row * self.windows + window).copied()
    }

    /// Values in all columns, and how many of them are not zero.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        (self.values.len(), self.values.iter().filter(|v| **v != 0).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn column(values: Vec<u8>) -> Column {
        Column { metric: 1, bucket: 0, values }
    }

    #[test]
    fn zero_runs_cost_two_bytes_however_long() {
        assert_eq!(encode_values(&[0; 100]), [0, 99]);
        assert_eq!(encode_values(&[7, 7, 7]), [14, 0, 1]);
    }

    #[test]
    fn extremes_survive() {
        let values = [u64::MAX, 0, 1 << 63, u64::MAX, u64::MAX];
        assert_eq!(decode_values(&column(encode_values(&values)), 5).unwrap(), values);
    }

    #[test]
    fn a_run_longer_than_the_column_is_refused_before_memory_is_taken() {
        let mut bytes = vec![0];
        put_varint(&mut bytes, u64::MAX);
        assert_eq!(
            decode_values(&column(bytes), 10),
            Err(DecodeError::Malformed { metric: 1, bucket: 0, at: 0 })
        );
    }

    #[test]
    fn short_and_long_columns_are_named() {
        assert!(matches!(
            decode_values(&column(vec![2]), 2),
            Err(DecodeError::Short { got: 1, want: 2, .. })
        ));
        assert!(matches!(decode_values(&column(vec![2, 2, 2]), 2), Err(DecodeError::Long { extra: 1, .. })));
    }

    #[test]
    fn an_absent_column_is_not_covered_and_an_absent_entity_is_zero() {
        let mut builder = TableBuilder::new(EntityKind::Workload, 2);
        builder.cover(Metric::CpuBusyNs);
        builder.set(9, 1, Metric::RunQueueWaitNs, 0, 5);
        let table = TableValues::decode(&builder.build(), 2).unwrap();
        assert_eq!(table.get(9, 1, Metric::RunQueueWaitNs), Some(5));
        assert_eq!(table.get(9, 0, Metric::RunQueueWaitNs), Some(0));
        assert_eq!(table.get(4, 0, Metric::CpuBusyNs), Some(0));
        assert_eq!(table.get(9, 0, Metric::IoBytes), None);
    }

    #[test]
    fn a_few_bytes_cannot_claim_hundreds_of_megabytes() {
        let mut zeros = vec![0];
        put_varint(&mut zeros, 4096 * 64 - 1);
        let columns =
            (0..200).map(|metric| Column { metric, bucket: 0, values: zeros.clone() }).collect::<Vec<_>>();
        let table = Table { kind: EntityKind::Workload as i32, entities: (0..4096).collect(), columns };
        assert_eq!(
            TableValues::decode(&table, 64),
            Err(DecodeError::TooManyValues { values: 4096 * 64 * 200 })
        );
    }

    proptest! {
        #[test]
        fn every_column_survives(values in prop::collection::vec(prop_oneof![Just(0), any::<u64>(), 0..5_u64], 0..200)) {
            let decoded = decode_values(&column(encode_values(&values)), values.len());
            prop_assert_eq!(decoded, Ok(values));
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), want in 0..500_usize) {
            if let Ok(values) = decode_values(&column(bytes), want) {
                prop_assert_eq!(values.len(), want);
            }
        }

        #[test]
        fn every_table_survives(cells in prop::collection::vec((0..50_u32, 0..4_usize, 1..20_u32, any::<u64>()), 0..200)) {
            let mut builder = TableBuilder::new(EntityKind::Workload, 4);
            let mut truth = BTreeMap::new();
            for (entity, window, bucket, value) in cells {
                builder.set(entity, window, Metric::RunQueueWaitHist, bucket, value);
                truth.insert((entity, window, bucket), value);
            }
            let table = TableValues::decode(&builder.build(), 4).unwrap();
            for ((entity, window, bucket), value) in truth {
                prop_assert_eq!(table.bucket(entity, window, Metric::RunQueueWaitHist, bucket), Some(value));
            }
        }
    }
}
