//! What was said of a case while the windows that show it were there, and is said for as long as it lives. Plain data: `report` fills
//! it in, and knows what of it is for good.

use crate::path::step::Place;
use crate::topology::tier::TierKey;
use std::collections::BTreeMap;
use tailwater_model::incident::{Also, Alternative, Code, Hop, Number, Root};
use tailwater_model::window::EntityId;

/// What was said of a case while its windows were there, and is said for as long as it lives. Bounded by the hops that are listed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settled {
    /// What was found.
    pub(crate) findings: Option<Findings>,
    /// Where in its code the root was, which is told some seconds after the windows that it is of; `None`: more of it may come.
    pub(crate) code: Option<Vec<Code>>,
    /// Tiers as they were in the first wave.
    pub(crate) hops: BTreeMap<Place, Hop>,
    /// Growth of the queues of tiers that dropped.
    pub(crate) grew: BTreeMap<TierKey, f64>,
    /// When listeners dropped first, ns.
    pub(crate) first_ns: BTreeMap<(TierKey, EntityId), u64>,
    /// First attempts a window before it began, of tiers that dropped.
    pub(crate) usual: BTreeMap<TierKey, f64>,
    pub(crate) clock_error_ns: u64,
    pub(crate) start_ns: Option<u64>,
    /// Whether the root was asked if it goes on.
    pub(crate) root_watched: bool,
    /// Whether the drops that retries kept alive have ceased: any that come now are waves of those who are left.
    pub(crate) waves_only: bool,
}

/// Root, alternatives, how sure they are and why, what else happened, and whether their order is open.
#[derive(Debug, Clone)]
pub(crate) struct Findings {
    /// Its evidence is of what was short and of the way there; `rule` goes behind it.
    pub(crate) root: Root,
    /// How its score and its confidence were formed.
    pub(crate) rule: String,
    pub(crate) confidence: f64,
    pub(crate) against: Vec<String>,
    pub(crate) context: Vec<String>,
    pub(crate) numbers: Vec<Number>,
    pub(crate) alternatives: Vec<Alternative>,
    pub(crate) also: Vec<Also>,
    pub(crate) order_unknown: bool,
}
