//! A pod's agent joins a collector by the token of its service account, both as the chart configures them, and joins anew while it runs: the real programs,
//! and the collector's tests' stand-in for an API server. Needs no privileges: the agent polls, and what it measures is not looked at.
#![allow(clippy::unwrap_used, reason = "what breaks here breaks the test, at this line")]

#[path = "../../collector/tests/api_server/mod.rs"]
mod api_server;

use api_server::{ApiServer, vouched};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tailwater_tests::programs::daemons::{Daemon, binary, http_get, two_free_ports, wait_for};

const POD: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZ2VudCJ9.c2lnbmF0dXJl";
const ACCOUNT: &str = "tailwater:tailwater-agent";

fn authority(folder: &Path, name: &str) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

fn told(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Where an agent's lines and a collector's answers are waited for.
const WITHIN: Duration = Duration::from_secs(60);

/// A folder with what both sides are given, and a collector's configuration there, by the authority of that name.
struct Place {
    folder: tempfile::TempDir,
    api: ApiServer,
    grpc: u16,
    http: u16,
}

impl Place {
    fn new(node: &str) -> Self {
        let api = ApiServer::start();
        api.say(vouched(ACCOUNT, Some(node), &["tailwater"]));
        let (grpc, http) = two_free_ports().unwrap();
        let place = Self { folder: tempfile::tempdir().unwrap(), api, grpc, http };
        for name in ["ours", "theirs"] {
            authority(place.folder.path(), name);
        }
        place.put("api.crt", &place.api.ca);
        place.put("own-token", "of.the.collector");
        place.put("token", POD);
        // Longer than this test keeps the collector away, however slow the machine is.
        place.put("agent.toml", "log = \"info\"\nbuffered_batches = 6000\n");
        place
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn put(&self, name: &str, text: &str) {
        // As a kubelet does: whoever reads it meanwhile reads the old one or the new one.
        std::fs::write(self.file("new"), text).unwrap();
        std::fs::rename(self.file("new"), self.file(name)).unwrap();
    }

    /// What agents know the collector by.
    fn trust(&self, authority: &str) {
        self.put("authority.crt", &std::fs::read_to_string(self.file(&format!("{authority}.crt"))).unwrap());
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.grpc)
    }

    fn collector(&self, authority: &str) -> Daemon {
        let text = format!(
            "grpc = \"127.0.0.1:{}\"\nhttp = \"127.0.0.1:{}\"\ndata = \"{}\"\n\
             [authority]\nnames = [\"127.0.0.1\"]\ncert = \"{}\"\nkey = \"{}\"\n\
             [authority.kubernetes]\naccounts = [\"{ACCOUNT}\"]\napi = \"https://{}\"\nca = \"{}\"\ntoken_file = \"{}\"\n",
            self.grpc,
            self.http,
            self.file("data"),
            self.file(&format!("{authority}.crt")),
            self.file(&format!("{authority}.key")),
            self.api.address,
            self.file("api.crt"),
            self.file("own-token")
        );
        self.put("tailwater.toml", &text);
        let mut serve = Command::new(binary("tailwater").unwrap());
        serve.args(["serve", "--config", &self.file("tailwater.toml")]);
        let log = self.folder.path().join(format!("collector-{authority}.log"));
        let collector = Daemon::spawn("tailwater serve", serve, log).unwrap();
        says(&collector, " ready ", 1);
        collector
    }

    fn tailwater(&self, arguments: &[&str]) {
        let mut command = Command::new(binary("tailwater").unwrap());
        let out = command.args(arguments).args(["--config", &self.file("tailwater.toml")]).output().unwrap();
        assert!(out.status.success(), "{}", told(&out));
    }

    /// As the chart starts it, but that it polls.
    fn agent(&self, node: &str) -> Command {
        let mut run = Command::new(binary("tailwater-agent").unwrap());
        run.args(["run", "--config", &self.file("agent.toml")])
            .env("TAILWATER_AGENT_HOST", node)
            .env("TAILWATER_AGENT_COLLECTOR", self.url())
            .env("TAILWATER_AGENT_IDENTITY", self.file("pod/identity"))
            .env("TAILWATER_AGENT_JOIN_TOKEN_FILE", self.file("token"))
            .env("TAILWATER_AGENT_JOIN_CA", self.file("authority.crt"))
            .env("TAILWATER_AGENT_POLL_ONLY", "true");
        run
    }

    fn shown(&self, node: &str) -> serde_json::Value {
        let at = SocketAddr::from(([127, 0, 0, 1], self.http));
        let all: serde_json::Value =
            serde_json::from_str(&http_get(at, "/api/v1/agents").unwrap().1).unwrap();
        let of = all["agents"].as_array().unwrap().iter().find(|of| of["host"] == node);
        of.unwrap_or_else(|| panic!("{all}")).clone()
    }
}

/// Waits until a program has said this so often.
fn says(program: &Daemon, text: &str, times: usize) {
    let said = || Ok((program.output().matches(text).count() >= times).then_some(()));
    wait_for(text, WITHIN, said).unwrap_or_else(|e| panic!("{e}: {}", program.output()));
}

/// Fails if only a restart lets an agent join again that was revoked, whose collector has another authority or forgot it, if it joins again without anybody's leave,
/// if its token goes to a collector of an authority that its file does not have, or if it loses what it measured meanwhile. Its node is called by an address.
#[test]
fn an_agent_that_runs_joins_anew_when_it_may_and_keeps_what_it_measured() {
    let (place, node) = (Place::new("10.0.0.7"), "10.0.0.7");
    place.trust("ours");
    let collector = place.collector("ours");
    let agent =
        Daemon::spawn("tailwater-agent run", place.agent(node), place.folder.path().join("agent.log"));
    let agent = agent.unwrap();
    says(&agent, "connected to https", 1);

    place.tailwater(&["enrolled", "--revoke", node]);
    says(&agent, "the certificate is good for nothing any more, joining anew", 1);
    // The collector's own words, and again at no later try.
    says(&agent, "`tailwater enrolled --allow 10.0.0.7`", 1);
    let asked = place.api.asked().len();
    let asks_again = || Ok((place.api.asked().len() > asked).then_some(()));
    wait_for("another try to join", WITHIN, asks_again).unwrap();
    assert_eq!(agent.output().matches("enrolled --allow").count(), 1, "{}", agent.output());
    assert!(!agent.output().contains("joined anew, certificate good until"), "{}", agent.output());
    place.tailwater(&["enrolled", "--allow", node]);
    says(&agent, "joined anew, certificate good until", 1);
    says(&agent, "connected to https", 2);

    // Another authority, which the agent's file has later than the collector.
    drop(collector);
    let collector = place.collector("theirs");
    says(&agent, "not joined anew, and trying on", 2);
    let asked = place.api.asked().len();
    place.trust("theirs");
    says(&agent, "joined anew, certificate good until", 2);
    assert_eq!(place.api.asked().len(), asked + 1, "the token went to a collector of another authority");
    says(&agent, "connected to https", 3);
    assert_eq!(agent.output().matches("joining anew").count(), 2, "{}", agent.output());

    let caught_up = || {
        let shown = place.shown(node);
        // Its status tells what it lost since it began; the first comes with the connection, and others every five seconds.
        Ok((shown["last_sequence"].as_u64() > Some(0) && shown["resident_bytes"].as_u64() > Some(0))
            .then_some(shown))
    };
    let shown = wait_for("the agent's status", WITHIN, caught_up).unwrap();
    for lost in ["batches_dropped", "drop_events_dropped"] {
        assert_eq!(shown[lost], 0, "{shown}");
    }
    assert!(!agent.output().contains(POD) && !collector.output().contains(POD), "a token is in a log");

    // A backup of before it joined is restored: the collector does not know a certificate of its own authority.
    drop(collector);
    std::fs::remove_file(place.folder.path().join("data/authority/issued.toml")).unwrap();
    let _collector = place.collector("theirs");
    says(&agent, "joined anew, certificate good until", 3);
    says(&agent, "connected to https", 4);
}

/// Fails if a service manager would hold up what comes after an agent whose collector is away, or end it, or if it does not hear what the agent waits for.
#[test]
fn an_agent_that_waits_for_its_collector_counts_as_started_and_says_what_for() {
    let place = Place::new("node-1");
    place.trust("ours");
    let manager = UnixDatagram::bind(place.file("notify")).unwrap();
    manager.set_read_timeout(Some(WITHIN)).unwrap();
    let mut run = place.agent("node-1");
    run.env("NOTIFY_SOCKET", place.file("notify")).env("WATCHDOG_USEC", "600000");
    let _agent = Daemon::spawn("tailwater-agent run", run, place.folder.path().join("agent.log")).unwrap();
    let hears = |text: &str| {
        let mut heard = [0; 4096];
        loop {
            let bytes = manager.recv(&mut heard).unwrap();
            let told = String::from_utf8_lossy(&heard[..bytes]).into_owned();
            if told.contains(text) {
                return told;
            }
        }
    };
    let told = hears("READY=1");
    assert!(told.contains("STATUS=waits to join") && told.contains("127.0.0.1"), "{told}");
    for _ in 0..3 {
        hears("WATCHDOG=1");
    }
    // It is there at last.
    let _collector = place.collector("ours");
    hears("STATUS=joined");
}

/// Fails if the agent shows its token to a collector of another authority, if the collector lets it choose its name, if what it gets is good for nothing,
/// or if `run` does not join first by the variables that the chart sets.
#[test]
fn a_pods_agent_joins_as_its_node_and_renews_without_the_cluster() {
    let place = Place::new("node-1");
    let (api, folder, file) = (&place.api, place.folder.path(), |name: &str| place.file(name));
    place.trust("ours");
    let collector = place.collector("ours");

    let agent = |arguments: &[&str]| {
        let mut command = Command::new(binary("tailwater-agent").unwrap());
        command.args(arguments).args(["--identity", &file("identity")]).output().unwrap()
    };
    let join = |ca: &str, host: &str| {
        let (url, token, ca) = (place.url(), file("token"), file(ca));
        agent(&["join", &url, "--token-file", &token, "--ca", &ca, "--host", host])
    };
    let out = join("theirs.crt", "node-1");
    assert!(!out.status.success() && told(&out).contains("not of the authority"), "{}", told(&out));
    assert!(api.asked().is_empty(), "the token went to a collector of another authority");
    let out = join("ours.crt", "node-2");
    assert!(!out.status.success() && told(&out).contains("on node \"node-1\""), "{}", told(&out));
    let out = join("ours.crt", "node-1");
    assert!(out.status.success() && told(&out).contains("joined as node-1"), "{}", told(&out));
    let asked = api.asked().len();
    let out = agent(&["renew"]);
    assert!(out.status.success() && told(&out).contains("renewed for node-1"), "{}", told(&out));
    assert_eq!(api.asked().len(), asked, "who renews has a certificate, and needs no word of the cluster");

    let mut enrolled = Command::new(binary("tailwater").unwrap());
    let out = enrolled.args(["enrolled", "--config", &file("tailwater.toml")]).output().unwrap();
    assert!(told(&out).contains("node-1") && !told(&out).contains("node-2"), "{}", told(&out));

    // As the chart starts it, in another pod of that node.
    let run = place.agent("node-1");
    let running = Daemon::spawn("tailwater-agent run", run, folder.join("agent.log")).unwrap();
    let about = folder.join("pod/identity/identity.toml");
    let joined = || Ok(about.exists().then_some(()));
    wait_for("the agent to join", Duration::from_secs(60), joined)
        .unwrap_or_else(|e| panic!("{e}: {}", running.output()));
    let about = std::fs::read_to_string(about).unwrap();
    assert!(about.contains("host = \"node-1\""), "{about}");
    assert_eq!(api.asked().len(), asked + 1);
    assert!(!running.output().contains(POD), "the agent's log has its token");
    drop(running);

    let log = collector.output();
    assert!(!log.contains(POD) && !log.contains("of.the.collector"), "a token is in the log: {log}");
}
