//! `tailwater incidents`: a list in a terminal, and what comes after it.

use super::explain::{INCIDENTS_MAX, INCIDENTS_PATH, Incidents};
use super::options::Api;
use super::{ClientError, Collector, Events, live};
use crate::text;
use anyhow::{Context, Result};
use http_body_util::BodyExt;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;
use tailwater_model::Incident;
use tailwater_model::civil::Civil;
use tailwater_model::incident::{State, Which};

#[derive(Deserialize)]
struct Now {
    now_unix_ns: u64,
}

/// Prints the incidents that are wanted, and with `follow` each new version as it comes.
pub async fn incidents(
    api: &Api,
    json: bool,
    follow: bool,
    since: Option<Duration>,
    wanted: Which,
) -> Result<()> {
    let collector = Collector::new(api)?;
    let from = match since {
        None => 0,
        // Before the collector's now: that of a recording is its end.
        Some(since) => {
            let now: Now = collector.get("/api/v1/now?seconds=1").await?;
            now.now_unix_ns.saturating_sub(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        }
    };
    // Subscribe first: what happens between the two requests comes twice rather than never.
    let stream = if follow { Some(collector.open(&live(None)).await?) } else { None };
    let list: Incidents = collector.get(&format!("{INCIDENTS_PATH}&since={from}{}", asked(&wanted))).await?;
    if list.incidents.len() >= INCIDENTS_MAX {
        eprintln!(
            "tailwater: there may be older ones: a collector tells the newest {INCIDENTS_MAX} of those"
        );
    }
    let mut shown = Shown { json, wanted, told: BTreeMap::new() };
    for incident in list.incidents.iter().rev() {
        shown.print(incident)?;
    }
    let Some(mut stream) = stream else { return Ok(()) };
    let lost = |why: String| ClientError::Unreachable { url: api.url.clone(), why };
    let mut events = Events::default();
    loop {
        let mut slow = false;
        while let Some(frame) = stream.frame().await {
            let frame = frame.map_err(|e| lost(e.to_string()))?;
            let Some(bytes) = frame.data_ref() else { continue };
            for (event, data) in events.feed(bytes) {
                match event.as_str() {
                    "incident" => {
                        shown.print(&serde_json::from_str(&data).context("an event of the collector")?)?
                    }
                    "slow" => slow = true,
                    "lagged" => eprintln!("tailwater: this terminal was too slow: {}", said(&data)),
                    _ => {}
                }
            }
        }
        // One that was too slow goes on where it was.
        let Some(cursor) = events.cursor().filter(|_| slow) else {
            return Err(lost("it closed the stream".into()).into());
        };
        stream = collector.open(&live(Some(cursor))).await?;
    }
}

/// The same as parameters of the API, so that the collector looks through all that it keeps.
fn asked(wanted: &Which) -> String {
    let Which { state, sustained, kind, resource, root, service } = wanted;
    let state = state.map(|state| match state {
        State::Open => "open",
        State::Closed => "closed",
    });
    let mut query = String::new();
    for (name, value) in [
        ("state", state.map(str::to_owned)),
        ("sustained", sustained.map(|sustained| sustained.to_string())),
        ("kind", kind.map(|kind| kind.name().to_owned())),
        ("resource", resource.map(|resource| resource.name().to_owned())),
        ("root", root.as_deref().map(text::encoded)),
        ("service", service.as_deref().map(text::encoded)),
    ] {
        if let Some(value) = value {
            let _ = write!(query, "&{name}={value}");
        }
    }
    query
}

/// An event's own words, or all of it.
fn said(data: &str) -> String {
    let text = serde_json::from_str::<serde_json::Value>(data).ok();
    text.and_then(|data| Some(data.get("text")?.as_str()?.to_owned())).unwrap_or_else(|| data.to_owned())
}

/// What was printed of each incident, so that text shows changes of meaning and not of counts.
struct Shown {
    json: bool,
    wanted: Which,
    told: BTreeMap<String, (u64, String)>,
}

impl Shown {
    fn print(&mut self, i: &Incident) -> Result<()> {
        if !self.wanted.fits(i) {
            return Ok(());
        }
        let meaning = format!("{:?} {:?} {:?} {}", i.state, i.kind, i.root.resource, i.root.host);
        let before = self.told.insert(i.id.clone(), (i.version, meaning.clone()));
        let repeated =
            before.is_some_and(|(version, told)| version >= i.version || (!self.json && told == meaning));
        if repeated {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", text::json_line(i)?)?;
        } else {
            let severity = format!("{:?}", i.severity).to_lowercase();
            let state = format!("{:?}", i.state).to_lowercase();
            let at = Civil::of(i.start_unix_ns);
            let kind = i.kind.name();
            writeln!(out, "{} {} {severity:<8} {state:<6} {kind} {}", at.date(), at.time_ms(), i.id)?;
            writeln!(out, "    {}", text::line(&i.title))?;
        }
        out.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_model::incident::{Kind, Resource};

    #[test]
    fn the_collector_is_asked_for_what_is_wanted_and_for_nothing_else() {
        assert_eq!(asked(&Which::default()), "");
        let all = Which {
            state: Some(State::Open),
            sustained: Some(false),
            kind: Some(Kind::UpstreamCtqo),
            resource: Some(Resource::CpuNeighbour),
            root: Some("a b&state=closed".into()),
            service: Some("db-1".into()),
        };
        let wanted = "&state=open&sustained=false&kind=upstream_ctqo&resource=cpu_neighbour&root=a%20b%26state%3Dclosed&service=db-1";
        assert_eq!(asked(&all), wanted);
    }
}
