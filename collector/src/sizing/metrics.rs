//! Advice as metrics: sizes and limits of pools, for dashboards and for a rule that says when one is far from its advice. Owns their names and
//! labels; computes nothing. A listener without a size has no row, never a zero.

use crate::counters::{gauge, labels};
use tailwater_model::advice::{AdviceView, TierAdvice};
use tailwater_model::incident::socket;

/// Appends them, as they were worked out last.
pub(super) fn render(view: &AdviceView, out: &mut String) {
    let (mut sizes, mut limits, mut most, mut changed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for of in &view.tiers {
        let listener = of.address.parse().map_or_else(|_| of.address.clone(), |at| socket(at, of.port));
        let whose = [
            ("host", of.host.as_str()),
            ("tier", tier(of)),
            ("workload", of.workload.as_str()),
            ("listener", listener.as_str()),
        ];
        if let Some(pool) = of.pool.value() {
            let class = of.pool.class();
            let bounds = [
                ("advised", Some(pool.advised)),
                ("at_least", Some(pool.at_least)),
                ("at_most", pool.at_most),
            ];
            for (bound, size) in bounds.into_iter().filter_map(|(bound, size)| Some((bound, size?))) {
                let all = [&whose[..], &[("class", class), ("bound", bound)]].concat();
                sizes.push((labels(&all), f64::from(size)));
            }
        }
        if let Some((change, ratio)) = of.change.as_ref().and_then(|change| Some((change, change.ratio?))) {
            let all = [&whose[..], &[("verdict", change.verdict.as_str())]].concat();
            changed.push((labels(&all), ratio.value));
        }
        limits.extend(of.limit.map(|limit| (labels(&whose), f64::from(limit))));
        if let Some(range) = of.throughput_max.value() {
            let all = [&whose[..], &[("class", of.throughput_max.class())]].concat();
            most.push((labels(&all), range.value));
        }
    }
    gauge(
        out,
        "advice_pool_size",
        "Requests at a time of each server: advised, the least and the most that cost no more than 2 %; class is what it rests on. No row: refused, or no upper end.",
        &sizes,
    );
    gauge(
        out,
        "advice_pool_limit",
        "Requests at a time that the server is set up for by its own configuration. No row: not read, or not set.",
        &limits,
    );
    gauge(
        out,
        "advice_throughput_max_per_second",
        "Requests of the system per second that the tier allows at its best; of its own where its visits are not known.",
        &most,
    );
    gauge(
        out,
        "advice_change_response_ratio",
        "Time of a request since the last change of the server's pool, accept queue or number of servers, for what it was before at the same loads; verdict says whether that is certain. No row: no change was seen, or nothing at the same load.",
        &changed,
    );
}

/// The tier's name without its host, which has a label of its own.
fn tier(of: &TierAdvice) -> &str {
    of.tier.strip_suffix(&of.host).and_then(|tier| tier.strip_suffix('@')).unwrap_or(&of.tier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_size_has_its_bounds_and_what_is_not_known_has_no_row() {
        let range = json!({ "class": "measured", "value": { "value": 946.5, "low": 940.0, "high": 950.0 } });
        let refused = json!({ "refused": { "reason": "no_plateau" }, "why": "x" });
        let change = |limit: Option<u32>| {
            limit.map(|limit| json!({
                "at_unix_ns": 1, "sizes": [{ "what": "pool", "from": 30, "to": limit }], "verdict": "worse",
                "ratio": { "value": 1.5, "low": 1.42, "high": 1.58 }, "before_s": 0.02, "after_s": 0.03, "load_from": 640.0, "load_to": 905.0,
                "common_s": 300.0, "needed_s": 120.0, "seconds_before": 3600.0, "drops_before": 0.0, "seconds_after": 600.0, "drops_after": 0.0,
                "sentence": "x",
            }))
        };
        let tier = |port: u16, limit: Option<u32>, pool: serde_json::Value, most: &serde_json::Value| {
            json!({
                "tier": "tomcat10@app", "host": "app", "workload": "tomcat10.service", "address": "::", "port": port, "servers": 1,
                "visits": null, "setting": null, "limit": limit, "limit_set_by": null, "learnt_s": 1.0, "seen_to": 61.0,
                "cpu_s_per_request": null, "cpus": 1.0, "critical": "cpu", "pool": pool, "throughput_max": most,
                "in_flight": refused, "expected_loss": refused, "model": "law", "little": null, "change": change(limit), "left_out": [], "points": [],
                "sentence": "",
            })
        };
        let pool = json!({ "class": "measured", "value": { "advised": 26, "at_least": 24, "at_most": 33, "seen_to": 61.0 } });
        let view: AdviceView = serde_json::from_value(json!({
            "learning_since_unix_ns": 1, "made_unix_ns": 2, "nothing": null, "refused_listeners": 0,
            "tiers": [tier(8080, Some(200), pool, &range), tier(81, None, refused.clone(), &refused)],
        }))
        .unwrap();
        let mut out = String::new();
        render(&view, &mut out);
        let rows: Vec<&str> = out.lines().filter(|line| !line.starts_with('#')).collect();
        let whose = r#"host="app",tier="tomcat10",workload="tomcat10.service",listener="[::]:8080""#;
        let size = |bound: &str, n: u32| {
            format!(r#"tailwater_advice_pool_size{{{whose},class="measured",bound="{bound}"}} {n}"#)
        };
        assert_eq!(
            rows,
            [
                size("advised", 26),
                size("at_least", 24),
                size("at_most", 33),
                format!("tailwater_advice_pool_limit{{{whose}}} 200"),
                format!(r#"tailwater_advice_throughput_max_per_second{{{whose},class="measured"}} 946.5"#),
                format!(r#"tailwater_advice_change_response_ratio{{{whose},verdict="worse"}} 1.5"#),
            ]
        );
    }
}
