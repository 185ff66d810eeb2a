//! A pod's agent joins a collector by the token of its service account, both as the chart configures them: the real programs, and the collector's tests'
//! stand-in for an API server. Needs no privileges: whether an agent that has joined can measure is not looked at.
#![allow(clippy::unwrap_used, reason = "what breaks here breaks the test, at this line")]

#[path = "../../collector/tests/api_server/mod.rs"]
mod api_server;

use api_server::{ApiServer, vouched};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tailwater_tests::programs::daemons::{Daemon, binary, free_port, wait_for};

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

/// Fails if the agent shows its token to a collector of another authority, if the collector lets it choose its name, if what it gets is good for nothing,
/// or if `run` does not join first by the variables that the chart sets.
#[test]
fn a_pods_agent_joins_as_its_node_and_renews_without_the_cluster() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let file = |name: &str| folder.join(name).display().to_string();
    let api = ApiServer::start();
    api.say(vouched(ACCOUNT, Some("node-1"), &["tailwater"]));
    authority(folder, "ours");
    authority(folder, "theirs");
    for (name, text) in [("api.crt", api.ca.as_str()), ("own-token", "of.the.collector"), ("token", POD)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let (grpc, http) = (free_port().unwrap(), free_port().unwrap());
    let text = format!(
        "grpc = \"127.0.0.1:{grpc}\"\nhttp = \"127.0.0.1:{http}\"\ndata = \"{}\"\n\
         [authority]\nnames = [\"127.0.0.1\"]\ncert = \"{}\"\nkey = \"{}\"\n\
         [authority.kubernetes]\naccounts = [\"{ACCOUNT}\"]\napi = \"https://{}\"\nca = \"{}\"\ntoken_file = \"{}\"\n",
        file("data"),
        file("ours.crt"),
        file("ours.key"),
        api.address,
        file("api.crt"),
        file("own-token")
    );
    std::fs::write(folder.join("tailwater.toml"), text).unwrap();
    let mut serve = Command::new(binary("tailwater").unwrap());
    serve.args(["serve", "--config", &file("tailwater.toml")]);
    let collector = Daemon::spawn("tailwater serve", serve, folder.join("collector.log")).unwrap();
    let ready = || Ok(collector.output().contains(" ready ").then_some(()));
    wait_for("the collector to be ready", Duration::from_secs(60), ready).unwrap();

    let agent = |arguments: &[&str]| {
        let mut command = Command::new(binary("tailwater-agent").unwrap());
        command.args(arguments).args(["--identity", &file("identity")]).output().unwrap()
    };
    let join = |ca: &str, host: &str| {
        let (url, token, ca) = (format!("https://127.0.0.1:{grpc}"), file("token"), file(ca));
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

    // As the chart starts it, in another pod of that node; it polls, because what it measures is of no account here.
    std::fs::write(folder.join("agent.toml"), "log = \"info\"\n").unwrap();
    let mut run = Command::new(binary("tailwater-agent").unwrap());
    run.args(["run", "--config", &file("agent.toml")])
        .env("TAILWATER_AGENT_HOST", "node-1")
        .env("TAILWATER_AGENT_COLLECTOR", format!("https://127.0.0.1:{grpc}"))
        .env("TAILWATER_AGENT_IDENTITY", folder.join("pod/identity"))
        .env("TAILWATER_AGENT_JOIN_TOKEN_FILE", folder.join("token"))
        .env("TAILWATER_AGENT_JOIN_CA", folder.join("ours.crt"))
        .env("TAILWATER_AGENT_POLL_ONLY", "true");
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
