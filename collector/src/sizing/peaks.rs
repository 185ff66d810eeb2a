//! The busiest minute of each of the last seven days of a listener: what its tier must bear while one of its servers is away. Owns what a minute and a
//! day are, and which are kept; knows no window and no other listener.

use serde::{Deserialize, Serialize};

/// Days that are kept: a week has its own rhythm.
const DAYS: usize = 7;
const MINUTE_NS: u64 = 60_000_000_000;
/// Minutes of a day.
const DAY: u64 = 1_440;
/// Minutes by which a clock may have been ahead before what it said of days to come, and of this one, is forgotten.
const AHEAD: u64 = 5;

/// See above.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Peaks {
    /// Days since 1970 (UTC), rising, each with the requests a second of its busiest minute.
    days: Vec<(u64, f32)>,
    /// Of the minute that is not over: which one, and its requests.
    #[serde(default)]
    open: (u64, f64),
}

impl Peaks {
    /// A second that ended then, with so many requests. Seconds without any need not be told.
    pub(super) fn add(&mut self, end_unix_ns: u64, requests: f64) {
        let minute = end_unix_ns.saturating_sub(1) / MINUTE_NS;
        if minute + AHEAD < self.open.0 {
            self.days.retain(|(day, _)| *day < minute / DAY);
            self.open = (minute, 0.0);
        } else if minute < self.open.0 {
            return;
        }
        if minute > self.open.0 {
            self.close();
            self.open = (minute, 0.0);
        }
        self.open.1 += requests;
    }

    fn close(&mut self) {
        let (minute, requests) = self.open;
        if requests < 1.0 {
            return;
        }
        let (day, rate) = (minute / DAY, (requests / 60.0) as f32);
        match self.days.last_mut() {
            Some((last, most)) if *last == day => *most = most.max(rate),
            _ => self.days.push((day, rate)),
        }
        if self.days.len() > DAYS {
            self.days.remove(0);
        }
    }

    /// Requests a second of the busiest minute of the last seven days, and how many of those were seen; `None`: none was.
    pub(super) fn week(&self, now_unix_ns: u64) -> Option<(f64, u32)> {
        let today = now_unix_ns / MINUTE_NS / DAY;
        let known = self.days.iter().filter(|(day, _)| *day + DAYS as u64 > today);
        let most = known.clone().map(|(_, rate)| f64::from(*rate)).reduce(f64::max)?;
        Some((most, known.count() as u32))
    }

    /// What it takes in memory beside itself, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.days.capacity() * size_of::<(u64, f32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minute with so many requests a second, on this day.
    fn minute(peaks: &mut Peaks, day: u64, minute: u64, rate: f64) {
        let first = (day * DAY + minute) * MINUTE_NS;
        (1..=60).for_each(|second| peaks.add(first + second * 1_000_000_000, rate));
    }

    #[test]
    fn the_busiest_minute_of_a_week_is_told_and_a_burst_is_not() {
        let mut peaks = Peaks::default();
        minute(&mut peaks, 0, 3, 100.0);
        assert_eq!(peaks.week(0), None, "it is not over");
        // A second of ten times as much is not a minute of it.
        let burst = (DAY / 2) * MINUTE_NS;
        peaks.add(burst + 1_000_000_000, 1_000.0);
        minute(&mut peaks, 1, 0, 70.0);
        minute(&mut peaks, 1, 1, 80.0);
        minute(&mut peaks, 1, 2, 60.0);
        let at = |day| peaks.week(day * DAY * MINUTE_NS);
        assert_eq!((at(1), at(6)), (Some((100.0, 2)), Some((100.0, 2))));
        assert_eq!((at(7), at(8)), (Some((80.0, 1)), None), "day by day it goes");
        let mut back: Peaks = serde_json::from_str(&serde_json::to_string(&peaks).unwrap()).unwrap();
        assert_eq!(back, peaks);
        // What came a little late changes nothing; a clock that was ahead is forgotten with all that it said.
        back.add((DAY + 1) * MINUTE_NS, 1e9);
        assert_eq!(back, peaks);
        minute(&mut back, 0, 3, 20.0);
        minute(&mut back, 0, 4, 10.0);
        assert_eq!(back.week(0), Some((20.0, 1)));
        for day in 2..100 {
            minute(&mut peaks, day, 0, 50.0);
        }
        assert_eq!((peaks.days.len(), peaks.week(99 * DAY * MINUTE_NS)), (DAYS, Some((50.0, 6))));
    }
}
