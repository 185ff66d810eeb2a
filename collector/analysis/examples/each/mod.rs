//! Several recordings at once, on as many threads as there are CPUs, and what is printed of each in their order. For examples that are given a list
//! of inputs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What ends an example.
pub(crate) type Failed = Box<dyn Error + Send + Sync>;

/// Prints what `lines` says of each file that the command line names.
pub(crate) fn print_of_each(lines: impl Fn(&Path) -> Result<String, Failed> + Sync) -> Result<(), Failed> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let next = AtomicUsize::new(0);
    let told: Vec<OnceLock<_>> = paths.iter().map(|_| OnceLock::new()).collect();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(path), Some(place)) = (paths.get(at), told.get(at)) else { return };
                    place.get_or_init(|| lines(path));
                }
            });
        }
    });
    for one in told {
        print!("{}", one.into_inner().ok_or("a recording was left out")??);
    }
    Ok(())
}
