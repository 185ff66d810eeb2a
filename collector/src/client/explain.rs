//! `tailwater explain`: one incident as text or as a picture.

use super::options::Api;
use super::{ClientError, Collector};
use crate::draw::{explain, plot, prevention};
use crate::live::timeline::Timeline;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::io::Write;
use std::path::Path;
use tailwater_model::{Incident, PreventionView};

#[derive(Deserialize)]
pub(super) struct Incidents {
    pub(super) incidents: Vec<Incident>,
}

/// Asks for the incident whose id begins with `id`, else for the newest, and shows it.
pub async fn explained(api: &Api, id: Option<&str>, plot: Option<&Path>) -> Result<()> {
    let collector = Collector::new(&api.url)?;
    let list: Incidents = collector.get("/api/v1/incidents?limit=10000").await?;
    let incident = match id {
        Some(id) => one_of(&list.incidents, id, "`tailwater incidents` lists those that are kept")?,
        None => list
            .incidents
            .first()
            .context("no incident yet\n  remedy: `tailwater incidents --follow` waits for one")?,
    };
    let id = &incident.id;
    let incident: Incident = collector.get(&format!("/api/v1/incidents/{id}")).await?;
    let timeline = collector.get(&format!("/api/v1/incidents/{id}/timeline")).await?;
    show(&incident, &timeline, plot)?;
    if plot.is_none() {
        match collector.get::<PreventionView>(&format!("/api/v1/incidents/{id}/prevention")).await {
            Ok(view) => show_prevention(&view)?,
            // A collector of before this was asked.
            Err(ClientError::Refused { status: 404, .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
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
