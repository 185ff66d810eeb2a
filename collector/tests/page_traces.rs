//! The slowest traces of an incident on the page with a real browser (`tests/page/traces.mjs`): the real command, and an application that sends spans with
//! the SDK of the OpenTelemetry project.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::application::Application;
use common::browser::converse;
use common::{QUICK, Serve, overflow, wait_for};

#[test]
fn privileged_the_slowest_traces_are_listed_with_their_links_and_come_until_all_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tailwater.toml");
    std::fs::write(&file, "[traces]\nlink = \"https://jaeger.example/trace/{trace_id}\"\n").unwrap();
    let serve = Serve::start(folder.path(), &["--config", file.to_str().unwrap(), QUICK[0], QUICK[1]]);
    let application = Application::start(serve.http, "gzip", &["apache2.service", "checkout"], "");
    wait_for("spans", || (serve.metric("tailwater_traces_spans_total{fate=\"kept\"}") > 0).then_some(()));
    let mut application = Some(application);
    let mut id = String::new();
    converse("traces.mjs", serve.http, "", |word| {
        match word {
            // Only now: to a page that is opened 20 s after its incident no more comes.
            "ready" => {
                overflow(&serve, "an agent");
                id = wait_for("the incident to close", || {
                    let listed = serve.json("/api/v1/incidents?state=closed");
                    listed["incidents"][0]["id"].as_str().map(str::to_owned)
                });
                Some(serde_json::Value::from(id.as_str()).to_string())
            }
            "gathering" => {
                application.take().map(Application::end);
                Some("\"no more comes\"".to_owned())
            }
            "settled" => Some(serve.json(&format!("/api/v1/incidents/{id}/traces")).to_string()),
            _ => None,
        }
    });
}
