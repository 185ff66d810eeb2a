//! The pages of one column of one row group, of the kinds that this program writes: what their headers say is held against what there is, and
//! then their bytes are unpacked. Owns what is believed of a file before memory is taken for it; knows no value.

use super::thrift;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use prost::bytes::Bytes;
use zstd::bulk::Decompressor;

/// All pages of a column of a row group, unpacked, bytes at most. A segment is written before its windows take so much memory.
pub(super) const COLUMN_BYTES_MAX: usize = 256 << 20;

/// As `parquet.thrift` numbers them.
const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;

fn wrong(what: impl std::fmt::Display) -> ParquetError {
    ParquetError::General(format!("a page's header: {what}"))
}

/// What a header says, as it says it.
#[derive(Debug, Default)]
struct Header {
    kind: i64,
    unpacked: i64,
    packed: i64,
    /// Values, and the encodings of them, of their definition and repetition levels.
    data: [i64; 4],
    /// Entries, and their encoding.
    dictionary: [i64; 2],
}

impl Header {
    fn says(&mut self, field: &[i16], number: i64) {
        match field {
            [1] => self.kind = number,
            [2] => self.unpacked = number,
            [3] => self.packed = number,
            [5, 1] => self.data[0] = number,
            [5, 2] => self.data[1] = number,
            [5, 3] => self.data[2] = number,
            [5, 4] => self.data[3] = number,
            [7, 1] => self.dictionary[0] = number,
            [7, 2] => self.dictionary[1] = number,
            _ => {}
        }
    }
}

/// A count of bytes or values, and the most that it can be.
fn count(said: i64, most: usize, of: &str) -> Result<usize> {
    let within = usize::try_from(said).ok().filter(|count| *count <= most);
    within.ok_or_else(|| wrong(format_args!("{said} {of} where there are at most {most}")))
}

/// Those that this program ever wrote.
fn encoding(said: i64) -> Result<Encoding> {
    Ok(match said {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        5 => Encoding::DELTA_BINARY_PACKED,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => return Err(wrong(format_args!("encoding {said}, which this build does not write"))),
    })
}

/// Reads them in their order.
pub(super) struct Pages {
    left: Bytes,
    rows: usize,
    /// `None`: they are not packed.
    unpacker: Option<Decompressor<'static>>,
    /// Bytes that the rest may unpack to.
    room: usize,
    has_dictionary: bool,
}

impl Pages {
    /// Over the bytes of a column of so many rows.
    pub(super) fn new(column: Bytes, compression: Compression, rows: usize) -> Result<Self> {
        let unpacker = match compression {
            Compression::UNCOMPRESSED => None,
            Compression::ZSTD(_) => Some(Decompressor::new()?),
            other => {
                let text = format!("a column packed by {other}, which this build does not write");
                return Err(ParquetError::General(text));
            }
        };
        Ok(Self { left: column, rows, unpacker, room: COLUMN_BYTES_MAX, has_dictionary: false })
    }

    fn unpack(&mut self, packed: Bytes, unpacked: usize) -> Result<Bytes> {
        let bytes = match &mut self.unpacker {
            // A page without a value is no frame.
            Some(_) if unpacked == 0 => Bytes::new(),
            Some(unpacker) => unpacker.decompress(&packed, unpacked)?.into(),
            None => packed,
        };
        if bytes.len() != unpacked {
            return Err(wrong(format_args!("{unpacked} bytes said, {} there", bytes.len())));
        }
        Ok(bytes)
    }

    fn page(&mut self) -> Result<Option<Page>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let mut header = Header::default();
        let length =
            thrift::walk(&self.left, &mut |field, number| header.says(field, number)).map_err(wrong)?;
        let packed = count(header.packed, self.left.len() - length, "packed bytes")?;
        let unpacked = count(header.unpacked, self.room, "bytes")?;
        self.room -= unpacked;
        let mut page = self.left.split_to(length + packed);
        let buf = self.unpack(page.split_off(length), unpacked)?;
        Ok(Some(match header.kind {
            DATA_PAGE => {
                let [values, of_values, of_definitions, of_repetitions] = header.data;
                let num_values = count(values, self.rows, "values")?;
                let encoding = encoding(of_values)?;
                let by_dictionary = matches!(encoding, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
                if by_dictionary && !self.has_dictionary {
                    return Err(wrong("values of a dictionary that is not there"));
                }
                Page::DataPage {
                    buf,
                    num_values: num_values.try_into()?,
                    encoding,
                    def_level_encoding: levels(of_definitions)?,
                    rep_level_encoding: levels(of_repetitions)?,
                    statistics: None,
                }
            }
            DICTIONARY_PAGE => {
                let [entries, of_entries] = header.dictionary;
                // The shortest one is the length of an empty text.
                let num_values = count(entries, buf.len() / size_of::<u32>(), "entries")?;
                let encoding = encoding(of_entries)?;
                if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY) {
                    return Err(wrong(format_args!("a dictionary in {encoding}")));
                }
                if std::mem::replace(&mut self.has_dictionary, true) {
                    return Err(wrong("a second dictionary"));
                }
                Page::DictionaryPage { buf, num_values: num_values.try_into()?, encoding, is_sorted: false }
            }
            other => return Err(wrong(format_args!("kind {other}, which this build does not write"))),
        }))
    }
}

