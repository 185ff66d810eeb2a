//! How the place where somebody listens is written. A Unix socket has a path instead of an address and a port; within its host an
//! address stands for it that nobody else can have (100::/64, RFC 6666, is routed nowhere), with port 0. Knows no window.

use std::net::{IpAddr, Ipv6Addr};

/// `address:port`, IPv4-mapped addresses as IPv4, IPv6 in brackets.
#[must_use]
pub fn socket(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address.to_canonical(), port).to_string()
}

/// Whether an address stands for a Unix socket: then it means something on its own host only. The wire says which do (`tailwater_proto::is_unix`), and a
/// test of the collector's conversion holds both together: this crate knows no wire.
#[must_use]
pub fn is_unix(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.segments()[..4] == [0x100, 0, 0, 0])
}

/// An address for a path of which none is known: FNV-1a.
#[must_use]
pub fn of_path(path: &str) -> IpAddr {
    let hash = path
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    Ipv6Addr::from((0x100_u128 << 112) | u128::from(hash)).into()
}

/// How a place is written: by its path, else as `address:port`.
#[must_use]
pub fn place(path: Option<&str>, address: IpAddr, port: u16) -> String {
    path.map_or_else(|| socket(address, port), str::to_owned)
}

/// Whether a place as it is written is a Unix socket: a path, or an abstract name.
#[must_use]
pub fn is_path(place: &str) -> bool {
    place.starts_with(['/', '@'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stands_for_itself_and_its_address_is_nobody_elses() {
        let php = of_path("/run/php/php8.2-fpm.sock");
        assert!(is_unix(php) && php != of_path("/run/php/other.sock"));
        for other in ["127.0.0.1", "::1", "::", "101::1", "100:0:0:1::1", "::ffff:1.0.0.0"] {
            assert!(!is_unix(other.parse().unwrap()), "{other}");
        }
        assert_eq!(place(Some("@shop"), php, 0), "@shop");
        assert_eq!(place(None, "10.0.0.1".parse().unwrap(), 80), "10.0.0.1:80");
        assert!(is_path("/run/x") && is_path("@shop") && !is_path("10.0.0.1:80") && !is_path("[::1]:80"));
    }
}
