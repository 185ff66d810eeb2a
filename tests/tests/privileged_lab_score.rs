//! A few cells of the matrix end to end: each injection that really dropped must be found, with its kind, root and resource, and what
//! was counted must be what the kernel counted. The whole matrix is `make lab-score`.

use anyhow::{Result, ensure};
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::cells::{Cell, find};
use tailwater_tests::score::model::Plan;
use tailwater_tests::score::results::Results;
use tailwater_tests::score::session::{self, MATRIX};
use tailwater_tests::stack::Stack;

/// One of each resource on threads everywhere, and both directions behind an event-driven front.
const CELLS: [(Stack, &[&str]); 2] = [
    (
        Stack::Nx0,
        &["nx0-app-cpu", "nx0-db-io", "nx0-app-pause", "nx0-db-lock", "nx0-app-squeeze", "nx0-web-burst"],
    ),
    (Stack::Nx1, &["nx1-db-pause", "nx1-app-pause"]),
];

#[test]
fn privileged_cells_of_the_matrix_are_diagnosed_as_the_truth_says() -> Result<()> {
    experiment("cells of the matrix", diagnosed_as_the_truth_says)
}

fn diagnosed_as_the_truth_says() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut rows, mut strays) = (Vec::new(), Vec::new());
    for (stack, names) in CELLS {
        let sequence: Vec<&Cell> = names.iter().filter_map(|name| find(name)).collect();
        ensure!(sequence.len() == names.len(), "cells of the table: {names:?}");
        let session = session::run(stack, &sequence, MATRIX, folder.path())?;
        ensure!(session.broken.is_none(), "{:?}", session.broken);
        rows.extend(session.rows);
        strays.extend(session.strays);
    }
    let results = Results::new("test".into(), rows, strays);
    println!("{}", results.markdown()?);
    let totals = &results.totals;
    let planned = totals.plans.get(&Plan::AsPlanned).copied().unwrap_or(0);
    // A machine that does other things may stall by itself, so none of these asks for all.
    ensure!(planned * 4 >= totals.injections * 3, "most injections must do what they are to do: {totals:?}");
    ensure!(totals.recall.ratio() >= 0.8, "recall {:?}", totals.recall);
    ensure!(totals.kind_and_root.ratio() >= 0.7, "kind and root {:?}", totals.kind_and_root);
    ensure!(totals.resource.ratio() >= 0.6, "resource {:?}", totals.resource);
    ensure!(results.rows.iter().all(|row| row.truth.tap_lost == 0), "the taps saw everything");
    Ok(())
}
