//! One incident, as `tailwater explain` tells it, with a scroll bar of words. Pure.

use super::ink::{self, BAD, FAINT, PLAIN, Pen, TITLE, WARN};
use crate::draw::explain;
use crate::tui::state::State;
use ratatui::style::Style;

/// Words at the beginning of a line of the text that are its parts.
const PARTS: [&str; 9] =
    ["Root", "Culprit", "Sustained", "Way out", "Chain", "Drops", "Slow", "Or", "Clocks"];

/// What the second line of a part begins with.
const INDENT: &str = "          ";

/// Returns the first line that is shown.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, id: &str) -> usize {
    let screen = pen.columns();
    if let Some(why) = &state.refused {
        pen.at(1, 0, screen - 2, &format!("The collector says: {why}"), WARN);
        return 0;
    }
    let Some(story) = state.story.as_ref().filter(|s| s.asked == id) else {
        if let Some(known) = state.incidents().iter().find(|i| i.id == id) {
            pen.at(0, 0, screen, &super::overview::brief(known), TITLE);
        }
        pen.at(1, 2, screen - 2, "Asking for its windows …", FAINT);
        return 0;
    };
    let text = explain::text(&story.incident, &story.timeline);
    let lines: Vec<String> =
        text.trim_end().lines().flat_map(|line| ink::wrapped(line, screen, INDENT)).collect();
    let body = pen.lines();
    let top = state.scroll.min(lines.len().saturating_sub(body));
    for (n, line) in lines.iter().enumerate().skip(top).take(body) {
        pen.at(0, n - top, screen, line, style(n, line));
        if let Some(part) = PARTS.iter().find(|part| is_part(line, part)) {
            pen.at(0, n - top, part.len(), part, TITLE);
        }
    }
    if lines.len() > body {
        let where_ = format!(" lines {} to {} of {} ", top + 1, (top + body).min(lines.len()), lines.len());
        // Over the last line's end, where the text is short.
        let last = lines.get(top + body - 1).map_or(0, |l| ink::width(l));
        if last + ink::width(&where_) < screen {
            pen.right(last, body - 1, screen - last, &where_, FAINT);
        }
    }
    top
}

fn is_part(line: &str, part: &str) -> bool {
    line.strip_prefix(part).is_some_and(|rest| rest.starts_with(' '))
}

fn style(n: usize, line: &str) -> Style {
    match n {
        0 => FAINT,
        1 => TITLE,
        _ if line.starts_with("  drops ") || is_part(line, "Drops") => BAD,
        _ => PLAIN,
    }
}
