//! Agents that join, over the real wire: a fleet that goes over from a shared certificate, a backup that is brought back, strangers who ask without
//! an end, and pods for which a cluster's API server vouches, or a stand-in for one that speaks TokenReview.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]
#![allow(clippy::disallowed_methods, reason = "the test looks at the clock")]

mod api_server;
mod common;

use api_server::{ApiServer, Says, refused, vouched, vouched_user, vouched_without};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::certificates::{Authority, Dial, client, client_offering, pem, put, request};
use common::{Agent, Serve, free_address, hello, runtime, tailwater, wait_for};
use rcgen::KeyPair;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tailwater_proto::v1::collector_message::Body as Reply;
use tailwater_proto::v1::enrolment_client::EnrolmentClient;
use tailwater_proto::v1::{JoinRequest, RenewRequest};
use tailwater_proto::{JOIN_TOKEN_PREFIX, JOINED_ALPN};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const JOINED: &[&[u8]] = &[JOINED_ALPN, b"h2"];
/// A pod's token, as far as its form goes: what it is worth says the API server.
const POD: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZ2VudCJ9.c2lnbmF0dXJl";
const ACCOUNT: &str = "tailwater:tailwater-agent";

/// A collector whose configuration changes.
struct Place {
    folder: tempfile::TempDir,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), grpc: free_address(), http: free_address() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Starts it with its authority, and what else is said.
    fn serve(&self, more: &str) -> Serve {
        let text = format!("grpc = \"{}\"\n[authority]\nnames = [\"collector\"]\n{more}", self.grpc);
        put(self.folder.path(), "tailwater.toml", &text);
        let config = self.file("tailwater.toml");
        Serve::start_at(self.folder.path(), self.grpc, self.http, &["--config", &config])
    }

    /// A command of its machine; what it printed.
    fn command(&self, arguments: &[&str]) -> String {
        let at = ["--config", &self.file("tailwater.toml"), "--data", &self.file("data")];
        let out = tailwater().args(arguments).args(at).output().unwrap();
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn authority(&self) -> String {
        std::fs::read_to_string(self.path("data/authority/ca.crt")).unwrap()
    }

    async fn channel(&self, tls: TlsConnector, from: [u8; 4]) -> Result<Channel, tonic::transport::Error> {
        let dial = Dial { address: self.grpc, tls, from };
        Endpoint::from_static("http://collector").connect_with_connector(dial).await
    }

    /// Asks to join with a secret: the certificate, PEM.
    async fn ask(&self, secret: Vec<u8>, host: &str, key: &KeyPair, from: [u8; 4]) -> Result<String, Status> {
        let tls = client_offering(&self.authority(), None, JOINED);
        let channel =
            self.channel(tls, from).await.map_err(|e| Status::unavailable(format!("connect: {e:?}")))?;
        let asked = JoinRequest { secret, host: host.to_owned(), request: request(key) };
        let joined = EnrolmentClient::new(channel).join(asked).await?;
        Ok(pem(&joined.into_inner().certificate))
    }

    /// Lets a host join: its certificate and key, PEM.
    fn join(&self, host: &str) -> (String, String) {
        let (key, secret) = (KeyPair::generate().unwrap(), secret(&self.command(&["enroll", host])));
        let joined = runtime().block_on(self.ask(secret, host, &key, [127, 0, 0, 1]));
        (joined.unwrap(), key.serialize_pem())
    }

    /// The next certificate of who shows this one.
    fn renew(&self, (cert, key): &(String, String)) -> (String, String) {
        let tls = client_offering(&self.authority(), Some(&(cert.clone(), key.clone())), JOINED);
        let asked = RenewRequest { request: request(&KeyPair::from_pem(key).unwrap()) };
        let renewed = runtime().block_on(async {
            let channel = self.channel(tls, [127, 0, 0, 1]).await.unwrap();
            EnrolmentClient::new(channel).renew(asked).await.unwrap().into_inner()
        });
        (pem(&renewed.certificate), key.clone())
    }

    /// What an agent hears that connects so and says it is `host`: "welcome", or why not.
    fn says(&self, host: &str, tls: TlsConnector) -> String {
        runtime().block_on(async {
            let channel = match self.channel(tls, [127, 0, 0, 1]).await {
                Ok(channel) => channel,
                Err(e) => return format!("{e:?}"),
            };
            let mut agent = match Agent::over(channel, hello(host, host)).await {
                Ok(agent) => agent,
                Err(e) => return format!("{e:?}"),
            };
            match agent.hear().await {
                Reply::Welcome(_) => "welcome".to_owned(),
                Reply::Refusal(refusal) => refusal.reason,
                other => panic!("{other:?}"),
            }
        })
    }

    /// `[authority.kubernetes]` of this API server.
    fn asks(&self, api: &ApiServer) -> String {
        put(self.folder.path(), "api-ca.crt", &api.ca);
        put(self.folder.path(), "own-token", "collectors.own.token\n");
        format!(
            "[authority.kubernetes]\naccounts = [\"{ACCOUNT}\"]\napi = \"https://{}\"\nca = \"{}\"\ntoken_file = \"{}\"\n",
            api.address,
            self.file("api-ca.crt"),
            self.file("own-token")
        )
    }

    /// A pod asks to join as `host`: its certificate and key, PEM.
    fn pod(&self, host: &str) -> Result<(String, String), Status> {
        self.pod_from(host, [127, 0, 0, 1])
    }

    /// The same from this address.
    fn pod_from(&self, host: &str, from: [u8; 4]) -> Result<(String, String), Status> {
        let key = KeyPair::generate().unwrap();
        let joined = runtime().block_on(self.ask(POD.as_bytes().to_vec(), host, &key, from));
        Ok((joined?, key.serialize_pem()))
    }

    /// The same of who has joined.
    fn says_joined(&self, host: &str, identity: &(String, String)) -> String {
        self.says(host, client_offering(&self.authority(), Some(identity), JOINED))
    }
}

