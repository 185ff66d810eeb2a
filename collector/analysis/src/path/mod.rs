//! From a tier whose queue overflowed to the root: a walk along calls (`chain`) by steps down (`below`), up (`surge`) and across tiers that
//! no agent sees (`bridge`), what was short at the places that it came to (`candidate`), calls that wait (`calls`) or got nowhere (`lost`), further causes in other branches (`also`), with what speaks for the best of them (`evidence`). Knows no case and no words but the clauses
//! of its evidence.

pub(crate) mod also;
mod below;
pub(crate) mod bridge;
mod calls;
pub(crate) mod candidate;
pub(crate) mod chain;
pub(crate) mod evidence;
mod lost;
pub(crate) mod order;
mod skew;
pub(crate) mod step;
mod surge;
pub(crate) mod view;
