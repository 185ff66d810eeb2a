//! `tailwater explain --plot`: an incident as the figures 3, 5, 7, 8 and 9 of Wang et al., "A Study of Long-Tail Latency in n-Tier
//! Systems" (ICDCS'17) show theirs: resource per tier, queued requests per tier against MaxSysQDepth, drops and very long requests
//! per 50 ms, on one axis of time. `tailwater advise --plot`: curves of listeners (`curves`). Owns the file formats and the errors;
//! `figure` owns what is shown of an incident, `render` how it looks.
//!
//! The drawing is the library's (plotters). Text needs no font of the system: an SVG names generic families, a PNG is set in DejaVu Sans,
//! which is linked in (its licence, that of Bitstream Vera, allows that: see the `dejavu` crate).

mod curves;
mod figure;
mod render;

use crate::live::timeline::Timeline;
use curves::Curves;
use render::Picture;
use std::path::{Path, PathBuf};
use tailwater_model::Incident;
use tailwater_model::advice::TierAdvice;

/// File formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Scalable, for pages and documents.
    Svg,
    /// Pixels, twice as fine as a screen's.
    Png,
}

impl Format {
    /// By extension.
    pub fn of(path: &Path) -> Result<Self, PlotError> {
        let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(PlotError::Extension { path: path.to_owned() }),
        }
    }
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// Neither SVG nor PNG.
    #[error("{} does not end in .svg or .png: give a name that says the format", path.display())]
    Extension {
        /// As given.
        path: PathBuf,
    },
    /// The windows are gone and were not kept.
    #[error(
        "the windows of incident {id} are no longer in the collector's memory: nothing to draw\n  remedy: draw within series_minutes of an incident, raise series_minutes, or replay a recording with --explain {id} --plot FILE"
    )]
    Expired {
        /// The incident.
        id: String,
    },
    /// Nothing was learnt yet that makes a curve.
    #[error(
        "none of {listeners} listeners has a curve yet: nothing to draw\n  remedy: a curve needs answers at two numbers in flight; `tailwater advise` says what is missing"
    )]
    NoCurve {
        /// How many there are.
        listeners: usize,
    },
    /// The file could not be written.
    #[error("write {}: {source}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The library refused.
    #[error("draw the picture: {why}")]
    Draw {
        /// What it said.
        why: String,
    },
}

/// Draws an incident into a file.
pub fn to_file(incident: &Incident, timeline: &Timeline, path: &Path) -> Result<(), PlotError> {
    write(path, &bytes(incident, timeline, Format::of(path)?)?)
}

/// Draws the curves of these listeners into a file.
pub fn curves_to_file(tiers: &[&TierAdvice], path: &Path) -> Result<(), PlotError> {
    let curves = Curves::of(tiers).ok_or(PlotError::NoCurve { listeners: tiers.len() })?;
    write(path, &encoded(&curves, Format::of(path)?)?)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), PlotError> {
    std::fs::write(path, bytes).map_err(|source| PlotError::Write { path: path.to_owned(), source })
}

/// The picture; the same bytes for the same incident.
pub fn bytes(incident: &Incident, timeline: &Timeline, format: Format) -> Result<Vec<u8>, PlotError> {
    let Some(figure) = figure::figure(incident, timeline) else {
        return Err(PlotError::Expired { id: incident.id.clone() });
    };
    encoded(&figure, format)
}

fn encoded(picture: &impl Picture, format: Format) -> Result<Vec<u8>, PlotError> {
    match format {
        Format::Svg => render::svg(picture).map(String::into_bytes),
        Format::Png => render::png(picture),
    }
    .map_err(|why| PlotError::Draw { why })
}

#[cfg(test)]
mod tests;
