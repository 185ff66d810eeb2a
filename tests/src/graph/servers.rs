//! Servers as others run them, in a graph: what they are told, so that they do what their service's part says, when they are ready, and what has
//! them stall. Knows no process.

use crate::graph::part::{Part, Protocol, Runtime};
use crate::graph::wire;
use crate::lab::{Span, mariadb, postgres};
use crate::os::clock::unix_ns;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Connections that a proxy takes at most: more than any injection makes.
const CONNECTIONS_MAX: u32 = 4_000;
/// A proxy keeps an idle connection for so long, as callers of the other runtimes do.
const KEPT_S: u32 = 4;
/// What is looked up, as long as the others' answers.
const VALUE_BYTES: usize = 200;
/// Connections to a database beside twice those that its callers keep (whoever gives up opens another one, while the one before still waits for a lock):
/// ours, and those that it keeps for whoever looks after it.
const DATABASE_RESERVE: u32 = 10;
/// What a database is told beside where it listens. Nothing is written but its row, so that nothing has to be safe on a disk.
const DATABASE_SETTINGS: &[&str] = &[
    "unix_socket_directories=",
    "shared_buffers=16MB",
    "dynamic_shared_memory_type=mmap",
    "fsync=off",
    "autovacuum=off",
    "jit=off",
    "max_wal_senders=0",
    "wal_level=minimal",
    "max_logical_replication_workers=0",
    "max_wal_size=32MB",
    "min_wal_size=32MB",
];
/// The same of MariaDB, for which nobody needs a password.
const MARIADB_SETTINGS: &[&str] = &[
    "--no-defaults",
    "--user=root",
    "--skip-grant-tables",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--innodb-buffer-pool-size=16M",
    "--innodb-flush-log-at-trx-commit=0",
    "--aria-pagecache-buffer-size=1M",
    "--key-buffer-size=1M",
    MARIADB_LOG_SIZE,
];
const MARIADB_LOG_SIZE: &str = "--innodb-log-file-size=8M";
/// In a service's folder: where nginx hands requests to php-fpm.
const PHP_SOCKET: &str = "php.sock";
/// Where Tomcat is installed.
const TOMCAT_HOME: &str = "/usr/share/tomcat10";
/// What its machine is told: a compiler that is done within seconds, and takes nothing of the quota later on, and little memory.
const JAVA_SETTINGS: &[&str] = &[
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xss256k",
    "-Xms48m",
    "-Xmx48m",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.util.logging.manager=org.apache.juli.ClassLoaderLogManager",
];
/// In place of what Tomcat has every application have: an engine of pages, which searches all libraries when it starts.
const NO_WEB_XML: &str = "<web-app xmlns=\"https://jakarta.ee/xml/ns/jakartaee\" version=\"6.0\"/>\n";
/// So many requests have Tomcat's code compiled, while nothing limits its CPU yet.
const COMPILED_AFTER: u32 = 300;
/// What a server is asked before anybody else asks it.
const REQUEST: &[u8] = b"GET /call HTTP/1.1\r\nHost: graph\r\nConnection: close\r\n\r\n";
/// A server says something within this, or it hangs.
const SAYS_WITHIN: Duration = Duration::from_secs(30);

