//! The slowest traces that passed while an incident lasted, below its explanation: the first of each service, with their ids. Pure: the answer in, text
//! out.

use super::explain::{labelled, wrap};
use crate::text::lines;
use std::fmt::Write;
use tailwater_model::TracesView;
use tailwater_model::traces::{ServiceTraces, SlowTrace, TracesState};

const INDENT: &str = "          ";
/// Of a tier of the incident's way; the rest is in the API and on the page.
const OF_TIER_MAX: usize = 3;
/// Of all of them: somebody opens two or three.
const ROWS_MAX: usize = 9;

/// The whole text; empty where spans are not taken, which is no fact about the incident.
#[must_use]
pub fn text(view: &TracesView) -> String {
    let mut out = String::new();
    let head = match view.state {
        TracesState::Off => return out,
        TracesState::Missed => "not known: nobody looked for them when this incident ended".to_owned(),
        _ if view.services.is_empty() => {
            let slow = view.slower_than_ms.map(|ms| format!(" of {ms} ms or more")).unwrap_or_default();
            format!("no span{slow} came of that time{}", if_more(view.state))
        }
        _ => format!("the slowest meanwhile{}", if_more(view.state)),
    };
    labelled(&mut out, "Traces", &head);
    let mut left = ROWS_MAX;
    for of in &view.services {
        for trace in of.traces.iter().take(OF_TIER_MAX.min(left)) {
            left -= 1;
            row(&mut out, of, trace);
        }
    }
    let shown = ROWS_MAX - left;
    let all: usize = view.services.iter().map(|of| of.traces.len()).sum();
    if all > shown {
        let more = format!("and {} more: /api/v1/incidents/{}/traces", all - shown, view.id);
        wrap(&mut out, &more, INDENT);
    }
    lines(&out)
}

fn if_more(state: TracesState) -> &'static str {
    if state == TracesState::Gathering { "; more may come" } else { "" }
}

/// Service, name and duration on one line, what it takes to open it on the next.
fn row(out: &mut String, of: &ServiceTraces, trace: &SlowTrace) {
    let failed = if trace.error { ", failed" } else { "" };
    let ms = trace.duration_ns() / 1_000_000;
    let what = format!("{} {}: {ms} ms{failed}", of.service, trace.name);
    let mut block = String::new();
    wrap(&mut block, &what, &format!("{INDENT}  "));
    // Writing to a String cannot fail. An address stays whole, so that a terminal takes it as one.
    let _ = write!(out, "{INDENT}- {}", block.trim_start());
    let _ = writeln!(out, "{INDENT}  {}", trace.link.as_deref().unwrap_or(&trace.trace_id));
    if trace.link.as_ref().is_some_and(|link| !link.contains(&trace.trace_id)) {
        let _ = writeln!(out, "{INDENT}  {}", trace.trace_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(n: u8, ms: u64, link: bool) -> SlowTrace {
        let trace_id = format!("{n:02x}").repeat(16);
        SlowTrace {
            link: link.then(|| format!("https://jaeger.example/trace/{trace_id}")),
            trace_id,
            span_id: "00f067aa0ba902b7".into(),
            name: "GET /cart".into(),
            host: "web-1".into(),
            start_unix_ns: 1_794_000_000_000_000_000,
            end_unix_ns: 1_794_000_000_000_000_000 + ms * 1_000_000,
            error: n.is_multiple_of(2),
        }
    }

    fn view(state: TracesState, services: Vec<ServiceTraces>) -> TracesView {
        TracesView { id: "01K".into(), state, slower_than_ms: Some(200), services }
    }

    #[test]
    fn the_slowest_of_each_service_have_what_it_takes_to_open_them() {
        let of = |service: &str, link, ms: &[u64]| ServiceTraces {
            service: service.into(),
            tier: None,
            traces: ms.iter().zip(1..).map(|(ms, n)| trace(n, *ms, link)).collect(),
        };
        let services = vec![of("web", true, &[3210, 900, 800, 700]), of("check\u{1b}out", false, &[250])];
        let expect = "\
Traces    the slowest meanwhile; more may come
          - web GET /cart: 3210 ms
            https://jaeger.example/trace/01010101010101010101010101010101
          - web GET /cart: 900 ms, failed
            https://jaeger.example/trace/02020202020202020202020202020202
          - web GET /cart: 800 ms
            https://jaeger.example/trace/03030303030303030303030303030303
          - check\\u{1b}out GET /cart: 250 ms
            01010101010101010101010101010101
          and 1 more: /api/v1/incidents/01K/traces
";
        let told = text(&view(TracesState::Gathering, services.clone()));
        assert_eq!(told, expect, "{told}");
        let many = (0..8).map(|n| of(&format!("s{n}"), true, &[900, 800, 700])).collect();
        let told = text(&view(TracesState::Settled, many));
        assert!(told.matches("https://").count() == ROWS_MAX && told.contains("and 15 more"), "{told}");
    }

    #[test]
    fn where_there_are_none_it_is_said_why_unless_spans_are_not_taken() {
        assert_eq!(text(&view(TracesState::Off, Vec::new())), "");
        let told = text(&view(TracesState::Settled, Vec::new()));
        assert_eq!(told, "Traces    no span of 200 ms or more came of that time\n");
        assert!(text(&view(TracesState::Missed, Vec::new())).contains("nobody looked"));
    }
}
