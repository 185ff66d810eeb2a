//! How a figure looks: sizes, colours, fonts; drawn by plotters to SVG or to pixels. Knows no incident.

use super::figure::{Figure, Panel, Row, Style};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Display;

/// Size at scale 1, and heights of its parts.
pub(super) const WIDTH: u32 = 1000;
pub(super) const TITLE: u32 = 62;
pub(super) const PANEL: u32 = 210;
/// The last panel also bears the axis of time.
pub(super) const TIME: u32 = 42;
pub(super) const NOTE: u32 = 18;
/// Characters of a title's line.
const COLUMNS: usize = 118;
/// Of a panel's width, for the legend.
const LEGEND: u32 = 220;
pub(super) const AXIS: u32 = 66;
/// Pixels per unit in a PNG.
const FINE: u32 = 2;
/// Okabe and Ito's palette: told apart by people of every colour vision, and by their lightness in print.
pub(super) const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
const BAND: RGBColor = RGBColor(120, 120, 120);
pub(super) const INK: RGBColor = RGBColor(30, 30, 30);
pub(super) const FAINT: RGBColor = RGBColor(225, 225, 225);

type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

pub(super) fn said(e: impl Display) -> String {
    e.to_string()
}

fn size(figure: &Figure) -> (u32, u32) {
    let panels = u32::try_from(figure.panels.len()).unwrap_or(1).max(1);
    let notes = u32::try_from(figure.notes.len()).unwrap_or(0);
    (WIDTH, TITLE + panels * PANEL + TIME + notes * NOTE + 8)
}

/// Something to be drawn.
pub(super) trait Picture {
    /// Width and height at scale 1.
    fn size(&self) -> (u32, u32);
    /// Draws it, so many pixels to a unit.
    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, scale: u32) -> Result<(), String>;
}

impl Picture for Figure {
    fn size(&self) -> (u32, u32) {
        size(self)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, scale: u32) -> Result<(), String> {
        draw(area, self, scale)
    }
}

/// As SVG.
pub(super) fn svg(picture: &impl Picture) -> Result<String, String> {
    fonts()?;
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, picture.size()).into_drawing_area();
        picture.draw(&area, 1)?;
        area.present().map_err(said)?;
    }
    Ok(out)
}

/// As PNG.
pub(super) fn png(picture: &impl Picture) -> Result<Vec<u8>, String> {
    fonts()?;
    let (width, height) = picture.size();
    let (width, height) = (width * FINE, height * FINE);
    let mut pixels = vec![255; 3 * width as usize * height as usize];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        picture.draw(&area, FINE)?;
        area.present().map_err(said)?;
    }
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(said)?;
    writer.write_image_data(&pixels).map_err(said)?;
    writer.finish().map_err(said)?;
    Ok(out)
}

/// Also an SVG's text must be measured.
fn fonts() -> Result<(), String> {
    let known = plotters::style::register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .and_then(|()| plotters::style::register_font("sans-serif", FontStyle::Bold, dejavu::sans::bold()));
    known.map_err(|_| "the font that is linked in cannot be read".to_owned())
}

fn draw<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: &Figure,
    scale: u32,
) -> Result<(), String> {
    area.fill(&WHITE).map_err(said)?;
    let pen = Pen { scale };
    let (head, mut rest) = area.split_vertically(scale * TITLE);
    pen.title(&head, &figure.title)?;
    for (n, panel) in figure.panels.iter().enumerate() {
        let last = n + 1 == figure.panels.len();
        let (own, below) = rest.split_vertically(scale * if last { PANEL + TIME } else { PANEL });
        let letter = char::from(b'a' + u8::try_from(n).unwrap_or(25).min(25));
        draw_panel(&own, figure, panel, pen, letter, last)?;
        rest = below;
    }
    pen.notes(&rest, &figure.notes)
}

/// Units to pixels.
#[derive(Clone, Copy)]
pub(super) struct Pen {
    pub(super) scale: u32,
}

impl Pen {
    pub(super) fn at(self, x: i32, y: i32) -> (i32, i32) {
        let scale = i32::try_from(self.scale).unwrap_or(1);
        (x * scale, y * scale)
    }

