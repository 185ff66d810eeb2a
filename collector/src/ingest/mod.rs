//! From agents' connections to inputs of the analysis: listening, TLS, one stream each, clocks, sanity, conversion, and the queue
//! that ends here. Knows neither what is kept nor what is found.

pub mod convert;
pub mod delivery_log;
mod drop_packets;
pub mod enrolment;
pub mod feed;
mod fields;
pub mod joining;
pub mod limits;
pub mod listen;
pub mod local;
mod loops;
pub mod offset;
pub mod registry;
pub mod rpc;
pub mod sanity;
pub mod service;
pub mod session;
mod states;
pub mod tls;
mod waiting;
