//! What can be said about the authority in the configuration.

use super::invitations::check_hosts;
use crate::send::http::address;
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
    /// Pods of a cluster, which join by the tokens of their service accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesConfig>,
}

/// `[authority.kubernetes]`: whose service accounts' tokens let join, and which API server is asked about them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesConfig {
    /// Service accounts that let join, as NAMESPACE:NAME.
    pub accounts: Vec<String>,
    /// Hosts, or with one `*` all that begin and end so, that may join by such tokens: no other name, whatever node the API server says that the token's
    /// pod is on. Where it says none, whoever fits may join, and takes no name that is held. Without: every node that it names, and nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// For whom such tokens are made out.
    #[serde(default = "audience")]
    pub audience: String,
    /// The API server, https.
    #[serde(default = "api")]
    pub api: String,
    /// Its authorities, PEM; read again when the file changes.
    #[serde(default = "api_ca")]
    pub ca: PathBuf,
    /// The token by which the collector asks; read again when it changes.
    #[serde(default = "own_token")]
    pub token_file: PathBuf,
}

fn days() -> u64 {
    30
}

fn audience() -> String {
    "tailwater".to_owned()
}

fn api() -> String {
    "https://kubernetes.default.svc".to_owned()
}

/// Where a pod finds what it knows of its API server.
fn api_ca() -> PathBuf {
    PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
}

fn own_token() -> PathBuf {
    PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount/token")
}

impl KubernetesConfig {
    fn check(&self) -> Result<(), String> {
        let wrong =
            |why: &str, remedy: &str| Err(format!("[authority.kubernetes] {why}\n  remedy: {remedy}"));
        let plain = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
        };
        let named = |of: &String| of.split_once(':').is_some_and(|(space, name)| plain(space) && plain(name));
        if self.accounts.is_empty() || !self.accounts.iter().all(named) {
            return wrong(
                "accounts: give the service accounts whose pods may join",
                "write each as \"NAMESPACE:NAME\"",
            );
        }
        if let Some(Err(why)) = self.hosts.as_deref().map(check_hosts) {
            return wrong(&format!("hosts: {why}"), "leave it out to take the node that the token names");
        }
        if self.audience.is_empty() {
            return wrong("audience: it is empty", "leave it out for \"tailwater\"");
        }
        if !self.api.starts_with("https://") || address(&self.api).is_err() {
            return wrong(
                &format!("api: \"{}\" is no https:// URL", self.api),
                "leave it out inside the cluster",
            );
        }
        Ok(())
    }
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
        self.kubernetes.as_ref().map_or(Ok(()), KubernetesConfig::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_asked_over_tls_about_accounts_that_are_named() {
        let with = |more: &str| {
            let kubernetes: KubernetesConfig =
                toml::from_str(&format!("accounts = [\"tailwater:tailwater-agent\"]\n{more}")).unwrap();
            let names = vec!["collector.internal".to_owned()];
            AuthorityConfig {
                names,
                certificate_days: 30,
                cert: None,
                key: None,
                kubernetes: Some(kubernetes),
            }
        };
        let plain = with("");
        assert_eq!(plain.check(), Ok(()));
        let of = plain.kubernetes.unwrap();
        assert_eq!((of.audience.as_str(), of.api.as_str()), ("tailwater", "https://kubernetes.default.svc"));
        for (more, key) in [
            ("api = \"http://10.0.0.1\"", "api: "),
            ("api = \"https://\"", "api: "),
            ("hosts = \"a*b*\"", "hosts: "),
            ("audience = \"\"", "audience: "),
        ] {
            let told = with(more).check().unwrap_err();
            assert!(told.contains(key) && told.contains("remedy: "), "{told}");
        }
        for wrong in [vec![], vec!["tailwater-agent"], vec!["a:b:c"], vec![":a"], vec!["a: b"]] {
            let mut one = with("");
            let accounts = wrong.iter().map(|of| (*of).to_owned()).collect();
            one.kubernetes.as_mut().unwrap().accounts = accounts;
            assert!(one.check().unwrap_err().contains("accounts: "), "{wrong:?}");
        }
    }
}
