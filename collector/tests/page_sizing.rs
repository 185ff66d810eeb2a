//! The page's *Sizing* with a real browser, on advice made here in the API's shape: what traffic would have to be learnt for each
//! of these answers is the learner's test, not the page's. What the browser does is in `tests/page/sizing.mjs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use axum::Json;
use axum::routing::get;
use common::browser::browse;
use common::shows;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tailwater::alert::{Handle, api};
use tailwater::clock::Clock;
use tailwater::counters::Metrics;
use tailwater::live::events::Events;
use tailwater::serve::App;
use tailwater::serve::front::Front;
use tailwater::serve::gate::{Gate, Rules};
use tokio_util::sync::CancellationToken;

/// Any moment in 2026.
const SINCE_UNIX_NS: u64 = 1_794_000_000_000_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;

/// Answers per second of the universal scalability law with S0 = 2 ms, α = 0.5 ms and β = 6 µs.
fn law(n: f64) -> f64 {
    n / (2e-3 + 5e-4 * (n - 1.0) + 6e-6 * n * (n - 1.0))
}

/// A curve that rises to `flat` and stays there.
fn plateau(n: f64, flat: f64) -> f64 {
    (n * 130.0).min(flat)
}

fn points(at: &[f64], of: impl Fn(f64) -> f64) -> Value {
    at.iter().map(|n| json!({ "in_flight": n, "throughput": of(*n), "error": 6.0 + n / 3.0 })).collect()
}

fn refused(reason: &str, why: &str) -> Value {
    json!({ "refused": { "reason": reason }, "why": why })
}

fn told(class: &str, value: &Value) -> Value {
    json!({ "class": class, "value": value })
}

