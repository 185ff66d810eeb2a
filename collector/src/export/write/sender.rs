//! One receiver's requests, one at a time and in order, so that samples of a series never overtake each other. Tried again on 5xx, on 429
//! and when there is no answer, with backoff and jitter and what Retry-After asks for; any other answer is final. While one is tried
//! again others wait in the bounded queue.

use crate::export::queue::{Queue, Request};
use crate::export::receiver::Receiver;
use crate::send::http::{Answer, DeliveryError, Http};
use crate::send::limit;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What waits on shutdown has this long.
const LAST_WITHIN: Duration = Duration::from_millis(700);

/// Sends until `stop`, and then what waits.
pub async fn run(name: String, http: Http, queue: Arc<Queue>, stats: Arc<Receiver>, stop: CancellationToken) {
    let mut complained = false;
    let work = async {
        loop {
            let request = queue.next().await;
            deliver(&name, &http, &request, &stats, &mut complained).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
    // What came since, while the receiver takes it.
    let rest = async {
        while let Some(request) = queue.take() {
            deliver(&name, &http, &request, &stats, &mut complained).await;
        }
    };
    if tokio::time::timeout(LAST_WITHIN, rest).await.is_err() {
        tracing::debug!(to = name, "remote write: not all was sent before the end");
    }
}

async fn deliver(name: &str, http: &Http, request: &Request, stats: &Receiver, complained: &mut bool) {
    let mut failures = 0;
    loop {
        let (why, after) = match http.send(&headers(), request.body.clone(), None).await {
            Ok(answer) => match judge(&answer) {
                Outcome::Taken => {
                    stats.samples_sent.add(request.samples);
                    if std::mem::take(complained) {
                        tracing::info!(to = name, "remote write: taken again");
                    }
                    return;
                }
                Outcome::Refused => {
                    stats.samples_refused.add(request.samples);
                    if !std::mem::replace(complained, true) {
                        tracing::warn!(
                            to = name,
                            "remote write: {}; these samples are given up",
                            answer.said()
                        );
                    }
                    return;
                }
                Outcome::Later => (answer.said(), answer.retry_after()),
            },
            Err(DeliveryError::Later { why, after }) => (why, after),
            Err(DeliveryError::Never(why)) => {
                stats.samples_refused.add(request.samples);
                tracing::warn!(to = name, "remote write: {why}; these samples are given up");
                return;
            }
        };
        failures += 1;
        stats.failures.inc();
        if !std::mem::replace(complained, true) {
            tracing::warn!(to = name, "remote write: {why}; it is tried again");
        }
        tokio::time::sleep(limit::pause(failures, after, fastrand::f64())).await;
    }
}

fn headers() -> [(&'static str, String); 3] {
    [
        ("content-type", "application/x-protobuf".to_owned()),
        ("content-encoding", "snappy".to_owned()),
        ("x-prometheus-remote-write-version", "0.1.0".to_owned()),
    ]
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    Later,
    Refused,
}

/// The specification's rules: 5xx must be tried again, 429 may be, other 4xx must not.
fn judge(answer: &Answer) -> Outcome {
    match answer.status {
        200..=299 => Outcome::Taken,
        429 | 500..=599 => Outcome::Later,
        _ => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_5xx_and_429_are_tried_again() {
        let of = |status| judge(&Answer { status, ..Answer::default() });
        for status in 100..600 {
            let right = match status {
                200..=299 => Outcome::Taken,
                429 | 500.. => Outcome::Later,
                _ => Outcome::Refused,
            };
            assert_eq!(of(status), right, "{status}");
        }
    }
}
