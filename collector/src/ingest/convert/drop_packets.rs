//! From what a listening socket counts of its drops to the packets that the kernel dropped. Owns what of the last windows was counted
//! twice and is still to be left out; knows no wire and no clock.

use std::collections::HashMap;
use tailwater_model::window::{EntityId, HostWindow, ListenerWindow, WindowIndex};

/// A dropped last ACK is seen as it is dropped; the socket's counter is read every 5 ms, and believed at the second look, or after
/// 100 ms where the queue was not full. What the counter does not show within this many windows (500 ms) it will not show: a window between
/// was lost.
const SHOWN_WITHIN: u64 = 10;

/// What the counter of one listener is still to show of last ACKs that were dropped.
#[derive(Debug, Clone, Default)]
struct Due {
    /// The last window with one.
    since: WindowIndex,
    /// Of the packets, the counts that are still to come: `tcp_listendrop`, which is what `ListenDrops` has too.
    packets: u64,
    /// The second counts of the same segments, by `sk_drops_skbadd`; one that answers a SYN cookie has none.
    again: u64,
}

/// The listeners of one host that dropped last ACKs just now: no more than it has listeners.
#[derive(Debug, Clone, Default)]
pub(crate) struct DropPackets {
    due: HashMap<EntityId, Due>,
}

impl DropPackets {
    /// Fills in the packets of a window, whose listeners have what the socket counted. Windows in their order. Over some windows the sum
    /// is exact; of each one as exact as it is known when a packet was counted.
    pub(crate) fn count(&mut self, window: &mut HostWindow) {
        if window.lost_before > 0 {
            self.due.clear();
        }
        let now = window.index;
        self.due.retain(|_, due| now.0.saturating_sub(due.since.0) <= SHOWN_WITHIN);
        for (id, listener) in &mut window.listeners {
            if listener.drops_final_ack > 0 {
                let due = self.due.entry(*id).or_default();
                let cookie = listener.drops_cookie.min(listener.drops_final_ack);
                due.since = now;
                due.packets = due.packets.saturating_add(listener.drops_final_ack);
                due.again = due.again.saturating_add(listener.drops_final_ack - cookie);
            }
            match self.due.get_mut(id) {
                Some(due) => settle(due, listener),
                None => (listener.drops, listener.drops_syn) = (listener.sk_drops, listener.sk_drops),
            }
        }
    }
}

/// Splits a window's count: first counts of last ACKs, then their second ones, and the rest are SYNs.
fn settle(due: &mut Due, listener: &mut ListenerWindow) {
    let packets = due.packets.min(listener.sk_drops);
    let again = due.again.min(listener.sk_drops - packets);
    due.packets -= packets;
    due.again -= again;
    listener.drops = listener.sk_drops - again;
    listener.drops_syn = listener.drops - packets;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Per window: its index, what the socket counted, last ACKs dropped, those of them that answered a cookie; then packets and SYNs.
    fn check(windows: &[(u64, [u64; 3], [u64; 2])]) {
        let mut packets = DropPackets::default();
        for (index, [sk_drops, drops_final_ack, drops_cookie], expect) in windows {
            let listener = ListenerWindow {
                sk_drops: *sk_drops,
                drops_final_ack: *drops_final_ack,
                drops_cookie: *drops_cookie,
                ..Default::default()
            };
            let mut window = HostWindow { index: WindowIndex(*index), ..HostWindow::default() };
            window.listeners.insert(7, listener);
            packets.count(&mut window);
            let got = window.listeners[&7];
            assert_eq!([got.drops, got.drops_syn], *expect, "window {index} of {windows:?}");
        }
    }

    #[test]
    fn a_dropped_last_ack_is_one_packet() {
        check(&[(1, [9, 0, 0], [9, 9])]);
        check(&[(1, [10, 3, 0], [7, 4])]);
        check(&[(1, [10, 4, 3], [9, 5])]);
        check(&[(1, [4, 4, 4], [4, 0]), (2, [2, 0, 0], [2, 2])]);
    }

    #[test]
    fn the_counter_may_show_it_in_the_next_window() {
        check(&[(1, [0, 2, 0], [0, 0]), (2, [7, 0, 0], [5, 3]), (3, [1, 0, 0], [1, 1])]);
        check(&[(1, [1, 1, 0], [1, 0]), (2, [1, 0, 0], [0, 0]), (3, [1, 0, 0], [1, 1])]);
    }

    #[test]
    fn what_is_never_shown_is_not_owed_for_ever() {
        check(&[(1, [0, 3, 0], [0, 0]), (1 + SHOWN_WITHIN, [2, 0, 0], [2, 0])]);
        check(&[(1, [0, 3, 0], [0, 0]), (2 + SHOWN_WITHIN, [2, 0, 0], [2, 2])]);
        let most = u64::MAX;
        check(&[(1, [0, most, most], [0, 0]), (2, [most, most, 0], [most, 0])]);
    }

    #[test]
    fn windows_that_were_lost_owe_nothing() {
        let mut packets = DropPackets::default();
        let mut count = |index, sk_drops, drops_final_ack, lost_before| {
            let listener = ListenerWindow { sk_drops, drops_final_ack, ..Default::default() };
            let mut window = HostWindow { index: WindowIndex(index), lost_before, ..HostWindow::default() };
            window.listeners.insert(7, listener);
            packets.count(&mut window);
            window.listeners[&7].drops
        };
        assert_eq!((count(1, 0, 5, 0), count(4, 5, 0, 2)), (0, 5));
    }
}
