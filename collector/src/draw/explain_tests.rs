//! The text for a known incident, and its bounds.

use super::*;
use crate::fixture::incident;
use crate::live::timeline::ResourceRow;

fn ramp(n: usize, top: f64) -> Vec<Option<f64>> {
    (0..n).map(|k| if k < 4 { Some(0.0) } else { Some(top * (k - 3) as f64 / (n - 4) as f64) }).collect()
}

fn timeline(n: usize) -> Timeline {
    let i = incident("01A", 1);
    let mut depth = ramp(n, 129.0);
    depth[1] = None;
    let tiers = i
        .hops
        .iter()
        .map(|h| TierRow {
            host: h.host.clone(),
            workload: h.workload.clone(),
            tier: h.tier.clone(),
            listener: h.listener.clone(),
            queued_requests: ramp(n, 279.0),
            accept_queue_depth: depth.clone(),
            workers_busy: ramp(n, 150.0),
            drops: if h.role == Role::Drop { ramp(n, 31.0) } else { vec![Some(0.0); n] },
            calls_in_flight: vec![Some(0.0); n],
            resource: Vec::new(),
            retried: Vec::new(),
        })
        .collect();
    Timeline {
        start_unix_ns: i.start_unix_ns - 200_000_000,
        window_ns: 50_000_000,
        tiers,
        resource: Some(ResourceRow { metric: "run_queue_wait_tasks".into(), values: ramp(n, 12.0) }),
    }
}

#[test]
fn no_name_is_a_command_to_the_terminal() {
    let mut hostile = incident("01A", 1);
    let name = "a\u{1b}]0;owned\u{7}\u{9b}2J".to_owned();
    (hostile.title, hostile.root.workload, hostile.root.host) = (name.clone(), name.clone(), name.clone());
    hostile.root.evidence.clone_from(&name);
    for hop in &mut hostile.hops {
        (hop.host, hop.workload) = (name.clone(), name.clone());
    }
    let got = text(&hostile, &timeline(24));
    assert!(got.chars().all(|c| c == '\n' || !c.is_control()), "{got:?}");
    assert!(got.contains("a\\u{1b}]0;owned\\u{7}\\u{9b}2J"), "{got}");
}

#[test]
fn the_story_reads_from_root_to_drop_on_one_axis() {
    let got = text(&incident("01A", 1), &timeline(24));
    for line in [
        "Root      cpu_neighbour at tomcat10@app-1, 21:20:00.000 to 21:20:00.700 (700 ms), confidence 0.97",
        "Culprit    96 %  burner [7]  in burner.scope",
        "Chain     root     21:20:00.050 tomcat10@app-1 10.0.0.2:8080",
        "       -> drop     21:20:00.200 apache2@web-1 10.0.0.1:80",
        "50 ms per column    21:19:59.800",
        "  CPU wait       12     ▁▁▂▂▂▃▃▄▄▄▅▅▆▆▆▇▇███",
        "  accept q. 129/128  ·",
        "  drops          31",
        "Clocks    agree within 0.3 ms; onsets closer than that have no known order",
    ] {
        assert!(got.contains(line), "missing: {line}\n{got}");
    }
    let queues: Vec<usize> =
        got.lines().filter(|l| l.contains("accept q.")).map(|l| l.find('█').unwrap()).collect();
    assert_eq!(queues[0], queues[1], "one axis\n{got}");
}

#[test]
fn each_hop_tells_its_congestion_point_or_why_it_has_none() {
    let mut i = incident("01A", 1);
    assert!(!text(&i, &timeline(24)).contains("N*"), "an incident of an older collector has no curve");
    let known = HopCongestion {
        state: CongestionState::Known,
        congestion_point: Some(14.2),
        throughput_usual: Some(52.1),
        coverage: 1.0,
        load_max: 278.6,
        throughput: 0.4,
        windows_beyond: Some(12),
        windows_frozen: Some(9),
    };
    let unknown = HopCongestion {
        state: CongestionState::StillRising,
        congestion_point: None,
        throughput_usual: None,
        windows_beyond: None,
        windows_frozen: None,
        ..known
    };
    i.hops[1].congestion = Some(known);
    i.hops[0].congestion = Some(unknown);
    let got = text(&i, &timeline(24)).split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "N* 14 requests: load 279, 0.4 answers in 50 ms where 52 are usual, stood still in 9 windows",
        "N* unknown, never congested before: load 279, 0.4 answers in 50 ms",
    ] {
        assert!(got.contains(line), "missing: {line}\n{got}");
    }
}

