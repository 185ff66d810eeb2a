//! The agent on the kernels that most servers run: Debian's 6.1 and 6.12, booted in QEMU. Every signal is held against what that kernel
//! says itself, and its log has no warning. `make kernel-matrix` visits the others.

use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::guests::kernels::{find, visit};

#[test]
fn privileged_every_signal_is_right_on_foreign_kernels() -> Result<()> {
    for name in ["6.1", "6.12"] {
        let guest = find(name).with_context(|| format!("no guest {name}"))?;
        let folder = PathBuf::from(format!("{}/kernels-{name}", env!("CARGO_TARGET_TMPDIR")));
        experiment(name, || {
            let visit = visit(guest, &folder)?;
            println!(
                "{name} is {}: attached in {:.1} s, emulated; {:.0?} in all",
                visit.release, visit.attach_s, visit.took
            );
            for (signal, finding) in &visit.findings {
                println!("  {signal:<13} {:<10} {}", finding.state, finding.said);
            }
            let faults = visit.faults();
            ensure!(faults.is_empty(), "{name}: {}", faults.join("\n"));
            Ok(())
        })?;
    }
    Ok(())
}
