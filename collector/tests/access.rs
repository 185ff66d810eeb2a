//! Who may do what over HTTP: each role at each route, sessions and where they come from, wrong tokens, and how long anybody may take.
//! The command as a process, spoken to in bytes.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]
#![allow(clippy::disallowed_methods, reason = "tests need deadlines")]

mod common;

use common::{Serve, answer, ask, exchange, get, tailwater, wait_for};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use tailwater::access::role::Role;
use tailwater::serve::rights::{self, Needs};

/// `tailwater token …` on the collector of this folder: what it prints.
fn token(folder: &Path, arguments: &[&str]) -> String {
    let data = folder.join("data");
    let out = tailwater().arg("token").args(arguments).arg("--data").arg(data).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Method, path, who shows it, more headers, body: as bytes.
fn request(at: SocketAddr, what: (&str, &str), headers: &[&str], body: &str) -> String {
    let (method, path) = what;
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n");
    for header in headers {
        text += &format!("{header}\r\n");
    }
    if method == "POST" {
        text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    text + "\r\n" + body
}

/// The status alone: some answers do not end.
fn status(at: SocketAddr, request: &str) -> u16 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap()
}

/// What each route needs, once more and by hand: a new one has to be thought about here, too.
const EXPECTED: &[(&str, &str, Option<Role>)] = &[
    ("GET", "/", None),
    ("GET", "/incidents/{id}", None),
    ("GET", "/topology", None),
    ("GET", "/sizing", None),
    ("GET", "/silences", None),
    ("GET", "/hosts", None),
    ("GET", "/hosts/{host}", None),
    ("GET", "/page.js", None),
    ("GET", "/page.css", None),
    ("GET", "/inter.woff2", None),
    ("GET", "/mark.svg", None),
    ("GET", "/licenses.txt", None),
    ("GET", "/healthz", None),
    ("GET", "/livez", None),
    ("GET", "/readyz", None),
    ("GET", "/api/v1/me", None),
    ("POST", "/api/v1/login", None),
    ("POST", "/api/v1/logout", None),
    ("GET", "/api/v1/incidents", Some(Role::Read)),
    ("GET", "/api/v1/incidents/{id}", Some(Role::Read)),
    ("GET", "/api/v1/incidents/{id}/timeline", Some(Role::Read)),
    ("GET", "/api/v1/incidents/{id}/prevention", Some(Role::Read)),
    ("GET", "/api/v1/incidents/{id}/traces", Some(Role::Read)),
    ("GET", "/api/v1/topology", Some(Role::Read)),
    ("GET", "/api/v1/congestion", Some(Role::Read)),
    ("GET", "/api/v1/advice", Some(Role::Read)),
    ("GET", "/api/v1/hosts/{host}", Some(Role::Read)),
    ("GET", "/api/v1/now", Some(Role::Read)),
    ("GET", "/api/v1/series", Some(Role::Read)),
    ("GET", "/api/v1/responses", Some(Role::Read)),
    ("GET", "/api/v1/agents", Some(Role::Read)),
    ("GET", "/api/v1/status", Some(Role::Read)),
    ("GET", "/api/v1/inventory", Some(Role::Read)),
    ("GET", "/api/v1/live", Some(Role::Read)),
    ("GET", "/api/v1/alerts", Some(Role::Read)),
    ("GET", "/api/v1/silences", Some(Role::Read)),
    ("GET", "/metrics", Some(Role::Read)),
    ("POST", "/api/v1/alerts/resend", Some(Role::Operate)),
    ("POST", "/api/v1/silences", Some(Role::Operate)),
    ("POST", "/api/v1/silences/end", Some(Role::Operate)),
    ("POST", "/api/v1/record", Some(Role::Operate)),
    // Those who may only read may not send.
    ("POST", "/v1/traces", Some(Role::Send)),
    ("GET", "/api/v1/tokens", Some(Role::Admin)),
    ("GET", "/api/v1/audit", Some(Role::Admin)),
];

#[test]
fn each_role_gets_from_each_route_what_it_may_and_nothing_else() {
    let table: Vec<_> = rights::all()
        .map(|right| {
            let role = match right.needs {
                Needs::Nothing => None,
                Needs::Role(role) => Some(role),
                Needs::Sending => Some(Role::Send),
            };
            (right.method, right.path, role)
        })
        .collect();
    assert_eq!(table, EXPECTED);

    let folder = tempfile::tempdir().unwrap();
    let roles = [Role::Send, Role::Read, Role::Operate, Role::Admin];
    let tokens = roles.map(|role| token(folder.path(), &["create", role.name(), "--role", role.name()]));
    let serve = Serve::start(folder.path(), &[]);
    for (method, path, needs) in EXPECTED {
        let path = path.replace("{id}", "01KAJX3S9R7V5S9C8H1Z4T0000").replace("{host}", "web-1");
        let body = match path.as_str() {
            "/api/v1/alerts/resend" => "{\"id\":null}",
            "/api/v1/record" => "{\"seconds\":0}",
            "/api/v1/silences" if *method == "POST" => {
                "{\"for_s\":60,\"silence\":{\"comment\":\"a test\",\"host\":\"nowhere\"}}"
            }
            "/api/v1/silences/end" => "{\"id\":\"s0\"}",
            "/api/v1/login" => "{\"token\":\"tailwater_x\"}",
            _ => "",
        };
        let of = |headers: &[&str]| status(serve.http, &request(serve.http, (method, &path), headers, body));
        let nobody = of(&[]);
        let by_role = [0, 1, 2, 3].map(|n| of(&[&format!("Authorization: Bearer {}", tokens[n])]));
        let told = format!("{method} {path}: without {nobody}, by role {by_role:?}");
        let Some(needs) = needs else {
            // The form itself says whether its token is good.
            let fine = if path == "/api/v1/login" {
                401
            } else if *method == "POST" {
                204
            } else {
                200
            };
            assert!(nobody == fine && by_role == [fine; 4], "{told}");
            continue;
        };
        assert_eq!(nobody, 401, "{told}");
        for (role, got) in roles.iter().zip(by_role) {
            // Whoever is let in may have asked for something that is not there, or wrongly.
            let let_in = [200, 204, 400, 404].contains(&got);
            let may = role >= needs && (*needs, *role) != (Role::Send, Role::Read);
            assert!(if may { let_in } else { got == 403 }, "{told}");
        }
    }
    let admin = format!("Authorization: Bearer {}", tokens[3]);
    let admin = |path: &str| ask(serve.http, &request(serve.http, ("GET", path), &[&admin], "")).unwrap().1;
    let listed = admin("/api/v1/tokens");
    assert!(listed.contains("\"name\":\"operate\"") && !listed.contains("sha256"), "{listed}");
    // Who did what, and who was not let do it; of strangers there is a count.
    let changes: serde_json::Value = serde_json::from_str(&admin("/api/v1/audit")).unwrap();
    let changes: Vec<_> = changes["changes"].as_array().unwrap().iter().collect();
    let done = |name: &str, what: &str, status: u16| {
        let of = |c: &&&serde_json::Value| {
            c["who"]["name"] == name && c["what"] == what && c["status"] == status && c["from"] == "127.0.0.1"
        };
        changes.iter().filter(of).count()
    };
    assert_eq!(done("operate", "POST /api/v1/alerts/resend", 200), 1, "{changes:#?}");
    assert_eq!(done("admin", "POST /api/v1/record", 400), 1, "{changes:#?}");
    assert_eq!(done("read", "POST /api/v1/record", 403), 1, "{changes:#?}");
    assert_eq!(done("operate", "POST /api/v1/silences", 200), 1, "{changes:#?}");
    let silences: serde_json::Value = serde_json::from_str(&admin("/api/v1/silences")).unwrap();
    let by: Vec<_> = silences["silences"].as_array().unwrap().iter().map(|s| s["by"].clone()).collect();
    assert_eq!(by, ["operate", "admin"], "{silences:#}");
    let log = serve.log();
    assert!(log.contains("POST /api/v1/alerts/resend who=\"operate\""), "{log}");
    for token in &tokens {
        assert!(!log.contains(&token[10..]) && !listed.contains(&token[10..]), "no token is told");
    }
    // Other methods and other paths.
    let of = |method: &str, path: &str| status(serve.http, &request(serve.http, (method, path), &[], ""));
    assert_eq!((of("DELETE", "/api/v1/alerts"), of("GET", "/api/v1/record")), (405, 405));
    assert_eq!((of("HEAD", "/metrics"), of("GET", "/nowhere")), (401, 401));
}

#[test]
fn the_first_token_is_wanted_at_once_and_a_revoked_one_ends_with_its_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    let url = format!("http://{}", serve.http);
    assert_eq!(get(serve.http, "/api/v1/incidents").unwrap().0, 200, "nobody is asked");
    let me = || serve.json("/api/v1/me");
    assert_eq!((me()["wanted"].as_bool(), me()["who"]["way"].as_str()), (Some(false), Some("open")));
    // Without any token nobody is an admin.
    let (code, text) = get(serve.http, "/api/v1/audit").unwrap();
    assert!(code == 403 && text.contains("--role admin"), "{text}");

    let ann = token(folder.path(), &["create", "ann", "--role", "operate"]);
    wait_for("it to be wanted", || (get(serve.http, "/api/v1/incidents").unwrap().0 == 401).then_some(()));
    let (code, text) = get(serve.http, "/api/v1/incidents").unwrap();
    assert!(
        code == 401 && text.contains("tailwater token create") && text.contains("--token-file"),
        "{text}"
    );
    // Commands, by a file or a variable.
    let incidents = |more: &[&str]| {
        let out = tailwater().args(["incidents", "--collector", &url]).args(more).output().unwrap();
        (out.status.success(), String::from_utf8(out.stderr).unwrap())
    };
    let (fine, told) = incidents(&[]);
    assert!(
        !fine && told.contains("this collector wants a token") && told.contains("--token-file"),
        "{told}"
    );
    let file = folder.path().join("ann.token");
    std::fs::write(&file, format!("{ann}\n")).unwrap();
    assert_eq!(incidents(&["--token-file", file.to_str().unwrap()]), (true, String::new()));
    let mut by_variable = tailwater();
    by_variable.args(["incidents", "--collector", &url]).env("TAILWATER_TOKEN_FILE", &file);
    assert!(by_variable.status().unwrap().success());

    // A browser.
    let post = |path: &str, headers: &[&str], body: &str| {
        answer(serve.http, &request(serve.http, ("POST", path), headers, body)).unwrap()
    };
    let origin = format!("Origin: {url}");
    let shown = format!("{{\"token\":\"{ann}\"}}");
    assert!(post("/api/v1/login", &["Origin: http://evil.example"], &shown).0.contains("403 Forbidden"));
    let (head, _) = post("/api/v1/login", &[&origin], &shown);
    let set =
        head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap_or_else(|| panic!("{head}"));
    assert!(set.contains("; HttpOnly; SameSite=Strict") && !set.contains("Secure"), "{set}");
    assert!(set.starts_with(&format!("tailwater-{}=", serve.http.port())), "{set}");
    let cookie = format!("Cookie: other=1; {}", set.split(';').next().unwrap());
    let read = |cookie: &str| {
        exchange(serve.http, &request(serve.http, ("GET", "/api/v1/incidents"), &[cookie], ""))
    };
    assert_eq!(read(&cookie), 200);
    // What changes something comes from this page, and says so.
    let resend = |headers: &[&str]| {
        exchange(
            serve.http,
            &request(serve.http, ("POST", "/api/v1/alerts/resend"), headers, "{\"id\":null}"),
        )
    };
    assert_eq!(resend(&[&cookie, &origin]), 200);
    assert_eq!(resend(&[&cookie]), 403, "no origin");
    assert_eq!(resend(&[&cookie, "Origin: http://127.0.0.1:1"]), 403, "another server of this machine");
    assert_eq!(resend(&[&cookie, "Origin: null"]), 403);
    assert_eq!(resend(&[&cookie, &origin, "Sec-Fetch-Site: same-site"]), 403);
    let bearer = format!("Authorization: Bearer {ann}");
    assert_eq!((resend(&[&bearer]), resend(&[&bearer, "Origin: http://evil.example"])), (200, 403));

    assert!(post("/api/v1/logout", &[&cookie, &origin], "{}").0.contains("Max-Age=0"));
    assert_eq!(read(&cookie), 401, "it has ended");
    let (head, _) = post("/api/v1/login", &[&origin], &shown);
    let set = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("Cookie: {}", set.split(';').next().unwrap());
    assert_eq!(read(&cookie), 200);
    token(folder.path(), &["revoke", "ann"]);
    wait_for("the session to end", || (read(&cookie) == 401).then_some(()));
    assert_eq!(get(serve.http, "/readyz").unwrap(), (200, "ready\n".into()));
    serve.wait_log("token revoked token=ann");
    let (grpc, http) = (serve.grpc, serve.http);
    drop(serve);
    let serve = Serve::start_at(folder.path(), grpc, http, &[]);
    assert_eq!(get(serve.http, "/metrics").unwrap().0, 401, "with no token left, nobody comes in");
}

