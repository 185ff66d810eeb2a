//! Every parser of bytes that somebody else wrote, each as a function of those bytes: it must come back, whatever they are. libFuzzer calls them
//! with what it makes up (`make fuzz`), the tests with what is in `corpus`, so that what was found once is looked at for ever.

mod fences;
mod files;
mod http;
mod messages;
mod replies;
mod scratch;
mod segments;
mod wire;

pub use http::SPANS_UNIX_NS;
pub use replies::key;

/// One parser.
#[derive(Debug)]
pub struct Target {
    /// As its folder in `corpus` is called.
    pub name: &'static str,
    /// Comes back, or the parser is wrong.
    pub take: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "columns", take: wire::columns },
    Target { name: "wire", take: wire::stream },
    Target { name: "recording", take: wire::recording },
    Target { name: "http", take: http::request },
    Target { name: "spans", take: http::spans },
    Target { name: "agent_configuration", take: files::agent_configuration },
    Target { name: "collector_configuration", take: files::collector_configuration },
    Target { name: "tokens", take: files::tokens },
    Target { name: "btf", take: files::btf },
    Target { name: "mounts", take: files::mounts },
    Target { name: "pools", take: files::pools },
    Target { name: "segments", take: segments::segment },
    Target { name: "executables", take: files::executables },
    Target { name: "replies", take: replies::replies },
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
