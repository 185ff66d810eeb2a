//! The time in which a fleet lives: the machine's own, or a slower one where the machine is too small. Owns the mapping between the two;
//! the collector is put on the same clock by a library that answers for the C library's (`slow_clock.c`).

use crate::os::clock::unix_ns;
use crate::os::process::run;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What answers the collector's questions about time while it is slowed.
const SLOW_CLOCK: &str = include_str!("slow_clock.c");

/// A clock that agrees with the machine's at one moment, and runs so many times slower.
#[derive(Debug, Clone, Copy)]
pub struct SimClock {
    from_unix_ns: u64,
    slower: u32,
}

impl SimClock {
    /// As slow as said, from now on; 1 is real time.
    #[must_use]
    pub fn new(slower: u32) -> Self {
        Self { from_unix_ns: unix_ns(), slower: slower.max(1) }
    }

    /// How many times slower than the machine's.
    #[must_use]
    pub fn slower(self) -> u32 {
        self.slower
    }

    /// Its time now.
    #[must_use]
    pub fn unix_ns(self) -> u64 {
        self.of(unix_ns())
    }

    /// Its time at a moment of the machine's.
    #[must_use]
    pub fn of(self, machine_unix_ns: u64) -> u64 {
        self.from_unix_ns + machine_unix_ns.saturating_sub(self.from_unix_ns) / u64::from(self.slower)
    }

    /// How long a task of this program sleeps until a moment of this clock.
    #[must_use]
    pub fn until(self, unix_ns: u64) -> Duration {
        self.long(Duration::from_nanos(unix_ns.saturating_sub(self.unix_ns())))
    }

    /// How long a span of this clock lasts by the machine's.
    #[must_use]
    pub fn long(self, span: Duration) -> Duration {
        span * self.slower
    }

    /// Environment of a process that shall live by this clock; compiles the library into `folder` where time is slowed.
    pub fn environment(self, folder: &Path) -> Result<Vec<(&'static str, String)>> {
        if self.slower == 1 {
            return Ok(Vec::new());
        }
        let source = folder.join("slow_clock.c");
        let library: PathBuf = folder.join("slow_clock.so");
        std::fs::write(&source, SLOW_CLOCK).with_context(|| format!("write {}", source.display()))?;
        let mut compile = Command::new("cc");
        compile.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        run(&mut compile).context("compile the slow clock (make build-deps installs a C compiler)")?;
        Ok(vec![
            ("LD_PRELOAD", library.display().to_string()),
            ("TAILWATER_SLOW_FROM_NS", self.from_unix_ns.to_string()),
            ("TAILWATER_SLOW_TIMES", self.slower.to_string()),
        ])
    }
}
