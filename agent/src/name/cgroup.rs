//! The cgroup tree as it is mounted here: which directory is which id, and which quota holds where. Owns the reading of
//! `/sys/fs/cgroup` in version 1, version 2 and hybrid layouts; knows no names of workloads and no windows.
//!
//! A cgroup's id is the inode of its directory in the *identity hierarchy*, the one the kernel programs take ids from. A path
//! (relative to the root, beginning with `/`) is the same in every mounted hierarchy.

use crate::window::{CgroupId, WINDOW_NS};
use procfs::process::MountInfo;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories visited in one walk at most.
pub const CGROUPS_MAX: usize = 16_384;

/// Which interface the CPU controller has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuVersion {
    /// `cpu.cfs_quota_us`, `throttled_time`.
    V1,
    /// `cpu.max`, `throttled_usec`.
    V2,
}

/// How cgroups are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Version 2 alone.
    V2,
    /// Version 1 hierarchies alone.
    V1,
    /// Version 1 controllers, and a version 2 tree beside them.
    Hybrid,
    /// Nothing.
    None,
}

/// Where the hierarchies that matter are mounted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mounts {
    /// The version 2 tree.
    pub unified: Option<PathBuf>,
    /// The version 1 hierarchy of the `cpu` controller.
    pub cpu_v1: Option<PathBuf>,
}

impl Mounts {
    /// From `/proc/self/mountinfo`.
    pub fn read() -> std::io::Result<Self> {
        // Whoever mounts something at a name that is no text hides nothing else.
        Ok(Self::parse(&String::from_utf8_lossy(&std::fs::read("/proc/self/mountinfo")?)))
    }

    /// From the text of a mountinfo file.
    pub fn parse(mountinfo: &str) -> Self {
        let mut mounts = Self::default();
        for mount in mountinfo.lines().filter_map(|line| MountInfo::from_line(line).ok()) {
            match mount.fs_type.as_str() {
                "cgroup2" => {
                    mounts.unified.get_or_insert(mount.mount_point);
                }
                "cgroup" if mount.super_options.contains_key("cpu") => {
                    mounts.cpu_v1.get_or_insert(mount.mount_point);
                }
                _ => {}
            }
        }
        mounts
    }

    /// How cgroups are mounted.
    pub fn layout(&self) -> Layout {
        match (&self.unified, &self.cpu_v1) {
            (Some(_), None) => Layout::V2,
            (None, Some(_)) => Layout::V1,
            (Some(_), Some(_)) => Layout::Hybrid,
            (None, None) => Layout::None,
        }
    }

    /// The hierarchy that ids come from: version 2 where it is mounted, else the `cpu` controller's. Socket owners are told in
    /// version 2 only, and systemd keeps a unit's path the same in both. The kernel programs are told the same choice by
    /// `cgroup_hierarchy` of `sample::slots`.
    pub fn identity(&self) -> Option<&Path> {
        self.unified.as_deref().or(self.cpu_v1.as_deref())
    }

    /// The hierarchy of the `cpu` controller.
    pub fn cpu(&self) -> Option<(&Path, CpuVersion)> {
        match (&self.cpu_v1, &self.unified) {
            (Some(path), _) => Some((path, CpuVersion::V1)),
            (None, Some(path)) => Some((path, CpuVersion::V2)),
            (None, None) => None,
        }
    }
}

/// A CPU quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// The cgroup that has it.
    pub cgroup: CgroupId,
    /// Its directory in the hierarchy of the `cpu` controller.
    pub folder: PathBuf,
    /// Whose file names and units hold there.
    pub version: CpuVersion,
    /// CPU time per window that it allows.
    pub per_window_ns: u64,
}

/// Every cgroup of the identity hierarchy, at the last walk.
#[derive(Debug, Clone, Default)]
pub struct CgroupTree {
    mounts: Mounts,
    paths: HashMap<CgroupId, Arc<str>>,
    ids: HashMap<Arc<str>, CgroupId>,
    quotas: BTreeMap<Arc<str>, Quota>,
    cut_off: bool,
}

impl CgroupTree {
    /// Empty until [`walk`](Self::walk).
    pub fn new(mounts: Mounts) -> Self {
        Self { mounts, ..Self::default() }
    }

