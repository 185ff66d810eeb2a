//! How often a hook is told, and how long it is waited after a failure. Pure but for the dice.

use std::time::{Duration, Instant};

/// First pause, its doubling ends at `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A receiver that asks for a longer pause is asked again after this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Tokens come back at a steady rate up to a limit; a message takes one.
#[derive(Debug)]
pub struct Bucket {
    per_minute: u32,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Full. 0 a minute: no limit.
    #[must_use]
    pub fn new(per_minute: u32, burst: u32, now: Instant) -> Self {
        Self { per_minute, burst: f64::from(burst), tokens: f64::from(burst), at: now }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        if self.per_minute == 0 {
            return true;
        }
        self.refill(now);
        let some = self.tokens >= 1.0;
        if some {
            self.tokens -= 1.0;
        }
        some
    }

    /// When there will be a token.
    pub fn next(&mut self, now: Instant) -> Instant {
        if self.per_minute == 0 {
            return now;
        }
        self.refill(now);
        let missing = (1.0 - self.tokens).max(0.0);
        // A little more than exact, so that rounding does not wake for nothing.
        now + Duration::from_secs_f64(missing * 60.0 / f64::from(self.per_minute) + 0.001)
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * f64::from(self.per_minute) / 60.0).min(self.burst);
        self.at = now;
    }
}

/// The pause after the nth failure in a row (from 1): anything up to a bound that doubles ("full jitter"), so that many senders that
/// failed together do not come back together; at least what the receiver asked for.
#[must_use]
pub fn pause(failures: u32, retry_after: Option<Duration>, dice: f64) -> Duration {
    let bound =
        PAUSE_MIN.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(PAUSE_MAX);
    let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
    // After the moment that was asked for it is spread as well.
    asked + bound.mul_f64(dice.clamp(0.0, 1.0))
}

/// `Retry-After` in seconds; its other form, a date, is compared with the answer's own `Date`, whatever our clock says.
#[must_use]
pub fn retry_after(value: &str, date: Option<&str>) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let (then, now) = (http_date_s(value)?, http_date_s(date?)?);
    Some(Duration::from_secs(then.saturating_sub(now)))
}

/// Unix s, roughly enough for a difference, of `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date_s(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = text.split_once(", ")?.1.split(' ');
    let day: u64 = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|m| *m == name)?;
    let year: u64 = parts.next()?.parse().ok()?;
    let mut time = parts.next()?.split(':').map(|t| t.parse::<u64>().ok());
    let (h, m, s) = (time.next()??, time.next()??, time.next()??);
    let month = u64::try_from(month).ok()? + 1;
    let y = if month <= 2 { year.checked_sub(1)? } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day;
    Some((365 * y + y / 4 - y / 100 + y / 400 + of_year).checked_mul(86_400)? + h * 3600 + m * 60 + s)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests need some moment to count from")]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_burst_through_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(60, 3, start);
        assert_eq!((0..5).filter(|_| bucket.take(start)).count(), 3);
        let next = bucket.next(start);
        assert!(!bucket.take(start + Duration::from_millis(900)) && bucket.take(next));
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..5).filter(|_| bucket.take(later)).count(), 3, "an idle hour is no more than a burst");
        let mut free = Bucket::new(0, 1, start);
        assert!((0..1000).all(|_| free.take(start)));
    }

    #[test]
    fn pauses_grow_are_bounded_and_spread_from_nothing() {
        let most: Vec<_> = (1..=9).map(|n| pause(n, None, 1.0).as_millis()).collect();
        assert_eq!(most, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(pause(9, None, 0.0), Duration::ZERO);
        assert_eq!(pause(u32::MAX, None, 0.5), Duration::from_secs(30));
    }

    #[test]
    fn a_receiver_that_asks_for_a_pause_gets_it() {
        assert_eq!(pause(1, retry_after("7", None), 0.0), Duration::from_secs(7));
        assert_eq!(pause(1, retry_after("999999", None), 0.0), RETRY_AFTER_MAX);
        let (then, now) = ("Sun, 01 Mar 2026 00:00:30 GMT", "Sat, 28 Feb 2026 23:59:50 GMT");
        assert_eq!(retry_after(then, Some(now)), Some(Duration::from_secs(40)));
        assert_eq!(retry_after(now, Some(then)), Some(Duration::ZERO));
        for garbage in ["", "soon", "-1", "Sun, 01 Mrz 2026", "é, é"] {
            assert_eq!(retry_after(garbage, Some(now)), None, "{garbage}");
        }
    }
}
