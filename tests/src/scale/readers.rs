//! People who look: open pages, each of which asks for the present once a second and listens to events, as the page does. Owns how long
//! answers took; knows no agent.

use super::clock::SimClock;
use super::counted::Spread;
use anyhow::{Result, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use prost::bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Between two questions of a page.
const EVERY: Duration = Duration::from_secs(1);

/// What all readers saw.
#[derive(Debug, Default)]
pub struct Read {
    /// Of `/api/v1/now`.
    pub answers: Spread,
    /// How many there were.
    pub asked: AtomicU64,
    /// Answers that were none.
    pub failed: AtomicU64,
}

type Browser = Client<HttpConnector, Empty<Bytes>>;

/// A page that is open until it is dropped. Pages ask at different moments of a second.
pub async fn page(collector: SocketAddr, clock: SimClock, number: u32, read: Arc<Read>) {
    let browser: Browser = Client::builder(TokioExecutor::new()).build_http();
    let events = events(&browser, collector);
    let asks = async {
        tokio::time::sleep(clock.long(EVERY * (number * 37 % 100) / 100)).await;
        let mut due = tokio::time::interval(clock.long(EVERY));
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let begun = clock.unix_ns();
            read.asked.fetch_add(1, Relaxed);
            match get(&browser, collector, "/api/v1/now").await {
                Ok(()) => read.answers.add(clock.unix_ns() - begun),
                Err(_) => _ = read.failed.fetch_add(1, Relaxed),
            }
        }
    };
    tokio::join!(events, asks);
}

async fn get(browser: &Browser, collector: SocketAddr, path: &str) -> Result<()> {
    let request = Request::get(format!("http://{collector}{path}")).body(Empty::new())?;
    let answer = browser.request(request).await?;
    ensure!(answer.status().is_success(), "{}", answer.status());
    answer.into_body().collect().await?;
    Ok(())
}

/// Listens until the collector ends it.
async fn events(browser: &Browser, collector: SocketAddr) {
    let listen = async {
        let request = Request::get(format!("http://{collector}/api/v1/live")).body(Empty::new())?;
        let mut body = browser.request(request).await?.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        anyhow::Ok(())
    };
    // However it ended, the page has no events any more.
    let _ = listen.await;
}
