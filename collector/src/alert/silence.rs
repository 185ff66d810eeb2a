//! Whether an incident is to be left untold now: matchers over where it is, and times. Pure.

use super::config;
use crate::text::like;
use tailwater_model::Incident;
use tailwater_model::incident::Kind;

const DAY_S: u64 = 86_400;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// One silence, read.
#[derive(Debug, Clone)]
pub struct Silence {
    from_s: u64,
    until_s: u64,
    /// Seconds of the day; the end may be smaller than the beginning.
    daily: Option<(u64, u64)>,
    days: [bool; 7],
    asked: config::Silence,
}

impl Silence {
    /// Reads the times; an error names the key.
    pub fn new(silence: &config::Silence) -> Result<Self, (&'static str, String)> {
        let moment = |key, text: &Option<String>, otherwise| match text {
            None => Ok(otherwise),
            Some(text) => rfc3339_s(text).ok_or((key, format!("\"{text}\" is not a moment of RFC 3339"))),
        };
        let daily = match &silence.daily {
            None => None,
            Some(text) => {
                let times = text.split_once('-').and_then(|(a, b)| Some((of_day(a)?, of_day(b)?)));
                Some(times.ok_or(("daily", format!("\"{text}\" is not HH:MM-HH:MM")))?)
            }
        };
        let mut days = [silence.days.is_empty(); 7];
        for day in &silence.days {
            let n = DAYS.iter().position(|d| d == day).ok_or(("days", format!("\"{day}\" is not a day")))?;
            days[n] = true;
        }
        let (from_s, until_s) =
            (moment("from", &silence.from, 0)?, moment("until", &silence.until, u64::MAX)?);
        if from_s >= until_s {
            return Err(("until", "is not after from".into()));
        }
        Ok(Self { from_s, until_s, daily, days, asked: silence.clone() })
    }

    /// What was asked for.
    #[must_use]
    pub fn asked(&self) -> &config::Silence {
        &self.asked
    }

    /// Whether `hook` is not to be told of `incident` at this time.
    #[must_use]
    pub fn covers(&self, hook: &str, incident: &Incident, unix_ns: u64) -> bool {
        let hooks = &self.asked.hooks;
        (hooks.is_empty() || hooks.iter().any(|of| of == hook)) && self.fits(incident, unix_ns)
    }

    /// Whether some hook, whichever it is for, is not to be told of `incident` at this time.
    #[must_use]
    pub fn fits(&self, incident: &Incident, unix_ns: u64) -> bool {
        let kind = |list: &[Kind]| list.is_empty() || list.contains(&incident.kind);
        kind(&self.asked.kinds) && self.holds_at(unix_ns) && self.place(incident)
    }

    /// Whether it is its time.
    #[must_use]
    pub fn holds_at(&self, unix_ns: u64) -> bool {
        let unix_s = unix_ns / 1_000_000_000;
        if !(self.from_s..self.until_s).contains(&unix_s) {
            return false;
        }
        let (day, second) = (unix_s / DAY_S, unix_s % DAY_S);
        // 1970-01-01 was a Thursday.
        let on = |day: u64| self.days[usize::try_from((day + 3) % 7).unwrap_or(0)];
        match self.daily {
            None => on(day),
            Some((a, b)) if a <= b => on(day) && (a..b).contains(&second),
            // Over midnight: what is left of yesterday's, or today's.
            Some((a, b)) => (second < b && on(day.wrapping_sub(1))) || (second >= a && on(day)),
        }
    }

    /// Whether its time will not come again.
    #[must_use]
    pub fn ended(&self, unix_ns: u64) -> bool {
        self.until_s <= unix_ns / 1_000_000_000
    }

    /// One place must fit all matchers: host "a" and tier "b" is tier "b" on host "a".
    fn place(&self, i: &Incident) -> bool {
        let m = &self.asked;
        let fits = |host: &str, workload: &str, tier: &str, listener: Option<&str>| {
            like(m.host.as_deref(), host)
                && like(m.workload.as_deref(), workload)
                && like(m.tier.as_deref(), tier)
                && (m.listener.is_none() || listener.is_some_and(|l| like(m.listener.as_deref(), l)))
        };
        i.drops.iter().any(|d| fits(&d.host, &d.workload, &d.tier, Some(&d.listener)))
            || fits(&i.root.host, &i.root.workload, &i.root.tier, None)
    }
}

fn of_day(text: &str) -> Option<u64> {
    let (h, m) = text.trim().split_once(':')?;
    let two = |t: &str| (t.len() == 2).then(|| t.parse::<u64>().ok()).flatten();
    let (h, m) = (two(h)?, two(m)?);
    (h < 24 && m < 60 || (h, m) == (24, 0)).then_some(h * 3600 + m * 60)
}

