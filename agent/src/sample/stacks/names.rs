//! Names of functions by their addresses: out of symbol tables, and out of the files in which runtimes that compile as they run tell what they made
//! (`perf-PID.map`). Owns how names are read and shortened; knows no process. What is read here others wrote.

use std::fmt::Write as _;

/// The longest name that is told, bytes, …
const NAME_MAX: usize = 200;
/// … that is read, before it is made readable …
const READ_MAX: usize = 1_024;
/// … and all of a table, with how many there are.
const TEXT_MAX: usize = 32 << 20;
pub(super) const FUNCTIONS_MAX: usize = 400_000;

/// A table of functions.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By address.
    functions: Vec<Function>,
    text: String,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    start: u64,
    /// 0: it ends where the next one begins.
    bytes: u32,
    name: (u32, u32),
}

impl Names {
    /// Adds a function. What there is no room for is left out.
    pub(super) fn add(&mut self, start: u64, bytes: u64, name: &str) {
        let name = &name[..name.floor_char_boundary(READ_MAX)];
        let room = self.functions.len() < FUNCTIONS_MAX && self.text.len() + name.len() <= TEXT_MAX;
        let (Ok(at), Ok(long)) = (u32::try_from(self.text.len()), u32::try_from(name.len())) else { return };
        if name.is_empty() || !room {
            return;
        }
        self.text.push_str(name);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.functions.push(Function { start, bytes, name: (at, long) });
    }

    /// To be called when all are added, and before any is asked for. Of several at one address the last stays.
    pub(super) fn sort(&mut self) {
        self.functions.reverse();
        self.functions.sort_by_key(|function| function.start);
        self.functions.dedup_by_key(|function| function.start);
        self.functions.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    /// Of the function that an address is in.
    pub(super) fn at(&self, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let inside = address - function.start;
        if function.bytes > 0 && inside >= u64::from(function.bytes) {
            return None;
        }
        let (at, long) = function.name;
        self.text.get(at as usize..at as usize + long as usize).map(readable)
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.functions.len() * size_of::<Function>()
    }
}

/// A name as people write it, of what Rust and C++ make of theirs.
fn readable(name: &str) -> String {
    // Versions of symbols: `memcpy@@GLIBC_2.14`.
    let name = name.split("@@").next().unwrap_or(name);
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return short(&format!("{rust:#}"));
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
    {
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        if let Ok(text) = symbol.demangle_with_options(&options) {
            return short(&text);
        }
    }
    short(name)
}

/// Without what no terminal should get, and no longer than is told.
pub(super) fn short(name: &str) -> String {
    let mut told = String::with_capacity(name.len().min(NAME_MAX));
    for c in name.chars() {
        let c = if c.is_control() { '?' } else { c };
        if told.len() + c.len_utf8() + '…'.len_utf8() > NAME_MAX {
            told.push('…');
            break;
        }
        told.push(c);
    }
    told
}

/// Where a file has no function at an address: the file, and the offset in it.
pub(super) fn offset_in(file: &str, address: u64) -> String {
    let mut told = short(file);
    let _ = write!(told, "+{address:#x}");
    told
}

/// The lines of a `perf-PID.map`: start, bytes and name, the numbers in hexadecimal (tools/perf/Documentation/jit-interface.txt of the kernel).
pub(super) fn perf_map(text: &str) -> Names {
    let mut names = Names::default();
    for line in text.lines() {
        let mut parts = line.trim_end().splitn(3, ' ');
        let mut number = || u64::from_str_radix(parts.next()?.trim_start_matches("0x"), 16).ok();
        let (Some(start), Some(bytes)) = (number(), number()) else { continue };
        if let Some(name) = parts.next() {
            names.add(start, bytes, name);
        }
    }
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[(u64, u64, &str)]) -> Names {
        let mut names = Names::default();
        all.iter().for_each(|(start, bytes, name)| names.add(*start, *bytes, name));
        names.sort();
        names
    }

    #[test]
    fn an_address_has_the_name_of_the_function_that_it_is_in_and_of_no_other() {
        let names = names(&[(0x200, 0x10, "later"), (0x100, 0x80, "first"), (0x300, 0, "assembly")]);
        let at = |address| names.at(address);
        assert_eq!((at(0x100).as_deref(), at(0x17f).as_deref()), (Some("first"), Some("first")));
        assert_eq!((at(0xff), at(0x180), at(0x210)), (None, None, None));
        assert_eq!(at(0x4000).as_deref(), Some("assembly"), "it ends where the next one begins");
    }

    #[test]
    fn names_are_those_that_people_write() {
        assert_eq!(readable("_ZN4bank7Account8transferEPS0_l"), "bank::Account::transfer");
        assert_eq!(readable("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
        assert_eq!(readable("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(readable("_Znonsense"), "_Znonsense");
        assert_eq!(readable("a\u{1b}[31mb"), "a?[31mb");
        let long = readable(&"é".repeat(400));
        assert!(long.len() <= NAME_MAX && long.ends_with('…'), "{long}");
    }

    #[test]
    fn a_perf_map_is_read_by_its_lines_and_the_last_word_on_an_address_counts() {
        let text = "7f00 20 Lcom/example/Shop;::price\nnonsense\n7f40 zz x\n0x7f40 8 stub\n7f00 30 Lcom/example/Shop;::price2\n";
        let names = perf_map(text);
        assert_eq!(names.at(0x7f28).as_deref(), Some("Lcom/example/Shop;::price2"));
        assert_eq!(names.at(0x7f41).as_deref(), Some("stub"));
        assert_eq!(names.at(0x7f60), None);
    }
}
