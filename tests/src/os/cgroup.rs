//! Control groups at one path in every mounted hierarchy: v1, v2, or both side by side. Knows file names and formats of the
//! two versions; nothing of tiers.

use anyhow::{Context, Result, bail};
use std::ffi::CString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Mount point.
    pub mount: PathBuf,
    /// `None` for v2; the controllers of a v1 hierarchy otherwise (empty for a named one).
    pub v1_controllers: Option<Vec<String>>,
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        self.v1_controllers.as_ref().is_some_and(|list| list.iter().any(|name| name == controller))
    }

    fn is_v2(&self) -> bool {
        self.v1_controllers.is_none()
    }
}

/// Every hierarchy of this machine.
pub fn hierarchies() -> Result<Arc<Vec<Hierarchy>>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let found = parse_mountinfo(&text);
    if found.is_empty() {
        bail!("no cgroup hierarchy is mounted: mount cgroup2 on /sys/fs/cgroup");
    }
    Ok(Arc::new(found))
}

fn parse_mountinfo(text: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in text.lines() {
        let Some((mount, filesystem)) = line.split_once(" - ") else {
            continue;
        };
        let (Some(point), mut filesystem) = (mount.split(' ').nth(4), filesystem.split(' ')) else {
            continue;
        };
        let kind = filesystem.next().unwrap_or_default();
        let options = filesystem.nth(1).unwrap_or_default();
        let v1_controllers = match kind {
            "cgroup2" => None,
            "cgroup" => Some(
                options
                    .split(',')
                    .filter(|name| !matches!(*name, "rw" | "ro" | "xattr") && !name.contains('='))
                    .map(str::to_owned)
                    .collect(),
            ),
            _ => continue,
        };
        let hierarchy = Hierarchy { mount: PathBuf::from(point), v1_controllers };
        // The same hierarchy may be mounted twice; one door is enough.
        if !found.iter().any(|known| known.v1_controllers == hierarchy.v1_controllers) {
            found.push(hierarchy);
        }
    }
    found
}

/// A cgroup that exists at the same path everywhere.
#[derive(Debug, Clone)]
pub struct Cgroup {
    hierarchies: Arc<Vec<Hierarchy>>,
    path: String,
}

