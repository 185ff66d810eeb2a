//! Sources that are made up to be wrong: each check fails on them, with these words.

use crate::graph::{Graph, circles, forbidden};
use crate::page;
use crate::source::{self, Target};
use crate::table::{ALL, Table};
use std::fs;
use std::path::Path;

fn written(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("in a folder")).expect("a folder is made");
        fs::write(path, text).expect("a file is written");
    }
}

/// A package with a library, and a program if there is a `main.rs`.
fn package(files: &[(&str, &str)]) -> Graph {
    let folder = tempfile::tempdir().expect("a temporary folder");
    written(folder.path(), files);
    let library = Target { name: "made_up".into(), is_library: true, root: folder.path().join("src/lib.rs") };
    let program = Target { name: "it".into(), is_library: false, root: folder.path().join("src/main.rs") };
    let targets: Vec<Target> = [library, program].into_iter().filter(|target| target.root.exists()).collect();
    source::read("made-up", folder.path(), &targets, &["tailwater".into()])
}

fn page_of(files: &[(&str, &str)]) -> Graph {
    let folder = tempfile::tempdir().expect("a temporary folder");
    written(folder.path(), files);
    page::read("page", folder.path(), &folder.path().join("src"))
}

const ROOMS: Table = Table {
    of: "made-up",
    leaves: &["clock"],
    rooms: &[("export", &[]), ("alert", &[]), ("run", &["alert", "export"]), ("main", ALL)],
};

const CLOCK: (&str, &str) = ("src/clock.rs", "pub const NOW: u64 = 1;\n");
const EXPORT: (&str, &str) = ("src/export.rs", "pub const NAME: &str = \"x\";\n");
const RUN: (&str, &str) = ("src/run.rs", "pub fn run() {\n    crate::alert::http::tell();\n}\n");
const MAIN: (&str, &str) = ("src/main.rs", "fn main() {\n    made_up::run::run();\n}\n");
const LIB: (&str, &str) = ("src/lib.rs", "pub mod alert;\npub mod clock;\npub mod export;\npub mod run;\n");
const ALERT: (&str, &str) = ("src/alert/mod.rs", "pub mod http;\n");

#[test]
fn a_circle_of_three_files_is_told_with_the_line_to_cut() {
    let graph = package(&[
        ("src/lib.rs", "pub mod a;\n"),
        ("src/a.rs", "mod x;\nmod y;\nmod z;\n"),
        (
            "src/a/x.rs",
            "use super::y::Y;\n\npub struct X(pub Y);\n\npub fn deep() -> super::y::Y {\n    todo!()\n}\n",
        ),
        (
            "src/a/y.rs",
            "use super::z::{\n    self,\n    Z,\n};\n\npub struct Y(pub Z);\n\nconst _: usize = z::SIZE;\n",
        ),
        ("src/a/z.rs", "pub const SIZE: usize = 1;\n\npub struct Z(pub Option<Box<super::x::X>>);\n"),
    ]);
    assert_eq!(
        circles(&graph),
        ["a circle of 3 files (file:line → file):\
          \n  src/a/x.rs:1 → src/a/y.rs (super::y::Y, and 1 line more)\
          \n  src/a/y.rs:2 → src/a/z.rs (super::z, and 1 line more)\
          \n  src/a/z.rs:3 → src/a/x.rs (super::x::X)\
          \n  cut src/a/z.rs:3 → src/a/x.rs: no other arrow has fewer lines behind it; move what both need into a file below both"]
    );
}

#[test]
fn nobody_hides_behind_the_imports_of_a_module_above() {
    let graph = package(&[
        ("src/lib.rs", "pub mod a;\n"),
        ("src/a/mod.rs", "mod x;\nmod y;\npub use x::X as Shown;\nuse y::Y;\n"),
        ("src/a/x.rs", "pub struct X;\n\npub fn x() {\n    super::Y::new();\n}\n"),
        ("src/a/y.rs", "use crate::a::Shown;\n\npub struct Y(Shown);\n"),
    ]);
    assert_eq!(
        circles(&graph),
        ["a circle of 2 files (file:line → file):\
          \n  src/a/x.rs:4 → src/a/y.rs (super::Y::new)\
          \n  src/a/y.rs:1 → src/a/x.rs (crate::a::Shown)\
          \n  cut src/a/x.rs:4 → src/a/y.rs: no other arrow has fewer lines behind it; move what both need into a file below both"]
    );
}

#[test]
fn a_module_and_those_below_it_are_one() {
    let graph = package(&[
        ("src/lib.rs", "pub mod a;\n"),
        ("src/a/mod.rs", "mod x;\n\npub struct A(self::x::X);\n"),
        (
            "src/a/x.rs",
            "pub struct X(Option<Box<super::A>>);\n\nmod inner {\n    use super::X;\n    pub struct I(X);\n}\n",
        ),
    ]);
    assert_eq!(circles(&graph), Vec::<String>::new());
}

