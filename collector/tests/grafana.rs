//! Metrics, remote write, rules and dashboards against a real Prometheus, VictoriaMetrics and Alertmanager, over an incident of the
//! simulated tiers, and over a recorded run of the laboratory, that come in as agents send them. Grafana itself is not in Debian: its
//! dashboards' queries are asked as it would ask.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;
mod monitoring;
mod recorded;
mod simulated;

use common::{QUICK, Serve, unix_ns, wait_for};
use monitoring::panels::{annotations, ask, dashboards, panels};
use monitoring::{Server, program, root};
use serde_json::Value;
use simulated::sim::{At, Do, Sim};
use std::collections::BTreeMap;
use std::path::Path;
use tailwater_model::window::HostWindow;

/// What was sent of the front tier's accept queue: Unix ms of each window to its highest depth.
fn depths(windows: &[HostWindow]) -> BTreeMap<u64, f64> {
    let mine = windows.iter().filter(|w| w.host == "web-1");
    mine.map(|w| (w.index.start_unix_ns() / 1_000_000, w.listeners[&1].depth_max.into())).collect()
}

/// Window by window, what a server has is what the agents sent so far, each at its own time, over the whole incident.
fn check_windows(server: &Server, via: &str, sent: &BTreeMap<u64, f64>) {
    let selector = format!(r#"tailwater_accept_queue_depth{{agg="window",host="web-1",via="{via}"}}"#);
    let stored = wait_for(&format!("13 s of windows in {}", server.name), || {
        let stored = server.raw(&selector, "5m");
        (stored.len() >= 260).then_some(stored)
    });
    let so_far: BTreeMap<u64, f64> =
        sent.iter().take(stored.len()).map(|(at, depth)| (*at, *depth)).collect();
    assert_eq!(stored, so_far, "{} via \"{via}\"", server.name);
    assert_eq!(stored.values().copied().fold(0.0, f64::max), 129.0, "the queue overflowed");
    let times: Vec<u64> = stored.keys().copied().collect();
    assert!(times.windows(2).all(|t| t[1] - t[0] == 50), "every 50 ms");
}

/// A collector, who scrapes it, whom it writes to, and whom it alerts.
struct Monitored {
    serve: Serve,
    prometheus: Server,
    victoria: Server,
    alertmanager: Server,
}

fn monitored(folder: &Path) -> Monitored {
    let rules = root().join("dashboards/prometheus/tailwater.rules.yml");
    let alertmanager = Server::alertmanager(folder);
    let (grpc, http) = (common::free_address(), common::free_address());
    let prometheus = Server::prometheus(folder, http, alertmanager.address, &rules);
    let victoria = Server::victoria_metrics(folder, http);
    let (to_prometheus, to_victoria) = (prometheus.address, victoria.address);
    let file = folder.join("tailwater.toml");
    let text = format!(
        "[[hook]]\nkind = \"alertmanager\"\nurl = \"http://{}\"\n\
         [[remote_write]]\nurl = \"http://{to_prometheus}/api/v1/write\"\nresolution = \"50ms\"\n\
         [[remote_write]]\nurl = \"http://{to_victoria}/api/v1/write\"\nresolution = \"50ms\"\n\
         [[remote_write]]\nurl = \"http://{to_victoria}/api/v1/write?extra_label=via=incidents\"\nresolution = \"incidents\"\n\
         [[remote_write]]\nurl = \"http://{to_victoria}/api/v1/write?extra_label=via=seconds\"\nresolution = \"1s\"\n",
        alertmanager.address
    );
    std::fs::write(&file, text).unwrap();
    let config = ["--config", file.to_str().unwrap(), QUICK[0], QUICK[1]];
    let serve = Serve::start_at(folder, grpc, http, &config);
    Monitored { serve, prometheus, victoria, alertmanager }
}

/// Asks every panel of every dashboard on both servers. Sizes need traffic that is learnt from, which these agents do not tell: that
/// dashboard is asked in `advice.rs`.
fn every_panel(prometheus: &Server, victoria: &Server, start_s: f64) {
    let end_s = unix_ns() as f64 / 1e9;
    let mut failed = Vec::new();
    for (file, dashboard) in dashboards().iter().filter(|(_, d)| d["uid"] != "tailwater-sizes") {
        for server in [prometheus, victoria] {
            let targets = annotations(dashboard).chain(panels(dashboard));
            failed.extend(ask(server, file, dashboard, targets, start_s, end_s));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_recorded_run_of_the_laboratory_fills_every_panel() {
    let folder = tempfile::tempdir().unwrap();
    let Monitored { serve, prometheus, victoria, alertmanager: _alertmanager } = monitored(folder.path());
    let start_s = unix_ns() as f64 / 1e9;
    let playing = recorded::play(&serve, &root().join("tests/golden/haproxy-db-io.trace.zst"));
    assert_eq!(playing.hosts.len(), 4, "{:?}", playing.hosts);
    let closed = || serve.json("/api/v1/incidents?state=closed")["incidents"].as_array().unwrap().clone();
    let incident = wait_for("its incident with its cause", || {
        closed().into_iter().find(|i| i["root"]["resource"] == "io")
    });
    println!("{}", incident["title"]);
    assert_eq!(incident["root"]["host"], "db-1");
    // Both servers have the counter of it: they have had a roll-up after its end.
    for server in [&prometheus, &victoria] {
        wait_for(&format!("the closed incident in {}", server.name), || {
            let found = server.query("max(tailwater_incidents_total) > 0").unwrap();
            (!found.is_empty()).then_some(())
        });
    }
    every_panel(&prometheus, &victoria, start_s);
}

#[test]
fn an_incident_reaches_prometheus_victoriametrics_alertmanager_and_every_panel() {
    let folder = tempfile::tempdir().unwrap();
    let Monitored { serve, prometheus, victoria, alertmanager } = monitored(folder.path());
    let start_s = unix_ns() as f64 / 1e9;
    // A flush of the database's disk: its tier waits, the tiers before it fill, the front one drops. It goes on quietly until the end.
    let sim = Sim { seconds: 120, ..Sim::default() }.act(At::Db, 6000..6700, Do::Disk);
    let simulation = simulated::start(&serve, &sim);
    let windows = &simulation.windows;
    let listed = |query: &str| serve.json(query)["incidents"][0].clone();
    wait_for("an incident", || listed("/api/v1/incidents").is_object().then_some(()));
    let incident = wait_for("it to close with its cause", || {
        Some(listed("/api/v1/incidents?state=closed")).filter(|i| i["root"]["resource"] == "io")
    });
    println!("{}", incident["title"]);

    // Remote write: every window, in both; around the incident the same ones, from 30 s before it, which is all so far.
    let sent = depths(windows);
    check_windows(&prometheus, "", &sent);
    check_windows(&victoria, "", &sent);
    check_windows(&victoria, "incidents", &sent);
    let dropped: f64 = windows.iter().filter_map(|w| w.listeners.get(&1)).map(|l| l.drops as f64).sum();
    assert!(dropped > 0.0);
    for server in [&prometheus, &victoria] {
        let delta = r#"sum(sum_over_time(tailwater_listen_drops_delta{via=""}[5m]))"#;
        let found = server.query(delta).unwrap();
        assert_eq!(found[0]["value"][1].as_str().unwrap().parse(), Ok(dropped), "{}: {found:?}", server.name);
        let total = r#"sum(tailwater_listen_drops_total{via=""})"#;
        wait_for(&format!("the scraped counter in {}", server.name), || {
            let found = server.query(total).unwrap();
            (found.first()?["value"][1].as_str()?.parse() == Ok(dropped)).then_some(())
        });
    }
    let seconds = r#"tailwater_accept_queue_depth{agg="max",host="web-1",via="seconds"}"#;
    let by_second = wait_for("12 seconds", || Some(victoria.raw(seconds, "5m")).filter(|s| s.len() >= 12));
    for (end_ms, max) in &by_second {
        let of_it = sent.range(end_ms - 1000..*end_ms).map(|(_, depth)| *depth);
        assert_eq!(*max, of_it.fold(0.0, f64::max), "the second that ends at {end_ms}");
    }

    // Each answer of the histogram is held against a threshold once: both are of one scrape, so they agree whenever they are asked for.
    let agree =
        "sum by (tier) (tailwater_sla_answers_total) == sum by (tier) (tailwater_response_seconds_count)";
    wait_for("answers in Prometheus", || (!prometheus.query(agree).unwrap().is_empty()).then_some(()));
    assert_eq!(prometheus.query(&agree.replace("==", "!=")), Ok(Vec::new()), "some are not");

    // Rules: loaded, evaluated, and one that fires reaches Alertmanager.
    let groups = prometheus.json("/api/v1/rules").unwrap()["data"]["groups"].as_array().unwrap().clone();
    let evaluated: Vec<&Value> = groups.iter().flat_map(|g| g["rules"].as_array().unwrap()).collect();
    assert!(evaluated.len() >= 15, "{groups:?}");
    for rule in &evaluated {
        assert_eq!(rule["lastError"].as_str().unwrap_or(""), "", "{rule}");
    }
    let fires = |name: &'static str| {
        wait_for(&format!("{name} at Alertmanager"), || {
            let all = alertmanager.json("/api/v2/alerts").unwrap();
            all.as_array().unwrap().iter().find(|a| a["labels"]["alertname"] == name).cloned()
        })
    };
    let alert = fires("TailwaterListenDrops");
    assert_eq!(
        (&alert["labels"]["host"], &alert["labels"]["listener"]),
        (&"web-1".into(), &"0.0.0.0:80".into()),
        "{alert}"
    );
    println!("Alertmanager has {}: {}", alert["labels"], alert["annotations"]["summary"]);

    every_panel(&prometheus, &victoria, start_s);
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let folder = root().join("dashboards/prometheus");
    for arguments in [
        ["check", "rules", "tailwater.rules.yml"],
        ["test", "rules", "tailwater.rules.test.yml"],
        ["check", "rules", "tailwater.advice.rules.yml"],
        ["test", "rules", "tailwater.advice.rules.test.yml"],
        ["check", "rules", "tailwater.sla.rules.yml"],
        ["test", "rules", "tailwater.sla.rules.test.yml"],
    ] {
        let out = program("prometheus", "promtool").current_dir(&folder).args(arguments).output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "promtool {arguments:?}: {text}");
        println!("{text}");
    }
}

/// What Grafana's documentation asks of the classic JSON model, as far as a file can show it.
#[test]
fn the_dashboards_are_of_the_classic_model_and_their_fine_panels_show_every_window() {
    let all = dashboards();
    let uids: BTreeMap<&str, &str> =
        all.iter().map(|(file, d)| (d["uid"].as_str().unwrap(), file.as_str())).collect();
    assert_eq!((all.len(), uids.len()), (5, 5));
    let mut fine = 0;
    for (file, d) in &all {
        assert!(d["id"].is_null(), "{file}: the database gives it");
        assert!((8..=40).contains(&d["uid"].as_str().unwrap().len()), "{file}");
        assert!(d["schemaVersion"].as_u64().unwrap() >= 36, "{file}: data sources by uid since 36");
        // Newer versions ask an annotation's `target`, older ones its `expr`. The value is the time, in ms.
        let annotations = d["annotations"]["list"].as_array().unwrap();
        let incidents = annotations.iter().find(|a| a["name"] == "Incidents").unwrap();
        assert_eq!(
            (&incidents["target"]["expr"], &incidents["useValueForTime"]),
            (&incidents["expr"], &true.into())
        );
        assert!(incidents["expr"].as_str().unwrap().ends_with("_seconds) * 1000"), "{file}");
        let mut ids = std::collections::BTreeSet::new();
        let mut taken = std::collections::BTreeSet::new();
        for panel in d["panels"].as_array().unwrap() {
            let title = &panel["title"];
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{file}: {title}: its id is another's");
            let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            assert!(place("w") > 0 && place("x") + place("w") <= 24, "{file}: {title}: 24 columns");
            for cell in (0..place("w")).flat_map(|x| (0..place("h")).map(move |y| (x, y))) {
                assert!(taken.insert((place("x") + cell.0, place("y") + cell.1)), "{file}: {title} overlaps");
            }
            if panel["type"] == "row" {
                continue;
            }
            assert!(["timeseries", "stat", "table"].contains(&panel["type"].as_str().unwrap()));
            let mut refs = std::collections::BTreeSet::new();
            for target in panel["targets"].as_array().unwrap() {
                assert!(refs.insert(target["refId"].as_str().unwrap()), "{file}: {title}");
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{file}: {title}");
                let expr = target["expr"].as_str().unwrap();
                if expr.contains("agg=\"window\"") || expr.contains("_delta{") {
                    fine += 1;
                    assert_eq!(
                        (&panel["interval"], &target["interval"]),
                        (&"50ms".into(), &"50ms".into()),
                        "{title}"
                    );
                    // Prometheus gives 11,000 points at most.
                    assert_eq!(panel["maxDataPoints"], 11_000, "{file}: {title}");
                }
            }
        }
    }
    assert!(fine >= 25, "{fine}");
}

#[test]
fn what_grafana_is_provisioned_with_is_where_the_documentation_puts_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let value = |text: &str, key: &str| {
        let mut lines = text.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(key));
        let found = lines.next().unwrap_or_else(|| panic!("{key} in {text}")).trim().to_owned();
        assert!(lines.next().is_none(), "{key} twice");
        found
    };
    let (provider, source, documentation) = (
        read("grafana/provisioning/dashboards/tailwater.yml"),
        read("grafana/provisioning/datasources/tailwater.yml"),
        read("README.md"),
    );
    assert_eq!((value(&provider, "apiVersion:"), value(&source, "apiVersion:")), ("1".into(), "1".into()));
    assert_eq!((value(&provider, "type:"), value(&source, "type:")), ("file".into(), "prometheus".into()));
    let path = value(&provider, "path:");
    assert!(documentation.contains(&format!("`grafana/dashboards` to `{path}`")), "{path}");
    // The uid is what a dashboard names its data source by.
    let uid = value(&source, "uid:");
    for (name, dashboard) in dashboards() {
        let text = dashboard.to_string();
        assert!(text.contains(&uid) || text.contains("${datasource}"), "{name}: no data source {uid}");
    }
    // As often as the example scrapes.
    let interval = value(&source, "timeInterval:");
    assert!(
        read("prometheus/prometheus.yml").contains(&format!("scrape_interval: {interval}")),
        "{interval}"
    );
}
