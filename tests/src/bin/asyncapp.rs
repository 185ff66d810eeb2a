//! The event-driven application tier: the same page and the same SQL as the servlet `Story`, on one thread that never waits. It
//! takes every connection, and asks the database on as many connections as it has requests, up to several hundred.
//! `GET /story?id=N[&comment=1]`; `GET /story?rebuild=MS` rebuilds an index that every request reads, and holds its lock for so long;
//! `GET /story?block=MS` does for so long what such a server must not: it sleeps on its thread.

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Pool, PoolConstraints, PoolOpts};
use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddrV4;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;
use tailwater_tests::console::failure;
use tailwater_tests::os::clock::unix_ns;
use tailwater_tests::os::process;
use tokio::net::TcpSocket;
use tokio::sync::RwLock;

/// Connections to the database at most, for each that is kept. An ordinary second needs a twentieth. More would have hundreds of the
/// database's threads run at once, and among them the one that accepts: what it then refuses comes again, and keeps it so for many
/// seconds.
const CONNECTIONS_MAX_PER_KEPT: usize = 4;

struct App {
    database: Pool,
    index: RwLock<()>,
}

fn main() -> ExitCode {
    ExitCode::from(failure::run("asyncapp", None, work))
}

fn work() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, listen, database, backlog, kept] = &arguments[..] else {
        anyhow::bail!("usage: asyncapp ADDRESS:PORT DATABASE:PORT BACKLOG KEPT-CONNECTIONS");
    };
    let listen: SocketAddrV4 = listen.parse().context("ADDRESS:PORT")?;
    let database: SocketAddrV4 = database.parse().context("DATABASE:PORT")?;
    let backlog: u32 = backlog.parse().context("BACKLOG")?;
    let kept: usize = kept.parse().context("KEPT-CONNECTIONS")?;
    process::raise_file_limit()?;
    let app = Rc::new(App { database: pool(database, kept)?, index: RwLock::new(()) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve(listen, backlog, app))
}

/// Keeps so many connections open, opens another whenever none is idle, and closes those beyond it after use.
fn pool(database: SocketAddrV4, kept: usize) -> Result<Pool> {
    let constraints = PoolConstraints::new(kept, CONNECTIONS_MAX_PER_KEPT * kept)
        .context("KEPT-CONNECTIONS is too many")?;
    let options = OptsBuilder::default()
        .ip_or_hostname(database.ip().to_string())
        .tcp_port(database.port())
        .user(Some("root"))
        .db_name(Some("bulletin"))
        .prefer_socket(false)
        // Known here, so that opening a connection needs no query for them.
        .max_allowed_packet(Some(16 << 20))
        .wait_timeout(Some(28_800))
        .pool_opts(PoolOpts::default().with_constraints(constraints).with_reset_connection(false));
    Ok(Pool::new(options))
}

async fn serve(listen: SocketAddrV4, backlog: u32, app: Rc<App>) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(listen.into()).with_context(|| format!("bind {listen}"))?;
    let listener = socket.listen(backlog).with_context(|| format!("listen on {listen}"))?;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, or a client that is gone again: others wait.
                eprintln!("asyncapp: accept: {error}");
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
        };
        stream.set_nodelay(true)?;
        let app = Rc::clone(&app);
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request| answer(Rc::clone(&app), request));
            let mut http = hyper::server::conn::http1::Builder::new();
            // A connection that breaks is its client's loss.
            let _ = http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(app: Rc<App>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let parameter = |name: &str| {
        let query = request.uri().query().unwrap_or_default();
        query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)).map(|(_, v)| v)
    };
    let (status, body) = if let Some(ms) = parameter("rebuild") {
        match ms.parse() {
            Ok(ms) => (StatusCode::OK, rebuild(&app, ms).await),
            Err(_) => (StatusCode::BAD_REQUEST, "rebuild must be a number".to_owned()),
        }
    } else if let Some(ms) = parameter("block") {
        match ms.parse() {
            Ok(ms) => (StatusCode::OK, block(ms)),
            Err(_) => (StatusCode::BAD_REQUEST, "block must be a number".to_owned()),
        }
    } else if let Some(id) = parameter("id").and_then(|id| id.parse().ok()) {
        match story(&app, id, parameter("comment").is_some()).await {
            Ok(Some(page)) => (StatusCode::OK, page),
            Ok(None) => (StatusCode::NOT_FOUND, String::new()),
            Err(error) => {
                eprintln!("asyncapp: story {id}: {error}");
                (StatusCode::SERVICE_UNAVAILABLE, "database".to_owned())
            }
        }
    } else {
        (StatusCode::BAD_REQUEST, "id must be a number".to_owned())
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    Ok(response)
}

/// Stands for work on shared data under a lock; says when it held it.
async fn rebuild(app: &App, ms: u64) -> String {
    let _held = app.index.write().await;
    let start_unix_ns = unix_ns();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    format!("{{\"start_unix_ns\":{start_unix_ns},\"end_unix_ns\":{}}}", unix_ns())
}

/// Stands for a call that waits on the thread of the event loop: a file, a resolver, a client library that knows no other way.
fn block(ms: u64) -> String {
    let start_unix_ns = unix_ns();
    std::thread::sleep(Duration::from_millis(ms));
    format!("{{\"start_unix_ns\":{start_unix_ns},\"end_unix_ns\":{}}}", unix_ns())
}

async fn story(app: &App, id: u32, comment: bool) -> mysql_async::Result<Option<String>> {
    drop(app.index.read().await);
    let mut database = app.database.get_conn().await?;
    let mut page = String::with_capacity(4096);
    let Some(author) = read_story(&mut database, id, &mut page).await? else {
        return Ok(None);
    };
    read_author(&mut database, author, &mut page).await?;
    read_comments(&mut database, id, &mut page).await?;
    if comment {
        let insert = format!("INSERT INTO comments (story, author, body) VALUES ({id}, {author}, 'me too')");
        database.query_drop(insert).await?;
    }
    page.push_str("</body></html>\n");
    Ok(Some(page))
}

async fn read_story(database: &mut Conn, id: u32, page: &mut String) -> mysql_async::Result<Option<u32>> {
    let query = format!("SELECT title, body, author FROM stories WHERE id = {id}");
    let row: Option<(String, String, u32)> = database.query_first(query).await?;
    Ok(row.map(|(title, body, author)| {
        // Writing to a string cannot fail.
        let _ = write!(page, "<html><body><h1>{title}</h1><p>{body}</p>");
        author
    }))
}

async fn read_author(database: &mut Conn, id: u32, page: &mut String) -> mysql_async::Result<()> {
    let query = format!("SELECT nickname, rating FROM users WHERE id = {id}");
    if let Some((nickname, rating)) = database.query_first::<(String, i32), _>(query).await? {
        let _ = write!(page, "<p>by {nickname} ({rating})</p>");
    }
    Ok(())
}

async fn read_comments(database: &mut Conn, story: u32, page: &mut String) -> mysql_async::Result<()> {
    let query = format!(
        "SELECT c.body, u.nickname FROM comments c JOIN users u ON u.id = c.author WHERE c.story = {story} ORDER BY c.id LIMIT 10"
    );
    for (body, nickname) in database.query::<(String, String), _>(query).await? {
        let _ = write!(page, "<p>{nickname}: {body}</p>");
    }
    Ok(())
}
