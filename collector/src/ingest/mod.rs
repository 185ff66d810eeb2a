//! From agents' connections to inputs of the analysis: listening, TLS, one stream each, clocks, sanity, and the queue that ends here;
//! making windows of messages is `convert`. Knows neither what is kept nor what is found.

pub mod agents;
pub mod convert;
pub mod delivery_log;
pub mod enrolment;
pub mod feed;
pub mod joining;
pub mod limits;
pub mod listen;
pub mod local;
pub mod offset;
pub mod probe_rate;
pub mod registry;
pub mod rpc;
pub mod sanity;
pub mod service;
pub mod session;
pub mod tls;
mod waiting;
