//! Servers as others run them, in a graph: what they are told, so that they do what their service's part says, and when they are ready. Knows
//! no process and no orders, but the one command that has Redis sleep.

use crate::graph::part::{Part, Runtime};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Connections that a proxy takes at most: more than any injection makes.
const CONNECTIONS_MAX: u32 = 4_000;
/// A proxy keeps an idle connection for so long, as callers of the other runtimes do.
const KEPT_S: u32 = 4;
/// What is looked up, as long as the others' answers.
const VALUE_BYTES: usize = 200;
/// Redis says something within this, or it hangs.
const SAYS_WITHIN: Duration = Duration::from_secs(30);

/// Writes a server's configuration into its folder and returns what starts it in the foreground.
///
/// # Errors
/// A part that it cannot play, a folder that cannot be written.
pub(super) fn prepare(part: &Part, folder: &Path) -> Result<Command> {
    let (text, name) = match part.runtime {
        Runtime::Nginx => (nginx(part, folder)?, "nginx.conf"),
        Runtime::Haproxy => (haproxy(part)?, "haproxy.cfg"),
        Runtime::Redis => (redis(part, folder), "redis.conf"),
        other => bail!("{} is no server as others run it", other.name()),
    };
    let file = folder.join(name);
    fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    let mut command;
    match part.runtime {
        Runtime::Nginx => {
            command = Command::new("/usr/sbin/nginx");
            command.arg("-p").arg(folder).arg("-e").arg("stderr").arg("-c").arg(file);
        }
        Runtime::Haproxy => {
            command = Command::new("/usr/sbin/haproxy");
            command.arg("-db").arg("-f").arg(file);
        }
        _ => {
            command = Command::new("/usr/bin/redis-server");
            command.arg(file);
        }
    }
    Ok(command)
}

fn nginx(part: &Part, folder: &Path) -> Result<String> {
    let [call] = part.calls.as_slice() else { bail!("nginx passes requests on to one service") };
    let (kept, connection) = match call.pool {
        0 => (String::new(), "close"),
        pool => {
            (format!("keepalive {pool}; keepalive_timeout {KEPT_S}s; keepalive_requests 1000000;"), "\"\"")
        }
    };
    let (listen, backlog, to, wait) = (part.listen, part.backlog, call.to, call.timeout_ms);
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("    {of}_temp_path {}/{of};\n", folder.display()))
        .concat();
    Ok(format!(
        "daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections {CONNECTIONS_MAX}; multi_accept on; }}
http {{
    access_log off;
{temp}    keepalive_requests 1000000;
    upstream called {{ server {to} max_fails=0; {kept} }}
    server {{
        listen {listen} backlog={backlog};
        location / {{
            proxy_pass http://called;
            proxy_http_version 1.1;
            proxy_set_header Connection {connection};
            proxy_connect_timeout {wait}ms;
            proxy_read_timeout {wait}ms;
            proxy_next_upstream off;
        }}
    }}
}}
",
        folder = folder.display()
    ))
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

/// Whether a server is ready; whatever has to be in it is put there.
///
/// # Errors
/// It listens, and cannot be used.
pub(super) fn is_ready(part: &Part) -> Result<bool> {
    let within = Duration::from_secs(1);
    let Ok(stream) = TcpStream::connect_timeout(&SocketAddr::V4(part.listen), within) else {
        return Ok(false);
    };
    if part.runtime == Runtime::Redis {
        drop(stream);
        command(part.listen, &["SET", "story", &"a".repeat(VALUE_BYTES)])?;
    }
    Ok(true)
}

/// Has Redis sleep on the thread of its event loop, and waits until it goes on.
///
/// # Errors
/// It cannot be reached, or does not do so.
pub(super) fn sleep_redis(at: SocketAddrV4, ms: u64) -> Result<()> {
    command(at, &["DEBUG", "SLEEP", &format!("{:.3}", ms as f64 / 1_000.0)])
}

/// One command to Redis that it answers with OK.
fn command(at: SocketAddrV4, words: &[&str]) -> Result<()> {
    let mut stream = TcpStream::connect(at).with_context(|| format!("connect to Redis at {at}"))?;
    stream.set_read_timeout(Some(SAYS_WITHIN))?;
    let words_told: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    stream.write_all(format!("*{}\r\n{words_told}", words.len()).as_bytes())?;
    let mut said = [0; 256];
    let read = stream.read(&mut said).with_context(|| format!("hear what Redis says to {}", words[0]))?;
    let said = String::from_utf8_lossy(&said[..read]);
    ensure!(said.starts_with("+OK"), "Redis said {:?} to {}", said.trim(), words[0]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::plan::Graph;

    #[test]
    fn servers_of_graphs_are_told_where_they_listen_and_whom_they_call() {
        let folder = tempfile::tempdir().unwrap();
        let mut seen = Vec::new();
        for graph in (0..60).map(|seed| Graph::of(seed, 2)) {
            for service in (0..graph.services.len()).filter(|of| !graph.services[*of].runtime.takes_orders())
            {
                let part = graph.part(service);
                prepare(&part, folder.path()).unwrap();
                let names = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
                let text: String = names.map(|name| fs::read_to_string(name).unwrap()).collect();
                assert!(text.contains(&part.listen.port().to_string()), "{text}");
                assert!(part.calls.iter().all(|call| text.contains(&call.to.to_string())), "{text}");
                seen.push(part.runtime);
            }
        }
        for runtime in [Runtime::Nginx, Runtime::Haproxy, Runtime::Redis] {
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