impl Cgroup {
    /// Creates it and its parents. `path` begins with a slash and is relative to each hierarchy's root.
    pub fn create(hierarchies: &Arc<Vec<Hierarchy>>, path: &str) -> Result<Self> {
        for hierarchy in hierarchies.iter() {
            let mut folder = hierarchy.mount.clone();
            for name in Path::new(path).components().skip(1) {
                if hierarchy.is_v2() {
                    enable_controllers(&folder);
                }
                let parent = folder.clone();
                folder.push(name);
                match fs::create_dir(&folder) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                        return Err(error).with_context(|| format!("create {}", folder.display()));
                    }
                    _ => {}
                }
                if hierarchy.has("cpuset") {
                    // An empty cpuset refuses every task; v1 does not inherit.
                    for file in ["cpuset.cpus", "cpuset.mems"] {
                        let value = fs::read_to_string(parent.join(file))?;
                        fs::write(folder.join(file), value.trim())
                            .with_context(|| format!("{}/{file}", folder.display()))?;
                    }
                }
            }
        }
        Ok(Self { hierarchies: Arc::clone(hierarchies), path: path.to_owned() })
    }

    /// Creates a child.
    pub fn child(&self, name: &str) -> Result<Self> {
        Self::create(&self.hierarchies, &format!("{}/{name}", self.path))
    }

    /// The path relative to the root of each hierarchy, e.g. `/tailwater-lab/4f2a/app`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The folder in the hierarchy of a v1 controller, else in v2.
    pub fn folder(&self, controller: &str) -> Result<PathBuf> {
        let hierarchy = self
            .hierarchies
            .iter()
            .find(|hierarchy| hierarchy.has(controller))
            .or_else(|| self.hierarchies.iter().find(|hierarchy| hierarchy.is_v2()))
            .with_context(|| format!("no cgroup hierarchy has the controller {controller}"))?;
        Ok(hierarchy.mount.join(&self.path[1..]))
    }

    fn is_v1(&self, controller: &str) -> bool {
        self.hierarchies.iter().any(|hierarchy| hierarchy.has(controller))
    }

    /// Limits CPU to `cores`, or lifts the limit. The kernel gives no less than a millisecond in a period: a smaller share makes the
    /// period longer.
    pub fn set_cpu_quota(&self, period_us: u32, cores: Option<f64>) -> Result<()> {
        let folder = self.folder("cpu")?;
        let period_us = cores.map_or(period_us, |cores| period_us.max((1000.0 / cores).ceil() as u32));
        let quota_us = cores.map(|cores| (f64::from(period_us) * cores).round().max(1000.0) as u64);
        if self.is_v1("cpu") {
            put(&folder.join("cpu.cfs_period_us"), &period_us.to_string())?;
            let quota = quota_us.map_or_else(|| "-1".to_owned(), |us| us.to_string());
            put(&folder.join("cpu.cfs_quota_us"), &quota)
        } else {
            let quota = quota_us.map_or_else(|| "max".to_owned(), |us| us.to_string());
            put(&folder.join("cpu.max"), &format!("{quota} {period_us}"))
        }
    }

    /// Share of CPU against siblings, 1.0 being what a new cgroup has.
    pub fn set_cpu_weight(&self, times_default: f64) -> Result<()> {
        let folder = self.folder("cpu")?;
        if self.is_v1("cpu") {
            let shares = (1024.0 * times_default).clamp(2.0, 262_144.0) as u32;
            put(&folder.join("cpu.shares"), &shares.to_string())
        } else {
            let weight = (100.0 * times_default).clamp(1.0, 10_000.0) as u32;
            put(&folder.join("cpu.weight"), &weight.to_string())
        }
    }

    /// Limits writes to a block device; `None` lifts the limit. On v1 the limit holds in the root, where the kernel's own
    /// threads do the writing for everybody; v2 has none in the root and charges the writer's tier instead.
    pub fn set_write_limit(&self, device: &str, bytes_per_second: Option<u64>) -> Result<()> {
        if self.is_v1("blkio") {
            return set_v1_root_write_limit(&self.hierarchies, device, bytes_per_second);
        }
        let limit = bytes_per_second.map_or_else(|| "max".to_owned(), |bps| bps.to_string());
        put(&self.folder("io")?.join("io.max"), &format!("{device} wbps={limit}"))
    }

    /// The `cgroup.procs` files that a process has to write itself into, ready for use between fork and exec.
    pub fn procs_files(&self) -> Result<Vec<CString>> {
        self.hierarchies
            .iter()
            .map(|hierarchy| {
                let file = hierarchy.mount.join(&self.path[1..]).join("cgroup.procs");
                CString::new(file.as_os_str().as_bytes()).context("a path without NUL")
            })
            .collect()
    }

    /// Processes in it and below.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        pids_below(&self.hierarchies, &self.path)
    }

    /// CPU time used so far by all tasks in it and below, ns.
    pub fn cpu_usage_ns(&self) -> Result<u64> {
        let folder = self.folder("cpuacct")?;
        if self.is_v1("cpuacct") {
            let file = folder.join("cpuacct.usage");
            return Ok(fs::read_to_string(&file)
                .with_context(|| format!("{}", file.display()))?
                .trim()
                .parse()?);
        }
        Ok(stat_value(&folder.join("cpu.stat"), "usage_usec")? * 1000)
    }

    /// Time its tasks stood still because the quota was used up, ns.
    pub fn throttled_ns(&self) -> Result<u64> {
        let file = self.folder("cpu")?.join("cpu.stat");
        if self.is_v1("cpu") {
            stat_value(&file, "throttled_time")
        } else {
            Ok(stat_value(&file, "throttled_usec")? * 1000)
        }
    }
}

/// Sets or clears (`None`) the write limit of a device in the root of the v1 blkio hierarchy, if there is one.
pub fn set_v1_root_write_limit(
    hierarchies: &[Hierarchy],
    device: &str,
    bytes_per_second: Option<u64>,
) -> Result<()> {
    let Some(hierarchy) = hierarchies.iter().find(|hierarchy| hierarchy.has("blkio")) else {
        return Ok(());
    };
    let limit = bytes_per_second.unwrap_or(0);
    put(&hierarchy.mount.join("blkio.throttle.write_bps_device"), &format!("{device} {limit}"))
}

