//! The keys, and what the columns mean. Pure.

use super::ink::{FAINT, PLAIN, Pen, TITLE};
use crate::tui::keys::KEYS;

const MEANINGS: [&str; 6] = [
    "ACCEPT QUEUE, WORKERS, POOL: the fullest 50 ms of the last 5 s, and the limit.",
    "POOL: calls in flight, of open connections.  /? no limit is known.  - not",
    "measured, which is not zero.  WAITING: mean tasks in the worst 50 ms that waited",
    "for cpu, disk or mem; EVERY 50 ms shows all three, one column per window, full",
    "when as many tasks wait as there are CPUs; a dot is a window that is missing.",
    "Incidents: ! dropped connections, * nearly, - felt.  All times are UTC.",
];

pub(super) fn draw(pen: &mut Pen<'_>) {
    pen.at(1, 0, 20, "Keys", TITLE);
    for (n, keys) in KEYS.iter().enumerate() {
        pen.at(2, 1 + n, 11, keys.names, TITLE);
        pen.at(14, 1 + n, 64, keys.does, PLAIN);
    }
    for (n, text) in MEANINGS.iter().enumerate() {
        let columns = pen.columns();
        pen.at(0, KEYS.len() + 2 + n, columns, text, FAINT);
    }
}
