//! Which of two onsets came first, by clocks alone: windows are 50 ms long, and the clocks of two hosts agree only within a bound.
//! Owns the bound between two hosts, from the collector's estimates and from the requests that both saw; decides no cause.

use super::skew;
use super::view::View;
use crate::frame::history::CLOCK_WINDOWS;
use tailwater_model::incident::Order;
use tailwater_model::window::WINDOW_NS;

/// How the clock of one host stands to another's after both were put on the collector's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Between {
    /// To add to the second host's times to compare them with the first's.
    pub(crate) add_ns: i64,
    /// Bound of what is wrong after that.
    pub(crate) error_ns: u64,
    /// Requests that both hosts saw made the bound smaller.
    pub(crate) by_flow: bool,
}

impl View<'_> {
    /// Bound of a host's clock error around a window.
    pub(crate) fn clock_error(&self, host: &str, at: u64) -> u64 {
        let windows = self.history.windows_of(host);
        (at.saturating_sub(CLOCK_WINDOWS)..=at)
            .filter_map(|i| windows.at(i))
            .map(|w| w.clock_error_ns)
            .max()
            .unwrap_or(0)
    }

    /// The clocks of two hosts around a window.
    pub(crate) fn between(&self, first: &str, second: &str, at: u64) -> Between {
        if first == second {
            return Between::default();
        }
        let error_ns = self.clock_error(first, at).saturating_add(self.clock_error(second, at));
        let most = i64::try_from(error_ns).unwrap_or(i64::MAX);
        let Some((low, high)) = skew::between(*self, first, second, at) else {
            return Between { error_ns, ..Between::default() };
        };
        // What round trips say cannot be wrong by more than their bound; requests only narrow it.
        let (low, high) = (low.max(-most), high.min(most));
        let narrowed = high.saturating_sub(low).unsigned_abs().div_ceil(2);
        if low > high || narrowed >= error_ns {
            return Between { error_ns, ..Between::default() };
        }
        Between { add_ns: i64::midpoint(low, high), error_ns: narrowed, by_flow: true }
    }

    /// Whole windows by which the same moment may be apart in two hosts' windows, beyond the one that windows always leave open.
    pub(crate) fn slack(&self, first: &str, second: &str, at: u64) -> u64 {
        if first == second {
            return 0;
        }
        let error_ns = self.clock_error(first, at).saturating_add(self.clock_error(second, at));
        let phase = |host| self.history.window(host, at).map_or(0, |w| w.phase_ns);
        let apart_ns = phase(first).abs_diff(phase(second)).saturating_add(error_ns);
        // Half a window is no window; a bound of seconds is no reason to look at everything.
        (apart_ns.saturating_add(WINDOW_NS / 2) / WINDOW_NS).min(CLOCK_WINDOWS)
    }
}

/// How the window that begins at `second_ns` stands to the one at `first_ns`: events anywhere in them, by clocks that agree so well.
pub(crate) fn order(first_ns: u64, second_ns: u64, between: Between) -> Order {
    let second_ns = second_ns.saturating_add_signed(between.add_ns);
    if first_ns.abs_diff(second_ns) < WINDOW_NS.saturating_add(between.error_ns) {
        Order::Unknown
    } else if second_ns > first_ns {
        Order::After
    } else {
        Order::Before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn onsets_inside_window_and_bound_have_no_order() {
        let t = 1_000 * WINDOW_NS;
        let of =
            |second: u64, add_ns, error_ns| order(t, second, Between { add_ns, error_ns, by_flow: false });
        assert_eq!(of(t, 0, 0), Order::Unknown);
        assert_eq!(of(t + WINDOW_NS, 0, 0), Order::After, "adjacent windows of one clock");
        assert_eq!(of(t + WINDOW_NS, 0, 1), Order::Unknown);
        assert_eq!(of(t - 2 * WINDOW_NS, 0, 5_000_000), Order::Before);
        assert_eq!(of(t - 2 * WINDOW_NS, 0, WINDOW_NS + 1), Order::Unknown);
        assert_eq!(
            of(t + WINDOW_NS, 5_000_000, 4_000_000),
            Order::After,
            "what requests say of the clocks counts"
        );
    }
}
