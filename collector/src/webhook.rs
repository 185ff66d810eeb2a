//! One POST of one message, signed as Standard Webhooks ask. Owns the headers, the signature and what an answer means; knows no
//! queue and no incident.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use sha2::Sha256;
use std::path::Path;
use std::time::Duration;
use tonic::codegen::Bytes;

/// A receiver that has not answered by then is tried again later.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Why a delivery failed.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// It may work later: no connection, no answer, 429 or 5xx.
    #[error("{0}")]
    Later(String),
    /// It will not: any other status.
    #[error("{0}")]
    Never(String),
}

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "secret_file = \"{file}\": {why}\n  remedy: put \"whsec_\" and the base64 of 24 to 64 random bytes in it"
)]
pub struct SecretError {
    file: String,
    why: String,
}

/// One receiver.
#[derive(Debug, Clone)]
pub struct Webhook {
    url: hyper::Uri,
    secret: Option<Vec<u8>>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// Reads a Standard Webhooks secret.
pub fn read_secret(file: &Path) -> Result<Vec<u8>, SecretError> {
    let bad = |why: String| SecretError { file: file.display().to_string(), why };
    let text = std::fs::read_to_string(file).map_err(|e| bad(e.to_string()))?;
    let text = text.trim();
    let coded = text.strip_prefix("whsec_").unwrap_or(text);
    let secret = STANDARD.decode(coded).map_err(|e| bad(format!("not base64: {e}")))?;
    if secret.is_empty() {
        return Err(bad("it is empty".into()));
    }
    Ok(secret)
}

impl Webhook {
    /// For `url`, signing with `secret`.
    pub fn new(url: &str, secret: Option<Vec<u8>>) -> Result<Self, String> {
        let url: hyper::Uri = url
            .parse()
            .map_err(|e| format!("webhook url \"{url}\": {e}\n  remedy: http://host:port/path"))?;
        if url.host().is_none() {
            return Err(format!("webhook url \"{url}\": no host\n  remedy: http://host:port/path"));
        }
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(Duration::from_secs(2)));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Ok(Self { url, secret, client })
    }

    /// Where it goes.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.to_string()
    }

    /// Sends `body` once. The id stays the same over retries, so that the receiver can tell them.
    pub async fn deliver(&self, id: &str, unix_s: u64, body: &Bytes) -> Result<(), DeliveryError> {
        let mut request = hyper::Request::post(&self.url)
            .header("content-type", "application/json")
            .header("user-agent", concat!("tailwater/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", id)
            .header("webhook-timestamp", unix_s.to_string());
        if let Some(secret) = &self.secret {
            request = request.header("webhook-signature", sign(secret, id, unix_s, body));
        }
        let request = request
            .body(Full::new(body.clone()))
            .map_err(|e| DeliveryError::Never(format!("request: {e}")))?;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|e| {
                let source = std::error::Error::source(&e).map_or_else(String::new, |s| format!(": {s}"));
                DeliveryError::Later(format!("{e}{source}"))
            })?;
            let status = answer.status();
            // Read to the end, so that the connection can be used again; a long answer is not worth it.
            let _ = Limited::new(answer.into_body(), 64 * 1024).collect().await;
            Ok::<_, DeliveryError>(status)
        };
        let status = tokio::time::timeout(ANSWER_WITHIN, exchange)
            .await
            .map_err(|_| DeliveryError::Later(format!("no answer within {} s", ANSWER_WITHIN.as_secs())))??;
        match status.as_u16() {
            200..=299 => Ok(()),
            408 | 425 | 429 | 500..=599 => Err(DeliveryError::Later(format!("answered {status}"))),
            _ => Err(DeliveryError::Never(format!("answered {status}"))),
        }
    }
}

/// `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
#[must_use]
pub fn sign(secret: &[u8], id: &str, unix_s: u64, body: &[u8]) -> String {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(format!("{id}.{unix_s}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_standards_example() {
        // The example of the Standard Webhooks reference libraries.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_bad_secret_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "whsec_!!").unwrap();
        let text = read_secret(&file).unwrap_err().to_string();
        assert!(text.contains("secret") && text.contains("remedy"), "{text}");
        std::fs::write(&file, "whsec_AAECAw==\n").unwrap();
        assert_eq!(read_secret(&file).unwrap(), [0, 1, 2, 3]);
    }
}
