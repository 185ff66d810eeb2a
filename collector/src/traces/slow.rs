//! The slow spans of the last minutes, in bounded memory: by the second in which they ended and by service, in each the slowest. What is slow stays
//! whoever floods: a service that sends too many loses its own fastest, a second that has too many loses those of the service that has most in it, and
//! beyond all bounds what goes is the oldest second. Owns these bounds. Pure: time comes with each call.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Spans that end in the same second and are kept of one service: as many as are told of it, so that an incident of a second loses none.
const OF_SERVICE_MAX: usize = 20;
/// And of all services together.
const OF_SECOND_MAX: usize = 400;
/// Services of one second.
const SERVICES_MAX: usize = 64;
/// All of them: some megabytes, with names of the usual length. In the worst case, every second full, they are those of the last 50 s.
pub(super) const SPANS_MAX: usize = 20_000;
/// How long they stay, ns: what an exporter sends later than that after its end nobody asks for any more.
pub(super) const KEPT_NS: u64 = 300_000_000_000;
/// How far ahead of the collector's clock an end may be, ns: hosts that keep time by NTP are within a second.
pub(super) const AHEAD_NS: u64 = 10_000_000_000;
/// A second.
const SECOND_NS: u64 = 1_000_000_000;

/// A span that was slow or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slow {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    /// `service.name`.
    pub(super) service: Arc<str>,
    /// `host.name`; empty: not told.
    pub(super) host: Arc<str>,
    pub(super) name: Box<str>,
    pub(super) start_unix_ns: u64,
    pub(super) end_unix_ns: u64,
    /// It says that it failed.
    pub(super) error: bool,
}

impl Slow {
    /// How long it took.
    pub(super) fn duration_ns(&self) -> u64 {
        self.end_unix_ns.saturating_sub(self.start_unix_ns)
    }

    fn second(&self) -> u64 {
        self.end_unix_ns / SECOND_NS
    }
}

/// What came of a span. Of each that is put out, itself or another, the reason is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is held.
    Kept,
    /// It is held already: exporters send again what was not answered in time.
    Again,
    /// It ended too long ago, or in the future.
    Untimely,
    /// It is not held: its second has as many services as it may.
    TooManyServices,
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct Ring {
    seconds: BTreeMap<u64, Second>,
    len: usize,
}

#[derive(Debug, Default)]
struct Second {
    services: BTreeMap<Arc<str>, Vec<Slow>>,
    len: usize,
}

impl Second {
    /// Puts out the fastest of the service that has most.
    fn thin(&mut self) {
        let most = self.services.values_mut().max_by_key(|of| of.len());
        if let Some(fastest) = most.and_then(|of| Some((fastest(of)?, of))) {
            fastest.1.swap_remove(fastest.0);
            self.len -= 1;
        }
    }
}

/// Where the fastest is.
fn fastest(of: &[Slow]) -> Option<usize> {
    of.iter().enumerate().min_by_key(|(_, slow)| slow.duration_ns()).map(|(at, _)| at)
}

impl Ring {
    /// How many are held.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes one, at this Unix time, ns. Says what came of it, and how many were put out, this one among them where it was too fast for its second.
    pub(super) fn put(&mut self, slow: Slow, now_unix_ns: u64) -> (Fate, usize) {
        let end = slow.end_unix_ns;
        if end > now_unix_ns.saturating_add(AHEAD_NS) || end.saturating_add(KEPT_NS) < now_unix_ns {
            return (Fate::Untimely, 0);
        }
        self.forget(now_unix_ns);
        let before = self.len;
        let second = self.seconds.entry(slow.second()).or_default();
        if second.services.len() >= SERVICES_MAX && !second.services.contains_key(&slow.service) {
            return (Fate::TooManyServices, 0);
        }
        let own = second.services.entry(Arc::clone(&slow.service)).or_default();
        if own.iter().any(|one| (one.trace_id, one.span_id) == (slow.trace_id, slow.span_id)) {
            return (Fate::Again, 0);
        }
        own.push(slow);
        second.len += 1;
        if own.len() > OF_SERVICE_MAX
            && let Some(at) = fastest(own)
        {
            own.swap_remove(at);
            second.len -= 1;
        } else if second.len > OF_SECOND_MAX {
            second.thin();
        } else {
            self.len += 1;
        }
        while self.len > SPANS_MAX
            && let Some((_, oldest)) = self.seconds.pop_first()
        {
            self.len -= oldest.len;
        }
        (Fate::Kept, before + 1 - self.len)
    }

    /// Lets go what ended too long ago. That is no loss: it was there for as long as it is to be.
    pub(super) fn forget(&mut self, now_unix_ns: u64) {
        let oldest = now_unix_ns.saturating_sub(KEPT_NS) / SECOND_NS;
        while let Some(first) = self.seconds.first_entry().filter(|first| *first.key() < oldest) {
            self.len -= first.remove().len;
        }
    }

