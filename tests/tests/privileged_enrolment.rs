//! Enrolment as `start.md` tells it, with the real programs in two network namespaces: who joins is that host and no other, what it got is renewed,
//! also by the packaged unit's user where root has joined, and a host that is revoked is sent away.

#![allow(clippy::disallowed_methods, reason = "the test looks at the clock")]

use anyhow::{Context, Result, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tailwater_tests::os::netns::{self, NetNs};
use tailwater_tests::programs::daemons::{Daemon, binary, http_get, wait_for};

const COLLECTOR: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const WEB: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
const SOON: Duration = Duration::from_secs(30);

/// The namespaces of this test; gone with it.
struct Wires(Vec<NetNs>);

impl Wires {
    fn lay() -> Result<Self> {
        let run = format!("e{}", std::process::id());
        let wires = Self(["collector", "web", "net"].map(|part| NetNs::of(part, &run)).to_vec());
        netns::create(&run, &[("collector", COLLECTOR), ("web", WEB)])?;
        Ok(wires)
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        for ns in &self.0 {
            let _ = netns::delete(ns.name());
        }
    }
}

fn told(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

struct Place {
    folder: PathBuf,
    wires: Wires,
}

impl Place {
    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// `tailwater …` on the collector's host.
    fn tailwater(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(binary("tailwater")?);
        command.args(arguments).args(["--config", &self.file("tailwater.toml")]);
        command.output().context("tailwater")
    }

    /// `tailwater-agent …` on the web host.
    fn agent(&self, arguments: &[&str]) -> Result<Output> {
        let program = binary("tailwater-agent")?;
        self.wires.0[1].inside(|| Command::new(&program).args(arguments).output().context("tailwater-agent"))
    }

    fn join(&self, token: &str, host: &str, identity: &str) -> Result<Output> {
        let (url, token, identity) = (url(), self.file(token), self.file(identity));
        self.agent(&["join", &url, "--token-file", &token, "--host", host, "--identity", &identity])
    }

    fn run(&self, name: &str, more: &[&str]) -> Result<Daemon> {
        let mut command = self.within(1, "tailwater-agent")?;
        command.args(["run", "--poll-only", "--identity", &self.file("identity")]).args(more);
        Daemon::spawn(name, command, self.folder.join(format!("{name}.log")))
    }

    fn collector(&self) -> Result<Daemon> {
        let mut command = self.within(0, "tailwater")?;
        command.args(["serve", "--config", &self.file("tailwater.toml")]);
        let collector = Daemon::spawn("tailwater serve", command, self.folder.join("collector.log"))?;
        self.wait("the collector to be ready", || Ok(collector.output().contains(" ready ")))?;
        Ok(collector)
    }

    /// A daemon inside one of the namespaces: started by this thread, because it dies with the thread that started it.
    fn within(&self, at: usize, program: &str) -> Result<Command> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.wires.0[at].name()]).arg(binary(program)?);
        Ok(command)
    }

    /// The same where `var` is `/var/lib`; with a user's id as that user, with the capabilities that the packaged unit gives.
    fn installed(&self, var: &Path, user: Option<u32>) -> Result<Command> {
        let program = var.join("bin/tailwater-agent");
        if !program.exists() {
            std::fs::create_dir(var.join("bin"))?;
            std::fs::copy(binary("tailwater-agent")?, &program)?;
        }
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.wires.0[1].name(), "sh", "-c"]);
        // ip has made a mount namespace for itself.
        command.arg("umask 077 && mount --bind \"$0\" /var/lib && exec \"$@\"").arg(var);
        if let Some(user) = user {
            let (user, may) = (user.to_string(), unit("AmbientCapabilities")?.to_lowercase());
            let may: Vec<String> = may.split(' ').map(|of| of.replace("cap_", "+")).collect();
            let may = format!("-all,{}", may.join(","));
            command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs"]);
            command.args(["--inh-caps", &may, "--ambient-caps", &may]);
        }
        command.arg("/var/lib/bin/tailwater-agent");
        Ok(command)
    }

    /// Processes that renew what this test's agents have.
    fn renewers(&self) -> Result<usize> {
        Ok(Self::renewers_of(&self.file("identity"))?.len())
    }

    fn renewers_of(identity: &str) -> Result<Vec<PathBuf>> {
        let renews = |path: &Path| {
            // A process that ended meanwhile has none.
            let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            words.any(|word| word == b"renew") && words.any(|word| word == identity.as_bytes())
        };
        Ok(std::fs::read_dir("/proc")?
            .filter_map(|of| Some(of.ok()?.path()))
            .filter(|of| renews(of))
            .collect())
    }

    /// Hosts that are connected, by the API.
    fn connected(&self) -> Result<Vec<String>> {
        let (code, body) = self.wires.0[0]
            .inside(|| http_get(SocketAddr::from(([127, 0, 0, 1], 4780)), "/api/v1/agents"))?;
        ensure!(code == 200, "{code}: {body}");
        let value: serde_json::Value = serde_json::from_str(&body)?;
        let all = value["agents"].as_array().context("agents")?;
        let on = all.iter().filter(|a| a["connected"] == true);
        Ok(on.filter_map(|a| a["host"].as_str().map(str::to_owned)).collect())
    }

    fn wait(&self, what: &str, mut probe: impl FnMut() -> Result<bool>) -> Result<()> {
        wait_for(what, SOON, || Ok(probe()?.then_some(())))
    }
}