#[test]
fn wrong_tokens_are_counted_and_slowed_and_a_right_one_comes_in_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let right = token(folder.path(), &["create", "a"]);
    let short = token(folder.path(), &["create", "b", "--expires", "1s"]);
    let serve = Serve::start(folder.path(), &[]);
    let shown = |token: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        let (head, body) =
            answer(serve.http, &request(serve.http, ("GET", "/metrics"), &[&bearer], "")).unwrap();
        (head.split(' ').nth(1).unwrap().parse::<u16>().unwrap(), head, body)
    };
    wait_for("it to be over", || (shown(&short).0 != 200).then_some(()));
    let wrong =
        format!("{}{}", &right[..right.len() - 3], if right.ends_with("AAA") { "BBA" } else { "AAA" });
    let mut seen = Vec::new();
    for _ in 0..14 {
        seen.push(shown(&wrong).0);
    }
    assert!(seen[..6].iter().all(|code| *code == 401) && seen[11..].contains(&429), "{seen:?}");
    let (_, head, body) = wait_for("a pause", || Some(shown(&wrong)).filter(|(code, ..)| *code == 429));
    assert!(head.contains("retry-after: ") && body.contains("correct the token"), "{head} {body}");
    let (code, _, metrics) = shown(&right);
    assert_eq!(code, 200, "nobody can lock it out");
    assert!(metrics.contains("tailwater_access_refused_total{reason=\"too_many_wrong\"}"), "{metrics}");
    assert!(metrics.contains("tailwater_access_refused_total{reason=\"wrong_token\"}"), "{metrics}");
    let log = serve.log();
    assert!(log.contains("a wrong token was shown") && !log.contains(&wrong[10..20]), "{log}");
}

