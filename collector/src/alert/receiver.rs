//! The receivers as one: what a worker needs of each kind.

pub mod alertmanager;
pub mod command;
pub mod pagerduty;
pub mod slack;
pub mod webhook;

use super::config::{Hook, HookKind};
use super::message::Message;
use crate::send::http::Written;
use crate::send::http::{DeliveryError, HookError};
use alertmanager::Alertmanager;
use command::Command;
use pagerduty::Pagerduty;
use slack::Slack;
use std::sync::Arc;
use std::time::Duration;
use webhook::Webhook;

/// A receiver of any kind.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Receiver {
    Webhook(Webhook),
    Alertmanager(Alertmanager),
    Slack(Slack),
    Pagerduty(Pagerduty),
    Command(Command),
}

/// What a worker must know of its receiver to decide what to tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manners {
    /// How often open alerts are to be sent again. `None`: they need not be.
    pub resend: Option<Duration>,
    /// It keeps alerts: an end without a beginning means nothing to it.
    pub needs_opening: bool,
    /// Deliveries at once.
    pub at_once: usize,
}

impl Receiver {
    /// As configured: reads the files that it names.
    pub fn new(hook: &Hook) -> Result<Self, HookError> {
        Ok(match hook.kind {
            HookKind::Webhook => Self::Webhook(Webhook::new(hook)?),
            HookKind::Alertmanager => Self::Alertmanager(Alertmanager::new(hook)?),
            HookKind::Slack => Self::Slack(Slack::new(hook)?),
            HookKind::Pagerduty => Self::Pagerduty(Pagerduty::new(hook)?),
            HookKind::Command => Self::Command(Command::new(hook)),
        })
    }

    /// One try. `written` hears when it is on the receiver's socket, if there is one.
    pub async fn deliver(
        &self,
        message: &Message,
        unix_ns: u64,
        written: &Written,
    ) -> Result<(), DeliveryError> {
        match self {
            Self::Webhook(to) => to.deliver(message, unix_ns, written).await,
            Self::Alertmanager(to) => to.deliver(&[message], unix_ns, written).await,
            Self::Slack(to) => to.deliver(message, written).await,
            Self::Pagerduty(to) => to.deliver(message, written).await,
            Self::Command(to) => to.deliver(message).await,
        }
    }

    /// Open alerts once more, to those that want it.
    pub async fn deliver_again(&self, messages: &[Arc<Message>], unix_ns: u64) -> Result<(), DeliveryError> {
        let messages: Vec<&Message> = messages.iter().map(AsRef::as_ref).collect();
        match self {
            Self::Alertmanager(to) => to.deliver(&messages, unix_ns, &Written::default()).await,
            _ => Ok(()),
        }
    }

    /// What a worker must know to decide what to tell it.
    #[must_use]
    pub fn manners(&self) -> Manners {
        Manners {
            resend: match self {
                Self::Alertmanager(to) => Some(to.resend()),
                _ => None,
            },
            needs_opening: matches!(self, Self::Alertmanager(_) | Self::Pagerduty(_)),
            at_once: match self {
                Self::Command(_) => 4,
                _ => 32,
            },
        }
    }
}