/// Unix s of `2026-11-21T22:00:00Z` or `…+01:00`; fractions of a second are left out.
fn rfc3339_s(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let sign = |at: usize, any: &[u8]| text.as_bytes().get(at).is_some_and(|b| any.contains(b));
    if !(sign(4, b"-") && sign(7, b"-") && sign(10, b"Tt ") && sign(13, b":") && sign(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (h, m, s) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) || h > 23 || m > 59 || s > 60 {
        return None;
    }
    let zone = text.get(19..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let offset_s = match zone.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] if [a, b, c, d].iter().all(|x| x.is_ascii_digit()) => {
            let of = |x: u8, y: u8| i64::from(x - b'0') * 10 + i64::from(y - b'0');
            let seconds = of(*a, *b) * 3600 + of(*c, *d) * 60;
            if *sign == b'+' { seconds } else { -seconds }
        }
        _ => return None,
    };
    // Days since 1970 of the proleptic Gregorian calendar; years begin in March, so that the leap day is the last.
    let y = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + of_year - 719_468;
    u64::try_from(days * 86_400 + h * 3600 + m * 60 + s - offset_s).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::incident;

    fn silence(text: &str) -> Silence {
        Silence::new(&toml::from_str(&format!("comment = \"c\"\n{text}")).unwrap()).unwrap()
    }

    fn at(text: &str) -> u64 {
        rfc3339_s(text).unwrap() * 1_000_000_000
    }

    #[test]
    fn moments_are_read_as_the_standard_says() {
        assert_eq!(rfc3339_s("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(rfc3339_s("2000-02-29T14:01:36.5Z"), Some(951_832_896));
        assert_eq!(rfc3339_s("2026-11-21T23:00:00+01:00"), rfc3339_s("2026-11-21T22:00:00Z"));
        for wrong in [
            "",
            "2026-11-21",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-21T22:00:00",
            "é026-11-21T22:00:00Z",
        ] {
            assert_eq!(rfc3339_s(wrong), None, "{wrong}");
        }
        for days in [0_u64, 59, 60, 11_016, 20_000, 47_540] {
            let civil = tailwater_model::civil::Civil::of(days * DAY_S * 1_000_000_000);
            assert_eq!(rfc3339_s(&format!("{}T00:00:00Z", civil.date())), Some(days * DAY_S));
        }
    }

    #[test]
    fn a_night_over_midnight_belongs_to_the_day_it_began_on() {
        // 2026-11-21 is a Saturday.
        let night = silence("daily = \"22:00-04:30\"\ndays = [\"sat\"]");
        let i = incident("01A", 1);
        let covers = |text| night.covers("h", &i, at(text));
        assert!(covers("2026-11-21T22:00:00Z") && covers("2026-11-22T04:29:59Z"));
        assert!(
            !covers("2026-11-21T04:00:00Z")
                && !covers("2026-11-22T04:30:00Z")
                && !covers("2026-11-22T23:00:00Z")
        );
        let range = silence("from = \"2026-11-21T22:00:00Z\"\nuntil = \"2026-11-21T23:00:00Z\"");
        assert!(
            range.covers("h", &i, at("2026-11-21T22:59:59Z"))
                && !range.covers("h", &i, at("2026-11-21T23:00:00Z"))
        );
    }

    #[test]
    fn all_matchers_must_fit_one_place() {
        let i = incident("01A", 1);
        for (text, want) in [
            ("host = \"web-*\"", true),
            ("host = \"web-1\"\ntier = \"web\"", true),
            ("host = \"web-1\"\ntier = \"app\"", false),
            ("workload = \"tomcat*service\"", true),
            ("listener = \"*:80\"", true),
            ("listener = \"*:8080\"", false),
            ("kinds = [\"syn_flood\"]", false),
            ("hooks = [\"other\"]", false),
            ("host = \"*\"\nkinds = [\"upstream_ctqo\"]\nhooks = [\"h\"]", true),
        ] {
            assert_eq!(silence(text).covers("h", &i, 1), want, "{text}");
        }
        assert!(silence("hooks = [\"other\"]").fits(&i, 1), "whichever hook it is for");
        assert!(!silence("hooks = [\"other\"]\nkinds = [\"syn_flood\"]").fits(&i, 1));
        assert!(like(Some("a*b*c"), "a-b-b-c") && !like(Some("a*b*c"), "a-c") && !like(Some("ab"), "abc"));
    }
}