/// A listener with everything that is known of the first one; `changes` are what differs.
fn tier(changes: &Value) -> Value {
    let range = |value: f64, low: f64, high: f64| json!({ "value": value, "low": low, "high": high });
    let mut all = json!({
        "tier": "tomcat10@app", "host": "app", "workload": "tomcat10.service", "address": "::", "port": 8080, "servers": 1,
        "visits": 1.0, "setting": "maxThreads of the Connector in server.xml", "limit": 200, "learnt_s": 11_531.0, "seen_to": 61.0,
        "cpu_s_per_request": range(0.00212, 0.0019, 0.0024), "cpus": 2.0, "critical": "cpu",
        "pool": told("measured", &json!({ "advised": 16, "at_least": 13, "at_most": 22, "seen_to": 61.0 })),
        "throughput_max": told("measured", &range(1_203.0, 1_180.0, 1_222.0)), "in_flight": told("measured", &range(15.8, 14.9, 17.0)),
        "expected_loss": told("measured", &json!(0.0004)), "model": "law", "little": { "in_flight": 7.9, "by_callers": 8.1, "holds": true },
        "left_out": [
            { "taint": "downstream", "seconds": 412.0 }, { "taint": "neighbour", "seconds": 75.0 }, { "taint": "incident", "seconds": 38.0 },
            { "taint": "steal", "seconds": 9.0 }, { "taint": "io", "seconds": 2.0 },
        ],
        "points": points(&[1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 14.0, 18.0, 22.0, 29.0, 38.0, 48.0, 61.0], law),
        "sentence": "tomcat10@app:8080: 16 at a time are enough (13 to 22 cost ≤ 2 %): maxThreads of the Connector in server.xml 16; \
            measured, 3 h 12 min of traffic, up to 61 in flight; CPU is critical; it is 200 now",
    });
    for (name, value) in changes.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

fn change(verdict: &str, sentence: &str) -> Value {
    json!({ "at_unix_ns": SINCE_UNIX_NS + HOUR_NS, "verdict": verdict, "sentence": sentence })
}

/// One of each class, and two without a size.
fn all_of_it() -> Value {
    let open = json!({
        "tier": "mariadb@db", "host": "db", "workload": "mariadb.service", "address": "10.0.0.9", "port": 3306, "limit": null, "servers": 2,
        "setting": "max_connections", "visits": null, "seen_to": 240.0, "little": { "in_flight": 31.0, "by_callers": 52.0, "holds": false },
        "pool": told("plateau", &json!({ "advised": 18, "at_least": 15, "at_most": null, "seen_to": 240.0 })),
        "model": "plateau", "cpu_s_per_request": null, "cpus": null, "left_out": [],
        "in_flight": refused("no_penalty", "throughput is not seen to fall with more in flight, so no number is the best"),
        "throughput_max": told("plateau", &json!({ "value": 1_900.0, "low": 1_874.0, "high": 1_921.0 })),
        "expected_loss": refused("no_penalty", "throughput is not seen to fall with more in flight"),
        "points": points(&[1.0, 2.0, 4.0, 8.0, 15.0, 18.0, 30.0, 62.0, 120.0, 240.0], |n| plateau(n, 1_900.0)),
        "sentence": "mariadb@db:3306: 18 at a time are enough (more cost nothing up to 240): its callers' pools together 36, and \
            max_connections above that; in each of 2 servers; plateau, 3 h 12 min of traffic, up to 240 in flight; CPU is critical; limit unknown",
    });
    let bound = json!({
        "tier": "httpd@web", "host": "web", "workload": "apache2.service", "port": 80, "setting": null, "limit": null, "seen_to": 12.0,
        "critical": null, "pool": told("extrapolated", &json!({ "advised": 40, "at_least": 40, "at_most": null, "seen_to": 12.0 })),
        "points": points(&[1.0, 2.0, 5.0, 12.0], |n| n * 90.0),
        "in_flight": refused("not_saturated", "no hardware was full (0.4 of its quota at the most): where throughput ends was not seen"),
        "throughput_max": refused("not_saturated", "no hardware was full (0.4 of its quota at the most): where throughput ends was not seen"),
        "expected_loss": refused("not_saturated", "where throughput ends was not seen"), "little": null,
        "model": "mva", "sentence": "httpd@web:80: at least 40 at a time (a lower bound); extrapolated, 3 h 12 min of traffic, up to 12 in flight; \
            no hardware was seen full; limit unknown",
        "change": change("too_little", "servers 1 → 2 since 2026-11-06 23:50 UTC: not enough traffic yet: 40 s of 2 min 0 s at the same loads"),
    });
    let headroom = json!({
        "per_second": 610.0, "cpu_ratio": 0.65, "full_at": 1.54, "places": 329, "overflows_after_s": 0.54, "outlasted": false,
        "without_one": { "servers": 1, "per_second": 940.0, "days": 7, "cpu_ratio": 1.16 },
    });
    let worse = json!({ "headroom": headroom, "change": change(
        "worse",
        "maxThreads of the Connector in server.xml 16 → 200 since 2026-11-06 23:05 UTC: worse: a request takes 30.0 ms in place of 20.0 ms at 640 to \
         905 requests/s (1.50 times, 1.42 to 1.58); to restore: maxThreads of the Connector in server.xml 16",
    ) });
    let mut tiers = vec![tier(&worse), tier(&open), tier(&bound)];
    for (port, reason, why) in [
        (
            6379,
            "not_saturated",
            "no hardware was full (0.31 of its quota at the most): where throughput ends was not seen",
        ),
        (9000, "too_few_loads", "2 different numbers in flight were seen, and 6 are needed"),
    ] {
        let pool = refused(reason, why);
        tiers.push(tier(&json!({
            "tier": "cache@db", "host": "db", "workload": "redis.service", "port": port, "pool": pool, "seen_to": 0.0, "learnt_s": 17.0,
            "points": [], "sentence": format!("cache@db:{port}: no size: {why}; 17 s of traffic, and 1 min 15 s left out (not measured)"),
            "left_out": [{ "taint": "not_measured", "seconds": 75.0 }],
        })));
    }
    let stealing = json!([{
        "host": "db", "cgroup": "/system.slice", "thief": "reports.service", "victim": "mariadb.service", "seen_unix_ns": SINCE_UNIX_NS + HOUR_NS, "seconds": 62.0,
        "cpus": 2.0, "thief_ratio": 0.8, "victim_ratio": 0.2, "due_ratio": 0.5, "thief_runnable": 16.0, "victim_runnable": 4.0, "thief_runnable_max": 4, "after": null,
        "sentence": "reports.service@db takes CPU from mariadb.service, which the scheduler has in the same group (/system.slice)",
    }]);
    json!({
        "learning_since_unix_ns": SINCE_UNIX_NS, "made_unix_ns": SINCE_UNIX_NS + 4 * HOUR_NS, "nothing": null, "stealing": stealing, "tiers": tiers,
        "refused_listeners": 3,
    })
}

/// The advice before anything was learnt, and while nothing is enough.
fn nothing_yet(since: Option<u64>, nothing: Option<&str>) -> Value {
    json!({ "learning_since_unix_ns": since, "made_unix_ns": null, "nothing": nothing, "tiers": [], "refused_listeners": 0 })
}

/// A collector that shows a recording without windows.
fn app() -> App {
    let metrics = Arc::new(Metrics::default());
    let shown = shows::shown(1 << 20, Events::default(), &metrics);
    shows::app(shown, metrics, SINCE_UNIX_NS..SINCE_UNIX_NS + 4 * HOUR_NS, CancellationToken::new())
}

#[test]
fn privileged_sizes_are_shown_with_what_they_rest_on_and_what_has_none_with_its_reason() {
    let advice = Arc::new(Mutex::new(nothing_yet(
        None,
        Some("no listener had a request whose windows and name are known"),
    )));
    let runtime = common::runtime();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let said = Arc::clone(&advice);
    let answer = get(move || std::future::ready(Json(said.lock().unwrap().clone())));
    // Before the collector's own routes: everything else is theirs.
    let alerting = api::routes(Handle::default(), |_| String::new(), Arc::new(|_: &str| None));
    let routes = axum::Router::new().route("/api/v1/advice", answer).merge(alerting);
    let routes = routes.fallback_service(app().routes());
    let gate = Arc::new(Gate::new(Rules::open(address.port(), false), Arc::default(), Clock::default()));
    let front = Front { gate, names: Vec::new(), tls: None, metrics: Arc::default() };
    runtime.spawn(front.serve(listener, routes, CancellationToken::new()));
    let mut runtime = Some(runtime);
    browse("sizing.mjs", address, 0, |word| match word {
        "learn" => *advice.lock().unwrap() = nothing_yet(Some(SINCE_UNIX_NS), None),
        "advise" => *advice.lock().unwrap() = all_of_it(),
        "stop" => runtime.take().unwrap().shutdown_background(),
        _ => {}
    });
    assert!(runtime.is_none(), "the page was seen without a collector");
}
