//! Which incidents somebody asks for. Owns what a name finds; knows nothing of where incidents are kept.

use super::{Incident, Kind, Resource, State};
use crate::place::bare;

/// Which incidents are asked for; `None`: any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Which {
    /// Open or closed.
    pub state: Option<State>,
    /// Kept alive after their root was over, or not.
    pub sustained: Option<bool>,
    /// What happened.
    pub kind: Option<Kind>,
    /// What their root ran out of.
    pub resource: Option<Resource>,
    /// The tier, workload or host of their root. A workload may be named without the type of its unit.
    pub root: Option<String>,
    /// A tier, workload or host that is their root, on the way from it, or dropped.
    pub service: Option<String>,
}

impl From<Option<State>> for Which {
    fn from(state: Option<State>) -> Self {
        Self { state, ..Self::default() }
    }
}

impl Which {
    /// Whether this one is asked for.
    #[must_use]
    pub fn fits(&self, i: &Incident) -> bool {
        self.state.is_none_or(|state| i.state == state)
            && self.sustained.is_none_or(|sustained| i.sustained.is_some() == sustained)
            && self.kind.is_none_or(|kind| i.kind == kind)
            && self.resource.is_none_or(|resource| i.root.resource == resource)
            && self.root.as_ref().is_none_or(|name| is_rooted_at(i, name))
            && self.service.as_ref().is_none_or(|name| goes_through(i, name))
    }

    /// Whether more than state and `sustained` decides.
    #[must_use]
    pub fn is_of_content(&self) -> bool {
        let Self { state: _, sustained: _, kind, resource, root, service } = self;
        kind.is_some() || resource.is_some() || root.is_some() || service.is_some()
    }
}

fn is_rooted_at(i: &Incident, name: &str) -> bool {
    is_called(name, &i.root.tier, &i.root.workload, &i.root.host)
}

fn goes_through(i: &Incident, name: &str) -> bool {
    is_rooted_at(i, name)
        || i.hops.iter().any(|hop| is_called(name, &hop.tier, &hop.workload, &hop.host))
        || i.drops.iter().any(|drop| is_called(name, &drop.tier, &drop.workload, &drop.host))
}

fn is_called(name: &str, tier: &str, workload: &str, host: &str) -> bool {
    [tier, workload, host, bare(workload)].contains(&name)
}
