//! The last minutes of windows in memory, and what can be read from them: metrics, what there is by name, and what an incident looked
//! like in time; and the last versions of incidents for those who listen. Knows no disk and no HTTP.

pub mod events;
pub(crate) mod fold;
pub mod inventory;
pub(crate) mod limits;
pub mod metric;
mod packed;
pub mod recent;
pub mod responses;
pub mod series;
pub mod timeline;
pub mod view;
pub(crate) mod waiting;
pub(crate) mod windows;
