//! `tailwater advise --load 1.5`: which tier gives way first under more load. Scales what the collector tells of the present one; asks nobody.

use crate::text::line;
use tailwater_model::advice::{AdviceView, Headroom, TierAdvice};

/// Part of its CPUs in use from which a tier has no room for chance: queues are long there (M/M/1 has ten waiting at 0.91).
const NEARLY_FULL: f64 = 0.9;

/// A row for each listener of which something came lately, and which of them gives way first.
pub(super) fn text(view: &AdviceView, load: f64) -> String {
    let known: Vec<(&TierAdvice, &Headroom)> =
        view.tiers.iter().filter_map(|of| Some((of, of.headroom.as_ref()?))).collect();
    if known.is_empty() {
        return "no listener had a request in the last ten minutes: there is no load to scale\n".to_owned();
    }
    let mut text = format!("At {load} times the load of now:\n");
    let name = |of: &TierAdvice| line(&of.name());
    let width = known.iter().map(|(of, _)| name(of).chars().count()).max().unwrap_or(0);
    for (of, has) in &known {
        let cpu = match has.cpu_ratio {
            None => "CPU unknown".to_owned(),
            Some(ratio) if ratio * load >= 1.0 => {
                format!("CPU full from {:.2} times on", has.full_at.unwrap_or(0.0))
            }
            Some(ratio) => format!("CPU {:.0} %", ratio * load * 100.0),
        };
        text.push_str(&format!(
            "  {:<width$}  {:>6.0}/s  {cpu:<27}  {}\n",
            name(of),
            has.per_second * load,
            standstill(has, load)
        ));
        if let Some(short) = without_one(has, load) {
            text.push_str(&format!("  {:<width$}  {short}\n", ""));
        }
    }
    text.push_str(&first(&known, load));
    text
}

/// What the other servers of a tier do not bear when one is away.
fn without_one(has: &Headroom, load: f64) -> Option<String> {
    let of = has.without_one.filter(|of| of.cpu_ratio * load >= NEARLY_FULL)?;
    let days =
        if of.days == 1 { "of the day that was seen".to_owned() } else { format!("of {} days", of.days) };
    Some(format!(
        "with one of its {} servers away, the CPU of the rest is {:.0} % in use in the busiest minute {days} ({:.0}/s)",
        of.servers + 1,
        of.cpu_ratio * load * 100.0,
        of.per_second * load
    ))
}

fn standstill(has: &Headroom, load: f64) -> String {
    match (has.overflows_after_s, has.places) {
        (Some(s), Some(places)) => {
            format!("overflows in a standstill of {} ({places} places)", time(s / load))
        }
        _ if has.outlasted => "its callers cannot fill its queue".to_owned(),
        _ => "when its queue overflows is not known".to_owned(),
    }
}

/// What gives way first: CPU as the load rises, and the shortest standstill.
fn first(known: &[(&TierAdvice, &Headroom)], load: f64) -> String {
    let mut parts = Vec::new();
    let full = known.iter().filter_map(|(of, has)| Some((of, has.full_at?)));
    if let Some((of, full_at)) = full.min_by(|a, b| a.1.total_cmp(&b.1)) {
        let name = line(&of.name());
        parts.push(if full_at <= load {
            format!("the CPU of {name}, full from {full_at:.2} times the load of now")
        } else if full_at * NEARLY_FULL <= load {
            format!("the CPU of {name}, nearly full ({full_at:.2} times the load of now is all that it can)")
        } else {
            format!("no CPU (that of {name} is full at {full_at:.2} times the load of now)")
        });
    }
    let queues = known.iter().filter_map(|(of, has)| Some((of, has.overflows_after_s?)));
    if let Some((of, s)) = queues.min_by(|a, b| a.1.total_cmp(&b.1)) {
        parts.push(format!(
            "the accept queue of {}, in a standstill of {}",
            line(&of.name()),
            time(s / load)
        ));
    }
    if parts.is_empty() { String::new() } else { format!("First: {}.\n", parts.join("; and ")) }
}

fn time(s: f64) -> String {
    if s < 1.0 { format!("{:.0} ms", s * 1000.0) } else { format!("{s:.1} s") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn tier(name: &str, host: &str, port: u16, headroom: serde_json::Value) -> TierAdvice {
        serde_json::from_value(serde_json::json!({
            "tier": format!("{name}@{host}"), "host": host, "workload": name, "address": "::", "port": port, "servers": 1,
            "visits": null, "setting": null, "limit": null, "limit_set_by": null, "learnt_s": 17.0, "seen_to": 4.0,
            "cpu_s_per_request": null, "cpus": null, "critical": null,
            "pool": { "refused": { "reason": "x" }, "why": "x" }, "throughput_max": { "refused": { "reason": "x" }, "why": "x" },
            "in_flight": { "refused": { "reason": "x" }, "why": "x" }, "expected_loss": { "refused": { "reason": "x" }, "why": "x" },
            "model": "none", "headroom": headroom, "ceilings": [], "change": null, "little": null, "left_out": [], "points": [], "sentence": "x",
        }))
        .unwrap()
    }

    #[test]
    fn what_gives_way_first_is_named() {
        let has = |per_second: f64,
                   cpu: Option<f64>,
                   places: Option<u32>,
                   after: Option<f64>,
                   outlasted: bool| {
            serde_json::json!({
                "per_second": per_second, "cpu_ratio": cpu, "full_at": cpu.map(|cpu| 1.0 / cpu), "places": places,
                "overflows_after_s": after, "outlasted": outlasted,
                "without_one": (places == Some(289)).then(|| serde_json::json!({ "servers": 1, "per_second": 1040.0, "days": 7, "cpu_ratio": 1.16 })),
            })
        };
        let view = AdviceView {
            tiers: vec![
                tier("apache2", "web-1", 80, has(930.0, Some(0.38), Some(279), Some(0.3), false)),
                tier("tomcat", "app-1", 8080, has(930.0, Some(0.52), Some(289), None, true)),
                tier("mariadb", "db-1", 3306, has(3000.0, Some(0.7), None, None, false)),
                tier("idle", "app-1", 9, serde_json::Value::Null),
            ],
            ..AdviceView::default()
        };
        let expect = "\
At 1.5 times the load of now:
  apache2@web-1:80     1395/s  CPU 57 %                     overflows in a standstill of 200 ms (279 places)
  tomcat@app-1:8080    1395/s  CPU 78 %                     its callers cannot fill its queue
                     with one of its 2 servers away, the CPU of the rest is 174 % in use in the busiest minute of 7 days (1560/s)
  mariadb@db-1:3306    4500/s  CPU full from 1.43 times on  when its queue overflows is not known
First: the CPU of mariadb@db-1:3306, full from 1.43 times the load of now; and the accept queue of apache2@web-1:80, in a standstill of 200 ms.
";
        assert_eq!(text(&view, 1.5), expect, "{}", text(&view, 1.5));
        let told = text(&view, 1.3);
        assert!(told.contains("First: the CPU of mariadb@db-1:3306, nearly full (1.43 times"), "{told}");
        assert!(
            text(&view, 1.0).contains("First: no CPU (that of mariadb@db-1:3306 is full at 1.43 times"),
            "{told}"
        );
        assert!(text(&AdviceView::default(), 2.0).contains("no load to scale"));
    }
}
