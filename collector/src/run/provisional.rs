//! Early alerts until the windows have spoken. A drop notice may fall into the window after the drop, or come from another tier of
//! the same chain: then the incident that the windows open has another id, and this finds the alerts that it replaces. Pure.

use std::collections::VecDeque;
use tailwater_model::Incident;
use tailwater_model::incident::State;

/// Alerts that wait; the oldest is settled as unconfirmed when there are more.
const WAITING_MAX: usize = 256;
/// Longer than a frame waits for windows, its cause is looked for, and an agent may be starved.
const CONFIRM_WITHIN_NS: u64 = 5_000_000_000;
/// An alert belongs to an incident at its listener that begins or ends within this: the time without drops after which an incident
/// is over.
const NEAR_NS: u64 = 2_500_000_000;

/// What waits.
#[derive(Debug, Default)]
pub struct Provisionals {
    waiting: VecDeque<Incident>,
    /// Those for which there was no room: settled with the next that are.
    crowded_out: Vec<Incident>,
}

impl Provisionals {
    /// An alert was told.
    pub fn alert(&mut self, alert: &Incident) {
        self.waiting.push_back(alert.clone());
        if self.waiting.len() > WAITING_MAX {
            self.crowded_out.extend(self.waiting.pop_front());
        }
    }

    /// The windows opened or changed `incident`: the ids of alerts, other than its own, that it replaces.
    pub fn replaced_by(&mut self, incident: &Incident) -> Vec<String> {
        let mut replaced = Vec::new();
        self.waiting.retain(|alert| {
            let belongs = alert.id == incident.id || covers(incident, alert);
            if belongs && alert.id != incident.id {
                replaced.push(alert.id.clone());
            }
            !belongs
        });
        replaced
    }

    /// Alerts that no window confirmed until `now_unix_ns`, closed. The kernel counted the drops, so they are kept.
    pub fn unconfirmed(&mut self, now_unix_ns: u64) -> Vec<Incident> {
        let told = |why: &str, mut alert: Incident| {
            alert.version += 1;
            alert.state = State::Closed;
            alert.title = alert.title.replace("the cause is being determined", why);
            alert
        };
        let crowded_out = std::mem::take(&mut self.crowded_out).into_iter();
        let why = format!("more than {WAITING_MAX} early alerts waited for their cause, so it is not known");
        let mut out: Vec<_> = crowded_out.map(|alert| told(&why, alert)).collect();
        let why = "no incident came of it in time, so the cause is not known";
        self.waiting.retain(|alert| {
            let waits = alert.start_unix_ns.saturating_add(CONFIRM_WITHIN_NS) > now_unix_ns;
            if !waits {
                out.push(told(why, alert.clone()));
            }
            waits
        });
        out
    }
}

fn covers(incident: &Incident, alert: &Incident) -> bool {
    let from = incident.start_unix_ns.saturating_sub(NEAR_NS);
    let to = incident.end_unix_ns.saturating_add(NEAR_NS);
    let near = (from..=to).contains(&alert.start_unix_ns);
    let place = alert.drops.iter().any(|d| {
        incident.drops.iter().any(|o| o.host == d.host && o.listener == d.listener)
            || incident
                .hops
                .iter()
                .any(|h| h.host == d.host && (h.listener == d.listener || h.workload == d.workload))
    });
    near && place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::incident;

    #[test]
    fn an_incident_replaces_the_alert_that_fell_into_the_next_window() {
        let mut p = Provisionals::default();
        let mut alert = incident("01B", 0);
        alert.start_unix_ns += 50_000_000;
        p.alert(&alert);
        p.alert(&incident("01A", 0));
        assert_eq!(p.replaced_by(&incident("01A", 1)), ["01B"]);
        assert!(p.replaced_by(&incident("01A", 2)).is_empty());
        assert!(p.unconfirmed(u64::MAX).is_empty());
    }

    #[test]
    fn of_more_than_may_wait_the_oldest_is_settled_at_once_and_says_why() {
        let mut p = Provisionals::default();
        let alert = |n: usize| {
            let mut alert = incident(&format!("{n:04}"), 0);
            alert.title = "dropped; the cause is being determined.".into();
            alert
        };
        (0..WAITING_MAX + 2).for_each(|n| p.alert(&alert(n)));
        let settled = p.unconfirmed(0);
        assert_eq!(settled.iter().map(|i| i.id.as_str()).collect::<Vec<_>>(), ["0000", "0001"]);
        assert!(settled[0].title.contains("more than 256 early alerts waited"), "{}", settled[0].title);
        assert!(p.unconfirmed(0).is_empty());
        assert_eq!(p.unconfirmed(u64::MAX).len(), WAITING_MAX);
    }

    #[test]
    fn another_listener_or_another_time_is_not_replaced_and_is_closed_in_the_end() {
        let mut p = Provisionals::default();
        let mut other = incident("01B", 0);
        other.title = "dropped; the cause is being determined.".into();
        other.drops[0].listener = "10.9.9.9:1".into();
        other.drops[0].workload = "other".into();
        let mut later = incident("01C", 0);
        later.start_unix_ns += 60_000_000_000;
        p.alert(&other);
        p.alert(&later);
        assert!(p.replaced_by(&incident("01A", 1)).is_empty());
        let closed = p.unconfirmed(other.start_unix_ns + CONFIRM_WITHIN_NS);
        assert_eq!(closed.len(), 1);
        assert_eq!((closed[0].id.as_str(), closed[0].version, closed[0].state), ("01B", 1, State::Closed));
        assert!(closed[0].title.contains("not known"), "{}", closed[0].title);
    }
}
