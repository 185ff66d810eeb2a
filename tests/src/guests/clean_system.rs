//! A Debian of its own to install packages in: unpacked from a tar file, booted by its own systemd in namespaces of its own
//! (`tests/packages/boot.sh`), gone when dropped. Knows nothing of what is installed.

use crate::os::cgroup;
use crate::os::process::run;
use crate::programs::daemons::{Daemon, wait_for};
use anyhow::{Context, Result, bail};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// What systemd gets to reach its target; a busy machine with a slow disk takes some seconds.
const BOOTS_WITHIN: Duration = Duration::from_secs(60);
/// Units that need what is not there (terminals, a message bus, a network), or reach for what is the machine's.
const MASKED: [&str; 5] = [
    "getty.target",
    "systemd-logind.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "sys-fs-fuse-connections.mount",
];
const ENVIRONMENT: [&str; 4] = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND=noninteractive",
    "LC_ALL=C.UTF-8",
    "HOME=/root",
];

/// A running system.
#[derive(Debug)]
pub struct CleanSystem {
    booted: Daemon,
    init_pid: u32,
    hierarchies: Arc<Vec<cgroup::Hierarchy>>,
    cgroup: String,
    folder: TempDir,
}

impl CleanSystem {
    /// Installs the tools, makes the tar file if it is not there yet, and boots what is in it.
    pub fn boot() -> Result<Self> {
        let script = |name: &str| format!("{REPOSITORY}/tests/packages/{name}");
        run(&mut Command::new(script("install.sh")))?;
        let target = PathBuf::from(format!("{REPOSITORY}/target"));
        let tar = run(Command::new(script("root.sh")).arg(target.join("clean-root")))?;

        let folder = tempfile::Builder::new().prefix("clean-system.").tempdir_in(&target)?;
        let root = folder.path().join("root");
        std::fs::create_dir(&root)?;
        run(Command::new("tar").args(["--numeric-owner", "-xf", tar.trim(), "-C"]).arg(&root))?;
        prepare(&root)?;

        let hierarchies = cgroup::hierarchies()?;
        let unified = hierarchies
            .iter()
            .find(|h| h.v1_controllers.is_none())
            .context("systemd needs cgroups of version 2: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")?;
        let cgroup = format!("/tailwater-packages-{}", std::process::id());
        let cgroup_folder = unified.mount.join(&cgroup[1..]);
        std::fs::create_dir(&cgroup_folder).with_context(|| format!("create {}", cgroup_folder.display()))?;
        let mut command = Command::new("sh");
        command.arg(script("boot.sh")).arg(&root).arg(&cgroup_folder);
        let booted = Daemon::spawn("clean system", command, folder.path().join("boot.log"))?;
        // From here on whatever fails cleans up.
        let mut system = Self { booted, init_pid: 0, hierarchies, cgroup, folder };
        system.wait_booted()?;
        Ok(system)
    }

    fn wait_booted(&mut self) -> Result<()> {
        let parent = self.booted.pid();
        wait_for("systemd of the clean system", BOOTS_WITHIN, || {
            if let Some(status) = self.booted.exited()? {
                bail!("the clean system ended: {status}\n{}", self.booted.output());
            }
            let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
            let Some(pid) = children.split_whitespace().next() else { return Ok(None) };
            self.init_pid = pid.parse()?;
            // Until then it is the script that makes its namespaces.
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            Ok((comm.trim() == "systemd").then_some(()))
        })?;
        wait_for("multi-user.target of the clean system", BOOTS_WITHIN, || {
            let active = self.command(&["systemctl", "is-active", "multi-user.target"]).output()?;
            Ok(active.status.success().then_some(()))
        })
        .with_context(|| self.state())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init_pid.to_string()])
            .args(["--ipc", "--mount", "--net", "--pid", "--uts", "--cgroup", "--root", "--wd"])
            .args(["--", "env", "-i"])
            .args(ENVIRONMENT)
            .args(arguments);
        command
    }

    /// Runs a command in it as root; its standard output. Fails with what it said.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        run(&mut self.command(arguments)).with_context(|| arguments.join(" "))
    }

    /// Runs a command in it as root, whatever comes of it.
    pub fn try_run(&self, arguments: &[&str]) -> Result<Output> {
        self.command(arguments).output().with_context(|| arguments.join(" "))
    }

    /// A file of it, by its absolute path there.
    #[must_use]
    pub fn file(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path.trim_start_matches('/'))
    }

    /// For messages: which units failed, and the end of the journal.
    #[must_use]
    pub fn state(&self) -> String {
        let said = |arguments: &[&str]| {
            self.try_run(arguments)
                .map(|o| String::from_utf8_lossy(&[o.stdout, o.stderr].concat()).into_owned())
                .unwrap_or_default()
        };
        let failed = said(&["systemctl", "--failed", "--no-pager", "--plain"]);
        let journal = said(&["journalctl", "--no-pager", "-n", "80", "-o", "short-monotonic"]);
        format!("{failed}\n{journal}\n{}", self.booted.output())
    }
}

impl Drop for CleanSystem {
    fn drop(&mut self) {
        // While its parent lives it is the parent's to reap, so the pid is still its own. With it everything in there ends.
        if self.init_pid != 0
            && matches!(self.booted.exited(), Ok(None))
            && let Ok(pid) = libc::pid_t::try_from(self.init_pid)
        {
            // SAFETY: kill takes plain integers.
            let _ = unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let _ = self.booted.kill();
        if let Err(error) = cgroup::remove(&self.hierarchies, &self.cgroup) {
            eprintln!("the clean system leaves its cgroup behind: {error:#}");
        }
    }
}

/// What a first boot would ask or make up.
fn prepare(root: &Path) -> Result<()> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    std::fs::write(root.join("etc/machine-id"), uuid.replace('-', ""))?;
    std::fs::write(root.join("etc/hostname"), "clean\n")?;
    for unit in MASKED {
        let link = root.join("etc/systemd/system").join(unit);
        if link.symlink_metadata().is_ok() {
            std::fs::remove_file(&link).with_context(|| format!("{}", link.display()))?;
        }
        symlink("/dev/null", &link).with_context(|| format!("{}", link.display()))?;
    }
    Ok(())
}
