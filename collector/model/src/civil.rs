//! How a moment is written: UTC, to the ms. Owns to which ms that is, so that a title, a screen and a message never tell the same moment
//! otherwise; knows no clock and no time zone database.

/// A moment in the proleptic Gregorian calendar, UTC, to the ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    days: u64,
    ms: u64,
}

impl Civil {
    /// Of Unix ns, rounded to the nearest ms: windows start on whole ms, and a clock that is corrected by 0.2 ms does not make it one less.
    #[must_use]
    pub fn of(unix_ns: u64) -> Self {
        let ms = unix_ns.saturating_add(500_000) / 1_000_000;
        Self { days: ms / 86_400_000, ms: ms % 86_400_000 }
    }

    /// `2026-11-21`
    #[must_use]
    pub fn date(self) -> String {
        // Howard Hinnant's civil_from_days, for days since 1970.
        let z = self.days + 719_468;
        let era = z / 146_097;
        let doe = z % 146_097;
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + u64::from(month <= 2);
        format!("{year:04}-{month:02}-{day:02}")
    }

    /// `14:03:07.350`
    #[must_use]
    pub fn time_ms(self) -> String {
        let s = self.ms / 1000;
        format!("{:02}:{:02}:{:02}.{:03}", s / 3600, s / 60 % 60, s % 60, self.ms % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let at = |s: u64| Civil::of(s * 1_000_000_000 + 7_000_000);
        assert_eq!((at(0).date().as_str(), at(0).time_ms().as_str()), ("1970-01-01", "00:00:00.007"));
        assert_eq!(at(951_827_696).date(), "2000-02-29");
        assert_eq!(at(1_794_000_000).date(), "2026-11-06");
        assert_eq!(at(4_102_444_799).date(), "2099-12-31");
        assert_eq!(at(4_102_444_799).time_ms(), "23:59:59.007");
    }

    #[test]
    fn a_moment_is_told_by_the_ms_that_is_nearest_into_the_next_second_and_the_next_day() {
        let time = |unix_ns: u64| Civil::of(unix_ns).time_ms();
        assert_eq!(time(1_700_000_000_799_800_000), "22:13:20.800");
        assert_eq!(time(1_700_000_000_999_499_999), "22:13:20.999");
        assert_eq!(time(1_700_000_000_999_500_000), "22:13:21.000");
        let midnight = Civil::of(1_794_009_600_000_000_000 - 500_000);
        assert_eq!((midnight.date().as_str(), midnight.time_ms().as_str()), ("2026-11-07", "00:00:00.000"));
        assert_eq!(time(u64::MAX).len(), 12, "what is beyond all is no panic");
    }
}