    /// Those that overlap `span` (Unix ns, both ends in it).
    pub(super) fn over(&self, span: (u64, u64)) -> impl Iterator<Item = &Slow> {
        // What ended before it began overlaps nothing of it.
        let late = self.seconds.range(span.0 / SECOND_NS..).flat_map(|(_, second)| second.services.values());
        late.flatten().filter(move |slow| slow.end_unix_ns >= span.0 && slow.start_unix_ns <= span.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000 * SECOND_NS;
    const MS: u64 = 1_000_000;

    /// The `n`th one, which took so long and ended so long before now.
    fn slow(n: u64, service: &str, ms: u64, ago_ms: u64) -> Slow {
        let end = NOW - ago_ms * MS;
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&n.to_be_bytes());
        Slow {
            trace_id,
            span_id: n.to_be_bytes(),
            service: service.into(),
            host: "h".into(),
            name: "GET /".into(),
            start_unix_ns: end - ms * MS,
            end_unix_ns: end,
            error: false,
        }
    }

    fn durations(ring: &Ring, span: (u64, u64), service: &str) -> Vec<u64> {
        let mut all: Vec<u64> =
            ring.over(span).filter(|s| s.service.as_ref() == service).map(|s| s.duration_ns() / MS).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_flood_of_one_service_puts_out_its_own_fastest_and_nobody_elses() {
        let mut ring = Ring::default();
        assert_eq!(ring.put(slow(1, "db", 250, 100), NOW), (Fate::Kept, 0));
        let mut put_out = 0;
        // Every duration once, in an order that has nothing to do with it.
        for n in 0..5000 {
            put_out += ring.put(slow(10 + n, "web", 300 + n * 1237 % 5000, 100), NOW).1;
        }
        let slowest: Vec<u64> = (5280..5300).collect();
        assert_eq!(durations(&ring, (0, NOW), "web"), slowest);
        assert_eq!(durations(&ring, (0, NOW), "db"), [250]);
        assert_eq!((ring.len(), put_out), (21, 4980), "and each that is not there was counted");
    }

    #[test]
    fn a_second_with_too_many_takes_from_those_who_have_most_of_it() {
        let mut ring = Ring::default();
        for service in 0..SERVICES_MAX as u64 {
            for n in 0..20 {
                ring.put(slow(service * 100 + n, &format!("s{service}"), 200 + n, 0), NOW);
            }
        }
        assert_eq!(ring.len(), OF_SECOND_MAX);
        for service in 0..SERVICES_MAX {
            let own = durations(&ring, (0, NOW), &format!("s{service}"));
            assert!(own.len() >= 6 && own.ends_with(&[219]), "{service}: {own:?}");
        }
        let (fate, _) = ring.put(slow(1, "one more", 9000, 0), NOW);
        assert_eq!(fate, Fate::TooManyServices);
        assert_eq!(ring.put(slow(1, "one more", 9000, 1500), NOW).0, Fate::Kept, "another second has room");
    }

    #[test]
    fn beyond_all_bounds_the_oldest_second_goes_and_time_lets_go_without_a_loss() {
        let mut ring = Ring::default();
        let services: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
        let mut put_out = 0;
        for second in (0..51).rev() {
            for (n, service) in services.iter().enumerate() {
                for of in 0..20 {
                    let id = second * 1000 + n as u64 * 20 + of;
                    put_out += ring.put(slow(id, service, 200 + of, second * 1000), NOW).1;
                }
            }
        }
        assert_eq!((ring.len(), put_out), (SPANS_MAX, 400));
        assert_eq!(durations(&ring, (NOW - 50 * SECOND_NS, NOW - 50 * SECOND_NS), "s0"), [0; 0]);
        assert_eq!(durations(&ring, (NOW - 49 * SECOND_NS, NOW - 49 * SECOND_NS), "s0").len(), 20);
        ring.forget(NOW + KEPT_NS);
        assert_eq!(ring.len(), 400, "those of the last second");
        ring.forget(NOW + KEPT_NS + SECOND_NS);
        assert_eq!((ring.len(), ring.seconds.len()), (0, 0));
    }

    #[test]
    fn the_same_span_is_held_once_and_what_no_clock_can_mean_not_at_all() {
        let mut ring = Ring::default();
        assert_eq!(ring.put(slow(1, "web", 300, 0), NOW).0, Fate::Kept);
        assert_eq!(ring.put(slow(1, "web", 300, 0), NOW), (Fate::Again, 0));
        let at = |now| Ring::default().put(slow(1, "web", 300, 0), now).0;
        assert_eq!([at(NOW - AHEAD_NS), at(NOW + KEPT_NS)], [Fate::Kept; 2]);
        assert_eq!([at(NOW - AHEAD_NS - 1), at(NOW + KEPT_NS + 1)], [Fate::Untimely; 2]);
    }

    #[test]
    fn those_that_overlap_a_time_are_found_also_if_they_ended_after_it() {
        let mut ring = Ring::default();
        for (n, ms, ago) in [(1, 500, 9000), (2, 3000, 7000), (3, 300, 8000), (4, 300, 5000)] {
            ring.put(slow(n, "web", ms, ago), NOW);
        }
        // From 9.2 s to 8.2 s before now: the first ended in it, the second began in it.
        let span = (NOW - 9200 * MS, NOW - 8200 * MS);
        assert_eq!(durations(&ring, span, "web"), [300, 500, 3000], "the third began in it, too");
    }
}
