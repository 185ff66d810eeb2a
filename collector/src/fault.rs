//! A rule between keys of the configuration that is broken: which table and key, what is wrong and what to do.

/// A broken rule, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// `hook`, `silence` or another table of several.
    pub table: &'static str,
    /// Which one, from 0.
    pub index: usize,
    /// The key, or "" when one is missing.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}
