//! What would have prevented an incident, held against the same injection into servers that were changed so. The answer is read as anybody
//! would; what was dropped is counted by the kernel, and times are those of the clients.

pub mod answer;
pub mod results;
pub mod trial;
