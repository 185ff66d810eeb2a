//! A walk over a struct of Thrift's compact protocol, in which Parquet says what is in a file: nothing is allocated by what it claims. Owns that
//! whatever is said to follow does follow; knows no Parquet.
//!
//! Source: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>.

use prost::encoding::decode_varint;

/// Structs and lists in each other, at most. A footer has eight.
const DEPTH_MAX: usize = 16;

/// Why a struct is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ThriftError {
    #[error("it ends before what it says that follows")]
    Short,
    #[error("a number of more than 64 bits")]
    Number,
    #[error("a field whose number is none")]
    Field,
    #[error("a value of type {0}, which Parquet has not")]
    Type(u8),
    #[error("structs in each other, more than {} deep", DEPTH_MAX)]
    Depth,
}

type Result<T> = std::result::Result<T, ThriftError>;

/// Walks over the struct that `bytes` begin with, and returns how many of them it takes. `visit` gets each whole number in it with the
/// numbers of its fields, the outermost first; elements of a list have that of the list.
pub(super) fn walk(bytes: &[u8], visit: &mut dyn FnMut(&[i16], i64)) -> Result<usize> {
    let mut walk = Walk { left: bytes, path: Vec::new(), depth: 0, visit };
    walk.fields()?;
    Ok(bytes.len() - walk.left.len())
}

struct Walk<'a> {
    left: &'a [u8],
    path: Vec<i16>,
    depth: usize,
    visit: &'a mut dyn FnMut(&[i16], i64),
}

impl Walk<'_> {
    fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.left.split_first().ok_or(ThriftError::Short)?;
        self.left = rest;
        Ok(*first)
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).map_err(|_| ThriftError::Short)?;
        self.left = self.left.get(bytes..).ok_or(ThriftError::Short)?;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64> {
        // One of 64 bits has ten bytes at most.
        let may_be_short = self.left.len() < 10;
        let short = if may_be_short { ThriftError::Short } else { ThriftError::Number };
        decode_varint(&mut self.left).map_err(|_| short)
    }

    /// Zigzag.
    fn number(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn fields(&mut self) -> Result<()> {
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            if head & 0x0f == 0 {
                return Ok(());
            }
            id = match head >> 4 {
                0 => i16::try_from(self.number()?).map_err(|_| ThriftError::Field)?,
                delta => id.checked_add(delta.into()).ok_or(ThriftError::Field)?,
            };
            self.path.push(id);
            // A boolean is all in its field's type.
            if !matches!(head & 0x0f, 1 | 2) {
                self.value(head & 0x0f)?;
            }
            self.path.pop();
        }
    }

    /// Each takes a byte at least: no loop over what is said to follow is longer than what follows.
    fn value(&mut self, kind: u8) -> Result<()> {
        match kind {
            3 => self.skip(1),
            4..=6 => {
                let number = self.number()?;
                (self.visit)(&self.path, number);
                Ok(())
            }
            7 => self.skip(8),
            8 => {
                let bytes = self.varint()?;
                self.skip(bytes)
            }
            9 | 10 => self.deeper(Self::elements),
            12 => self.deeper(Self::fields),
            // Maps, UUIDs, lists of booleans.
            other => Err(ThriftError::Type(other)),
        }
    }

    fn elements(&mut self) -> Result<()> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            few => few.into(),
        };
        for _ in 0..count {
            self.value(head & 0x0f)?;
        }
        Ok(())
    }

    fn deeper(&mut self, into: fn(&mut Self) -> Result<()>) -> Result<()> {
        if self.depth == DEPTH_MAX {
            return Err(ThriftError::Depth);
        }
        self.depth += 1;
        into(self)?;
        self.depth -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number by the numbers of its fields.
    type Told = (Vec<i16>, i64);

    fn numbers(bytes: &[u8]) -> Result<(usize, Vec<Told>)> {
        let mut seen = Vec::new();
        let length = walk(bytes, &mut |path, number| seen.push((path.to_vec(), number)))?;
        Ok((length, seen))
    }

    #[test]
    fn numbers_come_with_their_fields_and_what_follows_the_struct_is_left() {
        // 1: i32 -1; 3: struct { 1: i64 64; 2: true }; 18: list of two i32, 1 and 2; 20: "ab"; end.
        let bytes = [
            0x15, 0x01, 0x2c, 0x16, 0x80, 0x01, 0x11, 0x00, 0xf9, 0x25, 0x02, 0x04, 0x28, 0x02, b'a', b'b',
            0x00, 9,
        ];
        let (length, seen) = numbers(&bytes).unwrap();
        assert_eq!(length, bytes.len() - 1);
        assert_eq!(seen, [(vec![1], -1), (vec![3, 1], 64), (vec![18], 1), (vec![18], 2)]);
        for cut in 0..length {
            assert_eq!(numbers(&bytes[..cut]), Err(ThriftError::Short), "{cut}");
        }
    }

    #[test]
    fn what_claims_more_than_there_is_is_refused_at_once() {
        // Fields of 2^34 elements: numbers, structs, booleans (which Thrift's readers differ about), lists of lists.
        for (element, why) in [
            (5, ThriftError::Short),
            (12, ThriftError::Short),
            (2, ThriftError::Type(2)),
            (9, ThriftError::Short),
        ] {
            let bytes = [0x19, 0xf0 | element, 0x80, 0x80, 0x80, 0x80, 0x40];
            assert_eq!(numbers(&bytes), Err(why), "{element}");
        }
        // A text of 2^62 bytes; a number that has no end; a map; a field beyond the last.
        assert_eq!(
            numbers(&[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]),
            Err(ThriftError::Short)
        );
        assert_eq!(numbers(&[[0x15].as_slice(), &[0xff; 64]].concat()), Err(ThriftError::Number));
        assert_eq!(numbers(&[0x1b, 0x01, 0x55, 0x02, 0x02, 0x00]), Err(ThriftError::Type(11)));
        assert_eq!(numbers(&[0x05, 0xfe, 0xff, 0x03, 0x02, 0x15, 0x02, 0x00]), Err(ThriftError::Field));
        assert_eq!(numbers(&[0x1c; 100]), Err(ThriftError::Depth));
    }
}
