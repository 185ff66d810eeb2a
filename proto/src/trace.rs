//! Trace files: a magic line, then length-delimited [`TraceRecord`]s in the order in which the pipeline got them.
//! Reads and writes through `std::io`; knows no file names and no clock.

use crate::v1::{Arrival, TraceRecord};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::io::{self, BufRead, Write};

/// First line of every trace file.
pub const MAGIC: &[u8] = b"tailwater-trace v1\n";
/// A record larger than this is refused: no agent message comes near it.
pub const RECORD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The first line is something else.
    #[error("not a Tailwater trace: the file does not begin with \"tailwater-trace v1\"")]
    NotATrace,
    /// Nothing at all.
    #[error("the file is empty: `tailwater record --out FILE` makes a recording")]
    Empty,
    /// A record is longer than any that is ever written.
    #[error(
        "record {record} claims {bytes} bytes, more than the limit of {RECORD_BYTES_MAX}: the file is damaged there"
    )]
    TooLarge {
        /// Records read before it.
        record: u64,
        /// Its claimed length.
        bytes: u64,
    },
    /// A record's bytes are not the message they should be.
    #[error("record {record} is damaged: {source}")]
    Damaged {
        /// Records read before it.
        record: u64,
        /// What the decoder said.
        source: prost::DecodeError,
    },
    /// The file ends inside a record, as after a crash of the recorder.
    #[error("the trace ends inside record {record}: all {record} records before it are whole")]
    TornTail {
        /// Whole records read.
        record: u64,
    },
    /// Reading failed.
    #[error("read trace: {0}")]
    Io(#[from] io::Error),
}

/// Encodes one length-delimited [`TraceRecord`].
#[must_use]
pub fn encode_record(record: &TraceRecord) -> Vec<u8> {
    record.encode_length_delimited_to_vec()
}

/// As [`encode_record`], of an arrival whose message is given as the bytes that came, so that fields which this build does not know
/// survive. `arrival.message` is left out.
#[must_use]
pub fn encode_arrival(arrival: &Arrival, message: &[u8]) -> Vec<u8> {
    const ARRIVAL: u32 = 2; // TraceRecord.arrival
    const MESSAGE: u32 = 6; // Arrival.message
    let mut inner = Arrival { message: None, ..arrival.clone() }.encode_to_vec();
    encode_key(MESSAGE, WireType::LengthDelimited, &mut inner);
    encode_varint(message.len() as u64, &mut inner);
    inner.extend_from_slice(message);
    let mut outer = Vec::with_capacity(inner.len() + 12);
    encode_key(ARRIVAL, WireType::LengthDelimited, &mut outer);
    encode_varint(inner.len() as u64, &mut outer);
    outer.extend_from_slice(&inner);
    let mut framed = Vec::with_capacity(outer.len() + 4);
    encode_varint(outer.len() as u64, &mut framed);
    framed.extend_from_slice(&outer);
    framed
}

/// Writes a trace.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the magic line.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        Ok(Self { out, buffer: Vec::new() })
    }

    /// Appends one record.
    pub fn write(&mut self, record: &TraceRecord) -> io::Result<()> {
        self.buffer.clear();
        record
            .encode_length_delimited(&mut self.buffer)
            .map_err(|e| io::Error::new(io::ErrorKind::OutOfMemory, e))?;
        self.out.write_all(&self.buffer)
    }

    /// Flushes what is buffered below.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads a trace, record by record. After the first error it ends.
#[derive(Debug)]
pub struct TraceReader<R: BufRead> {
    input: R,
    records: u64,
    ended: bool,
}