/// Processes in the cgroup at `path`, and below, in any hierarchy.
#[must_use]
pub fn pids_below(hierarchies: &[Hierarchy], path: &str) -> Vec<i32> {
    let mut pids = Vec::new();
    for hierarchy in hierarchies {
        for folder in folders_below(&hierarchy.mount.join(&path[1..])) {
            let procs = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            pids.extend(procs.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
    }
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Removes the cgroup at `path` and everything below from all hierarchies. Waits a little for tasks that are just exiting.
pub fn remove(hierarchies: &[Hierarchy], path: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    for hierarchy in hierarchies {
        for folder in folders_below(&hierarchy.mount.join(&path[1..])) {
            loop {
                match fs::remove_dir(&folder) {
                    Ok(()) => break,
                    Err(error) if error.kind() == ErrorKind::NotFound => break,
                    Err(_) if Instant::now() < deadline => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    Err(error) => {
                        return Err(error).with_context(|| format!("remove {}", folder.display()));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Children before parents, `top` last; empty if it does not exist.
fn folders_below(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(top) else {
        return found;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(folders_below(&entry.path()));
        }
    }
    found.push(top.to_owned());
    found
}

/// Lets the children of a v2 cgroup have the controllers it has. A controller that is refused here (bound to v1, or threads
/// in the root) is one that the caller will miss by name when it writes its file.
fn enable_controllers(folder: &Path) {
    let available = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    for controller in ["cpu", "memory", "io", "pids"] {
        if available.split_whitespace().any(|name| name == controller) {
            let _ = fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
}

fn put(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).with_context(|| {
        let missing = if file.exists() { "" } else { needs(file) };
        format!("write {value:?} to {}{missing}", file.display())
    })
}

/// What a kernel lacks in whose cgroups there is no such file.
fn needs(file: &Path) -> &'static str {
    match file.file_name().and_then(|name| name.to_str()) {
        Some("cpu.max" | "cpu.cfs_period_us" | "cpu.cfs_quota_us") => {
            ", which this kernel does not have (CONFIG_CFS_BANDWIDTH, and the cpu controller enabled): try another kernel"
        }
        Some("io.max" | "blkio.throttle.write_bps_device") => {
            ", which this kernel does not have (CONFIG_BLK_DEV_THROTTLING, and the io controller enabled): try another kernel"
        }
        _ => ", which this kernel does not have: try another kernel",
    }
}

fn stat_value(file: &Path, key: &str) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
        .with_context(|| format!("{} has no {key}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_hybrid_and_pure_machines_are_recognised() {
        let hybrid = "\
25 20 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
26 20 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
27 20 0:24 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
28 20 0:25 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
29 20 0:26 / /tmp rw - tmpfs tmpfs rw";
        let found = parse_mountinfo(hybrid);
        assert_eq!(found.len(), 4);
        assert!(found[0].has("cpu") && !found[0].has("cpuacct"));
        assert!(found[1].has("cpuacct"));
        assert_eq!(found[2].v1_controllers, Some(vec![]));
        assert!(found[3].is_v2());

        let pure = "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        let found = parse_mountinfo(pure);
        assert_eq!(found.len(), 1);
        assert!(found[0].is_v2());
    }

    /// A v2 hierarchy of plain files: what would be written, on a machine whose controllers are all bound to v1.
    #[test]
    fn a_pure_v2_machine_gets_v2_files() {
        let mount = tempfile::tempdir().unwrap();
        let all = Arc::new(vec![Hierarchy { mount: mount.path().to_owned(), v1_controllers: None }]);
        let group = Cgroup::create(&all, "/tailwater-lab/t/app").unwrap();
        let folder = mount.path().join("tailwater-lab/t/app");
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();

        group.set_cpu_quota(10_000, Some(0.6)).unwrap();
        assert_eq!(read("cpu.max"), "6000 10000");
        group.set_cpu_quota(10_000, Some(0.02)).unwrap();
        assert_eq!(read("cpu.max"), "1000 50000");
        group.set_cpu_quota(10_000, None).unwrap();
        assert_eq!(read("cpu.max"), "max 10000");
        group.set_cpu_weight(10.0).unwrap();
        assert_eq!(read("cpu.weight"), "1000");
        group.set_write_limit("7:1", Some(1000)).unwrap();
        assert_eq!(read("io.max"), "7:1 wbps=1000");
        fs::write(folder.join("cpu.stat"), "usage_usec 5\nthrottled_usec 7\n").unwrap();
        assert_eq!(group.cpu_usage_ns().unwrap(), 5000);
        assert_eq!(group.throttled_ns().unwrap(), 7000);
    }
}