fn secret(token: &str) -> Vec<u8> {
    let all = URL_SAFE_NO_PAD.decode(token.trim().strip_prefix(JOIN_TOKEN_PREFIX).unwrap()).unwrap();
    all[32..].to_vec()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Of a host in `/api/v1/agents`.
fn shown(serve: &Serve, host: &str) -> serde_json::Value {
    let all = serve.json("/api/v1/agents");
    let of = all["agents"].as_array().unwrap().iter().find(|of| of["host"] == host);
    of.unwrap_or_else(|| panic!("{host}: {all}")).clone()
}

#[test]
fn a_fleet_goes_over_from_a_shared_certificate_host_by_host_and_then_the_old_one_is_refused() {
    let place = Place::new();
    let old = Authority::new("of the fleet");
    let (cert, key) = old.issue("collector");
    for (name, text) in [("old.crt", &cert), ("old.key", &key), ("old-ca.crt", &old.pem)] {
        put(place.folder.path(), name, text);
    }
    let tls = format!(
        "[tls]\ncert = \"{}\"\nkey = \"{}\"\nca = \"{}\"\n",
        place.file("old.crt"),
        place.file("old.key"),
        place.file("old-ca.crt")
    );
    let shared = || client(&old, Some(old.issue("fleet")));

    let serve = place.serve(&tls);
    serve.wait_log("[tls] is taken beside [authority]");
    // One that knows nothing of the authority, and one that has joined: each is shown the certificate that it trusts.
    assert_eq!(place.says("web-1", shared()), "welcome");
    let line = serve.wait_log("it still speaks by a certificate of [tls]");
    assert!(line.contains("web-1") && line.contains("tailwater enroll web-1"), "{line}");
    let db = place.join("db-1");
    assert_eq!(place.says_joined("db-1", &db), "welcome");
    assert_eq!(shown(&serve, "web-1")["identity"], "shared");
    assert!(shown(&serve, "web-1").get("certificate_expires_unix_s").is_none());
    let joined = shown(&serve, "db-1");
    assert_eq!(joined["identity"], "joined");
    let at = |key: &str| joined[key].as_u64().unwrap();
    assert_eq!(at("certificate_expires_unix_s") - at("certificate_issued_unix_s"), 30 * 86_400);
    assert_eq!(serve.metric("tailwater_agent_identity{host=\"web-1\",identity=\"shared\"}"), 1);
    assert_eq!(serve.metric("tailwater_agent_identity{host=\"db-1\",identity=\"joined\"}"), 1);
    assert_eq!(serve.metric("tailwater_agent_identity_lifetime_seconds{host=\"db-1\"}"), 30 * 86_400);
    // Whoever has joined has left the shared certificate behind, and speaks for nobody else.
    let refused = place.says("db-1", shared());
    assert!(refused.contains("\"db-1\" has joined"), "{refused}");
    assert!(place.says_joined("web-1", &db).contains("does not speak for \"web-1\""));
    // Neither authority's agents get in by the way of the other's.
    let crossed = place.says("db-1", client_offering(&old.pem, Some(&db), &[b"h2"]));
    assert!(!crossed.contains("welcome"), "{crossed}");
    let crossed = place.says("web-1", client_offering(&place.authority(), Some(&old.issue("fleet")), JOINED));
    assert!(!crossed.contains("welcome"), "{crossed}");

    // The old one is taken away.
    serve.kill();
    let serve = place.serve("");
    let refused = place.says("web-1", shared());
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    serve.wait_log(
        "refused by the agent: it does not accept this collector's certificate (TLS alert UnknownCA); if it has the certificate of a [tls] that is no longer \
         configured, let it join",
    );
    assert_eq!(place.says_joined("db-1", &db), "welcome");
    let web = place.join("web-1");
    assert_eq!(place.says_joined("web-1", &web), "welcome");
}

#[test]
fn a_backup_of_the_authoritys_folder_brings_back_who_joined_and_nobody_who_was_revoked() {
    let place = Place::new();
    let serve = place.serve("");
    let (web, app, db) = (place.join("web-1"), place.join("app-1"), place.join("db-1"));
    place.command(&["enrolled", "--revoke", "db-1"]);
    copy(&place.path("data/authority"), &place.path("backup"));
    // Life goes on: one renews twice, so that of what it has the backup knows nothing.
    let newer = place.renew(&place.renew(&web));
    assert_eq!(place.says_joined("web-1", &newer), "welcome");
    let authority = place.authority();
    serve.kill();
    std::fs::remove_dir_all(place.path("data")).unwrap();

    // Without the backup nobody is known, which the test would not notice otherwise.
    let serve = place.serve("");
    assert_ne!(place.authority(), authority);
    let stranger = place.says("app-1", client_offering(&authority, Some(&app), JOINED));
    assert!(stranger.contains("UnknownIssuer"), "{stranger}");
    serve.kill();
    std::fs::remove_dir_all(place.path("data")).unwrap();

    copy(&place.path("backup"), &place.path("data/authority"));
    let serve = place.serve("");
    assert_eq!(place.authority(), authority);
    assert_eq!(place.says_joined("app-1", &app), "welcome");
    let refused = place.says_joined("db-1", &db);
    assert!(refused.contains("its host was revoked"), "{refused}");
    // The certificate from after the backup is known by its key, and kept from then on.
    assert_eq!(place.says_joined("web-1", &newer), "welcome");
    assert!(
        shown(&serve, "web-1").get("certificate_expires_unix_s").is_none(),
        "what is not known is not told"
    );
    let certificates =
        || place.command(&["enrolled", "--json"]).lines().filter(|of| of.contains("web-1")).count();
    wait_for("the newer certificate to be kept", || (certificates() == 2).then_some(()));
    let next = place.renew(&newer);
    assert_eq!(place.says_joined("web-1", &next), "welcome");
    assert!(shown(&serve, "web-1")["certificate_expires_unix_s"].is_u64());
    // Whoever joins meets the same authority; and a host that is revoked now has nothing left.
    let db = place.join("db-1");
    assert_eq!(place.says_joined("db-1", &db), "welcome");
    place.command(&["enrolled", "--revoke", "web-1"]);
    wait_for("web-1 to be refused", || {
        [&web, &newer, &next]
            .iter()
            .all(|of| place.says_joined("web-1", of).contains("revoked"))
            .then_some(())
    });
}

#[test]
fn a_host_joins_beside_those_who_ask_without_an_end_and_memory_stays_in_its_bounds() {
    /// Beyond what the collector takes anyway: 32 connections with a megabyte of HTTP/2's window each, twice.
    const MORE_KIB_MAX: u64 = 64 * 1024;
    // A guard: the strangers' own handshakes take the CPUs that the collector answers with.
    const JOINED_WITHIN: Duration = Duration::from_secs(90);
    let place = Arc::new(Place::new());
    let serve = place.serve("");
    let first = place.join("first");
    assert_eq!(place.says_joined("first", &first), "welcome");
    let (before_kib, stop) = (serve.resident_kib_most(), Arc::new(AtomicBool::new(false)));
    let (wrong, large, idle) =
        (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());

    // More than there are places, from three addresses. Each with a runtime of its own, so that the honest one waits for the collector alone.
    let strangers: Vec<_> = (0..40_u8)
        .map(|n| {
            let (place, stop) = (Arc::clone(&place), Arc::clone(&stop));
            let (wrong, large, idle) = (Arc::clone(&wrong), Arc::clone(&large), Arc::clone(&idle));
            std::thread::spawn(move || {
                let key = KeyPair::generate().unwrap();
                let tls = client_offering(&place.authority(), None, JOINED);
                runtime().block_on(async {
                    while !stop.load(Ordering::Relaxed) {
                        match n % 5 {
                            // Wrong tokens, each over a connection of its own.
                            0 | 1 => {
                                let told = place.ask(vec![n; 32], "web-1", &key, [127, 0, 0, 66]).await;
                                assert!(told.is_err());
                                wrong.fetch_add(1, Ordering::Relaxed);
                            }
                            // Much of it, four at a time, over one connection.
                            2 | 3 => {
                                let Ok(channel) = place.channel(tls.clone(), [127, 0, 0, 67]).await else {
                                    continue;
                                };
                                let ask = || {
                                    let asked = JoinRequest {
                                        secret: vec![n; 32],
                                        host: "web-1".to_owned(),
                                        request: vec![0; 3 << 20],
                                    };
                                    let mut client = EnrolmentClient::new(channel.clone());
                                    async move { client.join(asked).await }
                                };
                                let told = tokio::join!(ask(), ask(), ask(), ask());
                                assert!(
                                    told.0.is_err() && told.1.is_err() && told.2.is_err() && told.3.is_err()
                                );
                                large.fetch_add(4, Ordering::Relaxed);
                            }
                            // Nothing at all, for as long as that is borne.
                            _ => {
                                let dial =
                                    Dial { address: place.grpc, tls: tls.clone(), from: [127, 0, 0, 68] };
                                let Ok(mut stream) = dial.open().await else { continue };
                                idle.fetch_add(1, Ordering::Relaxed);
                                let mut heard = [0; 64];
                                let held = tokio::io::AsyncReadExt::read(&mut stream, &mut heard);
                                let _ = tokio::time::timeout(Duration::from_secs(2), held).await;
                            }
                        }
                    }
                });
            })
        })
        .collect();
    let told = |of: &AtomicU64| of.load(Ordering::Relaxed);
    wait_for("the strangers to be at it", || {
        (told(&wrong) > 30 && told(&large) > 8 && told(&idle) >= 4).then_some(())
    });

    // A fresh machine that joins tries again until it has joined, as whatever starts it does.
    let (key, token) = (KeyPair::generate().unwrap(), secret(&place.command(&["enroll", "honest"])));
    let begun = Instant::now();
    let mut tries = 0;
    let cert = loop {
        tries += 1;
        match runtime().block_on(place.ask(token.clone(), "honest", &key, [127, 0, 0, 1])) {
            Ok(cert) => break cert,
            Err(e) => {
                assert!(begun.elapsed() < JOINED_WITHIN, "{tries} tries: {e:?}\n{}", serve.log())
            }
        }
    };
    let took = begun.elapsed();
    assert_eq!(place.says_joined("honest", &(cert, key.serialize_pem())), "welcome");
    std::thread::sleep(Duration::from_secs(3));
    stop.store(true, Ordering::Relaxed);
    for stranger in strangers {
        stranger.join().unwrap();
    }

    let more_kib = serve.resident_kib_most().saturating_sub(before_kib);
    println!(
        "joined after {} ms and {tries} tries, beside {} wrong tokens, {} large requests and {} silent connections; {more_kib} KiB more than before",
        took.as_millis(),
        told(&wrong),
        told(&large),
        told(&idle)
    );
    assert!(took < JOINED_WITHIN, "{took:?}");
    assert!(more_kib < MORE_KIB_MAX, "{before_kib} KiB before, {more_kib} more");
    // Nobody got in, and the log has a few lines of each address.
    assert!(!place.command(&["enrolled"]).contains("web-1"));
    assert!(serve.metric("tailwater_enrolments_total{result=\"refused\"}") > 10);
    let log = serve.log();
    let lines = log.matches("a wrong token of enrolment was shown").count()
        + log.matches("connection refused").count();
    assert!((1..100).contains(&lines), "{lines} lines");
}

#[test]
fn who_was_revoked_has_the_places_of_strangers_and_no_connection_that_lasts() {
    let place = Place::new();
    let serve = place.serve("");
    let own = place.join("web-1");
    let open = || {
        let tls = client_offering(&place.authority(), Some(&own), JOINED);
        Dial { address: place.grpc, tls, from: [127, 0, 0, 1] }
    };
    // One that was let in as an agent's, and says nothing.
    let runtime = runtime();
    let mut quiet = runtime.block_on(async { open().open().await.unwrap() });
    place.command(&["enrolled", "--revoke", "web-1"]);
    wait_for("the collector to know", || place.says_joined("web-1", &own).contains("revoked").then_some(()));
    let ended = runtime.block_on(async {
        let mut heard = Vec::new();
        let until_the_end = tokio::io::AsyncReadExt::read_to_end(&mut quiet, &mut heard);
        tokio::time::timeout(Duration::from_secs(30), until_the_end).await
    });
    assert!(ended.is_ok(), "its connection goes on");
    let refused = "tailwater_connections_refused_total{side=\"too_many_joining\"}";
    let held = runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..20 {
            held.push(open().open().await);
        }
        held
    });
    wait_for("most of them to be refused", || (serve.metric(refused) >= 12).then_some(()));
    drop(held);
}

