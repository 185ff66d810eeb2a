//! Which functions and typed tracepoints the kernel's type information names: a walk over `/sys/kernel/btf/vmlinux`. Owns the
//! parsing of that much of the format, which never trusts a length in it; knows no program.

use std::collections::BTreeMap;

/// Function or tracepoint name to its type id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BtfNames {
    /// Functions, e.g. `tcp_recvmsg`.
    pub functions: BTreeMap<String, u32>,
    /// Tracepoints, e.g. `sched_switch`.
    pub tracepoints: BTreeMap<String, u32>,
}

const MAGIC: u16 = 0xEB9F;
const TRACEPOINT_PREFIX: &str = "btf_trace_";

impl BtfNames {
    /// Reads names that `wanted` asks for; the rest is passed over.
    pub fn parse(bytes: &[u8], wanted: impl Fn(&str) -> bool) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
        };
        let magic = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
        if magic != MAGIC {
            return None;
        }
        let header = word(4)? as usize;
        let types = header.checked_add(word(8)? as usize)?;
        let end = types.checked_add(word(12)? as usize)?;
        let strings = header.checked_add(word(16)? as usize)?;
        let text = |offset: u32| -> Option<&str> {
            let tail = bytes.get(strings.checked_add(offset as usize)?..)?;
            let length = tail.iter().position(|b| *b == 0)?;
            std::str::from_utf8(&tail[..length]).ok()
        };
        let mut found = Self::default();
        let (mut at, mut id) = (types, 1_u32);
        while at < end {
            let (name, info) = (word(at)?, word(at + 4)?);
            let (kind, members) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
            let tail = match kind {
                1 | 14 | 17 => 4,          // int, variable, declaration tag
                3 => 12,                   // array
                4 | 5 => members * 12,     // struct, union
                6 | 13 => members * 8,     // enum, function prototype
                15 | 19 => members * 12,   // data section, 64-bit enum
                2 | 7..=12 | 16 | 18 => 0, // pointer, typedef, qualifiers, function, float, type tag
                _ => return None,
            };
            if kind == 12
                && let Some(name) = text(name).filter(|n| wanted(n))
            {
                found.functions.insert(name.to_owned(), id);
            } else if kind == 8
                && let Some(name) = text(name).and_then(|n| n.strip_prefix(TRACEPOINT_PREFIX))
                && wanted(name)
            {
                found.tracepoints.insert(name.to_owned(), id);
            }
            at = at.checked_add(12 + tail)?;
            id += 1;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A blob of (kind, name) with the right tails.
    fn blob(types: &[(u32, &str)]) -> Vec<u8> {
        let (mut strings, mut body) = (vec![0_u8], Vec::new());
        for (kind, name) in types {
            body.extend(u32::try_from(strings.len()).unwrap().to_le_bytes());
            body.extend((kind << 24).to_le_bytes());
            body.extend(0_u32.to_le_bytes());
            if *kind == 1 {
                body.extend([0; 4]);
            }
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        let types = u32::try_from(body.len()).unwrap();
        let mut out = Vec::new();
        out.extend(MAGIC.to_le_bytes());
        out.extend([1, 0]);
        for word in [24, 0, types, types, u32::try_from(strings.len()).unwrap()] {
            out.extend(word.to_le_bytes());
        }
        out.extend(body);
        out.extend(strings);
        out
    }

    #[test]
    fn finds_functions_and_tracepoints_with_their_ids() {
        let bytes =
            blob(&[(1, "int"), (12, "tcp_recvmsg"), (8, "btf_trace_sched_switch"), (12, "other"), (8, "u8")]);
        let found = BtfNames::parse(&bytes, |n| n != "other").unwrap();
        assert_eq!(found.functions, BTreeMap::from([("tcp_recvmsg".to_owned(), 2)]));
        assert_eq!(found.tracepoints, BTreeMap::from([("sched_switch".to_owned(), 3)]));
    }

    #[test]
    fn damaged_files_are_refused_and_do_no_harm() {
        let bytes = blob(&[(1, "int"), (12, "tcp_recvmsg")]);
        for cut in 0..bytes.len() {
            let _ = BtfNames::parse(&bytes[..cut], |_| true);
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] = 0xff;
            let _ = BtfNames::parse(&damaged, |_| true);
        }
        assert_eq!(BtfNames::parse(b"\x7fELF", |_| true), None);
    }
}