/// Writes a server's configuration into its folder and returns what starts it in the foreground.
///
/// # Errors
/// A part that it cannot play, a folder that cannot be written.
pub(super) fn prepare(part: &Part, folder: &Path) -> Result<Command> {
    let written = |name: &str, text: String| write(folder, name, text);
    let mut command;
    match part.runtime {
        Runtime::Nginx | Runtime::PhpFpm => {
            let is_php = part.runtime == Runtime::PhpFpm;
            let text = if is_php { before_php(part, folder) } else { proxy(part, folder)? };
            command = Command::new("/usr/sbin/nginx");
            command.arg("-p").arg(folder).args(["-e", "stderr", "-c"]).arg(written("nginx.conf", text)?);
        }
        Runtime::Haproxy => {
            command = Command::new("/usr/sbin/haproxy");
            command.args(["-db", "-f"]).arg(written("haproxy.cfg", haproxy(part)?)?);
        }
        Runtime::Apache => {
            command = Command::new("/usr/sbin/apache2");
            command.args(["-DFOREGROUND", "-f"]).arg(written("apache.conf", apache(part, folder)?)?);
        }
        Runtime::Redis => {
            command = Command::new("/usr/bin/redis-server");
            command.arg(written("redis.conf", redis(part, folder))?);
        }
        Runtime::Memcached => {
            command = Command::new("/usr/bin/memcached");
            command.args(["-u", "root", "-U", "0", "-m", "16", "-l"]).arg(part.listen.to_string());
            command.args(["-c", &CONNECTIONS_MAX.to_string(), "-b", &part.backlog.to_string()]);
        }
        Runtime::Postgres => {
            let data = folder.join("data");
            postgres::make_empty(folder, &data)?;
            let access = written("access.conf", postgres::ACCESS.to_owned())?;
            command = postgres::server(&data)?;
            command.arg(format!("--hba-file={}", access.display()));
            let own = [
                format!("listen_addresses={}", part.listen.ip()),
                format!("port={}", part.listen.port()),
                format!("max_connections={}", 2 * part.workers + DATABASE_RESERVE),
            ];
            for setting in own.iter().map(String::as_str).chain(DATABASE_SETTINGS.iter().copied()) {
                command.args(["-c", setting]);
            }
        }
        Runtime::Mariadb => {
            let data = folder.join("data");
            mariadb::make_empty(&data, MARIADB_LOG_SIZE)?;
            command = Command::new("/usr/sbin/mariadbd");
            command.args(MARIADB_SETTINGS).args([
                format!("--datadir={}", data.display()),
                format!("--socket={}", folder.join("mariadb.sock").display()),
                format!("--pid-file={}", folder.join("mariadb.pid").display()),
                format!("--bind-address={}", part.listen.ip()),
                format!("--port={}", part.listen.port()),
                format!("--back-log={}", part.backlog),
                format!("--max-connections={}", 2 * part.workers + DATABASE_RESERVE),
            ]);
        }
        Runtime::Gunicorn => {
            let told = written("part.json", serde_json::to_string_pretty(part)?)?;
            written("service.py", include_str!("../../graph/service.py").to_owned())?;
            command = Command::new("/usr/bin/gunicorn");
            command.args(["--worker-class", "sync", "--preload", "--timeout", "120"]);
            command.args(["--workers", &part.workers.to_string(), "--backlog", &part.backlog.to_string()]);
            command.args(["--bind", &part.listen.to_string(), "--log-level", "warning"]);
            command.arg("--env").arg(format!("PART={}", told.display()));
            // Workers touch a file to show that they live; not on a disk.
            command.arg("--worker-tmp-dir").arg(folder).arg("--chdir").arg(folder).arg("service:application");
        }
        Runtime::Pgbouncer => {
            command = postgres::as_its_user("/usr/sbin/pgbouncer");
            command.arg(written("pgbouncer.ini", pgbouncer(part)?)?);
        }
        Runtime::Tomcat => {
            for name in ["conf", "logs", "temp", "work"] {
                let of = folder.join(name);
                fs::create_dir_all(&of).with_context(|| format!("create {}", of.display()))?;
            }
            written("conf/server.xml", tomcat(part))?;
            written("conf/web.xml", NO_WEB_XML.to_owned())?;
            let logging = include_str!("../../lab/logging.properties").to_owned();
            let logging = written("conf/logging.properties", logging)?;
            let told = written("part.properties", properties(part))?;
            command = Command::new("/usr/bin/java");
            command.args(JAVA_SETTINGS).args([
                format!("-Djava.util.logging.config.file={}", logging.display()),
                format!("-Djava.io.tmpdir={}", folder.join("temp").display()),
                format!("-Dcatalina.home={TOMCAT_HOME}"),
                format!("-Dcatalina.base={}", folder.display()),
                format!("-Dgraph.part={}", told.display()),
            ]);
            let classes = format!("{TOMCAT_HOME}/bin/bootstrap.jar:{TOMCAT_HOME}/bin/tomcat-juli.jar");
            command.args(["-cp", &classes, "org.apache.catalina.startup.Bootstrap", "start"]);
        }
        other => bail!("{} is no server as others run it", other.name()),
    }
    Ok(command)
}

/// The application that Tomcat has, compiled.
fn application() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target").join("tomcat")
}

/// Fails where what a server is to run is not compiled.
///
/// # Errors
/// It is not.
pub(super) fn check_compiled(runtime: Runtime) -> Result<()> {
    let class = application().join("WEB-INF/classes/Service.class");
    let is_there = runtime != Runtime::Tomcat || class.exists();
    ensure!(is_there, "{} is not compiled: run tests/graph/install.sh", class.display());
    Ok(())
}

