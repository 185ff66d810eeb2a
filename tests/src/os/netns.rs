//! Network namespaces of a run and the wires between them: one namespace for each part, and one that holds only the bridge, so that
//! no packet passes the machine's own network. Knows nothing of what runs in them.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Name of the table of rules in which packets are lost.
const LOSING: &str = "losing";

/// A named network namespace.
#[derive(Debug, Clone)]
pub struct NetNs {
    name: String,
}

impl NetNs {
    /// The namespace of a part (`web`, `app`, `db`, `client`, `net`) of a run.
    #[must_use]
    pub fn of(part: &str, run: &str) -> Self {
        Self { name: format!("tw-{part}-{run}") }
    }

    /// Its name, as in `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file, to be opened for `setns`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// Runs `work` on a thread that is inside the namespace. Processes started there stay there.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let file = File::open(self.path())
            .with_context(|| format!("network namespace {}", self.path().display()))?;
        std::thread::scope(|scope| {
            scope
                .spawn(move || {
                    // SAFETY: setns takes a descriptor that is open and a flag; it changes this short-lived thread only.
                    if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                        return Err(std::io::Error::last_os_error())
                            .with_context(|| format!("enter network namespace {}", self.name));
                    }
                    work()
                })
                .join()
                .map_err(|_| anyhow::anyhow!("a thread inside {} panicked", self.name))?
        })
    }

    /// Sets a `net.*` variable inside.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.inside(|| {
            let file = format!("/proc/sys/{}", key.replace('.', "/"));
            std::fs::write(&file, value).with_context(|| format!("write {value} to {file}"))
        })
    }
}

impl NetNs {
    /// Loses so many of a hundred packets that come from an address to a port inside, until what it returns is dropped or told to end. Where they are sent they
    /// have to count as sent: a sender whose own machine drops them is told so, and does not send again.
    pub fn lose(&self, from: Ipv4Addr, port: u16, percent: u32) -> Result<Losing> {
        let some = if percent < 100 { format!("numgen random mod 100 < {percent} ") } else { String::new() };
        let rule = format!("ip saddr {from} tcp dport {port} {some}counter drop");
        let hook = "type filter hook prerouting priority -300;";
        let chain = format!("chain arriving {{\n        {hook}\n        {rule}\n    }}\n");
        self.nft(&format!("table ip {LOSING} {{\n    {chain}}}\n"))?;
        Ok(Losing { netns: Some(self.clone()) })
    }

    fn nft(&self, script: &str) -> Result<()> {
        self.inside(|| {
            let mut nft = Command::new("nft");
            nft.args(["-f", "-"]);
            fed(nft, script, "nftables")
        })
    }

    /// Has what is sent from inside to some addresses, that nobody has, go elsewhere instead. `own` is the address of the namespace.
    pub fn translate(&self, own: Ipv4Addr, addresses: &[(SocketAddrV4, SocketAddrV4)]) -> Result<()> {
        let routes = addresses.iter().map(|(at, _)| format!("route add {}/32 dev lo src {own}\n", at.ip()));
        ip_batch(Some(&self.name), &routes.collect::<String>())?;
        let rule = |(at, to): &(SocketAddrV4, SocketAddrV4)| {
            format!("        ip daddr {} tcp dport {} dnat to {to}\n", at.ip(), at.port())
        };
        let rules: String = addresses.iter().map(rule).collect();
        let chain = format!("chain output {{\n        type nat hook output priority -100;\n{rules}    }}\n");
        self.nft(&format!("table ip translated {{\n    {chain}}}\n"))
    }
}

/// Packets are lost as long as it lives.
#[derive(Debug)]
#[must_use]
pub struct Losing {
    netns: Option<NetNs>,
}

impl Losing {
    /// Lets all of them pass again.
    ///
    /// # Errors
    /// The rule could not be taken away.
    pub fn end(mut self) -> Result<()> {
        self.pass()
    }

    fn pass(&mut self) -> Result<()> {
        self.netns.take().map_or(Ok(()), |netns| netns.nft(&format!("delete table ip {LOSING}\n")))
    }
}

impl Drop for Losing {
    fn drop(&mut self) {
        // Whoever did not wait for the end has an error to tell already.
        let _ = self.pass();
    }
}

/// Creates and connects the namespaces of a run: one for each part, and one for the bridge between them.
pub fn create(run: &str, parts: &[(&str, Ipv4Addr)]) -> Result<()> {
    let mut script = format!("netns add tw-net-{run}\n");
    for (part, _) in parts {
        script += &format!("netns add tw-{part}-{run}\n");
    }
    ip_batch(None, &script)?;

    let mut script = String::from("link add bridge0 type bridge\nlink set bridge0 up\n");
    for (part, _) in parts {
        script += &format!(
            "link add to-{part} type veth peer name eth0 netns tw-{part}-{run}\n\
             link set to-{part} master bridge0\nlink set to-{part} up\n"
        );
    }
    ip_batch(Some(&format!("tw-net-{run}")), &script)?;

    for (part, address) in parts {
        let script = format!("link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\n");
        ip_batch(Some(&format!("tw-{part}-{run}")), &script)?;
    }
    Ok(())
}

/// Names of existing lab namespaces, of all runs, with the run each belongs to.
#[must_use]
pub fn existing() -> Vec<(String, String)> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (part, run) = name.strip_prefix("tw-")?.split_once('-')?;
            let known = part.bytes().all(|byte| byte.is_ascii_lowercase());
            known.then(|| (name.clone(), run.to_owned()))
        })
        .collect()
}

/// Deletes a namespace by name.
pub fn delete(name: &str) -> Result<()> {
    ip_batch(None, &format!("netns del {name}\n"))
}

fn ip_batch(netns: Option<&str>, script: &str) -> Result<()> {
    let mut command = Command::new("ip");
    if let Some(netns) = netns {
        command.args(["-n", netns]);
    }
    command.args(["-batch", "-"]);
    fed(command, script, "iproute2")
}

/// Runs a program of a Debian package on a script.
fn fed(mut command: Command, script: &str, package: &str) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("run `{name}` (package {package}; tests/lab/install.sh installs it)"))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{name} failed: {}\n{script}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
