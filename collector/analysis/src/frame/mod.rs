//! The windows of all hosts for one index: windows become frames (`align`), and the last frames are remembered with the names behind
//! their ids (`history`). Knows no rule.

pub(crate) mod align;
pub(crate) mod history;
