//! Files, the arrows between them, and what is wrong with those. Knows neither Rust nor TypeScript, and not which files there are.

use crate::table::Table;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A file that names others.
#[derive(Debug)]
pub(crate) struct File {
    /// From the root of the repository.
    pub(crate) path: String,
    /// The room it stands in; none for the root of a library, which only says which there are.
    pub(crate) room: Option<String>,
}

/// The files of a crate or of the page.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The package, or the folder of the page.
    pub(crate) of: String,
    pub(crate) files: Vec<File>,
    /// From file to file: the lines that name it, with the first name on each.
    pub(crate) arrows: BTreeMap<(usize, usize), BTreeMap<usize, String>>,
    /// From a file to another crate of the workspace: a line, and the crate that it names.
    pub(crate) crates: BTreeSet<(usize, usize, String)>,
}

impl Graph {
    fn path(&self, file: usize) -> &str {
        &self.files[file].path
    }

    fn named_by(&self, file: usize) -> impl Iterator<Item = usize> {
        self.arrows.range((file, 0)..(file + 1, 0)).map(|((_, to), _)| *to)
    }

    /// Files that can be reached from one by at least one arrow.
    fn reached_from(&self, file: usize) -> BTreeSet<usize> {
        let (mut found, mut open) = (BTreeSet::new(), vec![file]);
        while let Some(next) = open.pop() {
            open.extend(self.named_by(next).filter(|to| found.insert(*to)));
        }
        found
    }

    /// The files of a shortest way from one back to it.
    fn way_round(&self, file: usize) -> Option<Vec<usize>> {
        let mut way_to: BTreeMap<usize, Vec<usize>> = BTreeMap::from([(file, vec![file])]);
        let mut open = VecDeque::from([file]);
        while let Some(next) = open.pop_front() {
            let way = way_to[&next].clone();
            for to in self.named_by(next) {
                if to == file {
                    return Some(way);
                }
                if let Entry::Vacant(unseen) = way_to.entry(to) {
                    unseen.insert(way.iter().copied().chain([to]).collect());
                    open.push_back(to);
                }
            }
        }
        None
    }

    fn tell(&self, circle: &BTreeSet<usize>) -> Option<String> {
        let way = circle.iter().filter_map(|file| self.way_round(*file)).min_by_key(Vec::len)?;
        let mut text = format!("a circle of {} files", circle.len());
        if way.len() < circle.len() {
            text += &format!(", of which the shortest has {}", way.len());
        }
        text += " (file:line → file):";
        let arrows: Vec<(usize, usize)> =
            way.iter().copied().zip(way.iter().copied().cycle().skip(1)).collect();
        for arrow in &arrows {
            let lines = &self.arrows[arrow];
            let (line, name) = lines.first_key_value()?;
            let more = match lines.len() {
                1 => String::new(),
                2 => ", and 1 line more".to_owned(),
                n => format!(", and {} lines more", n - 1),
            };
            text += &format!("\n  {}:{line} → {} ({name}{more})", self.path(arrow.0), self.path(arrow.1));
        }
        let (from, to) = arrows.into_iter().min_by_key(|arrow| self.arrows[arrow].len())?;
        let lines: Vec<String> = self.arrows[&(from, to)].keys().map(usize::to_string).collect();
        text += &format!(
            "\n  cut {}:{} → {}: no other arrow has fewer lines behind it; move what both need into a file below both",
            self.path(from),
            lines.join(","),
            self.path(to)
        );
        Some(text)
    }
}

/// Every circle of files, each by a shortest way round.
pub(crate) fn circles(graph: &Graph) -> Vec<String> {
    let reached: Vec<BTreeSet<usize>> = (0..graph.files.len()).map(|file| graph.reached_from(file)).collect();
    let (mut told, mut found) = (BTreeSet::new(), Vec::new());
    for file in 0..graph.files.len() {
        if reached[file].contains(&file) && !told.contains(&file) {
            let circle: BTreeSet<usize> =
                reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect();
            found.extend(graph.tell(&circle));
            told.extend(circle);
        }
    }
    found
}

/// Every arrow that a table forbids, every room that it does not have, and every row that is for nothing.
pub(crate) fn forbidden(graph: &Graph, table: &Table) -> Vec<String> {
    let mut wrong = table.faults();
    let mut rooms: BTreeMap<&str, &str> = BTreeMap::new();
    for file in &graph.files {
        if let Some(room) = &file.room {
            rooms.entry(room).or_insert(&file.path);
        }
    }
    for (room, path) in &rooms {
        if table.may_use(room).is_none() {
            wrong.push(format!(
                "{path}: {room} is in no row of the table of {}: add it to tests/tests/arrows/table.rs, with what it may use",
                graph.of
            ));
        }
    }
    for row in table.rows().filter(|row| !rooms.contains_key(row)) {
        wrong.push(format!("the table of {} has a row for {row}, which is no more: take it out", graph.of));
    }
    let mut arrows = Vec::new();
    for ((from, to), lines) in &graph.arrows {
        let (Some(own), Some(used)) = (&graph.files[*from].room, &graph.files[*to].room) else { continue };
        let Some(may_use) = table.may_use(own).filter(|may| own != used && !may.contains(&used.as_str()))
        else {
            continue;
        };
        let may_use = if may_use.is_empty() { "nothing".to_owned() } else { may_use.join(", ") };
        arrows.extend(lines.iter().map(|(line, name)| {
            let path = graph.path(*from);
            (path, line, format!("{path}:{line}: {own} must not know {used} ({name}); may use: {may_use}"))
        }));
    }
    arrows.sort();
    wrong.extend(arrows.into_iter().map(|(_, _, told)| told));
    wrong
}
