//! `tailwater alerts`: the outbox in a terminal, and sending dead letters again. Knows the API, not the outbox.

use super::Collector;
use super::options::Api;
use crate::alert::api::Resend;
use crate::alert::outbox::Listed;
use crate::text::{json_line, line};
use anyhow::{Result, bail};
use serde::Deserialize;
use std::io::Write;
use tailwater_model::civil::Civil;

#[derive(Deserialize)]
struct Alerts {
    alerts: Vec<Listed>,
}

#[derive(Deserialize)]
struct Resent {
    resent: usize,
}

/// The command: lists alerts, or sends dead letters again.
pub async fn alerts(
    api: &Api,
    dead: bool,
    json: bool,
    resend: Option<Option<String>>,
    all: bool,
) -> Result<()> {
    match resend {
        None => print(api, dead, json).await,
        Some(Some(id)) if !all => send_again(api, Some(id)).await,
        Some(None) if all => send_again(api, None).await,
        Some(_) => {
            anyhow::bail!("--resend needs an id, or --all\n  remedy: `tailwater alerts --dead` lists ids")
        }
    }
}

/// Prints what was sent and what waits, oldest first, or only dead letters.
async fn print(api: &Api, dead: bool, json: bool) -> Result<()> {
    let collector = Collector::new(api)?;
    let list: Alerts = collector.get(&format!("/api/v1/alerts?dead={dead}")).await?;
    let mut out = std::io::stdout().lock();
    for one in list.alerts.iter().rev() {
        if json {
            writeln!(out, "{}", json_line(one)?)?;
            continue;
        }
        let at = Civil::of(one.created_unix_ns);
        writeln!(
            out,
            "{} {} {:<10} {:<8} {} {}",
            at.date(),
            at.time_ms(),
            one.state,
            one.r#type,
            one.hook,
            one.id
        )?;
        writeln!(out, "    {}", line(&one.title))?;
        if !one.error.is_empty() {
            writeln!(out, "    after {} failed tries: {}", one.tries, line(&one.error))?;
        }
    }
    Ok(())
}

/// Sends dead letters again: all, or those whose id begins with `id`.
async fn send_again(api: &Api, id: Option<String>) -> Result<()> {
    let which = id.as_deref().map_or_else(|| "dead letters".to_owned(), |id| format!("dead letter {id}"));
    let answer: Resent =
        Collector::new(api)?.post("/api/v1/alerts/resend", &Resend { id: id.clone() }).await?;
    if answer.resent == 0 && id.is_some() {
        bail!("no {which}\n  remedy: `tailwater alerts --dead` lists them");
    }
    println!("{} sent again; `tailwater alerts` shows what became of them", answer.resent);
    Ok(())
}