/// Fails if the collector asks another path, for other audiences, with an old token of its own, or lets a pod choose its host.
#[test]
fn a_pod_joins_as_the_node_that_its_cluster_names_and_as_no_other() {
    let (place, api) = (Place::new(), ApiServer::start());
    let serve = place.serve(&place.asks(&api));
    api.say(vouched(ACCOUNT, Some("node-1"), &["tailwater"]));
    let first = place.pod("node-1").unwrap();
    assert_eq!(place.says_joined("node-1", &first), "welcome");
    let asked = api.asked().pop().unwrap();
    assert_eq!(asked.path, "/apis/authentication.k8s.io/v1/tokenreviews");
    assert_eq!(asked.authorization, "Bearer collectors.own.token");
    let expected = serde_json::json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": { "token": POD, "audiences": ["tailwater"] },
    });
    assert_eq!(asked.body, expected);
    let line = serve.wait_log("agent joined");
    assert!(line.contains("node-1") && line.contains(ACCOUNT), "{line}");
    assert_eq!(serve.metric("tailwater_enrolments_total{result=\"joined\"}"), 1);

    let told = place.pod("node-2").unwrap_err();
    assert!(
        told.code() == Code::PermissionDenied && told.message().contains("on node \"node-1\""),
        "{told:?}"
    );
    // The pod is made anew, and its key with it. The kubelet has written the collector another token.
    put(place.folder.path(), "own-token", "collectors.next.token.of.its.own\n");
    let next = place.pod("node-1").unwrap();
    assert_eq!(api.asked().pop().unwrap().authorization, "Bearer collectors.next.token.of.its.own");
    assert_eq!(place.says_joined("node-1", &next), "welcome");
    let said = place.says_joined("node-1", &first);
    assert!(said.contains("nobody's"), "{said}");
    // Renewed as every other, without the cluster.
    let asked = api.asked().len();
    let renewed = place.renew(&next);
    assert_eq!((place.says_joined("node-1", &renewed).as_str(), api.asked().len()), ("welcome", asked));
    let log = serve.log();
    assert!(!log.contains(POD) && !log.contains("collectors.own.token"), "a token is in the log");
}

