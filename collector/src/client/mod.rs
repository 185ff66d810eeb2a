//! The command line's side of the HTTP API: a request, and what it means when nobody answers. Knows no incident.

pub mod advise;
pub mod alerts;
pub mod diff;
pub mod explain;
mod headroom;
pub mod incidents;
pub mod options;
pub mod record;
pub mod silences;

use crate::send::http::{HookError, ways};
use crate::send::secret::{SecretError, Watched, line};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use options::Api;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tonic::codegen::Bytes;

/// An answer longer than this is no answer of a collector.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Why a collector could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody there. Ends the process with 69.
    #[error(
        "collector {url} cannot be reached: {why}\n  remedy: start it with `tailwater serve`, or name another with --collector URL"
    )]
    Unreachable {
        /// Who was asked.
        url: String,
        /// What happened.
        why: String,
    },
    /// It answered with an error.
    #[error("collector {url}: {status}: {text}")]
    Refused {
        /// What was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// Its explanation.
        text: String,
    },
    /// It answered something else.
    #[error(
        "collector {url}: {why}\n  remedy: check that a Tailwater collector of this version listens there"
    )]
    Strange {
        /// What was asked.
        url: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// Its certificate is not trusted.
    #[error(
        "collector {url} shows a certificate that is not accepted: {why}\n  remedy: name its authority with --ca FILE, and call it by a name that its certificate has"
    )]
    Distrusted {
        /// Who was asked.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The URL is none.
    #[error(
        "--collector \"{0}\": not a URL such as http://127.0.0.1:4780 or https://collector.internal:4780"
    )]
    Url(String),
    /// A token is not sent where others can read it.
    #[error(
        "collector {0}: a token is not sent in the clear to another machine\n  remedy: call it by https:// (its [http_tls]), or through a tunnel that ends on this machine"
    )]
    Clear(String),
    /// The token's file.
    #[error(transparent)]
    Token(#[from] SecretError),
    /// The authorities' file.
    #[error("--{0}")]
    Authorities(HookError),
}

/// One collector.
#[derive(Debug, Clone)]
pub struct Collector {
    url: String,
    token: Option<Arc<Watched<String>>>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Collector {
    /// As it is named.
    pub fn new(api: &Api) -> Result<Self, ClientError> {
        let url = api.url.trim_end_matches('/').to_owned();
        let parsed: hyper::Uri = url.parse().map_err(|_| ClientError::Url(url.clone()))?;
        let encrypted = match parsed.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(ClientError::Url(url)),
        };
        let token = match &api.token_file {
            None => None,
            Some(_) if !encrypted && !is_here(parsed.host().unwrap_or_default()) => {
                return Err(ClientError::Clear(url));
            }
            Some(file) => {
                let remedy = "put the token in it that `tailwater token create` printed";
                Some(Arc::new(Watched::load("--token-file", file, remedy, line)?))
            }
        };
        let (tls, mut connector) = ways(api.ca.as_deref(), encrypted).map_err(ClientError::Authorities)?;
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self { url, token, client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// The answer's body, not read yet.
    pub async fn open(&self, path: &str) -> Result<Incoming, ClientError> {
        self.request(path, None).await
    }

    /// The answer's body to JSON that is sent, not read yet.
    pub async fn open_with(&self, path: &str, body: &impl Serialize) -> Result<Incoming, ClientError> {
        let strange = |why: String| ClientError::Strange { url: format!("{}{path}", self.url), why };
        let body = serde_json::to_vec(body).map_err(|e| strange(e.to_string()))?;
        self.request(path, Some(body)).await
    }

    async fn request(&self, path: &str, body: Option<Vec<u8>>) -> Result<Incoming, ClientError> {
        let url = format!("{}{path}", self.url);
        let unreachable = |why: String| ClientError::Unreachable { url: self.url.clone(), why };
        let uri: hyper::Uri = url.parse().map_err(|_| ClientError::Url(url.clone()))?;
        let mut request = hyper::Request::get(uri);
        if body.is_some() {
            request = request.method("POST").header("content-type", "application/json");
        }
        if let Some(token) = &self.token {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.current()))
                .map_err(|_| ClientError::Url("the token is no text that a header can hold".into()))?;
            bearer.set_sensitive(true);
            request = request.header(AUTHORIZATION, bearer);
        }
        let request =
            request.body(Full::from(body.unwrap_or_default())).map_err(|_| ClientError::Url(url.clone()))?;
        let answer = self.client.request(request).await.map_err(|e| {
            let mut why = e.to_string();
            let mut source = std::error::Error::source(&e);
            while let Some(inner) = source {
                why = inner.to_string();
                source = inner.source();
            }
            if shows_untrusted(&e) {
                return ClientError::Distrusted { url: self.url.clone(), why };
            }
            unreachable(why)
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let body = Limited::new(answer.into_body(), 64 * 1024).collect().await;
        let text = body.map(|b| String::from_utf8_lossy(&b.to_bytes()).into_owned()).unwrap_or_default();
        let text = serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|v| v["error"].as_str().map(str::to_owned))
            .unwrap_or(text);
        Err(ClientError::Refused { url, status: status.as_u16(), text })
    }

    /// The answer as JSON.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(path, self.open(path).await?).await
    }

