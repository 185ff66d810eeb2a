//! `tailwater advise`: how large pools should be, as a table and a line to act on for each. Knows the API, not how a size is found.

use super::options::Api;
use super::{Collector, headroom};
use crate::draw::plot;
use crate::text::{json_line, line, span};
use anyhow::Result;
use std::io::Write;
use std::path::Path;
use tailwater_model::advice::{AdviceView, TierAdvice};

/// Prints the advice on all listeners, or on those of one host, or what they bear of so many times the present load, and draws their curves
/// into a file.
pub async fn advise(
    api: &Api,
    host: Option<&str>,
    json: bool,
    plot: Option<&Path>,
    load: Option<f64>,
) -> Result<()> {
    let mut view: AdviceView = Collector::new(api)?.get("/api/v1/advice").await?;
    let all = view.tiers.len();
    view.tiers.retain(|of| host.is_none_or(|host| of.host == host));
    view.stealing.retain(|of| host.is_none_or(|host| of.host == host));
    let mut out = std::io::stdout().lock();
    if json {
        for one in &view.tiers {
            writeln!(out, "{}", json_line(one)?)?;
        }
    } else if let Some(load) = load {
        out.write_all(headroom::text(&view, load).as_bytes())?;
    } else {
        out.write_all(table(&view, all).as_bytes())?;
    }
    out.flush()?;
    if let Some(path) = plot {
        plot::curves_to_file(&view.tiers.iter().collect::<Vec<_>>(), path)?;
    }
    match (&view.nothing, host) {
        (Some(why), _) => eprintln!("tailwater: no advice: {}", line(why)),
        (None, Some(host)) if view.tiers.is_empty() => {
            eprintln!("tailwater: no listener of host \"{}\" is learnt, of {all} in all", line(host));
        }
        _ => {}
    }
    Ok(())
}

