//! How long each cgroup with a CPU quota was throttled, from its `cpu.stat`. Owns the open files and the totals read before;
//! knows neither workload names nor the kernel logs.

use crate::name::cgroup::{CpuVersion, Quota, is_within};
use crate::name::workload::Entities;
use crate::signal::{Coverage, Loss, SignalKind, SignalSource};
use crate::window::{CgroupId, Window, WindowIndex};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Files kept open at most; cgroups with a quota beyond it are not read, and counted. A pod and each of its containers may have one, so that a
/// large node has more.
pub const FILES_MAX: usize = 512;

/// The quotas to watch, told by who knows the cgroup tree.
#[derive(Debug, Clone, Default)]
pub struct Quotas(Arc<Mutex<Option<Vec<Quota>>>>);

impl Quotas {
    /// Publishes the quotas of the last walk: all, or those at, below and nearest above the scope.
    pub fn publish(&self, entities: &Entities, scope: Option<&str>) {
        let tree = entities.tree();
        let nearest = scope.and_then(|s| tree.nearest_quota(s)).map(|q| q.cgroup);
        let mut quotas = tree.quotas();
        quotas.retain(|q| {
            let path = tree.path(q.cgroup);
            Some(q.cgroup) == nearest || scope.is_none_or(|s| path.is_some_and(|path| is_within(&path, s)))
        });
        // Of more than can be read those come first by which something is bound that values are told of.
        if quotas.len() > FILES_MAX {
            let binding = entities.binding_quotas();
            quotas.sort_by_key(|q| Some(q.cgroup) != nearest && !binding.contains(&q.cgroup));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(quotas);
    }

    fn take(&self) -> Option<Vec<Quota>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The throttling signal: no kernel program, one pread per cgroup with a quota and window.
#[derive(Debug)]
pub struct ThrottleSignal {
    reader: ThrottleReader,
    quotas: Quotas,
    hook: &'static str,
}

impl ThrottleSignal {
    /// `version` is that of the cpu controller here.
    pub fn new(quotas: Quotas, version: CpuVersion) -> Self {
        let hook = match version {
            CpuVersion::V1 => "cpu.stat throttled_time (cgroup v1)",
            CpuVersion::V2 => "cpu.stat throttled_usec (cgroup v2)",
        };
        Self { reader: ThrottleReader::default(), quotas, hook }
    }
}

impl SignalSource for ThrottleSignal {
    fn name(&self) -> &'static str {
        "throttling"
    }

    fn coverage(&self) -> Vec<Coverage> {
        vec![Coverage {
            signal: SignalKind::Throttling,
            covered: true,
            sampled: false,
            hook: self.hook.to_owned(),
            reason: String::new(),
        }]
    }

    fn losses(&self) -> Vec<Loss> {
        vec![Loss { what: "throttling_cgroups_unread", count: self.reader.beyond_limit() }]
    }

    fn drain(&mut self, into: &mut Window) {
        if let Some(quotas) = self.quotas.take() {
            self.reader.watch(&quotas);
        }
        if into.late {
            self.reader.missed();
        } else {
            into.throttled = self.reader.read(into.index);
        }
    }

    fn skip_to(&mut self, _: WindowIndex) {
        self.reader.missed();
    }

    fn rest(&mut self, _: bool) -> bool {
        // It works only while it is drained.
        true
    }

    fn set_epoch_offset_ns(&mut self, _: i64) {}
}

struct Watched {
    file: File,
    version: CpuVersion,
    total_ns: Option<u64>,
}

/// Reads the throttled time of a set of cgroups, one window after the other.
#[derive(Default)]
pub struct ThrottleReader {
    watched: BTreeMap<CgroupId, Watched>,
    last: Option<WindowIndex>,
    beyond_limit: u64,
}

impl std::fmt::Debug for ThrottleReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThrottleReader").field("files", &self.watched.len()).finish_non_exhaustive()
    }
}

impl ThrottleReader {
    /// Watches exactly the cgroups that `quotas` lists, the first [`FILES_MAX`] of them; files already open stay open.
    pub fn watch(&mut self, quotas: &[Quota]) {
        let (quotas, beyond) = quotas.split_at(quotas.len().min(FILES_MAX));
        self.beyond_limit += beyond.len() as u64;
        self.watched.retain(|id, _| quotas.iter().any(|q| q.cgroup == *id));
        for quota in quotas {
            if self.watched.contains_key(&quota.cgroup) {
                continue;
            }
            // A cgroup that went away between the walk and now has nothing to read.
            if let Ok(file) = File::open(Path::new(&quota.folder).join("cpu.stat")) {
                self.watched.insert(quota.cgroup, Watched { file, version: quota.version, total_ns: None });
            }
        }
    }

    /// Cgroups that were not watched because [`FILES_MAX`] files are open.
    pub fn beyond_limit(&self) -> u64 {
        self.beyond_limit
    }

    /// The throttled ns of each cgroup in `window`, which must have closed just now. `None` when the window before was not
    /// read in time: the difference would smear several windows into this one.
    pub fn read(&mut self, window: WindowIndex) -> Option<Vec<(CgroupId, u64)>> {
        let in_step = self.last.is_some_and(|last| last.0 + 1 == window.0);
        self.last = Some(window);
        let mut values = Vec::with_capacity(self.watched.len());
        for (id, watched) in &mut self.watched {
            let Some(total_ns) = watched.read() else {
                continue;
            };
            // A file first read now has no window before it; that cgroup starts with the next window.
            if let Some(before) = watched.total_ns.replace(total_ns) {
                values.push((*id, total_ns.saturating_sub(before)));
            }
        }
        in_step.then_some(values)
    }

