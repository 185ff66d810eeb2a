//! Wrong tokens, counted by where they come from. Owns how many are answered one by one, and that the list of places stays short.
//!
//! Nobody finds a token by trying: this keeps the log and the audit readable, and says "slower" to a program with an old token. Whoever shows
//! a right one is let in whatever came from there before: else a stranger behind the same address could lock everybody there out.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many wrong tokens in a row are told apart; then one for each pause.
const BURST: u32 = 10;
/// Until another one is.
const PAUSE: Duration = Duration::from_secs(6);
/// Places that are remembered; where all are in use the one that was quiet for longest makes room.
const PLACES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Place {
    /// Wrong ones that are left, as of `since`.
    left: u32,
    since: Instant,
}

/// Who came with wrong tokens lately.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<HashMap<IpAddr, Place>>);

/// What becomes of a wrong token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// It is told.
    Told,
    /// Too many came from there; the next one will be told after this.
    TooMany(Duration),
}

impl Attempts {
    /// A wrong token came from there.
    pub fn wrong(&self, from: IpAddr, now: Instant) -> Wrong {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = network(from);
        if !places.contains_key(&from) && places.len() >= PLACES_MAX {
            places.retain(|_, place| refilled(place, now).left < BURST);
            if places.len() >= PLACES_MAX
                && let Some(oldest) = places.iter().min_by_key(|(_, of)| of.since).map(|(place, _)| *place)
            {
                places.remove(&oldest);
            }
        }
        let place = places.entry(from).or_insert(Place { left: BURST, since: now });
        *place = refilled(place, now);
        match place.left.checked_sub(1) {
            Some(left) => {
                place.left = left;
                Wrong::Told
            }
            None => Wrong::TooMany(PAUSE.saturating_sub(now.saturating_duration_since(place.since))),
        }
    }

    #[cfg(test)]
    fn places(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Connections that came to nothing, by what they came to.
///
/// What they came to is a kind, which the code names, and within it a sort of its reason: an agent without a certificate does not hide one with
/// a foreign certificate behind the same address, whatever their reasons' hashes are.
#[derive(Debug, Default)]
pub struct Fruitless(Mutex<BTreeMap<(&'static str, u64), Attempts>>);

/// Sorts of one kind's reasons that are counted apart. Few, as each remembers places of its own, and whoever comes may choose the reason.
const SORTS: u64 = 8;

impl Fruitless {
    /// Whether it is told that something from there came to nothing, and why: as seldom as of wrong tokens, for each kind and sort of `why`.
    pub fn is_told(&self, from: IpAddr, kind: &'static str, why: &str, now: Instant) -> bool {
        // Lengths and numbers in it are whoever came there's to choose.
        let mut sort = DefaultHasher::new();
        why.chars().filter(|c| !c.is_ascii_digit()).for_each(|c| c.hash(&mut sort));
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = kinds.entry((kind, sort.finish() % SORTS)).or_default();
        attempts.wrong(from, now) == Wrong::Told
    }
}

fn refilled(place: &Place, now: Instant) -> Place {
    let pauses = now.saturating_duration_since(place.since).as_nanos() / PAUSE.as_nanos();
    let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
    if pauses == 0 {
        return *place;
    }
    let left = place.left.saturating_add(pauses).min(BURST);
    // What is left of a pause counts for the next one.
    let since = if left == BURST { now } else { place.since + PAUSE * pauses };
    Place { left, since }
}

/// Who has one address of IPv6 has as many as a /64 holds: that, and IPv4 as such.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => IpAddr::V4(four),
            None => {
                let [a, b, c, d, ..] = six.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        },
    }
}

/// An address as it is told: IPv4 as such, also where it came over a socket of IPv6.
#[must_use]
pub fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, |four: Ipv4Addr| IpAddr::V4(four)),
        IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_that_comes_without_an_end_does_not_hide_another() {
        let (fruitless, begin) = (Fruitless::default(), begin());
        let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let told = |kind, why: &str| (0..40).filter(|_| fruitless.is_told(from, kind, why, begin)).count();
        let kinds = ["no_certificate", "certificate", "alert", "not_tls", "went_away", "silent"];
        // Whatever is said of them: one reason here, so that their hashes are one.
        assert!(kinds.into_iter().all(|kind| told(kind, "the reason") == BURST as usize));
        assert_eq!(told("alert", "3the reason"), 0, "numbers are no reason of their own");
        let apart = (0..26_u8).filter(|n| told("alert", &char::from(b'a' + n).to_string()) > 0).count();
        assert!((2..=SORTS as usize).contains(&apart), "{apart} sorts of reasons");
    }

    fn begin() -> Instant {
        crate::clock::Clock::default().monotonic()
    }

    #[test]
    fn ten_in_a_row_are_told_then_one_for_each_pause() {
        let (attempts, begin) = (Attempts::default(), begin());
        let from = IpAddr::from([10, 0, 0, 1]);
        let at = |s: u64| attempts.wrong(from, begin + Duration::from_secs(s));
        assert!((0..10).all(|_| at(0) == Wrong::Told));
        assert_eq!(at(2), Wrong::TooMany(Duration::from_secs(4)));
        assert_eq!(attempts.wrong([10, 0, 0, 2].into(), begin), Wrong::Told, "another place");
        assert_eq!((at(6), at(7)), (Wrong::Told, Wrong::TooMany(Duration::from_secs(5))));
        assert!((0..10).all(|_| at(600) == Wrong::Told));
        assert!(matches!(at(600), Wrong::TooMany(_)));
    }

    #[test]
    fn the_addresses_of_one_network_are_one_place_and_places_are_bounded() {
        let (attempts, begin) = (Attempts::default(), begin());
        let six = |last: u16, net: u16| IpAddr::from([0x2001, 0xdb8, 0, net, 0, 0, 0, last]);
        assert!((0..10).all(|n| attempts.wrong(six(n, 0), begin) == Wrong::Told));
        assert!(matches!(attempts.wrong(six(99, 0), begin), Wrong::TooMany(_)));
        let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 1]);
        assert_eq!((network(mapped), plain(mapped)), (IpAddr::from([10, 0, 0, 1]), [10, 0, 0, 1].into()));
        for n in 0..3 * PLACES_MAX as u32 {
            attempts.wrong(IpAddr::from(n.to_be_bytes()), begin + Duration::from_millis(1 + u64::from(n)));
        }
        assert!(attempts.places() <= PLACES_MAX);
    }
}