impl<R: BufRead> TraceReader<R> {
    /// Checks the magic line.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let mut magic = [0; MAGIC.len()];
        if input.fill_buf().is_ok_and(<[u8]>::is_empty) {
            return Err(TraceError::Empty);
        }
        match input.read_exact(&mut magic) {
            Ok(()) if magic == MAGIC => Ok(Self { input, records: 0, ended: false }),
            Ok(()) => Err(TraceError::NotATrace),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(TraceError::NotATrace),
            Err(e) => Err(e.into()),
        }
    }

    fn length(&mut self) -> Result<Option<usize>, TraceError> {
        let mut length = 0_u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0; 1];
            let read = match self.input.read(&mut byte) {
                Ok(read) => read,
                // A decoder above a file that was cut: there was more, wherever it ended.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(TraceError::TornTail { record: self.records });
                }
                Err(e) => return Err(e.into()),
            };
            if read == 0 {
                return if shift == 0 {
                    Ok(None)
                } else {
                    Err(TraceError::TornTail { record: self.records })
                };
            }
            length |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return match usize::try_from(length) {
                    Ok(bytes) if bytes <= RECORD_BYTES_MAX => Ok(Some(bytes)),
                    _ => Err(TraceError::TooLarge { record: self.records, bytes: length }),
                };
            }
        }
        Err(TraceError::TooLarge { record: self.records, bytes: u64::MAX })
    }

    fn read(&mut self) -> Result<Option<TraceRecord>, TraceError> {
        let Some(length) = self.length()? else { return Ok(None) };
        let mut bytes = vec![0; length];
        self.input.read_exact(&mut bytes).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => TraceError::TornTail { record: self.records },
            _ => e.into(),
        })?;
        let record = TraceRecord::decode(bytes.as_slice())
            .map_err(|source| TraceError::Damaged { record: self.records, source })?;
        self.records += 1;
        Ok(Some(record))
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<TraceRecord, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::trace_record::Body;

    fn tick(unix_ns: u64) -> TraceRecord {
        TraceRecord { body: Some(Body::TickUnixNs(unix_ns)) }
    }

    fn written(ticks: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = TraceWriter::new(&mut bytes).unwrap();
        for n in 0..ticks {
            writer.write(&tick(n)).unwrap();
        }
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let read: Vec<_> = TraceReader::new(written(3).as_slice()).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, [tick(0), tick(1), tick(2)]);
    }

    #[test]
    fn an_arrival_from_raw_bytes_keeps_fields_that_this_build_does_not_know() {
        use crate::v1::{AgentMessage, ClockProbe, agent_message};
        let probe = ClockProbe { id: 7, agent_unix_ns: 9, ..ClockProbe::default() };
        let message = AgentMessage { body: Some(agent_message::Body::ClockProbe(probe)) };
        let arrival = Arrival {
            host: "web-1".into(),
            arrival_unix_ns: 5,
            message: Some(message.clone()),
            ..Arrival::default()
        };
        let mut raw = message.encode_to_vec();
        assert_eq!(
            encode_arrival(&arrival, &raw),
            encode_record(&TraceRecord { body: Some(Body::Arrival(arrival.clone())) })
        );
        // Field 1000 of a later version.
        encode_key(1000, WireType::LengthDelimited, &mut raw);
        encode_varint(6, &mut raw);
        raw.extend_from_slice(b"future");
        let mut file = MAGIC.to_vec();
        let record = encode_arrival(&arrival, &raw);
        assert!(record.windows(6).any(|part| part == b"future"));
        file.extend_from_slice(&record);
        let read: Vec<_> = TraceReader::new(file.as_slice()).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, [TraceRecord { body: Some(Body::Arrival(arrival)) }]);
    }

    #[test]
    fn a_torn_tail_keeps_the_whole_records_and_says_so() {
        let mut bytes = written(3);
        bytes.pop();
        let read: Vec<_> = TraceReader::new(bytes.as_slice()).unwrap().collect();
        assert_eq!(read.len(), 3);
        assert!(matches!(read[2], Err(TraceError::TornTail { record: 2 })));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(matches!(TraceReader::new(&b""[..]), Err(TraceError::Empty)));
        for other in [&b"PAR1"[..], b"tailwater-trace v9\n and more"] {
            assert!(matches!(TraceReader::new(other), Err(TraceError::NotATrace)));
        }
    }

    #[test]
    fn an_absurd_length_is_refused_before_memory_is_taken() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([0xff; 9]);
        bytes.push(1);
        let first = TraceReader::new(bytes.as_slice()).unwrap().next();
        assert!(matches!(first, Some(Err(TraceError::TooLarge { .. }))));
    }
}
