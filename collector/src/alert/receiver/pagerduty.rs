//! PagerDuty Events API v2: a thread is one alert there, by its `dedup_key`. It is triggered by the first message, told more by the
//! next ones, and resolved when the last of its incidents closed.

use crate::alert::config::Hook;
use crate::alert::message::{Content, Message, What, rfc3339};
use crate::send::http::Written;
use crate::send::http::{DeliveryError, HookError, Http};
use crate::send::secret::{Watched, line};
use serde_json::{Value, json};

const ENQUEUE: &str = "https://events.pagerduty.com/v2/enqueue";
/// PagerDuty refuses longer summaries.
const SUMMARY_CHARS_MAX: usize = 1024;

/// One service's integration.
#[derive(Debug)]
pub struct Pagerduty {
    http: Http,
    routing_key: Watched<String>,
    acknowledge: bool,
    link: Option<String>,
}

impl Pagerduty {
    /// As configured.
    pub fn new(hook: &Hook) -> Result<Self, HookError> {
        let file = hook.routing_key_file.clone().unwrap_or_default();
        let routing_key = Watched::load(
            "routing_key_file",
            &file,
            "put the integration key of an Events API v2 integration in it",
            line,
        )?;
        Ok(Self {
            http: Http::new(&hook.address(), ENQUEUE)?,
            routing_key,
            acknowledge: hook.acknowledge,
            link: hook.link.clone(),
        })
    }

    /// Sends it once, if it changes anything there.
    pub async fn deliver(&self, message: &Message, written: &Written) -> Result<(), DeliveryError> {
        let Some(event) = event(message, &self.routing_key.current(), self.acknowledge, self.link.as_deref())
        else {
            return Ok(());
        };
        let body = serde_json::to_vec(&event).map_err(|e| DeliveryError::Never(e.to_string()))?;
        self.http.post(&[], body.into(), None, written).await
    }
}

fn event(message: &Message, routing_key: &str, acknowledge: bool, link: Option<&str>) -> Option<Value> {
    let action = match message.what {
        What::Opened | What::Summary => "trigger",
        What::Updated | What::Reminded if acknowledge => "acknowledge",
        // Of an alert that is open there this changes the text, and wakes nobody anew.
        What::Updated | What::Reminded => "trigger",
        What::Closed if message.thread.others_open > 0 => return None,
        What::Closed => "resolve",
    };
    let mut event = json!({
        "routing_key": routing_key, "event_action": action, "dedup_key": format!("tailwater-{}", message.thread.id),
    });
    if action != "trigger" {
        return Some(event);
    }
    let (details, source, component, class) = match &message.content {
        Content::Incident { incident, .. } => {
            let place = incident.drops.first().map_or_else(
                || (incident.root.host.clone(), incident.root.workload.clone()),
                |d| (d.host.clone(), d.workload.clone()),
            );
            let details = json!({
                "incident": incident.id, "version": incident.version, "confidence": incident.confidence,
                "evidence": incident.root.evidence, "root": incident.root, "drops": incident.drops,
                "number_in_thread": message.thread.number,
            });
            (details, place.0, place.1, incident.kind.name())
        }
        Content::Summary { held, incidents } => (
            json!({ "held": held, "incidents": incidents }),
            "tailwater".into(),
            "alerts".into(),
            "held_back",
        ),
    };
    event["payload"] = json!({
        "summary": message.title().chars().take(SUMMARY_CHARS_MAX).collect::<String>(),
        "source": if source.is_empty() { "unknown".to_owned() } else { source },
        "severity": message.severity().name(),
        "timestamp": rfc3339(message.at_unix_ns),
        "component": component,
        "class": class,
        "custom_details": details,
    });
    event["client"] = json!("Tailwater");
    if let Some(link) = link {
        let link = link.replace("{id}", &message.incident);
        event["client_url"] = json!(link);
        event["links"] = json!([{ "href": link, "text": "The incident" }]);
    }
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::message::tests::message;

    #[test]
    fn one_thread_is_triggered_told_more_and_resolved_by_one_key() {
        let action = |what, others_open, acknowledge| {
            let mut m = message("01A", 2, what);
            m.thread.others_open = others_open;
            event(&m, "key", acknowledge, None).map(|e| (e["event_action"].clone(), e["dedup_key"].clone()))
        };
        let key = json!("tailwater-01A");
        assert_eq!(action(What::Opened, 0, false), Some((json!("trigger"), key.clone())));
        assert_eq!(action(What::Updated, 0, false), Some((json!("trigger"), key.clone())));
        assert_eq!(action(What::Updated, 0, true), Some((json!("acknowledge"), key.clone())));
        assert_eq!(action(What::Closed, 1, false), None);
        assert_eq!(action(What::Closed, 0, false), Some((json!("resolve"), key)));
    }

    #[test]
    fn a_trigger_has_what_pagerduty_requires() {
        let m = message("01A", 2, What::Opened);
        let e = event(&m, "key", false, Some("https://page/{id}")).unwrap();
        assert_eq!(e["payload"]["severity"], "critical");
        assert_eq!(e["payload"]["source"], "web-1");
        assert!(e["payload"]["summary"].as_str().unwrap().contains("burner"));
        assert_eq!(e["links"][0]["href"], "https://page/01A");
    }
}
