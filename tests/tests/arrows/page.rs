//! Reads what the page's sources import: `import … from`, `export … from`, `import "…"` and `import("…")`, types too. Its tests are left
//! out, and what is no file beside it.

use crate::graph::{File, Graph};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Reads all files below `folder`. Paths are told from `base`; a room is a file or a folder that stands in `folder` itself.
pub(crate) fn read(of: &str, base: &Path, folder: &Path) -> Graph {
    let mut paths = Vec::new();
    sources(folder, &mut paths);
    paths.sort();
    let mut arrows: BTreeMap<(usize, usize), BTreeMap<usize, String>> = BTreeMap::new();
    for (from, path) in paths.iter().enumerate() {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()));
        for (line, name) in imports(&text) {
            let Some(meant) = beside(path, &name) else { continue };
            match paths.iter().position(|other| is_meant(other, &meant)) {
                Some(to) => {
                    arrows.entry((from, to)).or_default().entry(line).or_insert(name);
                }
                // A style, a picture.
                None => assert!(meant.exists(), "{}:{line}: {name} is no file", path.display()),
            }
        }
    }
    let file = |path: &PathBuf| {
        let inside = path.strip_prefix(folder).expect("found in there");
        let room =
            inside.iter().next().map(|first| Path::new(first).with_extension("").display().to_string());
        File { path: path.strip_prefix(base).unwrap_or(path).display().to_string(), room }
    };
    Graph { of: of.to_owned(), files: paths.iter().map(file).collect(), arrows, crates: BTreeSet::new() }
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("read {}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_source = name.ends_with(".ts") || name.ends_with(".tsx");
        if path.is_dir() {
            sources(&path, into);
        } else if is_source && !name.contains(".test.") && !name.ends_with(".d.ts") {
            into.push(path);
        }
    }
}

/// The path that an import means, without its ending; none if it means a package.
fn beside(file: &Path, name: &str) -> Option<PathBuf> {
    if !name.starts_with('.') {
        return None;
    }
    let mut path = file.parent()?.to_owned();
    for part in Path::new(name).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(part) => path.push(part),
            _ => {}
        }
    }
    Some(path)
}

fn is_meant(file: &Path, meant: &Path) -> bool {
    let ended = |path: &Path| [".ts", ".tsx"].map(|end| PathBuf::from(format!("{}{end}", path.display())));
    file == meant || ended(meant).iter().chain(&ended(&meant.join("index"))).any(|path| path == file)
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Mark(char),
}

/// What a file imports, with the line that each import begins on.
fn imports(text: &str) -> Vec<(usize, String)> {
    let tokens = tokens(text);
    let at = |index: usize| tokens.get(index).map(|(_, token)| token);
    let mut found = Vec::new();
    for (index, (line, token)) in tokens.iter().enumerate() {
        let Token::Word(word) = token else { continue };
        let name = match (word.as_str(), at(index + 1), at(index + 2)) {
            ("import", Some(Token::Text(name)), _)
            | ("import", Some(Token::Mark('(')), Some(Token::Text(name))) => Some(name),
            ("import" | "export", ..) => named_from(tokens[index + 1..].iter().map(|(_, token)| token)),
            _ => None,
        };
        found.extend(name.map(|name| (*line, name.clone())));
    }
    found
}

/// What stands behind `from`, if only names do before it.
fn named_from<'a>(mut tokens: impl Iterator<Item = &'a Token>) -> Option<&'a String> {
    let mut is_from = false;
    loop {
        match tokens.next()? {
            Token::Text(name) if is_from => return Some(name),
            Token::Word(word) => is_from = word == "from",
            Token::Mark('{' | '}' | ',' | '*') => is_from = false,
            Token::Text(_) | Token::Mark(_) => return None,
        }
    }
}

/// Words, strings and marks with their lines; comments and templates are passed over.
fn tokens(text: &str) -> Vec<(usize, Token)> {
    let chars: Vec<char> = text.chars().collect();
    let is_word = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(c) = chars.get(at) {
        let end = match (c, chars.get(at + 1)) {
            ('/', Some('/')) => at + chars[at..].iter().take_while(|c| **c != '\n').count(),
            ('/', Some('*')) => {
                let close = chars[at..].windows(2).skip(2).position(|pair| pair == ['*', '/']);
                close.map_or(chars.len(), |close| at + close + 4)
            }
            ('"' | '\'', _) => match string_end(&chars, at) {
                Some(end) => {
                    found.push((line, Token::Text(chars[at + 1..end - 1].iter().collect())));
                    end
                }
                // An apostrophe between tags.
                None => at + 1,
            },
            ('`', _) => template_end(&chars, at),
            _ if is_word(c) => {
                let end = at + chars[at..].iter().take_while(|c| is_word(c)).count();
                found.push((line, Token::Word(chars[at..end].iter().collect())));
                end
            }
            _ => {
                if !c.is_whitespace() {
                    found.push((line, Token::Mark(*c)));
                }
                at + 1
            }
        };
        line += chars[at..end].iter().filter(|c| **c == '\n').count();
        at = end;
    }
    found
}

/// Behind the closing quote, if it stands on the same line.
fn string_end(chars: &[char], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    loop {
        match chars.get(at)? {
            '\n' => return None,
            '\\' => at += 2,
            c if *c == chars[begin] => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Behind the closing backtick; what is put in may have templates of its own.
fn template_end(chars: &[char], begin: usize) -> usize {
    let (mut at, mut depth) = (begin + 1, 0);
    while let Some(c) = chars.get(at) {
        match (c, chars.get(at + 1)) {
            ('\\', _) => at += 1,
            ('$', Some('{')) if depth == 0 => (depth, at) = (1, at + 1),
            ('{', _) if depth > 0 => depth += 1,
            ('}', _) if depth > 0 => depth -= 1,
            ('`', _) if depth == 0 => return at + 1,
            ('`', _) => at = template_end(chars, at) - 1,
            _ => {}
        }
        at += 1;
    }
    chars.len()
}
