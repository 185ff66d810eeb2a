//! By which names this server may be called. A web page whose author lets its own name resolve to a loopback address ("DNS rebinding")
//! is of the same origin as this server in a browser's eyes and could read everything; but the browser still says that name in `Host`.
//! So names are accepted only if they are known: `localhost`, and those that are configured. Addresses always are: a name can be made
//! to point elsewhere, an address cannot. Knows no route: no path is exempt.

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("HTTP/1.1 needs exactly one Host header")]
    NotOne,
    #[error("the Host header is not HOST or HOST:PORT")]
    Malformed,
    #[error(
        "this server does not go by the name \"{0}\": call it by its address or as localhost, or add the name to http_hosts in tailwater.toml (--http-host {0})"
    )]
    Foreign(String),
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NotOne | Self::Malformed => StatusCode::BAD_REQUEST,
            // RFC 9110, 15.5.20: not the server for that name. "Forbidden" would say that rights are missing.
            Self::Foreign(_) => StatusCode::MISDIRECTED_REQUEST,
        };
        (status, axum::Json(serde_json::json!({ "error": self.to_string() }))).into_response()
    }
}

/// Whether this can be configured: letters, digits, hyphens, underscores and dots, as in DNS.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= 253 && text.split('.').all(label) && text.parse::<Ipv4Addr>().is_err()
}

/// `routes`, for those who call this server by an address, as `localhost`, or by one of `names`.
pub(crate) fn guarded(routes: axum::Router, names: &[String]) -> axum::Router {
    let names: Arc<[String]> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    routes.layer(middleware::from_fn_with_state(names, check))
}

async fn check(State(names): State<Arc<[String]>>, request: Request, next: Next) -> Response {
    match judged(request.version(), request.uri(), request.headers(), &names) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

fn judged(version: Version, uri: &Uri, headers: &HeaderMap, names: &[String]) -> Result<(), Refused> {
    let mut said = headers.get_all(header::HOST).iter();
    // A request to a proxy names the server in its first line; whatever is named anywhere must be right.
    if let Some(authority) = uri.authority() {
        known(authority, names)?;
    }
    match (said.next(), said.next()) {
        (Some(host), None) => {
            let authority = host.to_str().ok().and_then(|text| text.parse().ok());
            known(&authority.ok_or(Refused::Malformed)?, names)
        }
        // Only probes speak it, and no browser: there is no name that could be wrong.
        (None, _) if version < Version::HTTP_11 => Ok(()),
        _ => Err(Refused::NotOne),
    }
}

fn known(authority: &Authority, names: &[String]) -> Result<(), Refused> {
    // What stands before an "@" is no part of Host.
    if authority.as_str().contains('@') {
        return Err(Refused::Malformed);
    }
    let host = authority.host();
    let port = authority.as_str().get(host.len()..).unwrap_or_default();
    if !(port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok())) {
        return Err(Refused::Malformed);
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().map(drop).map_err(|_| Refused::Malformed);
    }
    // "localhost." is the same name, said in full.
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if name.parse::<Ipv4Addr>().is_ok() || name == "localhost" || names.contains(&name) {
        return Ok(());
    }
    if is_name(&name) { Err(Refused::Foreign(name)) } else { Err(Refused::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn ask(version: Version, uri: &str, hosts: &[&str]) -> Result<(), Refused> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, HeaderValue::from_bytes(host.as_bytes()).unwrap());
        }
        judged(version, &uri.parse().unwrap(), &headers, &["tailwater.example".into(), "box".into()])
    }

    #[test]
    fn addresses_and_known_names_are_answered_whatever_the_port() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:4780",
            "localhost",
            "LocalHost:1",
            "localhost.:4780",
            "[::1]:4780",
            "[::1]",
            "[fe80::1]:80",
            "10.1.2.3:4780",
            "0.0.0.0",
            "tailwater.example",
            "Tailwater.Example:443",
            "box:4780",
        ] {
            assert_eq!(ask(Version::HTTP_11, "/", &[host]), Ok(()), "{host}");
        }
    }

    #[test]
    fn a_foreign_name_is_refused_by_name() {
        for host in [
            "evil.example",
            "evil.example:4780",
            "127.0.0.1.evil.example",
            "127.0.0.1.nip.io:4780",
            "localhost.evil.example",
            "notlocalhost",
            "sub.tailwater.example",
            "example",
            "2130706433",
            "127.1",
        ] {
            let name = host.split(':').next().unwrap().to_owned();
            assert_eq!(ask(Version::HTTP_11, "/", &[host]), Err(Refused::Foreign(name)), "{host}");
        }
        let text = Refused::Foreign("evil.example".into()).to_string();
        assert!(text.contains("--http-host evil.example") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn what_is_no_host_is_a_bad_request() {
        for host in
            ["", "a b", "user@localhost", "localhost:x", "localhost:99999", "[::1", "[evil]", "lo/calhost"]
        {
            assert_eq!(ask(Version::HTTP_11, "/", &[host]), Err(Refused::Malformed), "\"{host}\"");
        }
        assert_eq!(ask(Version::HTTP_11, "/", &[]), Err(Refused::NotOne));
        assert_eq!(ask(Version::HTTP_11, "/", &["localhost", "localhost"]), Err(Refused::NotOne));
        assert_eq!(ask(Version::HTTP_10, "/", &[]), Ok(()), "a probe of a load balancer");
        assert_eq!(
            ask(Version::HTTP_10, "/", &["evil.example"]),
            Err(Refused::Foreign("evil.example".into()))
        );
    }

    #[test]
    fn a_name_in_the_first_line_counts_too() {
        let foreign = Err(Refused::Foreign("evil.example".into()));
        assert_eq!(ask(Version::HTTP_11, "http://evil.example/x", &["localhost"]), foreign);
        assert_eq!(ask(Version::HTTP_11, "http://localhost:4780/x", &["evil.example"]), foreign);
        assert_eq!(ask(Version::HTTP_11, "http://localhost:4780/x", &["localhost:4780"]), Ok(()));
    }

    #[test]
    fn only_names_can_be_configured() {
        for good in ["a", "tailwater.example.org", "tailwater_1", "x.svc.cluster.local"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "*", "a.", ".a", "http://a", "a:80", "a/b", "10.0.0.1", "[::1]", "é"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
