//! The laboratory: tiers of real servers on one machine, each in a network namespace and a cgroup of its own, with a load
//! generator, injectors with exact timestamps, and the kernel's own counters. Knows nothing of Tailwater's programs.
//!
//! What runs is a [`Stack`]; what can be done to it and what must come of it is the table in [`cells`].

pub mod cells;
mod config;
mod disk;
mod fit;
mod ground;
mod inject;
mod injection;
mod kept;
mod machine;
mod rate;
pub mod reaper;
mod restart;
pub mod scenario;
mod servers;
pub mod spawner;
mod truth;

pub use config::{CLIENT_ADDRESS, Databases, Heap, LabConfig, Limits, Scale};
pub use fit::Fit;
pub use ground::Ground;
pub(crate) use inject::Span;
pub use inject::{BEFORE_NS, Injected, Running};
pub use injection::Injection;
pub use machine::{Spell, cpus};
pub use rate::CALM_MAX;
pub use restart::Observed;
pub(crate) use servers::{database as mariadb, postgres};
pub use truth::{DropSeen, DropWatch, TierTruth, Truth};

use crate::console::failure::{one_line, sentence};
use crate::console::progress::{complain, step};
use crate::lab::kept::Kept;
use crate::load::{LoadPlan, LoadReport};
use crate::os::cgroup::Cgroup;
use crate::os::clock::unix_ns;
use crate::os::netns::NetNs;
use crate::os::process::{self, sibling_binary};
use crate::stack::{Stack, Tier};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What takes long to make, or to find out, is kept here from one lab to the next.
pub(crate) const CACHE: &str = "/var/cache/tailwater-lab";
/// Begins the names of folders there that are being made; the maker's pid follows.
pub(crate) const BUILDING: &str = "building-";
/// Memory of three tiers, their disk, and what watches them, MiB.
const MEMORY_MIB: u64 = 1_000;
/// Memory of each tier more.
const MEMORY_TIER_MIB: u64 = 250;

/// For whoever waits: what a server takes to answer. The first time its files are made, which takes several times as long.
const STARTS_USUALLY: Duration = Duration::from_secs(2);
/// Longer logs are not kept: the general log of a database can be endless.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// One running tier.
#[derive(Debug)]
pub struct TierHandle {
    tier: Tier,
    cgroup: Cgroup,
    server_cgroup: Cgroup,
    netns: NetNs,
    dir: PathBuf,
    child: Option<Mutex<Child>>,
}

impl TierHandle {
    /// Path of the tier's cgroup, relative to the root of each hierarchy: what `--scope-cgroup` takes.
    #[must_use]
    pub fn cgroup_path(&self) -> &str {
        self.cgroup.path()
    }

    /// The tier's cgroup: it carries the quota.
    #[must_use]
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// The cgroup below it that the server's processes are in.
    #[must_use]
    pub fn server_cgroup(&self) -> &Cgroup {
        &self.server_cgroup
    }

    /// The tier's network namespace.
    #[must_use]
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }

    /// The server's process (Apache: the parent of the one that serves).
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        Some(self.child.as_ref()?.lock().ok()?.id())
    }

    /// Configuration and logs of the server.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// The cgroup of a tier's server below that of its "VM". Two that are to be told apart have different names.
fn server_cgroup(vm: &Cgroup, tier: Tier, config: &LabConfig) -> Result<Cgroup> {
    let name = config.stack.workload(tier);
    match tier {
        Tier::DbB if config.databases != Databases::OneCgroup => vm.child(&format!("{name}-b")),
        _ => vm.child(name),
    }
}

/// A running lab. Dropping it removes everything it put on the machine.
#[derive(Debug)]
pub struct Lab {
    /// What it is, and what it was made smaller from.
    config: LabConfig,
    tuned: LabConfig,
    tiers: Vec<TierHandle>,
    client: (Cgroup, NetNs),
    disk: disk::Disk,
    loads: AtomicU32,
    rate_per_second: f64,
    logs: Option<PathBuf>,
    fit: Option<Fit>,
    /// Loads that were too much, while the lab is being fitted.
    tried: Vec<String>,
    // The last: dropping it removes everything.
    ground: Ground,
}

impl Lab {
    /// Builds and warms up a lab: about ten seconds, some more the first time. Needs root. Removes the remains of labs that died first.
    pub fn start(config: LabConfig) -> Result<Self> {
        Self::start_logging(config, None)
    }

