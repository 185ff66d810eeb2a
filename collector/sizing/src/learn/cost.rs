//! What a request costs: sums over seconds of answers and of what they used. Owns the estimate and its error; knows neither quota nor curve.

use crate::evidence::Estimate;
use serde::{Deserialize, Serialize};

/// Seconds without which a cost is not told.
const SECONDS_MIN: f64 = 30.0;
/// Seconds, with as many answers, after which what one request needs is known as well: their mean is then known within some percent, and a
/// server that fell over is not under low load again until somebody helps it.
const SECONDS_BUSY_MIN: f64 = 10.0;
const ANSWERS_BUSY_MIN: f64 = 1000.0;
/// Standard errors of a 95 % interval.
const ERRORS: f64 = 1.96;

/// Sums over seconds: x answers (or what is expected of them), y what they used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "[f32; 7]", into = "[f32; 7]")]
pub(super) struct Cost {
    seconds: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
    in_flight_s: f64,
}

impl From<Cost> for [f32; 7] {
    // Seven digits are stored: what a cost is told with has three or four.
    fn from(of: Cost) -> Self {
        [of.seconds, of.x, of.y, of.xx, of.xy, of.yy, of.in_flight_s].map(|value| value as f32)
    }
}

impl From<[f32; 7]> for Cost {
    fn from(of: [f32; 7]) -> Self {
        let [seconds, x, y, xx, xy, yy, in_flight_s] = of.map(f64::from);
        Self { seconds, x, y, xx, xy, yy, in_flight_s }
    }
}

impl Cost {
    pub(super) fn add(&mut self, seconds: f64, x: f64, y: f64, in_flight_s: f64) {
        self.merge(&Self { seconds, x, y, xx: x * x, xy: x * y, yy: y * y, in_flight_s });
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let sums = self.all_mut();
        let more = [other.seconds, other.x, other.y, other.xx, other.xy, other.yy, other.in_flight_s];
        sums.into_iter().zip(more).for_each(|(sum, more)| *sum += more);
    }

    pub(super) fn age(&mut self, keep: f64) {
        self.all_mut().into_iter().for_each(|sum| *sum *= keep);
    }

    fn all_mut(&mut self) -> [&mut f64; 7] {
        let Self { seconds, x, y, xx, xy, yy, in_flight_s } = self;
        [seconds, x, y, xx, xy, yy, in_flight_s]
    }

