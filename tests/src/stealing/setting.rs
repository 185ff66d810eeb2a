//! How many connections each of both databases has, and what they share: the laboratory's side of the experiment. Plain values; runs nothing.

use crate::lab::{Databases, LabConfig, Limits, scenario};
use crate::stack::Stack;

/// Few connections, and many.
pub const FEW: u32 = 4;
/// See [`FEW`].
pub const MANY: u32 = 16;
/// Users of each application, who ask without a pause: more than there are connections, so that all of those are in use.
pub const USERS: u32 = 40;

/// What is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Both have few ("LL").
    BothFew,
    /// Both have many ("HH").
    BothMany,
    /// The first has few and the second many ("LH").
    FewAndMany,
    /// The same, and the second has no more than this: the first remedy.
    Capped(u32),
    /// As [`Setting::FewAndMany`], with a cgroup of equal weight for each: the second remedy.
    OwnCgroups,
}

impl Setting {
    /// For tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::BothFew => format!("{FEW} and {FEW}"),
            Self::BothMany => format!("{MANY} and {MANY}"),
            Self::FewAndMany => format!("{FEW} and {MANY}"),
            Self::Capped(most) => format!("{FEW} and {most}, as advised"),
            Self::OwnCgroups => format!("{FEW} and {MANY}, a cgroup of equal weight for each"),
        }
    }

    /// Connections of both.
    #[must_use]
    pub fn connections(self) -> [u32; 2] {
        match self {
            Self::BothFew => [FEW, FEW],
            Self::BothMany => [MANY, MANY],
            Self::FewAndMany | Self::OwnCgroups => [FEW, MANY],
            Self::Capped(most) => [FEW, most],
        }
    }

    /// What is due to the first of the CPU that both have: both always want more.
    #[must_use]
    pub fn due(self) -> f64 {
        0.5
    }

    /// What the first has of it if each of its threads has as much as each of the second's.
    #[must_use]
    pub fn by_threads(self) -> f64 {
        let [first, second] = self.connections().map(f64::from);
        if self == Self::OwnCgroups { self.due() } else { first / (first + second) }
    }

    /// The laboratory. Both databases have a quarter of a CPU together, and nothing else ends before them.
    #[must_use]
    pub fn lab(self) -> LabConfig {
        let [first, second] = self.connections();
        let base = scenario::lab(Stack::Databases);
        let app = |pool| Limits { cores: 0.5, workers: 250, backlog: 512, pool };
        LabConfig {
            web: Limits { cores: 0.8, workers: 220, backlog: 64, pool: 220 },
            app: app(first),
            app_b: Some(app(second)),
            db: Limits { cores: 0.25, workers: 500, backlog: 512, pool: 0 },
            databases: if self == Self::OwnCgroups { Databases::OwnWeights } else { Databases::OneCgroup },
            app_connections: Some(1_000),
            web_access_log: false,
            ..base
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Tier;

    #[test]
    fn each_setting_is_one_knob_away_from_the_one_in_which_cpu_is_taken() {
        let stolen = Setting::FewAndMany.lab();
        let pools = |of: Setting| [Tier::App, Tier::AppB].map(|tier| of.lab().limits(tier).pool);
        assert_eq!(pools(Setting::FewAndMany), [FEW, MANY]);
        assert_eq!(pools(Setting::OwnCgroups), [FEW, MANY]);
        assert_eq!(pools(Setting::Capped(5)), [FEW, 5]);
        assert_eq!(Setting::Capped(5).lab().databases, stolen.databases);
        assert_ne!(Setting::OwnCgroups.lab().databases, stolen.databases);
        assert!((Setting::FewAndMany.by_threads() - 0.2).abs() < 1e-9);
        assert!(
            USERS > MANY && stolen.app.workers > USERS,
            "all connections are in use, and no thread is short"
        );
    }
}
