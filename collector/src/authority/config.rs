//! What can be said about the authority in the configuration.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[authority]`: in place of `[tls]`, whose files somebody else makes, or beside it while hosts join one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorityConfig {
    /// Names and addresses by which agents call this collector: they stand in its certificate.
    pub names: Vec<String>,
    /// How long an agent's certificate lasts, days; it is renewed at two thirds of that.
    #[serde(default = "days")]
    pub certificate_days: u64,
    /// An authority of yours, PEM; without: one that is made at the first start, in the data folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

fn days() -> u64 {
    30
}

impl AuthorityConfig {
    /// What is wrong with it, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |why: &str, remedy: &str| Err(format!("[authority] {why}\n  remedy: {remedy}"));
        if self.names.is_empty() {
            return wrong(
                "names: agents would not know whom they speak to",
                "give the names and addresses by which agents call this collector",
            );
        }
        if let Some(name) =
            self.names.iter().find(|n| rustls_pki_types::ServerName::try_from(n.as_str()).is_err())
        {
            return wrong(
                &format!("names: \"{name}\" is neither a name nor an address"),
                "write it as agents do, without port",
            );
        }
        if !(1..=825).contains(&self.certificate_days) {
            return wrong("certificate_days: must be 1 to 825", "leave it out for 30");
        }
        if self.cert.is_some() != self.key.is_some() {
            return wrong("cert and key: both or none", "leave both out to have an authority made");
        }
        Ok(())
    }
}