    pub(super) fn text(self, size: u32, bold: bool) -> TextStyle<'static> {
        let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
        FontDesc::new(FontFamily::SansSerif, f64::from(size * self.scale), style).color(&INK)
    }

    pub(super) fn line(self, colour: RGBColor, width: u32) -> ShapeStyle {
        colour.stroke_width(self.scale * width)
    }

    /// What stands above a panel, in three lines at most, the first in bold.
    pub(super) fn title<DB: DrawingBackend>(
        self,
        area: &DrawingArea<DB, Shift>,
        title: &str,
    ) -> Result<(), String> {
        for (n, line) in wrapped(title, COLUMNS, 3).into_iter().enumerate() {
            let text = Text::new(line, self.at(12, 8 + 17 * n as i32), self.text(13, n == 0));
            area.draw(&text).map_err(said)?;
        }
        Ok(())
    }

    /// What stands below the panels, a line each.
    pub(super) fn notes<DB: DrawingBackend>(
        self,
        area: &DrawingArea<DB, Shift>,
        notes: &[String],
    ) -> Result<(), String> {
        for (n, note) in notes.iter().enumerate() {
            let text = Text::new(note.clone(), self.at(12, NOTE as i32 * n as i32), self.text(11, false));
            area.draw(&text).map_err(said)?;
        }
        Ok(())
    }
}

fn draw_panel<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: &Figure,
    panel: &Panel,
    pen: Pen,
    letter: char,
    last: bool,
) -> Result<(), String> {
    let end = figure.first + figure.window * figure.windows as f64;
    let (left, legend) = area.split_horizontally(pen.scale * (WIDTH - LEGEND));
    left.draw(&Text::new(format!("({letter}) {}", panel.title), pen.at(12, 4), pen.text(13, true)))
        .map_err(said)?;
    let mut chart = ChartBuilder::on(&left)
        .margin_top(26 * pen.scale)
        .margin_right(8 * pen.scale)
        .margin_left(14 * pen.scale)
        .margin_bottom(4 * pen.scale)
        .x_label_area_size(if last { TIME * pen.scale } else { 8 * pen.scale })
        .y_label_area_size(AXIS * pen.scale)
        .build_cartesian_2d(figure.first..end, 0.0..panel.top)
        .map_err(said)?;
    if let Some((from, to, name)) = &figure.band {
        let (from, to) = (from.max(figure.first), to.min(end));
        let shade = Rectangle::new([(from, 0.0), (to, panel.top)], BAND.mix(0.16).filled());
        chart.draw_series([shade]).map_err(said)?;
        if letter == 'a' {
            let style = pen.text(10, false).pos(Pos::new(HPos::Left, VPos::Top));
            let at = (from + 0.004 * (end - figure.first), panel.top * 0.985);
            chart.draw_series([Text::new(name.clone(), at, style)]).map_err(said)?;
        }
    }
    let whole = panel.top > 12.0;
    let number = move |v: &f64| if whole || v.fract() == 0.0 { format!("{v:.0}") } else { format!("{v:.1}") };
    let seconds = |v: &f64| format!("{v:.1}");
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(pen.line(INK, 1))
        .y_desc(panel.unit.clone())
        .y_labels(5)
        .x_labels(12)
        .label_style(pen.text(11, false))
        .axis_desc_style(pen.text(12, false))
        .set_all_tick_mark_size(3 * pen.scale)
        .y_label_formatter(&number);
    let none = |_: &f64| String::new();
    if last {
        mesh.x_desc(figure.time.clone()).x_label_formatter(&seconds);
    } else {
        mesh.x_label_formatter(&none);
    }
    mesh.draw().map_err(said)?;
    let bars: Vec<usize> =
        panel.rows.iter().enumerate().filter(|(_, r)| r.style == Style::Bars).map(|(n, _)| n).collect();
    for (n, row) in panel.rows.iter().enumerate() {
        let beside = (bars.iter().position(|b| *b == n).unwrap_or(0), bars.len());
        draw_row(&mut chart, figure, row, pen, beside)?;
    }
    draw_legend(&legend, panel, pen)
}

