//! Reads the Rust sources of a package: follows `mod` from the root of its library and of each program, and resolves the paths that
//! `reader.rs` finds. Code that is generated is left out: it stands in no file of ours.
//!
//! A path that begins with `crate`, `self` or `super` (in a program also with its library's name) is an arrow to the file of the longest
//! module that it begins with. A name that a module further up has itself only imported is followed to where it comes from, so that nobody
//! hides behind `super::`. Between a module and those above and below it there are no arrows: they are one.

use crate::graph::{File, Graph};
use crate::reader::{self, Below, ModulePath, Named};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Imports of imports that are followed.
const IMPORTS_MAX: usize = 8;

/// A library or a program of a package.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its crate's name, as paths have it.
    pub(crate) name: String,
    pub(crate) is_library: bool,
    pub(crate) root: PathBuf,
}

impl Target {
    /// A program is a room; the root of a library only says which rooms there are.
    fn room(&self) -> Option<String> {
        let is_main = self.root.ends_with("src/main.rs");
        (!self.is_library).then(|| if is_main { "main" } else { "bin" }.to_owned())
    }
}

#[derive(Debug)]
struct Source {
    path: String,
    room: Option<String>,
    target: usize,
    module: ModulePath,
    named: Vec<Named>,
}

#[derive(Debug)]
struct Module {
    file: usize,
    imports: BTreeMap<String, Vec<String>>,
}

#[derive(Debug)]
struct Sources<'a> {
    base: &'a Path,
    targets: &'a [Target],
    /// The workspace's libraries, as paths have them.
    libraries: &'a [String],
    files: Vec<Source>,
    modules: BTreeMap<(usize, ModulePath), Module>,
}

/// Reads all files of a package. Paths are told from `base`; `libraries` are those of the workspace.
pub(crate) fn read(package: &str, base: &Path, targets: &[Target], libraries: &[String]) -> Graph {
    let mut sources = Sources { base, targets, libraries, files: Vec::new(), modules: BTreeMap::new() };
    for (target, of) in targets.iter().enumerate() {
        let folder = of.root.parent().expect("a root stands in a folder");
        sources.read(target, &[], &of.root, folder);
    }
    sources.graph(package)
}

fn is_keyword(name: &str) -> bool {
    matches!(name, "crate" | "self" | "super")
}

fn joined(module: &[String], below: &[String]) -> ModulePath {
    [module, below].concat()
}

/// The file of a module below a file that stands in `beside` and whose modules stand in `folder`, and the folder of its own.
fn file_of(below: &Below, beside: &Path, folder: &Path) -> (PathBuf, PathBuf) {
    let (name, around) = below.module.split_last().expect("a module has a name");
    let folder = around.iter().fold(folder.to_owned(), |folder, name| folder.join(name));
    if let Some(told) = &below.told {
        let path = if around.is_empty() { beside } else { &folder }.join(told);
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        return (path, folder);
    }
    let path = folder.join(format!("{name}.rs"));
    let folder = folder.join(name);
    if path.exists() { (path, folder) } else { (folder.join("mod.rs"), folder) }
}

impl Sources<'_> {
    /// Reads a file and all below it, whose files stand in `folder`.
    fn read(&mut self, target: usize, module: &[String], path: &Path, folder: &Path) {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()));
        let said = reader::read(&text).unwrap_or_else(|e| panic!("parse {}: {e}", path.display()));
        let Some(said) = said else { return };
        let file = self.files.len();
        for (inside, imports) in said.modules {
            self.modules.insert((target, joined(module, &inside)), Module { file, imports });
        }
        self.files.push(Source {
            path: path.strip_prefix(self.base).unwrap_or(path).display().to_string(),
            room: module.first().cloned().or_else(|| self.targets[target].room()),
            target,
            module: module.to_vec(),
            named: said.named,
        });
        let beside = path.parent().unwrap_or(self.base);
        for below in said.below {
            let (path, its_folder) = file_of(&below, beside, folder);
            self.read(target, &joined(module, &below.module), &path, &its_folder);
        }
    }

    fn library(&self) -> Option<(usize, &str)> {
        self.targets.iter().enumerate().find(|(_, t)| t.is_library).map(|(i, t)| (i, t.name.as_str()))
    }

    /// The library, if a path in that target begins with its name.
    fn enters_library(&self, target: usize, path: &[String]) -> Option<usize> {
        let (library, name) = self.library()?;
        (library != target && path.first().is_some_and(|first| first == name)).then_some(library)
    }

    /// The longest module that a path begins with; none if it begins outside of this package.
    fn resolve(&self, from: &Source, named: &Named) -> Option<(usize, ModulePath)> {
        let own = joined(&from.module, &named.module);
        let (mut target, mut at, mut rest) = (from.target, own.clone(), named.path.clone());
        if self.enters_library(target, &rest).is_none() && !rest.first().is_some_and(|name| is_keyword(name))
        {
            return None;
        }
        for _ in 0..IMPORTS_MAX {
            if let Some(library) = self.enters_library(target, &rest) {
                (target, at) = (library, Vec::new());
                rest.remove(0);
            }
            while rest.first().is_some_and(|name| is_keyword(name)) {
                match rest.remove(0).as_str() {
                    "crate" => at.clear(),
                    "super" => drop(at.pop()),
                    _ => {}
                }
            }
            while let Some(name) = rest.first() {
                let below = joined(&at, std::slice::from_ref(name));
                if !self.modules.contains_key(&(target, below.clone())) {
                    break;
                }
                at = below;
                rest.remove(0);
            }
            let is_above = target == from.target && at.len() < own.len() && own.starts_with(&at);
            let import = rest.first().filter(|_| is_above).and_then(|name| self.import(target, &at, name));
            let Some(import) = import else { break };
            rest.splice(0..1, import.iter().cloned());
        }
        Some((target, at))
    }

    /// What a module calls by this name, if that is of this package.
    fn import(&self, target: usize, module: &[String], name: &str) -> Option<&[String]> {
        let import = self.modules.get(&(target, module.to_vec()))?.imports.get(name)?;
        let first = import.first()?;
        let is_below = || self.modules.contains_key(&(target, joined(module, std::slice::from_ref(first))));
        let ours = is_keyword(first) || self.enters_library(target, import).is_some() || is_below();
        ours.then_some(import)
    }

    fn graph(self, package: &str) -> Graph {
        let mut arrows: BTreeMap<(usize, usize), BTreeMap<usize, String>> = BTreeMap::new();
        let mut crates = BTreeSet::new();
        for (from, source) in self.files.iter().enumerate() {
            for named in &source.named {
                let Some(module) = self.resolve(source, named) else {
                    let library = named.path.first().filter(|first| self.libraries.contains(first));
                    crates.extend(library.map(|library| (from, named.line, library.clone())));
                    continue;
                };
                let Some(Module { file: to, .. }) = self.modules.get(&module) else { continue };
                let other = &self.files[*to];
                let one =
                    source.module.starts_with(&other.module) || other.module.starts_with(&source.module);
                if source.target == other.target && one {
                    continue;
                }
                let lines = arrows.entry((from, *to)).or_default();
                lines.entry(named.line).or_insert_with(|| named.path.join("::"));
            }
        }
        let files = self.files.into_iter().map(|file| File { path: file.path, room: file.room }).collect();
        Graph { of: package.to_owned(), files, arrows, crates }
    }
}