/// The same of what runs beside a server, in a cgroup of its own, and is started before it; most have nothing.
///
/// # Errors
/// A folder that cannot be written.
pub(super) fn prepare_beside(part: &Part, folder: &Path) -> Result<Option<Command>> {
    if part.runtime != Runtime::PhpFpm {
        return Ok(None);
    }
    write(folder, "part.json", serde_json::to_string_pretty(part)?)?;
    write(folder, "service.php", include_str!("../../graph/service.php").to_owned())?;
    let mut command = Command::new("/usr/sbin/php-fpm8.2");
    command.args(["-n", "-R", "-F", "-y"]).arg(write(folder, "php-fpm.conf", php_fpm(part, folder))?);
    Ok(Some(command))
}

/// The longest queue that a server's sockets are to have, which its host must allow.
pub(super) fn longest_queue(part: &Part) -> u32 {
    // At a Unix socket whoever finds the queue full is refused without a packet that anybody could count: it does not happen there, and what fills up
    // is what stands before.
    if part.runtime == Runtime::PhpFpm { CONNECTIONS_MAX } else { part.backlog }
}

fn write(folder: &Path, name: &str, text: String) -> Result<PathBuf> {
    let file = folder.join(name);
    fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}

fn apache(part: &Part, folder: &Path) -> Result<String> {
    let [call] = part.calls.as_slice() else { bail!("Apache passes requests on to one service") };
    let (workers, listen, backlog, to) = (part.workers, part.listen, part.backlog, call.to);
    let wait_s = call.timeout_ms.div_ceil(1_000);
    let kept = match call.pool {
        0 => "disablereuse=On".to_owned(),
        pool => format!("max={pool} smax={pool} ttl={KEPT_S} acquire={}", call.timeout_ms),
    };
    let modules: String = ["mpm_worker", "authz_core", "proxy", "proxy_http"]
        .map(|of| format!("LoadModule {of}_module /usr/lib/apache2/modules/mod_{of}.so\n"))
        .concat();
    // One child, so that its limit is one number and does not depend on spare children.
    Ok(format!(
        "ServerRoot {folder}
DefaultRuntimeDir {folder}
PidFile {folder}/apache2.pid
Mutex file:{folder} default
ServerName graph
User www-data
Group www-data
{modules}StartServers 1
ServerLimit 1
ThreadLimit {workers}
ThreadsPerChild {workers}
MaxRequestWorkers {workers}
MinSpareThreads 1
MaxSpareThreads {workers}
MaxConnectionsPerChild 0
Listen {listen}
ListenBacklog {backlog}
AcceptFilter http none
Timeout 60
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 10
ErrorLog /dev/stderr
LogLevel warn
<Location \"/\">
    Require all granted
</Location>
ProxyRequests Off
ProxyPass \"/\" \"http://{to}/\" {kept} retry=0 connectiontimeout={wait_s} timeout={wait_s}
",
        folder = folder.display()
    ))
}

fn proxy(part: &Part, folder: &Path) -> Result<String> {
    let [call] = part.calls.as_slice() else { bail!("nginx passes requests on to one service") };
    let (kept, connection) = match call.pool {
        0 => (String::new(), "close"),
        pool => {
            (format!("keepalive {pool}; keepalive_timeout {KEPT_S}s; keepalive_requests 1000000;"), "\"\"")
        }
    };
    let (to, wait) = (call.to, call.timeout_ms);
    let upstream = format!("upstream called {{ server {to} max_fails=0; {kept} }}");
    let does = format!(
        "proxy_pass http://called;
            proxy_http_version 1.1;
            proxy_set_header Connection {connection};
            proxy_connect_timeout {wait}ms;
            proxy_read_timeout {wait}ms;
            proxy_next_upstream off;"
    );
    Ok(nginx(part, folder, &upstream, &does))
}

fn before_php(part: &Part, folder: &Path) -> String {
    let does = format!(
        "fastcgi_pass unix:{folder}/{PHP_SOCKET};
            fastcgi_param SCRIPT_FILENAME {folder}/service.php;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param PART {folder}/part.json;",
        folder = folder.display()
    );
    nginx(part, folder, "", &does)
}