/// Fails if anything but an authenticated, audience-bound token of an allowed account lets join, if a silent API server holds whoever asks, or if one
/// address writes as many lines as it likes.
#[test]
fn who_has_no_word_of_the_cluster_does_not_join_and_hears_why() {
    let (place, api) = (Place::new(), ApiServer::start());
    let serve = place.serve(&place.asks(&api));
    let elsewhere = "[invalid bearer token, token audiences [\"other\"] is invalid for the target audiences [\"tailwater\"]]";
    let repeated = format!("invalid bearer token, no such token: {POD}");
    let here: &[&str] = &["tailwater"];
    let denied = [
        (refused(elsewhere), "for the target audiences"),
        (refused(&repeated), "no such token: …"),
        (refused(""), "it is not valid"),
        (
            vouched("other:tailwater-agent", Some("node-1"), here),
            "account other:tailwater-agent lets nobody join",
        ),
        (
            vouched(ACCOUNT, Some("node-1"), &["https://kubernetes.default.svc"]),
            "not made out for \"tailwater\"",
        ),
        (vouched(ACCOUNT, Some("node-1"), &[]), "not made out for \"tailwater\""),
        (vouched(ACCOUNT, None, here), "does not say on which node"),
        (
            vouched_without("node-uid", ACCOUNT, Some("node-1"), here),
            "names a node that is not in the cluster",
        ),
        (vouched_without("pod-uid", ACCOUNT, Some("node-1"), here), "or is of no pod"),
        (vouched_user("system:node:node-1"), "no service account's"),
    ];
    for (says, why) in denied {
        api.say(says);
        let told = place.pod("node-1").unwrap_err();
        assert_eq!(told.code(), Code::PermissionDenied, "{why}: {told:?}");
        assert!(told.message().contains(why) && !told.message().contains(POD), "{why}: {told:?}");
    }
    let unasked = [
        (Says::This(500, "{}".to_owned()), "answered 500"),
        (Says::This(403, format!("not for {POD}")), "answered 403"),
        (refused("failed to verify: context deadline exceeded"), "could not check it: failed to verify"),
        (Says::This(200, "<html>".to_owned()), "answered 200 with what is no TokenReview"),
        (
            Says::This(201, format!("{{\"status\": {{\"authenticated\": true}}}}{}", " ".repeat(100_000))),
            "answered 201 with what is no TokenReview",
        ),
        (Says::Nothing, "no answer within 5 s"),
    ];
    for (says, why) in unasked {
        api.say(says);
        let begun = Instant::now();
        // Ten refusals of one address are told; those before were as many.
        let told = place.pod_from("node-1", [127, 0, 0, 2]).unwrap_err();
        assert_eq!(told.code(), Code::Unavailable, "{why}: {told:?}");
        assert!(told.message().contains("the collector's log says why"), "{why}: {told:?}");
        assert!(begun.elapsed() < Duration::from_secs(15), "{why}: {:?}", begun.elapsed());
        let line = serve.wait_log(why);
        assert!(line.contains("did not review a token"), "{line}");
    }
    assert_eq!(serve.metric("tailwater_enrolments_total{result=\"refused\"}"), 16);
    for says in [vouched(ACCOUNT, None, here), Says::This(500, "{}".to_owned())] {
        api.say(says);
        for _ in 0..10 {
            assert!(place.pod_from("node-1", [127, 0, 0, 3]).is_err());
        }
    }
    let lines = serve.log().lines().filter(|line| line.contains("127.0.0.3:")).count();
    assert!((1..20).contains(&lines), "{lines} lines of one address");
    assert!(!serve.log().contains(POD), "a token is in the log");
    // And it was none of the form: the same pod joins once it is vouched for.
    assert_eq!(place.command(&["enrolled"]), "");
    api.say(vouched(ACCOUNT, Some("node-1"), here));
    assert!(place.pod("node-1").is_ok());
}

