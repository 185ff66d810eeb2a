//! Who may do what over HTTP: roles, tokens and their file, sessions of browsers, people whom a proxy names, wrong tokens, and what was
//! changed by whom. Knows no route and no request: `serve/gate.rs` holds these rules against them.

pub mod attempts;
pub mod audit;
pub mod config;
pub mod file;
pub mod role;
pub mod sessions;
pub mod token;
pub mod tokens;