fn levels(said: i64) -> Result<Encoding> {
    match encoding(said)? {
        Encoding::RLE => Ok(Encoding::RLE),
        other => Err(wrong(format_args!("levels in {other}"))),
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.page()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Err(ParquetError::NYI("a column is read from its begin to its end".into()))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        Err(ParquetError::NYI("a column is read from its begin to its end".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::ZstdLevel;

    fn zigzag(number: i64, out: &mut Vec<u8>) {
        let value = ((number << 1) ^ (number >> 63)).cast_unsigned();
        prost::encoding::encode_varint(value, out);
    }

    /// A page: kind, bytes it says to unpack to and to have, and the numbers of the struct in `field`.
    fn page(kind: i64, unpacked: i64, packed: i64, field: u8, numbers: &[i64], body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [kind, unpacked, packed] {
            out.push(0x15);
            zigzag(number, &mut out);
        }
        out.push(((field - 3) << 4) | 0x0c);
        for number in numbers {
            out.push(0x15);
            zigzag(*number, &mut out);
        }
        out.extend([0, 0]);
        out.extend(body);
        out
    }

    fn data(values: i64, encoding: i64, body: &[u8]) -> Vec<u8> {
        let length = body.len() as i64;
        page(DATA_PAGE, length, length, 5, &[values, encoding, 3, 3], body)
    }

    fn dictionary(entries: i64, body: &[u8]) -> Vec<u8> {
        let length = body.len() as i64;
        page(DICTIONARY_PAGE, length, length, 7, &[entries, 0], body)
    }

    fn read(bytes: Vec<u8>, compression: Compression) -> Result<Vec<Page>> {
        Pages::new(bytes.into(), compression, 10)?.collect()
    }

    fn told(bytes: Vec<u8>) -> String {
        read(bytes, Compression::UNCOMPRESSED).unwrap_err().to_string()
    }

    #[test]
    fn pages_come_in_their_order_packed_or_not() {
        let two = [dictionary(1, b"\x01\0\0\0a"), data(3, 8, b"xyz")].concat();
        let pages = read(two.clone(), Compression::UNCOMPRESSED).unwrap();
        assert!(
            matches!(&pages[0], Page::DictionaryPage { num_values: 1, buf, .. } if &buf[..] == b"\x01\0\0\0a")
        );
        assert!(matches!(&pages[1], Page::DataPage { num_values: 3, buf, .. } if &buf[..] == b"xyz"));
        for cut in 1..two.len() {
            let whole = two.len() - data(3, 8, b"xyz").len();
            assert_eq!(read(two[..cut].to_vec(), Compression::UNCOMPRESSED).is_ok(), cut == whole, "{cut}");
        }
        let zstd = Compression::ZSTD(ZstdLevel::try_new(3).unwrap());
        let body = zstd::bulk::compress(&[7; 1_000], 3).unwrap();
        let packed = |unpacked| page(DATA_PAGE, unpacked, body.len() as i64, 5, &[2, 0, 3, 3], &body);
        let pages = read(packed(1_000), zstd).unwrap();
        assert!(matches!(&pages[0], Page::DataPage { buf, .. } if buf[..] == [7; 1_000]));
        assert!(read(packed(999), zstd).is_err() && read(packed(1_001), zstd).is_err());
        assert!(read(data(0, 0, b""), zstd).is_ok(), "a page without a value");
        assert!(read(Vec::new(), Compression::SNAPPY).is_err());
    }

    #[test]
    fn what_a_header_says_is_not_believed_beyond_what_there_can_be() {
        let body = b"\x01\0\0\0a";
        assert!(told(data(11, 0, body)).contains("11 values where there are at most 10"));
        assert!(told(data(-1, 0, body)).contains("-1 values"));
        // One bit of a dictionary's count is sixteen gigabytes of entries.
        assert!(told(dictionary(1 << 29, body)).contains("entries where there are at most 1"));
        let much = page(DATA_PAGE, 1 << 40, 5, 5, &[1, 0, 3, 3], body);
        assert!(told(much).contains("bytes where there are at most 268435456"));
        assert!(told(page(DATA_PAGE, 5, i64::MIN, 5, &[1, 0, 3, 3], body)).contains("packed bytes"));
        assert!(told(page(DATA_PAGE, 5, 6, 5, &[1, 0, 3, 3], body)).contains("at most 5"));
        assert!(told(page(DATA_PAGE, 4, 5, 5, &[1, 0, 3, 3], body)).contains("4 bytes said, 5 there"));
        // Each is within the bound; all of them are not.
        let quarter = (COLUMN_BYTES_MAX / 4) as i64;
        let zeros = zstd::bulk::compress(&vec![0; COLUMN_BYTES_MAX / 4], 3).unwrap();
        let one = page(DATA_PAGE, quarter, zeros.len() as i64, 5, &[1, 0, 3, 3], &zeros);
        let zstd = Compression::ZSTD(ZstdLevel::try_new(3).unwrap());
        let mut pages = Pages::new(one.repeat(5).into(), zstd, 10).unwrap();
        assert!((0..4).all(|_| pages.next().is_some_and(|page| page.is_ok())));
        assert!(pages.next().unwrap().is_err(), "a quarter of a gigabyte is unpacked, and no more");
    }

    #[test]
    fn what_is_never_written_is_refused_by_name() {
        let body = b"\x01\0\0\0a";
        assert!(told(data(1, 8, body)).contains("a dictionary that is not there"));
        assert!(told([dictionary(1, body), dictionary(1, body)].concat()).contains("a second dictionary"));
        assert!(told(data(1, 6, body)).contains("encoding 6"));
        assert!(told(page(DATA_PAGE, 5, 5, 5, &[1, 0, 0, 3], body)).contains("levels in PLAIN"));
        assert!(told(page(1, 5, 5, 6, &[], body)).contains("kind 1"));
        assert!(told(vec![0xff; 40]).contains("a page's header"));
    }
}
