//! What all pages draw with: text cut visibly to its place, numbers, bars and sparklines, and what a terminal without colour or
//! without UTF-8 gets instead. Pure.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// Eighths of a column, from below.
const RISING: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Eighths of a column, from the left; the eighth is the whole.
const FILLING: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// A window that is not there, as `tailwater explain` draws it.
pub(super) const MISSING: char = '·';
/// Cut off here.
pub(super) const ELLIPSIS: char = '…';

pub(super) const PLAIN: Style = Style::new();
pub(super) const FAINT: Style = Style::new().fg(Color::DarkGray);
pub(super) const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const WARN: Style = Style::new().fg(Color::Yellow);
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub(super) const CURSOR: Style = Style::new().add_modifier(Modifier::REVERSED);

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) color: bool,
    pub(crate) ascii: bool,
}

impl Look {
    /// By the user's environment: no colour where NO_COLOR is not empty (<https://no-color.org>), ASCII where a locale is set that is
    /// not UTF-8. Without a locale a terminal of today is taken to know UTF-8.
    pub(crate) fn of_environment(ascii: bool) -> Self {
        let set = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        Self { color: set("NO_COLOR").is_none(), ascii: ascii || locale.is_some_and(|l| !is_utf8(&l)) }
    }

    /// Takes away what the terminal cannot show.
    pub(crate) fn finish(self, buffer: &mut Buffer) {
        for cell in &mut buffer.content {
            if !self.color {
                (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
            }
            if self.ascii && !cell.symbol().is_ascii() {
                let plain = cell.symbol().chars().next().map_or(' ', plain);
                cell.set_char(plain);
            }
        }
    }
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

fn plain(c: char) -> char {
    if let Some(n) = RISING.iter().position(|r| *r == c) {
        return ['_', '.', '-', '=', '+', '*', '%', '#'][n];
    }
    match c {
        '▏' | '▎' | '▍' => '-',
        '▌' | '▋' | '▊' | '▉' => '=',
        '░' => '.',
        ELLIPSIS => '~',
        '←' => '<',
        '→' => '>',
        '─' => '-',
        _ => '?',
    }
}

/// Columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// At most so many columns; what is cut off is seen to be.
pub(super) fn fit(text: &str, columns: usize) -> String {
    // Names come from other machines: a control character is shown as one.
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if width(&text) <= columns {
        return text;
    }
    let mut out = String::new();
    let mut used = 1; // the ellipsis
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > columns {
            break;
        }
        out.push(c);
    }
    if columns > 0 {
        out.push(ELLIPSIS);
    }
    out
}

/// Broken at spaces into lines of at most so many columns; all but the first begin with `indent`.
pub(super) fn wrapped(text: &str, columns: usize, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text.to_owned();
    // Each turn must take more than the indent off, or a word longer than the line would never end.
    while width(&rest) > columns {
        let begin = if lines.is_empty() { 0 } else { indent.len() };
        let mut places = rest.match_indices(' ').map(|(at, _)| at);
        let fits = |at: &usize| *at > begin && width(&rest[..*at]) <= columns;
        let Some(at) = places.rfind(fits) else { break };
        let left = format!("{indent}{}", rest[at..].trim_start());
        rest.truncate(at);
        lines.push(std::mem::replace(&mut rest, left));
    }
    lines.push(rest);
    lines
}

/// `name@host`, and the host alone where there is no name. The host keeps up to half of the columns, for it tells servers of one tier apart.
pub(super) fn place(name: &str, host: &str, columns: usize) -> String {
    if name.is_empty() {
        return fit(host, columns);
    }
    let at = format!(
        "@{}",
        fit(host, (columns / 2).saturating_sub(1).max(columns.saturating_sub(width(name) + 1)))
    );
    format!("{}{at}", fit(name, columns.saturating_sub(width(&at))))
}

/// Four columns at most: `7`, `8.5`, `150`, `1.2k`, `34k`, `1.2M`.
pub(super) fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v < 999.5 => (value, ""),
        v if v < 999_500.0 => (value / 1e3, "k"),
        v if v < 999.5e6 => (value / 1e6, "M"),
        v if v < 999.5e9 => (value / 1e9, "G"),
        _ => (value / 1e12, "T"),
    };
    let digits = usize::from(value.abs() < 9.95 && (value * 10.0).round() % 10.0 != 0.0);
    format!("{value:.digits$}{unit}")
}

pub(super) fn percent(ratio: f64) -> String {
    format!("{:.0}%", ratio * 100.0)
}

/// Of its limit: green, from 70 % yellow, at the limit red. The number beside it says the same without colour.
pub(super) fn tone(ratio: Option<f64>) -> Style {
    match ratio {
        Some(ratio) if ratio >= 1.0 => BAD,
        Some(ratio) if ratio >= 0.7 => WARN,
        Some(_) => GOOD,
        None => FAINT,
    }
}

/// A bar, filled from the left. Something is never nothing, and not full is never full.
pub(super) fn bar(ratio: f64, columns: usize) -> String {
    let whole = columns * 8;
    let eighths = ((ratio.clamp(0.0, 1.0) * whole as f64).round() as usize)
        .max(usize::from(ratio > 0.0))
        .min(whole - usize::from(ratio < 1.0 && whole > 0));
    let mut out = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        out.push(FILLING[eighths % 8 - 1]);
    }
    let used = eighths.div_ceil(8);
    out.push_str(&"░".repeat(columns - used));
    out
}

