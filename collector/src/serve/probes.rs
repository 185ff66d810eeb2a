//! What load balancers and supervisors ask: `/readyz`, whether agents and people find what they came for, and `/livez`, whether the analysis still works.

use super::gate::Anonymous;
use super::watchdog::HANGS_MS;
use super::{App, Problem, Source, lock};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use std::sync::atomic::Ordering;

/// A disk that refuses, or a limit that bites, is no reason to send agents elsewhere: the collector works, and says so to those who may see more.
pub(super) async fn ready(
    State(app): State<App>,
    nobody: Option<Extension<Anonymous>>,
) -> Result<String, Problem> {
    if app.alive.load(Ordering::Relaxed) && !app.shutdown.is_cancelled() {
        if nobody.is_some() {
            return Ok("ready\n".to_owned());
        }
        let reach = lock(&app.shown.series).reach();
        let details = [
            app.shown.past.health.problem().map(|why| format!("store degraded: {why}")),
            reach.short.then(|| {
                let seconds = reach.span_ns / 1_000_000_000;
                format!("windows in memory reach back {seconds} s, less than a minute: raise series_mib_max")
            }),
            limits_that_bite(&app.metrics.limits.bite(app.clock.unix_ns())),
            app.registry.names(app.clock.unix_ns()).crowded.then(|| {
                let most = crate::ingest::registry::HOSTS_MAX;
                format!("{most} host names are known, the limit: of those that are gone the oldest are forgotten within a day")
            }),
        ];
        let lines = details.into_iter().flatten().map(|line| line + "\n");
        return Ok(std::iter::once("ready\n".to_owned()).chain(lines).collect());
    }
    Err(Problem(StatusCode::SERVICE_UNAVAILABLE, "the analysis is not running".into()))
}

fn limits_that_bite(limits: &[&str]) -> Option<String> {
    let named = limits.join(", ");
    (!limits.is_empty()).then(|| {
        format!("limits reached within ten minutes: {named}; tailwater_limits_reached_total counts what was left out, the log and /api/v1/agents say of whom")
    })
}

/// For those that start again what hangs: no disk and no lock of a reader is on this way.
pub(super) async fn live_still(State(app): State<App>) -> Result<&'static str, Problem> {
    // A recording has been analysed: nothing can hang.
    let Source::Agents(feed) = &app.source else { return Ok("alive\n") };
    let now = app.clock.monotonic();
    let stood_ms = lock(&app.pulse).stood(feed.ticks(), now).as_millis();
    if stood_ms < HANGS_MS {
        return Ok("alive\n");
    }
    let text = format!("the analysis has not worked off a tick for {} s", stood_ms / 1000);
    Err(Problem(StatusCode::SERVICE_UNAVAILABLE, text))
}
