//! What commands that ask a collector can be told: where it is, lengths of time, and which incidents.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tailwater_model::incident::{Kind, Resource, Which};

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

/// Which incidents are meant.
#[derive(Debug, Clone, Default, Args)]
pub struct Wanted {
    /// Only those of this kind, such as upstream_ctqo
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub kind: Option<Kind>,
    /// Only those whose root ran out of this, such as io
    #[arg(long, value_name = "RESOURCE", value_parser = resource)]
    pub resource: Option<Resource>,
    /// Only those whose root is this tier, workload or host
    #[arg(long, value_name = "NAME")]
    pub root: Option<String>,
    /// Only those that this tier, workload or host has to do with: as their root, on the way from it, or because it dropped
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
}

impl Wanted {
    /// The same as it is asked.
    #[must_use]
    pub fn which(self) -> Which {
        let Self { kind, resource, root, service } = self;
        Which { kind, resource, root, service, ..Which::default() }
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    named(&Kind::ALL, Kind::name, text)
}

fn resource(text: &str) -> Result<Resource, String> {
    named(&Resource::ALL, Resource::name, text)
}

/// The one of this name.
fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T, String> {
    let names = || all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|one| name(*one) == text).ok_or_else(|| format!("give one of {}", names()))
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
