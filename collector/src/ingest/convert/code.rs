//! From the wire's places in code, where processes ran or waited, to the model's, and what cannot be refused. Called by `convert` alone; knows no
//! window.

use super::place::{PlaceError, at_most, in_batch};
use tailwater_model::window::{CodePath, Doing, EntityId};
use tailwater_proto::v1::{self, code_path};

/// Paths in one batch: an agent tells up to 40 of each look, and looks eight times in 64 windows at most.
const PATHS_MAX: usize = 512;
/// Functions of one path.
const FRAMES_MAX: usize = 64;
/// Bytes of the name of one.
const FRAME_MAX: usize = 256;
/// Bytes of a command: the kernel gives it 15.
const COMM_MAX: usize = 64;
/// Windows that a path may be of, and that it may be told later than the last of them.
const WINDOWS_MAX: u32 = 200;

/// Why places in code are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// In no window of its batch, or more than an agent tells.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// It is of no window, or of too many.
    #[error("a path in code of {windows} windows: it must be 1 to {WINDOWS_MAX}")]
    Windows {
        /// How many.
        windows: u32,
    },
    /// It is of windows that are too long ago.
    #[error("a path in code {ago} windows after the last that it is of: at most {WINDOWS_MAX}")]
    Ago {
        /// How many windows.
        ago: u32,
    },
    /// Neither one nor the other, or what a later version tells.
    #[error("a path in code that neither ran nor waited (doing {doing})")]
    Doing {
        /// The number sent.
        doing: i32,
    },
    /// More than there were in all.
    #[error("a path in code with {samples} samples of {of}")]
    Samples {
        /// With its calls.
        samples: u32,
        /// In all.
        of: u32,
    },
}

/// Each with its window in the batch. `known` gives the id of a workload, which stays 0 where an agent does not know it; a path of one that has none
/// is left out.
pub(super) fn told(
    paths: &[v1::CodePath],
    count: u32,
    mut known: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<(u32, CodePath)>, CodeError> {
    at_most("paths in code in one batch", paths.len(), PATHS_MAX)?;
    let mut found = Vec::new();
    for path in paths {
        let offset = in_batch("a path in code", path.window_offset, count)?;
        let (ago, windows) = (path.windows_ago, path.windows);
        if !(1..=WINDOWS_MAX).contains(&windows) {
            return Err(CodeError::Windows { windows });
        }
        if ago > WINDOWS_MAX {
            return Err(CodeError::Ago { ago });
        }
        let doing = match path.doing() {
            code_path::Doing::Running => Doing::Running,
            code_path::Doing::Waiting => Doing::Waiting,
            code_path::Doing::Unspecified => return Err(CodeError::Doing { doing: path.doing }),
        };
        let (samples, of) = (path.samples, path.of);
        if samples > of {
            return Err(CodeError::Samples { samples, of });
        }
        at_most("bytes of a command", path.comm.len(), COMM_MAX)?;
        at_most("functions of one path in code", path.frames.len(), FRAMES_MAX)?;
        let longest = path.frames.iter().map(String::len).max().unwrap_or(0);
        at_most("bytes of a function's name", longest, FRAME_MAX)?;
        let Some(workload) = known(path.workload) else { continue };
        found.push((
            offset,
            CodePath {
                windows_ago: ago,
                windows,
                workload,
                pid: path.pid,
                comm: path.comm.clone(),
                doing,
                samples,
                of,
                frames: path.frames.clone(),
                cut: path.cut,
            },
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_with_the_ids_of_here_and_what_cannot_be_is_refused() {
        let whole = v1::CodePath {
            window_offset: 1,
            windows_ago: 12,
            windows: 10,
            workload: 3,
            pid: 77,
            comm: "mariadbd".into(),
            doing: code_path::Doing::Waiting as i32,
            samples: 12,
            of: 14,
            frames: vec!["pthread_mutex_lock".into(), "main".into()],
            cut: true,
        };
        let read = |path: v1::CodePath| told(&[path], 2, |id| (id == 3).then_some(9));
        let found = read(whole.clone()).unwrap();
        let (offset, path) = &found[0];
        assert_eq!((*offset, path.workload, path.pid, path.doing), (1, 9, 77, Doing::Waiting));
        assert_eq!((path.windows_ago, path.windows, path.samples, path.of), (12, 10, 12, 14));
        assert_eq!((path.frames.len(), path.cut), (2, true));
        assert_eq!(read(v1::CodePath { workload: 4, ..whole.clone() }), Ok(Vec::new()));
        let all = v1::CodePath { samples: 14, frames: Vec::new(), ..whole.clone() };
        assert_eq!(read(all).unwrap().len(), 1, "in the kernel for itself");

        let outside = read(v1::CodePath { window_offset: 2, ..whole.clone() }).unwrap_err();
        assert_eq!(outside.to_string(), "a path in code in window 2 of 2");
        for windows in [0, WINDOWS_MAX + 1] {
            let refused = read(v1::CodePath { windows, ..whole.clone() });
            assert_eq!(refused, Err(CodeError::Windows { windows }));
        }
        let ago = WINDOWS_MAX + 1;
        let late = v1::CodePath { windows_ago: ago, ..whole.clone() };
        assert_eq!(read(late), Err(CodeError::Ago { ago }));
        for doing in [0, 9] {
            let refused = read(v1::CodePath { doing, ..whole.clone() });
            assert_eq!(refused, Err(CodeError::Doing { doing }));
        }
        let more = v1::CodePath { samples: 15, ..whole.clone() };
        assert_eq!(read(more), Err(CodeError::Samples { samples: 15, of: 14 }));
        for many in [
            v1::CodePath { frames: vec!["f".into(); FRAMES_MAX + 1], ..whole.clone() },
            v1::CodePath { frames: vec!["f".repeat(FRAME_MAX + 1)], ..whole.clone() },
            v1::CodePath { comm: "c".repeat(COMM_MAX + 1), ..whole.clone() },
        ] {
            let refused = read(many);
            assert!(matches!(refused, Err(CodeError::Place(PlaceError::Many { .. }))), "{refused:?}");
        }
        let many = told(&vec![whole; PATHS_MAX + 1], 2, |_| None);
        assert!(matches!(many, Err(CodeError::Place(PlaceError::Many { .. }))), "{many:?}");
    }
}
