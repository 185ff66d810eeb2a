//! What the keys do to the state: cursors and pages. Knows the rows that are shown, no terminal and no collector.

use super::state::{Action, Focus, PAGE_LINES, Page, STEPS, Sort, State};
use super::tiers;

impl State {
    /// Where the cursor is in `rows`; the first line if what it was on is gone.
    pub(crate) fn tier_at(&self, rows: &[tiers::Row]) -> usize {
        rows.iter().position(|r| Some(&r.key) == self.tier.as_ref()).unwrap_or(0)
    }

    /// Does what a key says, as far as it is about the view.
    pub(crate) fn act(&mut self, action: Action) {
        if self.help {
            self.help = false;
            return;
        }
        match action {
            Action::Quit | Action::Suspend | Action::Redraw => {}
            Action::Help => self.help = true,
            Action::Freeze => self.frozen = !self.frozen,
            Action::Sort => {
                self.sort = if self.sort == Sort::Fullness { Sort::Name } else { Sort::Fullness };
            }
            Action::Wider => self.step = (self.step + 1).min(STEPS.len() - 1),
            Action::Closer => self.step = self.step.saturating_sub(1),
            Action::Other => {
                self.focus = if self.focus == Focus::Tiers { Focus::Incidents } else { Focus::Tiers };
            }
            Action::Back => self.go(Page::Overview),
            Action::Open => self.open(),
            Action::Up => self.walk(-1),
            Action::Down => self.walk(1),
            Action::PageUp => self.walk(-(PAGE_LINES as isize)),
            Action::PageDown => self.walk(PAGE_LINES as isize),
            Action::First => self.walk(isize::MIN),
            Action::Last => self.walk(isize::MAX),
        }
    }

    fn go(&mut self, page: Page) {
        (self.signals, self.story, self.refused, self.scroll) = (None, None, None, 0);
        self.page = page;
    }

    fn open(&mut self) {
        if self.page != Page::Overview {
            return;
        }
        match self.focus {
            Focus::Tiers => {
                let rows = tiers::rows(self);
                if let Some(row) = rows.get(self.tier_at(&rows)) {
                    self.tier = Some(row.key.clone());
                    self.go(Page::Tier(row.key.clone()));
                }
            }
            Focus::Incidents => {
                if let Some(id) = self.incidents().get(self.incident_at()).map(|i| i.id.clone()) {
                    self.incident = Some(id.clone());
                    self.go(Page::Incident(id));
                }
            }
        }
    }

    /// Moves the cursor; on an incident's page, its text; on a tier's page, to the next tier.
    fn walk(&mut self, by: isize) {
        match (&self.page, self.focus) {
            (Page::Incident(_), _) => self.scroll = self.scroll.saturating_add_signed(by),
            (Page::Overview, Focus::Incidents) => {
                let at = moved(self.incident_at(), by, self.incidents().len());
                self.incident = self.incidents().get(at).map(|i| i.id.clone());
            }
            (page, _) => {
                let open = *page != Page::Overview;
                let rows = tiers::rows(self);
                let Some(row) = rows.get(moved(self.tier_at(&rows), by, rows.len())) else { return };
                self.tier = Some(row.key.clone());
                if open && self.page != Page::Tier(row.key.clone()) {
                    self.go(Page::Tier(row.key.clone()));
                }
            }
        }
    }
}

fn moved(at: usize, by: isize, count: usize) -> usize {
    at.saturating_add_signed(by).min(count.saturating_sub(1))
}