    /// `window` was drained late: whatever is read next has no whole window before it.
    pub fn missed(&mut self) {
        self.last = None;
    }
}

impl Watched {
    fn read(&self) -> Option<u64> {
        let mut buffer = [0_u8; 1024];
        let length = self.file.read_at(&mut buffer, 0).ok()?;
        throttled_ns(std::str::from_utf8(&buffer[..length]).ok()?, self.version)
    }
}

/// The total in `cpu.stat`: ns in version 1, us in version 2.
fn throttled_ns(text: &str, version: CpuVersion) -> Option<u64> {
    let (key, unit_ns) = match version {
        CpuVersion::V1 => ("throttled_time ", 1),
        CpuVersion::V2 => ("throttled_usec ", 1_000),
    };
    text.lines()
        .find_map(|line| line.strip_prefix(key))?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|value| value.saturating_mul(unit_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::cgroup::Mounts;

    fn quota(folder: &Path, version: CpuVersion) -> Quota {
        Quota { cgroup: CgroupId(7), folder: folder.to_owned(), version, per_window_ns: 25_000_000 }
    }

    #[test]
    fn reads_both_versions_in_ns() {
        let v1 = "nr_periods 12\nnr_throttled 3\nthrottled_time 70123\nnr_bursts 0\n";
        let v2 = "usage_usec 9\nnr_throttled 3\nthrottled_usec 70\n";
        assert_eq!(throttled_ns(v1, CpuVersion::V1), Some(70_123));
        assert_eq!(throttled_ns(v2, CpuVersion::V2), Some(70_000));
        assert_eq!(throttled_ns(v2, CpuVersion::V1), None);
    }

    #[test]
    fn of_more_quotas_than_can_be_read_those_are_by_which_something_named_is_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: usize| format!("/of-{n:04}");
        for n in 0..FILES_MAX + 100 {
            let at = folder.path().join(&path(n)[1..]);
            std::fs::create_dir(&at).unwrap();
            std::fs::write(at.join("cpu.max"), "50000 100000\n").unwrap();
            std::fs::write(at.join("cpu.stat"), "throttled_usec 7\n").unwrap();
        }
        let mounts = Mounts { unified: Some(folder.path().to_owned()), ..Mounts::default() };
        let mut entities = Entities::new(mounts, folder.path());
        let (quotas, mut reader) = (Quotas::default(), ThrottleReader::default());
        let mut watch = |entities: &Entities, last: CgroupId| {
            quotas.publish(entities, None);
            reader.watch(&quotas.take().unwrap());
            assert_eq!(reader.watched.len(), FILES_MAX);
            reader.watched.contains_key(&last)
        };
        let last = entities.tree().id(&path(FILES_MAX + 99)).unwrap();
        assert!(!watch(&entities, last));
        assert_ne!(entities.workload(last), 0);
        assert!(watch(&entities, last), "it takes the place of one that binds nothing named");
        assert_eq!(reader.beyond_limit(), 200);
    }

    #[test]
    fn the_scopes_own_quota_is_read_before_those_by_which_something_named_is_bound() {
        let folder = tempfile::tempdir().unwrap();
        let limited = |path: &str| {
            let at = folder.path().join(&path[1..]);
            std::fs::create_dir(&at).unwrap();
            std::fs::write(at.join("cpu.max"), "50000 100000\n").unwrap();
        };
        let path = |n: usize| format!("/of/pod-{n:04}");
        limited("/of");
        (0..FILES_MAX).for_each(|n| limited(&path(n)));
        let mounts = Mounts { unified: Some(folder.path().to_owned()), ..Mounts::default() };
        let mut entities = Entities::new(mounts, folder.path());
        for n in 0..FILES_MAX {
            let pod = entities.tree().id(&path(n)).unwrap();
            assert_ne!(entities.workload(pod), 0);
        }
        let own = entities.tree().id("/of").unwrap();
        let quotas = Quotas::default();
        quotas.publish(&entities, Some("/of"));
        let all = quotas.take().unwrap();
        assert_eq!(all.len(), FILES_MAX + 1);
        // Those that are read.
        assert!(all[..FILES_MAX].iter().any(|q| q.cgroup == own), "nothing named runs in the scope itself");
    }

    #[test]
    fn a_window_gets_the_difference_to_the_one_before_and_a_gap_gets_none() {
        let folder = tempfile::tempdir().unwrap();
        let stat = folder.path().join("cpu.stat");
        let total = |ns: u64| std::fs::write(&stat, format!("throttled_time {ns}\n")).unwrap();
        let mut reader = ThrottleReader::default();
        total(100);
        reader.watch(&[quota(folder.path(), CpuVersion::V1)]);
        assert_eq!(reader.read(WindowIndex(10)), None, "no window before");
        total(150);
        assert_eq!(reader.read(WindowIndex(11)), Some(vec![(CgroupId(7), 50)]));
        total(400);
        assert_eq!(reader.read(WindowIndex(14)), None, "three windows in one");
        total(401);
        assert_eq!(reader.read(WindowIndex(15)), Some(vec![(CgroupId(7), 1)]));
        reader.missed();
        assert_eq!(reader.read(WindowIndex(16)), None);
        reader.watch(&[]);
        assert_eq!(reader.read(WindowIndex(17)), Some(vec![]));
    }
}