fn draw_row<DB: DrawingBackend>(
    chart: &mut Chart<'_, DB>,
    figure: &Figure,
    row: &Row,
    pen: Pen,
    (place, places): (usize, usize),
) -> Result<(), String> {
    let colour = colour(row);
    let start = |n: usize| figure.first + figure.window * n as f64;
    let end = start(figure.windows);
    if let Some(limit) = row.limit {
        let (dash, gap) = (6 * pen.scale, 4 * pen.scale);
        let line =
            DashedLineSeries::new([(figure.first, limit), (end, limit)], dash, gap, pen.line(colour, 1));
        chart.draw_series(line).map_err(said)?;
    }
    if row.style == Style::Bars {
        let width = figure.window / places.max(1) as f64;
        let bar = |(n, v): (usize, &Option<f64>)| {
            let (from, value) = (start(n) + width * place as f64, (*v)?);
            let inset = 0.08 * width;
            let corners = [(from + inset, 0.0), (from + width - inset, value)];
            (value > 0.0).then(|| Rectangle::new(corners, colour.mix(0.75).filled()))
        };
        chart.draw_series(row.values.iter().enumerate().filter_map(bar)).map_err(said)?;
        return Ok(());
    }
    for run in runs(&row.values) {
        let points: Vec<(f64, f64)> =
            run.iter().map(|(n, v)| (start(*n) + figure.window / 2.0, *v)).collect();
        if points.len() > 1 {
            chart.draw_series(LineSeries::new(points.clone(), pen.line(colour, 2))).map_err(said)?;
        }
        // A window between two missing ones is a point; a marked row has one at each that is not zero.
        let alone = points.len() == 1;
        let marked = points.iter().filter(|(_, v)| alone || (row.style == Style::Marks && *v > 0.0));
        let radius = i32::try_from(3 * pen.scale).unwrap_or(3);
        chart.draw_series(marked.map(|at| Circle::new(*at, radius, colour.filled()))).map_err(said)?;
    }
    Ok(())
}

fn colour(row: &Row) -> RGBColor {
    if row.style == Style::Marks { INK } else { COLOURS[row.tier % COLOURS.len()] }
}

/// Windows in a row that are there.
pub(crate) fn runs(values: &[Option<f64>]) -> Vec<Vec<(usize, f64)>> {
    let mut runs: Vec<Vec<(usize, f64)>> = Vec::new();
    for (n, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|(before, _)| before + 1 == n) => run.push((n, *value)),
            _ => runs.push(vec![(n, *value)]),
        }
    }
    runs
}

fn draw_legend<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    panel: &Panel,
    pen: Pen,
) -> Result<(), String> {
    let mut y = 34;
    for row in &panel.rows {
        let colour = colour(row);
        let swatch: [(i32, i32); 2] = [pen.at(6, y + 7), pen.at(28, y + 7)];
        match row.style {
            Style::Bars => {
                area.draw(&Rectangle::new([pen.at(10, y + 1), pen.at(24, y + 13)], colour.mix(0.75).filled()))
            }
            _ => area.draw(&PathElement::new(swatch, pen.line(colour, 2))),
        }
        .map_err(said)?;
        if row.style == Style::Marks {
            let radius = i32::try_from(3 * pen.scale).unwrap_or(3);
            area.draw(&Circle::new(pen.at(17, y + 7), radius, colour.filled())).map_err(said)?;
        }
        area.draw(&Text::new(shortened(&row.name, 28), pen.at(34, y), pen.text(11, false))).map_err(said)?;
        y += 16;
        if !row.detail.is_empty() {
            if row.limit.is_some() {
                for x in [6, 14, 22] {
                    let dash = [pen.at(x, y + 7), pen.at(x + 5, y + 7)];
                    area.draw(&PathElement::new(dash, pen.line(colour, 1))).map_err(said)?;
                }
            }
            area.draw(&Text::new(shortened(&row.detail, 28), pen.at(34, y), pen.text(11, false)))
                .map_err(said)?;
            y += 16;
        }
        y += 8;
    }
    Ok(())
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Text in lines of at most `columns` characters; what does not fit into `lines` ends in an ellipsis.
pub(super) fn wrapped(text: &str, columns: usize, lines: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let full = out.len() == lines;
        match out.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(line) if full => {
                line.push_str(" …");
                break;
            }
            _ => out.push(word.to_owned()),
        }
    }
    out
}
