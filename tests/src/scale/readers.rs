//! Who reads meanwhile: open pages, each of which asks for the present once a second and listens to events, as the page does; `tailwater top`;
//! monitoring that scrapes; and programs that ask for an hour of everything, one question after the other. Owns how long the pages' answers
//! took; knows no agent.

use super::clock::SimClock;
use super::counted::Spread;
use anyhow::{Result, bail, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use prost::bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Between two questions of a page.
const EVERY: Duration = Duration::from_secs(1);

/// Between two questions of monitoring.
const SCRAPED_EVERY: Duration = Duration::from_secs(5);
/// What is greedy asks for this much of the past.
const HOUR_NS: u64 = 3_600_000_000_000;
/// And for these of each host.
const ALL: &str = "cpu_busy_ratio,cpu_steal_ratio,run_queue_wait_tasks,blocked_io_tasks,memory_stall_tasks,queued_requests,\
    accept_queue_depth,workers_busy,requests_answered,response_time_ms,calls_in_flight,connections_open,drops";

/// How many of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readers {
    /// Open pages.
    pub pages: u32,
    /// `tailwater top`.
    pub top: u32,
    /// Who asks for `/metrics`.
    pub scrapers: u32,
    /// Programs that ask for everything, without a pause.
    pub greedy: u32,
}

impl std::str::FromStr for Readers {
    type Err = anyhow::Error;

    /// `pages=200,top=20,scrapers=10,greedy=1`; what is left out is 0.
    fn from_str(text: &str) -> Result<Self> {
        let mut of = Self::default();
        for part in text.split(',') {
            let (kind, count) = part.split_once('=').unwrap_or((part, ""));
            let to = match kind.trim() {
                "pages" => &mut of.pages,
                "top" => &mut of.top,
                "scrapers" => &mut of.scrapers,
                "greedy" => &mut of.greedy,
                _ => bail!("readers \"{part}\": give pages=20,top=5,scrapers=2,greedy=1, or some of them"),
            };
            match count.trim().parse() {
                Ok(count @ 0..=1000) => *to = count,
                _ => bail!("readers \"{part}\": give a number up to 1000, as pages=20"),
            }
        }
        Ok(of)
    }
}

impl fmt::Display for Readers {
    /// Pages alone as their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pages)?;
        let more = [(self.top, "top"), (self.scrapers, "scrapers"), (self.greedy, "greedy")];
        more.iter()
            .filter(|(count, _)| *count > 0)
            .try_for_each(|(count, kind)| write!(f, ", {count} {kind}"))
    }
}

impl Readers {
    /// All of them, until they are dropped.
    pub fn begin(
        self,
        collector: SocketAddr,
        clock: SimClock,
        hosts: &[String],
        read: &Arc<Read>,
    ) -> tokio::task::JoinSet<()> {
        let mut all = tokio::task::JoinSet::new();
        (0..self.pages).for_each(|n| _ = all.spawn(page(collector, clock, n, Arc::clone(read))));
        let top = ["/api/v1/topology", "/api/v1/agents", "/api/v1/now?seconds=5"];
        (0..self.top).for_each(|n| _ = all.spawn(asks(collector, clock, n, EVERY, top, Arc::clone(read))));
        let scraped = ["/metrics"];
        (0..self.scrapers)
            .for_each(|n| _ = all.spawn(asks(collector, clock, n, SCRAPED_EVERY, scraped, Arc::clone(read))));
        for _ in 0..self.greedy {
            all.spawn(everything(collector, clock, hosts.to_vec(), Arc::clone(read)));
        }
        all
    }
}

/// Asks all of these again and again.
async fn asks<const N: usize>(
    collector: SocketAddr,
    clock: SimClock,
    number: u32,
    every: Duration,
    paths: [&'static str; N],
    read: Arc<Read>,
) {
    let browser = browser();
    tokio::time::sleep(clock.long(every * (number * 37 % 100) / 100)).await;
    let mut due = tokio::time::interval(clock.long(every));
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        for path in paths {
            if get(&browser, collector, path).await.is_err() {
                read.others_failed.fetch_add(1, Relaxed);
            }
        }
    }
}

/// An hour of everything, host by host.
async fn everything(collector: SocketAddr, clock: SimClock, hosts: Vec<String>, read: Arc<Read>) {
    let browser = browser();
    loop {
        for host in &hosts {
            let start = clock.unix_ns().saturating_sub(HOUR_NS);
            let path = format!("/api/v1/series?host={host}&metric={ALL}&start={start}&max_points=20000");
            match get(&browser, collector, &path).await {
                Ok(()) => _ = read.greedy.fetch_add(1, Relaxed),
                Err(_) => {
                    read.others_failed.fetch_add(1, Relaxed);
                    tokio::time::sleep(clock.long(EVERY / 10)).await;
                }
            }
        }
    }
}

fn browser() -> Browser {
    Client::builder(TokioExecutor::new()).build_http()
}

/// What all readers saw.
#[derive(Debug, Default)]
pub struct Read {
    /// Of `/api/v1/now`.
    pub answers: Spread,
    /// How many there were.
    pub asked: AtomicU64,
    /// Answers that were none.
    pub failed: AtomicU64,
    /// Answers that others than pages did not get.
    pub others_failed: AtomicU64,
    /// Answers to what is greedy.
    pub greedy: AtomicU64,
}

type Browser = Client<HttpConnector, Empty<Bytes>>;

/// A page that is open until it is dropped. Pages ask at different moments of a second.
async fn page(collector: SocketAddr, clock: SimClock, number: u32, read: Arc<Read>) {
    let browser = browser();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_is_said_in_words_and_what_is_none_of_them_is_refused() {
        let of: Readers = "pages=200,top=20,scrapers=10,greedy=1".parse().unwrap();
        assert_eq!(of, Readers { pages: 200, top: 20, scrapers: 10, greedy: 1 });
        assert_eq!(of.to_string(), "200, 20 top, 10 scrapers, 1 greedy");
        assert_eq!("pages=2".parse::<Readers>().unwrap().to_string(), "2");
        for wrong in ["", "pages", "pages=x", "pages=1001", "cats=1"] {
            assert!(wrong.parse::<Readers>().is_err(), "{wrong}");
        }
    }
}
