//! Windows that are some seconds old, packed: a second of one host as columns, in the codec of the wire. Of all windows that are kept most are
//! looked at never again; so they take a tenth of their room, and are made anew for whoever asks. Owns the layout, which no other process sees;
//! knows no bound and no names.

use crate::columns::{self, Column};
use std::sync::Arc;
use tailwater_model::responses::{Count, Counts};
use tailwater_model::rows::Rows;
use tailwater_model::window::{
    BlockedLoop, CulpritSample, EntityId, Host, HostCpu, HostWindow, SignalSet, WindowIndex,
};
use tailwater_proto::columnar::{decode_values, encode_values};
use tailwater_proto::v1;

/// At most so many windows are packed together: which of them have a row of an entity is a number's bits.
pub(super) const TOGETHER_MAX: usize = 64;

/// Some windows of one host, rising.
#[derive(Debug)]
pub(super) struct Packed {
    host: Host,
    indices: Box<[u64]>,
    /// Everything that is a number, as one column.
    numbers: v1::Column,
    /// How many those are.
    count: usize,
    /// What few windows have, by their place.
    lists: Box<[Lists]>,
}

/// What a window has of no fixed size beside its rows.
#[derive(Debug)]
struct Lists {
    place: usize,
    blocked_loops: Vec<BlockedLoop>,
    culprits: Vec<CulpritSample>,
}

impl Packed {
    /// Of windows of one host that rise, at least one and at most [`TOGETHER_MAX`]. `numbers` is room for what is not kept, to be used again.
    pub(super) fn of(windows: &[Arc<HostWindow>], numbers: &mut Vec<u64>) -> Self {
        debug_assert!((1..=TOGETHER_MAX).contains(&windows.len()), "{} windows", windows.len());
        numbers.clear();
        for field in FIELDS {
            numbers.extend(windows.iter().map(|w| (field.get)(w)));
        }
        let cpus: Vec<Option<&HostCpu>> = windows.iter().map(|w| w.cpu.as_ref()).collect();
        numbers.extend(cpus.iter().map(|cpu| u64::from(cpu.is_some())));
        put_columns(&columns::cpu(), cpus.iter().flatten().copied(), numbers);
        put_rows(&columns::workload(), windows, |w| &w.workloads, numbers);
        put_rows(&columns::listener(), windows, |w| &w.listeners, numbers);
        put_rows(&columns::edge(), windows, |w| &w.edges, numbers);
        put_rows(&columns::device(), windows, |w| &w.devices, numbers);
        numbers.extend(windows.iter().map(|w| w.responses.all().len() as u64));
        let of_counts: [fn(&Count) -> u64; 3] =
            [|c| c.listener.into(), |c| c.bucket.into(), |c| c.answers.into()];
        for of in of_counts {
            numbers.extend(windows.iter().flat_map(|w| w.responses.all()).map(of));
        }
        let lists = windows.iter().enumerate().filter_map(|(place, w)| {
            let (blocked_loops, culprits) = (w.blocked_loops.clone(), w.culprits.clone());
            (!blocked_loops.is_empty() || !culprits.is_empty()).then_some(Lists {
                place,
                blocked_loops,
                culprits,
            })
        });
        let mut values = encode_values(numbers);
        values.shrink_to_fit();
        Self {
            host: windows.first().map(|w| w.host.clone()).unwrap_or_default(),
            indices: windows.iter().map(|w| w.index.0).collect(),
            numbers: v1::Column { metric: 0, bucket: 0, values },
            count: numbers.len(),
            lists: lists.collect(),
        }
    }

