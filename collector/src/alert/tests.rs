//! Alerting as a whole, without a pipeline: incidents go in, and real receivers on real sockets get them.

#![allow(clippy::disallowed_methods, reason = "tests need deadlines")]

use super::config::{Hook, HookKind, Outbox as Bounds, Silence};
use super::stats::Stats;
use super::*;
use crate::fixture::incident as fixture;
use receiver_server::{Answer, Receiver as Server};
use std::time::{Duration, Instant};
use tailwater_model::incident::{Kind, Resource, State};

#[path = "../../tests/receiver/mod.rs"]
pub(crate) mod receiver_server;

/// Alerting in a folder of its own.
struct Running {
    alerts: Option<Alerts>,
    handle: Handle,
    task: tokio::task::JoinHandle<()>,
    stats: Arc<Stats>,
    silences: Arc<Silences>,
}

impl Running {
    fn start(folder: &Path, hooks: &[Hook]) -> Self {
        Self::with(folder, hooks, &[], &[])
    }

    fn with(folder: &Path, hooks: &[Hook], silences: &[Silence], open_before: &[Arc<Incident>]) -> Self {
        rules::check(hooks, silences).unwrap();
        let (stats, clock) = (Arc::new(Stats::default()), Clock::default());
        let silences = Arc::new(Silences::open(silences, config::names(hooks), folder, clock).unwrap());
        let (alerts, handle, task) =
            start(hooks, &silences, Bounds::default(), folder, open_before, &stats, clock).unwrap();
        Self { alerts: Some(alerts), handle, task, stats, silences }
    }

    fn say(&mut self, incident: &Incident, replaces: &[&str]) {
        let replaces: Vec<String> = replaces.iter().map(|r| (*r).to_owned()).collect();
        self.alerts.as_mut().unwrap().incident(&Arc::new(incident.clone()), &replaces, None);
    }

    /// As on SIGTERM.
    async fn stop(mut self) {
        self.alerts = None;
        self.task.await.unwrap();
    }

