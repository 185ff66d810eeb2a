//! Slack's incoming webhook, and Mattermost's, Rocket.Chat's and others' that take its JSON: one text, with an attachment for colour.
//! What comes from the network is data: no character of it is markup.

use crate::alert::config::Hook;
use crate::alert::message::{Content, Message, What};
use crate::send::http::Written;
use crate::send::http::{DeliveryError, HookError, Http};
use serde_json::{Value, json};
use tailwater_model::incident::Severity;

/// Slack cuts longer texts.
const TEXT_CHARS_MAX: usize = 3000;

/// One channel.
#[derive(Debug)]
pub struct Slack {
    http: Http,
    link: Option<String>,
}

impl Slack {
    /// As configured.
    pub fn new(hook: &Hook) -> Result<Self, HookError> {
        Ok(Self { http: Http::new(&hook.address(), "")?, link: hook.link.clone() })
    }

    /// Sends it once.
    pub async fn deliver(&self, message: &Message, written: &Written) -> Result<(), DeliveryError> {
        let body = serde_json::to_vec(&body(message, self.link.as_deref()))
            .map_err(|e| DeliveryError::Never(e.to_string()))?;
        self.http.post(&[], body.into(), None, written).await
    }
}

fn body(message: &Message, link: Option<&str>) -> Value {
    let sustained = message.about().is_some_and(|i| i.sustained.is_some());
    let state = match message.what {
        What::Opened => "Dropping",
        What::Updated if sustained => "Kept alive",
        What::Updated => "Cause known",
        What::Reminded => "Still dropping",
        What::Closed => "Closed",
        What::Summary => "Held back",
    };
    let colour = match (message.what, message.severity()) {
        (What::Closed, _) => "good",
        (_, Severity::Critical) => "danger",
        _ => "warning",
    };
    let mut text = format!("*{state}* {}", plain(&message.title()));
    let mut details = String::new();
    match &message.content {
        Content::Incident { incident, .. } => {
            if message.thread.number > 1 {
                text.push_str(&format!(
                    " (incident {} of the thread {})",
                    message.thread.number, message.thread.id
                ));
            }
            // The first message says all that is known of it in its title.
            if message.what != What::Opened || incident.confidence > 0.0 {
                details =
                    format!("{} Confidence {:.2}.", plain(&incident.root.evidence), incident.confidence);
            }
            if let Some(link) = link {
                text.push_str(&format!(" <{}|more>", link.replace("{id}", &incident.id)));
            }
        }
        Content::Summary { incidents, .. } => {
            details = incidents
                .iter()
                .map(|line| format!("• {}", plain(&line.title)))
                .collect::<Vec<_>>()
                .join("\n");
        }
    }
    let footer = format!("{} · {}", message.id, message.what.name());
    let cut = |t: &str| t.chars().take(TEXT_CHARS_MAX).collect::<String>();
    json!({
        "text": cut(&text),
        "attachments": [{
            "color": colour, "text": cut(&details), "fallback": cut(&plain(&message.title())), "footer": footer,
            "ts": message.at_unix_ns / 1_000_000_000, "mrkdwn_in": ["text"],
        }],
    })
}

/// The three characters that Slack reads as control sequences.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::message::tests::message;

    #[test]
    fn names_from_the_network_are_no_markup() {
        let mut m = message("01A", 2, What::Updated);
        let Content::Incident { incident, .. } = &mut m.content else { panic!() };
        incident.title = "<!channel> dropped & burned".into();
        let body = body(&m, Some("http://page/#/{id}"));
        let text = body["text"].as_str().unwrap();
        assert!(text.starts_with("*Cause known* &lt;!channel&gt; dropped &amp; burned"), "{text}");
        assert!(text.ends_with(" <http://page/#/01A|more>"), "{text}");
        assert_eq!(body["attachments"][0]["color"], "danger");
    }
}
