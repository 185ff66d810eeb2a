//! The recording that is shown in place of agents, as `/api/v1/status` tells it.

use serde::Serialize;

/// What is looked at, as the page and the API tell it.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "the JSON of /api/v1/status; units are in the names")]
pub struct Recording {
    pub file: String,
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    /// Later than the start: windows before it did not fit into memory.
    pub windows_from_unix_ns: u64,
    pub incidents: usize,
    /// Oldest ones that did not fit into memory.
    pub incidents_dropped: usize,
    pub records: u64,
    /// The file ends inside a record: what was whole is shown.
    pub torn: Option<String>,
    /// Messages that did not convert.
    pub refused: u64,
}
