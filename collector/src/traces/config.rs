//! What can be said about traces: the `[traces]` table, its rules, and what its template makes of a trace's id.

use serde::{Deserialize, Serialize};

/// What stands in `link` for a trace's id.
const PLACE: &str = "{trace_id}";
/// Where nothing else is said, ms: four windows, which people notice and most requests never take.
const SLOWER_THAN_MS: u64 = 200;
/// An hour.
const SLOWER_THAN_MS_MAX: u64 = 3_600_000;
/// Bytes of a template: longer than browsers' addresses are of use.
const LINK_BYTES_MAX: usize = 2048;

/// `[traces]`: spans are taken at `/v1/traces` of the `http` port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// Spans that took less, ms, are not kept, unless they say that they failed.
    #[serde(default = "slower_than_ms")]
    pub slower_than_ms: u64,
    /// Where a trace can be opened, with `{trace_id}` in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

fn slower_than_ms() -> u64 {
    SLOWER_THAN_MS
}

impl Traces {
    /// The first rule that is broken, with its key and a remedy.
    pub fn check(&self) -> Result<(), String> {
        let fault =
            |key: &str, what: &str, remedy: &str| Err(format!("traces.{key}: {what}\n  remedy: {remedy}"));
        if self.slower_than_ms > SLOWER_THAN_MS_MAX {
            let what = format!("must be 0 to {SLOWER_THAN_MS_MAX}");
            return fault("slower_than_ms", &what, &format!("leave it out for {SLOWER_THAN_MS}"));
        }
        let Some(link) = &self.link else { return Ok(()) };
        let example =
            "write it as https://jaeger.example/trace/{trace_id}, or leave it out for ids without links";
        if !link.starts_with("http://") && !link.starts_with("https://") {
            return fault("link", "is no address of http:// or https://", example);
        }
        if link.len() > LINK_BYTES_MAX || link.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return fault(
                "link",
                &format!("has more than {LINK_BYTES_MAX} bytes, or a space in it"),
                "write a space as %20",
            );
        }
        if !link.contains(PLACE) {
            return fault("link", "has no {trace_id}, so that all traces would have the same", example);
        }
        Ok(())
    }
}

/// The address of a trace.
pub(super) fn link(template: &str, trace_id: &str) -> String {
    template.replace(PLACE, trace_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_cannot_be_is_named_with_its_key_and_a_remedy() {
        let of = |text: &str| {
            let table: Traces = toml::from_str(text).unwrap();
            table.check().map_err(|fault| {
                assert!(fault.contains("\n  remedy: "), "{fault}");
                fault.split(':').next().unwrap().to_owned()
            })
        };
        assert_eq!(toml::from_str::<Traces>("").unwrap().slower_than_ms, SLOWER_THAN_MS);
        for fine in ["", "slower_than_ms = 0", "link = \"https://jaeger.example/trace/{trace_id}\""] {
            assert_eq!(of(fine), Ok(()), "{fine}");
        }
        for (text, key) in [
            ("slower_than_ms = 3600001", "slower_than_ms"),
            ("link = \"jaeger.example/trace/{trace_id}\"", "link"),
            ("link = \"javascript:alert('{trace_id}')\"", "link"),
            ("link = \"https://jaeger.example/trace/\"", "link"),
            ("link = \"https://jaeger.example/my trace/{trace_id}\"", "link"),
        ] {
            assert_eq!(of(text), Err(format!("traces.{key}")), "{text}");
        }
        assert!(toml::from_str::<Traces>("listen = \"0.0.0.0:4318\"").is_err());
        let grafana = "https://grafana.example/explore?left={\"query\":\"{trace_id}\"}";
        assert_eq!(link(grafana, "0af7"), "https://grafana.example/explore?left={\"query\":\"0af7\"}");
    }
}