    async fn until(&self, what: &str, reached: impl Fn(&Stats) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !reached(&self.stats) {
            let mut text = String::new();
            self.stats.render(&mut text);
            assert!(Instant::now() < deadline, "waited 60 s for {what}\n{text}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn id(n: u32) -> String {
    format!("01KAJX3S9R7V5S9C8H1Z4T{n:04}")
}

/// The nth incident, at a tier of its own.
fn incident(n: u32, version: u64) -> Incident {
    let mut i = fixture(&id(n), version);
    for drop in &mut i.drops {
        drop.host = format!("web-{n}");
    }
    i.root.host = format!("app-{n}");
    i
}

/// Before its windows.
fn early(n: u32) -> Incident {
    let mut i = incident(n, 0);
    i.kind = Kind::LocalOverflow;
    i.root.resource = Resource::Unexplained;
    i
}

fn closed(n: u32, version: u64) -> Incident {
    Incident { state: State::Closed, ..incident(n, version) }
}

fn hook(server: &Server) -> Hook {
    Hook::webhook(&server.url())
}

fn kind(kind: HookKind, server: &Server) -> Hook {
    Hook { kind, ..hook(server) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_drop_cause_and_end_are_told_once_each() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::good();
    let mut running = Running::start(folder.path(), &[hook(&server)]);
    running.say(&early(1), &[]);
    server.wait("the first", |g| g.len() == 1);
    running.say(&incident(1, 1), &[]);
    server.wait("the cause", |g| g.len() == 2);
    running.say(&incident(1, 2), &[]); // the same, counts aside
    running.say(&closed(1, 3), &[]);
    let got = server.wait("the end", |g| g.len() == 3);
    let said: Vec<_> =
        got.iter().map(|g| (g.told(), g.json()["type"].as_str().unwrap().to_owned())).collect();
    let want = |version: u64, what: &str| (format!("{}.{version}", id(1)), format!("incident.{what}"));
    assert_eq!(said, [want(0, "opened"), want(1, "updated"), want(3, "closed")]);
    assert_eq!(got[2].json()["data"]["state"], "closed");
    running.stop().await;
    assert_eq!(server.got().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_hang_drip_close_or_answer_garbage_delay_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let bad = [
        Server::start(|_| Answer::Hang),
        Server::start(|_| Answer::Drip),
        Server::start(|_| Answer::Close),
        Server::start(|_| Answer::Raw(b"\x16\x03\x01 what is this? \r\n\r\n\0\0\0")),
        Server::start(|_| Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n")),
    ];
    let good = Server::good();
    let mut hooks: Vec<Hook> = bad.iter().map(|s| Hook { timeout_s: 1, ..hook(s) }).collect();
    hooks.push(Hook { name: Some("good".into()), ..hook(&good) });
    let mut running = Running::start(folder.path(), &hooks);
    for n in 0..100 {
        running.say(&early(n), &[]);
        running.say(&closed(n, 1), &[]);
    }
    let got = good.wait("all of it", |g| g.len() == 200);
    for n in 0..100 {
        let of: Vec<_> =
            got.iter().filter(|g| g.id().starts_with(&id(n))).map(|g| g.json()["type"].clone()).collect();
        assert_eq!(of, ["incident.opened", "incident.closed"]);
    }
    running
        .until("failures of each bad one", |s| {
            ["webhook", "webhook-2", "webhook-3", "webhook-4", "webhook-5"]
                .iter()
                .all(|h| s.hook(h).failed.get() > 0)
        })
        .await;
    for server in &bad {
        assert!(!server.got().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_that_is_asked_for_is_kept_and_the_same_message_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|n| match n {
        0 => Answer::With(503, "Retry-After: 2"),
        _ => Answer::Status(200),
    });
    let mut running = Running::start(folder.path(), &[hook(&server)]);
    running.say(&early(1), &[]);
    let got = server.wait("the second try", |g| g.len() == 2);
    assert_eq!((got[0].id(), &got[0].body), (got[1].id(), &got[1].body));
    let pause = got[1].at - got[0].at;
    assert!(pause >= Duration::from_secs(2), "{pause:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_secrets_sign_and_a_new_one_is_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    std::fs::write(&a, format!("{old}\n")).unwrap();
    std::fs::write(&b, format!("{new}\n{old}\n")).unwrap();
    let server = Server::good();
    let hook = Hook { secret_files: vec![a.clone()], ..hook(&server) };
    let mut running = Running::start(folder.path(), &[hook]);
    running.say(&early(1), &[]);
    let got = server.wait("the first", |g| g.len() == 1);
    assert!(got[0].verified_by(old) && !got[0].verified_by(new));
    std::fs::rename(&b, &a).unwrap();
    running.say(&incident(1, 1), &[]);
    let got = server.wait("the second", |g| g.len() == 2);
    assert!(got[1].verified_by(old) && got[1].verified_by(new), "both sign while one replaces the other");
    std::fs::write(&a, format!("{new}\n")).unwrap();
    running.say(&closed(1, 2), &[]);
    let got = server.wait("the third", |g| g.len() == 3);
    assert!(!got[2].verified_by(old) && got[2].verified_by(new));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_trusts_the_authority_that_is_named_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let authority = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, certificate.pem()).unwrap();
        (file, rcgen::Issuer::new(parameters, key))
    };
    let ((own, issuer), (other, _)) = (authority("own.pem"), authority("other.pem"));
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = parameters.signed_by(&key, &issuer).unwrap();
    let private = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let server = Server::tls(tls);
    let trusting = Hook { name: Some("trusting".into()), ca: Some(own), ..hook(&server) };
    let strict = Hook { name: Some("strict".into()), ca: Some(other), ..hook(&server) };
    let system = Hook { name: Some("system".into()), ..hook(&server) };
    let mut running = Running::start(folder.path(), &[trusting, strict, system]);
    running.say(&early(1), &[]);
    server.wait("the one that trusts", |g| g.len() == 1);
    running
        .until("the refusals", |s| s.hook("strict").failed.get() > 0 && s.hook("system").failed.get() > 0)
        .await;
    assert_eq!(server.got().len(), 1);
    let waiting = running.handle.list(false).await.unwrap();
    let error = waiting.iter().find(|l| l.hook == "strict").unwrap().error.clone();
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_delivered_is_delivered_after_a_restart_with_the_same_id() {
    let folder = tempfile::tempdir().unwrap();
    let (down, up) = (Server::start(|_| Answer::Status(503)), Server::good());
    let named = |server: &Server| Hook { name: Some("pager".into()), ..hook(server) };
    let mut running = Running::start(folder.path(), &[named(&down)]);
    running.say(&early(1), &[]);
    running.say(&early(2), &[]);
    down.wait("tries", |g| g.len() >= 2);
    running.say(&closed(1, 3), &[]);
    running.stop().await;
    let mut running = Running::start(folder.path(), &[named(&up)]);
    up.wait("what waited", |g| g.len() >= 3);
    // The agent sends what it kept, so the incident comes again; its opening was told.
    running.say(&incident(2, 4), &[]);
    running.say(&closed(2, 5), &[]);
    let got = up.wait("the end", |g| g.iter().any(|g| g.told() == format!("{}.5", id(2))));
    let of = |n: u32| -> Vec<_> { got.iter().map(|g| g.told()).filter(|i| i.starts_with(&id(n))).collect() };
    assert_eq!(of(1), [format!("{}.0", id(1)), format!("{}.3", id(1))]);
    let after = up.ids();
    assert!(
        down.ids().iter().all(|tried| after.contains(tried)),
        "the whole id is that of the run that made it"
    );
    let second = of(2);
    assert_eq!(
        (second.first(), second.last()),
        (Some(&format!("{}.0", id(2))), Some(&format!("{}.5", id(2))))
    );
    running.stop().await;
    let running = Running::start(folder.path(), &[named(&up)]);
    running.stop().await;
    assert_eq!(up.got().len(), got.len(), "nothing is told again");
}

/// Killed before the store wrote the incident, which it then counts from the start. By versions alone, a receiver that drops an id which it
/// has seen, or a version that is older, would drop the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incident_that_is_counted_from_the_start_again_goes_on_behind_what_was_told_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::good();
    let mut other_cause = incident(1, 2);
    other_cause.root.host = "app-other".into();
    let mut count = 0;
    for run in [[early(1), incident(1, 1), other_cause], [early(1), incident(1, 1), closed(1, 2)]] {
        let mut running = Running::start(folder.path(), &[hook(&server)]);
        for version in run {
            running.say(&version, &[]);
            count += 1;
            server.wait("the next", |g| g.len() == count);
        }
        running.stop().await;
    }
    let got = server.got();
    let ids: BTreeSet<String> = server.ids().into_iter().collect();
    assert_eq!(ids.len(), got.len(), "{ids:?}");
    let versions: Vec<_> = got.iter().map(|g| g.json()["data"]["version"].as_u64().unwrap()).collect();
    assert!(versions.windows(2).all(|two| two[0] < two[1]), "{versions:?}");
    assert_eq!(got[5].json()["type"], "incident.closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_used_once_even_if_nothing_is_left_of_the_data_of_before() {
    let server = Server::good();
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let mut running = Running::start(folder.path(), &[hook(&server)]);
        running.say(&early(1), &[]);
        running.until("it to be sent", |s| s.hook("webhook").sent.get() == 1).await;
        running.stop().await;
    }
    let ids = server.ids();
    assert_eq!(server.told(), vec![format!("{}.0", id(1)); 2]);
    assert_ne!(ids[0], ids[1]);
}

/// What a collector that was killed leaves in its outbox: so many first messages, which wait or are held back.
fn left_by_a_kill(folder: &Path, count: u32, fate: Fate) {
    let opened = Outbox::open(folder, Bounds::default(), Arc::default(), &[]).unwrap();
    let name = Arc::<str>::from("webhook");
    for n in 0..count {
        let first = Arc::new(message::tests::message(&id(n), 0, message::What::Opened));
        opened.outbox.put(&name, &first, Fate::Waiting);
        if fate != Fate::Waiting {
            opened.outbox.mark(&name, &first, fate, 0, "");
        }
    }
    drop(opened.outbox);
    opened.thread.join().unwrap();
}

/// Killed between a receiver's answer and its row: what the receiver took waits, and a summary would be all that is said of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_told_before_a_restart_is_in_no_summary_and_its_end_is_told() {
    let folder = tempfile::tempdir().unwrap();
    left_by_a_kill(folder.path(), 5, Fate::Waiting);
    let server = Server::good();
    let limited = Hook { rate_per_minute: Some(600), burst: 1, ..hook(&server) };
    let mut running = Running::start(folder.path(), &[limited]);
    server.wait("each once more", |g| g.len() == 5);
    for n in 0..5 {
        running.say(&closed(n, 1), &[]);
    }
    let got = server.wait("each end", |g| g.len() == 10);
    running.stop().await;
    for n in 0..5 {
        let of: Vec<_> =
            got.iter().filter(|g| g.id().starts_with(&id(n))).map(|g| g.json()["type"].clone()).collect();
        assert_eq!(of, ["incident.opened", "incident.closed"]);
    }
}

/// Before it refused a beginning it may have taken it and not answered, and what it holds to be open ends by itself alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_before_a_restart_and_goes_on_is_in_no_summary() {
    let folder = tempfile::tempdir().unwrap();
    left_by_a_kill(folder.path(), 5, Fate::Dead);
    let server = Server::good();
    let limited = Hook { rate_per_minute: Some(600), burst: 1, ..hook(&server) };
    let mut running = Running::start(folder.path(), &[limited]);
    for n in 0..5 {
        running.say(&incident(n, 1), &[]);
    }
    let got = server.wait("each beginning", |g| g.len() == 5);
    running.stop().await;
    assert!(got.iter().all(|g| g.json()["type"] == "incident.opened"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_held_back_at_a_kill_is_in_one_summary_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    left_by_a_kill(folder.path(), 5, Fate::Held);
    let server = Server::good();
    let limited = || [Hook { rate_per_minute: Some(600), burst: 10, ..hook(&server) }];
    let running = Running::start(folder.path(), &limited());
    let got = server.wait("the summary", |g| g.len() == 1);
    assert_eq!(
        (&got[0].json()["type"], &got[0].json()["data"]["held"]),
        (&"alerts.summary".into(), &5.into())
    );
    running.until("it to be sent", |s| s.hook("webhook").sent.get() == 1).await;
    running.stop().await;
    let running = Running::start(folder.path(), &limited());
    let rows = running.handle.list(false).await.unwrap();
    assert!(rows.iter().all(|row| row.state == "superseded" || row.state == "sent"), "{rows:?}");
    running.stop().await;
    assert_eq!(server.got().len(), 1, "nothing is told again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incident_that_was_open_when_the_collector_died_is_closed_later() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::good();
    let mut running = Running::start(folder.path(), &[hook(&server)]);
    running.say(&incident(1, 1), &[]);
    running.until("it to be sent", |s| s.hook("webhook").sent.get() == 1).await;
    running.stop().await;
    let running = Running::start(folder.path(), &[hook(&server)]);
    let got = server.wait("the end", |g| g.len() == 2);
    assert_eq!(
        (got[1].told(), got[1].json()["type"].as_str()),
        (format!("{}.2.restart", id(1)), Some("incident.closed"))
    );
    running.stop().await;
}

/// Killed after an incident was kept and before its alert was: nobody would ever hear of it, or of its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incident_that_was_kept_and_never_told_is_told_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::good();
    let mild = Incident { severity: Severity::Info, ..incident(3, 1) };
    let open_before = [incident(1, 1), incident(2, 1), mild].map(Arc::new);
    let mut running = Running::start(folder.path(), &[hook(&server)]);
    running.say(&open_before[0], &[]);
    running.until("it to be sent", |s| s.hook("webhook").sent.get() == 1).await;
    running.stop().await;
    let hooks = [Hook { min_severity: Severity::Warning, ..hook(&server) }];
    let running = Running::with(folder.path(), &hooks, &[], &open_before);
    let got = server.wait("both ends", |g| g.len() == 4);
    let mut said: Vec<_> = got.iter().map(receiver_server::Got::told).collect();
    said[2..].sort();
    let of = |n: u32, end: &str| format!("{}.{end}", id(n));
    assert_eq!(said, [of(1, "1"), of(2, "1.again"), of(1, "2.restart"), of(2, "2.restart")]);
    assert_eq!(got[1].json()["type"], "incident.opened");
    running.stop().await;
    let running = Running::with(folder.path(), &hooks, &[], &open_before);
    running.stop().await;
    assert_eq!(server.got().len(), 4, "once");
}

/// Alerts of incident 1 wait for "pager", 2 waits for it and is told again while the disk refuses; "alertmanager" has both open, in one thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_on_a_disk_that_refuses_delivers_once_it_works_what_waited_and_resolves_what_was_open() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, away) = (parent.path().join("data"), parent.path().join("away"));
    std::fs::create_dir(&folder).unwrap();
    let (down, pager, keeps) = (Server::start(|_| Answer::Status(503)), Server::good(), Server::good());
    let hooks = |pager: &Server| {
        let pager = Hook { name: Some("pager".into()), ..hook(pager) };
        [pager, Hook { resend_s: 3600, ..kind(HookKind::Alertmanager, &keeps) }]
    };
    let second = |version: u64| Incident { id: id(2), ..incident(1, version) };
    let mut running = Running::start(&folder, &hooks(&down));
    running.say(&incident(1, 1), &[]);
    keeps.wait("the first to be open", |g| g.len() == 1);
    running.say(&second(1), &[]);
    running.until("both to be told", |s| s.hook("alertmanager").sent.get() == 2).await;
    running.stop().await;
    std::fs::rename(&folder, &away).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    let mut running = Running::start(&folder, &hooks(&pager));
    running.say(&second(2), &[]);
    running.say(&incident(3, 1), &[]);
    pager.wait("what is told meanwhile", |g| g.len() == 2);
    running.until("the disk to be tried", |s| s.write_failures.get() > 1).await;
    assert_eq!(pager.got().len(), 2);
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    pager.wait("what waited", |_| pager.told().contains(&format!("{}.1", id(1))));
    running.say(&Incident { state: State::Closed, ..second(3) }, &[]);
    running.say(&closed(3, 2), &[]);
    let resolved = |g: &[receiver_server::Got]| -> std::collections::BTreeSet<String> {
        let alerts = g.iter().flat_map(|g| g.json().as_array().unwrap().clone());
        let ended = alerts.filter(|a| a.get("endsAt").is_some_and(|e| e.as_str() < Some("2026-11-07")));
        ended.map(|a| a["labels"]["thread"].as_str().unwrap().to_owned()).collect()
    };
    // The thread of before was that of the first; the second, told again, has one of its own.
    keeps.wait("all threads to be resolved", |g| resolved(g).len() == 3);
    let end = format!("{}.2.restart", id(1));
    pager.wait("the end of the first", |_| pager.told().contains(&end));
    running.stop().await;
    let said = |n: u32| -> Vec<_> { pager.told().into_iter().filter(|i| i.starts_with(&id(n))).collect() };
    assert_eq!(said(1), [format!("{}.1", id(1)), end]);
    assert_eq!(said(2), [format!("{}.2", id(2)), format!("{}.3", id(2))], "version 1 is old news");
    assert_eq!(said(3), [format!("{}.1", id(3)), format!("{}.2", id(3))]);
    let count = (pager.got().len(), keeps.got().len());
    let running = Running::start(&folder, &hooks(&pager));
    let waiting = running.handle.list(false).await.unwrap();
    assert!(waiting.iter().all(|l| l.state != "waiting"), "{waiting:?}");
    running.stop().await;
    assert_eq!((pager.got().len(), keeps.got().len()), count, "nothing is told again");
}

/// The first start tells it; the second knows nothing of that yet, and has no room for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_what_a_disk_says_late_that_it_was_told_is_told_although_it_is_in_a_summary() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, away) = (parent.path().join("data"), parent.path().join("away"));
    std::fs::create_dir(&folder).unwrap();
    let server = Server::good();
    let limited = || [Hook { rate_per_minute: Some(5), burst: 1, ..hook(&server) }];
    let mut running = Running::start(&folder, &limited());
    running.say(&incident(1, 1), &[]);
    running.until("it to be sent", |s| s.hook("webhook").sent.get() == 1).await;
    running.stop().await;
    std::fs::rename(&folder, &away).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    let mut running = Running::start(&folder, &limited());
    running.say(&incident(2, 1), &[]);
    running.until("another to be sent", |s| s.hook("webhook").sent.get() == 1).await;
    running.say(&incident(1, 2), &[]);
    running.until("it to be held back", |s| s.hook("webhook").held.get() == 1).await;
    server.wait("the summary", |g| g.iter().any(|g| g.json()["type"] == "alerts.summary"));
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    running.say(&closed(1, 3), &[]);
    server.wait("its end", |g| {
        g.iter().any(|g| g.id().starts_with(&id(1)) && g.json()["type"] == "incident.closed")
    });
    running.stop().await;
}

/// The receiver refused its beginning, and heard of it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_that_is_sent_again_takes_no_end_into_a_summary() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|n| Answer::Status(if n == 0 { 410 } else { 200 }));
    let limited = Hook { rate_per_minute: Some(10), burst: 2, ..hook(&server) };
    let mut running = Running::start(folder.path(), &[limited]);
    running.say(&incident(1, 1), &[]);
    running.until("the refusal", |s| s.hook("webhook").dead.get() == 1).await;
    let mut other_cause = incident(1, 2);
    other_cause.root.host = "app-other".into();
    running.say(&other_cause, &[]);
    running.until("the change", |s| s.hook("webhook").sent.get() == 1).await;
    assert_eq!(running.handle.resend(None).await, Ok(1));
    server.wait("the letter", |g| g.len() == 3);
    running.say(&closed(1, 3), &[]);
    let got = server.wait("the end", |g| g.len() == 4);
    let types: Vec<_> = got.iter().map(|g| g.json()["type"].clone()).collect();
    assert_eq!(types, ["incident.opened", "incident.updated", "incident.opened", "incident.closed"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_a_dead_letter_that_can_be_read_and_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|n| Answer::Status(if n < 2 { 410 } else { 200 }));
    let mut running = Running::start(folder.path(), &[hook(&server)]);
    running.say(&early(1), &[]);
    running.say(&early(2), &[]);
    running.until("two refusals", |s| s.hook("webhook").dead.get() == 2).await;
    let dead = running.handle.list(true).await.unwrap();
    assert_eq!(dead.len(), 2);
    assert_eq!((dead[0].state.as_str(), dead[0].error.as_str()), ("dead", "answered 410"));
    assert!(dead[0].title.contains("dropped 122 connections"));
    assert_eq!(running.handle.resend(Some("nothing".into())).await, Ok(0));
    assert_eq!(running.handle.resend(Some(id(1))).await, Ok(1));
    let got = server.wait("the first again", |g| g.len() == 3);
    assert_eq!(got[2].told(), format!("{}.0", id(1)));
    assert_eq!(running.handle.resend(None).await, Ok(1));
    let got = server.wait("the second again", |g| g.len() == 4);
    assert_eq!(got[3].told(), format!("{}.0", id(2)));
    running.until("both sent", |s| s.hook("webhook").sent.get() == 2).await;
    running.handle.outbox.as_ref().unwrap().flush().await;
    assert!(running.handle.list(true).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_lasts_is_a_dead_letter_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Answer::Status(500));
    let mut running = Running::start(folder.path(), &[Hook { retry_for_s: 1, ..hook(&server) }]);
    running.say(&early(1), &[]);
    running.until("it to be given up", |s| s.hook("webhook").dead.get() == 1).await;
    let dead = running.handle.list(true).await.unwrap();
    assert!(
        dead[0].error.starts_with("given up after ") && dead[0].error.ends_with("answered 500"),
        "{dead:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_its_rate_a_hook_gets_one_summary_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::good();
    let limited = Hook { rate_per_minute: Some(30), burst: 3, ..hook(&server) };
    let mut running = Running::start(folder.path(), &[limited]);
    for n in 0..50 {
        running.say(&early(n), &[]);
    }
    let is_summary = |g: &receiver_server::Got| g.json()["type"] == "alerts.summary";
    let got = server.wait("a summary", |g| g.iter().any(is_summary));
    let opened = got.iter().filter(|g| g.json()["type"] == "incident.opened").count() as u64;
    let summary = got.iter().find(|g| is_summary(g)).unwrap().json();
    assert!((3..10).contains(&opened), "{opened}");
    assert_eq!(opened + summary["data"]["held"].as_u64().unwrap(), 50, "each is told or counted");
    assert!(summary["data"]["incidents"].as_array().unwrap().len() <= 20);
    // The end of what was told is told, in its time; of what was in the summary, nothing more.
    for n in 0..50 {
        running.say(&closed(n, 1), &[]);
    }
    let got = server.wait("the ends", |g| g.iter().any(|g| g.json()["type"] == "incident.closed"));
    assert_eq!(running.stats.hook("webhook").held.get(), 50 - opened);
    assert!(got.iter().filter(|g| g.json()["type"] == "incident.opened").count() as u64 == opened);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silences_and_filters_hold_back_what_they_name_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (all, some) = (Server::good(), Server::good());
    let hooks = [
        Hook { name: Some("all".into()), ..hook(&all) },
        Hook { name: Some("some".into()), kinds: vec![Kind::UpstreamCtqo], ..hook(&some) },
    ];
    let silence: Silence =
        toml::from_str("comment = \"maintenance\"\nhost = \"web-2\"\nfrom = \"2020-01-01T00:00:00Z\"")
            .unwrap();
    let past: Silence = toml::from_str("comment = \"over\"\nuntil = \"2020-01-01T00:00:00Z\"").unwrap();
    let mut running = Running::with(folder.path(), &hooks, &[silence, past], &[]);
    for n in [1, 2] {
        running.say(&early(n), &[]);
        running.say(&incident(n, 1), &[]);
        running.say(&closed(n, 2), &[]);
    }
    let mut info = incident(3, 1);
    info.severity = Severity::Info;
    running.say(&info, &[]);
    let told = |g: &[receiver_server::Got]| -> Vec<_> { g.iter().map(receiver_server::Got::told).collect() };
    let got = all.wait("the end", |g| g.iter().any(|g| g.told() == format!("{}.2", id(1))));
    assert!(told(&got).iter().all(|i| i.starts_with(&id(1))), "{:?}", told(&got));
    let got = some.wait("the end", |g| g.iter().any(|g| g.told() == format!("{}.2", id(1))));
    assert_eq!(told(&got)[0], format!("{}.1", id(1)), "the early alert is of another kind");
    assert_eq!(got[0].json()["type"], "incident.opened");
    running
        .until("the silence", |s| s.hook("all").silenced.get() == 1 && s.hook("some").silenced.get() == 1)
        .await;
    running.stop().await;
    assert!(told(&all.got()).iter().chain(&told(&some.got())).all(|i| i.starts_with(&id(1))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silence_that_somebody_makes_holds_back_news_changes_and_reminders_and_lets_ends_through() {
    // In memory: the silence is written before it holds, and a reminder must not be due before a slow disk has it.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let server = Server::good();
    let mut running = Running::start(folder.path(), &[Hook { remind_after_s: 3, ..hook(&server) }]);
    let told = |g: &[receiver_server::Got]| -> Vec<(String, String)> {
        g.iter().map(|g| (g.told(), g.json()["type"].as_str().unwrap().replace("incident.", ""))).collect()
    };
    running.say(&incident(1, 1), &[]);
    running.say(&early(3), &[]);
    server.wait("what came before", |g| g.len() == 2);
    let asked = toml::from_str("comment = \"a load test\"").unwrap();
    let asked = silences::Asked { for_s: Some(600), silence: asked };
    let made = running.silences.make(asked, "ann").unwrap();
    // A new one, a change of one that was told, what an early alert turned out to be, and the time of a reminder.
    running.say(&incident(2, 1), &[]);
    let mut changed = incident(1, 2);
    changed.root.resource = Resource::Unexplained;
    running.say(&changed, &[]);
    let mut whole = incident(4, 1);
    whole.id = id(4);
    running.say(&whole, &[&id(3)]);
    let got = server.wait("the end of the early alert", |g| {
        told(g).iter().any(|(i, what)| i.starts_with(&id(3)) && what == "closed")
    });
    assert_eq!(got.len(), 3, "{:?}", told(&got));
    running.until("the silence", |s| s.hook("webhook").silenced.get() == 2).await;
    let untold = || running.silences.list()[0].untold;
    let deadline = Instant::now() + Duration::from_secs(30);
    // Two that are new, one change, and the reminders of the first.
    while untold() < 4 {
        assert!(Instant::now() < deadline, "{}", untold());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.got().len(), 3, "{:?}", told(&server.got()));
    // The end of what was told is told, and of what was not is not.
    running.say(&closed(1, 3), &[]);
    running.say(&closed(2, 2), &[]);
    let got = server.wait("the end", |g| g.len() == 4);
    assert_eq!(told(&got)[3], (format!("{}.3", id(1)), "closed".to_owned()));
    // What goes on is told with its next version after the silence.
    assert!(running.silences.end(made.id.as_deref().unwrap()).unwrap());
    let mut later = whole.clone();
    later.version = 2;
    later.root.resource = Resource::Unexplained;
    running.say(&later, &[]);
    let got = server.wait("what goes on", |g| g.len() == 5);
    assert_eq!(told(&got)[4], (format!("{}.2", id(4)), "opened".to_owned()));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pagerduty_resolves_a_thread_when_its_last_incident_closed() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "R0UT1NGKEY\n").unwrap();
    let server = Server::start(|_| Answer::Status(202));
    let pager = Hook { routing_key_file: Some(key), ..kind(HookKind::Pagerduty, &server) };
    let mut running = Running::start(folder.path(), &[pager]);
    let (first, mut second) = (incident(1, 1), incident(1, 1));
    second.id = id(2);
    running.say(&first, &[]);
    server.wait("the trigger", |g| g.len() == 1);
    running.say(&second, &[]);
    running.say(&closed(1, 2), &[]);
    server.wait("the second", |g| g.len() == 2);
    running.say(&Incident { state: State::Closed, version: 2, ..second }, &[]);
    let got = server.wait("the end", |g| g.len() == 3);
    let events: Vec<_> = got.iter().map(receiver_server::Got::json).collect();
    let actions: Vec<_> = events.iter().map(|e| e["event_action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["trigger", "trigger", "resolve"]);
    assert!(
        events
            .iter()
            .all(|e| e["dedup_key"] == format!("tailwater-{}", id(1)) && e["routing_key"] == "R0UT1NGKEY")
    );
    assert_eq!(events[0]["payload"]["severity"], "critical");
}

/// Of one that is in a summary no end is told, so nobody would resolve the thread later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pagerduty_resolves_a_thread_whose_only_open_incident_is_in_a_summary() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "k").unwrap();
    let server = Server::start(|_| Answer::Status(202));
    // The second comes long before there is room for it, and the end as soon as there is.
    let limited = Hook { rate_per_minute: Some(10), burst: 1, ..kind(HookKind::Pagerduty, &server) };
    let mut running = Running::start(folder.path(), &[Hook { routing_key_file: Some(key), ..limited }]);
    running.say(&incident(1, 1), &[]);
    running.until("the trigger", |s| s.hook("pagerduty").sent.get() == 1).await;
    running.say(&Incident { id: id(2), ..incident(1, 1) }, &[]);
    running.until("the second to be held back", |s| s.hook("pagerduty").held.get() == 1).await;
    running.say(&closed(1, 2), &[]);
    let got = server.wait("the end", |g| g.iter().any(|g| g.json()["event_action"] == "resolve"));
    let resolve = got.iter().map(receiver_server::Got::json).find(|e| e["event_action"] == "resolve");
    assert_eq!(resolve.map(|e| e["dedup_key"].clone()), Some(format!("tailwater-{}", id(1)).into()));
    running.stop().await;
}

/// The second stands before the end of the first, and is held back: so its receiver never heard of it, and nobody would resolve the thread later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_an_incident_does_not_wait_for_what_stood_before_it_and_is_held_back() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "k").unwrap();
    let server = Server::start(|n| Answer::Status(if n == 0 { 503 } else { 202 }));
    let limited = Hook { rate_per_minute: Some(10), burst: 1, ..kind(HookKind::Pagerduty, &server) };
    let mut running = Running::start(folder.path(), &[Hook { routing_key_file: Some(key), ..limited }]);
    running.say(&incident(1, 1), &[]);
    running.until("the first try", |s| s.hook("pagerduty").failed.get() == 1).await;
    running.say(&Incident { id: id(2), ..incident(1, 1) }, &[]);
    running.say(&closed(1, 2), &[]);
    server.wait("the end", |g| g.iter().any(|g| g.json()["event_action"] == "resolve"));
    assert_eq!(running.stats.hook("pagerduty").held.get(), 1);
    running.stop().await;
}

/// The second is open and its receiver knows nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_an_incident_does_not_wait_for_one_whose_beginning_was_refused() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "k").unwrap();
    let server = Server::start(|n| Answer::Status(if n == 1 { 410 } else { 202 }));
    let pager = Hook { routing_key_file: Some(key), ..kind(HookKind::Pagerduty, &server) };
    let mut running = Running::start(folder.path(), &[pager]);
    running.say(&incident(1, 1), &[]);
    running.until("the trigger", |s| s.hook("pagerduty").sent.get() == 1).await;
    running.say(&Incident { id: id(2), ..incident(1, 1) }, &[]);
    running.until("the refusal", |s| s.hook("pagerduty").dead.get() == 1).await;
    running.say(&closed(1, 2), &[]);
    let got = server.wait("the end", |g| g.len() == 3);
    assert_eq!(got[2].json()["event_action"], "resolve");
    running.stop().await;
}

/// A queue near its limit that is over is told for the first time as that, with the early alert that it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_is_the_first_word_of_an_incident_resolves_the_early_alert_that_it_replaces() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "k").unwrap();
    let server = Server::start(|_| Answer::Status(202));
    let pager = Hook { routing_key_file: Some(key), ..kind(HookKind::Pagerduty, &server) };
    let mut running = Running::start(folder.path(), &[pager]);
    running.say(&early(2), &[]);
    running.say(&closed(1, 1), &[&id(2)]);
    let of_alert = format!("tailwater-{}", id(2));
    server.wait("the alert to be resolved", |g| {
        let ends =
            |e: serde_json::Value| e["event_action"] == "resolve" && e["dedup_key"] == of_alert.as_str();
        g.iter().any(|g| ends(g.json()))
    });
    running.stop().await;
}

/// Its end came, and went to a receiver that did not know of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beginning_that_is_sent_again_after_its_end_is_ended_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "k").unwrap();
    let server = Server::start(|n| Answer::Status(if n == 0 { 410 } else { 202 }));
    let pager = Hook { routing_key_file: Some(key), ..kind(HookKind::Pagerduty, &server) };
    let mut running = Running::start(folder.path(), &[pager]);
    running.say(&incident(1, 1), &[]);
    running.until("the refusal", |s| s.hook("pagerduty").dead.get() == 1).await;
    running.say(&closed(1, 2), &[]);
    server.wait("its end", |g| g.len() == 2);
    assert_eq!(running.handle.resend(None).await, Ok(1));
    let got = server.wait("it to be ended once more", |g| g.len() == 4);
    let actions: Vec<_> = got.iter().map(|g| g.json()["event_action"].clone()).collect();
    assert_eq!(actions, ["trigger", "resolve", "trigger", "resolve"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_alert_that_was_replaced_is_resolved_with_its_incident() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "k").unwrap();
    let server = Server::start(|_| Answer::Status(202));
    let pager = Hook { routing_key_file: Some(key), group_within_s: 0, ..kind(HookKind::Pagerduty, &server) };
    let mut running = Running::start(folder.path(), &[pager]);
    // One alert becomes part of an incident that nobody heard of, the other of one that is open already.
    running.say(&early(2), &[]);
    running.say(&incident(1, 1), &[&id(2)]);
    running.say(&early(3), &[]);
    running.say(&incident(1, 2), &[&id(3)]);
    running.say(&closed(1, 3), &[]);
    let key_of = |n: u32| format!("tailwater-{}", id(n));
    let last = |got: &[receiver_server::Got], n: u32| {
        let mut of = got.iter().map(receiver_server::Got::json).filter(|e| e["dedup_key"] == key_of(n));
        of.next_back().map(|e| e["event_action"].as_str().unwrap().to_owned())
    };
    let got =
        server.wait("both resolved", |g| [2, 3].iter().all(|n| last(g, *n).as_deref() == Some("resolve")));
    assert_eq!(last(&got, 1), None, "it took the thread of the alert that it replaced");
}

/// Killed between a receiver's answer to the alert and its row, after the incident that the alert became part of was kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_alert_that_was_replaced_before_a_kill_holds_its_thread_open_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "k").unwrap();
    let server = Server::start(|_| Answer::Status(202));
    let pager = || [Hook { routing_key_file: Some(key.clone()), ..kind(HookKind::Pagerduty, &server) }];
    let mut running = Running::start(folder.path(), &pager());
    running.say(&early(2), &[]);
    running.until("the alert", |s| s.hook("pagerduty").sent.get() == 1).await;
    running.say(&incident(1, 1), &[&id(2)]);
    running.until("the incident", |s| s.hook("pagerduty").sent.get() == 2).await;
    let rows = running.handle.list(false).await.unwrap();
    let first = rows.iter().find(|row| row.id.starts_with(&id(2)) && row.r#type == "opened").unwrap();
    let mut alert = message::tests::message(&id(2), 0, message::What::Opened);
    alert.id.clone_from(&first.id);
    running.stop().await;
    let opened = Outbox::open(folder.path(), Bounds::default(), Arc::default(), &[]).unwrap();
    opened.outbox.mark(&"pagerduty".into(), &Arc::new(alert), Fate::Waiting, 0, "");
    drop(opened.outbox);
    opened.thread.join().unwrap();

    let mut running = Running::start(folder.path(), &pager());
    server.wait("the alert once more", |g| g.len() == 3);
    running.say(&closed(1, 2), &[]);
    let got = server.wait("the end", |g| g.len() == 4);
    let end = got[3].json();
    assert_eq!(end["event_action"], "resolve");
    assert_eq!(end["dedup_key"], format!("tailwater-{}", id(2)), "it took the thread of the alert");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slack_gets_a_text_and_its_url_may_be_a_secret_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::good();
    let (url, bearer) = (folder.path().join("url"), folder.path().join("bearer"));
    std::fs::write(&url, format!("{}\n", server.url())).unwrap();
    std::fs::write(&bearer, "Bearer abc\n").unwrap();
    let slack = Hook {
        url: None,
        url_file: Some(url),
        authorization_file: Some(bearer),
        ..kind(HookKind::Slack, &server)
    };
    let mut running = Running::start(folder.path(), &[slack]);
    running.say(&incident(1, 1), &[]);
    let got = server.wait("a message", |g| g.len() == 1);
    let text = got[0].json()["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("*Dropping* apache2.service@web-1 dropped 122 connections"), "{text}");
    assert_eq!(got[0].header("authorization"), Some("Bearer abc"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_hangs_is_killed_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (once, out) = (folder.path().join("once"), folder.path().join("out"));
    let script = format!(
        "if [ ! -e {0} ]; then : > {0}; sleep 1000; fi; cat > {1}.tmp; mv {1}.tmp {1}",
        once.display(),
        out.display()
    );
    let command = Hook {
        url: None,
        argv: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        timeout_s: 1,
        kind: HookKind::Command,
        ..Hook::webhook("")
    };
    let mut running = Running::start(folder.path(), &[command]);
    running.say(&incident(1, 1), &[]);
    running.until("the second run", |s| s.hook("command").sent.get() == 1).await;
    assert!(running.stats.hook("command").failed.get() >= 1);
    let got: Incident = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(got, incident(1, 1));
}

/// Alertmanager from Debian's package, as a process of this test's.
struct Alertmanager {
    process: std::process::Child,
    address: std::net::SocketAddr,
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Alertmanager {
    /// Tells `receiver` at once of what fires and of what is resolved.
    fn start(folder: &Path, receiver: &Server) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let servers = root.join("target/servers");
        // `make unit` has done this; it does nothing then.
        let fetched = std::process::Command::new(root.join("tests/servers/install.sh"))
            .arg(&servers)
            .arg("prometheus-alertmanager")
            .status()
            .unwrap();
        assert!(fetched.success());
        let file = folder.join("alertmanager.yml");
        let text = format!(
            "route: {{ receiver: test, group_by: ['...'], group_wait: 0s, group_interval: 1s, repeat_interval: 1h }}\nreceivers: [{{ name: test, webhook_configs: [{{ url: '{}', send_resolved: true }}] }}]\n",
            receiver.url()
        );
        std::fs::write(&file, text).unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = std::fs::File::create(folder.join("alertmanager.log")).unwrap();
        let process = std::process::Command::new(root.join("tests/servers/run.sh"))
            .arg(&servers)
            .arg("prometheus-alertmanager")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.path={}", folder.join("alertmanager").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=")
            .stdout(std::process::Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !receiver_server::reachable(address) {
            assert!(
                Instant::now() < deadline,
                "{}",
                std::fs::read_to_string(folder.join("alertmanager.log")).unwrap()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { process, address }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_alertmanager_gets_the_alert_keeps_it_and_gets_its_resolution() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::good();
    let alertmanager = Alertmanager::start(folder.path(), &server);
    let url = format!("http://{}", alertmanager.address);
    let hook = Hook {
        kind: HookKind::Alertmanager,
        url: Some(url.clone()),
        resend_s: 1,
        link: Some("http://page/{id}".into()),
        ..Hook::webhook("")
    };
    let mut running = Running::start(folder.path(), &[hook]);
    // Times as they are now: Alertmanager forgets what ended long ago.
    let now = Clock::default().unix_ns();
    let at = |mut i: Incident| {
        i.start_unix_ns = now - 500_000_000;
        i.end_unix_ns = now;
        i
    };
    running.say(&at(early(1)), &[]);
    let firing = |g: &receiver_server::Got| g.json()["status"] == "firing";
    let got = server.wait("it to fire", |g| g.iter().any(firing));
    let alert = got.iter().find(|g| firing(g)).unwrap().json()["alerts"][0].clone();
    assert_eq!(alert["labels"]["alertname"], "TailwaterIncident");
    assert_eq!(
        (&alert["labels"]["host"], &alert["labels"]["severity"]),
        (&"web-1".into(), &"critical".into())
    );
    assert_eq!(alert["generatorURL"], format!("http://page/{}", id(1)));
    running.say(&at(incident(1, 1)), &[]);
    // Longer than it would live if it were not sent again: four intervals.
    let client = crate::client::Collector::new(&crate::client::options::Api::at(&url)).unwrap();
    let until = Instant::now() + Duration::from_secs(6);
    let mut said = serde_json::Value::Null;
    while Instant::now() < until {
        let all: serde_json::Value = client.get("/api/v2/alerts").await.unwrap();
        assert_eq!(all.as_array().unwrap().len(), 1, "one alert, whatever became known: {all}");
        said = all[0].clone();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(said["status"]["state"], "active");
    assert_eq!(said["annotations"]["root"], "tomcat10.service@app-1 cpu_neighbour");
    assert!(!server.got().iter().any(|g| g.json()["status"] == "resolved"));
    running.say(&at(closed(1, 2)), &[]);
    server.wait("its resolution", |g| g.iter().any(|g| g.json()["status"] == "resolved"));
    assert_eq!(running.stats.hook("alertmanager").failed.get(), 0);
    let all: serde_json::Value = client.get("/api/v2/alerts").await.unwrap();
    assert_eq!(all.as_array().unwrap().len(), 0, "{all}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_on_is_told_once_reminded_of_with_its_newest_numbers_and_told_when_retries_keep_it_alive() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::good();
    let hook = Hook { remind_after_s: 1, ..Hook::webhook(&server.url()) };
    let mut running = Running::start(folder.path(), &[hook]);
    let at = |version: u64| {
        let mut i = incident(1, version);
        i.end_unix_ns += version * 10_000_000_000;
        i.drops[0].count += version;
        i
    };
    (1..=40).for_each(|version| running.say(&at(version), &[]));
    let kind = |g: &receiver_server::Got| g.json()["type"].as_str().unwrap_or_default().to_owned();
    let got = server.wait("a reminder", |g| g.len() > 1);
    assert_eq!(
        (kind(&got[0]), kind(&got[1])),
        ("incident.opened".to_owned(), "incident.reminded".to_owned())
    );
    assert_eq!(got[1].json()["data"]["version"], 40, "with the newest numbers");
    let mut kept = at(41);
    kept.sustained = Some(crate::fixture::sustained());
    running.say(&kept, &[]);
    server.wait("what keeps it alive", |g| g.iter().any(|g| kind(g) == "incident.updated"));
    let mut over = closed(1, 42);
    over.sustained = kept.sustained.clone();
    running.say(&over, &[]);
    server.wait("the end", |g| g.iter().any(|g| kind(g) == "incident.closed"));
    running.stop().await;
    let kinds: Vec<String> = server.got().iter().map(kind).collect();
    assert_eq!(kinds.last().map(String::as_str), Some("incident.closed"), "{kinds:?}");
    let count = |what: &str| kinds.iter().filter(|k| *k == what).count();
    assert_eq!((count("incident.opened"), count("incident.updated"), count("incident.closed")), (1, 1, 1));
}

/// The process that the next test kills: tells incidents as fast as they are written, and says which are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is run and killed by another test"]
async fn child_of_the_kill_test() {
    let of = |name: &str| std::env::var(format!("TAILWATER_TEST_{name}")).unwrap();
    let (folder, first): (String, u32) = (of("FOLDER"), of("FIRST").parse().unwrap());
    let mut running = Running::start(Path::new(&folder), &[Hook::webhook(&of("URL"))]);
    let before = running.stats.outbox_rows.get();
    for n in 0.. {
        running.say(&early(first + n), &[]);
        running.until("it to be written", |s| s.outbox_rows.get() > before + u64::from(n)).await;
        println!("\nwritten {}.0", id(first + n));
    }
}

#[test]
fn twenty_kills_at_random_moments_lose_nothing_that_was_written_and_repeat_only_the_same() {
    use std::io::BufRead;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|n| Answer::Status(if n % 7 == 3 { 503 } else { 204 }));
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut written = Vec::new();
    for round in 0..20 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["alert::tests::child_of_the_kill_test", "--exact", "--ignored", "--nocapture"])
            .env("TAILWATER_TEST_FOLDER", folder.path())
            .env("TAILWATER_TEST_URL", server.url())
            .env("TAILWATER_TEST_FIRST", (round * 10_000).to_string())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let said = |line: &String| line.strip_prefix("written ").map(str::to_owned);
        written.push(lines.by_ref().find_map(|l| said(&l)).expect("it writes"));
        std::thread::sleep(Duration::from_micros(dice.u64(0..60_000)));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        // What it said before it died.
        written.extend(lines.filter_map(|l| said(&l)));
    }
    assert!(written.len() >= 20);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let running = Running::start(folder.path(), &[hook(&server)]);
        running.until("the outbox to be empty", |s| s.hook("webhook").waiting.get() == 0).await;
        running.stop().await;
    });
    let mut bodies: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for got in server.got() {
        let body = bodies.entry(got.id()).or_insert_with(|| got.body.clone());
        assert_eq!(*body, got.body, "a duplicate is the same message");
    }
    let told: BTreeSet<String> = bodies.keys().map(|id| receiver_server::without_run(id)).collect();
    let lost: Vec<_> = written.iter().filter(|id| !told.contains(*id)).collect();
    assert!(lost.is_empty(), "{} of {} lost: {lost:?}", lost.len(), written.len());
}