/// Fails if a token goes to whoever answers at the API server's address, or if a collector without a cluster takes one for an invitation.
#[test]
fn a_token_is_shown_to_the_clusters_own_api_server_alone() {
    let (place, api, other) = (Place::new(), ApiServer::start(), ApiServer::start());
    api.say(vouched(ACCOUNT, Some("node-1"), &["tailwater"]));
    let text = place.asks(&api);
    put(place.folder.path(), "api-ca.crt", &other.ca);
    let serve = place.serve(&text);
    assert_eq!(place.pod("node-1").unwrap_err().code(), Code::Unavailable);
    assert!(api.asked().is_empty(), "somebody else has got the token");
    serve.wait_log("did not review a token");
    serve.kill();
    let serve = place.serve("");
    let told = place.pod("node-1").unwrap_err();
    assert!(told.message().contains("[authority.kubernetes]"), "{told:?}");
    assert!(!serve.log().contains(POD), "a token is in the log");
}

/// Fails if the API server's authorities are read once, if a file that is none of them ends what was, or if the collector has to be started again.
#[test]
fn a_cluster_that_gets_another_authority_is_asked_without_a_restart() {
    let (place, api, next) = (Place::new(), ApiServer::start(), ApiServer::start());
    for of in [&api, &next] {
        of.say(vouched(ACCOUNT, Some("node-1"), &["tailwater"]));
    }
    // At the first one's address, as far as the collector knows, stands one of another authority.
    let text = place.asks(&api).replace(&api.address.to_string(), &next.address.to_string());
    let serve = place.serve(&text);
    assert_eq!(place.pod("node-1").unwrap_err().code(), Code::Unavailable);
    put(place.folder.path(), "api-ca.crt", "no certificate\n");
    assert_eq!(place.pod("node-1").unwrap_err().code(), Code::Unavailable);
    serve.wait_log("changed and cannot be used, the old one stays: no certificate in it");
    put(place.folder.path(), "api-ca.crt", &next.ca);
    assert!(place.pod("node-1").is_ok(), "{}", serve.log());
    // A file that cannot be used leaves what is.
    put(place.folder.path(), "api-ca.crt", "");
    assert!(place.pod("node-1").is_ok(), "{}", serve.log());
    assert!(api.asked().is_empty());
}

