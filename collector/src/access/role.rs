//! Roles, and who somebody is that asks. Plain data.

use serde::{Deserialize, Serialize};

/// What somebody may do; each may see and change what those before it may.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Send spans, and see nothing: for exporters of traces.
    Send,
    /// See everything that is shown, and scrape.
    #[default]
    Read,
    /// Send alerts again, silence, record.
    Operate,
    /// See who may do what, and what was changed.
    Admin,
}

impl Role {
    /// As in files, flags and answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How somebody proved who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Not at all: this collector wants no token.
    Open,
    /// A token with the request.
    Token,
    /// A browser's session, which began with a token.
    Session,
    /// A proxy's word.
    Proxy,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Who {
    /// The token's name, or the person's by the proxy; empty where no token is wanted.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// How that is known.
    pub way: Way,
}

impl Who {
    /// Whoever it may be, where no token is wanted: what needs no proof of who one is.
    #[must_use]
    pub fn anybody() -> Self {
        Self { name: String::new(), role: Role::Operate, way: Way::Open }
    }
}

/// A name of a token: letters, digits and `. _ @ -`, as they are safe in files, logs and labels.
pub fn check_name(name: &str) -> Result<(), String> {
    const MOST: usize = 64;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    if name.is_empty() || name.len() > MOST || !name.chars().all(plain) {
        return Err(format!(
            "{name:?} is no name of a token: 1 to {MOST} letters, digits, '.', '_', '@' and '-'"
        ));
    }
    Ok(())
}
