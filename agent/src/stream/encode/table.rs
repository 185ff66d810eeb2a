//! Builds one table of a batch, column by column. Owns the order of values (entity-major, then window); knows no metric.

use super::held::Held;
use crate::window::Window;
use std::collections::BTreeMap;
use tailwater_proto::columnar::encode_values;
use tailwater_proto::v1::{self, EntityKind, Metric};

/// One sample of a section with its place: entity id and offset of its window.
pub(super) struct Placed<'a, S> {
    id: u32,
    window: usize,
    sample: &'a S,
}

/// How a metric reads a sample.
pub(super) type Reader<S> = (Metric, fn(&S) -> u64);

pub(super) struct TableBuilder {
    kind: EntityKind,
    windows: usize,
    rows: BTreeMap<u32, usize>,
    columns: Vec<(Metric, u32, Vec<u64>)>,
}

impl TableBuilder {
    pub(super) fn new(kind: EntityKind, windows: usize) -> Self {
        Self { kind, windows, rows: BTreeMap::new(), columns: Vec::new() }
    }

    /// Adds an entity. Every entity must be there before the first column.
    pub(super) fn row(&mut self, id: u32) {
        debug_assert!(self.columns.is_empty(), "a row after a column");
        let next = self.rows.len();
        self.rows.entry(id).or_insert(next);
    }

    /// Entities, by id.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> + use<> {
        self.rows.keys().copied().collect::<Vec<_>>().into_iter()
    }

    /// Places a section's samples and adds their entities; `None` if the windows have no such section. Samples whose entity has
    /// no id (0) are left out.
    pub(super) fn section<'a, K: 'a, S>(
        &mut self,
        windows: &'a [Window],
        rows: impl Fn(&'a Window) -> Option<&'a [(K, S)]>,
        mut id: impl FnMut(&K) -> u32,
    ) -> Option<Vec<Placed<'a, S>>> {
        windows.first().and_then(&rows)?;
        let mut placed = Vec::new();
        for (window, w) in windows.iter().enumerate() {
            for (key, sample) in rows(w).unwrap_or_default() {
                let id = id(key);
                if id != 0 {
                    self.row(id);
                    placed.push(Placed { id, window, sample });
                }
            }
        }
        Some(placed)
    }

    fn at(&self, id: u32, window: usize) -> Option<usize> {
        Some(self.rows.get(&id)? * self.windows + window)
    }

    fn cells(&self) -> Vec<u64> {
        vec![0; self.rows.len() * self.windows]
    }

    /// One column per reader. Two samples in one place (a listening address shared by several sockets) are added.
    pub(super) fn columns<S>(&mut self, placed: Option<&[Placed<'_, S>]>, readers: &[Reader<S>]) {
        let Some(placed) = placed else {
            return;
        };
        for (metric, read) in readers {
            let mut values = self.cells();
            for p in placed {
                if let Some(at) = self.at(p.id, p.window) {
                    let value = read(p.sample);
                    values[at] = match metric {
                        Metric::FirstTryUnixNs => values[at].max(value),
                        _ => values[at].saturating_add(value),
                    };
                }
            }
            self.columns.push((*metric, 0, values));
        }
    }

    /// A column per bucket that counted anything, and the first one always: it says that the histogram is covered.
    pub(super) fn histogram<S, const BUCKETS: usize>(
        &mut self,
        placed: Option<&[Placed<'_, S>]>,
        metric: Metric,
        read: fn(&S) -> &[u32; BUCKETS],
    ) {
        let Some(placed) = placed else {
            return;
        };
        for bucket in 0..BUCKETS {
            let used = placed.iter().any(|p| read(p.sample)[bucket] != 0);
            if bucket != 0 && !used {
                continue;
            }
            let mut values = self.cells();
            for p in placed {
                if let Some(at) = self.at(p.id, p.window) {
                    values[at] += u64::from(read(p.sample)[bucket]);
                }
            }
            self.columns.push((metric, u32::try_from(bucket).unwrap_or(0), values));
        }
    }

    /// The same value in every window of an entity.
    pub(super) fn constant(&mut self, metric: Metric, per_entity: &[(u32, u64)]) {
        let mut values = self.cells();
        for (id, value) in per_entity {
            for window in 0..self.windows {
                if let Some(at) = self.at(*id, window) {
                    values[at] = *value;
                }
            }
        }
        self.columns.push((metric, 0, values));
    }

    /// A value worked out per entity and window.
    pub(super) fn computed(
        &mut self,
        metric: Metric,
        windows: &[Window],
        ids: &[u32],
        value: impl Fn(u32, &Window) -> u64,
    ) {
        let mut values = self.cells();
        for id in ids {
            for (offset, window) in windows.iter().enumerate() {
                if let Some(at) = self.at(*id, offset) {
                    values[at] = value(*id, window);
                }
            }
        }
        self.columns.push((metric, 0, values));
    }

    /// Fills the zeros of a column with the value that the entity had last.
    pub(super) fn hold(&mut self, metric: Metric, held: &mut Held) {
        let windows = self.windows;
        let Some((_, _, values)) = self.columns.iter_mut().find(|c| c.0 == metric) else {
            return;
        };
        for (id, row) in &self.rows {
            for value in &mut values[row * windows..(row + 1) * windows] {
                if *value == 0 {
                    *value = held.get(self.kind, metric, *id);
                } else {
                    held.set(self.kind, metric, *id, *value);
                }
            }
        }
    }

    pub(super) fn build(self) -> v1::Table {
        let mut entities = vec![0; self.rows.len()];
        for (id, row) in self.rows {
            entities[row] = id;
        }
        v1::Table {
            kind: self.kind as i32,
            entities,
            columns: self
                .columns
                .into_iter()
                .map(|(metric, bucket, values)| v1::Column {
                    metric: metric as i32,
                    bucket,
                    values: encode_values(&values),
                })
                .collect(),
        }
    }
}
