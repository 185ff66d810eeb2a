//! What this process may have of its machine: memory and open files. Reads the kernel's files and asks for its own limits; knows no setting.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;

/// Memory that this process may use, bytes: that of its cgroup (v1 or v2) or of the machine, whichever is less. `None`: neither is told.
pub(super) fn memory_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").as_deref().and_then(mem_total);
    let own = read("/proc/self/cgroup").unwrap_or_default();
    cgroup_limits(Path::new("/sys/fs/cgroup"), &own).into_iter().chain(machine).min()
}

/// Limits of the cgroup that `/proc/self/cgroup` names, and of those above it, which hold, too. Where v1 has the memory controller it is mounted in
/// a folder of its own, beside which v2 has none; there no limit is a number near 2^63, which is never the least.
fn cgroup_limits(mount: &Path, own: &str) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            of if of.split(',').any(|of| of == "memory") => (mount.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        let folder = root.join(path.trim_start_matches('/'));
        let folders = folder.ancestors().take_while(|at| at.starts_with(&root));
        limits.extend(
            folders.filter_map(|at| std::fs::read_to_string(at.join(file)).ok()?.trim().parse::<u64>().ok()),
        );
    }
    limits
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
    fn limits_of_either_version_and_of_the_cgroups_above_hold() {
        let mount = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = mount.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/docker/memory.limit_in_bytes", "2147483648\n");
        write("memory/docker/c1/memory.limit_in_bytes", "4294967296\n");
        let limits = |own: &str| cgroup_limits(mount.path(), own).into_iter().min();
        assert_eq!(
            limits("5:cpu,cpuacct:/x\n4:memory:/docker/c1\n0::/\n"),
            Some(2 << 30),
            "of the one above"
        );
        assert_eq!(
            limits("9:hugetlb,memory:/not/seen/here\n"),
            Some(9_223_372_036_854_771_712),
            "the mount's own"
        );
        write("system.slice/memory.max", "1073741824\n");
        write("system.slice/tailwater.service/memory.max", "max\n");
        assert_eq!(limits("0::/system.slice/tailwater.service\n"), Some(1 << 30));
        assert_eq!(limits("0::/\n"), None);
        assert_eq!(limits("3:cpu:/docker/c1\nnonsense\n"), None);
    }

    #[test]
    fn the_kernel_tells_memory_and_the_limit_of_files_rises_to_the_most() {
        assert_eq!(mem_total("MemTotal:       24683908 kB\nMemFree: 1 kB\n"), Some(24_683_908 * 1024));
        assert_eq!(mem_total("Inactive: 3 kB\n"), None);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 64 << 20));
        assert_eq!(raise_file_limit(), getrlimit(Resource::Nofile).maximum);
    }
}
