//! The disk under MariaDB: ext4 on a loop device on a second, bandwidth-limited loop device on a file in memory. Two devices,
//! because the limit holds requests back above the device it is set on: only the upper one shows them in flight. The lower
//! one is written through the page cache, so that the cost of a flush is what waits in it, as on a disk with a write cache.

use crate::os::cgroup::Cgroup;
use crate::os::process::run;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the file system: MariaDB's files (about 130 MB, twice where there are two) and the flood's.
const SIZE_BYTES: u64 = 400 << 20;

/// A mounted disk.
#[derive(Debug)]
pub(crate) struct Disk {
    mount: PathBuf,
    lower_device: String,
}

impl Disk {
    /// Makes and mounts a disk under `folder`, which must be in memory. No limit yet.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let image = folder.join("disk.img");
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(SIZE_BYTES))
            .with_context(|| format!("create {}", image.display()))?;
        let lower = attach(&image)?;
        let upper = attach(&lower)?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(&upper))?;
        let mount = folder.join("disk");
        std::fs::create_dir(&mount)?;
        run(Command::new("mount").args(["-o", "noatime"]).arg(&upper).arg(&mount))?;
        let name = lower.file_name().unwrap_or_default();
        let number = Path::new("/sys/block").join(name).join("dev");
        let lower_device = std::fs::read_to_string(&number)
            .with_context(|| format!("{}", number.display()))?
            .trim()
            .to_owned();
        Ok(Self { mount, lower_device })
    }

    /// Where it is mounted.
    #[must_use]
    pub(crate) fn mount(&self) -> &Path {
        &self.mount
    }

    /// Writes out what the set-up left behind, then limits writes.
    pub(crate) fn limit(&self, tier: &Cgroup, bytes_per_second: u64) -> Result<()> {
        run(Command::new("sync").arg("-f").arg(&self.mount))?;
        tier.set_write_limit(&self.lower_device, Some(bytes_per_second))
    }

    /// Lifts the limit.
    pub(crate) fn unlimit(&self, tier: &Cgroup) -> Result<()> {
        tier.set_write_limit(&self.lower_device, None)
    }
}

fn attach(backing: &Path) -> Result<PathBuf> {
    let device = run(Command::new("losetup").args(["--find", "--show"]).arg(backing))
        .context("a loop device: `modprobe loop` may be needed")?;
    Ok(PathBuf::from(device.trim()))
}

/// A loop device in use.
#[derive(Debug)]
pub(crate) struct Loop {
    /// Name below `/dev`, e.g. `loop3`.
    pub(crate) name: String,
    /// `major:minor`.
    pub(crate) number: String,
    /// The file or device behind it.
    pub(crate) backing: String,
}

/// Loop devices whose file, directly or through a second loop device, lies under `folder`; the upper ones first.
#[must_use]
pub(crate) fn loops_under(folder: &Path) -> Vec<Loop> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(backing) = std::fs::read_to_string(path.join("loop/backing_file")) else {
            continue;
        };
        all.push(Loop {
            name: entry.file_name().to_string_lossy().into_owned(),
            number: std::fs::read_to_string(path.join("dev")).unwrap_or_default().trim().to_owned(),
            backing: backing.trim_end().to_owned(),
        });
    }
    let lower: Vec<String> = all
        .iter()
        .filter(|device| Path::new(&device.backing).starts_with(folder))
        .map(|device| format!("/dev/{}", device.name))
        .collect();
    let (mut upper, rest): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|device| lower.contains(&device.backing));
    upper.extend(rest.into_iter().filter(|device| lower.contains(&format!("/dev/{}", device.name))));
    upper
}

/// Detaches a loop device.
pub(crate) fn detach(device: &Loop) -> Result<()> {
    run(Command::new("losetup").arg("--detach").arg(format!("/dev/{}", device.name)))?;
    Ok(())
}
