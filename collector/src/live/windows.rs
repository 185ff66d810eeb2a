//! The windows of one host in memory: the newest as they came, older ones packed. Owns when windows are packed, and that nobody sees a
//! difference; what may be kept at all, the series say.

use super::packed::Packed;
use std::collections::BTreeMap;
use std::sync::Arc;
use tailwater_model::window::{
    EntityId, HostWindow, KernelCount, Meeting, WaitingLookups, WindowIndex, blockings_bytes, code_bytes,
    locked_bytes, slow_bytes,
};

/// So many of the newest stay as they came (20 s): the analysis holds them as long, and whoever looks at the present reads them.
const LOOSE_WINDOWS: usize = 400;
/// So many are packed together (1 s).
const TOGETHER: usize = 20;

/// Memory of a window, about.
pub(crate) fn size_of(w: &HostWindow) -> usize {
    // The window with its name and its counts, and what the allocator takes beside each list; with its limits.
    let lists =
        w.workloads.bytes() + w.listeners.bytes() + w.edges.bytes() + w.devices.bytes() + w.responses.bytes();
    let limits = 40 + w.listeners.len() * std::mem::size_of::<(EntityId, u32)>();
    std::mem::size_of::<HostWindow>()
        + 160
        + lists
        + limits
        + w.culprits.len() * 80
        + w.meetings.len() * std::mem::size_of::<Meeting>()
        + w.kernel_counts.len() * std::mem::size_of::<KernelCount>()
        + blockings_bytes(&w.blockings)
        + locked_bytes(&w.locked_threads)
        + w.waiting_lookups.len() * std::mem::size_of::<WaitingLookups>()
        + slow_bytes(&w.slow_requests)
        + code_bytes(&w.code_paths)
}

/// See above. A part of another's windows shares them.
#[derive(Debug, Default, Clone)]
pub(super) struct Windows {
    /// By index. Some may be older than what is packed, or stand in place of a packed one: those came late.
    loose: BTreeMap<u64, Arc<HostWindow>>,
    /// By their first index; no two overlap.
    packed: BTreeMap<u64, Block>,
    /// How many of the loose are not behind all that are packed.
    late: usize,
    bytes: usize,
    /// Of a part: which windows belong to it.
    bounds: Option<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct Block {
    windows: Arc<Packed>,
    /// Those that are forgotten, by their places.
    gone: u64,
}

impl Block {
    fn has(&self, index: u64) -> Option<usize> {
        let place = self.windows.indices().binary_search(&index).ok()?;
        (self.gone & 1 << place == 0).then_some(place)
    }

    /// Indices that are there still, rising.
    fn indices(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let all = self.windows.indices().iter().enumerate();
        all.filter(|(place, _)| self.gone & 1 << place == 0).map(|(_, index)| *index)
    }
}

impl Windows {
    /// Takes a window; says whether it was not there before. Of one that was, the new one counts. `room` is for packing, to be used again.
    pub(super) fn insert(&mut self, window: Arc<HostWindow>, room: &mut Vec<u64>) -> bool {
        let index = window.index.0;
        self.bytes += size_of(&window);
        let late = self.packed_to().is_some_and(|last| index <= last);
        if let Some(before) = self.loose.insert(index, window) {
            self.bytes -= size_of(&before);
            return false;
        }
        self.late += usize::from(late);
        let new = !(late && self.block(index).is_some_and(|block| block.has(index).is_some()));
        if self.loose.len() - self.late >= LOOSE_WINDOWS + TOGETHER {
            self.pack(room);
        }
        new
    }

    /// Forgets a window.
    pub(super) fn remove(&mut self, index: u64) {
        let late = self.packed_to().is_some_and(|last| index <= last);
        if let Some(window) = self.loose.remove(&index) {
            self.bytes -= size_of(&window);
            self.late -= usize::from(late);
        }
        let Some((first, block)) = self.packed.range_mut(..=index).next_back() else { return };
        if let Some(place) = block.has(index) {
            block.gone |= 1 << place;
        }
        if block.indices().next().is_none() {
            let first = *first;
            self.bytes -= block.windows.bytes();
            let before = self.packed_to();
            self.packed.remove(&first);
            if self.packed_to() != before {
                self.late = self.packed_to().map_or(0, |last| self.loose.range(..=last).count());
            }
        }
    }

    fn pack(&mut self, room: &mut Vec<u64>) {
        let from = self.packed_to().map_or(0, |last| last.saturating_add(1));
        let oldest: Vec<u64> = self.loose.range(from..).take(TOGETHER).map(|(index, _)| *index).collect();
        let windows: Vec<_> = oldest.iter().filter_map(|index| self.loose.remove(index)).collect();
        self.bytes -= windows.iter().map(|w| size_of(w)).sum::<usize>();
        let windows = Arc::new(Packed::of(&windows, room));
        self.bytes += windows.bytes();
        self.packed.insert(windows.span().0, Block { windows, gone: 0 });
    }

