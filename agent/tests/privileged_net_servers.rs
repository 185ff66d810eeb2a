//! Real servers with configurations of their own, in a network namespace of their own: what the windows say equals what the
//! servers' logs say, request by request.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod kernel;
mod net_probe;

use kernel::Cgroup;
use net_probe::{Probe, namespace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Ends with the test, however it ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).unwrap();
        // SAFETY: signals the child that this value owns; it is reaped below, so the id is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if reached() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not reached in 30 s: {what}");
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

const HTTP: u16 = 8_080;

fn apache(folder: &Path) -> Server {
    let root = folder.display();
    std::fs::create_dir(folder.join("www")).unwrap();
    std::fs::write(folder.join("www/small"), "ok").unwrap();
    std::fs::write(folder.join("www/large"), vec![b'x'; 600_000]).unwrap();
    let modules: String = ["mpm_event", "authz_core", "unixd", "log_config", "dir"]
        .iter()
        .filter(|m| Path::new(&format!("/usr/lib/apache2/modules/mod_{m}.so")).exists())
        .map(|m| format!("LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"))
        .collect();
    let configuration = format!(
        "{modules}ServerRoot {root}\nServerName localhost\nPidFile {root}/pid\nErrorLog {root}/error.log\n\
         Listen 127.0.0.1:{HTTP}\nListenBackLog 64\nUser www-data\nGroup www-data\nDocumentRoot {root}/www\n\
         StartServers 1\nServerLimit 1\nThreadsPerChild 25\nThreadLimit 25\nMaxRequestWorkers 25\nMinSpareThreads 1\n\
         MaxSpareThreads 25\nKeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 30\n\
         LogFormat \"%r\" line\nCustomLog {root}/access.log line\n<Directory />\nRequire all granted\n</Directory>\n"
    );
    let file = folder.join("apache.conf");
    std::fs::write(&file, configuration).unwrap();
    let child = quiet(Command::new("apache2").arg("-f").arg(file).arg("-DFOREGROUND")).spawn().unwrap();
    let server = Server(child);
    until("Apache listens", || {
        std::fs::read_to_string(folder.join("error.log"))
            .is_ok_and(|l| l.contains("resuming normal operations"))
    });
    server
}

fn get(stream: &mut BufReader<TcpStream>, path: &str, keep: bool) {
    let connection = if keep { "keep-alive" } else { "close" };
    // In two segments: one request all the same.
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n");
    let (first, second) = request.split_at(10);
    stream.get_mut().write_all(first.as_bytes()).unwrap();
    stream.get_mut().write_all(second.as_bytes()).unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if let Some(n) = line.strip_prefix("Content-Length: ") {
            length = n.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    assert!(length > 0);
}

fn connect() -> BufReader<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", HTTP)).unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::new(stream)
}

#[test]
fn privileged_apache_answers_as_many_as_its_access_log_has_lines() {
    let folder = tempfile::tempdir().unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            namespace::enter_new();
            let _server = apache(folder.path());
            let mut probe = Probe::attach();
            std::thread::scope(|s| {
                let mut clients = Vec::new();
                for _ in 0..6 {
                    clients.push(s.spawn(|| {
                        let mut stream = connect();
                        for i in 0..100 {
                            get(&mut stream, if i % 10 == 0 { "/large" } else { "/small" }, true);
                        }
                    }));
                    clients.push(s.spawn(|| {
                        for _ in 0..50 {
                            get(&mut connect(), "/small", false);
                        }
                    }));
                }
                probe.until_ended(|| clients.iter().all(std::thread::ScopedJoinHandle::is_finished));
            });
            let lines =
                || std::fs::read_to_string(folder.path().join("access.log")).unwrap().lines().count() as u64;
            probe.drain_within(30, "the log is written", |_| lines() >= 900);
            let at = (namespace::inode(), HTTP);
            probe.drain_past_now();
            probe.drain_until("closed", |p| p.requests(at).open_last == 0 && p.calls(at).open_last == 0);
            let (requests, calls, queue) = (probe.requests(at), probe.calls(at), probe.queue(at));
            assert_eq!(
                (requests.received, requests.answered, requests.aborted),
                (lines(), lines(), 0),
                "{requests:?}"
            );
            assert_eq!(requests.in_flight_last, 0);
            assert_eq!(
                requests.multiplexed.connections, 0,
                "plain HTTP/1.1, whole answers of 600 kB included"
            );
            assert_eq!((calls.started, calls.answered, calls.aborted), (900, 900, 0), "{calls:?}");
            assert_eq!((queue.arrivals, queue.drops), (306, 0), "{queue:?}");
            assert!((1..=12).contains(&requests.workers_busy_max), "{requests:?}");
            assert_eq!(requests.worker_shared_max, 1, "a thread per request");
            assert!(requests.workers_seen <= 25, "{requests:?}");
        })
        .join()
        .unwrap()
    });
}

