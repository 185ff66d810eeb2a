//! Stands before every route: who asks, whether they may, and whether a browser's request comes from this server's own page. Owns the order of
//! these questions and what is said to whom they refuse; `access` has the rules, `rights` which route needs which role.

use super::Problem;
use super::rights::{self, Found, Needs};
use crate::access::attempts::{Attempts, Wrong, plain};
use crate::access::audit::{Audit, Change};
use crate::access::config::Proxy;
use crate::access::file::Entry;
use crate::access::role::{Role, Way, Who};
use crate::access::sessions::{Sessions, cookie, cookie_name};
use crate::access::token::Token;
use crate::access::tokens::Tokens;
use crate::clock::Clock;
use crate::counters::Metrics;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::{Authority, Uri};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// What is sent to this server is shorter than that.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// And is here within this.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// A name that a proxy gives.
const NAME_BYTES_MAX: usize = 128;

/// Who is at the other end of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Nobody is known to ask, where that matters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anonymous;

/// Who may come in, and who did what.
#[derive(Debug)]
pub struct Gate {
    pub(super) tokens: Option<Tokens>,
    /// Everybody needs a token, whether there is one or not.
    always: bool,
    proxy: Option<Proxy>,
    pub(super) tls: bool,
    pub(super) cookie: String,
    pub(super) sessions: Sessions,
    attempts: Attempts,
    pub(super) audit: Audit,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
}

/// What a gate is told.
#[derive(Debug)]
pub struct Rules {
    /// Tokens; without: none is wanted.
    pub tokens: Option<Tokens>,
    /// Whether everybody needs one, also before the first was made.
    pub always: bool,
    /// Whose word is taken.
    pub proxy: Option<Proxy>,
    /// Whether there is TLS.
    pub tls: bool,
    /// The port, by which cookies are told apart.
    pub port: u16,
}

impl Rules {
    /// Anybody who can reach this server may ask.
    #[must_use]
    pub fn open(port: u16, tls: bool) -> Self {
        Self { tokens: None, always: false, proxy: None, tls, port }
    }
}

/// Why somebody does not come in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error(
        "this collector wants a token: `tailwater token create NAME` on its host makes one, then --token-file FILE (TAILWATER_TOKEN_FILE); other programs send \"Authorization: Bearer TOKEN\""
    )]
    NoToken,
    #[error(
        "this token is none of this collector's: it was revoked or is over, or belongs to another; `tailwater token list` on its host has all names, `tailwater token create NAME` makes one"
    )]
    WrongToken,
    #[error("the Authorization header is not \"Bearer\" and a token")]
    NotBearer,
    #[error("the session is over: show a token again")]
    SessionOver,
    #[error(
        "too many wrong tokens came from this address: correct the token; the next wrong one is judged in {0} s"
    )]
    TooMany(u64),
    #[error(
        "{} has the role {}, this needs {needs}: `tailwater token create NAME --role {needs}` on the collector's host makes a token for it", who.name, who.role
    )]
    Role { who: Who, needs: Role },
    #[error(
        "this needs a token of the role {0}, also where no other is wanted: `tailwater token create NAME --role {0}` on the collector's host makes one"
    )]
    Proof(Role),
    #[error(
        "this request changes something and comes from another page ({0}): open this collector's own page; a proxy before it must pass the browser's Host on"
    )]
    Foreign(String),
    #[error("{0}")]
    Method(String),
    #[error("no role is set for this route: this is a bug; nobody is answered")]
    NoRight,
    #[error("a request's body is {BODY_BYTES_MAX} bytes at most")]
    Long,
    #[error("the request's body did not come within {} s", BODY_WITHIN.as_secs())]
    Late,
}

impl Refused {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::WrongToken | Self::NotBearer | Self::SessionOver => {
                StatusCode::UNAUTHORIZED
            }
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Role { .. } | Self::Proof(_) | Self::Foreign(_) => StatusCode::FORBIDDEN,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoRight => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Long => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Late => StatusCode::REQUEST_TIMEOUT,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::WrongToken | Self::NotBearer => "wrong_token",
            Self::SessionOver => "session_over",
            Self::TooMany(_) => "too_many_wrong",
            Self::Role { .. } | Self::Proof(_) => "role",
            Self::Foreign(_) => "foreign_page",
            Self::Method(_) | Self::NoRight => "no_such_route",
            Self::Long | Self::Late => "body",
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut answer = Problem(self.status(), self.to_string()).into_response();
        let headers = answer.headers_mut();
        match &self {
            Self::NoToken | Self::WrongToken | Self::NotBearer => {
                headers
                    .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tailwater\""));
            }
            Self::TooMany(seconds) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
            }
            _ => {}
        }
        answer
    }
}