    /// The last index that is packed.
    fn packed_to(&self) -> Option<u64> {
        self.packed.last_key_value().map(|(_, block)| block.windows.span().1)
    }

    /// Those that an index is among, if it is there.
    fn block(&self, index: u64) -> Option<&Block> {
        self.packed.range(..=index).next_back().map(|(_, block)| block)
    }

    /// Memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let mut count = 0;
        self.each(0, u64::MAX, |_| count += 1);
        count
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.span().is_none()
    }

    fn within(&self, first: u64, last: u64) -> (u64, u64) {
        self.bounds.map_or((first, last), |(from, to)| (first.max(from), last.min(to)))
    }

    /// Blocks that may have windows in `[first, last]`.
    fn blocks(&self, first: u64, last: u64) -> impl DoubleEndedIterator<Item = &Block> {
        let before = self.packed.range(..first).next_back().map(|(from, _)| *from);
        self.packed.range(before.unwrap_or(first).min(last)..=last).map(|(_, block)| block)
    }

    /// The oldest and the newest index.
    pub(super) fn span(&self) -> Option<(u64, u64)> {
        let (first, last) = self.within(0, u64::MAX);
        if first > last {
            return None;
        }
        let within = |index: &u64| (first..=last).contains(index);
        let packed = |block: &Block| (block.indices().find(within), block.indices().rfind(within));
        let oldest = self.blocks(first, last).find_map(|block| packed(block).0);
        let newest = self.blocks(first, last).rev().find_map(|block| packed(block).1);
        let mut loose = self.loose.range(first..=last).map(|(index, _)| *index);
        let (from, to) = (loose.next(), loose.next_back());
        let oldest = oldest.into_iter().chain(from).min()?;
        Some((oldest, newest.into_iter().chain(to.or(from)).max()?))
    }

    /// Hands `take` each window of `[first, last]`, rising. What is packed is unpacked for it.
    pub(super) fn each(&self, first: u64, last: u64, mut take: impl FnMut(&HostWindow)) {
        let (first, last) = self.within(first, last);
        if first > last {
            return;
        }
        let mut loose = self.loose.range(first..=last).map(|(_, window)| window).peekable();
        for block in self.blocks(first, last) {
            let there = |index: u64| (first..=last).contains(&index) && block.has(index).is_some();
            if !block.windows.indices().iter().any(|index| there(*index)) {
                continue;
            }
            for window in block.windows.windows().iter().filter(|w| there(w.index.0)) {
                while let Some(before) = loose.next_if(|w| w.index < window.index) {
                    take(before);
                }
                match loose.next_if(|w| w.index == window.index) {
                    Some(newer) => take(newer),
                    None => take(window),
                }
            }
        }
        loose.for_each(|window| take(window));
    }

    /// Those of `[first, last]`, shared.
    pub(super) fn part(&self, first: u64, last: u64) -> Self {
        let (first, last) = self.within(first, last);
        if first > last {
            return Self::default();
        }
        Self {
            loose: self.loose.range(first..=last).map(|(index, w)| (*index, Arc::clone(w))).collect(),
            packed: self.blocks(first, last).map(|block| (block.windows.span().0, block.clone())).collect(),
            bounds: Some((first, last)),
            ..Self::default()
        }
    }

    /// The first so many of `[first, last]`, or somewhat more: what is packed together stays together.
    pub(super) fn piece(&self, first: u64, last: u64, count: usize) -> Self {
        let (first, last) = self.within(first, last);
        if first > last {
            return Self::default();
        }
        let mut left = count;
        let mut end = last;
        for block in self.blocks(first, last) {
            if left == 0 {
                break;
            }
            let indices = block.indices().filter(|index| (first..=last).contains(index));
            left = left.saturating_sub(indices.count());
            end = block.windows.span().1.min(last);
        }
        // Late ones between what is packed come with it; behind that there are loose ones only.
        let behind = self.packed_to().filter(|to| *to >= first).map_or(first, |to| to.saturating_add(1));
        if left > 0 {
            let mut loose =
                self.loose.range(behind..).map(|(index, _)| *index).take_while(|index| *index <= last);
            end = loose.nth(left - 1).unwrap_or(last);
        }
        self.part(first, end)
    }

    /// The oldest one and the newest.
    pub(super) fn ends(&self) -> Self {
        let Some((oldest, newest)) = self.span() else { return Self::default() };
        let mut ends = Self { bounds: self.bounds, ..Self::default() };
        for index in [oldest, newest] {
            let one = self.part(index, index);
            one.each(index, index, |w| {
                let window = self.loose.get(&index).map_or_else(|| Arc::new(w.clone()), Arc::clone);
                ends.loose.insert(index, window);
            });
        }
        ends
    }

