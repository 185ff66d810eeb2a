//! Where in its code a process ran or waited while a resource was short. Owns the JSON shape and the clause of it; knows no cause.

use crate::window::Doing;
use serde::{Deserialize, Serialize};

/// Characters of a function's name in a clause: those of C++ and Rust may have hundreds, of which the first say most.
const NAME_CHARS: usize = 80;

/// One place in the code of a process, with the functions on the way there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// `running`: samples are moments at which one of its threads was on a CPU, some 50 a second of each CPU; `waiting`: its threads that were off
    /// the CPU when somebody looked.
    pub doing: Doing,
    /// The process.
    pub pid: u32,
    /// Its command.
    pub comm: String,
    /// Its part of all samples of the process meanwhile, percent, to the nearest.
    pub percent: u32,
    /// How many samples that are, of all looks together.
    pub samples: u32,
    /// Functions, the innermost first: a name, or a file and the offset in it. Empty: it was in the kernel for itself.
    pub frames: Vec<String>,
    /// Who called the last of them is not known, or not told. Left out if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl Code {
    /// In a clause without its subject: the innermost function that has a name, and the next one of those that called it.
    #[must_use]
    pub fn told(&self) -> String {
        let whose = match self.doing {
            Doing::Running => "CPU samples",
            Doing::Waiting => "waiting threads",
        };
        let part = format!("{} % of its {whose}", self.percent);
        let innermost = self.frames.iter().position(|frame| is_name(frame)).unwrap_or(0);
        let callers = self.frames.get(innermost + 1..).unwrap_or_default();
        let caller = callers.iter().find(|frame| is_name(frame)).or(callers.first());
        match (self.frames.get(innermost).map(|frame| short(frame)), caller.map(|frame| short(frame))) {
            (None, _) => format!("{part} in the kernel"),
            (Some(function), None) => format!("{part} in `{function}`"),
            (Some(function), Some(caller)) => format!("{part} in `{function}`, called by `{caller}`"),
        }
    }
}

/// Whether it is the name of a function, and not a file with an offset in it (`libc.so.6+0x8f2a3`).
fn is_name(frame: &str) -> bool {
    let offset = frame.rsplit_once("+0x").map(|(_, offset)| offset);
    !offset.is_some_and(|of| !of.is_empty() && of.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn short(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS {
        return name.to_owned();
    }
    format!("{}…", name.chars().take(NAME_CHARS).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(doing: Doing, frames: &[&str]) -> Code {
        let frames = frames.iter().map(|frame| (*frame).to_owned()).collect();
        Code { doing, pid: 7, comm: "mariadbd".into(), percent: 78, samples: 39, frames, cut: false }
    }

    #[test]
    fn a_clause_has_the_innermost_function_with_a_name_and_its_caller() {
        let told = |doing, frames: &[&str]| code(doing, frames).told();
        assert_eq!(
            told(Doing::Running, &["row_search_mvcc", "ha_index_read", "main"]),
            "78 % of its CPU samples in `row_search_mvcc`, called by `ha_index_read`"
        );
        assert_eq!(
            told(Doing::Waiting, &["libc.so.6+0x8f2a3", "pthread_mutex_lock"]),
            "78 % of its waiting threads in `pthread_mutex_lock`"
        );
        let unnamed = told(Doing::Running, &["a.out+0x10", "a.out+0x20"]);
        assert_eq!(unnamed, "78 % of its CPU samples in `a.out+0x10`, called by `a.out+0x20`");
        assert_eq!(told(Doing::Running, &[]), "78 % of its CPU samples in the kernel");
        let long = "ä".repeat(NAME_CHARS + 1);
        let told = told(Doing::Running, &[long.as_str()]);
        assert!(told.ends_with("ä…`") && told.chars().count() < 120, "{told}");
    }

    #[test]
    fn a_name_may_have_a_plus_in_it() {
        assert!(is_name("operator+") && is_name("spin") && is_name("a+0xyz") && is_name("a+0x"));
        assert!(!is_name("/usr/lib/libc.so.6+0x8F2a3"));
    }
}
