//! What of all hosts belongs to one window, and the last of that: windows become frames (`align`), frames are remembered with the names
//! behind their ids (`history`). Knows no rule.

pub(crate) mod align;
pub(crate) mod history;
