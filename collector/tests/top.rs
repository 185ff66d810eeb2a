//! `tailwater top` as a process on a pseudo terminal, before a real collector: what a terminal emulator shows of it, and that the
//! terminal is as it was whichever way it ends.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::{QUICK, Serve, free_address, overflow, tailwater, wait_for};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

const COLUMNS: u16 = 80;
const LINES: u16 = 24;

/// What matters of a terminal's modes.
#[derive(Debug, PartialEq)]
struct Modes([libc::tcflag_t; 4], Vec<libc::cc_t>);

impl Modes {
    fn raw(&self) -> bool {
        self.0[3] & (libc::ICANON | libc::ECHO | libc::ISIG) == 0
    }
}

/// A pseudo terminal with a shell's line on it, the program that has it, and a terminal emulator that shows it.
struct Pty {
    master: File,
    /// Held, so that the terminal lives on when the program ends.
    slave: Option<OwnedFd>,
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
    before: Modes,
}

fn modes(terminal: &impl AsRawFd) -> Modes {
    // SAFETY: an all-zero termios is a valid value to be overwritten, and the file is open.
    let t = unsafe {
        let mut t: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut t), 0);
        t
    };
    Modes([t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag], t.c_cc.to_vec())
}

fn size(n: u16) -> std::num::NonZeroU16 {
    n.try_into().unwrap()
}