/// nginx with one worker: whom it knows, and what it does with each request.
fn nginx(part: &Part, folder: &Path, upstream: &str, does: &str) -> String {
    let (listen, backlog) = (part.listen, part.backlog);
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("    {of}_temp_path {}/{of};\n", folder.display()))
        .concat();
    format!(
        "daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections {CONNECTIONS_MAX}; multi_accept on; }}
http {{
    access_log off;
{temp}    keepalive_requests 1000000;
    {upstream}
    server {{
        listen {listen} backlog={backlog};
        location / {{
            {does}
        }}
    }}
}}
",
        folder = folder.display()
    )
}

fn php_fpm(part: &Part, folder: &Path) -> String {
    let (workers, backlog) = (part.workers, longest_queue(part));
    // What PHP complains of would stand in the answer.
    format!(
        "[global]
error_log = /dev/stderr
log_level = warning
daemonize = no
[service]
user = root
group = root
listen = {folder}/{PHP_SOCKET}
listen.backlog = {backlog}
pm = static
pm.max_children = {workers}
php_admin_flag[display_errors] = off
",
        folder = folder.display()
    )
}

/// As many connections as threads, so that further ones wait in the accept queue, as where a thread has a connection and not a request.
fn tomcat(part: &Part) -> String {
    let (address, port, backlog) = (part.listen.ip(), part.listen.port(), part.backlog);
    let workers = part.workers;
    format!(
        "<Server port=\"-1\">
  <Service name=\"Catalina\">
    <Connector address=\"{address}\" port=\"{port}\" protocol=\"org.apache.coyote.http11.Http11NioProtocol\"
               maxThreads=\"{workers}\" minSpareThreads=\"{workers}\" maxConnections=\"{workers}\"
               acceptCount=\"{backlog}\" connectionTimeout=\"10000\" keepAliveTimeout=\"10000\" maxKeepAliveRequests=\"-1\" />
    <Engine name=\"Catalina\" defaultHost=\"localhost\">
      <Host name=\"localhost\" appBase=\"webapps\" autoDeploy=\"false\" startStopThreads=\"1\">
        <Context path=\"\" docBase=\"{application}\" reloadable=\"false\">
          <JarScanner scanClassPath=\"false\" scanManifest=\"false\" />
        </Context>
      </Host>
    </Engine>
  </Service>
</Server>
",
        application = application().display()
    )
}

/// A part as Java's own library reads it.
fn properties(part: &Part) -> String {
    let mut lines = vec![
        format!("cpu_us={}", part.cpu_us),
        format!("sleep_us={}", part.sleep_us),
        format!("allocate_bytes={}", part.allocate_bytes),
        format!("calls={}", part.calls.len()),
    ];
    for (index, call) in part.calls.iter().enumerate() {
        lines.extend([
            format!("call.{index}.to={}", call.to),
            format!("call.{index}.share_percent={}", call.share_percent),
            format!("call.{index}.pool={}", call.pool),
            format!("call.{index}.timeout_ms={}", call.timeout_ms),
        ]);
    }
    lines.join("\n") + "\n"
}

fn haproxy(part: &Part) -> Result<String> {
    let [call] = part.calls.as_slice() else { bail!("HAProxy passes requests on to one service") };
    let (listen, backlog, to, wait) = (part.listen, part.backlog, call.to, call.timeout_ms);
    let reuse = if call.pool == 0 { "never" } else { "always" };
    let kept = call.pool;
    // It sends a refused connection not again itself: the kernel does.
    Ok(format!(
        "global
    maxconn {CONNECTIONS_MAX}
    nbthread 1
defaults
    mode http
    timeout connect {wait}ms
    timeout client 60s
    timeout server {wait}ms
    timeout http-keep-alive 10s
    retries 0
frontend front
    bind {listen} backlog {backlog}
    default_backend called
backend called
    http-reuse {reuse}
    server one {to} pool-max-conn {kept} pool-purge-delay {KEPT_S}s
"
    ))
}

fn redis(part: &Part, folder: &Path) -> String {
    let (address, port, backlog) = (part.listen.ip(), part.listen.port(), part.backlog);
    format!(
        "bind {address}
port {port}
protected-mode no
tcp-backlog {backlog}
maxclients {CONNECTIONS_MAX}
dir {folder}
save \"\"
appendonly no
daemonize no
logfile \"\"
enable-debug-command yes
",
        folder = folder.display()
    )
}

