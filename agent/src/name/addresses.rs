//! The addresses of a network namespace, from the tables that the kernel shows of it. Knows no cgroup and no ids.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of a process's network namespace, loopback left out unless there is nothing else.
pub fn of(pid: u32) -> Vec<IpAddr> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let v4 = local_v4(&read("fib_trie")).into_iter().map(IpAddr::V4);
    let v6 = local_v6(&read("if_inet6")).into_iter().map(IpAddr::V6);
    let all: BTreeSet<IpAddr> = v4.chain(v6).collect();
    let outside: Vec<IpAddr> = all.iter().copied().filter(|a| !a.is_loopback()).collect();
    if outside.is_empty() { all.into_iter().collect() } else { outside }
}

/// `/32 host LOCAL` below `|-- ADDRESS` in fib_trie.
fn local_v4(fib_trie: &str) -> BTreeSet<Ipv4Addr> {
    let mut last = None;
    let mut found = BTreeSet::new();
    for line in fib_trie.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            last = address.trim().parse().ok();
        } else if line.trim() == "/32 host LOCAL"
            && let Some(address) = last
        {
            found.insert(address);
        }
    }
    found
}

/// The first column of if_inet6 is the address in hex.
fn local_v6(if_inet6: &str) -> BTreeSet<Ipv6Addr> {
    if_inet6
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter_map(|hex| u128::from_str_radix(hex, 16).ok())
        .map(Ipv6Addr::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_from_the_kernels_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.9.0.0\n        /24 link UNICAST\n     |-- 10.9.0.2\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        let found: Vec<String> = local_v4(trie).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.9.0.2", "127.0.0.1"]);
        let inet6 = "fe800000000000000042acfffe110002 02 40 20 80     eth0\n";
        let found: Vec<String> = local_v6(inet6).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["fe80::42:acff:fe11:2"]);
        assert!(!of(std::process::id()).is_empty());
    }
}