    /// Sends JSON; the answer as JSON.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.json(path, self.open_with(path, body).await?).await
    }

    async fn json<T: DeserializeOwned>(&self, path: &str, body: Incoming) -> Result<T, ClientError> {
        let strange = |why: String| ClientError::Strange { url: format!("{}{path}", self.url), why };
        let bytes = Limited::new(body, ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|e| strange(e.to_string()))?
            .to_bytes();
        serde_json::from_slice(&bytes).map_err(|e| strange(e.to_string()))
    }
}

/// Whether this is about a certificate that is not accepted.
fn shows_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
        return true;
    }
    // An I/O error hides what it is made of from `source`.
    let hidden = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    hidden.is_some_and(|inner| shows_untrusted(inner)) || error.source().is_some_and(shows_untrusted)
}

/// Whether a host of that name is this machine, whatever its resolver says.
fn is_here(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Where new versions of incidents are told; behind a cursor: what is missed since.
#[must_use]
pub fn live(after: Option<&str>) -> String {
    after.map_or("/api/v1/live".to_owned(), |cursor| format!("/api/v1/live?after={cursor}"))
}

/// Takes server-sent events apart: feeds bytes in, gets (event, data) out.
#[derive(Debug, Default)]
pub struct Events {
    buffer: Vec<u8>,
    cursor: Option<String>,
}

impl Events {
    /// The last event's id, with which a stream that ended goes on; `None`: none had one.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Adds what came; returns the events that are whole now.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<(String, String)> {
        self.buffer.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(end) = self.buffer.windows(2).position(|w| w == b"\n\n") {
            let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let (mut event, mut data) = (String::from("message"), String::new());
            for line in String::from_utf8_lossy(&block).lines() {
                if let Some(name) = line.strip_prefix("event:") {
                    event = name.trim().to_owned();
                } else if let Some(id) = line.strip_prefix("id:") {
                    // It goes into an address as it is.
                    let id = id.trim();
                    let plain = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
                    self.cursor = plain.then(|| id.to_owned());
                } else if let Some(part) = line.strip_prefix("data:") {
                    data.push_str(part.strip_prefix(' ').unwrap_or(part));
                }
            }
            if !data.is_empty() {
                out.push((event, data));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_sent_in_the_clear_to_another_machine() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "tailwater_x\n").unwrap();
        let ask = |url: &str| Collector::new(&Api { token_file: Some(file.clone()), ..Api::at(url) });
        for here in ["http://127.0.0.1:1", "http://localhost:1/", "http://[::1]:1", "https://c.example:1"] {
            assert!(ask(here).is_ok(), "{here}");
        }
        for there in ["http://10.0.0.1:1", "http://c.example:1", "http://localhost.example:1"] {
            assert!(matches!(ask(there), Err(ClientError::Clear(_))), "{there}");
            assert!(Collector::new(&Api::at(there)).is_ok(), "without one");
        }
        assert!(matches!(ask("ftp://localhost"), Err(ClientError::Url(_))));
        std::fs::write(&file, "a\nb").unwrap();
        let why = ask("http://127.0.0.1:1").unwrap_err().to_string();
        assert!(why.contains("--token-file = ") && !why.contains("a\nb"), "{why}");
    }

    #[test]
    fn events_come_out_whole_however_they_are_cut() {
        let text = b"id: 0a-6\n\nevent: incident\nid: 0a-7\ndata: {\"id\":1}\n\n: keep-alive\n\nevent:lagged\ndata:3\n\n";
        for cut in 0..text.len() {
            let mut events = Events::default();
            let mut got = events.feed(&text[..cut]);
            got.extend(events.feed(&text[cut..]));
            let want =
                [("incident", "{\"id\":1}"), ("lagged", "3")].map(|(a, b)| (a.to_owned(), b.to_owned()));
            assert_eq!((got, events.cursor()), (want.to_vec(), Some("0a-7")));
        }
        let mut events = Events::default();
        events.feed(b"id: 0a-7\n\nid: a&b=c\n\n");
        assert_eq!(events.cursor(), None, "no cursor that an address could not hold");
    }
}