    /// The windows.
    pub(super) fn windows(&self) -> Vec<HostWindow> {
        let decoded = decode_values(&self.numbers, self.count);
        debug_assert!(decoded.is_ok(), "what was encoded here is decoded: {decoded:?}");
        let mut numbers = decoded.unwrap_or_default().into_iter();
        let mut windows: Vec<HostWindow> =
            self.indices.iter().map(|index| of_index(&self.host, *index)).collect();
        for field in FIELDS {
            windows.iter_mut().for_each(|w| (field.set)(w, next(&mut numbers)));
        }
        for window in &mut windows {
            window.cpu = (next(&mut numbers) != 0).then(HostCpu::default);
        }
        take_columns(&columns::cpu(), windows.iter_mut().filter_map(|w| w.cpu.as_mut()), &mut numbers);
        take_rows(&columns::workload(), &mut windows, |w| &mut w.workloads, &mut numbers);
        take_rows(&columns::listener(), &mut windows, |w| &mut w.listeners, &mut numbers);
        take_rows(&columns::edge(), &mut windows, |w| &mut w.edges, &mut numbers);
        take_rows(&columns::device(), &mut windows, |w| &mut w.devices, &mut numbers);
        let lengths: Vec<usize> = windows.iter().map(|_| place(next(&mut numbers))).collect();
        let all = lengths.iter().sum::<usize>().min(self.count);
        let mut counts = vec![Count::default(); all];
        counts.iter_mut().for_each(|c| c.listener = narrow(next(&mut numbers)));
        counts.iter_mut().for_each(|c| c.bucket = u8::try_from(next(&mut numbers)).unwrap_or(u8::MAX));
        counts.iter_mut().for_each(|c| c.answers = narrow(next(&mut numbers)));
        let mut counts = counts.into_iter();
        for (window, length) in windows.iter_mut().zip(lengths) {
            window.responses = Counts::from_rising(counts.by_ref().take(length).collect());
        }
        for lists in &self.lists {
            if let Some(window) = windows.get_mut(lists.place) {
                window.blocked_loops.clone_from(&lists.blocked_loops);
                window.culprits.clone_from(&lists.culprits);
            }
        }
        windows
    }

    /// Indices of its windows, rising.
    pub(super) fn indices(&self) -> &[u64] {
        &self.indices
    }

    /// The first and the last of them.
    pub(super) fn span(&self) -> (u64, u64) {
        (self.indices.first().copied().unwrap_or(0), self.indices.last().copied().unwrap_or(0))
    }

    /// Memory, about.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.lists.iter().map(|l| 64 + 80 * (l.blocked_loops.len() + l.culprits.len()));
        size_of::<Self>()
            + 64
            + self.host.len()
            + 8 * self.indices.len()
            + self.numbers.values.capacity()
            + lists.sum::<usize>()
    }
}

/// A number of each window.
struct Field {
    get: fn(&HostWindow) -> u64,
    set: fn(&mut HostWindow, u64),
}

/// Those of a window that are of no entity.
const FIELDS: [Field; 8] = [
    Field { get: |w| w.phase_ns.cast_unsigned(), set: |w, v| w.phase_ns = v.cast_signed() },
    Field { get: |w| w.clock_error_ns, set: |w, v| w.clock_error_ns = v },
    Field { get: |w| w.clock_corrected.into(), set: |w, v| w.clock_corrected = v != 0 },
    Field { get: |w| w.lost_before, set: |w, v| w.lost_before = v },
    Field { get: |w| w.uncovered.bits().into(), set: |w, v| w.uncovered = signals(v) },
    Field { get: |w| w.sampled.bits().into(), set: |w, v| w.sampled = signals(v) },
    Field { get: |w| w.late_ms[0].into(), set: |w, v| w.late_ms[0] = narrow(v) },
    Field { get: |w| w.late_ms[1].into(), set: |w, v| w.late_ms[1] = narrow(v) },
];

fn signals(bits: u64) -> SignalSet {
    SignalSet::from_bits(u16::try_from(bits).unwrap_or(0))
}

