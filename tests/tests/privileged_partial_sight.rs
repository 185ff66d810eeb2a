//! The application tier has no agent: a cause behind it is still found from what its neighbours see, less surely, and it is named as
//! unobserved; a cause in it stays unexplained, at its address.

#![allow(clippy::disallowed_methods, reason = "the test measures with its own clock")]

use anyhow::{Context, Result};
use serde_json::Value;
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::{Lab, LabConfig};
use tailwater_tests::stack::Tier;
use tailwater_tests::system::{Incident, System};

/// The usual rates have to be known before they are compared.
fn the_incident(system: &System, cell: &str) -> Result<Incident> {
    Ok(system.provoke(cell, 10_000, Duration::from_secs(4))?.incident)
}

fn is_address(host: &Value) -> bool {
    host.as_str().is_some_and(|h| h.parse::<std::net::IpAddr>().is_ok())
}

#[test]
fn privileged_an_unobserved_tier_is_crossed_and_never_guessed_about() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lab = Lab::start(LabConfig::default())?;
    let system = System::around_with(lab, folder.path(), &[], |tier| (tier != Tier::App).then(Vec::new))?;

    let dark = experiment("a cause behind it", || {
        let behind = the_incident(&system, "db-io")?;
        assert_eq!(behind["kind"], "upstream_ctqo", "{behind:#}");
        assert_eq!(behind["root"]["host"], "db-1", "{behind:#}");
        assert_eq!(behind["root"]["resource"], "io", "{behind:#}");
        assert_eq!(behind["root"]["culprits"][0]["comm"], "logflush", "{behind:#}");
        let hops: Vec<&Value> = behind["hops"].as_array().into_iter().flatten().collect();
        assert_eq!(hops.len(), 3, "{behind:#}");
        assert_eq!(
            (&hops[0]["host"], &hops[0]["role"], &hops[0]["observed"]),
            (&"web-1".into(), &"drop".into(), &true.into())
        );
        let dark = hops[1];
        assert!(
            is_address(&dark["host"]) && dark["role"] == "pushback" && dark["observed"] == false,
            "{behind:#}"
        );
        assert!(dark["listener"].as_str().is_some_and(|l| l.ends_with(":8080")), "{dark}");
        assert!(behind["title"].as_str().is_some_and(|t| t.contains("unpaired")), "{behind:#}");
        let confidence = behind["confidence"].as_f64().context("confidence")?;
        assert!((0.3..0.75).contains(&confidence), "sure of {confidence} with a tier unseen: {behind:#}");
        let others = behind["alternatives"].as_array().into_iter().flatten();
        assert!(
            others.map(|a| &a["root"]["host"]).any(|h| *h == dark["host"]),
            "the unseen tier may be it: {behind:#}"
        );
        Ok(dark["host"].clone())
    })?;

    experiment("a cause in it", || {
        let inside = the_incident(&system, "app-pause")?;
        assert_eq!(inside["root"]["host"], dark, "{inside:#}");
        assert_eq!(inside["root"]["resource"], "unexplained", "{inside:#}");
        assert_eq!(inside["root"]["culprits"].as_array().map(Vec::len), Some(0));
        assert!(inside["confidence"].as_f64().is_some_and(|c| c <= 0.5), "{inside:#}");
        assert!(inside["title"].as_str().is_some_and(|t| t.contains("no agent observes it")), "{inside:#}");
        Ok(())
    })
}
