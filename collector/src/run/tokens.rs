//! `tailwater token`: makes, lists and revokes tokens in the file of this machine's collector. Whoever may write that file may do so, and
//! nobody else: no token lets make another.

use crate::access::file::Entry;
use crate::clock::Clock;
use crate::run::cli::TokenCommand;
use crate::run::config::Config;
use crate::text::line;
use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tailwater_model::civil::Civil;

const NS: u64 = 1_000_000_000;

/// The command.
pub fn run(what: TokenCommand, config: &Config) -> Result<()> {
    let file = config.token_file();
    let now_unix_s = Clock::default().unix_ns() / NS;
    match what {
        TokenCommand::Create { name, role, expires, out } => {
            // Before the token: one that cannot be handed out must not be made.
            let into = out.as_deref().map(new_file).transpose()?;
            let first = file.load()?.is_none() && !config.tokens_always();
            let ends = expires.map(|lasts| now_unix_s.saturating_add(lasts.as_secs()));
            let made = file.create(&name, role, now_unix_s, ends);
            let token = match (made, &out) {
                (Ok(token), _) => token,
                (Err(e), Some(path)) => {
                    // It is empty, and ours.
                    let _ = std::fs::remove_file(path);
                    return Err(e.into());
                }
                (Err(e), None) => return Err(e.into()),
            };
            match into {
                Some(mut into) => writeln!(into, "{}", token.expose()).context("write the token")?,
                None => writeln!(std::io::stdout(), "{}", token.expose())?,
            }
            eprintln!(
                "tailwater: {name} may {}; this is told once: {} keeps its hash",
                role,
                file.path().display()
            );
            if first {
                eprintln!(
                    "tailwater: it is the first one: within a second everybody needs a token, also on this machine"
                );
            }
        }
        TokenCommand::List { json } => {
            let mut out = std::io::stdout().lock();
            for of in file.load()?.unwrap_or_default() {
                if json {
                    let told = serde_json::json!({
                        "name": of.name, "role": of.role, "made_unix_s": of.made_unix_s, "expires_unix_s": of.expires_unix_s,
                    });
                    writeln!(out, "{told}")?;
                } else {
                    writeln!(out, "{}", row(&of, now_unix_s))?;
                }
            }
        }
        TokenCommand::Revoke { name } => {
            file.revoke(&name)?;
            eprintln!(
                "tailwater: {name} is revoked: within a second nobody comes in with it, and its sessions end"
            );
        }
    }
    Ok(())
}

pub(crate) fn new_file(path: &Path) -> Result<std::fs::File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(|| {
        format!("write {}\n  remedy: name a file that is not there yet, in a folder that is", path.display())
    })
}

fn row(of: &Entry, now_unix_s: u64) -> String {
    let day = |unix_s: u64| Civil::of(unix_s.saturating_mul(NS)).date();
    let ends = match of.expires_unix_s {
        None => "no end".to_owned(),
        Some(at) if of.expired(now_unix_s) => format!("over since {}", day(at)),
        Some(at) => format!("until {}", day(at)),
    };
    format!("{:<24} {:<8} made {}  {ends}", line(&of.name), of.role.name(), day(of.made_unix_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::role::Role;
    use crate::access::token::Hash;

    #[test]
    fn a_row_says_whose_what_and_until_when() {
        let mut of = Entry {
            name: "grafana".into(),
            role: Role::Read,
            made_unix_s: 1_700_000_000,
            expires_unix_s: None,
            sha256: Hash::of(b"x"),
        };
        assert_eq!(row(&of, 1_700_000_000), "grafana                  read     made 2023-11-14  no end");
        of.expires_unix_s = Some(1_700_086_400);
        assert!(row(&of, 1_700_000_000).ends_with("until 2023-11-15"));
        assert!(row(&of, 1_700_086_400).ends_with("over since 2023-11-15"));
    }
}