    /// Reads the whole tree again. Cgroups that are gone keep their path until the next process start, because windows of
    /// them may still be on their way; the oldest are forgotten when there are more than [`CGROUPS_MAX`].
    pub fn walk(&mut self) {
        let Some(root) = self.mounts.identity().map(Path::to_owned) else {
            return;
        };
        self.ids.clear();
        self.quotas.clear();
        self.cut_off = false;
        if self.paths.len() > CGROUPS_MAX {
            self.paths.clear();
        }
        let mut waiting: Vec<(PathBuf, String)> = vec![(root, "/".to_owned())];
        let mut visited = 0_usize;
        while let Some((folder, path)) = waiting.pop() {
            visited += 1;
            if visited > CGROUPS_MAX {
                self.cut_off = true;
                break;
            }
            // Gone between the listing and now: nothing to know about it.
            let Ok(meta) = std::fs::metadata(&folder) else {
                continue;
            };
            let id = CgroupId(meta.ino());
            let name: Arc<str> = Arc::from(path.as_str());
            if let Some(quota) = self.read_quota(id, &path) {
                self.quotas.insert(name.clone(), quota);
            }
            self.paths.insert(id, name.clone());
            self.ids.insert(name, id);
            let Ok(entries) = std::fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir())
                    && let Some(child) = entry.file_name().to_str()
                {
                    let separator = if path == "/" { "" } else { "/" };
                    waiting.push((entry.path(), format!("{path}{separator}{child}")));
                }
            }
        }
    }

    /// Whether the last walk stopped at [`CGROUPS_MAX`].
    pub fn cut_off(&self) -> bool {
        self.cut_off
    }

    /// Path of a cgroup, e.g. `/system.slice/apache2.service`.
    pub fn path(&self, id: CgroupId) -> Option<Arc<str>> {
        self.paths.get(&id).cloned()
    }

    /// The cgroup at `path`, if it was there at the last walk.
    pub fn id(&self, path: &str) -> Option<CgroupId> {
        self.ids.get(path).copied()
    }

    /// Every cgroup of the last walk.
    pub fn all(&self) -> impl Iterator<Item = (Arc<str>, CgroupId)> {
        self.ids.iter().map(|(path, id)| (path.clone(), *id))
    }

    /// As if the last walk had found this cgroup.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self, id: CgroupId, path: &str) {
        let path: Arc<str> = Arc::from(path);
        self.paths.insert(id, path.clone());
        self.ids.insert(path, id);
    }

    /// Every quota of the last walk.
    pub fn quotas(&self) -> Vec<Quota> {
        self.quotas.values().cloned().collect()
    }

    /// Reads the known quotas again, and those of `path` and its parents: an operator may squeeze one at any time.
    pub fn refresh_quotas(&mut self, path: Option<&str>) {
        let mut known: Vec<Arc<str>> = self.quotas.keys().cloned().collect();
        if let Some(path) = path {
            known.extend(parents(path).map(Arc::from));
        }
        for path in known {
            let quota = self.id(&path).and_then(|id| self.read_quota(id, &path));
            match quota {
                Some(quota) => self.quotas.insert(path, quota),
                None => self.quotas.remove(&path),
            };
        }
    }

    /// The quota that binds first on the way from `path` to the root.
    pub fn nearest_quota(&self, path: &str) -> Option<&Quota> {
        parents(path).find_map(|p| self.quotas.get(p))
    }

    /// Where a cgroup's processes are listed.
    pub fn folder(&self, path: &str) -> Option<PathBuf> {
        self.mounts.identity().map(|root| below(root, path))
    }

    /// Whether the scheduler has a group of its own for a cgroup, so that the threads in it share what that one gets; by the version of the
    /// controller. `None`: its tasks are those of a cgroup above it.
    pub fn scheduled(&self, path: &str) -> Option<CpuVersion> {
        let (root, version) = self.mounts.cpu()?;
        let weight = match version {
            CpuVersion::V1 => "cpu.shares",
            CpuVersion::V2 => "cpu.weight",
        };
        below(root, path).join(weight).exists().then_some(version)
    }

    /// Processes of a cgroup, without those of its children; at most `limit`, oldest first as the kernel lists them.
    pub fn processes(&self, path: &str, limit: usize) -> Vec<u32> {
        let Some(root) = self.mounts.identity() else {
            return Vec::new();
        };
        std::fs::read_to_string(below(root, path).join("cgroup.procs"))
            .map(|text| text.lines().filter_map(|l| l.parse().ok()).take(limit).collect())
            .unwrap_or_default()
    }

    /// Paths at and below `path`.
    pub fn subtree<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.ids.keys().map(|p| p.as_ref()).filter(move |p| is_within(p, path))
    }

    fn read_quota(&self, cgroup: CgroupId, path: &str) -> Option<Quota> {
        let (root, version) = self.mounts.cpu()?;
        let folder = below(root, path);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let (quota_us, period_us) = match version {
            CpuVersion::V1 => {
                let quota = read("cpu.cfs_quota_us")?.trim().parse().ok()?;
                let period = read("cpu.cfs_period_us")?.trim().parse().ok()?;
                (quota, period)
            }
            CpuVersion::V2 => parse_cpu_max(&read("cpu.max")?)?,
        };
        Some(Quota { cgroup, per_window_ns: per_window_ns(quota_us, period_us)?, folder, version })
    }
}

