//! Kernel files that are read again and again: totals of a cgroup, and of the machine's CPUs and disks. Owns their units; keeps no
//! value of before.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Longest of the small files read here; a longer one is read in parts.
const PART_BYTES: usize = 4096;

/// All of a file of the kernel's, from its beginning.
pub(super) fn read_again(file: &File, into: &mut Vec<u8>) -> std::io::Result<()> {
    into.clear();
    loop {
        let at = into.len();
        into.resize(at + PART_BYTES, 0);
        let count = file.read_at(&mut into[at..], at as u64)?;
        into.truncate(at + count);
        if count == 0 {
            return Ok(());
        }
    }
}

/// A file with one total.
#[derive(Debug)]
pub(super) struct Total {
    file: File,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    /// `usage_usec N` in cpu.stat of version 2.
    CpuStat,
    /// ns in cpuacct.usage of version 1.
    Cpuacct,
    /// `some … total=N` of pressure stall information, in us.
    Pressure,
}

impl Total {
    /// CPU time of a cgroup and those below it, at its folder in the version 2 tree.
    pub(super) fn cpu_stat(folder: &Path) -> Option<Self> {
        Self::open(&folder.join("cpu.stat"), Form::CpuStat)
    }

    /// The same in version 1.
    pub(super) fn cpuacct(folder: &Path) -> Option<Self> {
        Self::open(&folder.join("cpuacct.usage"), Form::Cpuacct)
    }

    /// Time in which at least one task of a cgroup, or of those below it, waited for `resource`: cpu, io or memory. `None`: the kernel
    /// keeps no pressure stall information (CONFIG_PSI, psi=1).
    pub(super) fn pressure(folder: &Path, resource: &str) -> Option<Self> {
        Self::open(&folder.join(format!("{resource}.pressure")), Form::Pressure)
    }

    fn open(path: &Path, form: Form) -> Option<Self> {
        let total = Self { file: File::open(path).ok()?, form };
        // Some of these files are there and cannot be read.
        total.ns(&mut Vec::new()).is_some().then_some(total)
    }

    /// The total in ns; `None`: the cgroup is gone.
    pub(super) fn ns(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        read_again(&self.file, buffer).ok()?;
        parse(std::str::from_utf8(buffer).ok()?, self.form)
    }
}

fn parse(text: &str, form: Form) -> Option<u64> {
    let us = |number: &str| number.trim().parse::<u64>().ok().map(|us| us.saturating_mul(1_000));
    match form {
        Form::CpuStat => us(text.lines().find_map(|line| line.strip_prefix("usage_usec "))?),
        Form::Cpuacct => text.trim().parse().ok(),
        Form::Pressure => us(text.lines().next()?.strip_prefix("some ")?.rsplit_once("total=")?.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_ns_whatever_the_file_counts() {
        assert_eq!(parse("usage_usec 12\nuser_usec 5\n", Form::CpuStat), Some(12_000));
        assert_eq!(parse("1234567\n", Form::Cpuacct), Some(1_234_567));
        let pressure = "some avg10=0.12 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(parse(pressure, Form::Pressure), Some(77_000));
        assert_eq!(parse("", Form::Pressure), None);
    }

    #[test]
    fn a_file_is_read_whole_and_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        let long = "0123456789".repeat(1_000);
        std::fs::write(&path, &long).unwrap();
        let file = File::open(&path).unwrap();
        let mut into = Vec::new();
        read_again(&file, &mut into).unwrap();
        assert_eq!(into, long.as_bytes());
        std::fs::write(&path, "short").unwrap();
        read_again(&file, &mut into).unwrap();
        assert_eq!(into, b"short");
    }
}
