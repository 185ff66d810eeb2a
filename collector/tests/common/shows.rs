//! The HTTP side without a collector behind it: what it shows is made by the test.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use tailwater::counters::Metrics;
use tailwater::ingest::registry::Registry;
use tailwater::live::events::Events;
use tailwater::live::series::Series;
use tailwater::serve::{App, Recording, Shown, Source};
use tailwater::store;
use tokio_util::sync::CancellationToken;

/// Nothing, with room for so many bytes of windows, and whatever is told as an event.
pub fn shown(series_bytes: usize, live: Events, metrics: &Arc<Metrics>) -> Shown {
    let series = Arc::new(Mutex::new(Series::new(1, series_bytes)));
    let (store, past) = store::in_memory(10, Arc::clone(&series), live.clone(), metrics);
    Shown { store, past, series, topology: Arc::default(), congestion: Arc::default(), live }
}

/// A page that shows this as a recording of this time, Unix ns, without anything lost.
pub fn app(shown: Shown, metrics: Arc<Metrics>, time: Range<u64>, ended: CancellationToken) -> App {
    let recording = Recording {
        file: "made.trace".into(),
        start_unix_ns: time.start,
        end_unix_ns: time.end,
        windows_from_unix_ns: time.start,
        incidents: 0,
        incidents_dropped: 0,
        records: 0,
        torn: None,
        refused: 0,
    };
    let (source, alive) = (Source::Recording(Arc::new(recording)), Arc::new(AtomicBool::new(true)));
    App::new(shown, Arc::new(Registry::new(1)), metrics, source, alive, ended)
}