#[test]
fn a_request_has_its_limits_and_others_do_not_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    let open = |bytes: &str| {
        let mut stream = TcpStream::connect(serve.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // One that is too long is not read to its end.
        let _ = stream.write_all(bytes.as_bytes());
        stream
    };
    let begun = Instant::now();
    let host = format!("Host: {}", serve.http);
    let half_head = open(&format!("GET / HTTP/1.1\r\n{host}\r\nX: "));
    let kept = open(&format!("GET /healthz HTTP/1.1\r\n{host}\r\n\r\n"));
    let half_body = open(&format!(
        "POST /api/v1/record HTTP/1.1\r\n{host}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{"
    ));
    let long_head = open(&format!("GET / HTTP/1.1\r\n{host}\r\nX: {}\r\n\r\n", "x".repeat(400_000)));
    let long_body = request(serve.http, ("POST", "/api/v1/record"), &[], &"x".repeat(70_000));
    let ended = |mut stream: TcpStream| {
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        (text, begun.elapsed())
    };
    assert_eq!(status(serve.http, &long_body), 413);
    assert!(!ended(long_head).0.contains(" 200 "), "a head of 400 kB");
    assert_eq!(get(serve.http, "/healthz").unwrap().0, 200, "others are answered");
    let (text, took) = ended(half_body);
    assert!(text.contains(" 408 ") && took >= Duration::from_secs(9), "{took:?}: {text}");
    let (text, took) = ended(half_head);
    assert!(!text.contains(" 200 ") && took >= Duration::from_secs(29), "{took:?}: {text}");
    let (text, took) = ended(kept);
    assert!(text.contains(" 200 ") && took < Duration::from_secs(50), "{took:?}: {text}");
    assert!(serve.metric("tailwater_http_refused_total{reason=\"silent\"}") >= 1);
}
