//! Looks before anything is started whether this machine has what the demo and the laboratory need, and says what is missing and what to do.
//! Facts are read in one place; what they mean is a pure function.

use crate::console::failure::REMEDY;
use crate::os::{cgroup, is_root};
use anyhow::{Result, bail};
use std::ffi::CString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Type information of the running kernel.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// linux/btf.h: the first two bytes, in the byte order of the machine.
const BTF_MAGIC: u16 = 0xeb9f;
/// The servers, the disk in memory and Tailwater's programs take 1.1 GB; the rest is for what was running already.
const MEMORY_BYTES: u64 = 1500 << 20;
/// Recording, the collector's data and logs take some 20 MB.
const FOLDER_BYTES: u64 = 100 << 20;
/// Databases made once, two of 130 MB, and the compiled servlet.
const CACHE_BYTES: u64 = 400 << 20;
/// Where the laboratory keeps those.
const CACHE: &str = "/var/cache";
/// The tiers take one core together, agents and collector another one.
const CPUS: usize = 2;
/// What the default stacks start, and the Debian package of each.
const TOOLS: [(&str, &str); 8] = [
    ("/usr/sbin/apache2", "apache2-bin"),
    ("java", "openjdk-17-jdk-headless"),
    ("/usr/share/tomcat10/bin/bootstrap.jar", "tomcat10-common"),
    ("/usr/sbin/mariadbd", "mariadb-server-core"),
    ("ip", "iproute2"),
    ("ss", "iproute2"),
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
];

/// What was found.
#[derive(Debug, Clone)]
struct Facts {
    root: bool,
    btf: Result<(), String>,
    memory_available_bytes: u64,
    /// Free space where data goes: the folder, what is there, what it takes.
    free: Vec<(PathBuf, u64, u64)>,
    cpus: usize,
    tools_missing: Vec<(&'static str, &'static str)>,
    cgroups: bool,
    loop_devices: bool,
}

/// Fails with what this machine lacks. `folder` is where logs and data go.
pub fn check(folder: &Path) -> Result<()> {
    match lacks(&Facts::read(folder)) {
        None => Ok(()),
        Some((what, remedy)) => bail!("{what}{REMEDY}{remedy}"),
    }
}

impl Facts {
    fn read(folder: &Path) -> Self {
        // The folder itself is made later.
        let existing = folder.ancestors().find(|part| part.exists() && !part.as_os_str().is_empty());
        let existing = existing.unwrap_or(Path::new(".")).to_owned();
        let space = |path: PathBuf, needed| {
            let free = free_bytes(&path);
            (path, free, needed)
        };
        // Once the databases are made, they are not made again.
        let cache = (!Path::new(CACHE).join("tailwater-lab").exists()).then(|| PathBuf::from(CACHE));
        let free = std::iter::once(space(existing, FOLDER_BYTES))
            .chain(cache.map(|path| space(path, CACHE_BYTES)))
            .collect();
        Self {
            root: is_root(),
            btf: read_btf(),
            memory_available_bytes: memory_available_bytes(),
            free,
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            tools_missing: TOOLS.into_iter().filter(|(tool, _)| !is_installed(tool)).collect(),
            cgroups: cgroup::hierarchies().is_ok(),
            loop_devices: Path::new("/dev/loop-control").exists() || Path::new("/sys/module/loop").exists(),
        }
    }
}