/// What the packaged unit says of this.
fn unit(key: &str) -> Result<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/systemd/tailwater-agent.service");
    let text = std::fs::read_to_string(path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.map(str::to_owned).with_context(|| key.to_owned())
}

/// As if this identity had been made 25 days ago: two thirds of its life are over.
fn age(identity: &Path) -> Result<()> {
    let about = identity.join("identity.toml");
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let text = std::fs::read_to_string(&about)?;
    let aged = text.lines().map(|line| match line.split_once(" = ") {
        Some(("issued_unix_s", _)) => format!("issued_unix_s = {}\n", now - 25 * 86_400),
        Some(("expires_unix_s", _)) => format!("expires_unix_s = {}\n", now + 5 * 86_400),
        _ => format!("{line}\n"),
    });
    Ok(std::fs::write(&about, aged.collect::<String>())?)
}

fn url() -> String {
    format!("https://{COLLECTOR}:4781")
}

fn configure(folder: &Path) -> Result<()> {
    let data = folder.join("data");
    let text = format!(
        "grpc = \"{COLLECTOR}:4781\"\nhttp = \"127.0.0.1:4780\"\ndata = \"{}\"\n[authority]\nnames = [\"{COLLECTOR}\", \"collector.internal\"]\n",
        data.display()
    );
    Ok(std::fs::write(folder.join("tailwater.toml"), text)?)
}

