//! `tailwater record`: what a running collector gets, into a file.

use super::Collector;
use super::options::Api;
use anyhow::{Context, Result};
use http_body_util::BodyExt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Writes what the collector gets for so long into `out`.
pub async fn record(api: &Api, out: &Path, duration: Duration) -> Result<()> {
    let collector = Collector::new(api)?;
    let seconds = duration.as_secs().max(1);
    let asked = serde_json::json!({ "seconds": seconds });
    let mut body = collector.open_with("/api/v1/record", &asked).await?;
    let mut file = File::create(out).with_context(|| format!("write {}", out.display()))?;
    let mut bytes = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the collector ended the recording")?;
        if let Some(data) = frame.data_ref() {
            bytes += data.len();
            file.write_all(data).with_context(|| format!("write {}", out.display()))?;
        }
    }
    eprintln!(
        "{} bytes in {}; `tailwater replay {}` prints its incidents",
        bytes,
        out.display(),
        out.display()
    );
    Ok(())
}
