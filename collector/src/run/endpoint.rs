//! Where agents connect: an address, or a socket in this machine's file system. Owns how that is written; opens nothing.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where collector and agent of one machine meet: only root can make a folder in /run, so nobody else can listen there.
pub const LOCAL_SOCKET: &str = "/run/tailwater/agents.sock";
/// Longest path of a socket, bytes: unix(7), without the zero at its end.
const PATH_MAX: usize = 107;
const SCHEME: &str = "unix://";

/// Where agents connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Endpoint {
    /// `ADDRESS:PORT`.
    Tcp(SocketAddr),
    /// `unix:///PATH`.
    Unix(PathBuf),
}

impl Endpoint {
    /// Whether nobody outside this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// What an agent of this machine is told. Without TLS.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix(_) => self.to_string(),
        }
    }
}

impl Default for Endpoint {
    fn default() -> Self {
        Self::Unix(PathBuf::from(LOCAL_SOCKET))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{SCHEME}{}", path.display()),
        }
    }
}

/// Neither an address nor the path of a socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" {problem}; write ADDRESS:PORT, or {SCHEME}/PATH for a socket of this machine")]
pub struct EndpointError {
    text: String,
    problem: &'static str,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = |problem| EndpointError { text: text.to_owned(), problem };
        match text.strip_prefix(SCHEME) {
            Some(path) if !path.starts_with('/') || path.ends_with('/') => {
                Err(wrong("is not the whole path of a socket"))
            }
            Some(path) if path.len() > PATH_MAX => {
                Err(wrong("is longer than the 107 bytes that a socket's path may have"))
            }
            Some(path) => Ok(Self::Unix(PathBuf::from(path))),
            None => text.parse().map(Self::Tcp).map_err(|_| wrong("is no address with a port")),
        }
    }
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Self, EndpointError> {
        text.parse()
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_sockets_are_read_as_they_are_written() {
        for (text, local, url) in [
            ("127.0.0.1:4781", true, "http://127.0.0.1:4781"),
            ("[::1]:4781", true, "http://[::1]:4781"),
            ("0.0.0.0:4781", false, "http://0.0.0.0:4781"),
            ("unix:///run/tailwater/agents.sock", true, "unix:///run/tailwater/agents.sock"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!((endpoint.to_string().as_str(), endpoint.is_local()), (text, local));
            assert_eq!(endpoint.url(), url);
        }
        assert_eq!(Endpoint::default().to_string(), format!("unix://{LOCAL_SOCKET}"));
    }

    #[test]
    fn what_is_neither_is_named_with_the_remedy() {
        let long = format!("unix:///{}", "a".repeat(107));
        for (text, problem) in [
            ("4781", "is no address with a port"),
            ("localhost:4781", "is no address with a port"),
            ("unix://run/agents.sock", "is not the whole path"),
            ("unix:///run/tailwater/", "is not the whole path"),
            (long.as_str(), "is longer than the 107 bytes"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("write ADDRESS:PORT"), "{error}");
        }
    }
}
