//! An agent that joins before there is anything to run, and again when what it got is refused, against an Enrolment in this process: it waits until it is
//! let in, and reads its token anew at each try.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

mod support;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DnType, IsCa,
    KeyPair,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Io;
use tailwater_agent::config::Join;
use tailwater_agent::enrol::{EnrolError, join_first, keep_good_until};
use tailwater_agent::identity::{Identity, files};
use tailwater_proto::v1::enrolment_server::{Enrolment, EnrolmentServer};
use tailwater_proto::v1::{Enrolled, JoinRequest, RenewRequest};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// The year 2100.
const FAR_UNIX_S: u64 = 4_102_444_800;

type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// Lets nobody in at first, and writes another token then, as a kubelet does.
struct Service {
    issuer: Arc<CertifiedIssuer<'static, KeyPair>>,
    token: PathBuf,
    asked: Asked,
}

#[tonic::async_trait]
impl Enrolment for Service {
    async fn join(&self, asked: Request<JoinRequest>) -> Result<Response<Enrolled>, Status> {
        let JoinRequest { secret, host, request } = asked.into_inner();
        let nth = {
            let mut all = self.asked.lock().unwrap();
            all.push((host.clone(), String::from_utf8(secret).unwrap()));
            all.len()
        };
        if nth == 1 {
            std::fs::write(&self.token, "eyJh.eyJi.bmV3\n").unwrap();
            return Err(Status::unavailable("nobody joins yet"));
        }
        let request = CertificateSigningRequestParams::from_der(&request.as_slice().into()).unwrap();
        let params = CertificateParams::new(vec![host]).unwrap();
        let certificate = params.signed_by(&request.public_key, &self.issuer).unwrap();
        let certificate = certificate.der().to_vec();
        Ok(Response::new(Enrolled { certificate, issued_unix_s: 1_000, expires_unix_s: FAR_UNIX_S }))
    }

    async fn renew(&self, _: Request<RenewRequest>) -> Result<Response<Enrolled>, Status> {
        Err(Status::permission_denied("this certificate is nobody's"))
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Where it listens; until the test's runtime ends.
async fn serve(service: Service) -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = params.signed_by(&key, &service.issuer).unwrap();
    let chain = vec![leaf.der().clone(), service.issuer.der().clone()];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (accepted, incoming) = mpsc::channel::<std::io::Result<Io>>(4);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // Who does not trust this collector is gone.
            let Ok(stream) = tls.accept(socket).await else { continue };
            if accepted.send(Ok(Io::of(stream))).await.is_err() {
                break;
            }
        }
    });
    let serving = tonic::transport::Server::builder()
        .add_service(EnrolmentServer::new(service))
        .serve_with_incoming(ReceiverStream::new(incoming));
    tokio::spawn(serving);
    address
}

/// Fails if the token is read once only, if a refusal ends the agent, if one that has joined asks again at each start, or if it is content with what
/// another collector or another authority gave.
#[tokio::test]
async fn it_tries_until_it_is_let_in_with_the_token_of_that_moment_and_asks_no_more_then() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (issuer, asked) = (Arc::new(authority("ours")), Asked::default());
    std::fs::write(at("token"), "eyJh.eyJi.b2xk\n").unwrap();
    std::fs::write(at("ca.crt"), issuer.pem()).unwrap();
    let service = Service { issuer: issuer.clone(), token: at("token"), asked: asked.clone() };
    let url = format!("https://{}", serve(service).await);
    let join = Join { token_file: at("token"), ca: Some(at("ca.crt")) };
    let identity = at("identity");
    let within = Duration::from_secs(60);
    let joined = tokio::time::timeout(within, join_first(&join, &url, "node-1", &identity)).await;
    joined.expect("it joins within a minute").unwrap();
    let told = |host: &str, token: &str| (host.to_owned(), token.to_owned());
    let both = [told("node-1", "eyJh.eyJi.b2xk"), told("node-1", "eyJh.eyJi.bmV3")];
    assert_eq!(*asked.lock().unwrap(), both);
    let held = Identity::load(&identity).unwrap();
    assert_eq!((held.host.as_str(), held.collector.as_str()), ("node-1", url.as_str()));
    // Started again, and then under another name.
    join_first(&join, &url, "node-1", &identity).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 2);
    join_first(&join, &url, "node-2", &identity).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 3);
    assert_eq!(Identity::load(&identity).unwrap().host, "node-2");
    // It is to speak to another collector of the same authority.
    let second = Service { issuer, token: at("token"), asked: asked.clone() };
    let other = format!("https://{}", serve(second).await);
    join_first(&join, &other, "node-2", &identity).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 4);
    assert_eq!(Identity::load(&identity).unwrap().collector, other);
    // What it holds is of an authority that was replaced.
    std::fs::write(files(&identity).ca, authority("replaced").pem()).unwrap();
    join_first(&join, &other, "node-2", &identity).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 5);
    // A file that is not there says of no other authority.
    std::fs::remove_file(at("ca.crt")).unwrap();
    join_first(&join, &other, "node-2", &identity).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 5);
}

