//! That `make scale` measures what it says: a few simulated agents, a real collector, one overflow that has to be told and found.

use std::process::Command;

#[test]
fn five_simulated_agents_are_served_and_their_overflow_is_found() {
    let folder = tempfile::tempdir().expect("a folder for logs");
    let ran = Command::new(env!("CARGO_BIN_EXE_scale"))
        .args(["--quick", "--readers", "pages=2", "--folder"])
        .arg(folder.path().join("logs"))
        .arg("--out")
        .arg(folder.path())
        .output()
        .expect("scale starts");
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}");
    let json = std::fs::read_to_string(folder.path().join("scale.json")).expect("results are written");
    let results: serde_json::Value = serde_json::from_str(&json).expect("they are JSON");
    let row = &results["rows"][0];
    assert_eq!((row["agents"].as_u64(), row["read_failed"].as_u64()), (Some(5), Some(0)), "{said}");
    assert!(row["read_asked"].as_u64() > Some(5), "pages asked: {said}");
    assert!(said.contains("| 5 | realistic | 2 | 2 | real |"), "{said}");
}
