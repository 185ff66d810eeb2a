//! Which role each route needs, and in which line its requests wait for their turn: one table. A route that is not in it is answered by nobody, with or without tokens.

use super::page;
use crate::access::role::Role;
use axum::http::Method;

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it shows nothing that was measured.
    Nothing,
    /// This role or a higher one.
    Role(Role),
    /// The role of those who send, or one that may change something: whoever may only read adds nothing to what others see. Its handler reads the body, within
    /// bounds of its own, and nobody notes each of its requests.
    Sending,
}

/// A route's right.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    /// The method; `GET` stands for `HEAD`, too.
    pub method: &'static str,
    /// As the router has it.
    pub path: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// Where its requests wait (`turns.rs`).
    pub lane: Lane,
}

/// In which line a request waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// In none: it is answered at once, whatever others ask.
    Free,
    /// Answers of some milliseconds.
    Short,
    /// Answers that may take seconds: one at a time.
    Long,
    /// In none, and its handler sends away whoever comes while it has enough to do.
    Bounded,
    /// What monitoring asks for: it waits for nobody else's questions, and one is answered at a time.
    Monitoring,
}

const fn read(path: &'static str) -> Right {
    right("GET", path, Role::Read)
}

const fn long(path: &'static str) -> Right {
    Right { lane: Lane::Long, ..read(path) }
}

const fn open(method: &'static str, path: &'static str) -> Right {
    Right { method, path, needs: Needs::Nothing, lane: Lane::Free }
}

const fn right(method: &'static str, path: &'static str, role: Role) -> Right {
    Right { method, path, needs: Needs::Role(role), lane: Lane::Short }
}

/// All but the page's own files. Whatever changes something is a POST, and stands below.
const TABLE: &[Right] = &[
    // Those who start again what hangs, and who balance loads, have no token. `/readyz` tells them no details.
    open("GET", "/healthz"),
    open("GET", "/livez"),
    open("GET", "/readyz"),
    // How one gets in.
    open("GET", "/api/v1/me"),
    open("POST", "/api/v1/login"),
    open("POST", "/api/v1/logout"),
    read("/api/v1/incidents"),
    read("/api/v1/incidents/{id}"),
    read("/api/v1/incidents/{id}/timeline"),
    long("/api/v1/incidents/{id}/prevention"),
    read("/api/v1/incidents/{id}/traces"),
    read("/api/v1/topology"),
    read("/api/v1/congestion"),
    long("/api/v1/advice"),
    read("/api/v1/hosts/{host}"),
    read("/api/v1/now"),
    read("/api/v1/series"),
    read("/api/v1/responses"),
    read("/api/v1/agents"),
    read("/api/v1/status"),
    long("/api/v1/inventory"),
    read("/api/v1/live"),
    read("/api/v1/alerts"),
    read("/api/v1/silences"),
    Right { lane: Lane::Monitoring, ..read("/metrics") },
    right("POST", "/api/v1/alerts/resend", Role::Operate),
    right("POST", "/api/v1/silences", Role::Operate),
    right("POST", "/api/v1/silences/end", Role::Operate),
    right("POST", "/api/v1/record", Role::Operate),
    // Not below /api: exporters append it to whatever address they are given.
    Right { method: "POST", path: "/v1/traces", needs: Needs::Sending, lane: Lane::Bounded },
    right("GET", "/api/v1/tokens", Role::Admin),
    right("GET", "/api/v1/audit", Role::Admin),
];

/// Every route with what it needs.
pub fn all() -> impl Iterator<Item = Right> {
    page::addresses().map(|path| open("GET", path)).chain(TABLE.iter().copied())
}

/// What becomes of a method at a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It needs this.
    Needs(Needs),
    /// The route has other methods only.
    OtherMethod,
    /// The table does not have it.
    Unknown,
}

pub(super) fn of(method: &Method, path: &str) -> Found {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let mut known = false;
    for right in all().filter(|right| right.path == path) {
        if right.method == method {
            return Found::Needs(right.needs);
        }
        known = true;
    }
    if known { Found::OtherMethod } else { Found::Unknown }
}

/// The line of a route; one that the table does not have is answered by nobody.
pub(super) fn lane(path: &str) -> Lane {
    all().find(|right| right.path == path).map_or(Lane::Free, |right| right.lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_nothing_is_this_and_no_more() {
        let open: Vec<_> =
            TABLE.iter().filter(|r| r.needs == Needs::Nothing).map(|r| (r.method, r.path)).collect();
        let expect = [
            ("GET", "/healthz"),
            ("GET", "/livez"),
            ("GET", "/readyz"),
            ("GET", "/api/v1/me"),
            ("POST", "/api/v1/login"),
            ("POST", "/api/v1/logout"),
        ];
        assert_eq!(open, expect);
    }

    #[test]
    fn who_watches_over_the_collector_waits_for_no_reader_and_readers_always_wait_their_turn() {
        for path in ["/healthz", "/livez", "/readyz", "/api/v1/login", "/", "/page.js"] {
            assert_eq!(lane(path), Lane::Free, "{path}");
        }
        assert_eq!(lane("/metrics"), Lane::Monitoring);
        for right in TABLE.iter().filter(|right| right.needs != Needs::Nothing) {
            assert_ne!(lane(right.path), Lane::Free, "{}", right.path);
        }
    }

    #[test]
    fn a_route_has_one_right_and_other_methods_and_routes_have_none() {
        let mut seen = std::collections::BTreeSet::new();
        for right in all() {
            assert!(seen.insert((right.method, right.path)), "{right:?} twice");
        }
        assert_eq!(of(&Method::HEAD, "/metrics"), Found::Needs(Needs::Role(Role::Read)));
        assert_eq!(of(&Method::GET, "/api/v1/record"), Found::OtherMethod);
        assert_eq!(of(&Method::DELETE, "/"), Found::OtherMethod);
        assert_eq!(of(&Method::GET, "/api/v1/incidents/01"), Found::Unknown, "by the router's own words");
    }
}
