//! What this process may have of its machine: memory and open files. Reads the kernel's files and asks for its own limits; knows no setting.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;

/// Memory that this process may use, bytes: that of its cgroup (v2) or of the machine, whichever is less. `None`: neither is told.
pub(super) fn memory_bytes() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).as_deref().and_then(mem_total);
    let own = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let folder = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let folder = Path::new("/sys/fs/cgroup").join(folder.trim_start_matches('/'));
    // A limit of a parent holds, too.
    let limits = folder.ancestors().take_while(|at| at.starts_with("/sys/fs/cgroup"));
    let limits = limits.filter_map(|at| read(&at.join("memory.max"))?.trim().parse().ok());
    limits.chain(machine).min()
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Each agent has a connection: raises this process's limit of open files as far as it goes, and returns it. `None`: there is none.
pub(super) fn raise_file_limit() -> Option<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // What is refused leaves the limit that there is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_memory_and_the_limit_of_files_rises_to_the_most() {
        assert_eq!(mem_total("MemTotal:       24683908 kB\nMemFree: 1 kB\n"), Some(24_683_908 * 1024));
        assert_eq!(mem_total("Inactive: 3 kB\n"), None);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 64 << 20));
        assert_eq!(raise_file_limit(), getrlimit(Resource::Nofile).maximum);
    }
}