    /// As [`Lab::start`]; what the servers logged is kept in this folder when the lab goes, also if it does not come up.
    pub fn start_logging(config: LabConfig, logs: Option<PathBuf>) -> Result<Self> {
        let stack = config.stack;
        let mut parts = vec![("client", CLIENT_ADDRESS)];
        parts.extend(stack.homes().map(|tier| (tier.name(), tier.address())));
        let more_tiers = stack.tiers().len().saturating_sub(Tier::ALL.len()) as u64;
        let ground = Ground::lay(&parts, MEMORY_MIB + MEMORY_TIER_MIB * more_tiers)?;
        let kept = if config.warm_up_requests > 0 { Kept::find(&config) } else { None };
        let (top, folder) = (ground.top(), ground.folder());
        let disk = disk::Disk::create(folder)?;
        let mut tiers = Vec::new();
        for tier in stack.tiers().iter().copied() {
            let cgroup = top.child(tier.home().name())?;
            tiers.push(TierHandle {
                tier,
                server_cgroup: server_cgroup(&cgroup, tier, &config)?,
                cgroup,
                netns: NetNs::of(tier.home().name(), ground.run()),
                dir: folder.join(tier.name()),
                child: None,
            });
        }
        let client = (top.child("client")?, NetNs::of("client", ground.run()));
        let mut lab = Self {
            rate_per_second: scenario::rate_per_second(stack),
            logs,
            config: kept.as_ref().map_or_else(|| config.clone(), |kept| config.scaled(kept.scale())),
            tuned: config,
            tiers,
            client,
            disk,
            loads: AtomicU32::new(0),
            fit: None,
            tried: Vec::new(),
            ground,
        };
        lab.set_network_limits()?;
        lab.start_servers()?;
        lab.fit_to_machine(kept)?;
        Ok(lab)
    }

    fn set_network_limits(&self) -> Result<()> {
        for handle in self.homes() {
            let backlog = self.config.limits(handle.tier).backlog;
            handle.netns.sysctl("net.core.somaxconn", &backlog.to_string())?;
            // Half-open connections have a limit of their own; only the accept queue's is to count.
            let half_open = backlog.max(1024).to_string();
            handle.netns.sysctl("net.ipv4.tcp_max_syn_backlog", &half_open)?;
            if handle.tier == Tier::Db {
                // A database speaks first. With cookies, one refused handshake leaves a client that waits for ever for a greeting
                // of a server that knows nothing of it; without, the client is refused, and comes again after a second.
                handle.netns.sysctl("net.ipv4.tcp_syncookies", "0")?;
            }
        }
        // Thousands of short connections: a wide range of ports, and those in TIME_WAIT may be used again after a second.
        for netns in self.homes().map(|handle| &handle.netns).chain([&self.client.1]) {
            netns.sysctl("net.ipv4.ip_local_port_range", "10000 65535")?;
            netns.sysctl("net.ipv4.tcp_tw_reuse", "1")?;
        }
        Ok(())
    }

    fn start_servers(&mut self) -> Result<()> {
        // Back to front: each needs the next to be ready.
        let order = [Tier::Db, Tier::DbB, Tier::Cache, Tier::Guest, Tier::AppB, Tier::App, Tier::Web];
        for tier in order {
            let Some(index) = self.tiers.iter().position(|handle| handle.tier == tier) else {
                continue;
            };
            let software = self.config.stack.software(tier);
            let child =
                step(&format!("{} starts", software.name()), STARTS_USUALLY, || self.start_server(index))?;
            self.tiers[index].child = Some(Mutex::new(child));
        }
        Ok(())
    }

    fn start_server(&self, index: usize) -> Result<Child> {
        let tier = &self.tiers[index];
        let folders = servers::Folders { dir: tier.dir.clone(), data: self.data_of(tier.tier) };
        let command = servers::prepare(tier.tier, &self.config, &folders)?;
        let software = self.config.stack.software(tier.tier);
        let mut child = self.ground.spawner().spawn(
            command,
            &tier.server_cgroup,
            Some(&tier.netns),
            servers::death_signal(software),
        )?;
        let address = self.config.stack.listener(tier.tier).into();
        self.client.1.inside(|| {
            servers::wait_ready(software, address, &tier.dir, || Ok(child.try_wait()?.is_some()))
        })?;
        servers::check_database(software, &tier.dir)?;
        Ok(child)
    }

