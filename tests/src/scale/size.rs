//! How large the hosts of a fleet are, and their applications: what each names and does beside what the recording tells of it, and what an agent
//! of that size may cost. Pure; knows no fleet.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The size of every host of a fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// 10 workloads, 6 listeners, 12 edges and 2 devices, half of them active, and a job that comes and goes; applications of 3 to 30 hosts.
    #[default]
    Realistic,
    /// What the recording tells alone: a workload, a listener and an edge; applications of three hosts.
    Small,
}

/// Entities beside the recorded ones: of each kind, how many are named, and how many of those do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct More {
    pub workloads: (u32, u32),
    pub listeners: (u32, u32),
    pub edges: (u32, u32),
    /// Devices in all.
    pub devices: usize,
    /// Whether a name comes and another goes every few seconds.
    pub jobs: bool,
}

impl Size {
    /// What its hosts have beside what the recording tells.
    #[must_use]
    pub fn more(self) -> More {
        match self {
            Self::Realistic => {
                More { workloads: (8, 4), listeners: (5, 2), edges: (11, 5), devices: 2, jobs: true }
            }
            Self::Small => {
                More { workloads: (0, 0), listeners: (0, 0), edges: (0, 0), devices: 1, jobs: false }
            }
        }
    }

    /// Hosts of applications, one after the other, again and again.
    #[must_use]
    pub fn applications(self) -> &'static [usize] {
        match self {
            Self::Realistic => &[3, 5, 8, 12, 20, 30],
            Self::Small => &[3],
        }
    }

    /// What an agent may cost the collector: of one core, and bytes.
    #[must_use]
    pub fn goals(self) -> (f64, f64) {
        match self {
            Self::Realistic => (0.0015, 3e6),
            Self::Small => (0.0005, 1e6),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Realistic => "realistic",
            Self::Small => "small",
        })
    }
}

impl std::str::FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "realistic" => Ok(Self::Realistic),
            "small" => Ok(Self::Small),
            _ => bail!("hosts \"{text}\": give realistic or small"),
        }
    }
}
