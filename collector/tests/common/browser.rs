//! A real browser, driven by a script of `tests/page` that talks to the test by lines.

use super::WINDOW_NS;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Runs a script of the browser against `address`; `told` hears every word that it says.
pub fn browse(script: &str, address: SocketAddr, first: u64, mut told: impl FnMut(&str)) {
    let start_ms = (first * WINDOW_NS / 1_000_000).to_string();
    converse(script, address, &start_ms, |said| {
        told(said);
        None
    });
}

/// The same, with what else the script is to know; `answer` may answer a word with a line.
pub fn converse(
    script: &str,
    address: SocketAddr,
    more: &str,
    mut answer: impl FnMut(&str) -> Option<String>,
) {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let installed = Command::new(format!("{repository}/tests/page/install.sh")).status().unwrap();
    assert!(installed.success(), "tests/page/install.sh: {installed}");
    let mut child = Command::new("node")
        .arg(format!("{repository}/tests/page/{script}"))
        .args([&format!("http://{address}"), &format!("{repository}/target/page-screenshots")])
        .arg(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut to = child.stdin.take().unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("  page: {line}");
        if let Some(answer) = answer(line.split(' ').next().unwrap()) {
            writeln!(to, "{answer}").unwrap();
        }
        said.push(line);
    }
    assert!(child.wait().unwrap().success(), "{said:#?}");
    assert!(said.iter().any(|line| line.starts_with("done")), "{said:#?}");
}