/// Both ends.
fn open() -> (File, OwnedFd) {
    let size = libc::winsize { ws_row: LINES, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut master, mut slave) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: both numbers outlive the call; no name and no modes are asked for; the size is valid.
    let made = unsafe { libc::openpty(&mut master, &mut slave, none, std::ptr::null(), &size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    for fd in [master, slave] {
        // SAFETY: the file was just opened. No other program that a test starts meanwhile shall keep it open.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: both were just opened and belong to nobody else.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}

impl Pty {
    fn start(mut command: Command) -> Self {
        let (master, slave) = open();
        File::from(slave.try_clone().unwrap()).write_all(b"$ tailwater top\r\n").unwrap();
        let before = modes(&slave);
        command
            .env("TERM", "xterm-256color")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap());
        // SAFETY: both are system calls that may be made between fork and exec.
        let child = unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
            command.spawn().unwrap()
        };
        let screen = Arc::new(Mutex::new(vt100::Parser::new(size(LINES), size(COLUMNS), 0)));
        let (shown, mut from) = (Arc::clone(&screen), master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(n) = from.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..n]);
            }
        });
        Self { master, slave: Some(slave), child, screen, before }
    }

    fn top(url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = tailwater();
        command.args(["top", "--collector", url, "--interval", "200ms"]).args(arguments);
        command.envs(environment.iter().copied());
        Self::start(command)
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn wait(&self, part: &str) -> String {
        self.wait_all(&[part])
    }

    /// All of these at a time: a screen comes in pieces.
    fn wait_all(&self, parts: &[&str]) -> String {
        let has_all = |text: &String| parts.iter().all(|part| text.contains(part));
        wait_for(&format!("{parts:?} on the screen"), || Some(self.text()).filter(has_all))
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, name: &str) {
        let id = self.child.id();
        assert!(Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status().unwrap().success());
    }

    fn ended(&mut self) -> ExitStatus {
        wait_for("the program to end", || self.child.try_wait().unwrap())
    }

    /// It has ended, and the terminal is as a shell wants it.
    fn restored(&mut self) -> ExitStatus {
        let status = self.ended();
        // The emulator may still have bytes before it; it has all of them once this line comes.
        File::from(self.slave.as_ref().unwrap().try_clone().unwrap()).write_all(b"$ next\r\n").unwrap();
        let text = self.wait("$ next");
        let screen = self.screen.lock().unwrap();
        assert!(!screen.screen().alternate_screen(), "the shell's screen is back: {text}");
        assert!(!screen.screen().hide_cursor(), "with its cursor");
        assert!(text.contains("$ tailwater top"), "and what was on it: {text}");
        assert_eq!(modes(self.slave.as_ref().unwrap()), self.before, "and its modes");
        status
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_overflow_is_seen_as_it_happens_and_the_terminal_is_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let tier = ["--tier", "name=web,port=80,workers_limit=150"];
    let serve = Serve::start(folder.path(), &[&QUICK[..], &tier[..]].concat());
    let (grpc, http) = (serve.grpc, serve.http);
    let mut top = Pty::top(&format!("http://{http}"), &[], &[]);
    top.wait("No agent has connected");
    assert!(modes(&top.master).raw() && top.screen.lock().unwrap().screen().alternate_screen());

    let text = std::thread::scope(|scope| {
        scope.spawn(|| overflow(&serve, "a"));
        // Three drops in each of six windows; the look back holds all of them for seconds. In its own line: the clock above may say 18 as well.
        wait_for("all drops", || {
            Some(top.text())
                .filter(|t| t.lines().any(|l| l.contains("web@web-1") && l.trim_end().ends_with(" 18")))
        })
    });
    let line = text.lines().find(|l| l.contains("web@web-1")).unwrap();
    assert!(line.contains("█████ 129/128 150/150"), "{line}");
    top.wait_all(&["apache2@web-1 dropped 18", "1 agent"]);

    // The agent is gone: said at once, and the values are not zero but unknown.
    top.wait("No agent connected: web-1");
    top.wait("no agent connected for");
    // A column of a second each: the drops are some seconds ago.
    top.press("\r++");
    top.wait_all(&["18 all", "129/128", "what follows is old"]);
    top.press("\x1b");
    top.wait("Incidents");
    top.press("\t\r");
    top.wait_all(&["Chain ", "dropped", "accept queue 129/128"]);
    top.press("h?");
    top.wait("quit");

    // Away, and back.
    top.press(" ");
    serve.kill();
    top.wait("trying again; what is shown is old.");
    let serve = Serve::start_at(folder.path(), grpc, http, &[]);
    wait_for("it to be live again", || top.text().contains("tailwater  live").then_some(()));
    top.wait("apache2@web-1 dropped 18");
    top.press("q");
    assert_eq!(top.restored().code(), Some(0));
    drop(serve);
}

#[test]
fn every_way_out_restores_the_terminal() {
    let url = format!("http://{}", free_address());
    for way in ["q", "\x03", "TERM", "INT"] {
        let mut top = Pty::top(&url, &["--ascii"], &[("NO_COLOR", "1")]);
        let text = top.wait_all(&["trying again", "tailwater  away"]);
        assert!(modes(&top.master).raw(), "{way:?}");
        assert!(text.is_ascii(), "{text}");
        {
            let screen = top.screen.lock().unwrap();
            let cells = (0..LINES).flat_map(|y| (0..COLUMNS).map(move |x| (y, x)));
            let colored = cells.filter(|(y, x)| {
                let cell = screen.screen().cell(*y, *x).unwrap();
                (cell.fgcolor(), cell.bgcolor()) != (vt100::Color::Default, vt100::Color::Default)
            });
            assert_eq!(colored.count(), 0, "NO_COLOR");
        }
        if way.len() == 1 {
            top.press(way)
        } else {
            top.signal(way)
        }
        assert_eq!(top.restored().code(), Some(0), "{way:?}");
    }
}

#[test]
fn a_line_that_is_cut_ends_the_program() {
    let url = format!("http://{}", free_address());
    let mut top = Pty::top(&url, &[], &[]);
    top.wait("trying again");
    top.slave = None;
    // What sshd does when its connection breaks is to close this side; the kernel tells the other by SIGHUP.
    top.signal("HUP");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn stopped_and_continued_it_gives_the_terminal_away_and_takes_it_back() {
    let url = format!("http://{}", free_address());
    let mut top = Pty::top(&url, &[], &[]);
    top.wait("trying again");
    top.press("\x0c");
    top.signal("CONT");
    wait_for("the terminal to be taken", || modes(&top.master).raw().then_some(()));
    top.wait("trying again");
    // Another size is drawn anew, to its last line.
    let other = libc::winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    top.screen.lock().unwrap().screen_mut().set_size(size(30), size(100));
    // SAFETY: the file is open and the size valid.
    assert_eq!(unsafe { libc::ioctl(top.master.as_raw_fd(), libc::TIOCSWINSZ, &other) }, 0);
    wait_for("the last line of the new size", || {
        top.text().lines().nth(29).is_some_and(|l| l.contains("q: quit")).then_some(())
    });
    top.press("q");
    assert_eq!(top.restored().code(), Some(0));
}

/// This test is the program too: started again by itself on a pseudo terminal, it takes the terminal and panics.
#[test]
fn a_panic_restores_the_terminal_before_its_message() {
    const PANICS: &str = "TAILWATER_TEST_PANICS";
    if std::env::var_os(PANICS).is_some() {
        let mut session = tailwater::tui::terminal::Session::start().unwrap();
        session.draw(|frame| frame.render_widget("taken", frame.area())).unwrap();
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        panic!("on purpose, after {line:?}");
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "a_panic_restores_the_terminal_before_its_message", "--nocapture"])
        .env(PANICS, "1")
        .env("RUST_BACKTRACE", "0");
    let mut program = Pty::start(command);
    program.wait("taken");
    assert!(modes(&program.master).raw());
    program.press("x\n");
    assert_ne!(program.restored().code(), Some(0));
    let text = program.text();
    assert!(text.contains("on purpose, after \"x") && !text.contains("taken"), "{text}");
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let out = tailwater().args(["top"]).stdin(std::process::Stdio::null()).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("no terminal") && text.contains("remedy:") && out.stdout.is_empty(), "{text}");
    let wrong = tailwater().args(["top", "--interval", "1ms"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(64));
}
