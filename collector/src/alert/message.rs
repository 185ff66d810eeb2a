//! One message to one hook: what happened to an incident, in which thread, and since when. This is also what the outbox keeps.
//! Owns the message's identity; knows no receiver's format.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailwater_model::Incident;
use tailwater_model::civil::Civil;
use tailwater_model::incident::{Severity, State};

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The first that this hook hears of the incident.
    Opened,
    /// Its cause is known, or another.
    Updated,
    /// It goes on: nothing new, but for its numbers.
    Reminded,
    /// It is over.
    Closed,
    /// What the rate limit held back.
    Summary,
}

impl What {
    /// Whether a newer message of the same incident says all that this one does.
    #[must_use]
    pub fn is_news(self) -> bool {
        matches!(self, Self::Updated | Self::Reminded)
    }

    /// As in the outbox.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Updated => "updated",
            Self::Reminded => "reminded",
            Self::Closed => "closed",
            Self::Summary => "summary",
        }
    }
}

/// The thread a message belongs to, as it was when the message was made, but for `others_open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Id of its first incident.
    pub id: String,
    /// This incident is the nth of it, from 1.
    pub number: u64,
    /// Others of it that its receiver holds to be open and will be told the end of. Counted whenever the message goes out; 0 before that, and
    /// in the outbox.
    pub others_open: u64,
    /// Where its first incident was; stays the same for all its messages.
    pub labels: BTreeMap<String, String>,
}

/// An incident in a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its id.
    pub id: String,
    /// How bad it is.
    pub severity: Severity,
    /// Its sentence.
    pub title: String,
}

/// What a message carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A version of an incident.
    Incident {
        /// The incident.
        incident: Box<Incident>,
        /// Ids of early alerts that turned out to be this incident.
        replaces: Vec<String>,
    },
    /// What was held back.
    Summary {
        /// Incidents that were held back.
        held: u64,
        /// The first of them.
        incidents: Vec<Line>,
    },
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The same for every try, also after a restart and when it is sent again by hand; no other message has it, in no run of the
    /// collector. Of an incident's message it begins with the incident's id, a point, and its version ([`id`]).
    pub id: String,
    /// Of which incident; of a summary: its own id.
    pub incident: String,
    /// What it says.
    pub what: What,
    /// When it was made.
    pub at_unix_ns: u64,
    /// Where it belongs.
    pub thread: Thread,
    /// What it carries.
    pub content: Content,
}

impl Message {
    /// One sentence.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.content {
            Content::Incident { incident, .. } => incident.title.clone(),
            Content::Summary { held, .. } => {
                format!("{held} incidents were held back by the rate limit of this hook.")
            }
        }
    }

    /// How bad it is: for a summary, the worst in it.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match &self.content {
            Content::Incident { incident, .. } => incident.severity,
            Content::Summary { incidents, .. } => {
                incidents.iter().map(|line| line.severity).max().unwrap_or(Severity::Warning)
            }
        }
    }

    /// Whether it is the one that ends early alerts, which were told as incidents of their own.
    #[must_use]
    pub fn ends_others(&self) -> bool {
        matches!(&self.content, Content::Incident { replaces, .. } if !replaces.is_empty())
    }

    /// Whether this incident is open no more for whoever takes this message: it is over, or part of another one.
    #[must_use]
    pub fn ends(&self, incident: &str) -> bool {
        let over = self.what == What::Closed && self.incident == incident;
        over || matches!(&self.content, Content::Incident { replaces, .. } if replaces.iter().any(|r| r == incident))
    }

    /// Whether a newer message of the same incident says all that this one does.
    #[must_use]
    pub fn is_outdated_by_newer(&self) -> bool {
        self.what.is_news() && !self.ends_others()
    }

    /// The incident, if it is about one.
    #[must_use]
    pub fn about(&self) -> Option<&Incident> {
        match &self.content {
            Content::Incident { incident, .. } => Some(incident),
            Content::Summary { .. } => None,
        }
    }

    /// That incident as over, which is a version of its own. `None`: a summary is about several.
    #[must_use]
    pub fn ended(&self) -> Option<Incident> {
        let incident = self.about()?;
        Some(Incident { state: State::Closed, version: incident.version + 1, ..incident.clone() })
    }
}

/// Tells one run of the collector from all others in the ids of messages: 8 hexadecimal digits, drawn at its start. No disk counts runs:
/// what a run told while its disk stalled, or just before a power cut, may be on no disk, and the next run must not say something else
/// under the same id.
#[must_use]
pub fn life() -> Arc<str> {
    format!("{:08x}", fastrand::u32(..)).into()
}

/// Ends the id of the message by which an early alert ends that became part of an incident.
pub const REPLACED: &str = ".replaced";

/// The id of a message about this version of an incident, made in this `life`. `suffix` tells apart what is said of one version: empty, or
/// from a point on.
#[must_use]
pub fn id(incident: &Incident, life: &str, suffix: &str) -> String {
    format!("{}.{}.{life}{suffix}", incident.id, incident.version)
}

/// RFC 3339 in UTC, to the nearest ms.
#[must_use]
pub fn rfc3339(unix_ns: u64) -> String {
    let t = Civil::of(unix_ns);
    format!("{}T{}Z", t.date(), t.time_ms())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fixture::incident;

    /// A message of a thread of its own.
    pub(crate) fn message(incident_id: &str, version: u64, what: What) -> Message {
        let mut incident = incident(incident_id, version);
        if what == What::Closed {
            incident.state = State::Closed;
        }
        let labels = super::super::group::labels(&incident);
        Message {
            id: format!("{incident_id}.{version}"),
            incident: incident_id.to_owned(),
            what,
            at_unix_ns: incident.start_unix_ns,
            thread: Thread { id: incident_id.to_owned(), number: 1, others_open: 0, labels },
            content: Content::Incident { incident: Box::new(incident), replaces: Vec::new() },
        }
    }

    #[test]
    fn a_message_reads_back_as_itself() {
        let message = message("01A", 3, What::Updated);
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
    }
}
