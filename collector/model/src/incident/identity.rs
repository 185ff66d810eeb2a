//! By what an incident is the same one: the id that its window and listener give it. Knows nothing of what an incident holds.

use crate::address::socket;
use crate::window::WindowIndex;
use std::net::IpAddr;

/// The id of an incident that a window opened at a listener: 48 bits of milliseconds (the window's start), then 64 bits of
/// FNV-1a over host and listener and 16 zero bits, as 26 characters of Crockford base32 like a ULID. A drop notice and the window that
/// confirms it give the same id.
#[must_use]
pub fn identity(window: WindowIndex, host: &str, address: IpAddr, port: u16) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let ms = (window.start_unix_ns() / 1_000_000) & ((1 << 48) - 1);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in format!("{host}|{}", socket(address, port)).bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let bits = (u128::from(ms) << 80) | (u128::from(hash) << 16);
    (0..26).rev().map(|i| char::from(ALPHABET[((bits >> (5 * i)) & 31) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_sorts_by_time_and_tells_listeners_apart() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let id = identity(WindowIndex(34_000_000_000), "web-1", address, 80);
        assert_eq!(id.len(), 26);
        assert_eq!(
            id,
            identity(WindowIndex(34_000_000_000), "web-1", mapped, 80),
            "one listener, two spellings"
        );
        assert!(id < identity(WindowIndex(34_000_000_001), "web-1", address, 80));
        assert_ne!(id, identity(WindowIndex(34_000_000_000), "web-1", address, 81));
        assert_ne!(id, identity(WindowIndex(34_000_000_000), "web-2", address, 80));
        assert_eq!(identity(WindowIndex(u64::MAX), "", address, 0).len(), 26);
    }
}
