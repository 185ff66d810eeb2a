//! Holds the line that ARCHITECTURE.md draws between the crates: who may depend on whom, and what the pure crates must not see. And
//! that programs and tests are built of the same crates with the same features, which are compiled once then, and no test is left unbuilt.

use cargo_metadata::{DependencyKind, MetadataCommand, Package, Target};
use std::collections::BTreeSet;
use std::process::Command;

fn packages() -> Vec<Package> {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .other_options(vec!["--offline".into(), "--locked".into()])
        .exec()
        .expect("cargo metadata reads this workspace");
    metadata.workspace_packages().into_iter().cloned().collect()
}

fn direct(package: &Package, kinds: &[DependencyKind]) -> BTreeSet<String> {
    package.dependencies.iter().filter(|d| kinds.contains(&d.kind)).map(|d| d.name.clone()).collect()
}

fn check(crate_name: &str, allowed_workspace_crates: &[&str]) {
    let all = packages();
    let ours: BTreeSet<String> = all.iter().map(|p| p.name.to_string()).collect();
    let package = all.iter().find(|p| p.name.as_str() == crate_name).expect("crate is in the workspace");
    let used: BTreeSet<String> = direct(package, &[DependencyKind::Normal, DependencyKind::Build])
        .intersection(&ours)
        .cloned()
        .collect();
    let allowed: BTreeSet<String> = allowed_workspace_crates.iter().map(|s| (*s).to_owned()).collect();
    assert_eq!(used, allowed, "workspace crates that {crate_name} builds on");
}

#[test]
fn the_kernel_side_stands_alone() {
    check("tailwater-ebpf", &[]);
}

#[test]
fn the_wire_format_stands_alone() {
    check("tailwater-proto", &[]);
}

#[test]
fn the_model_stands_alone() {
    check("tailwater-model", &[]);
}

#[test]
fn the_analysis_knows_the_model_only() {
    check("tailwater-analysis", &["tailwater-model"]);
}

#[test]
fn the_sizing_stands_alone() {
    check("tailwater-sizing", &[]);
}

#[test]
fn the_agent_knows_kernel_and_wire_only() {
    check("tailwater-agent", &["tailwater-ebpf", "tailwater-proto"]);
}

#[test]
fn the_collector_knows_wire_model_analysis_and_sizing_only() {
    check("tailwater", &["tailwater-analysis", "tailwater-model", "tailwater-proto", "tailwater-sizing"]);
}

/// The lab, its truth and its score judge agent and collector from outside. Tests beside them may link the collector, to ask it.
#[test]
fn the_laboratory_knows_the_wire_only() {
    check("tailwater-tests", &["tailwater-proto"]);
}

#[test]
fn model_analysis_and_sizing_link_no_runtime_clock_network_or_logging() {
    let all = packages();
    for (pure, allowed) in [
        ("tailwater-model", &["serde"][..]),
        ("tailwater-analysis", &["serde", "tailwater-model"]),
        // Its refusals are errors with sentences.
        ("tailwater-sizing", &["serde", "thiserror"]),
    ] {
        let package = all.iter().find(|p| p.name.as_str() == pure).expect("crate is in the workspace");
        let normal = direct(package, &[DependencyKind::Normal, DependencyKind::Build]);
        let allowed: BTreeSet<String> = allowed.iter().map(|s| (*s).to_owned()).collect();
        assert_eq!(normal, allowed, "every new dependency of the pure crate {pure} is argued for here");
    }
}

#[test]
fn the_kernel_side_knows_no_loader() {
    let all = packages();
    let ebpf = all.iter().find(|p| p.name.as_str() == "tailwater-ebpf").expect("crate is in the workspace");
    let normal = direct(ebpf, &[DependencyKind::Normal]);
    for banned in ["aya", "tokio", "prost", "tonic"] {
        assert!(!normal.contains(banned), "tailwater-ebpf must not depend on {banned}");
    }
}

/// Each crate of a build of the whole workspace with its features, one line each.
fn crates_with_features(edges: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--offline", "--locked", "--prefix", "none", "--no-dedupe"])
        .args(["--format", "{p} {f}", "--edges", edges])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8_lossy(&tree.stdout).lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn tests_ask_for_no_feature_that_programs_are_built_without() {
    let programs = crates_with_features("normal,build");
    let tests = crates_with_features("normal,build,dev");
    let built_twice: Vec<&String> = programs.difference(&tests).collect();
    assert!(programs.len() > 100, "{programs:?}");
    assert!(
        built_twice.is_empty(),
        "a dev-dependency changes their features: name it in tests/Cargo.toml\n{built_twice:#?}"
    );
}

/// A program without tests is compiled once, not a second time with an empty harness (`test = false`). Fails where somebody wrote a test into one,
/// which would never run.
#[test]
fn whose_tests_are_not_built_has_none() {
    let all = packages();
    let targets = all.iter().flat_map(|p| &p.targets);
    let unbuilt: Vec<&Target> = targets.filter(|t| t.is_bin() && !t.test).collect();
    assert!(unbuilt.len() > 10, "programs without tests are compiled twice: {unbuilt:?}");
    for target in unbuilt {
        let text = std::fs::read_to_string(&target.src_path).expect("the sources are here");
        let has = text.lines().any(|line| line.contains("test]") || line.trim_end().ends_with("mod tests {"));
        assert!(!has, "{}: has tests, and `test = false` in its Cargo.toml", target.src_path);
        let elsewhere = text.lines().any(|line| line.starts_with("mod ") && line.trim_end().ends_with(';'));
        assert!(!elsewhere, "{}: has modules, whose tests would not be built either", target.src_path);
    }
}