/// Fails if a pod's own token undoes a revocation, or if it does not join again when it is allowed to; the name is an address, as some clusters call nodes.
#[test]
fn a_pod_whose_node_was_revoked_joins_again_when_that_is_allowed() {
    let (place, api, node) = (Place::new(), ApiServer::start(), "10.0.0.7");
    let _serve = place.serve(&place.asks(&api));
    api.say(vouched(ACCOUNT, Some(node), &["tailwater"]));
    let first = place.pod(node).unwrap();
    assert_eq!(place.says_joined(node, &first), "welcome");
    place.command(&["enrolled", "--revoke", node]);
    let told = place.pod(node).unwrap_err();
    assert!(told.code() == Code::PermissionDenied && told.message().contains("was revoked"), "{told:?}");
    assert!(place.command(&["enrolled", "--revoked"]).starts_with("10.0.0.7 "));
    place.command(&["enrolled", "--allow", node]);
    assert_eq!(place.command(&["enrolled", "--revoked"]), "");
    let next = place.pod(node).unwrap();
    assert_eq!(place.says_joined(node, &next), "welcome");
}

/// Fails if the pattern lets somebody take a name that is held, or if the cluster lets somebody join whom the pattern does not.
#[test]
fn where_the_cluster_names_no_node_a_pattern_decides_and_it_bounds_what_a_cluster_may_name() {
    let (place, api) = (Place::new(), ApiServer::start());
    let _serve = place.serve(&format!("{}hosts = \"node-*\"\n", place.asks(&api)));
    api.say(vouched(ACCOUNT, None, &["tailwater"]));
    let own = place.pod("node-7").unwrap();
    assert_eq!(place.says_joined("node-7", &own), "welcome");
    let told = place.pod("node-7").unwrap_err();
    assert!(told.message().contains("has a certificate already"), "{told:?}");
    let told = place.pod("web-1").unwrap_err();
    assert!(told.message().contains("is \"node-*\", which is not \"web-1\""), "{told:?}");
    // A node of that name may be there: the name is a machine's that is none of the cluster's.
    api.say(vouched(ACCOUNT, Some("web-1"), &["tailwater"]));
    let told = place.pod("web-1").unwrap_err();
    assert!(told.message().contains("is \"node-*\", which is not \"web-1\""), "{told:?}");
    assert!(place.pod("node-8").unwrap_err().message().contains("on node \"web-1\""));
    api.say(vouched(ACCOUNT, Some("node-7"), &["tailwater"]));
    let next = place.pod("node-7").unwrap();
    assert_eq!(place.says_joined("node-7", &next), "welcome");
}
