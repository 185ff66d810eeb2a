//! What a collector finds in its own folder: one file of a segment as it comes, beside the others as they were written.

use crate::fences;
use crate::scratch;
use std::path::{Path, PathBuf};
use tailwater::columns::Kind;
use tailwater::live::series::Series;
use tailwater::store::{Wanted, check_segment, read_segment};
use tailwater_model::window::WindowIndex;

/// A few columns, as a query wants them.
const SOME: &[(Kind, &[&str])] = &[
    (Kind::Host, &["busy_us", "throttled_us"]),
    (Kind::Workload, &["busy_us", "throttled_us"]),
    (Kind::Listener, &["drops", "depth_max", "late"]),
    (Kind::Edge, &["in_flight_max"]),
    (Kind::Device, &["latency_us"]),
];

/// The seeds are the files of one segment.
fn written(kind: usize) -> Vec<u8> {
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/segments/seed-{kind}"));
    std::fs::read(seed).expect("the seed of each kind of file")[1..].to_vec()
}

/// A segment whose file of this kind is the one that is tried.
fn folder(kind: usize) -> PathBuf {
    let folder = scratch::folder().join(format!("segment-{kind}"));
    if !folder.is_dir() {
        std::fs::create_dir(&folder).expect("a folder for what is tried");
        for (other, of) in Kind::ALL.iter().enumerate() {
            std::fs::write(folder.join(of.file()), written(other)).expect("its folder was made");
        }
    }
    folder
}

/// A byte says which of the six files it is, the rest is the file: looked at as when the collector starts, and read as when somebody asks.
pub(crate) fn segment(bytes: &[u8]) {
    let Some((which, file)) = bytes.split_first() else { return };
    fences::hold();
    let kind = usize::from(*which) % Kind::ALL.len();
    let folder = folder(kind);
    std::fs::write(folder.join(Kind::ALL[kind].file()), file).expect("its folder was made");
    if let Err(wrong) = check_segment(&folder) {
        assert!(wrong.to_string().contains(Kind::ALL[kind].file()), "the file is named: {wrong}");
    }
    let ever = (WindowIndex(0), WindowIndex(u64::MAX));
    for wanted in [Wanted::All, Wanted::Columns(SOME), Wanted::Whole(SOME)] {
        let mut series = Series::new(u64::MAX, usize::MAX);
        let read = read_segment(&folder, ever, wanted, |input| drop(series.saw(&input)));
        if let Err(wrong) = read {
            assert!(wrong.to_string().contains(Kind::ALL[kind].file()), "the file is named: {wrong}");
        }
    }
}
