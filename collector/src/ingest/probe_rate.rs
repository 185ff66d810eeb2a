//! How many clock probes of an agent are answered: each may cost some thousand steps, and whoever connects again gets no more of them. Knows no
//! clock but what it is told.

/// Clock probes that are answered at once; an agent sends a few when it connects.
const AT_ONCE: u64 = 64;
/// And from then on, in a second.
const PER_S: u64 = 16;

/// How many may still be sent.
#[derive(Debug)]
pub struct Probes {
    left: u64,
    since_unix_ns: u64,
}

impl Default for Probes {
    fn default() -> Self {
        Self { left: AT_ONCE, since_unix_ns: 0 }
    }
}

impl Probes {
    /// One came at `now_unix_ns`; says whether it is to be answered.
    pub fn take(&mut self, now_unix_ns: u64) -> bool {
        let passed_ns = now_unix_ns.saturating_sub(self.since_unix_ns);
        let more = passed_ns.saturating_mul(PER_S) / 1_000_000_000;
        // A clock that was set back must not stop them for as long.
        if more > 0 || now_unix_ns < self.since_unix_ns {
            self.left = self.left.saturating_add(more).min(AT_ONCE);
            self.since_unix_ns = now_unix_ns;
        }
        let may = self.left > 0;
        self.left -= u64::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_answered_at_once_and_then_so_many_a_second() {
        let (mut probes, now) = (Probes::default(), 1_794_000_000_000_000_000);
        let answered = |probes: &mut Probes, at: u64| (0..1_000).filter(|_| probes.take(at)).count() as u64;
        assert_eq!(answered(&mut probes, now), AT_ONCE);
        assert_eq!(answered(&mut probes, now + 2_000_000_000), 2 * PER_S);
        assert_eq!(answered(&mut probes, now + 900_000_000_000), AT_ONCE);
        assert_eq!(answered(&mut probes, now), 0, "the clock was set back");
        assert_eq!(answered(&mut probes, now + 1_000_000_000), PER_S);
    }
}
