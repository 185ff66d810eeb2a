//! A real browser, driven by a script of `tests/page` that talks to the test by lines.

use super::WINDOW_NS;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Runs a script of the browser against `address`; `told` hears every word that it says.
pub fn browse(script: &str, address: SocketAddr, first: u64, mut told: impl FnMut(&str)) {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let installed = Command::new(format!("{repository}/tests/page/install.sh")).status().unwrap();
    assert!(installed.success(), "tests/page/install.sh: {installed}");
    let mut child = Command::new("node")
        .arg(format!("{repository}/tests/page/{script}"))
        .args([&format!("http://{address}"), &format!("{repository}/target/page-screenshots")])
        .arg((first * WINDOW_NS / 1_000_000).to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("  page: {line}");
        told(line.split(' ').next().unwrap());
        said.push(line);
    }
    assert!(child.wait().unwrap().success(), "{said:#?}");
    assert!(said.iter().any(|line| line.starts_with("done")), "{said:#?}");
}
