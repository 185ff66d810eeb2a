//! What the kernel's side counts as lost reaches whoever runs the agent: a counter that nobody reads fails here.

use std::path::Path;

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fields of a struct of a header, but the proof that the timer runs.
fn fields(header: &str, name: &str) -> Vec<String> {
    let body = header.split_once(&format!("struct {name} {{")).expect("the struct is there").1;
    let body = body.split_once("};").expect("it ends").0;
    let field = |line: &str| {
        let declared = line.split_once(';')?.0.trim().split_once(' ')?.1;
        (declared != "ticks").then(|| declared.to_owned())
    };
    body.lines().filter_map(field).collect()
}

#[test]
fn every_loss_of_sockets_is_told() {
    let told = text("agent/src/sample/net.rs");
    let counted = fields(&text("ebpf/bpf/include/net_records.h"), "net_losses");
    assert!(counted.len() >= 7, "{counted:?}");
    for field in counted {
        assert!(
            told.contains(&format!("kernel.{field} ")),
            "{field} is counted in the kernel, and no loss of `NetSignals` tells it"
        );
    }
}

#[test]
fn every_source_tells_the_records_and_the_runs_that_it_lost() {
    for source in ["sched", "net", "block", "memory"] {
        let told = text(&format!("agent/src/sample/{source}.rs"));
        for what in ["records_lapped", "runs_skipped"] {
            assert!(told.contains(&format!("\"{source}_{what}\"")), "{source} {what}");
        }
    }
}
