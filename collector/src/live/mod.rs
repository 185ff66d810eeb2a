//! The last minutes of windows in memory, and what can be read from them: metrics, what there is by name, and what an incident looked
//! like in time. Knows no disk and no HTTP.

pub(crate) mod fold;
pub mod inventory;
pub(crate) mod limits;
pub mod metric;
pub mod recent;
pub mod series;
pub mod timeline;
pub mod view;
pub(crate) mod waiting;
