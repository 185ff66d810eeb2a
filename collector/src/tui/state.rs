//! What is known and what is looked at: takes the feed's updates and the keys, and says what to ask next. Pure; time is a parameter.

use super::answers::{Agent, Key, NowAnswer};
use super::signals::{Ask, Signals};
use crate::live::timeline::Timeline;
use std::time::Duration;
use tailwater_model::{Incident, TopologyView};

/// Incidents kept in the list.
pub(crate) const INCIDENTS_MAX: usize = 200;
/// Windows per column on a tier's page that one can choose.
pub(super) const STEPS: [u64; 4] = [1, 4, 20, 60];
/// Lines that a page key moves.
pub(super) const PAGE_LINES: usize = 10;

/// News from the feed.
#[derive(Debug)]
pub(crate) enum Update {
    Now(NowAnswer),
    Agents(Vec<Agent>),
    Topology(TopologyView),
    Incidents(Vec<Incident>),
    Incident(Box<Incident>),
    Signals(Signals),
    Story(Box<Story>),
    /// The collector does not answer, and why.
    Away(String),
    /// It answers, but not this.
    Refused(String),
}

/// One incident with its windows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Story {
    /// The id that was asked for: an early alert's may lead to the incident that replaced it.
    pub(crate) asked: String,
    pub(crate) incident: Incident,
    pub(crate) timeline: Timeline,
}

/// What is on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    Overview,
    Tier(Key),
    Incident(String),
}

/// Which list of the overview has the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    Tiers,
    Incidents,
}

/// Order of the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Fullness,
    Name,
}

/// What the feed shall ask for beside the overview.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Wish {
    #[default]
    Nothing,
    Signals(Ask),
    /// Again while it is open.
    Story {
        id: String,
        version: u64,
        open: bool,
    },
}

/// What a key asks of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    Suspend,
    Redraw,
    Help,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Other,
    Open,
    Back,
    Sort,
    Freeze,
    Wider,
    Closer,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) url: String,
    /// Why the collector does not answer, and since when.
    pub(crate) away: Option<(String, Duration)>,
    pub(crate) now: Option<NowAnswer>,
    pub(crate) agents: Option<Vec<Agent>>,
    pub(crate) topology: Option<TopologyView>,
    /// Newest first.
    pub(crate) incidents: Option<Vec<Incident>>,
    pub(crate) signals: Option<Signals>,
    pub(crate) story: Option<Story>,
    /// Why the page has nothing to show.
    pub(crate) refused: Option<String>,
    pub(crate) page: Page,
    pub(crate) focus: Focus,
    pub(crate) sort: Sort,
    pub(crate) help: bool,
    pub(crate) frozen: bool,
    pub(super) tier: Option<Key>,
    pub(super) incident: Option<String>,
    /// Index into [`STEPS`].
    pub(super) step: usize,
    /// First line of an incident's text.
    pub(crate) scroll: usize,
}

impl State {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            away: None,
            now: None,
            agents: None,
            topology: None,
            incidents: None,
            signals: None,
            story: None,
            refused: None,
            page: Page::Overview,
            focus: Focus::Tiers,
            sort: Sort::Fullness,
            help: false,
            frozen: false,
            tier: None,
            incident: None,
            step: 0,
            scroll: 0,
        }
    }

    pub(crate) fn agent(&self, host: &str) -> Option<&Agent> {
        self.agents.as_ref()?.iter().find(|a| a.host == host)
    }

    pub(crate) fn incidents(&self) -> &[Incident] {
        self.incidents.as_deref().unwrap_or_default()
    }

    /// Where the cursor is in the incidents.
    pub(crate) fn incident_at(&self) -> usize {
        self.incidents().iter().position(|i| Some(&i.id) == self.incident.as_ref()).unwrap_or(0)
    }

    /// Takes news. While frozen, only whether the collector answers.
    pub(crate) fn apply(&mut self, update: Update, now: Duration) {
        match &update {
            Update::Away(why) => {
                let since = self.away.as_ref().map_or(now, |(_, since)| *since);
                self.away = Some((why.clone(), since));
                return;
            }
            _ => self.away = None,
        }
        if self.frozen {
            return;
        }
        match update {
            Update::Now(answer) => {
                self.now = Some(answer);
                if self.page == Page::Overview {
                    self.refused = None;
                }
            }
            Update::Agents(agents) => self.agents = Some(agents),
            Update::Topology(view) => self.topology = Some(view),
            Update::Incidents(mut list) => {
                list.truncate(INCIDENTS_MAX);
                self.incidents = Some(list);
            }
            Update::Incident(incident) => self.incident_came(*incident),
            Update::Signals(signals) => (self.signals, self.refused) = (Some(signals), None),
            Update::Story(story) => (self.story, self.refused) = (Some(*story), None),
            Update::Refused(why) => self.refused = Some(why),
            Update::Away(_) => {}
        }
    }

    fn incident_came(&mut self, incident: Incident) {
        let list = self.incidents.get_or_insert_default();
        if list.iter().any(|i| i.id == incident.id && i.version >= incident.version) {
            return;
        }
        list.retain(|i| i.id != incident.id);
        list.push(incident);
        list.sort_by(|a, b| b.start_unix_ns.cmp(&a.start_unix_ns).then_with(|| b.id.cmp(&a.id)));
        list.truncate(INCIDENTS_MAX);
    }

    /// What the page needs, on a screen with so many columns for a sparkline.
    pub(crate) fn wish(&self, columns: usize) -> Wish {
        match &self.page {
            Page::Overview => Wish::Nothing,
            Page::Tier(key) => {
                Wish::Signals(Ask { tier: key.clone(), columns, step: STEPS[self.step.min(STEPS.len() - 1)] })
            }
            Page::Incident(id) => {
                let known = self.incidents().iter().find(|i| i.id == *id);
                let (version, open) = known
                    .map_or((0, false), |i| (i.version, i.state == tailwater_model::incident::State::Open));
                Wish::Story { id: id.clone(), version, open }
            }
        }
    }
}