#[test]
fn privileged_a_host_joins_with_a_token_is_itself_alone_renews_and_is_revoked() -> Result<()> {
    let folder = tempfile::tempdir()?;
    configure(folder.path())?;
    let place = Place { folder: folder.path().to_owned(), wires: Wires::lay()? };
    let collector = place.collector()?;

    let out = place.tailwater(&["enroll", "web-1", "--out", &place.file("web-1.token")])?;
    assert!(out.status.success() && out.stdout.is_empty(), "{}", told(&out));
    let token = std::fs::read_to_string(place.folder.join("web-1.token"))?;

    // Not for another host; a token of another authority trusts nobody here; then the real one, once.
    let out = place.join("web-1.token", "db-1", "other")?;
    assert!(told(&out).contains("lets \"web-1\" join, not \"db-1\""), "{}", told(&out));
    let mut bytes = token.trim().to_owned().into_bytes();
    let at = "tailwater_join_".len();
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    std::fs::write(place.folder.join("foreign.token"), bytes)?;
    let out = place.join("foreign.token", "web-1", "other")?;
    assert!(told(&out).contains("not of the authority that the token names"), "{}", told(&out));
    assert!(!collector.output().contains("wrong token"), "the secret was shown to nobody");
    let out = place.join("web-1.token", "web-1", "identity")?;
    assert!(out.status.success() && told(&out).contains("joined as web-1"), "{}", told(&out));
    let out = place.join("web-1.token", "web-1", "other")?;
    assert!(told(&out).contains("it was used"), "{}", told(&out));
    let key = place.folder.join("identity/agent.key");
    assert_eq!(std::fs::metadata(&key)?.permissions().mode() & 0o777, 0o600);

    let mut agent = place.run("agent", &[])?;
    place.wait("web-1 to be connected", || Ok(place.connected()? == ["web-1"]))?;
    // The same certificate for another host.
    let other = place.run("other", &["--host", "db-1"])?;
    place.wait("db-1 to be refused", || Ok(other.output().contains("is host \"web-1\"'s")))?;
    drop(other);
    assert_eq!(place.connected()?, ["web-1"]);

    // By hand: the stream goes on with the next one.
    let before = std::fs::read(place.folder.join("identity/agent.crt"))?;
    let out = place.agent(&["renew", "--identity", &place.file("identity")])?;
    assert!(out.status.success(), "{}", told(&out));
    assert_ne!(std::fs::read(place.folder.join("identity/agent.crt"))?, before);
    place.wait("the agent to use it", || Ok(agent.output().contains("TLS files changed")))?;
    place.wait("web-1 to be there again", || Ok(place.connected()? == ["web-1"]))?;
    // It has left root, and what renews has not: both end.
    assert_eq!(place.renewers()?, 1);
    let ended = agent.terminate(Duration::from_secs(10))?;
    assert!(ended.success(), "{ended}: {}", agent.output());
    place.wait("what renews to end with the agent", || Ok(place.renewers()? == 0))?;

    // By itself, when two thirds of its life are over.
    age(&place.folder.join("identity"))?;
    let before = std::fs::read(place.folder.join("identity/agent.crt"))?;
    let agent = place.run("agent-again", &[])?;
    place.wait("the certificate to be renewed", || {
        Ok(std::fs::read(place.folder.join("identity/agent.crt"))? != before)
    })?;
    place.wait("web-1 to be connected", || Ok(place.connected()? == ["web-1"]))?;

    // Every secret is in one place alone.
    let log = collector.output();
    assert!(
        log.contains("agent joined host=\"web-1\"") && log.contains("agent renewed host=\"web-1\""),
        "{log}"
    );
    let key = std::fs::read_to_string(&key)?;
    let secret = key.lines().nth(1).context("the key")?;
    for entry in std::fs::read_dir(place.folder.join("data/authority"))? {
        let path = entry?.path();
        assert_eq!(std::fs::metadata(&path)?.permissions().mode() & 0o777, 0o600, "{}", path.display());
        let text = std::fs::read_to_string(&path)?;
        assert!(!text.contains(secret) && !text.contains(&token.trim()[20..]), "{}", path.display());
    }
    assert!(!log.contains(&token.trim()[20..]), "{log}");

    let out = place.tailwater(&["enrolled"])?;
    assert!(told(&out).starts_with("web-1 "), "{}", told(&out));
    let out = place.tailwater(&["enrolled", "--revoke", "web-1"])?;
    assert!(out.status.success(), "{}", told(&out));
    place.wait("web-1 to be sent away", || Ok(place.connected()?.is_empty()))?;
    place.wait("the agent to hear why", || Ok(agent.output().contains("its host was revoked")))?;
    let out = place.agent(&["renew", "--identity", &place.file("identity")])?;
    assert!(!out.status.success() && told(&out).contains("its host was revoked"), "{}", told(&out));
    // Killed, it takes along what renews as well.
    drop(agent);
    place.wait("what renews to end with the agent", || Ok(place.renewers()? == 0))?;
    Ok(())
}