    /// Copies of all of them.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<HostWindow> {
        let mut all = Vec::new();
        self.each(0, u64::MAX, |w| all.push(w.clone()));
        all
    }

    /// Whether that of an index is there.
    pub(super) fn has(&self, index: WindowIndex) -> bool {
        let index = index.0;
        self.loose.contains_key(&index) || self.block(index).is_some_and(|block| block.has(index).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(index: u64, mark: u64) -> Arc<HostWindow> {
        let mut w = HostWindow { host: "web-1".into(), index: WindowIndex(index), ..HostWindow::default() };
        w.lost_before = mark;
        w.listeners.entry(3).or_default().limit = 128;
        Arc::new(w)
    }

    /// What the series do with windows, and what a map would do.
    #[derive(Debug, Clone)]
    enum Step {
        /// So many more at the end, with so large a gap before them.
        Newer(u64, u64),
        /// One of some time ago, which may be there.
        Late(u64),
        /// So many of the oldest go.
        Forget(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1_u64..300, 0_u64..40).prop_map(|(count, gap)| Step::Newer(count, gap)),
            2 => (0_u64..2_000).prop_map(Step::Late),
            1 => (0_usize..500).prop_map(Step::Forget),
        ];
        prop::collection::vec(step, 1..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nobody_sees_what_is_packed(steps in steps(), first in 0_u64..4_000, length in 0_u64..3_000, count in 1_usize..900) {
            let mut windows = Windows::default();
            let mut map: BTreeMap<u64, Arc<HostWindow>> = BTreeMap::new();
            let (mut next, mut mark) = (1_000, 0);
            let mut add = |windows: &mut Windows, map: &mut BTreeMap<_, _>, index: u64| {
                mark += 1;
                let new = map.insert(index, window(index, mark)).is_none();
                assert_eq!(windows.insert(window(index, mark), &mut Vec::new()), new, "{index}");
            };
            for step in steps {
                match step {
                    Step::Newer(count, gap) => {
                        next += gap;
                        for _ in 0..count {
                            add(&mut windows, &mut map, next);
                            next += 1;
                        }
                    }
                    Step::Late(back) => add(&mut windows, &mut map, next - 1 - back.min(next - 1)),
                    Step::Forget(count) => {
                        for index in map.keys().copied().take(count).collect::<Vec<_>>() {
                            map.remove(&index);
                            windows.remove(index);
                        }
                    }
                }
                let ends = map.keys().next().copied().zip(map.keys().next_back().copied());
                prop_assert_eq!(windows.span(), ends);
                let ends = ends.map_or(Vec::new(), |(a, b)| if a == b { vec![a] } else { vec![a, b] });
                prop_assert_eq!(windows.ends().all().iter().map(|w| w.index.0).collect::<Vec<_>>(), ends);
            }
            prop_assert!(windows.loose.len() <= LOOSE_WINDOWS + TOGETHER + windows.late);
            prop_assert!(windows.all().iter().eq(map.values().map(AsRef::as_ref)));
            let last = first + length;
            let wanted: Vec<&HostWindow> = map.range(first..=last).map(|(_, w)| w.as_ref()).collect();
            let part = windows.part(first, last);
            prop_assert!(part.all().iter().eq(wanted.iter().copied()));
            prop_assert_eq!(part.span(), wanted.first().zip(wanted.last()).map(|(a, b)| (a.index.0, b.index.0)));
            // Piece by piece it is the same, and none is much larger than was asked for.
            let (mut from, mut pieces) = (first, Vec::new());
            while let Some((_, newest)) = windows.piece(from, last, count).span() {
                let piece = windows.piece(from, last, count).all();
                prop_assert!(piece.len() <= count + TOGETHER + windows.late);
                pieces.extend(piece);
                from = newest + 1;
            }
            prop_assert!(pieces.iter().eq(wanted));
            // Nothing is left when all is forgotten.
            for index in map.keys() {
                prop_assert!(windows.has(WindowIndex(*index)));
                windows.remove(*index);
            }
            prop_assert!(windows.is_empty() && windows.bytes() == 0 && windows.late == 0);
        }
    }

    #[test]
    fn a_minute_takes_less_than_half_of_its_room() {
        let mut windows = Windows::default();
        (0..1_200).for_each(|index| assert!(windows.insert(window(index, 0), &mut Vec::new())));
        assert_eq!(windows.len(), 1_200);
        assert!(windows.bytes() * 2 < 1_200 * size_of(&window(0, 0)), "{}", windows.bytes());
    }
}
