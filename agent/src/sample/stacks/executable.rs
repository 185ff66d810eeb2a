//! What an executable file says of its code: where it is mapped, its functions, and how to find who called one. Owns reading ELF files, by `object`; knows
//! no process. The file may be anybody's, and hold anything.

use super::bounded::{Bounded, Opened, READ_MAX, Tables};
use super::names::{FUNCTIONS_MAX, Names};
use framehop::{ExplicitModuleSectionInfo, Module};
use gimli::{BaseAddresses, EhFrameHdr, NativeEndian, Pointer};
use object::read::ReadRef;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// A file whose code is mapped.
#[derive(Debug)]
pub(super) struct Executable {
    /// Where its code is, by its own addresses.
    code: Vec<Segment>,
    names: Names,
    /// Where functions begin, by the index of the tables below: of a file without names those are told.
    starts: Vec<u64>,
    unwinding: Unwinding,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

/// The tables by which callers are found.
#[derive(Debug, Default)]
struct Unwinding {
    base: u64,
    text: Option<Range<u64>>,
    got: Option<Range<u64>>,
    frames: Option<Table>,
    index: Option<Table>,
}

#[derive(Debug)]
struct Table {
    at: Range<u64>,
    bytes: Arc<[u8]>,
}

impl Executable {
    /// `None`: it is none that can be read.
    pub(super) fn read(file: File) -> Option<Self> {
        let (opened, tables) = (Opened::new(file), Tables::default());
        Self::parse(Bounded::new(&opened, &tables), |offset, text| tables.borrow_mut().push((offset, text)))
    }

    /// The same of a file's bytes.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        Self::parse(bytes, |_, _| ())
    }

    /// `keep` gets tables of names, before these are read one by one.
    fn parse<'a>(bytes: impl ReadRef<'a>, mut keep: impl FnMut(u64, &'a [u8])) -> Option<Self> {
        let read = object::File::parse(bytes).ok()?;
        let is_code =
            |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags & object::elf::PF_X != 0);
        let code = read.segments().filter(|segment| is_code(segment.flags())).map(|segment| {
            let (offset, bytes) = segment.file_range();
            Segment { offset, bytes, address: segment.address() }
        });
        let code = code.collect();
        let section = |name: &str| read.section_by_name(name);
        let range = |name: &str| {
            let found = section(name)?;
            Some(found.address()..found.address().checked_add(found.size())?)
        };
        let table = |name: &str| {
            let found = section(name).filter(|found| found.size() <= READ_MAX)?;
            Some(Table { at: range(name)?, bytes: found.data().ok()?.into() })
        };
        let unwinding = Unwinding {
            base: read.segments().map(|segment| segment.address()).min().unwrap_or(0),
            text: range(".text"),
            got: range(".got"),
            frames: table(".eh_frame"),
            index: table(".eh_frame_hdr"),
        };
        // A name is a few bytes in the middle of one of these.
        for strings in [".strtab", ".dynstr"].into_iter().filter_map(section) {
            if let (Some((offset, _)), Ok(text)) = (strings.file_range(), strings.data()) {
                keep(offset, text);
            }
        }
        let mut names = Names::default();
        let functions = read.dynamic_symbols().chain(read.symbols()).filter(|symbol| {
            symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.address() > 0
        });
        for symbol in functions.take(FUNCTIONS_MAX) {
            names.add(symbol.address(), symbol.size(), symbol.name().unwrap_or_default());
        }
        names.sort();
        let starts = unwinding.starts();
        Some(Self { code, names, starts, unwinding })
    }

    /// By how much the addresses of a mapping that begins at `start` with this offset of the file are higher than the file's own.
    pub(super) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        // A mapping begins at a page, and a segment may begin within one.
        let holds = |of: &&Segment| {
            let first = of.offset - of.offset % procfs::page_size();
            (first..of.offset.saturating_add(of.bytes)).contains(&offset)
        };
        let found = self.code.iter().find(holds)?;
        Some(start.wrapping_sub(offset).wrapping_sub(found.address.wrapping_sub(found.offset)))
    }

    /// The function at one of the file's own addresses, or where that one begins.
    pub(super) fn function(&self, address: u64) -> Result<String, u64> {
        let before = self.starts.partition_point(|start| *start <= address).checked_sub(1);
        let start = before.and_then(|at| self.starts.get(at)).copied();
        self.names.at(address).ok_or(start.unwrap_or(address))
    }

    /// As framehop takes it, mapped there.
    pub(super) fn module(&self, mapped: Range<u64>, bias: u64) -> Module<Arc<[u8]>> {
        let of = &self.unwinding;
        let sections = ExplicitModuleSectionInfo {
            base_svma: of.base,
            text_svma: of.text.clone(),
            got_svma: of.got.clone(),
            eh_frame_svma: of.frames.as_ref().map(|table| table.at.clone()),
            eh_frame: of.frames.as_ref().map(|table| Arc::clone(&table.bytes)),
            eh_frame_hdr_svma: of.index.as_ref().map(|table| table.at.clone()),
            eh_frame_hdr: of.index.as_ref().map(|table| Arc::clone(&table.bytes)),
            ..ExplicitModuleSectionInfo::default()
        };
        Module::new(String::new(), mapped, bias.wrapping_add(of.base), sections)
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let tables = [&self.unwinding.frames, &self.unwinding.index].into_iter().flatten();
        self.names.bytes()
            + size_of_val(self.starts.as_slice())
            + tables.map(|table| table.bytes.len()).sum::<usize>()
    }
}

