//! `tailwater enroll` and `tailwater enrolled`: lets hosts join, lists those that did, and takes certificates away or lets their hosts join again, in the
//! files of this machine's collector. Whoever may write those may do so, and nobody else.

use super::tokens::new_file;
use crate::authority::signer::{Authority, invitations, issued};
use crate::clock::Clock;
use crate::run::config::{Config, ConfigError};
use crate::text::{json_line, line};
use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tailwater_model::civil::Civil;

const NS: u64 = 1_000_000_000;

/// Who may join.
#[derive(Debug, Clone)]
pub struct Asked {
    /// A host, or a pattern.
    pub hosts: String,
    /// How many.
    pub count: u32,
    /// For how long.
    pub expires: Duration,
    /// Also those that have a certificate.
    pub replace: bool,
}

/// Prints a token, or writes it into `out`.
pub fn enroll(asked: &Asked, out: Option<&Path>, config: &Config) -> Result<()> {
    let Some(authority) = &config.authority else {
        return Err(ConfigError::Rule(
            "[authority]: this collector has no authority of its own, so nobody joins\n  remedy: add [authority] with the names by which agents call it, in place of [tls] or beside it".into(),
        )
        .into());
    };
    let clock = Clock::default();
    let authority = Authority::open(authority, &config.data, clock)?;
    let into = out.map(new_file).transpose()?;
    let now_unix_s = clock.unix_ns() / NS;
    let ends = now_unix_s.saturating_add(asked.expires.as_secs());
    // One host's own token is for that host, whatever it had before.
    let replace = asked.replace || !asked.hosts.contains('*');
    let of = (asked.hosts.as_str(), asked.count, replace);
    let made = invitations(&config.data).invite(authority.fingerprint(), of, now_unix_s, ends);
    if let (Err(_), Some(path)) = (&made, out) {
        // It is empty, and ours.
        let _ = std::fs::remove_file(path);
    }
    let token = made?;
    match into {
        Some(mut into) => writeln!(into, "{token}").context("write the token")?,
        None => writeln!(std::io::stdout(), "{token}")?,
    }
    let fingerprint = authority.fingerprint();
    let at = Civil::of(ends.saturating_mul(NS));
    let (date, time) = (at.date(), at.time_ms());
    let time = time.split('.').next().unwrap_or_default();
    eprintln!(
        "tailwater: {} of {} may join until {date} {time} UTC, and trust the authority {fingerprint}",
        asked.count, asked.hosts
    );
    Ok(())
}

/// Takes away what that host has.
pub fn revoke(host: &str, config: &Config) -> Result<()> {
    let now_unix_s = Clock::default().unix_ns() / NS;
    let all = issued(&config.data);
    all.revoke(host, now_unix_s)?;
    // Afterwards: where nothing is revoked no token is taken away.
    let closed = invitations(&config.data).close(host, now_unix_s)?;
    if !all.is_revoked(host)? {
        // Somebody came in by one of them between the two.
        all.revoke(host, now_unix_s)?;
    }
    eprintln!("tailwater: {host} is revoked: within two seconds its agent is sent away");
    if closed > 0 {
        eprintln!(
            "tailwater: {closed} tokens of enrolment that were for {host} alone are taken away as well"
        );
    }
    eprintln!(
        "tailwater: neither a pod's token nor one for a pattern lets it join again, until `tailwater enrolled --allow {host}` or `tailwater enroll {host}`"
    );
    if config.tls.is_some() {
        eprintln!(
            "tailwater: [tls] is configured as well: until it is removed, whoever has a certificate of it may speak for {host} again"
        );
    }
    Ok(())
}

/// Lets a host that was revoked join again.
pub fn allow(host: &str, config: &Config) -> Result<()> {
    issued(&config.data).allow(host)?;
    eprintln!("tailwater: {host} may join again, by whatever let it join before");
    Ok(())
}

/// Lists hosts that were revoked.
pub fn revoked(json: bool, config: &Config) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for of in issued(&config.data).revoked()? {
        if json {
            let told = serde_json::json!({ "host": of.host, "revoked_unix_s": of.since_unix_s });
            writeln!(out, "{}", json_line(&told)?)?;
        } else {
            let since = Civil::of(of.since_unix_s.saturating_mul(NS)).date();
            writeln!(out, "{:<32} since {since}", line(&of.host))?;
        }
    }
    Ok(())
}

/// Lists hosts with certificates.
pub fn enrolled(json: bool, config: &Config) -> Result<()> {
    let all = issued(&config.data);
    let now_unix_s = Clock::default().unix_ns() / NS;
    let mut out = std::io::stdout().lock();
    for of in all.all()?.into_iter().filter(|of| of.lasts(now_unix_s)) {
        if json {
            let told = serde_json::json!({ "host": of.host, "expires_unix_s": of.expires_unix_s, "sha256": of.sha256 });
            writeln!(out, "{}", json_line(&told)?)?;
        } else {
            let ends = Civil::of(of.expires_unix_s.saturating_mul(NS)).date();
            writeln!(out, "{:<32} until {ends}  {}", line(&of.host), of.sha256)?;
        }
    }
    Ok(())
}
