//! The page's files, as built from `web/` and committed in `web/dist` (`make page` builds them; `make page-check` proves that they
//! are current). Owns their addresses and what a browser may do with them; knows no data.

use super::App;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::LazyLock;

/// Nothing but this origin's own files and API, nothing inline, in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
/// Addresses at which the page itself is: it reads its own address.
const PAGES: &[&str] =
    &["/", "/incidents/{id}", "/topology", "/sizing", "/silences", "/hosts", "/hosts/{host}"];

struct Asset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const INDEX: Asset = Asset { path: "/", kind: HTML, bytes: include_bytes!("../../web/dist/index.html") };
const ASSETS: &[Asset] = &[
    Asset {
        path: "/page.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../../web/dist/page.js"),
    },
    Asset {
        path: "/page.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("../../web/dist/page.css"),
    },
    Asset { path: "/inter.woff2", kind: "font/woff2", bytes: include_bytes!("../../web/dist/inter.woff2") },
    Asset { path: "/mark.svg", kind: "image/svg+xml", bytes: include_bytes!("../../web/dist/mark.svg") },
    Asset {
        path: "/licenses.txt",
        kind: "text/plain; charset=utf-8",
        bytes: include_bytes!("../../web/dist/licenses.txt"),
    },
];

/// By content, so that a new build is seen at once and an old one is not sent again.
fn tag(bytes: &[u8]) -> HeaderValue {
    let mut text = String::from("\"");
    for byte in &Sha256::digest(bytes)[..12] {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('"');
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"\""))
}

static TAGS: LazyLock<Vec<(&str, HeaderValue)>> =
    LazyLock::new(|| ASSETS.iter().chain([&INDEX]).map(|a| (a.path, tag(a.bytes))).collect());

fn answer(asset: &'static Asset, asked: &HeaderMap) -> Response {
    let tag = TAGS.iter().find(|(path, _)| *path == asset.path).map(|(_, tag)| tag.clone());
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    let known = tag.as_ref().is_some_and(|tag| asked.get(header::IF_NONE_MATCH) == Some(tag));
    if let Some(tag) = tag {
        headers.insert(header::ETAG, tag);
    }
    if known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, asset.bytes).into_response()
}

/// Where the page and its files are.
pub(super) fn addresses() -> impl Iterator<Item = &'static str> {
    PAGES.iter().copied().chain(ASSETS.iter().map(|asset| asset.path))
}

/// The page at each of its addresses, and its files.
pub(super) fn routes() -> axum::Router<App> {
    let mut routes = axum::Router::new();
    for path in PAGES {
        routes = routes.route(path, get(|asked: HeaderMap| async move { answer(&INDEX, &asked) }));
    }
    for asset in ASSETS {
        routes = routes.route(asset.path, get(move |asked: HeaderMap| async move { answer(asset, &asked) }));
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere_and_nothing_inline() {
        let html = std::str::from_utf8(INDEX.bytes).unwrap();
        for banned in ["http://", "https://", "style=", "<style", "onload="] {
            assert!(!html.contains(banned), "{banned} in the page");
        }
        for reference in html.split(['"', '\'']).filter(|part| part.starts_with('/') && part.contains('.')) {
            assert!(ASSETS.iter().any(|a| a.path == reference), "{reference} is not embedded");
        }
        assert!(html.contains("src=\"/page.js\"") && html.contains("href=\"/page.css\""), "{html}");
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = answer(&ASSETS[0], &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut asked = HeaderMap::new();
        asked.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(answer(&ASSETS[0], &asked).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(answer(&ASSETS[1], &asked).status(), StatusCode::OK);
        assert!(!first.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("unsafe"));
    }
}
