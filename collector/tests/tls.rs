//! Mutual TLS of the agents' port: who gets in, what the log says of those who do not, and files that change.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::certificates::{Authority, Dial, client, client_offering, put};
use common::{Agent, Serve, hello, runtime, wait_for};
use std::net::SocketAddr;
use std::path::Path;
use tailwater_proto::v1::collector_message::Body as Reply;
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsConnector;
use tonic::transport::Endpoint;

fn install(folder: &Path, identity: &Authority, clients: &Authority) {
    let (cert, key) = identity.issue("collector");
    put(folder, "ca.crt", &clients.pem);
    put(folder, "c.key", &key);
    put(folder, "c.crt", &cert);
}

fn serve(folder: &Path) -> Serve {
    serve_with(folder, &[])
}

fn serve_with(folder: &Path, more: &[&str]) -> Serve {
    let file = |name: &str| folder.join(name).display().to_string();
    let (cert, key, ca) = (file("c.crt"), file("c.key"), file("ca.crt"));
    let files = ["--tls-cert", &cert, "--tls-key", &key, "--tls-ca", &ca];
    Serve::start(folder, &[&files[..], more].concat())
}

/// An agent over TLS: welcomed or not.
async fn welcomed(address: SocketAddr, tls: TlsConnector) -> bool {
    let dial = Dial::to(address, tls);
    let Ok(channel) = Endpoint::from_static("http://collector").connect_with_connector(dial).await else {
        return false;
    };
    match Agent::over(channel, hello("web-1", "a")).await {
        Ok(mut agent) => {
            agent.welcome().await;
            true
        }
        Err(_) => false,
    }
}

#[test]
fn only_agents_of_the_authority_get_in_and_refusals_name_the_side() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    install(folder.path(), &ours, &ours);
    let serve = serve(folder.path());
    runtime().block_on(async {
        assert!(welcomed(serve.grpc, client(&ours, Some(ours.issue("agent")))).await);
        // More than are told one by one: they hide nobody who is refused for something else.
        for _ in 0..12 {
            assert!(!welcomed(serve.grpc, client(&ours, None)).await);
        }
        assert!(!welcomed(serve.grpc, client(&ours, Some(theirs.issue("agent")))).await);
        // An end with something unread resets the connection, and the alert may go with it: then the next one is told.
        for _ in 0..200 {
            assert!(!welcomed(serve.grpc, client(&theirs, Some(ours.issue("agent")))).await);
            if serve.log().contains("refused by the agent") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        // Plain HTTP/2 on the TLS port.
        let mut plain = tokio::net::TcpStream::connect(serve.grpc).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut plain, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let _ = plain.read_to_end(&mut Vec::new()).await;
    });
    serve.wait_log("refused by the collector: the agent showed no certificate");
    serve.wait_log("refused by the collector: the agent's certificate is not accepted: UnknownIssuer");
    serve.wait_log("refused by the agent: it does not accept this collector's certificate");
    serve.wait_log("what came is not TLS");
}

#[test]
fn a_certificate_speaks_for_the_hosts_that_it_names_if_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    install(folder.path(), &ours, &ours);
    let serve = serve_with(folder.path(), &["--set", "tls.host_identity=\"certificate\""]);
    let rt = runtime();
    let says = |name: &str, host: &str| {
        rt.block_on(async {
            let dial = Dial::to(serve.grpc, client(&ours, Some(ours.issue(name))));
            let channel =
                Endpoint::from_static("http://collector").connect_with_connector(dial).await.unwrap();
            let mut agent = Agent::over(channel, hello(host, "a")).await.unwrap();
            match agent.hear().await {
                Reply::Welcome(_) => "welcome".to_owned(),
                Reply::Refusal(refusal) => refusal.reason,
                other => panic!("{other:?}"),
            }
        })
    };
    assert_eq!(says("web-1", "web-1"), "welcome");
    assert_eq!(says("*.web.example.org", "a.web.example.org"), "welcome");
    let refused = says("web-2", "web-1");
    assert!(
        refused.contains("does not speak for host \"web-1\"") && refused.contains("host_identity"),
        "{refused}"
    );
    assert!(says("web-1", "no name/of DNS").contains("no DNS name"));
    // Who was there before stays.
    let hosts = serve.json("/api/v1/agents");
    assert!(hosts.to_string().contains("web-1") && !hosts.to_string().contains("web-2"), "{hosts}");
}

#[test]
fn files_that_change_are_in_use_at_the_next_connection_and_damaged_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    install(folder.path(), &old, &old);
    let serve = serve(folder.path());
    let rt = runtime();
    assert!(rt.block_on(welcomed(serve.grpc, client(&old, Some(old.issue("agent"))))));
    assert!(!rt.block_on(welcomed(serve.grpc, client(&new, Some(new.issue("agent"))))));
    install(folder.path(), &new, &new);
    wait_for("the new files", || {
        rt.block_on(welcomed(serve.grpc, client(&new, Some(new.issue("agent"))))).then_some(())
    });
    assert!(!rt.block_on(welcomed(serve.grpc, client(&old, Some(old.issue("agent"))))));
    put(folder.path(), "c.crt", "not a certificate");
    assert!(
        rt.block_on(welcomed(serve.grpc, client(&new, Some(new.issue("agent"))))),
        "the last good ones stay"
    );
    serve.wait_log("cannot be used, the old ones stay");
}

#[test]
fn strangers_without_a_certificate_take_no_agents_place_and_those_of_one_address_not_all_of_theirs() {
    let folder = tempfile::tempdir().unwrap();
    // As many as agents and spare connections together would be 65: the strangers are held to 32 of them, and to 8 from one address.
    let serve =
        Serve::start(folder.path(), &["--set", "authority.names=[\"collector\"]", "--set", "agents_max=1"]);
    let ca = std::fs::read_to_string(folder.path().join("data/authority/ca.crt")).unwrap();
    let tls = client_offering(&ca, None, &[b"h2"]);
    // What an admitted connection hears first is HTTP/2's greeting; who is not admitted hears an end.
    let open = async |last: u8| {
        let dial = Dial { address: serve.grpc, tls: tls.clone(), from: [127, 0, 0, last] };
        let mut stream = dial.open().await.unwrap();
        let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, hello).await;
        let heard = stream.read(&mut [0; 64]).await.unwrap_or(0);
        (heard > 0).then_some(stream)
    };
    runtime().block_on(async {
        let mut held = Vec::new();
        for n in 0..32 {
            let let_in = open(10 + n / 8).await;
            held.push(let_in.unwrap_or_else(|| panic!("connection {n} is let in\n{}", serve.log())));
            if n == 7 {
                assert!(open(10).await.is_none());
                serve.wait_log("8 without a certificate are open from there");
            }
        }
        assert!(open(20).await.is_none());
        serve.wait_log("32 without a certificate are open");
        held.clear();
        for _ in 0..200 {
            if open(10).await.is_some() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("their places are free again\n{}", serve.log());
    });
}
