//! The truth about a run, from places that Tailwater does not use: the sockets' own counters by sock_diag, the namespaces' by
//! `/proc`, every handshake as it passes a packet tap, the load generator's log. Shares no code with agent or collector and
//! knows nothing of diagnosis.

pub mod flows;
pub mod netstat;
mod record;
mod recorder;
mod requests;
pub mod sockdiag;
pub mod tap;

pub use record::{PlaceTruth, TruthRecord};
pub use recorder::{Place, PlaceLog, Recorder, Sample, TruthLog};
pub use requests::{SlowRequests, slow_requests};
