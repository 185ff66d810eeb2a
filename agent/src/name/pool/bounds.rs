//! What bounds a server beside its own setting: how many files its process may have open, and the memory of its cgroup. Owns how the kernel's files
//! are read, in cgroups of both versions; knows no server.

use std::fs;
use std::path::{Path, PathBuf};

/// From this on a limit of memory is none: v1 writes a number near 2^63 for that.
const NO_LIMIT_BYTES: u64 = 1 << 60;
/// Memory is told to so many binary digits: what moves a little from one minute to the next is not told anew.
const DIGITS: u32 = 4;

/// What is not known or not limited is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Files that the process may have open (its soft limit).
    pub open_files: Option<u64>,
    /// Memory that its cgroup may use, or one above it, whichever is less, bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Memory in its cgroup that belongs to no file, bytes.
    pub memory_used_bytes: Option<u64>,
    /// Processes of its cgroup.
    pub processes: Option<u32>,
}

impl Bounds {
    /// Of a process, below this root of the file system.
    pub(super) fn read(root: &Path, pid: u32) -> Self {
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        let process = root.join("proc").join(pid.to_string());
        let open_files = read(process.join("limits")).as_deref().and_then(open_files);
        let own = read(process.join("cgroup")).unwrap_or_default();
        let Some(cgroup) = Cgroup::of(&root.join("sys/fs/cgroup"), &own) else {
            return Self { open_files, ..Self::default() };
        };
        let limits = cgroup.folder.ancestors().take_while(|at| at.starts_with(&cgroup.mount));
        let limits = limits.filter_map(|at| read(at.join(cgroup.limit))?.trim().parse().ok());
        let used = read(cgroup.folder.join("memory.stat"));
        let used = used.as_deref().and_then(|stat| value(stat, cgroup.used));
        let processes = read(cgroup.folder.join("cgroup.procs")).map(|all| all.lines().count());
        Self {
            open_files,
            memory_limit_bytes: limits.min().filter(|bytes| *bytes < NO_LIMIT_BYTES),
            memory_used_bytes: used.map(rounded),
            processes: processes.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
        }
    }
}

/// The cgroup that counts a process's memory.
struct Cgroup {
    mount: PathBuf,
    folder: PathBuf,
    limit: &'static str,
    used: &'static str,
}

impl Cgroup {
    /// By what the kernel says of the process. Where v1 has the memory controller, v2 has none.
    fn of(mount: &Path, own: &str) -> Option<Self> {
        let line = |controllers: &str| {
            let mut parts = controllers.splitn(3, ':').skip(1);
            Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
        };
        let lines: Vec<(String, String)> = own.lines().filter_map(line).collect();
        let v1 = lines.iter().find(|(controllers, _)| controllers.split(',').any(|of| of == "memory"));
        let (mount, path, limit, used) = match v1 {
            // What is below it counts, too, as in v2.
            Some((_, path)) => (mount.join("memory"), path, "memory.limit_in_bytes", "total_rss"),
            None => {
                let (_, path) = lines.iter().find(|(controllers, _)| controllers.is_empty())?;
                (mount.to_owned(), path, "memory.max", "anon")
            }
        };
        let folder = mount.join(path.trim_start_matches('/'));
        Some(Self { mount, folder, limit, used })
    }
}

/// The soft limit; `None`: unlimited, or not told.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Of a file with a name and a number a line.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Down to so many binary digits.
fn rounded(bytes: u64) -> u64 {
    let more = (u64::BITS - bytes.leading_zeros()).saturating_sub(DIGITS);
    bytes >> more << more
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max processes             95632                95632                processes \n\
        Max open files            1024                 1048576              files     \n";

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn limits_are_read_in_cgroups_of_version_2() {
        let root = host(&[
            ("proc/7/limits", LIMITS),
            ("proc/7/cgroup", "0::/system.slice/gunicorn.service\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "536870912\n"),
            ("sys/fs/cgroup/system.slice/gunicorn.service/memory.max", "max\n"),
            (
                "sys/fs/cgroup/system.slice/gunicorn.service/memory.stat",
                "anon 104857600\nanon_thp 7\nfile 9\n",
            ),
            ("sys/fs/cgroup/system.slice/gunicorn.service/cgroup.procs", "7\n8\n9\n"),
        ]);
        let bounds = Bounds {
            open_files: Some(1024),
            memory_limit_bytes: Some(512 << 20),
            memory_used_bytes: Some(96 << 20),
            processes: Some(3),
        };
        assert_eq!(Bounds::read(root.path(), 7), bounds);
    }

    #[test]
    fn limits_are_read_in_cgroups_of_version_1_where_no_limit_is_a_large_number() {
        let root = host(&[
            (
                "proc/7/limits",
                "Max open files            unlimited            unlimited            files     \n",
            ),
            ("proc/7/cgroup", "9:cpu,cpuacct:/x\n4:memory:/web\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/web/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/web/memory.stat", "rss 5\ntotal_cache 6\ntotal_rss 4096\n"),
        ]);
        let bounds = Bounds::read(root.path(), 7);
        assert_eq!(bounds, Bounds { memory_used_bytes: Some(4096), ..Bounds::default() });
        let limited = root.path().join("sys/fs/cgroup/memory/memory.limit_in_bytes");
        fs::write(limited, "1073741824\n").unwrap();
        assert_eq!(Bounds::read(root.path(), 7).memory_limit_bytes, Some(1 << 30), "of the one above");
    }

    #[test]
    fn a_process_that_is_gone_has_none_and_this_one_has_a_limit_of_files() {
        let root = host(&[("proc/7/cgroup", "nonsense\n::\n")]);
        assert_eq!(Bounds::read(root.path(), 7), Bounds::default());
        assert_eq!(Bounds::read(root.path(), 8), Bounds::default());
        assert!(Bounds::read(Path::new("/"), std::process::id()).processes.is_none_or(|n| n > 0));
        let own = fs::read_to_string("/proc/self/limits").unwrap();
        assert!(own.contains("Max open files"), "{own}");
    }

    #[test]
    fn memory_that_moves_a_little_is_told_the_same() {
        assert_eq!((rounded(0), rounded(15), rounded(16), rounded(17)), (0, 15, 16, 16));
        assert_eq!(rounded(100_000_000), rounded(100_500_000));
        assert!(rounded(u64::MAX) > u64::MAX / 16 * 15);
    }
}
