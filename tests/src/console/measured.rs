//! When and where figures were measured: the head of what a score leaves. Knows no figure.

use crate::os::kernel_release;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// See above.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Measured {
    /// What was measured.
    pub label: String,
    /// When it began, Unix s.
    pub begun_unix_s: u64,
    /// How long it took, s.
    pub took_s: u64,
    /// Kernel.
    pub kernel: String,
    /// CPUs of the machine.
    pub cpus: u64,
}

impl Measured {
    /// What is called so, here and from now on.
    pub fn begin(label: &str) -> Result<Self> {
        Ok(Self {
            label: label.to_owned(),
            begun_unix_s: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
            took_s: 0,
            kernel: kernel_release()?,
            cpus: std::thread::available_parallelism()?.get() as u64,
        })
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, took_s, kernel, cpus, .. } = self;
        write!(f, "in {} min on kernel {kernel}, {cpus} CPUs. {label}", took_s / 60)
    }
}
