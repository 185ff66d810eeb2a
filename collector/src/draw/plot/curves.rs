//! `tailwater advise --plot`: a panel for each listener with a curve, in flight against answers per second: what was seen, with its errors;
//! what full CPUs would answer by the costs of a request, as rings, where a size rests on that; the throughput that is advised to be the
//! most; the sizes that cost no more than 2 %; where it runs now and what it is set up for. Owns what is shown and how it looks; learns nothing.

use super::render::{
    AXIS, COLOURS, FAINT, INK, NOTE, PANEL, Pen, Picture, TIME, TITLE, WIDTH, said, wrapped,
};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tailwater_model::advice::{CurvePoint, TierAdvice};

/// Panels of one picture; what is beyond is counted in a note.
const PANELS_MAX: usize = 40;
/// Standard errors of a bar: 95 %.
const ERRORS: f64 = 1.96;

/// Listeners with a curve, and what is said of the others.
#[derive(Debug)]
pub(super) struct Curves<'a> {
    pub(super) shown: Vec<&'a TierAdvice>,
    notes: Vec<String>,
}

impl<'a> Curves<'a> {
    /// `None`: no listener has two numbers in flight with answers.
    pub(super) fn of(tiers: &[&'a TierAdvice]) -> Option<Self> {
        let (mut shown, without): (Vec<&TierAdvice>, Vec<&TierAdvice>) =
            tiers.iter().partition(|of| of.points.len() >= 2);
        let beyond = shown.len().saturating_sub(PANELS_MAX);
        shown.truncate(PANELS_MAX);
        let mut notes = Vec::new();
        if !without.is_empty() {
            let names: Vec<String> = without.iter().map(|of| of.name()).collect();
            notes.push(format!("Without a curve: {}", names.join(", ")));
        }
        if beyond > 0 {
            notes.push(format!("{beyond} more curves are not shown: ask for one host (--host)"));
        }
        (!shown.is_empty()).then_some(Self { shown, notes })
    }
}

impl Picture for Curves<'_> {
    fn size(&self) -> (u32, u32) {
        let panels = u32::try_from(self.shown.len()).unwrap_or(1);
        let notes = u32::try_from(self.notes.len()).unwrap_or(0);
        (WIDTH, panels * (TITLE + PANEL + TIME) + notes * NOTE + 8)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, scale: u32) -> Result<(), String> {
        area.fill(&WHITE).map_err(said)?;
        let pen = Pen { scale };
        let mut rest = area.clone();
        for of in &self.shown {
            let (own, below) = rest.split_vertically(scale * (TITLE + PANEL + TIME));
            panel(&own, of, pen)?;
            rest = below;
        }
        let notes: Vec<String> = self.notes.iter().map(|note| wrapped(note, 130, 1).concat()).collect();
        pen.notes(&rest, &notes)
    }
}

/// Numbers in flight, and what full CPUs would answer by what a request costs there, where the size rests on that.
fn by_costs(of: &TierAdvice) -> Vec<(f64, f64)> {
    let cpus = of.cpus.filter(|_| of.model == "utilisation");
    let told = of.costs.iter().filter(|cost| cost.cpu_s > 0.0);
    cpus.map_or_else(Vec::new, |cpus| told.map(|cost| (cost.in_flight, cpus / cost.cpu_s)).collect())
}