/// One row for each listener, and below them their lines; `all` are learnt, of which some may be shown.
fn table(view: &AdviceView, all: usize) -> String {
    const HEAD: [&str; 8] = ["TIER", "NOW", "SIZE", "RANGE", "RESTS ON", "TRAFFIC", "SEEN TO", "CRITICAL"];
    let mut text = String::new();
    for system in &view.systems {
        text.push_str(&format!("{}\n", line(&system.sentence)));
    }
    for of in &view.stealing {
        text.push_str(&format!("{}\n", line(&of.sentence)));
    }
    let is_begun = !view.systems.is_empty() || !view.stealing.is_empty();
    if is_begun && !view.tiers.is_empty() {
        text.push('\n');
    }
    if !view.tiers.is_empty() {
        let rows: Vec<[String; 8]> =
            std::iter::once(HEAD.map(str::to_owned)).chain(view.tiers.iter().map(row)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text.push('\n');
        for of in &view.tiers {
            text.push_str(&line(&of.sentence));
            text.push('\n');
            if let Some(change) = &of.change {
                text.push_str(&format!("  {}\n", line(&change.sentence)));
            }
        }
    }
    if view.refused_listeners > 0 {
        text.push_str(&format!(
            "\n{} more listeners are not learnt: the collector learns the first {all}.\n",
            view.refused_listeners
        ));
    }
    text
}

fn row(of: &TierAdvice) -> [String; 8] {
    let none = || "-".to_owned();
    let (size, range) = match of.pool.value() {
        None => (none(), none()),
        Some(pool) => {
            let to = pool.at_most.map_or_else(|| "…".to_owned(), |most| most.to_string());
            (pool.advised.to_string(), format!("{}–{to}", pool.at_least))
        }
    };
    [
        line(&of.name()),
        of.limit.map_or_else(none, |limit| limit.to_string()),
        size,
        range,
        of.pool.class().to_owned(),
        span(of.learnt_s),
        format!("{:.0}", of.seen_to),
        of.critical.clone().unwrap_or_else(none),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_row_and_a_line_for_each_listener() {
        let change = serde_json::json!({
            "at_unix_ns": 1, "sizes": [{ "what": "pool", "from": 30, "to": 200 }], "verdict": "worse",
            "ratio": { "value": 1.5, "low": 1.42, "high": 1.58 }, "before_s": 0.02, "after_s": 0.03, "load_from": 640.0, "load_to": 905.0,
            "common_s": 300.0, "needed_s": 120.0, "seconds_before": 3600.0, "drops_before": 0.0, "seconds_after": 600.0, "drops_after": 0.0,
            "sentence": "maxThreads 30 → 200: worse; to restore: maxThreads 30",
        });
        let json = serde_json::json!({
            "learning_since_unix_ns": 1, "made_unix_ns": 2, "nothing": null, "refused_listeners": 3,
            "systems": [{
                "front": "apache2@web", "seconds": 340.0, "critical": "CPU of tomcat10",
                "resources": [{ "tier": "tomcat10", "what": "cpu", "used_ratio": 0.99, "full_ratio": 0.98 }], "short": null,
                "sentence": "apache2@web: throughput ends at the CPU of tomcat10, full in 98 % of 5 min 40 s in which something was full",
            }],
            "stealing": [{
                "host": "app", "cgroup": "shop", "thief": "b", "victim": "a", "seen_unix_ns": 9, "seconds": 12.0, "cpus": 1.0, "thief_ratio": 0.8,
                "victim_ratio": 0.2, "due_ratio": 0.5, "thief_runnable": 16.0, "victim_runnable": 4.0, "thief_runnable_max": 4, "after": null,
                "sentence": "b@app takes CPU from a",
            }],
            "tiers": [
                {
                    "tier": "tomcat10@app", "host": "app", "workload": "tomcat10.service", "address": "::", "port": 8080,
                    "servers": 1, "visits": null, "setting": null, "limit": 200, "limit_set_by": "x", "learnt_s": 11531.0, "seen_to": 61.0,
                    "cpu_s_per_request": null, "cpus": 1.0, "critical": "cpu",
                    "pool": { "class": "measured", "value": { "advised": 26, "at_least": 24, "at_most": 33, "seen_to": 61.0 } },
                    "throughput_max": { "class": "measured", "value": { "value": 946.0, "low": 940.0, "high": 950.0 } },
                    "in_flight": { "class": "measured", "value": { "value": 27.0, "low": 25.0, "high": 30.0 } },
                    "expected_loss": { "class": "measured", "value": 0.01 }, "model": "law", "little": null, "left_out": [],
                    "limit_loss": 0.2, "held_between_calls": null, "headroom": null, "ceilings": [], "change": change, "costs": [], "points": [], "sentence": "tomcat10@app:8080: 26 at a time are enough",
                },
                {
                    "tier": "db\u{1b}@db", "host": "db", "workload": "x", "address": "::", "port": 3306, "servers": 1,
                    "visits": null, "setting": null, "limit": null, "limit_set_by": null, "learnt_s": 17.0, "seen_to": 4.0,
                    "cpu_s_per_request": null, "cpus": null, "critical": null,
                    "pool": { "refused": { "reason": "no_plateau" }, "why": "no plateau of throughput was seen" },
                    "throughput_max": { "refused": { "reason": "no_plateau" }, "why": "x" },
                    "in_flight": { "refused": { "reason": "no_plateau" }, "why": "x" },
                    "expected_loss": { "refused": { "reason": "no_plateau" }, "why": "x" }, "model": "none", "little": null,
                    "limit_loss": null, "held_between_calls": null, "headroom": null, "ceilings": [], "change": null, "costs": [], "left_out": [], "points": [], "sentence": "db@db:3306: no size",
                },
            ],
        });
        let view: AdviceView = serde_json::from_value(json.clone()).unwrap();
        let text = table(&view, 2);
        let expect = "\
apache2@web: throughput ends at the CPU of tomcat10, full in 98 % of 5 min 40 s in which something was full
b@app takes CPU from a

TIER               NOW  SIZE  RANGE  RESTS ON  TRAFFIC     SEEN TO  CRITICAL
tomcat10@app:8080  200  26    24–33  measured  3 h 12 min  61       cpu
db\\u{1b}@db:3306   -    -     -      refused   17 s        4        -

tomcat10@app:8080: 26 at a time are enough
  maxThreads 30 → 200: worse; to restore: maxThreads 30
db@db:3306: no size

3 more listeners are not learnt: the collector learns the first 2.
";
        assert_eq!(text, expect, "{text}");
        assert_eq!(serde_json::to_value(&view).unwrap(), json, "what is read is what was told");
    }
}