const SQL: u16 = 3_307;

fn mariadb(folder: &Path) -> Server {
    let data = folder.join("data");
    let installed = quiet(
        Command::new("mariadb-install-db")
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data.display()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db", "--user=root"]),
    )
    .status()
    .unwrap();
    assert!(installed.success());
    let child = quiet(
        Command::new("mariadbd")
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}/sock", folder.display()))
            .arg(format!("--pid-file={}/pid", folder.display()))
            .arg(format!("--general-log-file={}/general.log", folder.display()))
            .args(["--general-log", "--user=root", "--bind-address=127.0.0.1", "--skip-name-resolve"])
            .args(["--innodb-buffer-pool-size=16M", "--performance-schema=off"])
            .arg(format!("--port={SQL}")),
    )
    .spawn()
    .unwrap();
    let server = Server(child);
    until("MariaDB listens", || {
        quiet(Command::new("ss").args(["-H", "-l", "-t", "-n"]))
            .stdout(Stdio::piped())
            .output()
            .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(&format!("127.0.0.1:{SQL} ")))
    });
    server
}

#[test]
fn privileged_mariadb_answers_what_its_general_log_has() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            namespace::enter_new();
            let _server = mariadb(folder.path());
            let mut probe = Probe::attach();
            std::thread::scope(|s| {
                let ask = || {
                    s.spawn(|| {
                        for _ in 0..5 {
                            let asked = quiet(
                                Command::new("mariadb")
                                    .args([
                                        "--no-defaults",
                                        "-h127.0.0.1",
                                        "-uroot",
                                        "--skip-ssl",
                                        "--protocol=tcp",
                                    ])
                                    .arg(format!("-P{SQL}"))
                                    .args([
                                        "-e",
                                        "select 1; select repeat('x', 300000); select sleep(0.02); select 3",
                                    ]),
                            )
                            .status()
                            .unwrap();
                            assert!(asked.success());
                        }
                    })
                };
                let asking = [ask(), ask(), ask(), ask()];
                probe.until_ended(|| asking.iter().all(|one| one.is_finished()));
            });
            let count = |word: &str| {
                let log = std::fs::read_to_string(folder.path().join("general.log")).unwrap();
                log.lines().filter(|l| l.split_whitespace().any(|w| w == word)).count() as u64
            };
            probe.drain_within(30, "all hung up", |_| count("Quit") == 20);
            let at = (namespace::inode(), SQL);
            probe.drain_past_now();
            probe.drain_until("closed", |p| p.requests(at).open_last == 0 && p.calls(at).open_last == 0);
            let (connects, queries) = (count("Connect"), count("Query"));
            assert_eq!((connects, queries >= 80), (20, true), "{queries}");
            let (requests, calls) = (probe.requests(at), probe.calls(at));
            // The greeting is the server's own; the client's credentials are the first request, and a quit has no answer.
            assert_eq!(requests.received, connects + queries + count("Quit"), "{requests:?}");
            assert_eq!(requests.answered, connects + queries, "{requests:?}");
            assert_eq!(requests.aborted, count("Quit"), "{requests:?}");
            assert_eq!((requests.in_flight_last, requests.multiplexed.connections), (0, 0));
            assert_eq!(calls.answered, requests.answered, "{calls:?}");
            assert_eq!(calls.started, requests.received, "{calls:?}");
            assert!(requests.response_ns >= 20 * 20_000_000, "{requests:?}");
        })
        .join()
        .unwrap()
    });
}