fn pgbouncer(part: &Part) -> Result<String> {
    let [call] = part.calls.as_slice() else { bail!("pgbouncer passes statements on to one database") };
    let (address, port, backlog, pool) = (part.listen.ip(), part.listen.port(), part.backlog, call.pool);
    let (to, wait_s) = (call.to, f64::from(call.timeout_ms) / 1_000.0);
    // Whoever comes is taken for the database's own user. A database that has no room for one more connection is asked again soon, and not
    // after 15 s.
    Ok(format!(
        "[databases]
postgres = host={to_address} port={to_port} dbname=postgres user=postgres
[pgbouncer]
listen_addr = {address}
listen_port = {port}
listen_backlog = {backlog}
tcp_defer_accept = 0
unix_socket_dir =
auth_type = any
server_tls_sslmode = disable
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = {CONNECTIONS_MAX}
query_wait_timeout = {wait_s}
server_connect_timeout = {wait_s}
server_login_retry = 0.2
log_connections = 0
log_disconnections = 0
log_stats = 0
",
        to_address = to.ip(),
        to_port = to.port()
    ))
}

/// Whether a server is ready; whatever has to be in it is put there.
///
/// # Errors
/// It listens, and cannot be used.
pub(super) fn is_ready(part: &Part) -> Result<bool> {
    let within = Duration::from_secs(1);
    let Ok(stream) = TcpStream::connect_timeout(&SocketAddr::V4(part.listen), within) else {
        return Ok(false);
    };
    drop(stream);
    let note = "a".repeat(VALUE_BYTES);
    match part.runtime {
        Runtime::Redis => say(part.listen, &wire::command(&["SET", wire::KEY, &note]), b"+OK")?,
        Runtime::Memcached => {
            let set = format!("set {} 0 0 {VALUE_BYTES}\r\n{note}\r\n", wire::KEY);
            say(part.listen, set.as_bytes(), b"STORED")?;
        }
        Runtime::Postgres | Runtime::Mariadb => {
            let mut database = match Database::open(part) {
                Ok(database) => database,
                // It listens before it takes statements.
                Err(error) if format!("{error:#}").contains("starting up") => return Ok(false),
                Err(error) => return Err(error),
            };
            let table = wire::table(part.runtime.protocol());
            if part.runtime == Runtime::Mariadb {
                database.does("CREATE DATABASE graph")?;
            }
            database.does(&format!("CREATE TABLE {table} (id int PRIMARY KEY, note text NOT NULL)"))?;
            database.does(&format!("INSERT INTO {table} VALUES (1, '{note}')"))?;
            if part.runtime == Runtime::Postgres {
                database.does(&format!("VACUUM (FREEZE, ANALYZE) {table}"))?;
            }
        }
        // It greets nobody before it has reached the database.
        Runtime::Pgbouncer => Database::open(part)?.exchange(&wire::question(Protocol::Postgres))?,
        // Both listen before they can serve: nginx though nobody stands behind it, and Tomcat while it loads its application.
        Runtime::PhpFpm | Runtime::Tomcat => {
            let times = if part.runtime == Runtime::Tomcat { COMPILED_AFTER } else { 1 };
            return Ok((0..times).all(|_| say(part.listen, REQUEST, b"HTTP/1.1 200 ").is_ok()));
        }
        _ => {}
    }
    Ok(true)
}

