//! A recording as a file: plain or compressed by zstd, told apart by its first bytes, and its records one by one. Holds one of them at a
//! time; knows nothing of what they mean.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tailwater_proto::trace::{TraceError, TraceReader};
use tailwater_proto::v1::{TraceHeader, TraceRecord, trace_record::Body};

/// What a frame of zstd begins with (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("read {}: {source}", path.display())]
pub struct OpenError {
    path: PathBuf,
    source: std::io::Error,
}

/// Counts what is read of the file, for progress.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(into)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// How far a file has been read.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    read: Arc<AtomicU64>,
    bytes: u64,
}

impl Progress {
    /// 0 to 1.
    pub(super) fn ratio(&self) -> f64 {
        self.read.load(Ordering::Relaxed) as f64 / self.bytes.max(1) as f64
    }
}

/// Opens a recording, whatever its name.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, OpenError> {
    watched(path).map(|(input, _)| input)
}

/// The same, with how far it has been read.
pub(super) fn watched(path: &Path) -> Result<(Box<dyn BufRead + Send>, Progress), OpenError> {
    let failed = |source| OpenError { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let progress = Progress { read: Arc::default(), bytes: file.metadata().map_err(failed)?.len() };
    let mut input = BufReader::new(Counted { file, read: Arc::clone(&progress.read) });
    let compressed = input.fill_buf().map_err(failed)?.starts_with(&ZSTD_MAGIC);
    if !compressed {
        return Ok((Box::new(input), progress));
    }
    let mut input = BufReader::new(zstd::Decoder::with_buffer(input).map_err(failed)?);
    input
        .fill_buf()
        .map(drop)
        .map_err(|e| failed(std::io::Error::new(e.kind(), format!("not unpacked by zstd: {e}"))))?;
    Ok((Box::new(input), progress))
}

/// The bodies of a recording after its header.
pub(super) struct Records<R: BufRead> {
    reader: TraceReader<R>,
    /// Which collector recorded, and how it was configured.
    pub(super) header: Option<TraceHeader>,
    /// Read before it was asked for.
    first: Option<Body>,
    /// Records read, the header too.
    pub(super) count: u64,
    /// Set when the file ends inside a record.
    pub(super) torn: Option<String>,
}

impl<R: BufRead> Records<R> {
    /// Reads the header, with which a recording begins.
    pub(super) fn new(input: R) -> Result<Self, TraceError> {
        let reader = TraceReader::new(input)?;
        let mut records = Self { reader, header: None, first: None, count: 0, torn: None };
        match records.next().transpose()? {
            Some(Body::Header(header)) => records.header = Some(header),
            other => records.first = other,
        }
        Ok(records)
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<Body, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        loop {
            match self.reader.next()? {
                Ok(TraceRecord { body }) => {
                    self.count += 1;
                    // A record of a later version has none that is known.
                    if let Some(body) = body {
                        return Some(Ok(body));
                    }
                }
                Err(torn @ TraceError::TornTail { .. }) => {
                    self.torn = Some(torn.to_string());
                    return None;
                }
                Err(e) => return Some(Err(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_proto::trace::TraceWriter;

    /// Nothing that packs well: a file has many blocks.
    fn value(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    fn ticks(count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = TraceWriter::new(&mut bytes).unwrap();
        for n in 0..count {
            writer.write(&TraceRecord { body: Some(Body::TickUnixNs(value(n))) }).unwrap();
        }
        bytes
    }

    fn read(bytes: &[u8]) -> (Vec<u64>, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        // A name that says nothing.
        let file = folder.path().join("recording");
        std::fs::write(&file, bytes).unwrap();
        let mut records = Records::new(open(&file).unwrap()).unwrap();
        let read = records.by_ref().map(|body| match body.unwrap() {
            Body::TickUnixNs(n) => n,
            other => panic!("{other:?}"),
        });
        (read.collect(), records.torn)
    }

    #[test]
    fn both_kinds_of_file_say_the_same_and_a_cut_one_says_so() {
        let count = 50_000;
        let plain = ticks(count);
        let all: Vec<u64> = (0..count).map(value).collect();
        assert_eq!(read(&plain), (all.clone(), None));
        let packed = zstd::encode_all(plain.as_slice(), 3).unwrap();
        assert_eq!(read(&packed), (all.clone(), None));
        for cut in [&plain[..plain.len() - 1], &packed[..packed.len() - 1]] {
            let (some, torn) = read(cut);
            assert!(
                all.starts_with(&some) && !some.is_empty() && some.len() < all.len(),
                "{} records",
                some.len()
            );
            assert!(torn.is_some_and(|text| text.contains("ends inside record")));
        }
    }
}