/// All that is not among the numbers of [`Packed`] is named here: a field more of the model does not compile before it is packed, too.
fn of_index(host: &Host, index: u64) -> HostWindow {
    HostWindow {
        host: host.clone(),
        index: WindowIndex(index),
        phase_ns: 0,
        clock_error_ns: 0,
        clock_corrected: false,
        lost_before: 0,
        uncovered: SignalSet::default(),
        sampled: SignalSet::default(),
        cpu: None,
        workloads: Rows::default(),
        listeners: Rows::default(),
        edges: Rows::default(),
        devices: Rows::default(),
        responses: Counts::default(),
        late_ms: [0; 2],
        blocked_loops: Vec::new(),
        // Who reads old windows asks for what was measured, and neither for who met whom nor for what else was counted.
        meetings: Vec::new(),
        kernel_counts: Vec::new(),
        blockings: Vec::new(),
        locked_threads: Vec::new(),
        waiting_lookups: Vec::new(),
        slow_requests: Vec::new(),
        code_paths: Vec::new(),
        culprits: Vec::new(),
    }
}

/// The values of some rows, column by column: in one column neighbours resemble each other, and mostly are the same.
fn put_columns<'a, R: 'static>(
    columns: &[Column<R>],
    rows: impl Iterator<Item = &'a R> + Clone,
    to: &mut Vec<u64>,
) {
    for column in columns {
        // What is not covered is told by 0, and so all else is one more. No value is as large as a number can be.
        to.extend(rows.clone().map(|row| match (column.exact)(row) {
            value if !column.optional => value.unwrap_or(0),
            value => value.map_or(0, |v| v.saturating_add(1)),
        }));
    }
}

fn take_columns<'a, R: 'static>(
    columns: &[Column<R>],
    rows: impl Iterator<Item = &'a mut R>,
    numbers: &mut impl Iterator<Item = u64>,
) {
    let mut rows: Vec<&mut R> = rows.collect();
    for column in columns {
        for row in &mut rows {
            let value = next(numbers);
            let told = if column.optional { value.checked_sub(1) } else { Some(value) };
            if let Some(value) = told {
                (column.set_exact)(row, value);
            }
        }
    }
}

fn put_rows<R: 'static>(
    columns: &[Column<R>],
    windows: &[Arc<HostWindow>],
    rows_of: impl Fn(&HostWindow) -> &Rows<R>,
    to: &mut Vec<u64>,
) {
    let mut ids: Vec<EntityId> = windows.iter().flat_map(|w| rows_of(w).keys().copied()).collect();
    ids.sort_unstable();
    ids.dedup();
    to.push(ids.len() as u64);
    let mut rows: Vec<&R> = Vec::with_capacity(windows.len());
    for id in ids {
        rows.clear();
        let mut there = 0_u64;
        for (place, window) in windows.iter().enumerate() {
            if let Some(row) = rows_of(window).get(&id) {
                rows.push(row);
                there |= 1 << place;
            }
        }
        to.extend([id.into(), there]);
        put_columns(columns, rows.iter().copied(), to);
    }
}

fn take_rows<R: Default + 'static>(
    columns: &[Column<R>],
    windows: &mut [HostWindow],
    rows_of: impl Fn(&mut HostWindow) -> &mut Rows<R>,
    numbers: &mut impl Iterator<Item = u64>,
) {
    for _ in 0..next(numbers) {
        let (id, there) = (narrow(next(numbers)), next(numbers));
        let mut rows: Vec<R> = (0..there.count_ones()).map(|_| R::default()).collect();
        take_columns(columns, rows.iter_mut(), numbers);
        let has = windows.iter_mut().enumerate().filter(|(place, _)| there & 1 << place != 0);
        for ((_, window), row) in has.zip(rows) {
            rows_of(window).insert(id, row);
        }
    }
}

