//! The scheduler's own sums of one thread, as `/proc/PID/task/TID/schedstat` has them (`sched_info` of the kernel). Owns that format; reads nothing.

/// Ns on CPU and ns waiting for one, of a thread since it began: the first two numbers of its schedstat. `None`: it is no such text.
pub(super) fn totals(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace();
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_numbers_are_on_a_cpu_and_waiting_for_one() {
        assert_eq!(totals("100 20 3\n"), Some((100, 20)));
        assert_eq!(totals("100"), None);
    }
}