#[test]
fn privileged_a_fleet_shares_a_token_and_takes_nobodys_name() -> Result<()> {
    let folder = tempfile::tempdir()?;
    configure(folder.path())?;
    let place = Place { folder: folder.path().to_owned(), wires: Wires::lay()? };
    let _collector = place.collector()?;
    let out = place.tailwater(&[
        "enroll",
        "web-*",
        "--count",
        "2",
        "--expires",
        "1h",
        "--out",
        &place.file("fleet"),
    ])?;
    assert!(out.status.success(), "{}", told(&out));
    for (host, expect) in [
        ("db-1", "lets \"web-*\" join"),
        ("web-1", "joined as web-1"),
        ("web-1", "has a certificate already"),
        ("web-2", "joined as web-2"),
        ("web-3", "it was used"),
    ] {
        let out = place.join("fleet", host, &format!("identity-{host}"))?;
        assert!(told(&out).contains(expect), "{host}: {}", told(&out));
    }
    Ok(())
}

/// As systemd does for the packaged unit: a user that exists while it runs, and a state directory of that user.
#[test]
fn privileged_what_root_joined_is_read_and_renewed_by_the_user_of_the_packaged_unit() -> Result<()> {
    const USER: u32 = 61_999;
    let folder = tempfile::tempdir()?;
    configure(folder.path())?;
    let place = Place { folder: folder.path().to_owned(), wires: Wires::lay()? };
    let collector = place.collector()?;
    let var = place.folder.join("var");
    let state = var.join(unit("StateDirectory")?);
    std::fs::create_dir_all(&state)?;
    std::fs::set_permissions(&var, PermissionsExt::from_mode(0o755))?;
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700))?;
    chown(&state, Some(USER), Some(USER))?;

    let out = place.tailwater(&["enroll", "web-1", "--out", &place.file("web-1.token")])?;
    assert!(out.status.success(), "{}", told(&out));
    // Word for word as start.md says, as root.
    let mut join = place.installed(&var, None)?;
    let out = join.args(["join", &url(), "--token-file", &place.file("web-1.token"), "--host", "web-1"]);
    let out = out.output()?;
    assert!(told(&out).contains("joined as web-1; now: systemctl restart tailwater-agent"), "{}", told(&out));
    let identity = state.join("identity");
    let belongs_to_the_unit = || -> Result<()> {
        for path in ["", "agent.key", "agent.crt", "ca.crt", "identity.toml"].map(|name| identity.join(name))
        {
            let about = std::fs::metadata(&path)?;
            let mode = if path == identity.join("") { 0o700 } else { 0o600 };
            ensure!(
                (about.uid(), about.gid(), about.mode() & 0o777) == (USER, USER, mode),
                "{}",
                path.display()
            );
        }
        Ok(())
    };
    belongs_to_the_unit()?;

    // The unit, and then an agent that root starts by hand: neither is told anything.
    for (name, user) in [("unit", Some(USER)), ("by-hand", None)] {
        age(&identity)?;
        let before = std::fs::read(identity.join("agent.crt"))?;
        let mut command = place.installed(&var, user)?;
        command.args(["run", "--poll-only"]);
        let agent = Daemon::spawn(name, command, place.folder.join(format!("{name}.log")))?;
        place.wait("the certificate to be renewed", || {
            ensure!(!agent.output().contains("not renewed"), "{name}: {}", agent.output());
            Ok(std::fs::read(identity.join("agent.crt"))? != before)
        })?;
        place.wait("web-1 to be connected", || Ok(place.connected()? == ["web-1"]))?;
        let renewers = Place::renewers_of("/var/lib/tailwater-agent/identity")?;
        let [renewer] = renewers.as_slice() else { anyhow::bail!("{name}: {renewers:?}") };
        let status = std::fs::read_to_string(renewer.join("status"))?;
        let field =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
        assert_eq!(field("Uid:"), [USER.to_string().as_str(); 4].join("\t"), "{name}");
        assert_eq!((field("CapEff:"), field("CapPrm:")), ("0000000000000000", "0000000000000000"), "{name}");
        belongs_to_the_unit()?;
        drop(agent);
        place.wait("what renews to end with the agent", || {
            Ok(Place::renewers_of("/var/lib/tailwater-agent/identity")?.is_empty())
        })?;
        place.wait("web-1 to be gone", || Ok(place.connected()?.is_empty()))?;
    }
    assert_eq!(collector.output().matches("agent renewed host=\"web-1\"").count(), 2);
    Ok(())
}
