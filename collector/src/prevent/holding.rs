//! The accept queue that would have held whatever came while it was full: counted from the windows, where the model gives no answer. Owns that
//! count; knows no chain, no service times, and so not how long anybody would have waited.

use super::attempts::first_of_each;
use super::modelled::Span;
use super::seen::{Row, Server, rows};
use crate::live::series::Series;
use std::ops::Range;
use tailwater_model::Incident;
use tailwater_model::incident::{DropReason, Drops};
use tailwater_model::place::place;
use tailwater_model::prevention::HoldingQueue;
use tailwater_model::window::WindowIndex;
use tailwater_sizing::evidence::Refusal;
use tailwater_sizing::prevent::{MARGIN, Retries, SIZE_MAX};

/// Sizes are told in steps of this.
const STEP: u64 = 10;

/// Whether the queue can be counted though there is no answer: where nothing says that what was dropped would have been served from a queue,
/// or the incident goes on, it cannot.
pub(super) fn is_asked(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::NothingDropped | Refusal::NotOver | Refusal::Tainted { .. })
}

/// Of the listener that dropped most. `None`: its windows are not all there, or no accept queue was full.
pub(super) fn holding(
    incident: &Incident,
    read: impl Fn(&str, WindowIndex, WindowIndex) -> Vec<Series>,
) -> Option<HoldingQueue> {
    let span = Span::of(incident).ok()?;
    let full = |d: &&Drops| d.count > 0 && d.reason == DropReason::AcceptQueueFull;
    let most = incident.drops.iter().filter(full).max_by_key(|d| d.count)?;
    let server =
        Server { host: most.host.clone(), workload: most.workload.clone(), listener: most.listener.clone() };
    let parts = read(&server.host, span.first, span.last);
    let rows = rows(&parts, &server, &[], span.first, span.last);
    // All windows of the incident have to be there, and those around it are of others.
    let own = span.replayed(&rows).ok()?;
    let waiting =
        |times: f64| Retries::ALL.map(|retries| waiting_most(&rows, &own, retries, times)).into_iter().max();
    let (held, with_margin) = (waiting(1.0)?, waiting(MARGIN)?);
    let backlog = rows.iter().flatten().map(|row| row.listen.limit).max()?;
    let enough = u32::try_from(with_margin.next_multiple_of(STEP)).ok();
    let enough = enough.filter(|size| (backlog..=SIZE_MAX).contains(size))?;
    let name = place(&server.workload, &server.host);
    let spare = (MARGIN - 1.0) * 100.0;
    let sentence = format!(
        "accept queue of {name} {backlog} → {enough}: would have held all {held} that had to wait at the same time, with {spare:.0} % to spare; \
         how long they would have waited in it, and what would have come of the tiers behind it, is not known"
    );
    Some(HoldingQueue {
        tier: name.to_string(),
        host: server.host,
        workload: server.workload,
        listener: server.listener,
        backlog,
        held,
        enough,
        sentence,
    })
}

/// Most connections that would have waited in the windows of `own` in a queue without a limit, if so many times the first attempts had come. The
/// server accepts as many as it did, and all that wait where it left none; whoever is in the queue does not come again.
fn waiting_most(rows: &[Option<Row>], own: &Range<usize>, retries: Retries, times: f64) -> u64 {
    let (mut waits, mut most) = (0.0_f64, 0.0_f64);
    // What was dropped in windows before comes again in these.
    let came = first_of_each(&rows[..own.end], retries);
    for (row, came) in rows.iter().zip(came).skip(own.start) {
        let listen = row.as_ref().map(|row| row.listen).unwrap_or_default();
        waits = (waits + f64::from(came) * times - listen.accepts as f64).max(0.0);
        if listen.depth_last == 0 && listen.drops == 0 {
            waits = 0.0;
        }
        most = most.max(waits);
    }
    most.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_model::window::ListenerWindow;

    /// Windows in which so many SYNs came, of whom so many were dropped, and so many were accepted; as many wait at the end of it.
    fn of(windows: &[(u64, u64, u64, u32)]) -> Vec<Option<Row>> {
        let row = |(came, dropped, accepts, depth_last): &(u64, u64, u64, u32)| {
            let listen = ListenerWindow {
                arrivals: came - dropped,
                drops: *dropped,
                drops_syn: *dropped,
                accepts: *accepts,
                depth_last: *depth_last,
                ..ListenerWindow::default()
            };
            Some(Row { listen, ..Row::default() })
        };
        windows.iter().map(row).collect()
    }

    /// A queue of 24 that 262 connections come to at once, of whom 237 come again a second later, and then all find room.
    #[test]
    fn all_that_come_at_once_wait_and_nobody_comes_twice() {
        let mut windows = vec![(10, 0, 10, 0); 30];
        windows[5] = (262, 237, 0, 25);
        windows[6] = (0, 0, 25, 0);
        windows[25] = (247, 0, 247, 0);
        for retries in Retries::ALL {
            let waiting = |own, times| waiting_most(&of(&windows), &own, retries, times);
            assert_eq!((waiting(0..30, 1.0), waiting(0..30, 2.0)), (262, 524));
            assert_eq!(waiting(10..30, 1.0), 0, "what is before is of another incident");
        }
    }

    /// 50 come and 30 are accepted, eight windows long; 20 of each are dropped once the queue of 24 is full, and come again later.
    #[test]
    fn what_comes_faster_than_it_is_accepted_adds_up() {
        let mut windows = vec![(30, 0, 30, 0); 40];
        windows[5] = (50, 0, 30, 20);
        windows[6] = (50, 15, 30, 25);
        windows[7..13].fill((50, 20, 30, 25));
        assert_eq!(waiting_most(&of(&windows), &(0..40), Retries::Linear, 1.0), 160);
    }
}