/// One column per value, `full` is as high as it gets. Zero is blank; missing is a dot.
pub(super) fn spark(values: &[Option<f64>], full: f64) -> String {
    let column = |value: &Option<f64>| match value {
        None => MISSING,
        Some(v) if *v <= 0.0 || full <= 0.0 => ' ',
        Some(v) => RISING[((v / full * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    values.iter().map(column).collect()
}

/// Writes into a line, from column to column.
pub(super) struct Pen<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) area: Rect,
}

impl Pen<'_> {
    /// `text` at a column and line of the area, at most so wide, cut visibly. Nothing outside of the area.
    pub(super) fn at(&mut self, column: usize, line: usize, columns: usize, text: &str, style: Style) {
        let room = usize::from(self.area.width).saturating_sub(column).min(columns);
        if room == 0 || line >= usize::from(self.area.height) {
            return;
        }
        let (x, y) = (self.area.x + column as u16, self.area.y + line as u16);
        self.buffer.set_stringn(x, y, fit(text, room), room, style);
    }

    /// The same, to the right end of its place.
    pub(super) fn right(&mut self, column: usize, line: usize, columns: usize, text: &str, style: Style) {
        let text = fit(text, columns);
        let before = columns.saturating_sub(width(&text));
        self.at(column + before, line, columns, &text, style);
    }

    /// A whole line's style.
    pub(super) fn line(&mut self, line: usize, style: Style) {
        if line < usize::from(self.area.height) {
            let area = Rect { y: self.area.y + line as u16, height: 1, ..self.area };
            self.buffer.set_style(area, style);
        }
    }

    pub(super) fn columns(&self) -> usize {
        usize::from(self.area.width)
    }

    pub(super) fn lines(&self) -> usize {
        usize::from(self.area.height)
    }
}

/// First line to show of `count`, so that `cursor` is in the middle where that is possible.
pub(super) fn first(cursor: usize, lines: usize, count: usize) -> usize {
    cursor.saturating_sub(lines / 2).min(count.saturating_sub(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_seen_to_be_cut() {
        assert_eq!(fit("apache2", 7), "apache2");
        assert_eq!(fit("apache2", 6), "apach…");
        assert_eq!((fit("abc", 1).as_str(), fit("abc", 0).as_str()), ("…", ""));
        assert_eq!(fit("東京東京", 5), "東京…", "two columns each");
        assert_eq!(fit("a\x1b[2Jb", 9), "a?[2Jb", "no name reaches the terminal's controls");
        assert_eq!(place("apache2", "web-1", 16), "apache2@web-1");
        assert_eq!(place("checkout-service-v2", "web-1", 16), "checkout-…@web-1");
        assert_eq!(place("db", "a-very-long-host-name", 16), "db@a-very-long-…");
        assert_eq!(place("", "web-1", 16), "web-1");
        assert_eq!(place("checkout-service-v2", "a-very-long-host-name", 16), "checkou…@a-very…");
        for columns in 4..30 {
            assert!(width(&place("checkout-service-v2", "a-very-long-host", columns)) <= columns);
        }
    }

    #[test]
    fn long_lines_are_broken_at_spaces() {
        let broken = wrapped("Root  cpu at app, confidence 0.97", 18, "      ");
        assert_eq!(broken, ["Root  cpu at app,", "      confidence", "      0.97"]);
        assert_eq!(wrapped("short", 18, "  "), ["short"]);
        assert_eq!(wrapped("", 18, "  "), [""]);
        assert_eq!(wrapped("onelongword another", 5, ""), ["onelongword another"], "cut where it is drawn");
    }

    #[test]
    fn numbers_take_four_columns() {
        let all = [0.0, 0.04, 8.5, 9.96, 150.0, 999.4, 999.6, 1234.0, 34_000.0, 999_600.0, 4.2e9];
        let texts = all.map(number);
        assert_eq!(texts, ["0", "0", "8.5", "10", "150", "999", "1k", "1.2k", "34k", "1M", "4.2G"]);
    }

    #[test]
    fn a_bar_is_full_at_the_limit_only() {
        assert_eq!(bar(0.0, 4), "░░░░");
        assert_eq!(bar(0.001, 4), "▏░░░");
        assert_eq!(bar(0.5, 4), "██░░");
        assert_eq!(bar(0.999, 4), "███▉");
        assert_eq!((bar(1.0, 4).as_str(), bar(1.3, 4).as_str()), ("████", "████"));
        assert_eq!(bar(0.5, 0), "");
        assert_eq!(spark(&[Some(0.0), None, Some(0.1), Some(8.0), Some(80.0)], 8.0), " ·▁██");
    }

    #[test]
    fn locales_say_what_they_are() {
        assert!(is_utf8("en_US.UTF-8") && is_utf8("C.utf8") && !is_utf8("C") && !is_utf8("de_DE.ISO-8859-1"));
    }

    #[test]
    fn the_cursor_stays_on_the_screen() {
        for cursor in 0..40 {
            let top = first(cursor, 9, 40);
            assert!((top..top + 9).contains(&cursor) && top + 9 <= 40, "{cursor} {top}");
        }
        assert_eq!(first(2, 9, 3), 0);
    }
}
