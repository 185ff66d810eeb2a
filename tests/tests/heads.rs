//! Holds that a file says what it owns, and that what is said of other files is true: every Rust source begins with a line of `//!`, and every path
//! in backticks, in a comment or in the documents that say where things are, is that of a file.
//!
//! What counts as a path: a word with a slash that ends as our sources do. In a comment it is looked for in the folder of the file and in each above
//! it, and in the `src` of each of these: so it may begin in the room, in the crate's sources, in the crate, or at the root. The documents say of no folder
//! that they stand in it: there it is the end of a path. `NAME` in it is any name. What begins at the root of the machine, is a pattern, or has no
//! slash (`window.rs`) is not looked for.
#![allow(clippy::expect_used, reason = "what cannot be read fails the test")]

use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Folders of others, which are not looked into; nor are those that begin with a dot.
const OF_OTHERS: [&str; 2] = ["target", "node_modules"];
/// Folders whose files nobody wrote by hand.
const MADE: [&str; 2] = ["dist", "generated"];
/// At the root of the repository, and what they leave to documents of their own.
const DOCUMENTS: [&str; 7] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "collector/docs/history.md",
    "collector/docs/security.md",
    "collector/docs/signals.md",
    "collector/docs/testing.md",
];
const ENDS: [&str; 9] = [".rs", ".md", ".ts", ".c", ".h", ".py", ".sh", ".proto", ".toml"];

/// Every file below a folder, by its path from the root, and whether it was made, not written.
fn files(folder: &Path, below: &str, made: bool, into: &mut Vec<(String, bool)>) {
    for item in fs::read_dir(folder).expect("a folder is read") {
        let item = item.expect("a folder is read");
        let name = item.file_name().to_string_lossy().into_owned();
        let path = format!("{below}{name}");
        let is_folder = item.file_type().expect("a file is of some type").is_dir();
        if !is_folder {
            into.push((path, made));
        } else if !name.starts_with('.') && !OF_OTHERS.contains(&name.as_str()) {
            files(&item.path(), &format!("{path}/"), made || MADE.contains(&name.as_str()), into);
        }
    }
}

/// The repository's files, sorted; whether it was made stands beside each.
fn all() -> Vec<(String, bool)> {
    let mut all = Vec::new();
    files(Path::new(ROOT), "", false, &mut all);
    all.sort();
    all
}

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect("a source is text")
}

/// The comment in a line of a source: from `//`, or the whole line of a block, in which one begins with `*`.
fn comment(line: &str) -> Option<&str> {
    let begun = line.trim_start();
    if begun.starts_with('*') || begun.starts_with("/*") {
        return Some(begun);
    }
    line.find("//").and_then(|at| line.get(at..))
}

/// The paths in a line, as they are written.
fn named(line: &str) -> Vec<&str> {
    let parts: Vec<&str> = line.split('`').collect();
    // What is between the second of a pair and the first of the next is in none; the last part has nothing that closes it.
    let quoted = parts.iter().skip(1).step_by(2).take((parts.len() - 1) / 2);
    quoted.flat_map(|quoted| quoted.split_whitespace()).filter(|word| is_path(word)).collect()
}

fn is_path(word: &str) -> bool {
    word.contains('/')
        && !word.starts_with('/')
        && ENDS.iter().any(|end| word.ends_with(end))
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
}

/// Whether a part of a path is as it is written, in which `NAME` is any.
fn is_like(written: &str, part: &str) -> bool {
    written.split_once("NAME").map_or(written == part, |(before, after)| {
        part.len() > before.len() + after.len() && part.starts_with(before) && part.ends_with(after)
    })
}

/// Whether a file is what a comment of a file in `folder` names; no folder: what a document names.
fn is_named(file: &str, written: &str, folder: Option<&[&str]>) -> bool {
    let (file, written): (Vec<&str>, Vec<&str>) = (file.split('/').collect(), written.split('/').collect());
    let Some(begin) = file.len().checked_sub(written.len()) else { return false };
    let (from, end) = file.split_at(begin);
    let is_from = |folder: &[&str]| {
        folder.starts_with(from)
            || from.split_last().is_some_and(|(last, above)| *last == "src" && folder.starts_with(above))
    };
    folder.is_none_or(is_from) && written.iter().zip(end).all(|(written, part)| is_like(written, part))
}