impl Gate {
    /// By these rules.
    #[must_use]
    pub fn new(rules: Rules, metrics: Arc<Metrics>, clock: Clock) -> Self {
        Self {
            cookie: cookie_name(rules.port, rules.tls),
            tokens: rules.tokens,
            always: rules.always,
            proxy: rules.proxy,
            tls: rules.tls,
            sessions: Sessions::default(),
            attempts: Attempts::default(),
            audit: Audit::default(),
            metrics,
            clock,
        }
    }

    /// Whether everybody has to say who they are.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.always || self.proxy.is_some() || self.list().1
    }

    /// All tokens, and whether there were some.
    pub(super) fn list(&self) -> (Arc<Vec<Entry>>, bool) {
        let none = || (Arc::default(), false);
        self.tokens.as_ref().map_or_else(none, |tokens| tokens.current(self.clock.monotonic()))
    }

    /// The token that is shown, as long as it is good.
    pub(super) fn good(&self, shown: &str) -> Option<Entry> {
        let entry = Tokens::find(&self.list().0, &Token::parse(shown)?)?;
        (!entry.expired(self.now_unix_s())).then_some(entry)
    }

    fn now_unix_s(&self) -> u64 {
        self.clock.unix_ns() / 1_000_000_000
    }

    /// Counts a wrong token and says what to answer.
    fn wrong(&self, from: IpAddr, otherwise: Refused) -> Refused {
        match self.attempts.wrong(from, self.clock.monotonic()) {
            Wrong::Told => {
                tracing::warn!(%from, "a wrong token was shown");
                otherwise
            }
            Wrong::TooMany(after) => Refused::TooMany(after.as_secs().max(1)),
        }
    }

    /// What somebody who showed a wrong one in the page's form is told.
    pub(super) fn wrong_in_form(&self, from: IpAddr) -> Response {
        let refused = self.wrong(from, Refused::WrongToken);
        self.metrics.access_refused.inc(refused.kind());
        refused.into_response()
    }

    /// Who asks; `Ok(None)`: nobody who says so.
    fn who(&self, headers: &HeaderMap, from: IpAddr) -> Result<Option<Who>, Refused> {
        if !self.wanted() {
            return Ok(Some(Who::anybody()));
        }
        let known = |of: Entry, way| Who { name: of.name, role: of.role, way };
        if let Some(shown) = headers.get(header::AUTHORIZATION) {
            let bearer = shown.to_str().ok().and_then(|text| {
                let (scheme, token) = text.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
            });
            let token = bearer.ok_or_else(|| self.wrong(from, Refused::NotBearer))?;
            let entry = self.good(token).ok_or_else(|| self.wrong(from, Refused::WrongToken))?;
            return Ok(Some(known(entry, Way::Token)));
        }
        if let Some(session) = self.session(headers) {
            let hash = self.sessions.token(session, self.clock.monotonic());
            let entry = hash.and_then(|hash| {
                let (list, _) = self.list();
                let entry = list.iter().find(|of| of.sha256.same(&hash))?;
                (!entry.expired(self.now_unix_s())).then(|| entry.clone())
            });
            match entry {
                Some(entry) => return Ok(Some(known(entry, Way::Session))),
                None if self.by_proxy(headers, from).is_none() => return Err(Refused::SessionOver),
                None => {}
            }
        }
        Ok(self.by_proxy(headers, from))
    }

    /// What this server's cookie holds.
    pub(super) fn session<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        headers.get_all(header::COOKIE).iter().find_map(|line| cookie(line.to_str().ok()?, &self.cookie))
    }

    /// Whom the proxy names. What others put into its headers counts for nothing.
    fn by_proxy(&self, headers: &HeaderMap, from: IpAddr) -> Option<Who> {
        let proxy = self.proxy.as_ref()?;
        if !proxy.addresses.iter().any(|network| network.has(from)) {
            return None;
        }
        let name = only(headers, &proxy.user_header)?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return None;
        }
        let role = match proxy.role_header.as_deref().and_then(|header| only(headers, header)) {
            None => proxy.role,
            Some("send") => Role::Send,
            Some("read") => Role::Read,
            Some("operate") => Role::Operate,
            Some("admin") => Role::Admin,
            // A role that nobody knows lets do nothing.
            Some(_) => return None,
        };
        Some(Who { name: name.to_owned(), role, way: Way::Proxy })
    }

    fn judged(&self, request: &Request, from: IpAddr) -> Result<(Needs, Option<Who>), Refused> {
        let method = request.method();
        let needs = match request.extensions().get::<MatchedPath>() {
            // What is not there is told to those who may see what is.
            None => Needs::Role(Role::Read),
            Some(path) => match rights::of(method, path.as_str()) {
                Found::Needs(needs) => needs,
                Found::OtherMethod => return Err(Refused::Method(other_method(path.as_str()))),
                Found::Unknown => return Err(Refused::NoRight),
            },
        };
        let changes = !is_safe(method);
        if changes {
            own_page(request.uri(), request.headers())?;
        }
        let role = match needs {
            // A cookie of before is no reason to refuse the form.
            Needs::Nothing => return Ok((needs, self.who(request.headers(), from).ok().flatten())),
            Needs::Role(role) => role,
            Needs::Sending => Role::Send,
        };
        let who = self.who(request.headers(), from)?.ok_or(Refused::NoToken)?;
        // A session comes along by itself, whoever made the browser ask; browsers say where a POST comes from.
        if changes && who.way == Way::Session && !request.headers().contains_key(header::ORIGIN) {
            return Err(Refused::Foreign("it does not say which".into()));
        }
        if who.role < role || (needs == Needs::Sending && who.role == Role::Read) {
            return Err(match who.way {
                Way::Open => Refused::Proof(role),
                _ => Refused::Role { who, needs: role },
            });
        }
        Ok((needs, Some(who)))
    }
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(value)
}

