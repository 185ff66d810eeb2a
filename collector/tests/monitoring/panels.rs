//! Dashboards' queries, asked as Grafana would ask them: it is not in Debian itself.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "helpers of tests: a failure is the test's")]
#![allow(clippy::disallowed_methods, reason = "tests need deadlines")]
#![allow(dead_code, reason = "each test uses a part of it")]

use super::{Server, escape, root};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A query that has found nothing by then finds nothing.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// What Grafana puts in for its variables.
struct Variables(Vec<(String, String)>);

impl Variables {
    fn of(dashboard: &Value, server: &Server) -> Self {
        let mut known = Self(Vec::new());
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            if variable["type"] == "datasource" {
                continue;
            }
            assert_eq!(variable["type"], "query", "{variable}");
            let query = known.put_in(variable["query"]["query"].as_str().unwrap());
            let inner = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
            let (selector, label) = inner.rsplit_once(", ").unwrap();
            let path = format!("/api/v1/label/{label}/values?match[]={}", escape(selector));
            let values: Vec<String> =
                serde_json::from_value(server.json(&path).unwrap()["data"].clone()).unwrap();
            assert!(!values.is_empty(), "{}: no value for ${}: {query}", server.name, variable["name"]);
            // "All" of a variable with several values.
            let escaped: Vec<_> = values.iter().map(|v| v.replace('.', "\\\\.")).collect();
            let name = variable["name"].as_str().unwrap().to_owned();
            println!("  ${name} = {}", values.join(", "));
            known.0.push((name, format!("({})", escaped.join("|"))));
        }
        known
    }

    fn put_in(&self, text: &str) -> String {
        let own = [("__rate_interval", "4s"), ("__interval", "1s"), ("__range", "60s")];
        let all = self.0.iter().map(|(n, v)| (n.as_str(), v.as_str())).chain(own);
        let text = all.fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
        });
        assert!(!text.contains('$'), "a variable that nothing gives: {text}");
        text
    }
}

/// The queries of a dashboard's annotations, each with its name.
pub fn annotations(dashboard: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let all = dashboard["annotations"]["list"].as_array().into_iter().flatten();
    all.filter(|a| a["target"].is_object()).map(|a| (&a["name"], &a["target"]))
}

/// The queries of its panels, each with its title.
pub fn panels(dashboard: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let all = dashboard["panels"].as_array().into_iter().flatten();
    all.flat_map(|p| p["targets"].as_array().into_iter().flatten().map(move |t| (&p["title"], t)))
}

/// Asks these queries as Grafana would; says which returned nothing.
pub fn ask<'a>(
    server: &Server,
    file: &str,
    dashboard: &Value,
    targets: impl Iterator<Item = (&'a Value, &'a Value)>,
    start_s: f64,
    end_s: f64,
) -> Vec<String> {
    println!("{file} on {}", server.name);
    let variables = Variables::of(dashboard, server);
    let mut failed = Vec::new();
    let mut asked = 0;
    for (title, target) in targets {
        let expr = variables.put_in(target["expr"].as_str().unwrap());
        let step = target["interval"].as_str().unwrap_or("1s").replace("50ms", "0.05");
        let once = || {
            if target["instant"] == true {
                server.query(&expr)
            } else {
                server.range(&expr, start_s, end_s, &step)
            }
        };
        // A scrape that took longer than its second leaves nothing behind until the next one.
        let began = Instant::now();
        let found = loop {
            match once() {
                Ok(found) if found.is_empty() && began.elapsed() < ANSWERED_WITHIN => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                found => break found,
            }
        };
        asked += 1;
        let points = |found: &[Value]| -> usize {
            found.iter().map(|s| s["values"].as_array().map_or(1, Vec::len)).sum()
        };
        match found {
            Ok(found) if !found.is_empty() => {
                println!("  {:>3} series {:>6} points  {title}: {expr}", found.len(), points(&found));
            }
            Ok(_) => failed.push(format!("{file} on {}: {title}: nothing for {expr}", server.name)),
            Err(e) => failed.push(format!("{file} on {}: {title}: {expr}: {e}", server.name)),
        }
    }
    assert!(asked > 5, "{file} has {asked} queries");
    failed
}

/// Every dashboard with its file's name.
pub fn dashboards() -> Vec<(String, Value)> {
    let folder = root().join("dashboards/grafana/dashboards");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        (name, serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap())
    };
    files.iter().map(read).collect()
}
