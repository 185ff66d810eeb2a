//! What is known, drawn: the frame around every page. Pure: the same state gives the same screen.

mod help;
mod incident;
mod ink;
mod overview;
mod tier;

use super::state::{Focus, Page, State};
use super::tiers;
pub(crate) use ink::Look;
use ink::{BAD, FAINT, GOOD, Pen, TITLE, WARN};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::time::Duration;
use tailwater_model::civil::Civil;

/// Smallest screen.
pub(crate) const COLUMNS_MIN: u16 = 80;
/// Smallest screen.
pub(crate) const LINES_MIN: u16 = 24;
/// Lines for what must be known before any number.
const NOTICES_MAX: usize = 4;

/// Columns of a tier's sparklines on this screen.
pub(crate) fn signal_columns(area: Rect) -> usize {
    tier::columns(usize::from(area.width))
}

/// The whole screen. Returns the first line of an incident's text that it shows: the state may ask for more than there is.
pub(crate) fn draw(buffer: &mut Buffer, state: &State, look: Look, now: Duration) -> usize {
    let area = buffer.area;
    if area.width < COLUMNS_MIN || area.height < LINES_MIN {
        let text = format!("{COLUMNS_MIN}x{LINES_MIN} needed, this is {}x{}", area.width, area.height);
        Pen { buffer, area }.at(0, 0, usize::from(area.width), &text, BAD);
        look.finish(buffer);
        return state.scroll;
    }
    let mut pen = Pen { buffer, area };
    header(&mut pen, state);
    let room = pen.columns() - 3;
    let notices: Vec<String> = tiers::notices(state, now)
        .iter()
        .flat_map(|text| ink::wrapped(text, room, "").into_iter().enumerate())
        .map(|(n, line)| format!("{} {line}", if n == 0 { '!' } else { ' ' }))
        .collect();
    let shown = notices.len().min(NOTICES_MAX);
    for (n, text) in notices.iter().take(shown).enumerate() {
        pen.at(1, 1 + n, room + 2, text, WARN);
    }
    let last = pen.lines() - 1;
    footer(&mut pen, state, last);
    let body = Rect { y: 1 + shown as u16, height: area.height - 2 - shown as u16, ..area };
    let mut pen = Pen { buffer, area: body };
    let mut scroll = state.scroll;
    match &state.page {
        _ if state.help => help::draw(&mut pen),
        Page::Overview => overview::draw(&mut pen, state),
        Page::Tier(key) => tier::draw(&mut pen, state, key),
        Page::Incident(id) => scroll = incident::draw(&mut pen, state, id),
    }
    look.finish(buffer);
    scroll
}

fn header(pen: &mut Pen<'_>, state: &State) {
    pen.at(1, 0, 9, "tailwater", TITLE);
    let (word, tone) = match (&state.away, &state.now) {
        (Some(_), _) => ("away", BAD),
        (None, None) => ("asking", FAINT),
        (None, Some(_)) if state.frozen => ("frozen", WARN),
        (None, Some(now)) if now.recorded => ("replay", WARN),
        (None, Some(_)) => ("live", GOOD),
    };
    pen.at(12, 0, 6, word, tone);
    let mut facts = Vec::new();
    if let Some(agents) = &state.agents {
        let connected = agents.iter().filter(|a| a.connected).count();
        facts.push(match agents.len() {
            1 if connected == 1 => "1 agent".to_owned(),
            n if n == connected => format!("{n} agents"),
            n => format!("{connected} of {n} agents"),
        });
    }
    let open = state.incidents().iter().filter(|i| i.state == tailwater_model::incident::State::Open).count();
    if state.incidents.is_some() {
        facts.push(format!("{open} open of {} incidents", state.incidents().len()));
    }
    pen.at(20, 0, 40, &facts.join(", "), ink::PLAIN);
    let time = state.now.as_ref().map(|n| {
        let time = Civil::of(n.now_unix_ns).time_ms();
        format!("{} UTC", time.split('.').next().unwrap_or_default())
    });
    let columns = pen.columns();
    pen.right(columns - 15, 0, 14, &time.unwrap_or_default(), ink::PLAIN);
}

fn footer(pen: &mut Pen<'_>, state: &State, line: usize) {
    let keys = match (&state.page, state.help) {
        (_, true) => "any key: back to the view",
        (Page::Overview, _) if state.focus == Focus::Tiers => {
            "Enter: open   Tab: incidents   s: order   space: freeze   ?: keys   q: quit"
        }
        (Page::Overview, _) => "Enter: open   Tab: tiers   space: freeze   ?: keys   q: quit",
        (Page::Tier(_), _) => "Esc: back   Up Down: other tier   + -: time per column   ?: keys   q: quit",
        (Page::Incident(_), _) => "Esc: back   Up Down PgUp PgDn: scroll   ?: keys   q: quit",
    };
    let columns = pen.columns() - 2;
    pen.at(1, line, columns, keys, FAINT);
}