#[test]
fn no_line_is_wider_than_a_terminal_however_long_the_incident() {
    for n in [1, 5, 24, 61, 200, 1240] {
        let mut t = timeline(24);
        let stretch = |v: &mut Vec<Option<f64>>| *v = ramp(n.max(5), 100.0);
        t.tiers.iter_mut().for_each(|r| {
            let _: [(); 4] =
                [&mut r.queued_requests, &mut r.accept_queue_depth, &mut r.workers_busy, &mut r.drops]
                    .map(stretch);
        });
        let got = text(&incident("01A", 1), &t);
        for line in got.lines() {
            // The chain's first lines hold names, which are as long as they are.
            if !line.starts_with("Root") {
                assert!(line.chars().count() <= WIDTH, "{n}: {} columns: {line}", line.chars().count());
            }
        }
    }
}

#[test]
fn without_windows_the_facts_are_still_told() {
    let mut t = timeline(24);
    t.tiers.clear();
    t.resource = None;
    let got = text(&incident("01A", 1), &t);
    assert!(
        got.contains("no longer in the collector's memory") && got.contains("122 packets dropped"),
        "{got}"
    );
}

#[test]
fn an_order_that_clocks_leave_open_and_a_tier_that_nobody_observes_are_said() {
    let mut i = incident("01A", 1);
    assert!(!text(&i, &timeline(24)).contains("flow of requests"));
    i.order_unknown = true;
    i.hops[0].order_to_root = Some(Order::Unknown);
    i.hops[1].observed = false;
    i.hops[1].queued_max = 77;
    let got = text(&i, &timeline(24)).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "order to the root unknown",
        "unpaired: no agent sees its other end; its caller had 77 calls to it in flight",
        "the flow of requests decided",
    ] {
        assert!(got.contains(part), "missing: {part}\n{got}");
    }
}

#[test]
fn what_keeps_it_alive_is_told_apart_from_the_root_with_the_way_out() {
    let mut i = incident("01A", 1);
    assert!(!text(&i, &timeline(24)).contains("Sustained"));
    i.sustained = Some(crate::fixture::sustained());
    i.end_unix_ns += 30_000_000_000;
    i.hops[0].life = serde_json::from_value(serde_json::json!({
        "start_unix_ns": i.start_unix_ns, "end_unix_ns": i.end_unix_ns, "windows_missing": 0, "queued_max": 280,
        "workers_busy_max": 150, "accept_queue_max": 129, "received": 31_000, "answered": 30_900, "dropped": 17_321,
        "now": { "start_unix_ns": i.end_unix_ns, "queued": 278, "workers_busy": 149, "accept_queue": 129 },
    }))
    .unwrap();
    let got = text(&i, &timeline(24)).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Root cpu_neighbour at tomcat10@app-1",
        "Sustained kept alive by retries since 21:20:00.700, when the root was over: 38 % of what comes at 10.0.0.1:80 of apache2@web-1 came before",
        "Way out below 880 requests/s for 5 s, or an accept queue of 728 (it is 128)",
        "workers 150/150, accept queue 129/128",
        "over its whole life queued 280, 31000 requests received, 30900 answered, 17321 packets dropped",
        "queued 278, workers 149/150, accept queue 129/128",
    ] {
        assert!(got.contains(part), "missing: {part}\n{got}");
    }
}

