//! How anything leaves to a receiver over HTTP: connections, secrets that are read again, pauses. Knows no format and no receiver.

pub mod http;
pub mod limit;
pub mod secret;
