//! What somebody asks over HTTP: method, target, headers and body, of all routes, with incidents to ask about; and the spans that exporters send.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use tailwater::clock::Clock;
use tailwater::run::replay;
use tailwater::traces::config::Traces as Settings;
use tailwater::traces::{self, Traces};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// An answer that takes longer hangs.
const WITHIN: Duration = Duration::from_secs(20);

static SERVER: LazyLock<(Runtime, Router)> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/nx0-app-cpu.trace.zst");
    let options = replay::Options { file, config: Default::default(), reanalyse: false };
    let routes = replay::routes(&options, CancellationToken::new()).expect("the recording is whole");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a thread of its own");
    (runtime, routes)
});

/// The first line is method and target, each further one a header up to an empty one; what follows is the body.
pub(crate) fn request(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let mut rest = lines.next().unwrap_or_default();
    let Some(space) = first.iter().position(|byte| *byte == b' ') else { return };
    let mut request = Request::builder().method(&first[..space]).uri(&first[space + 1..]);
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { break };
        request = request.header(&line[..colon], line[colon + 1..].trim_ascii());
    }
    let Ok(request) = request.body(Body::from(rest.to_vec())) else { return };
    // These answer for as long as somebody listens.
    if request.uri().path().starts_with("/api/v1/live") {
        return;
    }
    let (runtime, routes) = &*SERVER;
    runtime.block_on(async {
        let answered = tokio::time::timeout(WITHIN, async {
            let Ok(answer) = routes.clone().oneshot(request).await;
            http_body_util::BodyExt::collect(answer.into_body()).await
        });
        assert!(answered.await.is_ok(), "an answer within {WITHIN:?}");
    });
}

/// When the spans of the seed ended, Unix ns.
pub const SPANS_UNIX_NS: u64 = 1_794_000_000_000_000_000;

/// The first byte says whether the rest, an `ExportTraceServiceRequest`, is packed. Each message finds nothing of the one before.
pub(crate) fn spans(bytes: &[u8]) {
    let Some((packed, body)) = bytes.split_first() else { return };
    let mut request = Request::post("/v1/traces").header("content-type", "application/x-protobuf");
    if packed % 2 == 1 {
        request = request.header("content-encoding", "gzip");
    }
    let Ok(request) = request.body(Body::from(body.to_vec())) else { return };
    let settings = Settings { slower_than_ms: 200, link: None };
    let routes = traces::routes(Traces::new(Some(settings), Clock::standing(SPANS_UNIX_NS)));
    SERVER.0.block_on(async {
        let answered = tokio::time::timeout(WITHIN, routes.oneshot(request)).await;
        let Ok(Ok(answer)) = answered else { panic!("no answer within {WITHIN:?}") };
        let status = answer.status().as_u16();
        assert!([200, 400, 413].contains(&status), "{status}");
    });
}