    /// Copies what the servers logged to where it outlives the lab.
    fn keep_logs(&self) -> Result<()> {
        let Some(logs) = &self.logs else { return Ok(()) };
        for handle in &self.tiers {
            for entry in std::fs::read_dir(&handle.dir).into_iter().flatten().flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                let is_log = path.extension().is_some_and(|extension| extension == "log");
                // One line for each request is a log of the load, not of the server.
                if is_log && name != "access.log" && entry.metadata()?.len() <= LOG_BYTES_MAX {
                    std::fs::create_dir_all(logs)?;
                    let kept = logs.join(format!("{}-{}", handle.tier.name(), name.to_string_lossy()));
                    std::fs::copy(&path, &kept).with_context(|| format!("keep {}", path.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the servers and lifts what limits them, for another start. Nothing of what they wrote is needed.
    fn stop_servers(&mut self) -> Result<()> {
        for handle in &mut self.tiers {
            let (name, cgroup) = (handle.tier.name(), &handle.server_cgroup);
            process::wait_for(&format!("the {name} tier to end"), Duration::from_secs(20), || {
                let pids = cgroup.pids();
                for pid in &pids {
                    process::signal(*pid, libc::SIGKILL)?;
                }
                Ok(pids.is_empty().then_some(()))
            })?;
            if let Some(Ok(mut child)) = handle.child.take().map(Mutex::into_inner) {
                child.wait().with_context(|| format!("end the {name} tier"))?;
            }
            std::fs::remove_dir_all(&handle.dir)
                .with_context(|| format!("remove {}", handle.dir.display()))?;
        }
        for server in self.databases_of_own_quotas() {
            server.set_cpu_quota(self.config.quota_period_us, None)?;
        }
        for handle in self.homes() {
            handle.cgroup.set_cpu_quota(self.config.quota_period_us, None)?;
        }
        self.disk.unlimit(&self.tier(Tier::Db).cgroup)?;
        let databases = self.stack().tiers().iter().filter(|tier| matches!(tier, Tier::Db | Tier::DbB));
        for data in databases.map(|tier| self.data_of(*tier)) {
            std::fs::remove_dir_all(&data).with_context(|| format!("remove {}", data.display()))?;
        }
        Ok(())
    }

    /// Files of a database; the other tiers have none.
    fn data_of(&self, tier: Tier) -> PathBuf {
        self.disk.mount().join(if tier == Tier::DbB { "data-b" } else { "data" })
    }

    /// Has the servers that are started next where this configuration wants them.
    fn place_servers(&mut self) -> Result<()> {
        for handle in &mut self.tiers {
            handle.server_cgroup = server_cgroup(&handle.cgroup, handle.tier, &self.config)?;
        }
        Ok(())
    }

    /// Cgroups of two databases that have a quota each.
    fn databases_of_own_quotas(&self) -> Vec<&Cgroup> {
        let is_one = |handle: &&TierHandle| matches!(handle.tier, Tier::Db | Tier::DbB);
        let own: Vec<&Cgroup> = self.tiers.iter().filter(is_one).map(|of| &of.server_cgroup).collect();
        if own.len() > 1 && self.config.databases == Databases::OwnQuotas { own } else { Vec::new() }
    }

    fn set_quotas(&self) -> Result<()> {
        for handle in self.homes() {
            let cores = self.config.limits(handle.tier).cores;
            handle.cgroup.set_cpu_quota(self.config.quota_period_us, Some(cores))?;
        }
        let databases = self.databases_of_own_quotas();
        for server in &databases {
            let cores = self.config.db.cores / databases.len() as f64;
            server.set_cpu_quota(self.config.quota_period_us, Some(cores))?;
        }
        if self.stack().tiers().contains(&Tier::Guest) {
            self.tier(Tier::Guest).server_cgroup.set_cpu_weight(self.config.guest_weight)?;
        }
        self.disk.limit(&self.tier(Tier::Db).cgroup, self.config.disk_bytes_per_second)
    }

    /// Id of this run: part of every name it put on the machine.
    #[must_use]
    pub fn run_id(&self) -> &str {
        self.ground.run()
    }

    /// What it was built from.
    #[must_use]
    pub fn config(&self) -> &LabConfig {
        &self.config
    }

    /// Its software.
    #[must_use]
    pub fn stack(&self) -> Stack {
        self.config.stack
    }

    /// A tier. Panics, as an index does, if the stack has none such.
    #[must_use]
    pub fn tier(&self, tier: Tier) -> &TierHandle {
        let found = self.tiers.iter().find(|handle| handle.tier == tier);
        found.unwrap_or_else(|| panic!("stack {} has no tier {}", self.stack(), tier.name()))
    }

    /// The tiers that are a "VM" of their own, in the order of [`Stack::homes`].
    fn homes(&self) -> impl Iterator<Item = &TierHandle> {
        self.tiers.iter().filter(|handle| handle.tier.home() == handle.tier)
    }

    /// The load generator's namespace.
    #[must_use]
    pub fn client_netns(&self) -> &NetNs {
        &self.client.1
    }

    /// A folder in memory that goes with the lab; room for a test's own files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.ground.folder()
    }

    /// A folder on the disk under MariaDB.
    #[must_use]
    pub fn disk(&self) -> &Path {
        self.disk.mount()
    }

    /// The front's access log, if it is on.
    #[must_use]
    pub fn web_access_log(&self) -> PathBuf {
        self.tier(Tier::Web).dir.join("access.log")
    }

    /// MariaDB's general log, if it is on.
    #[must_use]
    pub fn db_general_log(&self) -> PathBuf {
        servers::general_log(&self.tier(Tier::Db).dir)
    }

    /// Every injection so far, one JSON object on a line.
    #[must_use]
    pub fn injection_log(&self) -> PathBuf {
        self.folder().join("injections.jsonl")
    }

    /// Pid of the process that cleans up if this one dies.
    #[must_use]
    pub fn guard_pid(&self) -> u32 {
        self.ground.guard_pid()
    }

    /// What the kernel counted up to now.
    pub fn truth(&self) -> Result<Truth> {
        let read = |tier: Tier| -> Result<TierTruth> {
            let handle = self.tier(tier);
            Ok(TierTruth {
                cpu_usage_ns: handle.cgroup.cpu_usage_ns()?,
                throttled_ns: handle.cgroup.throttled_ns()?,
                ..truth::read_listener(&handle.netns, self.stack().listener(tier).port())?
            })
        };
        let optional = |tier| self.stack().tiers().contains(&tier).then(|| read(tier)).transpose();
        Ok(Truth {
            at_unix_ns: unix_ns(),
            web: read(Tier::Web)?,
            app: read(Tier::App)?,
            db: read(Tier::Db)?,
            app_b: optional(Tier::AppB)?,
            cache: optional(Tier::Cache)?,
            guest: optional(Tier::Guest)?,
            db_b: optional(Tier::DbB)?,
            client_syn_retransmits: truth::read_syn_retransmits(&self.client.1)?,
        })
    }

    /// Begins to date drops at a tier's listener.
    pub fn watch_drops(&self, tier: Tier, interval: Duration) -> Result<DropWatch> {
        DropWatch::start(&self.tier(tier).netns, interval)
    }

    /// Starts a load on the web tier. Clients of a stack that keep their connections do so whatever the plan says.
    pub fn load(&self, plan: &LoadPlan) -> Result<Load> {
        let plan = LoadPlan { keep_alive: plan.keep_alive || self.config.clients_keep_alive, ..plan.clone() };
        let number = self.loads.fetch_add(1, Ordering::Relaxed);
        Load::start(&self.ground, &self.client, number, &plan)
    }
}

impl Lab {
    /// Removes what the load generators of loads that are over wrote: it is in memory.
    pub fn forget_loads(&self) -> Result<()> {
        for entry in std::fs::read_dir(self.folder())?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("load-") {
                std::fs::remove_dir_all(entry.path())
                    .with_context(|| format!("remove {}", entry.path().display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.keep_logs() {
            complain(&format!("lab: {}", sentence(&error)));
        }
        for tier in &mut self.tiers {
            // Ended here, so that no zombie stays; the ground ends what it has started.
            if let Some(Ok(mut child)) = tier.child.take().map(Mutex::into_inner) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// A load that is running.
#[derive(Debug)]
pub struct Load {
    child: Child,
    folder: PathBuf,
}

impl Load {
    /// Starts the load generator in a client's place; its plan and its log are `load-NUMBER` in the ground's folder.
    pub fn start(
        ground: &Ground,
        (cgroup, netns): &(Cgroup, NetNs),
        number: u32,
        plan: &LoadPlan,
    ) -> Result<Self> {
        let folder = ground.folder().join(format!("load-{number}"));
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("plan.json"), serde_json::to_vec(plan)?)?;
        let mut command = Command::new(sibling_binary("loadgen")?);
        let output = std::fs::File::create(folder.join("output.log"))?;
        command.arg(&folder).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = ground.spawner().spawn(command, cgroup, Some(netns), libc::SIGKILL)?;
        Ok(Load { child, folder })
    }

    /// Pid of the load generator.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets no new request begin; those under way still end.
    pub fn stop(&self) -> Result<()> {
        process::signal(self.child.id().cast_signed(), libc::SIGTERM)
    }

    /// Waits until every request has ended.
    pub fn wait(mut self) -> Result<LoadReport> {
        let status = self.child.wait()?;
        if !status.success() {
            let output = std::fs::read_to_string(self.folder.join("output.log")).unwrap_or_default();
            bail!("loadgen: {status}: {}", one_line(&output));
        }
        LoadReport::read(&self.folder).context("the load generator's report")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