/// Nothing is changed by these.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn other_method(path: &str) -> String {
    let methods: Vec<_> = rights::all().filter(|r| r.path == path).map(|r| r.method).collect();
    format!("{path} takes {} only", methods.join(" and "))
}

/// Whether a browser that sends this shows a page of this server. Programs that are no browsers send neither header.
fn own_page(uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
    if let Some(site) = headers.get("sec-fetch-site")
        && !["same-origin", "none"].iter().any(|fine| site == fine)
    {
        return Err(Refused::Foreign(format!("Sec-Fetch-Site: {}", site.to_str().unwrap_or("?"))));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let foreign = || Refused::Foreign(format!("Origin: {}", origin.to_str().unwrap_or("?")));
    let from: Uri = origin.to_str().ok().and_then(|text| text.parse().ok()).ok_or_else(foreign)?;
    let (Some(scheme), Some(from)) = (from.scheme_str(), from.authority()) else { return Err(foreign()) };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let host = uri.authority().cloned().or(host).ok_or_else(foreign)?;
    // A browser leaves a scheme's own port out in both; a proxy may say it in one.
    let usual = if scheme == "https" { 443 } else { 80 };
    let same = from.host().eq_ignore_ascii_case(host.host())
        && from.port_u16().unwrap_or(usual) == host.port_u16().unwrap_or(usual);
    if same && matches!(scheme, "http" | "https") { Ok(()) } else { Err(foreign()) }
}

/// Lets a request in, or says why not; notes what is changed.
pub(super) async fn check(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let from =
        request.extensions().get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
    let from = plain(from);
    let changes = !is_safe(request.method());
    let what = format!("{} {}", request.method(), request.uri().path());
    let refuse = |refused: Refused| {
        gate.metrics.access_refused.inc(refused.kind());
        refused.into_response()
    };
    let note = |who: Option<Who>, detail: String, status: StatusCode| {
        let (unix_ns, what, status) = (gate.clock.unix_ns(), what.clone(), status.as_u16());
        gate.audit.note(Change { unix_ns, who, from, what, detail, status });
    };
    let (needs, who) = match gate.judged(&request, from) {
        Ok(judged) => judged,
        Err(refused) => {
            // Of those whom nobody knows the count has to do, and of exporters, which come again without an end: they could write the log full.
            if changes
                && let Refused::Role { who, needs } = &refused
                && *needs != Role::Send
            {
                note(Some(who.clone()), String::new(), refused.status());
            }
            return refuse(refused);
        }
    };
    // Spans come by the hundred a second, and their handler bounds what it takes of a body.
    if !changes || needs == Needs::Sending {
        let mut request = request;
        // Whoever may only send is told no more than a stranger.
        if who.as_ref().is_none_or(|who| who.role == Role::Send) && gate.wanted() {
            request.extensions_mut().insert(Anonymous);
        }
        if let Some(who) = who {
            request.extensions_mut().insert(who);
        }
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_WITHIN, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return refuse(Refused::Long),
        Err(_) => return refuse(Refused::Late),
    };
    // What needs nothing takes secrets.
    let detail = match needs {
        Needs::Nothing => String::new(),
        Needs::Role(_) | Needs::Sending => String::from_utf8_lossy(&body).into_owned(),
    };
    let mut request = Request::from_parts(head, Body::from(body));
    if let Some(who) = who.clone() {
        request.extensions_mut().insert(who);
    }
    let answer = next.run(request).await;
    if needs != Needs::Nothing {
        note(who, detail, answer.status());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values.
    type Lines<'a> = &'a [(&'a str, &'a str)];

    fn headers(of: Lines<'_>) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        of.iter().map(pair).collect()
    }

    #[test]
    fn what_changes_something_comes_from_this_servers_page_or_from_no_page() {
        let judge = |of: &[(&str, &str)]| own_page(&Uri::from_static("/api/v1/record"), &headers(of));
        let own: &[&[(&str, &str)]] = &[
            &[("host", "a:4780")],
            &[("host", "a:4780"), ("origin", "http://a:4780")],
            &[("host", "A:4780"), ("origin", "https://a:4780"), ("sec-fetch-site", "same-origin")],
            &[("host", "a"), ("origin", "https://a")],
            &[("host", "a:443"), ("origin", "https://a")],
            &[("host", "[::1]:1"), ("origin", "http://[::1]:1")],
            &[("host", "a"), ("sec-fetch-site", "none")],
        ];
        for fine in own {
            assert_eq!(judge(fine), Ok(()), "{fine:?}");
        }
        let foreign: &[&[(&str, &str)]] = &[
            &[("host", "a:4780"), ("origin", "http://a:4781")],
            &[("host", "a:4780"), ("origin", "http://b:4780")],
            &[("host", "a:4780"), ("origin", "http://a.b:4780")],
            &[("host", "a:4780"), ("origin", "null")],
            &[("host", "a:4780"), ("origin", "a:4780")],
            &[("host", "a"), ("origin", "http://a:443")],
            &[("host", "a"), ("origin", "ftp://a")],
            &[("origin", "http://a")],
            &[("host", "a"), ("sec-fetch-site", "cross-site")],
            &[("host", "a"), ("origin", "http://a"), ("sec-fetch-site", "same-site")],
        ];
        for other in foreign {
            assert!(matches!(judge(other), Err(Refused::Foreign(_))), "{other:?}");
        }
    }

    fn gate(always: bool, proxy: Option<Proxy>) -> Gate {
        let rules = Rules { always, proxy, ..Rules::open(4780, false) };
        Gate::new(rules, Arc::default(), Clock::default())
    }

    #[test]
    fn a_proxys_word_counts_from_its_addresses_alone() {
        let proxy = Proxy {
            addresses: vec![String::from("10.0.0.0/30").try_into().unwrap()],
            user_header: "X-User".into(),
            role: Role::Read,
            role_header: Some("X-Role".into()),
        };
        let gate = gate(false, Some(proxy));
        assert!(gate.wanted(), "a proxy that names people is there to tell them from others");
        let ask = |from: [u8; 4], of: &[(&str, &str)]| gate.who(&headers(of), from.into()).unwrap();
        let role = |of: Option<Who>| of.map(|who| (who.name, who.role));
        let ann = |role| Some(("ann".to_owned(), role));
        assert_eq!(role(ask([10, 0, 0, 1], &[("x-user", "ann")])), ann(Role::Read));
        assert_eq!(role(ask([10, 0, 0, 1], &[("x-user", "ann"), ("x-role", "admin")])), ann(Role::Admin));
        let nobody: &[([u8; 4], Lines<'_>)] = &[
            ([10, 0, 0, 4], &[("x-user", "ann")]),
            ([127, 0, 0, 1], &[("x-user", "ann"), ("x-role", "admin")]),
            ([10, 0, 0, 1], &[]),
            ([10, 0, 0, 1], &[("x-user", "")]),
            ([10, 0, 0, 1], &[("x-user", "ann"), ("x-user", "bob")]),
            ([10, 0, 0, 1], &[("x-user", "ann"), ("x-role", "root")]),
            ([10, 0, 0, 1], &[("x-role", "admin")]),
        ];
        for (from, of) in nobody {
            assert_eq!(ask(*from, of), None, "{from:?} {of:?}");
        }
    }

    #[test]
    fn where_a_token_is_always_wanted_nobody_comes_in_without_one_and_else_anybody_does() {
        let from = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(gate(true, None).who(&HeaderMap::new(), from), Ok(None));
        assert_eq!(gate(false, None).who(&HeaderMap::new(), from), Ok(Some(Who::anybody())));
        let shown = headers(&[("authorization", "Basic eDp5")]);
        assert_eq!(gate(true, None).who(&shown, from), Err(Refused::NotBearer));
        let shown = headers(&[("authorization", "Bearer x")]);
        let gate = gate(true, None);
        assert!((0..10).all(|_| gate.who(&shown, from) == Err(Refused::WrongToken)));
        assert!(matches!(gate.who(&shown, from), Err(Refused::TooMany(1..=6))));
    }
}