#[test]
fn an_arrow_that_the_table_forbids_is_told_also_out_of_a_macro_an_attribute_or_braces() {
    let http = "\
#[derive(Clone)]
pub struct Hook {
    #[serde(with = \"crate::export::hex\")]
    pub secret: u64,
}

pub fn tell() {
    println!(\"{} {}\", crate::clock::NOW, crate::export::NAME);
    made! { use crate::{clock::NOW, export::NAME}; }
    crate::run::run();
}
";
    let graph = package(&[LIB, ALERT, CLOCK, EXPORT, RUN, MAIN, ("src/alert/http.rs", http)]);
    assert_eq!(
        forbidden(&graph, &ROOMS),
        [
            "src/alert/http.rs:3: alert must not know export (crate::export::hex); may use: clock",
            "src/alert/http.rs:8: alert must not know export (crate::export::NAME); may use: clock",
            "src/alert/http.rs:9: alert must not know export (crate::export::NAME); may use: clock",
            "src/alert/http.rs:10: alert must not know run (crate::run::run); may use: clock",
        ]
    );
}

#[test]
fn what_is_there_for_tests_only_may_know_whatever_it_likes() {
    let http = "\
/// As [`crate::export::NAME`]; comments may name it, too: crate::run::run.
pub fn tell() {
    #[cfg(test)]
    crate::export::asked();
}

pub struct Hook {
    #[cfg(any(test, feature = \"x\"))]
    seen: crate::export::Seen,
}

impl Hook {
    #[cfg(test)]
    fn new<A, B>() -> crate::export::Seen {
        crate::export::seen()
    }
}

#[cfg(test)]
mod tests {
    use crate::export::NAME;
    use crate::run::run;
}

#[cfg(test)]
mod more;
";
    let graph = package(&[LIB, ALERT, CLOCK, EXPORT, RUN, MAIN, ("src/alert/http.rs", http)]);
    assert_eq!(forbidden(&graph, &ROOMS), Vec::<String>::new());
    let named: Vec<&str> =
        graph.arrows.values().flat_map(|lines| lines.values()).map(String::as_str).collect();
    assert_eq!(named, ["crate::alert::http::tell", "made_up::run::run"]);
    // What is not there for tests is.
    let not = http.replace("#[cfg(test)]\nmod tests", "#[cfg(not(test))]\nmod other");
    let graph = package(&[LIB, ALERT, CLOCK, EXPORT, RUN, MAIN, ("src/alert/http.rs", &not)]);
    assert_eq!(
        forbidden(&graph, &ROOMS),
        [
            "src/alert/http.rs:21: alert must not know export (crate::export::NAME); may use: clock",
            "src/alert/http.rs:22: alert must not know run (crate::run::run); may use: clock",
        ]
    );
}

#[test]
fn another_crate_of_the_workspace_is_seen() {
    let clock = "use std::fmt;\nuse tailwater::clock::Clock;\n\npub fn now() -> tailwater::clock::Now {\n    todo!()\n}\n";
    let graph = package(&[("src/lib.rs", "pub mod clock;\n"), ("src/clock.rs", clock)]);
    let named: Vec<(&str, usize)> =
        graph.crates.iter().map(|(file, line, _)| (graph.files[*file].path.as_str(), *line)).collect();
    assert_eq!(named, [("src/clock.rs", 2), ("src/clock.rs", 4)]);
}

#[test]
fn a_room_that_is_in_no_table_and_a_row_for_nothing_are_told() {
    let lib = ("src/lib.rs", "pub mod alert;\npub mod clock;\npub mod export;\npub mod sizing;\n");
    let graph =
        package(&[lib, ALERT, CLOCK, EXPORT, MAIN, ("src/alert/http.rs", ""), ("src/sizing/mod.rs", "")]);
    assert_eq!(
        forbidden(&graph, &ROOMS),
        [
            "src/sizing/mod.rs: sizing is in no row of the table of made-up: add it to tests/tests/arrows/table.rs, with what it may use",
            "the table of made-up has a row for run, which is no more: take it out",
        ]
    );
}

#[test]
fn a_table_that_would_go_in_a_circle_is_refused() {
    let table = Table { of: "made-up", leaves: &[], rooms: &[("a", &["b"]), ("b", &["a"])] };
    assert_eq!(table.faults(), ["the table of made-up lets a use b, which does not stand above it"]);
}

#[test]
fn circles_and_forbidden_arrows_of_the_page_are_told() {
    let graph = page_of(&[
        ("src/style.css", ""),
        ("src/api.ts", "// import { no } from \"./main\";\nexport type { Now } from './time';\n"),
        (
            "src/time.ts",
            "export const why = (a: string) => `${a} from \"./main\" ${`}`}`;\nimport(\"./pages/one\");\n",
        ),
        ("src/api.test.ts", "import \"./main\";\n"),
        (
            "src/main.tsx",
            "import { render } from \"preact\";\nimport \"./style.css\";\nimport { One } from \"./pages/one\";\n",
        ),
        (
            "src/pages/one.tsx",
            "import {\n  ask,\n  type Now,\n} from \"../api\";\nexport const One = () => <p>don't</p>;\nexport * from \"../main\";\n",
        ),
    ]);
    let table = Table {
        of: "page",
        leaves: &[],
        rooms: &[("time", &[]), ("api", &["time"]), ("pages", &["api"]), ("main", ALL)],
    };
    assert_eq!(
        forbidden(&graph, &table),
        [
            "src/pages/one.tsx:6: pages must not know main (../main); may use: api",
            "src/time.ts:2: time must not know pages (./pages/one); may use: nothing",
        ]
    );
    assert_eq!(
        circles(&graph),
        ["a circle of 4 files, of which the shortest has 2 (file:line → file):\
          \n  src/main.tsx:3 → src/pages/one.tsx (./pages/one)\
          \n  src/pages/one.tsx:6 → src/main.tsx (../main)\
          \n  cut src/main.tsx:3 → src/pages/one.tsx: no other arrow has fewer lines behind it; move what both need into a file below both"]
    );
}