fn next(numbers: &mut impl Iterator<Item = u64>) -> u64 {
    numbers.next().unwrap_or(0)
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn place(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::Value;
    use tailwater_model::window::{
        CulpritResource, DeviceWindow, EdgeWindow, ListenerWindow, WorkloadWindow,
    };

    /// A row in which each field, whichever there are, has a value of its own; every third of those that may be missing is.
    fn full<R: Default + Serialize + DeserializeOwned>(seed: u64) -> R {
        let Value::Object(mut fields) = serde_json::to_value(R::default()).unwrap() else {
            panic!("no fields")
        };
        for (n, value) in fields.values_mut().enumerate() {
            let own = (seed + 1) * 1_000 + n as u64;
            *value = if value.is_null() && own.is_multiple_of(3) { Value::Null } else { own.into() };
        }
        serde_json::from_value(Value::Object(fields)).unwrap()
    }

    fn window(index: u64, seed: u64) -> HostWindow {
        let mut w = of_index(&"web-1".to_owned(), index);
        (w.phase_ns, w.clock_error_ns, w.clock_corrected) =
            (-7 - seed as i64, seed * 10, seed.is_multiple_of(2));
        (w.lost_before, w.late_ms) = (seed / 3, [500, 3_000]);
        w.uncovered =
            SignalSet::of(if seed.is_multiple_of(5) { ["calls"].as_slice() } else { &[] }.iter().copied());
        w.sampled = SignalSet::of(["throttling"]);
        w.cpu = (!seed.is_multiple_of(4)).then(|| full(seed));
        for id in (1..9).filter(|id| !(seed + id).is_multiple_of(3)) {
            let own = seed / 4 * 10 + id;
            w.workloads.insert(narrow(id), full::<WorkloadWindow>(own));
            w.listeners.insert(narrow(id * 1_000_000), full::<ListenerWindow>(own));
            w.edges.insert(narrow(id), full::<EdgeWindow>(own));
            w.devices.insert(narrow(id), full::<DeviceWindow>(own));
            w.responses.add_coarse(narrow(id), narrow(seed + id) as usize % 30, seed + 1);
        }
        if seed.is_multiple_of(7) {
            w.blocked_loops = vec![BlockedLoop { thread: 7, comm: "node".into(), ..BlockedLoop::default() }];
            let (resource, comm) = (CulpritResource::IoBytes, "tar".to_owned());
            w.culprits = vec![CulpritSample { resource, pid: 9, comm, workload: 4, amount: seed }];
        }
        w
    }

    #[test]
    fn every_field_of_every_row_comes_back() {
        let windows: Vec<Arc<HostWindow>> =
            (0..TOGETHER_MAX as u64).map(|n| Arc::new(window(n * n, n))).collect();
        let packed = Packed::of(&windows, &mut Vec::new());
        assert_eq!(packed.indices()[5], 25);
        let unpacked = packed.windows();
        assert!(unpacked.iter().eq(windows.iter().map(AsRef::as_ref)));
    }

    #[test]
    fn what_hardly_changes_takes_a_tenth_of_its_room() {
        let windows: Vec<Arc<HostWindow>> =
            (0..20).map(|n| Arc::new(HostWindow { index: WindowIndex(n), ..window(3, 3) })).collect();
        let loose: usize = windows.iter().map(|w| super::super::windows::size_of(w)).sum();
        let packed = Packed::of(&windows, &mut Vec::new()).bytes();
        assert!(packed * 10 < loose, "{packed} of {loose}");
    }

    proptest! {
        #[test]
        fn windows_come_back_as_they_were(seeds in prop::collection::btree_map(0_u64..1_000_000, 0_u64..2_000, 1..TOGETHER_MAX)) {
            let windows: Vec<Arc<HostWindow>> = seeds.iter().map(|(index, seed)| Arc::new(window(*index, *seed))).collect();
            let unpacked = Packed::of(&windows, &mut Vec::new()).windows();
            prop_assert!(unpacked.iter().eq(windows.iter().map(AsRef::as_ref)));
        }
    }
}
