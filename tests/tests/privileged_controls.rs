//! Everyday events that must leave Tailwater silent, a few seconds each, and a SYN flood, which must be called one. The long form is
//! `lab-score --controls`.

use anyhow::Result;
use std::time::Duration;
use tailwater_tests::controls::{self, Control};
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::LabConfig;
use tailwater_tests::stack::Stack;
use tailwater_tests::system::System;

#[test]
fn privileged_everyday_events_are_no_incidents_and_a_flood_is_called_one() -> Result<()> {
    let folder = tempfile::tempdir()?;
    // One stack for all, so that it takes little time: the one whose front can change generations.
    let system = System::start(LabConfig::of(Stack::Nx1), folder.path(), &[])?;
    for control in Control::ALL {
        experiment(control.name(), || {
            let outcome = controls::run(&system, control, Duration::from_secs(4))?;
            println!("{outcome}");
            if control == Control::SynFlood {
                assert!(outcome.dropped > 0, "the flood must really drop: {outcome}");
            }
            // What the kernel really dropped on a machine that stalls may be told; what it did not drop may not.
            assert!(outcome.is_right(), "{outcome}");
            Ok(())
        })?;
    }
    Ok(())
}