#[test]
fn the_slowest_request_of_a_tier_is_told_with_its_way() {
    let mut i = incident("01A", 1);
    let of = |took_ms: u64| {
        let end = i.start_unix_ns;
        serde_json::json!({
            "end_unix_ns": end, "took_ms": took_ms, "retried_ms": 0, "unread_ms": 12, "queued": true,
            "inside_ms": took_ms - 12, "calls_known": true, "calls": [{
                "depth": 1, "host": "db-1", "workload": "mariadb.service", "tier": "mariadb", "after_ms": 2, "took_ms": 900,
            }],
        })
    };
    let slowest = serde_json::from_value(serde_json::json!([of(1_312), of(1_200)])).unwrap();
    i.hops[0].slowest = slowest;
    let got = text(&i, &timeline(24)).split_whitespace().collect::<Vec<_>>().join(" ");
    let told = "slowest of 2 requests: 1312 ms, answered at 21:20:00.000: 12 ms unread since before it was accepted, 1300 ms inside; \
                900 ms in a call to mariadb@db-1";
    assert!(got.contains(told), "{got}");
    let read: tailwater_model::Incident = serde_json::from_str(&serde_json::to_string(&i).unwrap()).unwrap();
    assert_eq!(read, i, "it reads back as itself");
}

#[test]
fn the_places_in_the_code_of_a_root_are_told_beneath_it() {
    let mut i = incident("01A", 1);
    assert!(!text(&i, &timeline(24)).contains("Code  "), "an incident without any");
    let functions: Vec<String> = (1..=9).map(|n| format!("f{n}")).collect();
    let code = serde_json::json!([
        { "doing": "running", "pid": 7, "comm": "burner", "percent": 78, "samples": 39, "frames": functions },
        { "doing": "running", "pid": 7, "comm": "burner", "percent": 12, "samples": 6, "frames": ["f1", "f2"], "cut": true },
        { "doing": "waiting", "pid": 7, "comm": "burner", "percent": 10, "samples": 5, "frames": [] },
    ]);
    i.root.code = serde_json::from_value(code).unwrap();
    let got = text(&i, &timeline(24)).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Code 78 % of the CPU samples of burner [7]: f1 < f2 < f3 < f4 < f5 < f6 < f7 < f8 < …",
        "Code 12 % of the CPU samples of burner [7]: f1 < f2 < …",
        "Code 10 % of the waiting threads of burner [7]: the kernel",
    ] {
        assert!(got.contains(part), "missing: {part}\n{got}");
    }
    let read: tailwater_model::Incident = serde_json::from_str(&serde_json::to_string(&i).unwrap()).unwrap();
    assert_eq!(read, i, "it reads back as itself");
}

#[test]
fn a_host_that_no_agent_observes_is_told_by_its_address_alone() {
    let mut i = incident("01A", 1);
    let address = "10.77.0.3";
    let unobserved = |host: &mut String, workload: &mut String| {
        address.clone_into(host);
        workload.clear();
    };
    i.sustained = Some(crate::fixture::sustained());
    for root in [&mut i.root, &mut i.alternatives[0].root] {
        unobserved(&mut root.host, &mut root.workload);
    }
    for hop in &mut i.hops {
        unobserved(&mut hop.host, &mut hop.workload);
        hop.observed = false;
    }
    for drops in &mut i.drops {
        unobserved(&mut drops.host, &mut drops.workload);
    }
    if let Some(sustained) = &mut i.sustained {
        unobserved(&mut sustained.host, &mut sustained.workload);
    }
    let mut t = timeline(24);
    for tier in &mut t.tiers {
        unobserved(&mut tier.host, &mut tier.workload);
    }
    let got = text(&i, &t);
    assert!(!got.split_whitespace().any(|word| word.starts_with('@')), "{got}");
    let lines: Vec<&str> = got.lines().collect();
    assert!(lines.contains(&address), "the row of its resource\n{got}");
    let words = got.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Root cpu_neighbour at 10.77.0.3, 21:20:00.000",
        "of what comes at 10.0.0.1:80 of 10.77.0.3 came before",
        "Chain root 21:20:00.050 10.77.0.3 10.0.0.2:8080",
        "122 packets dropped at 10.0.0.1:80 of 10.77.0.3 (accept_queue_full)",
        "10.77.0.3 10.0.0.1:80 queued",
        "Or cpu_neighbour at 10.77.0.3, confidence 0.20",
    ] {
        assert!(words.contains(part), "missing: {part}\n{got}");
    }
}
