//! What of an incident is worth telling again: the same to hooks and to receivers of OpenTelemetry. Plain data.

use tailwater_model::Incident;
use tailwater_model::incident::{Kind, Resource, State};

/// What was told of an incident; it is told again when this differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    kind: Kind,
    root: (String, String, Resource),
    drops: bool,
    sustained: bool,
    state: State,
}

impl Verdict {
    /// Of this version.
    #[must_use]
    pub fn of(i: &Incident) -> Self {
        let root = (i.root.host.clone(), i.root.workload.clone(), i.root.resource);
        Self {
            kind: i.kind,
            root,
            drops: !i.drops.is_empty(),
            sustained: i.sustained.is_some(),
            state: i.state,
        }
    }
}