impl Unwinding {
    /// Where functions begin, by `.eh_frame_hdr` (Linux Standard Base Core, 10.6.2).
    fn starts(&self) -> Vec<u64> {
        let (Some(index), Some(frames)) = (&self.index, &self.frames) else { return Vec::new() };
        let bases = BaseAddresses::default().set_eh_frame_hdr(index.at.start).set_eh_frame(frames.at.start);
        let parsed = EhFrameHdr::new(&index.bytes, NativeEndian).parse(&bases, size_of::<usize>() as u8);
        let Ok(parsed) = parsed else { return Vec::new() };
        let Some(table) = parsed.table() else { return Vec::new() };
        let mut entries = table.iter(&bases);
        let mut starts = Vec::new();
        while let Ok(Some((start, _))) = entries.next() {
            if let Pointer::Direct(start) = start {
                starts.push(start);
            }
            if starts.len() >= FUNCTIONS_MAX {
                break;
            }
        }
        starts.sort_unstable();
        starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_functions_and_tables_and_a_text_has_none() {
        let own = Executable::read(File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(own.bytes() > 100_000 && own.unwinding.frames.is_some());
        let start = own.starts[own.starts.len() / 2];
        assert!(own.starts.len() > 1_000 && own.function(start) == own.function(start + 1));
        let mut text = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut text, b"\x7fELF and nothing else").unwrap();
        assert!(Executable::read(text).is_none());
    }

    #[test]
    fn the_bias_is_that_of_the_segment_that_is_mapped() {
        let page = procfs::page_size();
        // Its page begins before it does, and is mapped one page higher than it is in the file.
        let code = vec![Segment { offset: page + 0x800, bytes: 4 * page, address: 2 * page + 0x800 }];
        let (names, starts) = (Names::default(), Vec::new());
        let file = Executable { code, names, starts, unwinding: Unwinding::default() };
        let start = 0x7f00_0000 + 2 * page;
        assert_eq!(file.bias(start, page), Some(0x7f00_0000));
        assert_eq!(file.bias(start + page, 2 * page), Some(0x7f00_0000), "a part of it");
        assert_eq!((file.bias(start, 0), file.bias(start, 64 * page)), (None, None));
    }
}
