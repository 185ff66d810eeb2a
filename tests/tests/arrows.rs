//! Holds the arrows between files, in each crate of the workspace and in the page: no two files know each other, not even by a way
//! round, and a room uses only the rooms that its table lets it use (`arrows/table.rs`, to be read from above: the way that data goes).
//! Between crates the arrows are held by `dependency_rules.rs`.
//!
//! What counts as an arrow is said in `arrows/source.rs` and `arrows/reader.rs` for Rust and in `arrows/page.rs` for the page. How to read a failure:
//!
//! * `a circle of 3 files (file:line → file)`: each line is a place where a file names the next one, and the last names the first. The line
//!   that begins with `cut` has the fewest places to change. What both files need moves into one below both (mostly a type and what it
//!   knows of itself), or the lower one gets what it asked for as an argument.
//! * `alert/http.rs:12: alert must not know export (crate::export::X)`: the same for rooms. If the arrow is right the table is wrong: its
//!   row then says why.
//! * `… is in no row of the table`: a new room. Its row is added where it stands on the way of the data, with as few rooms as it needs.
#![allow(clippy::expect_used, clippy::panic, reason = "what cannot be read fails the test")]

#[path = "arrows/graph.rs"]
mod graph;
#[path = "arrows/made_up.rs"]
mod made_up;
#[path = "arrows/page.rs"]
mod page;
#[path = "arrows/reader.rs"]
mod reader;
#[path = "arrows/source.rs"]
mod source;
#[path = "arrows/table.rs"]
mod table;

use cargo_metadata::MetadataCommand;
use graph::{Graph, circles, forbidden};
use source::Target;
use std::path::Path;
use std::sync::LazyLock;
use table::{PAGE, TABLES};

/// Every crate of the workspace: its library and its programs.
static CRATES: LazyLock<Vec<Graph>> = LazyLock::new(|| {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .other_options(vec!["--offline".into(), "--locked".into()])
        .exec()
        .expect("cargo metadata reads this workspace");
    let base = metadata.workspace_root.as_std_path();
    let all = metadata.workspace_packages().into_iter().flat_map(|package| &package.targets);
    let libraries: Vec<String> =
        all.filter(|target| target.is_lib()).map(|target| target.name.replace('-', "_")).collect();
    let crates = metadata.workspace_packages().into_iter().map(|package| {
        let ours = package.targets.iter().filter(|target| target.is_lib() || target.is_bin());
        let targets: Vec<Target> = ours
            .map(|target| Target {
                name: target.name.replace('-', "_"),
                is_library: target.is_lib(),
                root: target.src_path.as_std_path().to_owned(),
            })
            .collect();
        source::read(&package.name, base, &targets, &libraries)
    });
    crates.collect()
});

fn the_page() -> Graph {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate stands in the repository");
    page::read(PAGE.of, base, &base.join(PAGE.of).join("src"))
}

#[test]
fn no_files_of_a_crate_go_in_a_circle() {
    let found: Vec<String> = CRATES.iter().flat_map(circles).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn no_room_of_a_crate_uses_one_that_its_table_forbids() {
    let wrong: Vec<String> = CRATES
        .iter()
        .flat_map(|of| match TABLES.iter().find(|table| table.of == of.of) {
            Some(table) => forbidden(of, table),
            None => vec![format!("{} has no table: add one to tests/tests/arrows/table.rs", of.of)],
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// What agent and collector are judged by is not of their making, not even the wire's types.
#[test]
fn the_truth_shares_no_code_with_agent_or_collector() {
    let tests = CRATES.iter().find(|of| of.of == "tailwater-tests").expect("it is in the workspace");
    let wrong: Vec<String> = tests
        .crates
        .iter()
        .map(|(file, line, name)| (&tests.files[*file], line, name))
        .filter(|(file, ..)| file.room.as_deref() == Some("truth"))
        .map(|(file, line, name)| format!("{}:{line}: truth must not know {name}", file.path))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(!tests.crates.is_empty(), "others read what was recorded");
}

#[test]
fn tables_are_of_crates_that_there_are() {
    for of in TABLES.iter().map(|table| &table.of) {
        assert!(CRATES.iter().any(|there| there.of == *of), "{of} is no crate of this workspace");
    }
}

#[test]
fn the_page_has_no_circle_and_no_arrow_that_its_table_forbids() {
    let page = the_page();
    let wrong = [circles(&page), forbidden(&page, &PAGE)].concat();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// What reads nothing finds nothing wrong.
#[test]
fn the_sources_are_read() {
    for (of, files, arrows) in
        [("tailwater-agent", 60, 180), ("tailwater", 100, 300), ("tailwater-tests", 70, 180)]
    {
        let read = CRATES.iter().find(|there| there.of == of).expect("it is in the workspace");
        assert!(read.files.len() >= files, "{of}: {} files", read.files.len());
        assert!(read.arrows.len() >= arrows, "{of}: {} arrows", read.arrows.len());
    }
    let page = the_page();
    assert!(
        page.files.len() >= 20 && page.arrows.len() >= 60,
        "{} and {}",
        page.files.len(),
        page.arrows.len()
    );
}