/// The paths of a file that are none, each with its line, and how many paths there are.
fn gone(path: &str, text: &str, all: &[(String, bool)]) -> (Vec<String>, usize) {
    let folder: Vec<&str> = path.split('/').collect();
    let folder = folder.split_last().map(|(_, folder)| folder).unwrap_or_default();
    let is_document = path.ends_with(".md");
    let (mut gone, mut count) = (Vec::new(), 0);
    for (line, said) in text.lines().enumerate() {
        let said = if is_document { Some(said) } else { comment(said) };
        for written in said.map(named).unwrap_or_default() {
            count += 1;
            let folder = (!is_document).then_some(folder);
            if !all.iter().any(|(file, _)| is_named(file, written, folder)) {
                gone.push(format!("{path}:{}: there is no {written}", line + 1));
            }
        }
    }
    (gone, count)
}

fn has_head(text: &str) -> bool {
    text.starts_with("//! ")
}

#[test]
fn every_rust_source_begins_with_what_it_owns() {
    let all = all();
    let ours = all.iter().filter(|(path, made)| !made && path.ends_with(".rs"));
    let (with, without): (Vec<&str>, Vec<&str>) =
        ours.map(|(path, _)| path.as_str()).partition(|path| has_head(&text(path)));
    let told: Vec<String> =
        without.iter().map(|path| format!("{path}:1: no `//!` says what this file owns")).collect();
    assert!(told.is_empty(), "\n{}", told.join("\n"));
    assert!(with.len() > 500, "{} files were read", with.len());
}

#[test]
fn what_comments_and_documents_name_is_there() {
    let all = all();
    let sources = all.iter().filter(|(path, made)| {
        !made && [".rs", ".c", ".h", ".ts", ".proto"].iter().any(|end| path.ends_with(end))
    });
    let (mut told, mut comments, mut documents) = (Vec::new(), 0, 0);
    for path in sources.map(|(path, _)| path.as_str()) {
        let (gone, count) = gone(path, &text(path), &all);
        told.extend(gone);
        comments += count;
    }
    for path in DOCUMENTS {
        let (gone, count) = gone(path, &text(path), &all);
        told.extend(gone);
        documents += count;
    }
    assert!(told.is_empty(), "\n{}", told.join("\n"));
    assert!(comments > 30 && documents > 100, "{comments} and {documents} paths were read");
}

/// What is wrong here is put together as the test runs: written out it would be found to be wrong in this file.
#[test]
fn what_is_gone_is_told_with_its_line() {
    let all: Vec<(String, bool)> =
        ["agent/src/sample/net.rs", "agent/src/name.rs", "collector/src/live/net.rs"]
            .map(|path| (path.to_owned(), false))
            .into();
    let wrong = |path: &str, words: &[&str]| {
        let (slash, mark) = ('/', '`');
        let lines = words.iter().map(|word| format!("{slash}{slash} {mark}{word}{mark}\n"));
        gone(path, &lines.collect::<String>(), &all).0
    };
    let there = [
        "src/sample/net.rs",
        "sample/net.rs",
        "agent/src/name.rs",
        "sample/NAME.rs",
        "collector/src/live/net.rs",
    ];
    assert_eq!(wrong("agent/src/sample/block.rs", &there), Vec::<String>::new());
    let left_alone = ["net.rs", "/run/x.toml", "sample/*.rs", "sample/net", "a/b"];
    assert_eq!(wrong("agent/src/sample/block.rs", &left_alone), Vec::<String>::new());
    let told = wrong(
        "agent/src/sample/block.rs",
        &["live/net.rs", "sample/net.rs", "signal/NAME.rs", "x/sample/net.rs"],
    );
    assert_eq!(
        told,
        [(1, "live/net.rs"), (3, "signal/NAME.rs"), (4, "x/sample/net.rs")]
            .map(|(line, written)| format!("agent/src/sample/block.rs:{line}: there is no {written}"))
    );
    assert_eq!(wrong("ARCHITECTURE.md", &["live/net.rs", "live/block.rs"]).len(), 1, "the end of a path");
    assert!(has_head("//! Owns.\n") && !has_head("use super::*;\n") && !has_head("\n//! Owns.\n"));
}
