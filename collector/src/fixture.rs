//! An incident for the tests of those who keep, tell and show them.

use tailwater_model::Incident;
use tailwater_model::incident::Sustained;

/// The incident as the API shows it, filled in, with this id and version.
pub(crate) fn incident(id: &str, version: u64) -> Incident {
    let start = 1_794_000_000_000_000_000_u64;
    let ms = |n: u64| start + n * 1_000_000;
    let root = serde_json::json!({
        "host": "app-1", "workload": "tomcat10.service", "tier": "app", "resource": "cpu_neighbour",
        "start_unix_ns": ms(0), "end_unix_ns": ms(700), "peak": 1.0, "unit": "ratio",
        "culprits": [{ "pid": 7, "comm": "burner", "workload": "burner.scope", "share": 0.96 }],
        "evidence": "12 of its tasks waited for a CPU while burner used 96 % of it",
    });
    let hop = |host: &str, workload: &str, tier: &str, listener: &str, role: &str, at: u64| {
        serde_json::json!({
            "host": host, "workload": workload, "tier": tier, "listener": listener, "role": role, "onset_unix_ns": ms(at),
            "queued_max": 279, "workers_busy_max": 150, "workers_limit": 150, "accept_queue_max": 129,
            "accept_queue_limit": 128, "pool_in_flight_max": 150, "pool_open": 150,
        })
    };
    let json = serde_json::json!({
        "id": id, "version": version, "state": "open", "kind": "upstream_ctqo", "severity": "critical",
        "confidence": 0.97, "title": "apache2.service@web-1 dropped 122 connections because burner took the CPU of tomcat10.service@app-1 for 700 ms.",
        "start_unix_ns": ms(0), "end_unix_ns": ms(900), "clock_error_ns": 300_000, "root": root,
        "hops": [
            hop("web-1", "apache2.service", "web", "10.0.0.1:80", "drop", 200),
            hop("app-1", "tomcat10.service", "app", "10.0.0.2:8080", "root", 50),
        ],
        "drops": [{
            "host": "web-1", "workload": "apache2.service", "tier": "web", "listener": "10.0.0.1:80", "count": 122,
            "connections": 118, "reason": "accept_queue_full", "first_unix_ns": ms(400), "last_unix_ns": ms(800),
        }],
        "vlrt": { "syn_retransmits": 122, "expected": 118, "clients": [] },
        "alternatives": [{ "root": root, "confidence": 0.2 }],
    });
    serde_json::from_value(json).expect("the fixture is an incident")
}

/// Retries that keep the incident's drops alive.
pub(crate) fn sustained() -> Sustained {
    let json = serde_json::json!({
        "by": "retries", "since_unix_ns": 1_794_000_000_700_000_000_u64, "until_unix_ns": 1_794_000_030_000_000_000_u64,
        "retry_share": 0.38, "attempts_per_second": 1600.0, "first_attempts_per_second": 1000.0, "capacity_per_second": 1000.0,
        "usual_per_second": 1000.0, "host": "web-1", "workload": "apache2.service", "listener": "10.0.0.1:80",
        "queue_needed": 728, "load_below_per_second": 880.0, "load_below_for_s": 5,
        "way_out": "below 880 requests/s for 5 s, or an accept queue of 728 (it is 128)",
        "evidence": "the root is over, and of 1600 connection attempts a second 38 % had been dropped before",
    });
    serde_json::from_value(json).expect("the fixture is what keeps an incident alive")
}
