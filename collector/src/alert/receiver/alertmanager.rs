//! Prometheus Alertmanager, API v2: one alert per thread, which fires while any of its incidents is open. It has no memory of its own:
//! an open alert is sent again at an interval, with an `endsAt` a few intervals ahead, so that it resolves if the collector is gone.

use crate::alert::config::Hook;
use crate::alert::message::{Content, Message, What, rfc3339};
use crate::send::http::Written;
use crate::send::http::{DeliveryError, HookError, Http};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// An open alert ends after so many intervals without another message.
const INTERVALS: u64 = 4;
/// Annotations are cut to this.
const ANNOTATION_CHARS_MAX: usize = 2000;

/// One Alertmanager.
#[derive(Debug)]
pub struct Alertmanager {
    http: Http,
    resend_s: u64,
    link: Option<String>,
}

impl Alertmanager {
    /// As configured.
    pub fn new(hook: &Hook) -> Result<Self, HookError> {
        Ok(Self { http: Http::new(&hook.address(), "")?, resend_s: hook.resend_s, link: hook.link.clone() })
    }

    /// Time between messages of an open alert.
    #[must_use]
    pub fn resend(&self) -> Duration {
        Duration::from_secs(self.resend_s)
    }

    /// Sends alerts.
    pub async fn deliver(
        &self,
        messages: &[&Message],
        unix_ns: u64,
        written: &Written,
    ) -> Result<(), DeliveryError> {
        let alerts: Vec<Value> =
            messages.iter().map(|m| alert(m, self.resend_s, self.link.as_deref(), unix_ns)).collect();
        let body = serde_json::to_vec(&alerts).map_err(|e| DeliveryError::Never(e.to_string()))?;
        self.http.post(&[], body.into(), Some("/api/v2/alerts"), written).await
    }
}

/// The alert. Its labels are its identity, so they are those of the thread and never change; what becomes known is in the annotations.
fn alert(message: &Message, resend_s: u64, link: Option<&str>, unix_ns: u64) -> Value {
    // What is told is rounded to the ms: of a present that is taken down to one, no part is told as what is to come.
    let unix_ns = unix_ns / 1_000_000 * 1_000_000;
    let mut labels: Map<String, Value> =
        message.thread.labels.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
    labels.insert("thread".into(), json!(message.thread.id));
    let name = if message.what == What::Summary { "TailwaterAlertsHeldBack" } else { "TailwaterIncident" };
    labels.insert("alertname".into(), json!(name));
    let mut annotations = Map::new();
    let mut note = |key: &str, text: &str| {
        annotations.insert(key.into(), json!(text.chars().take(ANNOTATION_CHARS_MAX).collect::<String>()));
    };
    note("summary", &message.title());
    let ahead = unix_ns.saturating_add(resend_s.saturating_mul(INTERVALS).saturating_mul(1_000_000_000));
    let (mut starts, mut ends) = (message.at_unix_ns, ahead);
    if let Content::Incident { incident, .. } = &message.content {
        note("description", &incident.root.evidence);
        note("incident", &incident.id);
        note("kind", incident.kind.name());
        note("root", &format!("{} {}", incident.root.place(), incident.root.resource.name()));
        note("incidents_in_thread", &message.thread.number.to_string());
        starts = incident.start_unix_ns;
        if message.what == What::Closed && message.thread.others_open == 0 {
            // In the past, so that it is resolved on arrival, and after its start.
            ends = incident.end_unix_ns.min(unix_ns).max(starts + 1_000_000);
        }
    }
    // A clock that went back must not make a start in the future.
    let starts = starts.min(unix_ns);
    let mut alert = json!({
        "labels": labels, "annotations": annotations, "startsAt": rfc3339(starts), "endsAt": rfc3339(ends),
    });
    if let Some(link) = link {
        alert["generatorURL"] = json!(link.replace("{id}", &message.incident));
    }
    alert
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::message::tests::message;

    #[test]
    fn labels_stay_and_the_end_tells_whether_it_is_over() {
        let opened = message("01A", 0, What::Opened);
        let now = opened.at_unix_ns + 2_000_000_000;
        let first = alert(&opened, 60, Some("http://page/{id}"), now);
        let mut closed = message("01A", 3, What::Closed);
        let last = alert(&closed, 60, None, now);
        assert_eq!(first["labels"], last["labels"]);
        assert_eq!(first["labels"]["severity"], "critical");
        assert_eq!(first["endsAt"], rfc3339(now + 240_000_000_000));
        assert_eq!(last["endsAt"], rfc3339(closed.about().unwrap().end_unix_ns));
        assert_eq!(first["generatorURL"], "http://page/01A");
        closed.thread.others_open = 1;
        assert_eq!(alert(&closed, 60, None, now)["endsAt"], first["endsAt"], "another of the thread is open");
    }

    #[test]
    fn a_root_that_no_agent_observes_is_told_by_its_address_alone() {
        let mut opened = message("01A", 1, What::Opened);
        let now = opened.at_unix_ns;
        let Content::Incident { incident, .. } = &mut opened.content else { panic!() };
        (incident.root.host, incident.root.workload) = ("10.77.0.3".into(), String::new());
        incident.drops.clear();
        opened.thread.labels = crate::alert::group::labels(incident);
        let told = alert(&opened, 60, None, now);
        assert_eq!(told["annotations"]["root"], "10.77.0.3 cpu_neighbour");
        assert_eq!((&told["labels"]["host"], told["labels"].get("workload")), (&json!("10.77.0.3"), None));
        for part in ["labels", "annotations"] {
            for (key, text) in told[part].as_object().unwrap() {
                let mut words = text.as_str().unwrap().split_whitespace();
                assert!(!words.any(|word| word.starts_with('@')), "{key}: {text}");
            }
        }
    }

    #[test]
    fn nothing_is_told_as_what_is_to_come_by_being_rounded() {
        let mut closed = message("01A", 1, What::Closed);
        let now = closed.at_unix_ns + 600_000;
        let Content::Incident { incident, .. } = &mut closed.content else { panic!() };
        // Its clock is ahead of the collector's.
        (incident.start_unix_ns, incident.end_unix_ns) = (now - 2_000_000_000, now + 1_000_000_000);
        let told = alert(&closed, 60, None, now);
        assert_eq!(told["endsAt"], rfc3339(closed.at_unix_ns), "{told}");
    }
}
