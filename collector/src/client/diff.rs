//! `tailwater diff`: two incidents held against each other.

use super::Collector;
use super::explain::{INCIDENTS_PATH, Incidents, one_of};
use super::options::Api;
use crate::draw::difference;
use anyhow::Result;
use std::io::Write;

/// Prints what the incidents whose ids begin so have in common, and what not.
pub async fn diff(api: &Api, a: &str, b: &str) -> Result<()> {
    let list: Incidents = Collector::new(api)?.get(INCIDENTS_PATH).await?;
    let kept = "`tailwater incidents` lists those that are kept";
    let (a, b) = (one_of(&list.incidents, a, kept)?, one_of(&list.incidents, b, kept)?);
    anyhow::ensure!(a.id != b.id, "both are {}\n  remedy: give two incidents; {kept}", a.id);
    std::io::stdout().lock().write_all(difference::text(a, b).as_bytes())?;
    Ok(())
}