/// `max 100000` has none.
fn parse_cpu_max(text: &str) -> Option<(i64, u64)> {
    let mut fields = text.split_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// A quota in us per period as CPU ns per window; version 1 writes -1 for none.
fn per_window_ns(quota_us: i64, period_us: u64) -> Option<u64> {
    let quota_us = u64::try_from(quota_us).ok()?;
    let ns = u128::from(quota_us) * u128::from(WINDOW_NS) / u128::from(period_us.max(1));
    u64::try_from(ns).ok()
}

/// Whether `path` is `top` or below it.
pub fn is_within(path: &str, top: &str) -> bool {
    top == "/" || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The folder of a cgroup in the hierarchy that is mounted at `root`.
pub fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// `path`, its parent, and so on up to `/`.
pub fn parents(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |p| match p.rfind('/') {
        _ if *p == "/" => None,
        Some(0) => Some("/"),
        Some(at) => Some(&p[..at]),
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn layouts_are_told_from_mountinfo() {
        let v2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let cpu = "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
        let other = "32 24 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset";
        let check = |lines: &[&str], expect: Layout, identity: Option<&str>| {
            let mounts = Mounts::parse(&lines.join("\n"));
            assert_eq!(mounts.layout(), expect);
            assert_eq!(mounts.identity().and_then(Path::to_str), identity);
        };
        check(&[v2], Layout::V2, Some("/sys/fs/cgroup"));
        check(&[other, cpu], Layout::V1, Some("/sys/fs/cgroup/cpu,cpuacct"));
        check(&[v2, other, cpu], Layout::Hybrid, Some("/sys/fs/cgroup"));
        check(&[other], Layout::None, None);
    }

    #[test]
    fn version_2_tree() {
        let folder = fixture(&[
            ("cgroup.procs", "1\n"),
            ("system.slice/cgroup.procs", ""),
            ("system.slice/cpu.max", "150000 100000\n"),
            ("system.slice/apache2.service/cgroup.procs", "812\n813\n900\n"),
            ("system.slice/apache2.service/cpu.max", "max 100000\n"),
            ("user.slice/cpu.max", "max 100000\n"),
        ]);
        let mut tree =
            CgroupTree::new(Mounts { unified: Some(folder.path().to_owned()), ..Mounts::default() });
        tree.walk();
        let id = tree.id("/system.slice/apache2.service").unwrap();
        assert_eq!(tree.path(id).as_deref(), Some("/system.slice/apache2.service"));
        assert_eq!(
            tree.nearest_quota("/system.slice/apache2.service").map(|q| q.per_window_ns),
            Some(75_000_000)
        );
        assert_eq!(tree.nearest_quota("/user.slice"), None);
        assert_eq!(tree.processes("/system.slice/apache2.service", 2), [812, 813]);
        let mut below: Vec<&str> = tree.subtree("/system.slice").collect();
        below.sort_unstable();
        assert_eq!(below, ["/system.slice", "/system.slice/apache2.service"]);
    }

    #[test]
    fn version_1_tree_and_a_squeezed_quota() {
        let folder = fixture(&[
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("lab/app/cpu.cfs_quota_us", "6000\n"),
            ("lab/app/cpu.cfs_period_us", "10000\n"),
            ("lab/app/tomcat/cgroup.procs", "5\n"),
        ]);
        let mut tree =
            CgroupTree::new(Mounts { cpu_v1: Some(folder.path().to_owned()), ..Mounts::default() });
        tree.walk();
        let quota = |tree: &CgroupTree| tree.nearest_quota("/lab/app/tomcat").map(|q| q.per_window_ns);
        assert_eq!(quota(&tree), Some(30_000_000));
        std::fs::write(folder.path().join("lab/app/cpu.cfs_quota_us"), "500\n").unwrap();
        tree.refresh_quotas(None);
        assert_eq!(quota(&tree), Some(2_500_000));
        std::fs::write(folder.path().join("lab/app/cpu.cfs_quota_us"), "-1\n").unwrap();
        tree.refresh_quotas(None);
        assert_eq!(quota(&tree), None);
        std::fs::write(folder.path().join("lab/app/cpu.cfs_quota_us"), "1000\n").unwrap();
        tree.refresh_quotas(Some("/lab/app/tomcat"));
        assert_eq!(quota(&tree), Some(5_000_000), "a quota that is new");
    }

    #[test]
    fn subtrees_end_at_path_elements() {
        for (path, top, expect) in [
            ("/lab/web", "/lab/web", true),
            ("/lab/web/apache", "/lab/web", true),
            ("/lab/web2", "/lab/web", false),
            ("/lab", "/lab/web", false),
            ("/anything", "/", true),
        ] {
            assert_eq!(is_within(path, top), expect, "{path} in {top}");
        }
    }

    #[test]
    fn the_tree_of_this_machine() {
        let mounts = Mounts::read().unwrap();
        assert_ne!(mounts.layout(), Layout::None, "nothing is measured where no cgroups are mounted");
        let mut tree = CgroupTree::new(mounts.clone());
        tree.walk();
        let root = tree.id("/").unwrap();
        let inode = std::fs::metadata(mounts.identity().unwrap()).unwrap().ino();
        assert_eq!(root, CgroupId(inode));
        assert!(!tree.cut_off());
    }
}