/// Has a server stall for so long: Redis sleeps on the thread of its event loop, and in a database somebody holds the lock that all requests wait
/// for. When it did.
///
/// # Errors
/// It cannot be reached, or does not do so, or cannot be made to.
pub(super) fn stall(part: &Part, ms: u64) -> Result<Span> {
    let start_unix_ns;
    match part.runtime {
        Runtime::Redis => {
            start_unix_ns = unix_ns();
            let sleep = wire::command(&["DEBUG", "SLEEP", &format!("{:.3}", ms as f64 / 1_000.0)]);
            say(part.listen, &sleep, b"+OK")?;
        }
        Runtime::Postgres | Runtime::Mariadb => {
            let table = wire::table(part.runtime.protocol());
            let (takes, gives_back) = if part.runtime == Runtime::Postgres {
                (vec!["BEGIN".to_owned(), format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")], "COMMIT")
            } else {
                (vec![format!("LOCK TABLES {table} WRITE")], "UNLOCK TABLES")
            };
            let mut database = Database::open(part)?;
            takes.iter().try_for_each(|statement| database.does(statement))?;
            start_unix_ns = unix_ns();
            std::thread::sleep(Duration::from_millis(ms));
            database.does(gives_back)?;
        }
        other => bail!("{} is not made to stall", other.name()),
    }
    Ok(Span { start_unix_ns, end_unix_ns: unix_ns() })
}

/// Asks something of a server, whose answer begins so.
fn say(at: SocketAddrV4, request: &[u8], answer: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(at).with_context(|| format!("connect to {at}"))?;
    stream.set_read_timeout(Some(SAYS_WITHIN))?;
    stream.write_all(request)?;
    let mut said = vec![0; answer.len()];
    stream.read_exact(&mut said).with_context(|| format!("hear what {at} says"))?;
    ensure!(
        said == answer,
        "{at} said {:?} where {:?} is right",
        said.escape_ascii().to_string(),
        answer.escape_ascii().to_string()
    );
    Ok(())
}

/// A connection to a database.
struct Database {
    stream: TcpStream,
    protocol: Protocol,
}

impl Database {
    fn open(part: &Part) -> Result<Self> {
        let at = part.listen;
        let stream = TcpStream::connect(at).with_context(|| format!("connect to {at}"))?;
        stream.set_read_timeout(Some(SAYS_WITHIN))?;
        let mut database = Self { stream, protocol: part.runtime.protocol() };
        for greeting in wire::greetings(database.protocol) {
            database.exchange(&greeting)?;
        }
        Ok(database)
    }

    fn does(&mut self, statement: &str) -> Result<()> {
        let request = wire::statement(self.protocol, statement);
        self.exchange(&request).with_context(|| statement.to_owned())
    }

    fn exchange(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request)?;
        let mut answer = Vec::new();
        while !wire::is_whole(self.protocol, &answer)? {
            let mut piece = [0; 1024];
            let read = self.stream.read(&mut piece)?;
            ensure!(read > 0, "the database closed the connection");
            answer.extend_from_slice(&piece[..read]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::plan::Graph;

    fn texts(folder: &Path) -> String {
        let paths = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let text = |path: PathBuf| match path.is_dir() {
            true => texts(&path),
            false => fs::read_to_string(path).unwrap(),
        };
        paths.map(text).collect()
    }

    /// All that a server is told, and what runs beside it: their files, and its command.
    fn told(part: &Part) -> String {
        let folder = tempfile::tempdir().unwrap();
        let beside = prepare_beside(part, folder.path()).unwrap();
        assert_eq!(beside.is_some(), part.runtime.beside().is_some(), "{}", part.runtime.name());
        let command = prepare(part, folder.path()).unwrap();
        let arguments: Vec<&str> = command.get_args().filter_map(|of| of.to_str()).collect();
        format!("{}\n{}", arguments.join(" "), texts(folder.path()))
    }

    #[test]
    fn servers_of_graphs_are_told_where_they_listen_and_whom_they_call() {
        let mut seen = Vec::new();
        for graph in (0..60).map(|seed| Graph::of(seed, 2)) {
            for service in 0..graph.services.len() {
                let part = graph.part(service);
                // A database's files are made by a program, which may need root.
                if part.runtime.takes_orders() || part.runtime.is_database() {
                    continue;
                }
                let text = told(&part);
                assert!(text.contains(&part.listen.port().to_string()), "{text}");
                let is_told = |to: SocketAddrV4| {
                    let apart = format!("host={} port={}", to.ip(), to.port());
                    text.contains(&to.to_string()) || text.contains(&apart)
                };
                assert!(part.calls.iter().all(|call| is_told(call.to)), "{text}");
                seen.push(part.runtime);
            }
        }
        let all = [
            Runtime::Nginx,
            Runtime::Haproxy,
            Runtime::Apache,
            Runtime::Redis,
            Runtime::Memcached,
            Runtime::Gunicorn,
            Runtime::Pgbouncer,
            Runtime::PhpFpm,
            Runtime::Tomcat,
        ];
        for runtime in all {
            assert!(seen.iter().filter(|of| **of == runtime).count() >= 5, "{}: {seen:?}", runtime.name());
        }
    }

    #[test]
    fn a_service_that_takes_orders_is_none_of_them() {
        let part = Graph::of(1, 2).part(0);
        let folder = tempfile::tempdir().unwrap();
        let error = prepare(&Part { runtime: Runtime::Threads, ..part }, folder.path()).unwrap_err();
        assert!(error.to_string().contains("threads"), "{error}");
    }
}
