//! What crosses the wire between agent and collector, and what a trace file holds: the schema's generated code, the codec
//! of metric columns, and the framing of trace files. Knows no kernel, no clock and no diagnosis.
//!
//! A window's way across: an agent's windows are columns of a batch (`columnar`: differences, varints), the batch is a message of the
//! schema in `telemetry/v1/telemetry.proto`, and a collector turns it back into windows; a trace file holds the same messages, one after the other
//! (`trace`), so that a recording is replayed through the same code as a live stream.

pub mod columnar;
pub mod encoded;
pub mod trace;

/// Generated from `telemetry/v1/telemetry.proto`; `tests/generated_is_current.rs` proves that it is current.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
pub mod telemetry {
    /// Version 1 of the protocol.
    pub mod v1 {
        include!("generated/tailwater.telemetry.v1.rs");
    }
}

pub use telemetry::v1;

/// Lowest protocol version this build speaks.
pub const PROTOCOL_MIN: u32 = 1;
/// Highest protocol version this build speaks.
pub const PROTOCOL_MAX: u32 = 1;
/// What a token of enrolment begins with; the rest, in URL-safe Base64, is the SHA-256 of the authority's certificate and 32 bytes of secret.
pub const JOIN_TOKEN_PREFIX: &str = "tailwater_join_";
/// What an agent offers in its TLS handshake beside HTTP/2 (ALPN, RFC 7301) if it knows the collector by the collector's own authority. A collector that takes
/// the certificates of another one as well, for a time, shows the right one of its two then.
pub const JOINED_ALPN: &[u8] = b"tailwater-joined";
/// Length of a window.
pub const WINDOW_NS: u64 = 50_000_000;
/// A gRPC message larger than this is refused by both sides.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Whether an address stands for a Unix socket (`Listener.path`): a hash of what that is bound to, under a prefix that nobody routes (100::/64, RFC 6666).
/// `net_unix.h` makes such addresses.
#[must_use]
pub fn is_unix(address: std::net::Ipv6Addr) -> bool {
    address.segments()[..4] == [0x100, 0, 0, 0]
}
