//! How the programs of this crate speak to whoever started them: what is being done, and how it failed. Knows nothing of what is done.

pub mod failure;
pub mod measured;
pub mod progress;
pub mod written;