/// The first thing that is missing, and what to do; the most fundamental first.
fn lacks(facts: &Facts) -> Option<(String, String)> {
    let mebibytes = |bytes: u64| bytes >> 20;
    if !facts.root {
        let what = "it needs root: it makes network namespaces and cgroups and loads kernel programs";
        return Some((what.to_owned(), "run it with sudo, as `make demo` does".to_owned()));
    }
    if let Err(why) = &facts.btf {
        let what =
            format!("this kernel has no type information, without which no agent can attach ({BTF}: {why})");
        let remedy =
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y (every distribution's since 2021), or mount /sys";
        return Some((what, remedy.to_owned()));
    }
    if !facts.tools_missing.is_empty() {
        let tools: Vec<&str> = facts.tools_missing.iter().map(|(tool, _)| *tool).collect();
        let mut packages: Vec<&str> = facts.tools_missing.iter().map(|(_, package)| *package).collect();
        packages.dedup();
        let remedy = format!("run tests/lab/install.sh, or install the packages {}", packages.join(", "));
        return Some((format!("this machine has no {}", tools.join(", ")), remedy));
    }
    if !facts.cgroups {
        let what = "no cgroup hierarchy is mounted".to_owned();
        return Some((what, "mount -t cgroup2 cgroup2 /sys/fs/cgroup".to_owned()));
    }
    if !facts.loop_devices {
        return Some(("this kernel has no loop devices".to_owned(), "modprobe loop".to_owned()));
    }
    if facts.cpus < CPUS {
        let what = format!("this machine has {} CPU, the servers and their agents need {CPUS}", facts.cpus);
        return Some((what, "give it another one".to_owned()));
    }
    if facts.memory_available_bytes < MEMORY_BYTES {
        let (has, needs) = (mebibytes(facts.memory_available_bytes), mebibytes(MEMORY_BYTES));
        let what = format!("{has} MB of memory are available, the servers need {needs} MB");
        return Some((what, "close what takes memory, or use a larger machine".to_owned()));
    }
    let full = facts.free.iter().find(|(_, free, needed)| free < needed)?;
    let (path, free, needed) = (full.0.display(), mebibytes(full.1), mebibytes(full.2));
    let what = format!("{free} MB are free in {path}, it needs {needed} MB there");
    Some((what, "make room, or name another folder with --folder".to_owned()))
}

fn read_btf() -> Result<(), String> {
    let mut magic = [0; 2];
    std::fs::File::open(BTF).and_then(|mut file| file.read_exact(&mut magic)).map_err(|e| e.to_string())?;
    if u16::from_ne_bytes(magic) == BTF_MAGIC { Ok(()) } else { Err("not what it should be".to_owned()) }
}

fn memory_available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok());
    // A kernel that does not tell is not refused for that.
    kib.map_or(u64::MAX, |kib: u64| kib << 10)
}

/// What a file there may take. Where it cannot be told nothing is refused.
fn free_bytes(path: &Path) -> u64 {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return u64::MAX };
    // SAFETY: an all-zero struct is a valid one; the call reads a NUL-terminated path and writes the struct.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        match libc::statvfs(path.as_ptr(), &raw mut stat) {
            0 => stat.f_bavail.saturating_mul(stat.f_frsize),
            _ => u64::MAX,
        }
    }
}

fn is_installed(tool: &str) -> bool {
    if tool.starts_with('/') {
        return Path::new(tool).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // As the laboratory's own commands are found: sudo may have a shorter PATH.
    let more = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).any(|folder| folder.join(tool).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Facts {
        Facts {
            root: true,
            btf: Ok(()),
            memory_available_bytes: 4 << 30,
            free: vec![(PathBuf::from("/data"), 1 << 30, FOLDER_BYTES)],
            cpus: 2,
            tools_missing: Vec::new(),
            cgroups: true,
            loop_devices: true,
        }
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        assert_eq!(lacks(&everything()), None);
        let missing = vec![("ip", "iproute2"), ("ss", "iproute2"), ("/usr/sbin/apache2", "apache2-bin")];
        for (facts, what, remedy) in [
            (Facts { root: false, ..everything() }, "root", "sudo"),
            (
                Facts { btf: Err("No such file".into()), ..everything() },
                "/sys/kernel/btf/vmlinux: No such file",
                "CONFIG_DEBUG_INFO_BTF",
            ),
            (
                Facts { tools_missing: missing, ..everything() },
                "no ip, ss, /usr/sbin/apache2",
                "iproute2, apache2-bin",
            ),
            (Facts { cgroups: false, ..everything() }, "cgroup", "mount -t cgroup2"),
            (Facts { loop_devices: false, ..everything() }, "loop", "modprobe"),
            (Facts { cpus: 1, ..everything() }, "1 CPU", "another"),
            (Facts { memory_available_bytes: 700 << 20, ..everything() }, "700 MB of memory", "memory"),
            (
                Facts { free: vec![("/data".into(), 3 << 20, FOLDER_BYTES)], ..everything() },
                "3 MB are free in /data",
                "--folder",
            ),
        ] {
            let (said, to_do) = lacks(&facts).unwrap();
            assert!(said.contains(what), "{said}");
            assert!(to_do.contains(remedy), "{to_do}");
            assert!(!said.contains('\n') && !to_do.contains('\n'));
        }
    }

    #[test]
    fn facts_of_this_machine_can_be_read() {
        let facts = Facts::read(Path::new("/not/there/yet"));
        assert!(facts.memory_available_bytes > 0 && facts.cpus > 0);
        assert_eq!(facts.free[0].0, PathBuf::from("/"));
        assert!(facts.free[0].1 > 0);
    }
}
