//! What all windows have in common: the mirror of `bpf/include/window.h` and `window_log.h`. Knows no signal.

/// Length of a window, `WINDOW_NS`.
pub const WINDOW_NS: u64 = 50_000_000;
/// Windows per ring, `WINDOWS`.
pub const WINDOWS: u64 = 64;
/// The index of a record that is being recycled, `WINDOW_BEING_RESET`.
pub const WINDOW_BEING_RESET: u64 = u64::MAX;
/// Copies per CPU of a ring whose hooks interrupt each other, `NEST` of `bpf/include/nest.h`.
pub const NEST: u32 = 3;

/// How much shorter the log of programs that interrupt others is, `LOG_NESTED_PART` of `bpf/include/window_log.h`.
pub const LOG_NESTED_PART: u32 = 8;
/// The position of a log's entry that is being taken, `LOG_BEING_RESET`.
pub const LOG_BEING_RESET: u64 = u64::MAX;

/// Hooks that interrupt each other on one CPU and are timed, `PRICE_DEPTH` of `bpf/include/price.h`.
pub const PRICE_DEPTH: usize = 4;

/// `struct price`: what an object's programs took on one CPU while they were timed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "price.h explains the fields")]
pub struct Price {
    pub ns: u64,
    pub runs: u64,
    pub asked: u32,
    pub depth: u32,
    pub since_ns: [u64; PRICE_DEPTH],
}

/// An entry of a log, as `LOG` of `bpf/include/window_log.h` declares it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LogEntry<R> {
    /// Of the use that it has now, counted from 1.
    pub position: u64,
    /// Whose, plus 1: `writer * entities + entity + 1`.
    pub copy: u32,
    /// Zero.
    pub reserved: u32,
    /// Its record.
    pub record: R,
}

/// `struct log_end`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LogEnd {
    /// Entries that a writer ever took.
    pub taken: u64,
    /// Zero: a cache line of its own.
    pub reserved: [u64; 7],
}

/// `struct edge_sum`: one step function in one window, as one copy of a ring saw it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdgeSum {
    /// Sum of step times the time from the step to the window's end.
    pub integral_ns: i64,
    /// Change of the level over the window.
    pub carry: i32,
    /// Level of this copy at the window's start.
    pub level_start: i32,
}

/// `struct clock_control`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockControl {
    /// Unix time minus CLOCK_MONOTONIC.
    pub epoch_offset_ns: i64,
}

/// One record of a window ring.
///
/// # Safety
/// The implementor is `#[repr(C)]`, consists of integers (every bit pattern is a value) with no padding, has a size that is a
/// multiple of 8, and begins with `window: u64` followed by `edges: [EdgeSum; EDGES]`.
pub unsafe trait Record: Copy {
    /// Length of `edges`.
    const EDGES: usize;
    /// Which window, or [`WINDOW_BEING_RESET`].
    fn window(&self) -> u64;
    /// The step functions.
    fn edges(&self) -> &[EdgeSum];
}

/// Implements [`Record`] for structs that keep its rules and asserts those that can be.
#[macro_export]
macro_rules! record {
    ($type:ty, edges: $edges:expr) => {
        const _: () = {
            assert!(::core::mem::size_of::<$type>() % 8 == 0, "records are whole words");
            assert!(::core::mem::offset_of!($type, window) == 0, "records begin with their window");
            assert!(::core::mem::offset_of!($type, edges) == 8, "edges follow the window");
        };
        // SAFETY: #[repr(C)] of integers without padding: asserted here and by the comparison with the object's BTF.
        unsafe impl $crate::record::Record for $type {
            const EDGES: usize = $edges;
            fn window(&self) -> u64 {
                self.window
            }
            fn edges(&self) -> &[$crate::record::EdgeSum] {
                &self.edges
            }
        }
    };
}

const _: () = assert!(size_of::<EdgeSum>() == 16);
const _: () = assert!(size_of::<LogEnd>() == 64 && size_of::<LogEntry<u64>>() == 24);
const _: () = assert!(size_of::<ClockControl>() == 8);
