//! What can be said about access in the configuration: where tokens are, and which proxy may name people.

use super::role::Role;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// `[access]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// The file of tokens; without: `tokens.toml` in the data folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<PathBuf>,
    /// A proxy that knows people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
}

/// `[access.proxy]`: whose word is taken for who somebody is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Where it connects from: addresses, or networks such as 10.0.0.0/28.
    pub addresses: Vec<Network>,
    /// The header that names the person.
    pub user_header: String,
    /// What such a person may do.
    #[serde(default)]
    pub role: Role,
    /// A header with another role: read, operate or admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_header: Option<String>,
}

/// An address, or all that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(four) => (u128::from(four.to_bits()) << 96, 32),
        IpAddr::V6(six) => (six.to_bits(), 128),
    }
}

impl Network {
    /// Whether that one is of it.
    #[must_use]
    pub fn has(&self, other: IpAddr) -> bool {
        let ((own, width), (other, other_width)) = (bits_of(self.address), bits_of(other));
        width == other_width && (self.bits == 0 || (own ^ other) >> (128 - u32::from(self.bits)) == 0)
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is neither an address nor a network such as 10.0.0.0/28");
        let (address, bits) = text.split_once('/').map_or((&*text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (value, width) = bits_of(address);
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| wrong())?;
        if bits > width {
            return Err(wrong());
        }
        // An address with bits beyond the network is a slip of the pen, and which of both was meant is not known.
        if bits < 128 && value << u32::from(bits) != 0 && bits != width {
            return Err(format!(
                "\"{text}\" has bits beyond its first {bits}: give the network's own address"
            ));
        }
        Ok(Self { address, bits })
    }
}

impl From<Network> for String {
    fn from(of: Network) -> Self {
        of.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, width) = bits_of(self.address);
        if self.bits == width {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.bits)
        }
    }
}

impl Proxy {
    /// What is wrong with it, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let name = |key: &str, header: &str| {
            let fine = hyper::header::HeaderName::from_bytes(header.as_bytes()).is_ok();
            let ours =
                ["host", "cookie", "authorization", "origin"].iter().any(|h| header.eq_ignore_ascii_case(h));
            if fine && !ours {
                return Ok(());
            }
            Err(format!(
                "[access.proxy] {key} = \"{header}\" cannot be such a header\n  remedy: name one that the proxy sets itself, such as \"X-Forwarded-User\""
            ))
        };
        if self.addresses.is_empty() {
            return Err("[access.proxy] addresses: nobody's word would be taken\n  remedy: give the addresses that the proxy connects from".into());
        }
        name("user_header", &self.user_header)?;
        self.role_header.as_deref().map_or(Ok(()), |header| name("role_header", header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_addresses_and_no_others() {
        let network = |text: &str| Network::try_from(text.to_owned());
        let has = |of: &str, address: &str| network(of).unwrap().has(address.parse().unwrap());
        assert!(has("10.0.0.5", "10.0.0.5") && !has("10.0.0.5", "10.0.0.4"));
        assert!(has("10.0.0.0/28", "10.0.0.15") && !has("10.0.0.0/28", "10.0.0.16"));
        assert!(has("0.0.0.0/0", "203.0.113.9") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "2001:db8::1") && has("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!has("2001:db8::/32", "2001:db9::1") && !has("::/0", "10.0.0.1"));
        for wrong in ["", "10.0.0", "10.0.0.0/33", "10.0.0.1/28", "::1/129", "::1/64", "a/8", "10.0.0.0/x"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
        for fine in ["10.0.0.5", "10.0.0.0/28", "::1", "2001:db8::/32", "0.0.0.0/0"] {
            assert_eq!(network(fine).unwrap().to_string(), fine);
        }
    }

    #[test]
    fn a_proxy_must_be_somewhere_and_its_header_be_its_own() {
        let proxy = |addresses: &[&str], user_header: &str| Proxy {
            addresses: addresses.iter().map(|a| Network::try_from((*a).to_owned()).unwrap()).collect(),
            user_header: user_header.into(),
            role: Role::Read,
            role_header: None,
        };
        assert!(proxy(&["10.0.0.1"], "X-Forwarded-User").check().is_ok());
        for wrong in [proxy(&[], "X-User"), proxy(&["::1"], "x y"), proxy(&["::1"], "Cookie")] {
            assert!(wrong.check().unwrap_err().contains("remedy"), "{wrong:?}");
        }
    }
}