/// So many threads take a connection each, answer one request, and end.
fn serve_with_fresh_threads(listener: &std::net::TcpListener, threads: usize) {
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 8];
                stream.read_exact(&mut request).unwrap();
                stream.write_all(b"answer").unwrap();
            });
        }
        for _ in 0..threads {
            s.spawn(|| {
                let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                stream.write_all(b"question").unwrap();
                stream.read_exact(&mut [0; 6]).unwrap();
            });
        }
    });
}

#[test]
fn privileged_a_pool_that_was_restarted_is_not_twice_as_large() {
    std::thread::scope(|s| {
        s.spawn(|| {
            namespace::enter_new();
            let listener = std::net::TcpListener::bind(("127.0.0.1", HTTP)).unwrap();
            let mut probe = Probe::attach();
            let at = (namespace::inode(), HTTP);
            for _ in 0..2 {
                serve_with_fresh_threads(&listener, 5);
                probe.drain_past_now();
            }
            assert_eq!(probe.requests(at).workers_seen, 10);
            // Whoever is gone is looked for every twenty seconds.
            let mut seen = 10;
            for _ in 0..45 {
                std::thread::sleep(Duration::from_secs(1));
                serve_with_fresh_threads(&listener, 1);
                probe.drain_past_now();
                seen = probe.requests(at).workers_seen;
                if seen <= 2 {
                    return;
                }
            }
            panic!("{seen} workers are counted, and one lives at a time");
        });
    });
}

/// As systemd activates a service: one process listens, another one in a cgroup of its own serves.
#[test]
fn privileged_a_socket_that_another_listens_at_is_whose_service_reads_from_it() {
    use std::os::fd::AsRawFd;
    let mut probe = Probe::attach();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let owners = |probe: &Probe| {
        let queues = probe.windows.iter().flat_map(|w| w.accept_queues.iter().flatten());
        let mut owners: Vec<_> =
            queues.filter(|(k, _)| k.port == port).map(|(k, _)| (k.owner.0, k.pid)).collect();
        owners.dedup();
        owners
    };
    probe.drain_until("the listener is known", |p| !owners(p).is_empty());
    let before = owners(&probe);
    assert_eq!(before.iter().map(|(_, pid)| *pid).collect::<Vec<_>>(), [std::process::id()]);

    let home = Cgroup::new("activated");
    let (procs, socket) = (home.procs(), listener.as_raw_fd());
    // SAFETY: the child calls nothing but what may be called after a fork of a process with threads, on descriptors that are open.
    let service = unsafe {
        match libc::fork() {
            0 => {
                let mut request = [0u8; 16];
                let moved = procs.iter().all(|f| libc::write(f.as_raw_fd(), c"0".as_ptr().cast(), 1) == 1);
                let client = libc::accept4(socket, std::ptr::null_mut(), std::ptr::null_mut(), 0);
                let read = libc::read(client, request.as_mut_ptr().cast(), request.len());
                let sent = libc::write(client, c"answer".as_ptr().cast(), 6);
                libc::_exit(i32::from(!(moved && read > 0 && sent == 6)));
            }
            pid => pid,
        }
    };
    assert!(service > 0);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"request").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(service, &raw mut status, 0) }, service);
    assert_eq!((answer.as_slice(), status), (&b"answer"[..], 0));
    let served_by = (home.id().0, u32::try_from(service).unwrap());
    probe.drain_until("the service is known", |p| owners(p).last() == Some(&served_by));
    drop(listener);
}