/// Fails if a service account's token is shown to a collector of another authority than the file's.
#[tokio::test]
async fn its_token_goes_to_nobody_else_and_where_nothing_can_be_kept_no_try_helps() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (theirs, asked) = (Arc::new(authority("theirs")), Asked::default());
    std::fs::write(at("token"), "eyJh.eyJi.b2xk\n").unwrap();
    std::fs::write(at("ca.crt"), authority("ours").pem()).unwrap();
    let service = Service { issuer: theirs, token: at("token"), asked: asked.clone() };
    let url = format!("https://{}", serve(service).await);
    let join = Join { token_file: at("token"), ca: Some(at("ca.crt")) };
    let within = Duration::from_secs(4);
    let joined = tokio::time::timeout(within, join_first(&join, &url, "node-1", &at("identity"))).await;
    assert!(joined.is_err(), "it goes on trying");
    assert!(asked.lock().unwrap().is_empty(), "somebody else has got the token");
    let error = join_first(&join, &url, "node-1", &at("token")).await.unwrap_err();
    assert!(matches!(error, EnrolError::Identity(_)), "{error}");
}

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn has(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock().unwrap()).matches(text).count()
    }

    async fn says(&self, text: &str) {
        let said = async {
            while self.has(text) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let within = tokio::time::timeout(Duration::from_secs(10), said).await;
        within.unwrap_or_else(|_| {
            panic!("never {text:?}: {}", String::from_utf8_lossy(&self.0.lock().unwrap()))
        });
    }
}

/// Fails if a certificate that is refused waits for a restart or for two thirds of its life, if it is joined anew without a reason, or if who has nothing to
/// join by is not told what helps, or is told at each refusal.
#[tokio::test]
async fn one_that_runs_joins_anew_where_its_certificate_is_refused_and_says_what_to_do_where_it_cannot() {
    let log = Log::default();
    let writer = log.clone();
    let logged = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logging = tracing::subscriber::set_default(logged);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (issuer, asked) = (Arc::new(authority("ours")), Asked::default());
    std::fs::write(at("token"), "eyJh.eyJi.b2xk\n").unwrap();
    std::fs::write(at("ca.crt"), issuer.pem()).unwrap();
    let service = Service { issuer, token: at("token"), asked: asked.clone() };
    let url = format!("https://{}", serve(service).await);
    let join = Join { token_file: at("token"), ca: Some(at("ca.crt")) };
    let identity = at("identity");
    // This service refuses the first try, whoever asks.
    join_first(&join, &url, "node-1", &identity).await.unwrap();
    let key = || std::fs::read(files(&identity).key).unwrap();
    let (refused, before, tries) = (Notify::new(), key(), || asked.lock().unwrap().len());

    let (end, ended) = oneshot::channel();
    let agent = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(tries(), 2, "nobody said that it is refused");
        refused.notify_one();
        log.says("joined anew, certificate good until").await;
        end.send(()).unwrap();
    };
    let kept = keep_good_until(&identity, Some(&join), &refused, Some(ended));
    let (kept, ()) = tokio::join!(kept, agent);
    kept.unwrap();
    assert_eq!((tries(), log.has("joining anew")), (3, 1));
    assert_ne!(key(), before);
    assert_eq!(Identity::load(&identity).unwrap().host, "node-1");

    let (end, ended) = oneshot::channel();
    let agent = async {
        for _ in 0..50 {
            refused.notify_one();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        log.says("there is no join_token_file").await;
        end.send(()).unwrap();
    };
    let (kept, ()) = tokio::join!(keep_good_until(&identity, None, &refused, Some(ended)), agent);
    kept.unwrap();
    let remedy = format!("`tailwater-agent join {url} --token-file FILE --host node-1`");
    assert_eq!((tries(), log.has(&remedy), log.has("this certificate is nobody's")), (3, 1, 2));
}
