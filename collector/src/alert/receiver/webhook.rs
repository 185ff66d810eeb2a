//! The webhook: the incident as JSON in an envelope, signed as Standard Webhooks ask, with every secret that is in use.

use crate::alert::config::Hook;
use crate::alert::message::{Content, Message, What, rfc3339};
use crate::send::http::Written;
use crate::send::http::{DeliveryError, HookError, Http};
use crate::send::secret::{SIGNING_REMEDY, Watched, signing_secrets};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// One receiver.
#[derive(Debug)]
pub struct Webhook {
    http: Http,
    secrets: Vec<Watched<Vec<Vec<u8>>>>,
}

impl Webhook {
    /// As configured.
    pub fn new(hook: &Hook) -> Result<Self, HookError> {
        let secrets = hook
            .secret_files
            .iter()
            .map(|file| Watched::load("secret_files", file, SIGNING_REMEDY, signing_secrets))
            .collect::<Result<_, _>>()?;
        Ok(Self { http: Http::new(&hook.address(), "")?, secrets })
    }

    /// Sends it once. The id stays the same over retries, so that the receiver can tell them.
    pub async fn deliver(
        &self,
        message: &Message,
        unix_ns: u64,
        written: &Written,
    ) -> Result<(), DeliveryError> {
        let body = serde_json::to_vec(&body(message)).map_err(|e| DeliveryError::Never(e.to_string()))?;
        let unix_s = unix_ns / 1_000_000_000;
        let mut headers = vec![("webhook-id", message.id.clone()), ("webhook-timestamp", unix_s.to_string())];
        let secrets: Vec<_> = self.secrets.iter().map(Watched::current).collect();
        let signatures: Vec<_> = secrets
            .iter()
            .flat_map(|file| file.iter())
            .map(|s| sign(s, &message.id, unix_s, &body))
            .collect();
        if !signatures.is_empty() {
            headers.push(("webhook-signature", signatures.join(" ")));
        }
        self.http.post(&headers, body.into(), None, written).await
    }
}

/// The envelope that the standard recommends; times inside `data` are Unix ns.
#[must_use]
pub fn body(message: &Message) -> Value {
    let r#type = match message.what {
        What::Opened => "incident.opened",
        What::Updated => "incident.updated",
        What::Reminded => "incident.reminded",
        What::Closed => "incident.closed",
        What::Summary => "alerts.summary",
    };
    let thread = json!({
        "id": message.thread.id, "number": message.thread.number, "others_open": message.thread.others_open,
    });
    let mut out = json!({ "type": r#type, "timestamp": rfc3339(message.at_unix_ns), "thread": thread });
    match &message.content {
        Content::Incident { incident, replaces } => {
            out["data"] = json!(incident);
            if !replaces.is_empty() {
                out["replaces"] = json!(replaces);
            }
        }
        Content::Summary { held, incidents } => out["data"] = json!({ "held": held, "incidents": incidents }),
    }
    out
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
    use crate::alert::message::tests::message;

    #[test]
    fn the_signature_is_that_of_the_standards_example() {
        // The example of the Standard Webhooks reference libraries.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn the_envelope_has_the_incident_as_everywhere() {
        let message = message("01A", 2, What::Updated);
        let body = body(&message);
        assert_eq!(body["type"], "incident.updated");
        assert_eq!(body["data"], json!(message.about().unwrap()));
        assert_eq!(body["thread"]["id"], "01A");
        assert!(body["replaces"].is_null());
    }
}
