//! The keyboard: what each key does, in one table that the help shows. Knows no state.

use super::state::Action;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// One thing that keys do.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) codes: &'static [KeyCode],
    /// As the help writes them.
    pub(crate) names: &'static str,
    pub(crate) does: &'static str,
    pub(crate) action: Action,
}

const fn keys(codes: &'static [KeyCode], names: &'static str, does: &'static str, action: Action) -> Keys {
    Keys { codes, names, does, action }
}

use KeyCode::{Backspace, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up};

/// All of them, in the help's order.
pub(crate) const KEYS: &[Keys] = &[
    keys(&[Down, Char('j')], "Down j", "next line; on a tier's page, next tier", Action::Down),
    keys(&[Up, Char('k')], "Up k", "previous one", Action::Up),
    keys(&[PageDown, PageUp], "PgDn PgUp", "ten lines on or back", Action::PageDown),
    keys(&[Home, Char('g')], "Home g", "first line", Action::First),
    keys(&[End, Char('G')], "End G", "last line", Action::Last),
    keys(&[Tab], "Tab", "from tiers to incidents and back", Action::Other),
    keys(&[Enter, Right, Char('l')], "Enter", "open the tier or incident", Action::Open),
    keys(&[Esc, Backspace, Left, Char('h')], "Esc", "back to the overview", Action::Back),
    keys(&[Char('+'), Char('=')], "+", "tier: more time per column", Action::Wider),
    keys(&[Char('-')], "-", "tier: less, down to one window", Action::Closer),
    keys(&[Char('s')], "s", "tiers by fullness or by name", Action::Sort),
    keys(&[Char(' ')], "space", "freeze what is shown, and go on", Action::Freeze),
    keys(&[Char('?')], "?", "this help", Action::Help),
    keys(&[Char('q')], "q Ctrl-C", "quit", Action::Quit),
];

/// What a key press means; `None`: nothing.
pub(crate) fn action(key: &KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            Char('c') => Some(Action::Quit),
            Char('z') => Some(Action::Suspend),
            Char('l') => Some(Action::Redraw),
            _ => None,
        };
    }
    if key.code == PageUp {
        return Some(Action::PageUp);
    }
    KEYS.iter().find(|k| k.codes.contains(&key.code)).map(|k| k.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_and_control_is_not_the_letter() {
        let mut all: Vec<KeyCode> = KEYS.iter().flat_map(|k| k.codes).copied().collect();
        let count = all.len();
        all.sort_by_key(|c| format!("{c:?}"));
        all.dedup();
        assert_eq!(all.len(), count);
        let press = |code, modifiers| action(&KeyEvent::new(code, modifiers));
        assert_eq!(press(Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(press(Char('j'), KeyModifiers::CONTROL), None);
        assert_eq!(press(Char('G'), KeyModifiers::SHIFT), Some(Action::Last));
        assert_eq!(press(PageUp, KeyModifiers::NONE), Some(Action::PageUp));
        assert_eq!(press(Char('c'), KeyModifiers::NONE), None);
    }
}
