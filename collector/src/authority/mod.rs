//! The collector's own authority: who may join, which certificates there are, and whose they are. Knows no stream and no message: `ingest` asks it.

pub mod config;
pub mod invitations;
pub mod issued;
pub mod keys;
pub mod kubernetes;
pub mod signer;
