//! `tailwater explain`: one incident as text or as a picture.

use super::options::Api;
use super::{ClientError, Collector};
use crate::draw::{earlier, explain, plot, prevention, traces};
use crate::live::timeline::Timeline;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::io::Write;
use std::path::Path;
use tailwater_model::advice::AdviceView;
use tailwater_model::{Incident, PreventionView, TracesView};

/// As many as a collector tells at once.
pub(super) const INCIDENTS_MAX: usize = 10_000;
/// Where it tells them.
pub(super) const INCIDENTS_PATH: &str = "/api/v1/incidents?limit=10000";

#[derive(Deserialize)]
pub(super) struct Incidents {
    pub(super) incidents: Vec<Incident>,
}

/// Asks for the incident whose id begins with `id`, else for the newest, and shows it; with these sizes, what had come of it with them.
pub async fn explained(api: &Api, id: Option<&str>, plot: Option<&Path>, with: &[String]) -> Result<()> {
    let query = query(with)?;
    let collector = Collector::new(api)?;
    let list: Incidents = collector.get(INCIDENTS_PATH).await?;
    let incident = match id {
        Some(id) => one_of(&list.incidents, id, "`tailwater incidents` lists those that are kept")?,
        None => list
            .incidents
            .first()
            .context("no incident yet\n  remedy: `tailwater incidents --follow` waits for one")?,
    };
    let id = &incident.id;
    if !with.is_empty() {
        let path = format!("/api/v1/incidents/{id}/prevention{query}");
        return show_prevention(&collector.get::<PreventionView>(&path).await?);
    }
    let incident: Incident = collector.get(&format!("/api/v1/incidents/{id}")).await?;
    let timeline = collector.get(&format!("/api/v1/incidents/{id}/timeline")).await?;
    show(&incident, &timeline, plot)?;
    if plot.is_none() {
        if let Some(view) = known(collector.get(&format!("/api/v1/incidents/{id}/traces")).await)? {
            show_traces(&view)?;
        }
        let advice: Option<AdviceView> = known(collector.get("/api/v1/advice").await)?;
        let cut = list.incidents.len() >= INCIDENTS_MAX;
        show_earlier(&incident, &list.incidents, cut, advice.as_ref())?;
        if let Some(view) = known(collector.get(&format!("/api/v1/incidents/{id}/prevention")).await)? {
            show_prevention(&view)?;
        }
    }
    Ok(())
}

/// An answer; `None`: the collector is of before this could be asked.
fn known<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Err(ClientError::Refused { status: 404, .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Sizes as the API is asked about them. Host names have no other letters than these; which sizes there are, the collector knows.
fn query(with: &[String]) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@=._-".contains(c);
    if let Some(odd) = with.iter().find(|of| !of.chars().all(is_plain)) {
        anyhow::bail!("--with {odd:?} is no size\n  remedy: write WHAT@HOST=SIZE, such as backlog@web-1=640");
    }
    Ok(if with.is_empty() { String::new() } else { format!("?with={}", with.join(",")) })
}

/// What was seen of it before, below the rest; see [`earlier::text`].
pub fn show_earlier(
    incident: &Incident,
    kept: &[Incident],
    cut: bool,
    advice: Option<&AdviceView>,
) -> Result<()> {
    std::io::stdout().lock().write_all(earlier::text(incident, kept, cut, advice).as_bytes())?;
    Ok(())
}

/// The slowest traces meanwhile, below the rest.
fn show_traces(view: &TracesView) -> Result<()> {
    std::io::stdout().lock().write_all(traces::text(view).as_bytes())?;
    Ok(())
}

/// What would have prevented it, below the rest.
pub fn show_prevention(view: &PreventionView) -> Result<()> {
    std::io::stdout().lock().write_all(prevention::text(view).as_bytes())?;
    Ok(())
}

/// As text, or as a picture.
pub fn show(incident: &Incident, timeline: &Timeline, plot: Option<&Path>) -> Result<()> {
    if let Some(path) = plot {
        plot::to_file(incident, timeline, path)?;
        eprintln!("{} drawn into {}", incident.id, path.display());
        return Ok(());
    }
    std::io::stdout().lock().write_all(explain::text(incident, timeline).as_bytes())?;
    Ok(())
}

/// The incident whose id begins so.
pub fn one_of<'a>(incidents: &'a [Incident], id: &str, remedy: &str) -> Result<&'a Incident> {
    let begin = id.to_uppercase();
    let mut fits = incidents.iter().filter(|i| i.id.starts_with(&begin));
    match (fits.next(), fits.next()) {
        (Some(incident), None) => Ok(incident),
        (None, _) => anyhow::bail!("no incident {id}\n  remedy: {remedy}"),
        (Some(a), Some(b)) => {
            anyhow::bail!("{id} fits several incidents, such as {} and {}: give more of it", a.id, b.id)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_asked_about_as_they_are_written() {
        let asked = |with: &[&str]| query(&with.iter().map(|of| (*of).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            asked(&["backlog@web-1=640", "workers@app=9"]).unwrap(),
            "?with=backlog@web-1=640,workers@app=9"
        );
        assert_eq!(asked(&[]).unwrap(), "");
        assert!(asked(&["pool@a&b=3"]).unwrap_err().to_string().contains("WHAT@HOST=SIZE"));
    }
}
