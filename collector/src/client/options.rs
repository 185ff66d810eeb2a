//! What all commands that ask a collector can be told: where it is, and lengths of time.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// The collector's API on this machine.
pub const DEFAULT_API: &str = "http://127.0.0.1:4780";

/// Which collector to ask.
#[derive(Debug, Clone, Args)]
pub struct Api {
    /// URL of the collector's API
    #[arg(long = "collector", value_name = "URL", env = "TAILWATER_COLLECTOR", default_value = DEFAULT_API)]
    pub url: String,
    /// File with the token that this collector wants, if it does
    #[arg(long, value_name = "FILE", env = "TAILWATER_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Authorities of its certificate, PEM, for https:// [default: those of this machine]
    #[arg(long, value_name = "FILE", env = "TAILWATER_CA")]
    pub ca: Option<PathBuf>,
}

impl Api {
    /// At this URL, without a token.
    #[must_use]
    pub fn at(url: &str) -> Self {
        Self { url: url.to_owned(), token_file: None, ca: None }
    }
}

/// `90s`, `10m`, `2h`, `1d`, `500ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 =
        number.parse().map_err(|_| format!("\"{text}\" is not a time such as 90s, 10m or 2h"))?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("\"{text}\" needs a unit: ms, s, m, h or d")),
    };
    number.checked_mul(ms).map(Duration::from_millis).ok_or_else(|| format!("\"{text}\" is too long"))
}
