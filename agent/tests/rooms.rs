//! The folders of `src` are rooms along a window's way: each uses those before it, none after it.

use std::fs;
use std::path::{Path, PathBuf};

/// In order. `leaf` stands for the files of `src` that belong to no room: plain data, clocks, the configuration.
const ROOMS: [&str; 6] = ["leaf", "name", "attach", "sample", "stream", "run"];
const LEAVES: [&str; 4] = ["clock", "config", "signal", "window"];

fn source_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("src is there") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            source_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

fn room(module: &str) -> Option<usize> {
    if LEAVES.contains(&module) {
        return Some(0);
    }
    ROOMS.iter().position(|room| *room == module)
}

/// The modules that a line of code names by `crate::`; comments may name any.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split("crate::")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
}

#[test]
fn a_room_uses_only_rooms_before_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    source_files(&src, &mut files);
    let mut wrong = Vec::new();
    let mut arrows = 0;
    for file in files {
        let inside = file.strip_prefix(&src).expect("inside src");
        let first = inside.components().next().expect("a name").as_os_str().to_string_lossy();
        let own = first.trim_end_matches(".rs");
        if own == "main" || own == "lib" {
            continue;
        }
        let Some(own_room) = room(own) else {
            wrong.push(format!("{}: {own} is no room and no leaf", inside.display()));
            continue;
        };
        for line in fs::read_to_string(&file).expect("readable").lines() {
            for module in named(line) {
                arrows += 1;
                match room(module) {
                    Some(used) if used <= own_room => {}
                    Some(_) => wrong.push(format!("{}: {own} must not know {module}", inside.display())),
                    None => wrong.push(format!("{}: crate::{module} is no room", inside.display())),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(arrows > 100, "{arrows} arrows: the test reads no sources");
}
