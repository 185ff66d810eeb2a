//! What can be said about alerting in the configuration: hooks, silences, and the bounds of the outbox. The rules between keys are
//! in `rules`.

use crate::send::http::Address;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use tailwater_model::incident::{Kind, Severity};

/// What kind of receiver a hook tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookKind {
    /// JSON over HTTP(S), signed as Standard Webhooks ask.
    Webhook,
    /// Prometheus Alertmanager, API v2.
    Alertmanager,
    /// Slack's incoming webhooks, and those who take the same JSON.
    Slack,
    /// PagerDuty Events API v2.
    Pagerduty,
    /// A program, with the incident on its standard input.
    Command,
}

impl HookKind {
    /// As written in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Alertmanager => "alertmanager",
            Self::Slack => "slack",
            Self::Pagerduty => "pagerduty",
            Self::Command => "command",
        }
    }
}

/// One receiver of alerts: a `[[hook]]` table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// What it is.
    pub kind: HookKind,
    /// Its name in the log, the metrics and the outbox. Default: its kind, with a number if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// http:// or https://; not for a command, and optional for PagerDuty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A file that holds the URL, for those that are a secret in themselves (Slack).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Webhook: files with Standard Webhooks secrets ("whsec_" and base64), one a line; all of them sign. None: unsigned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_files: Vec<PathBuf>,
    /// A file that holds the value of the Authorization header, such as "Bearer abc".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_file: Option<PathBuf>,
    /// PEM: the authorities to trust for https, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PagerDuty: a file that holds the integration's routing key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key_file: Option<PathBuf>,
    /// PagerDuty: send the message that names the cause as `acknowledge`, so that escalation stops. Else as a further `trigger`.
    #[serde(default)]
    pub acknowledge: bool,
    /// Command: program and arguments. No shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// What one delivery may take, s.
    #[serde(default = "timeout_s")]
    pub timeout_s: u64,
    /// Least severity that is told.
    #[serde(default = "min_severity")]
    pub min_severity: Severity,
    /// Kinds that are told. Empty: all. The first message of an incident is of kind `local_overflow`, until its cause is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
    /// Incidents of one root or one dropping tier join one thread if the last one was within this, s. 0: each is a thread.
    #[serde(default = "group_within_s")]
    pub group_within_s: u64,
    /// Most messages a minute; the rest comes as one summary. 0: no limit. Default: slack 20, pagerduty and command 60, others 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_minute: Option<u32>,
    /// Messages that may go at once before `rate_per_minute` counts.
    #[serde(default = "burst")]
    pub burst: u32,
    /// How long a message that fails is tried again, s. Then it is a dead letter.
    #[serde(default = "retry_for_s")]
    pub retry_for_s: u64,
    /// An incident that is open is told again after this, s, once for all that changed in its numbers. 0: never. What Alertmanager is
    /// told again it knows by `resend_s`.
    #[serde(default = "remind_after_s")]
    pub remind_after_s: u64,
    /// Alertmanager: an open alert is sent again after this, s.
    #[serde(default = "resend_s")]
    pub resend_s: u64,
    /// Where a person reads more, with {id} for the incident's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

fn timeout_s() -> u64 {
    5
}
fn min_severity() -> Severity {
    Severity::Warning
}
fn group_within_s() -> u64 {
    60
}
fn burst() -> u32 {
    10
}
fn retry_for_s() -> u64 {
    3600
}
fn remind_after_s() -> u64 {
    3600
}
fn resend_s() -> u64 {
    60
}

/// Times and matchers of what is not told: a `[[silence]]` table. Matchers that are not given match everything; `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silence {
    /// Why, for the log.
    pub comment: String,
    /// From this moment, RFC 3339. Default: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Until this moment, RFC 3339. Default: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Only between these times of day, UTC: "22:00-04:30".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily: Option<String>,
    /// Only on these days, UTC: "mon" to "sun". A `daily` that goes over midnight counts to the day it began on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    /// Host of a drop or of the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Workload of a drop or of the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Tier of a drop or of the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// `address:port` of a drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// Kinds. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
    /// Names of hooks. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
}

/// Bounds of the outbox: the `[outbox]` table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Outbox {
    /// Messages kept in `DATA/outbox.db`, delivered ones as well; the oldest of resolved incidents go first.
    pub rows_max: u64,
    /// And their size, MiB.
    pub mib_max: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { rows_max: 20_000, mib_max: 64 }
    }
}

impl Hook {
    /// A webhook and nothing said about it.
    #[must_use]
    pub fn webhook(url: &str) -> Self {
        Self {
            kind: HookKind::Webhook,
            name: None,
            url: Some(url.to_owned()),
            url_file: None,
            secret_files: Vec::new(),
            authorization_file: None,
            ca: None,
            routing_key_file: None,
            acknowledge: false,
            argv: Vec::new(),
            timeout_s: timeout_s(),
            min_severity: min_severity(),
            kinds: Vec::new(),
            group_within_s: group_within_s(),
            rate_per_minute: None,
            burst: burst(),
            retry_for_s: retry_for_s(),
            remind_after_s: remind_after_s(),
            resend_s: resend_s(),
            link: None,
        }
    }

    /// Messages a minute; 0: no limit.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.rate_per_minute.unwrap_or(match self.kind {
            HookKind::Webhook | HookKind::Alertmanager => 0,
            HookKind::Slack => 20,
            HookKind::Pagerduty | HookKind::Command => 60,
        })
    }

    /// Where it sends.
    #[must_use]
    pub fn address(&self) -> Address {
        Address {
            url: self.url.clone(),
            url_file: self.url_file.clone(),
            authorization_file: self.authorization_file.clone(),
            ca: self.ca.clone(),
            timeout: self.timeout(),
        }
    }

    /// What one delivery may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }
}

/// The name of each hook.
#[must_use]
pub fn names(hooks: &[Hook]) -> Vec<String> {
    hooks
        .iter()
        .enumerate()
        .map(|(n, hook)| {
            let kind = hook.kind.name();
            let nth = hooks[..n].iter().filter(|h| h.kind == hook.kind).count();
            let own = if nth == 0 { kind.to_owned() } else { format!("{kind}-{}", nth + 1) };
            hook.name.clone().unwrap_or(own)
        })
        .collect()
}
