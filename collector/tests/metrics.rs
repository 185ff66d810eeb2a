//! `/metrics` of a real collector: what it says is what collector/docs/metrics.md documents.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::{Serve, get};
use std::collections::BTreeMap;
use std::fmt::Write;
use tailwater::export::signals::{Form, LEVELS, Level, SIGNALS};

/// What is told of tiers, and of nothing below them: its name, its unit and how it is told.
const OF_TIERS: [(&str, &str, &str); 2] = [
    ("response_seconds", "s", "Histogram: `_bucket` by `le`, `_count`, `_sum`."),
    ("sla_answers", "answers", "Counter, by `within`."),
];

/// Unit and source of a metric that the collector has of itself, from its name.
fn own(name: &str) -> (&'static str, &'static str) {
    let unit = [("_seconds", "s"), ("_bytes", "bytes"), ("_ratio", "ratio"), ("_rows", "rows")]
        .into_iter()
        .find_map(|(end, unit)| name.trim_end_matches("_total").ends_with(end).then_some(unit));
    let source = [
        ("agent_clock", "clock probes, by the collector"),
        ("agent_window_age", "the collector's clock"),
        ("agent_batches_dropped", "the agent's status"),
        ("agent_cpu", "the agent's status"),
        ("agent_kernel_cpu", "the agent's status"),
        ("agent_losses", "the agent's status"),
        ("agent_resident", "the agent's status"),
        ("agent_", "the agent's stream"),
        ("alert_", "the hooks' workers"),
        ("early_alert_", "the agent, the analysis and the hooks' workers"),
        ("remote_write_", "the receivers' senders"),
        ("otlp_", "the OTLP senders"),
        ("export_", "the export's thread"),
        ("windows_present", "the export's thread"),
        ("sizing_", "the sizing's thread"),
        ("advice_", "the sizing's thread"),
        ("store_", "the store's writer"),
        ("traces_", "what exporters send"),
        ("incident", "the analysis"),
        ("findings", "the analysis"),
    ]
    .into_iter()
    .find_map(|(begin, source)| name.starts_with(begin).then_some(source));
    (unit.unwrap_or("count"), source.unwrap_or("the collector"))
}

fn documentation(text: &str) -> String {
    let mut out = String::new();
    let labels = |level| match level {
        Level::Host => "`host`",
        Level::Workload => "`host`, `workload`, `tier`",
        Level::Listener => "`host`, `workload`, `tier`, `listener`",
        Level::Call => "`host`, `workload`, `tier`, `remote`",
        Level::Device => "`host`, `device`",
    };
    for level in LEVELS {
        let _ = write!(
            out,
            "### Labels {}\n\n| name | unit | what | source |\n|---|---|---|---|\n",
            labels(level)
        );
        let mut before = "";
        for s in SIGNALS.iter().filter(|s| s.read.level() == level) {
            if s.name == before {
                continue;
            }
            before = s.name;
            let form = match s.form {
                Form::Level => " `agg`.",
                Form::Counter if s.label.is_some() => " Counter, by `reason`.",
                Form::Counter => " Counter.",
                Form::Limit => "",
            };
            let (name, unit, about, source) = (s.exposed_name(), s.unit, s.about, s.source);
            let _ = writeln!(out, "| `{name}` | {unit} | {about}{form} | {source} |");
        }
        out.push('\n');
    }
    let mut kinds = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE tailwater_").and_then(|l| l.split_once(' ')) {
            assert!(kinds.insert(name, kind).is_none(), "{name} is told twice");
        }
    }
    out.push_str("### Labels `tier`\n\n| name | unit | what | source |\n|---|---|---|---|\n");
    for (name, unit, form) in OF_TIERS {
        let head = format!("# HELP tailwater_{name} ");
        let about = text.lines().find_map(|line| line.strip_prefix(head.as_str())).unwrap();
        let total = if kinds[name] == "counter" { "_total" } else { "" };
        let _ =
            writeln!(out, "| `tailwater_{name}{total}` | {unit} | {about} {form} | socket receive to send |");
    }
    out.push('\n');
    out.push_str("### Of itself\n\n| name | unit | what | source |\n|---|---|---|---|\n");
    for line in text.lines() {
        let Some((name, about)) = line.strip_prefix("# HELP tailwater_").and_then(|l| l.split_once(' '))
        else {
            continue;
        };
        if OF_TIERS.iter().any(|(of, ..)| *of == name) || SIGNALS.iter().any(|s| s.name == name) {
            continue;
        }
        let total = if kinds[name] == "counter" { "_total" } else { "" };
        let (unit, source) = own(name);
        let _ = writeln!(out, "| `tailwater_{name}{total}` | {unit} | {about} | {source} |");
    }
    out
}

#[test]
fn the_documentation_lists_every_metric() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    let (code, text) = get(serve.http, "/metrics").unwrap();
    assert_eq!((code, text.ends_with("# EOF\n")), (200, true));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let now = std::fs::read_to_string(path).unwrap();
    let mark = "<!-- metrics -->\n\n";
    let (before, _) = now.split_once(mark).unwrap();
    let right = format!("{before}{mark}{}", documentation(&text));
    if std::env::var_os("TAILWATER_WRITE_DOCS").is_some() {
        std::fs::write(path, &right).unwrap();
    }
    assert!(now == right, "{path} is behind: run this test with TAILWATER_WRITE_DOCS=1");
    assert_eq!(get(serve.http, "/metrics?seconds=31").unwrap().0, 400);
    assert_eq!(get(serve.http, "/metrics?seconds=30").unwrap().0, 200);
}
