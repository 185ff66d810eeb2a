//! Browsers that showed a token once: what their cookie stands for. Owns how long that lasts and how many there are; in memory only, so that
//! a restart ends all. A session is worth what its token is worth: whoever asks looks the token up again.

use super::token::{Hash, NoRandomness, random};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a session lasts, whatever is done in it: a working day.
pub const LASTS: Duration = Duration::from_secs(12 * 3600);
/// Sessions at once; beyond it the oldest one ends.
const SESSIONS_MAX: usize = 1024;

#[derive(Debug)]
struct Session {
    token: Hash,
    begun: Instant,
}

/// All of them, by the hash of what their cookie holds.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashMap<String, Session>>);

fn key(cookie: &str) -> String {
    Hash::of(cookie.as_bytes()).to_string()
}

impl Sessions {
    /// A new one for the token with this hash: what its cookie holds.
    pub fn begin(&self, token: Hash, now: Instant) -> Result<String, NoRandomness> {
        let cookie = URL_SAFE_NO_PAD.encode(random::<32>()?);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, of| now.saturating_duration_since(of.begun) < LASTS);
        if all.len() >= SESSIONS_MAX
            && let Some(oldest) = all.iter().min_by_key(|(_, of)| of.begun).map(|(key, _)| key.clone())
        {
            all.remove(&oldest);
        }
        all.insert(key(&cookie), Session { token, begun: now });
        Ok(cookie)
    }

    /// The token that the session with this cookie began with.
    #[must_use]
    pub fn token(&self, cookie: &str, now: Instant) -> Option<Hash> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = all.get(&key(cookie))?;
        (now.saturating_duration_since(of.begun) < LASTS).then_some(of.token)
    }

    /// Ends it.
    pub fn end(&self, cookie: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(cookie));
    }
}

/// The cookie's name: cookies know no ports, and two collectors of one machine must not take each other's. The prefix, where there is
/// TLS, makes browsers refuse one that another host of the same domain has set (RFC 6265bis, 4.1.3.2).
#[must_use]
pub fn cookie_name(port: u16, tls: bool) -> String {
    format!("{}tailwater-{port}", if tls { "__Host-" } else { "" })
}

/// What goes into `Set-Cookie`; an empty value takes it away.
#[must_use]
pub fn set_cookie(name: &str, value: &str, tls: bool) -> String {
    let age = if value.is_empty() { 0 } else { LASTS.as_secs() };
    let mut text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}");
    if tls {
        let _ = write!(text, "; Secure");
    }
    text
}

/// The value of the cookie of this name among all that a browser sent.
#[must_use]
pub fn cookie<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    header
        .split(';')
        .find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
        .filter(|v| !v.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lasts_a_working_day_unless_it_is_ended_and_holds_no_token() {
        let (sessions, begin) = (Sessions::default(), crate::clock::Clock::default().monotonic());
        let token = Hash::of(b"token");
        let (a, b) = (sessions.begin(token, begin).unwrap(), sessions.begin(token, begin).unwrap());
        assert_ne!(a, b);
        assert!(sessions.token(&a, begin).unwrap().same(&token));
        assert!(sessions.token("", begin).is_none() && sessions.token(&a[1..], begin).is_none());
        sessions.end(&a);
        assert!(sessions.token(&a, begin).is_none() && sessions.token(&b, begin).is_some());
        assert!(sessions.token(&b, begin + LASTS).is_none());
    }

    #[test]
    fn beyond_the_limit_the_oldest_session_ends() {
        let (sessions, begin) = (Sessions::default(), crate::clock::Clock::default().monotonic());
        let at = |n: u64| begin + Duration::from_millis(n);
        let all: Vec<_> =
            (0..=SESSIONS_MAX as u64).map(|n| sessions.begin(Hash::of(b"t"), at(n)).unwrap()).collect();
        assert!(sessions.token(&all[0], at(2000)).is_none());
        assert!(all[1..].iter().all(|one| sessions.token(one, at(2000)).is_some()));
    }

    #[test]
    fn cookies_are_for_this_server_alone_and_are_found_among_others() {
        assert_eq!(
            set_cookie(&cookie_name(4780, true), "x", true),
            "__Host-tailwater-4780=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure"
        );
        assert_eq!(
            set_cookie(&cookie_name(1, false), "", false),
            "tailwater-1=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        );
        let sent = "a=1; tailwater-4780x=2;tailwater-4780=abc ; b";
        assert_eq!(cookie(sent, "tailwater-4780"), Some("abc"));
        assert_eq!(cookie(sent, "tailwater-478"), None);
        assert_eq!(cookie("tailwater-1=", "tailwater-1"), None);
    }
}