fn panel<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, of: &TierAdvice, pen: Pen) -> Result<(), String> {
    pen.title(area, &of.sentence)?;
    let (pool, most) = (of.pool.value(), of.throughput_max.value());
    // The most is of the whole system where visits are known; a curve is of this server's own answers.
    let own = of.visits.unwrap_or(1.0) / f64::from(of.servers.max(1));
    let most = most.map(|range| (range.value * own, range.low * own, range.high * own));
    let high = |p: &CurvePoint| p.throughput + ERRORS * p.error;
    let costs = by_costs(of);
    let tops = of.points.iter().map(high).chain(costs.iter().map(|of| of.1));
    let top = tops.chain(most.map(|most| most.2)).fold(1.0, f64::max) * 1.08;
    let sizes = pool.map(|pool| pool.at_most.unwrap_or(pool.advised)).into_iter().chain(of.limit);
    let seen = of.points.iter().map(|p| p.in_flight).chain(costs.iter().map(|of| of.0));
    let right = sizes.map(f64::from).chain(seen).fold(2.0, f64::max) * 1.25;
    let left = 0.9;
    let mut chart = ChartBuilder::on(area)
        .margin_top((TITLE + 4) * pen.scale)
        .margin_right(24 * pen.scale)
        .margin_left(14 * pen.scale)
        .margin_bottom(4 * pen.scale)
        .x_label_area_size(TIME * pen.scale)
        .y_label_area_size(AXIS * pen.scale)
        .build_cartesian_2d((left..right).log_scale(), 0.0..top)
        .map_err(said)?;
    if let Some(pool) = pool {
        let to = pool.at_most.map_or(pool.seen_to.max(f64::from(pool.advised)), f64::from);
        let from = f64::from(pool.at_least).max(left);
        let band = Rectangle::new([(from, 0.0), (to.min(right), top)], COLOURS[2].mix(0.12).filled());
        chart.draw_series([band]).map_err(said)?;
    }
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(pen.line(INK, 1))
        .x_desc("requests in flight")
        .y_desc("answers/s")
        .y_labels(5)
        .label_style(pen.text(11, false))
        .axis_desc_style(pen.text(12, false))
        .x_label_formatter(&|n: &f64| format!("{n:.0}"))
        .y_label_formatter(&|n: &f64| format!("{n:.0}"))
        .draw()
        .map_err(said)?;
    if let Some((value, low, high)) = most {
        let band = Rectangle::new([(left, low), (right, high)], COLOURS[0].mix(0.15).filled());
        chart.draw_series([band]).map_err(said)?;
        chart
            .draw_series(LineSeries::new([(left, value), (right, value)], pen.line(COLOURS[0], 1)))
            .map_err(said)?;
    }
    let radius = i32::try_from(3 * pen.scale).unwrap_or(3);
    for point in &of.points {
        let ends = [-ERRORS, ERRORS]
            .map(|errors| (point.in_flight, (point.throughput + errors * point.error).max(0.0)));
        chart.draw_series([PathElement::new(ends, pen.line(COLOURS[0], 1))]).map_err(said)?;
        chart
            .draw_series([Circle::new((point.in_flight, point.throughput), radius, COLOURS[0].filled())])
            .map_err(said)?;
    }
    for (at, throughput) in costs {
        let ring = Circle::new((at, throughput), radius, pen.line(COLOURS[2], 1));
        chart.draw_series([ring]).map_err(said)?;
    }
    let marks = [
        (pool.map(|pool| f64::from(pool.advised)), "advised", COLOURS[2], 0.99),
        (of.limit.map(f64::from), "set to", COLOURS[1], 0.90),
        (of.little.as_ref().map(|little| little.in_flight), "mean now", INK, 0.81),
    ];
    for (at, what, colour, height) in marks {
        let Some(at) = at.filter(|at| (left..=right).contains(at)) else { continue };
        let (dash, gap) = (6 * pen.scale, 4 * pen.scale);
        chart
            .draw_series(DashedLineSeries::new([(at, 0.0), (at, top)], dash, gap, pen.line(colour, 1)))
            .map_err(said)?;
        // To the left of the line where it is far to the right.
        let side =
            if at.ln() - left.ln() > 0.8 * (right.ln() - left.ln()) { HPos::Right } else { HPos::Left };
        let style = pen.text(11, false).color(&colour).pos(Pos::new(side, VPos::Top));
        let beside = if matches!(side, HPos::Right) { at / 1.01 } else { at * 1.01 };
        let number = if at.fract() == 0.0 { format!("{at:.0}") } else { format!("{at:.1}") };
        chart
            .draw_series([Text::new(format!("{what} {number}"), (beside, top * height), style)])
            .map_err(said)?;
    }
    Ok(())
}