    /// Whether these are sums that there can be.
    pub(super) fn is_sane(&self) -> bool {
        let Self { seconds, x, y, xx, xy, yy, in_flight_s } = *self;
        [seconds, x, y, xx, xy, yy, in_flight_s].iter().all(|sum| sum.is_finite() && *sum >= 0.0)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Mean requests in flight.
    pub(super) fn in_flight(&self) -> f64 {
        self.in_flight_s / self.seconds
    }

    /// What one request needs, where x are answers and y CPU time: that less `background` in each second, and its response time by Little's law,
    /// both s; none with too few seconds or answers.
    pub(super) fn one_request(&self, background: f64) -> Option<(f64, f64)> {
        let cpu_s = (self.y - background * self.seconds) / self.x;
        (self.is_enough() && cpu_s > 0.0).then(|| (cpu_s, self.in_flight_s / self.x))
    }

    /// y for each request, where that may well be nothing, and its response time, s; none with too few seconds or answers.
    pub(super) fn for_each_request(&self) -> Option<(f64, f64)> {
        self.is_enough().then(|| (self.y / self.x, self.in_flight_s / self.x))
    }

    fn is_enough(&self) -> bool {
        let is_busy = self.seconds >= SECONDS_BUSY_MIN && self.x >= ANSWERS_BUSY_MIN;
        self.seconds >= SECONDS_MIN && self.x > 0.0 || is_busy
    }

    /// y for each x, and nothing more: what to expect of seconds like these; none with too few.
    pub(super) fn ratio(&self) -> Option<f64> {
        (self.seconds >= SECONDS_MIN && self.x > 0.0 && self.y > 0.0).then(|| self.y / self.x)
    }

    /// What is used in each second without any answer, by regression of y on x; 0 where none is seen beyond its error.
    pub(super) fn background(&self) -> f64 {
        let n = self.seconds;
        let spread = self.xx - self.x * self.x / n;
        if n < SECONDS_MIN || spread <= 0.0 {
            return 0.0;
        }
        let slope = (self.xy - self.x * self.y / n) / spread;
        let value = (self.y - slope * self.x) / n;
        let left = (self.yy - self.y * self.y / n - slope * slope * spread).max(0.0) / (n - 2.0);
        let error = (left * (1.0 / n + (self.x / n).powi(2) / spread)).sqrt();
        if value > ERRORS * error && slope > 0.0 { value } else { 0.0 }
    }

    /// y of one x with its 95 % interval, less `background` in each second: the ratio of sums. A slope of y on x would be the nearer
    /// to 0 the fuller the server is: one that is full uses the same in each second, however many it happens to answer.
    pub(super) fn each(&self, background: f64) -> Option<Estimate> {
        self.ratio()?;
        let value = (self.y - background * self.seconds) / self.x;
        let left = self.yy + background * background * self.seconds + value * value * self.xx
            - 2.0 * background * self.y
            - 2.0 * value * self.xy
            + 2.0 * background * value * self.x;
        // Nothing is known better than to a ten-thousandth: sums are stored with seven digits.
        let error = (left.max(0.0).sqrt() / self.x).max(1e-4 * value);
        let (low, high) = (value - ERRORS * error, value + ERRORS * error);
        (value > 0.0 && low.is_finite()).then_some(Estimate { value, low, high })
    }

    /// y for each x here, and its standard error.
    pub(super) fn ratio_with_error(&self) -> Option<(f64, f64)> {
        let of = self.each(0.0)?;
        Some((of.value, (of.high - of.value) / ERRORS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_told_without_what_is_used_in_any_case() {
        let mut cost = Cost::default();
        assert_eq!(cost.each(0.0), None);
        for i in 0..100 {
            let x = f64::from(50 + i % 40);
            cost.add(1.0, x, 0.1 + 2e-3 * x + if i % 2 == 0 { 1e-3 } else { -1e-3 }, x / 10.0);
        }
        let background = cost.background();
        assert!((background - 0.1).abs() < 1e-3, "{background}");
        let each = cost.each(background).unwrap();
        assert!(
            (each.value - 2e-3).abs() < 2e-5 && each.low < each.value && each.value < each.high,
            "{each:?}"
        );
        let back: Cost = serde_json::from_str(&serde_json::to_string(&cost).unwrap()).unwrap();
        assert!((back.each(background).unwrap().value / each.value - 1.0).abs() < 1e-5 && back.is_sane());
    }

    #[test]
    fn what_a_request_needs_is_known_of_half_a_minute_or_of_a_thousand_answers() {
        let of = |seconds: u32, answers: f64| {
            let mut cost = Cost::default();
            (0..seconds).for_each(|_| cost.add(1.0, answers, answers * 2e-3, answers * 10e-3));
            cost.one_request(0.0)
        };
        let near = |of: Option<(f64, f64)>| {
            of.is_some_and(|(cpu_s, response_s)| {
                (cpu_s - 2e-3).abs() < 1e-9 && (response_s - 10e-3).abs() < 1e-9
            })
        };
        assert!(near(of(30, 2.0)) && near(of(10, 100.0)), "{:?} {:?}", of(30, 2.0), of(10, 100.0));
        assert_eq!((of(29, 2.0), of(9, 1e6), of(40, 0.0)), (None, None, None));
        let mut nothing = Cost::default();
        (0..30).for_each(|_| nothing.add(1.0, 2.0, 0.0, 0.5));
        assert_eq!((nothing.for_each_request(), nothing.one_request(0.0)), (Some((0.0, 0.25)), None));
    }

    #[test]
    fn a_full_server_has_its_cost_too() {
        let mut cost = Cost::default();
        (0..100).for_each(|i| cost.add(1.0, f64::from(240 + i % 20), 0.5, 30.0));
        assert!((cost.each(cost.background()).unwrap().value / (0.5 / 249.5) - 1.0).abs() < 0.01);
    }
}
