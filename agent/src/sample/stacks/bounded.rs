//! A file of which no more is read than may be: what it says of itself is not believed. Owns these bounds; knows no format.

use object::read::{ReadCache, ReadRef};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::ops::Range;

/// Nothing larger is read at once, bytes, …
pub(super) const READ_MAX: u64 = 48 << 20;
/// … and no more of a file in all.
const FILE_MAX: u64 = 128 << 20;

/// A file, and what was read of it.
pub(super) struct Opened {
    cache: ReadCache<File>,
    left: Cell<u64>,
}

impl Opened {
    pub(super) fn new(file: File) -> Self {
        Self { cache: ReadCache::new(file), left: Cell::new(FILE_MAX) }
    }
}

/// Tables of names that were read as a whole, with where they begin in the file.
pub(super) type Tables<'a> = RefCell<Vec<(u64, &'a [u8])>>;

/// As the library for object files reads.
#[derive(Clone, Copy)]
pub(super) struct Bounded<'a> {
    of: &'a Opened,
    tables: &'a Tables<'a>,
}

impl<'a> Bounded<'a> {
    pub(super) fn new(of: &'a Opened, tables: &'a Tables<'a>) -> Self {
        Self { of, tables }
    }

    fn spend(self, bytes: u64) -> Result<(), ()> {
        let left = self.of.left.get().checked_sub(bytes).filter(|_| bytes <= READ_MAX).ok_or(())?;
        self.of.left.set(left);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        (&self.of.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.spend(size)?;
        (&self.of.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        // A name by itself is a system call or two, and a table has some hundred thousand.
        let within = self.tables.borrow().iter().find_map(|(start, table)| {
            let from = usize::try_from(range.start.checked_sub(*start)?).ok()?;
            let to = usize::try_from(range.end.checked_sub(*start)?).ok()?;
            table.get(from..to)
        });
        if let Some(bytes) = within {
            let end = bytes.iter().position(|byte| *byte == delimiter).ok_or(())?;
            return bytes.get(..end).ok_or(());
        }
        let found = (&self.of.cache).read_bytes_at_until(range, delimiter)?;
        self.spend(found.len() as u64 + 1)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails where a file that has a hole of gigabytes is read as large as it says to be.
    #[test]
    fn a_file_that_says_to_be_large_takes_no_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 30).unwrap();
        let (opened, tables) = (Opened::new(file), Tables::default());
        let bounded = Bounded::new(&opened, &tables);
        assert_eq!(bounded.read_bytes_at(0, READ_MAX + 1), Err(()));
        assert_eq!(bounded.read_bytes_at(0, READ_MAX).map(<[u8]>::len), Ok(READ_MAX as usize));
        let all = (1..10).filter(|n| bounded.read_bytes_at(n << 30, READ_MAX).is_ok()).count();
        assert_eq!(all as u64, FILE_MAX / READ_MAX - 1);
    }

    #[test]
    fn names_in_a_table_that_was_read_are_found_in_it() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"....\0first\0second\0").unwrap();
        let (opened, tables) = (Opened::new(file), Tables::default());
        let bounded = Bounded::new(&opened, &tables);
        tables.borrow_mut().push((4, bounded.read_bytes_at(4, 14).unwrap()));
        let left = opened.left.get();
        assert_eq!(bounded.read_bytes_at_until(5..18, 0), Ok(b"first".as_slice()));
        assert_eq!(bounded.read_bytes_at_until(11..18, 0), Ok(b"second".as_slice()));
        assert_eq!(opened.left.get(), left, "nothing was read for it");
        assert_eq!(bounded.read_bytes_at_until(0..18, 0), Ok(b"....".as_slice()));
        assert_eq!(bounded.read_bytes_at_until(11..17, 0), Err(()), "it has no end there");
    }
}
