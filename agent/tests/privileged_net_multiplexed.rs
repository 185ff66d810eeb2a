//! Connections with several exchanges at once: sockets that talk at will are recognised on both sides, and what takes turns never is.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails where it stands, and asks its own clock"
)]

mod kernel;
mod net_probe;

use net_probe::{Probe, StopAtEnd};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Parts of a message that are sent so far apart may look like two, by `APART_NS` of the kernel side and some time for the calls.
const APART: Duration = Duration::from_micros(250);

/// A server that answers each message, of a header of four bytes and so many bytes as it says, in parts that are `apart`.
fn serve_turns(apart: Duration, parts: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let (mut header, mut body) = ([0; 4], [0; 60]);
                while stream.read_exact(&mut header).is_ok() && stream.read_exact(&mut body).is_ok() {
                    for part in 0..parts {
                        if part > 0 {
                            std::thread::sleep(apart);
                        }
                        if stream.write_all(&[b'x'; 40]).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    at
}

fn ask_in_parts(stream: &mut TcpStream, apart: Option<Duration>, answer: usize) {
    stream.write_all(b"head").unwrap();
    if let Some(apart) = apart {
        std::thread::sleep(apart);
    }
    stream.write_all(&[b'y'; 60]).unwrap();
    stream.read_exact(&mut vec![0; answer]).unwrap();
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

#[test]
fn privileged_a_hundred_thousand_turns_on_four_connections_are_never_multiplexed() {
    let mut probe = Probe::attach();
    let at = serve_turns(Duration::ZERO, 2);
    std::thread::scope(|s| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                s.spawn(|| {
                    let mut stream = connect(at);
                    for _ in 0..25_000 {
                        ask_in_parts(&mut stream, None, 80);
                    }
                })
            })
            .collect();
        probe.until_ended(|| clients.iter().all(std::thread::ScopedJoinHandle::is_finished));
    });
    probe.drain_past_now();
    let (requests, calls) = (probe.requests(at.port()), probe.calls(at.port()));
    assert_eq!(
        (requests.answered, requests.aborted, requests.multiplexed.connections),
        (100_000, 0, 0),
        "{requests:?}"
    );
    assert_eq!((calls.answered, calls.multiplexed.connections), (100_000, 0), "{calls:?}");
}

#[test]
fn privileged_requests_in_parts_alone_or_answers_in_parts_alone_are_turns() {
    let mut probe = Probe::attach();
    let apart = Duration::from_millis(1);
    let slow_requests = serve_turns(Duration::ZERO, 1);
    let slow_answers = serve_turns(apart, 3);
    std::thread::scope(|s| {
        let asking = [
            s.spawn(|| {
                let mut stream = connect(slow_requests);
                (0..500).for_each(|_| ask_in_parts(&mut stream, Some(apart), 40));
            }),
            s.spawn(|| {
                let mut stream = connect(slow_answers);
                (0..300).for_each(|_| ask_in_parts(&mut stream, None, 120));
            }),
        ];
        probe.until_ended(|| asking.iter().all(|one| one.is_finished()));
    });
    probe.drain_past_now();
    for (at, asked) in [(slow_requests, 500), (slow_answers, 300)] {
        let (requests, calls) = (probe.requests(at.port()), probe.calls(at.port()));
        assert_eq!((requests.answered, requests.multiplexed.connections), (asked, 0), "{requests:?}");
        assert_eq!((calls.answered, calls.multiplexed.connections), (asked, 0), "{calls:?}");
    }
}

#[test]
fn privileged_requests_in_parts_with_answers_in_parts_are_turns() {
    const TURNS: usize = 200;
    let mut probe = Probe::attach();
    let apart = Duration::from_millis(1);
    let at = serve_turns(apart, 3);
    let mut stream = connect(at);
    for _ in 0..TURNS {
        ask_in_parts(&mut stream, Some(apart), 120);
        probe.drain();
    }
    probe.drain_past_now();
    let (requests, calls) = (probe.requests(at.port()), probe.calls(at.port()));
    assert_eq!((requests.answered, requests.multiplexed.connections), (TURNS as u64, 0), "{requests:?}");
    assert_eq!((calls.answered, calls.multiplexed.connections), (TURNS as u64, 0), "{calls:?}");
}

#[test]
fn privileged_a_poll_that_waits_is_a_request_in_flight() {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = connect(listener.local_addr().unwrap());
    let (mut server, _) = listener.accept().unwrap();
    for _ in 0..10 {
        client.write_all(b"poll").unwrap();
        server.read_exact(&mut [0; 4]).unwrap();
        std::thread::sleep(Duration::from_millis(150));
        server.write_all(b"news").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
        probe.drain();
    }
    probe.drain_past_now();
    let requests = probe.requests(port);
    assert_eq!((requests.answered, requests.multiplexed.connections), (10, 0), "{requests:?}");
    assert!(requests.in_flight_ns >= 10 * 150_000_000, "{requests:?}");
}

/// Sends a message every `every` until it is told to stop; returns how many.
fn talk(mut stream: TcpStream, every: Duration, stop: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&[b'm'; 30]).unwrap();
        sent += 1;
        std::thread::sleep(every);
    }
    sent
}

#[test]
fn privileged_two_that_talk_at_will_are_multiplexed_and_their_silence_is_measured() {
    const QUESTIONS: u32 = 60;
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = connect(listener.local_addr().unwrap());
    let (mut server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let _end = StopAtEnd(&stop);
        for (stream, every) in [(&client, 2_300), (&server, 1_700)] {
            let mut reading = stream.try_clone().unwrap();
            reading.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let (writing, stop) = (stream.try_clone().unwrap(), &stop);
            s.spawn(move || talk(writing, Duration::from_micros(every), stop));
            s.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = reading.read(&mut [0; 4096]);
                }
            });
        }
        // On loopback it is chance when one speaks before what the other said is acknowledged: 2 to 7 s were seen, and more than 10.
        probe.drain_within(60, "known on both sides", |p| {
            p.requests(port).multiplexed.connections == 1 && p.calls(port).multiplexed.connections == 1
        });
    });
    // One last word of each, so that nothing is unanswered on either side.
    client.write_all(b"last").unwrap();
    server.write_all(b"last").unwrap();
    probe.drain_past_now();
    probe.windows.clear();
    std::thread::sleep(Duration::from_millis(120));
    for _ in 0..QUESTIONS {
        client.write_all(b"question").unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    probe.drain_past_now();
    let (requests, calls) = (probe.requests(port), probe.calls(port));
    let (came, went) = (requests.multiplexed, calls.multiplexed);
    assert!((QUESTIONS..=QUESTIONS + 1).contains(&came.unanswered_max), "{came:?}");
    assert!((QUESTIONS..=QUESTIONS + 1).contains(&went.unanswered_max), "{went:?}");
    assert_eq!(
        (came.pieces_in, came.bytes_in, came.pieces_out, came.pieces_read),
        (60, 480, 0, 0),
        "{came:?}"
    );
    assert_eq!((went.pieces_out, went.bytes_out, went.pieces_in), (60, 480, 0), "{went:?}");
    // Sixty questions, each five milliseconds after the one before.
    assert!(came.unanswered_ns > 5_000_000 * 60 * 59 / 2, "{came:?}");
    assert_eq!(
        (requests.received, requests.in_flight_max, calls.started),
        (0, 0, 0),
        "turns are not told of it"
    );
    server.write_all(b"answer").unwrap();
    probe.drain_past_now();
    probe.windows.clear();
    std::thread::sleep(Duration::from_millis(60));
    probe.drain_past_now();
    assert_eq!(probe.requests(port).multiplexed.unanswered_max, 0);
    drop((client, server));
    probe.drain_until("closed", |p| p.requests(port).open_last == 0 && p.calls(port).open_last == 0);
    probe.windows.clear();
    probe.drain_past_now();
    assert_eq!(probe.requests(port).multiplexed.connections, 0);
}

/// A connection, both ends.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = connect(listener.local_addr().unwrap());
    let (server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

fn say(stream: &mut TcpStream, bytes: usize) {
    stream.write_all(&vec![b's'; bytes]).unwrap();
}

fn hear(stream: &mut TcpStream, bytes: usize) {
    stream.read_exact(&mut vec![0; bytes]).unwrap();
}

/// So that each piece is one of its own, and what is said lies with the other before the next.
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

/// What the other one has read before anything else is said.
fn asks(client: &mut TcpStream, server: &mut TcpStream) {
    say(client, 30);
    hear(server, 30);
}

fn answers(server: &mut TcpStream, client: &mut TcpStream) {
    say(server, 40);
    hear(client, 40);
}

/// Connections that are known to be multiplexed: accepted ones of this port, and connected ones.
fn known(probe: &mut Probe, port: u16) -> (u32, u32) {
    probe.drain_past_now();
    (probe.requests(port).multiplexed.connections, probe.calls(port).multiplexed.connections)
}

/// After two turns more, in which either end looks whether the other one knows.
fn assert_both_know(probe: &mut Probe, client: &mut TcpStream, server: &mut TcpStream, why: &str) {
    for _ in 0..2 {
        asks(client, server);
        answers(server, client);
    }
    assert_eq!(known(probe, server.local_addr().unwrap().port()), (1, 1), "{why}");
}

#[test]
fn privileged_who_speaks_between_turns_while_words_lie_unread_is_multiplexed() {
    let mut probe = Probe::attach();
    // The server: each question comes while it has answered the one before, and says something of another one.
    let (mut client, mut server) = pair();
    for _ in 0..8 {
        asks(&mut client, &mut server);
        answers(&mut server, &mut client);
        say(&mut client, 30);
        pause();
        answers(&mut server, &mut client);
        hear(&mut server, 30);
        answers(&mut server, &mut client);
    }
    assert_both_know(&mut probe, &mut client, &mut server, "the server found it, and its client knows");
    // The client: asks anew with the first of two answers.
    let (mut client, mut server) = pair();
    say(&mut client, 30);
    for _ in 0..8 {
        hear(&mut server, 30);
        say(&mut server, 40);
        say(&mut server, 40);
        pause();
        hear(&mut client, 40);
        say(&mut client, 30);
        hear(&mut client, 40);
    }
    hear(&mut server, 30);
    answers(&mut server, &mut client);
    assert_both_know(&mut probe, &mut client, &mut server, "the client found it, and its server knows");
}

#[test]
fn privileged_who_need_not_wait_for_the_first_word_is_multiplexed_at_once() {
    let mut probe = Probe::attach();
    let (mut client, mut server) = pair();
    say(&mut client, 100);
    pause();
    say(&mut server, 27);
    hear(&mut client, 27);
    hear(&mut server, 100);
    answers(&mut server, &mut client);
    assert_both_know(
        &mut probe,
        &mut client,
        &mut server,
        "it greets although words of its client lie there",
    );
    let (mut client, mut server) = pair();
    say(&mut server, 27);
    pause();
    say(&mut client, 100);
    hear(&mut client, 27);
    hear(&mut server, 100);
    answers(&mut server, &mut client);
    assert_both_know(&mut probe, &mut client, &mut server, "its client begins although it was greeted");
}

/// Serves each connection by `serve` on a thread of its own, and asks by `ask` on so many connections, one after the other.
fn between(
    connections: usize,
    serve: impl Fn(&mut TcpStream) + Sync,
    ask: impl Fn(&mut TcpStream),
) -> (Probe, u16) {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                serve(&mut stream);
            }
        });
        for _ in 0..connections {
            ask(&mut connect(at));
            probe.drain();
        }
    });
    (probe, at.port())
}

#[test]
fn privileged_a_greeting_that_is_waited_for_is_no_conversation_at_will() {
    const TURNS: usize = 5;
    let (mut probe, port) = between(
        400,
        |server| {
            say(server, 80);
            for _ in 0..TURNS {
                hear(server, 30);
                say(server, 40);
            }
        },
        |client| {
            hear(client, 80);
            for _ in 0..TURNS {
                say(client, 30);
                hear(client, 40);
            }
        },
    );
    assert_eq!(known(&mut probe, port), (0, 0));
}

#[test]
fn privileged_large_messages_and_batches_are_turns() {
    const LARGE: usize = 1_000_000;
    // Uploads, and downloads, in many segments.
    let (mut probe, port) = between(
        4,
        |server| {
            for _ in 0..40 {
                hear(server, LARGE);
                say(server, 40);
                hear(server, 30);
                say(server, LARGE);
            }
        },
        |client| {
            for _ in 0..40 {
                say(client, LARGE);
                hear(client, 40);
                say(client, 30);
                hear(client, LARGE);
            }
        },
    );
    assert_eq!(known(&mut probe, port), (0, 0), "large messages");
    // A hundred commands at once, in one write or in two, and what is said to each.
    let (mut probe, port) = between(
        4,
        |server| {
            for _ in 0..500 {
                hear(server, 3_000);
                say(server, 500);
                hear(server, 1_500);
                say(server, 250);
                hear(server, 1_500);
                say(server, 250);
            }
        },
        |client| {
            for _ in 0..500 {
                say(client, 3_000);
                hear(client, 500);
                say(client, 1_500);
                say(client, 1_500);
                hear(client, 500);
            }
        },
    );
    assert_eq!(known(&mut probe, port), (0, 0), "batches");
}

/// A header that is answered before the body behind it is read, and a statement that nobody answers. Where the body comes apart from its
/// header in some exchanges of few, it looks like another question (`net_multiplexed.h`), and a machine whose CPUs are taken away makes it
/// so: a connection on which that was seen as often as it may be is given up for a new one.
#[test]
fn privileged_early_answers_are_turns() {
    const TURNS: u32 = 2_000;
    const APART_MOST: u32 = 3;
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let zero = Instant::now();
    let now_us = || u64::try_from(zero.elapsed().as_micros()).unwrap();
    let (mut turns, mut connections) = (0, 0);
    while turns < TURNS {
        let mut client = connect(at);
        let (mut server, _) = listener.accept().unwrap();
        server.set_nodelay(true).unwrap();
        // When the last header was sent, and how many bodies were not read with all that is before them so soon after it that they came with it.
        let (header_us, apart) = (AtomicU64::new(0), AtomicU32::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                while server.read_exact(&mut [0; 100]).is_ok() {
                    say(&mut server, 60);
                    hear(&mut server, 300);
                    let took = Duration::from_micros(now_us() - header_us.load(Ordering::Relaxed));
                    apart.fetch_add(u32::from(took >= APART), Ordering::Relaxed);
                    hear(&mut server, 9);
                    hear(&mut server, 30);
                    say(&mut server, 40);
                }
            });
            while turns < TURNS && apart.load(Ordering::Relaxed) < APART_MOST {
                header_us.store(now_us(), Ordering::Relaxed);
                say(&mut client, 100);
                say(&mut client, 300);
                hear(&mut client, 60);
                say(&mut client, 9);
                say(&mut client, 30);
                hear(&mut client, 40);
                turns += 1;
            }
            drop(client);
        });
        connections += 1;
        probe.drain();
    }
    assert_eq!(known(&mut probe, at.port()), (0, 0), "{turns} exchanges on {connections} connections");
    println!("{turns} exchanges on {connections} connections");
}

/// As HTTP/1.1 may: nothing of these is a second exchange.
#[test]
fn privileged_one_exchange_whose_directions_overlap_is_one() {
    const EXCHANGES: usize = 60;
    let parts = |stream: &mut TcpStream, parts: usize, bytes: usize| {
        for part in 0..parts {
            if part > 0 {
                pause();
            }
            say(stream, bytes);
        }
    };
    // `100-continue`: a header in parts, what lets the body come, a body in parts, and an answer in chunks.
    let (mut probe, port) = between(
        2,
        |server| {
            for _ in 0..EXCHANGES {
                hear(server, 200);
                say(server, 25);
                hear(server, 300);
                parts(server, 3, 50);
            }
        },
        |client| {
            for _ in 0..EXCHANGES {
                parts(client, 2, 100);
                hear(client, 25);
                parts(client, 3, 100);
                hear(client, 150);
            }
        },
    );
    assert_eq!(known(&mut probe, port), (0, 0), "100-continue");
    // An upload in parts, each of which is answered by a part as it comes, and the last one by several.
    let (mut probe, port) = between(
        2,
        |server| {
            for _ in 0..EXCHANGES {
                for _ in 0..4 {
                    hear(server, 100);
                    say(server, 20);
                }
                pause();
                parts(server, 2, 20);
            }
        },
        |client| {
            for _ in 0..EXCHANGES {
                parts(client, 4, 100);
                hear(client, 120);
            }
        },
    );
    assert_eq!(known(&mut probe, port), (0, 0), "an upload that is answered as it comes");
    // An answer in chunks whose first one comes before the body.
    let (mut probe, port) = between(
        2,
        |server| {
            for _ in 0..EXCHANGES {
                hear(server, 100);
                say(server, 60);
                hear(server, 200);
                parts(server, 3, 50);
            }
        },
        |client| {
            for _ in 0..EXCHANGES {
                say(client, 100);
                pause();
                parts(client, 2, 100);
                hear(client, 210);
            }
        },
    );
    assert_eq!(known(&mut probe, port), (0, 0), "an answer that begins before the body");
}

/// Numbers that are as good as chance (xorshift, Marsaglia 2003).
struct Chance(u64);

impl Chance {
    /// Between none of it and twice as much.
    fn around(&mut self, middle: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        middle * u32::try_from(self.0 % 2_000).unwrap() / 1_000
    }
}

/// A connection that begins with turns, as behind TLS, and then has so many exchanges a second whose answers take 5 to 35 ms, until it is known
/// on both sides; returns the milliseconds that took.
fn known_in_an_open_loop(rate: u32) -> u64 {
    const ANSWERING: u64 = 16;
    let mut probe = Probe::attach();
    let (mut client, mut server) = pair();
    let port = server.local_addr().unwrap().port();
    for _ in 0..3 {
        asks(&mut client, &mut server);
        answers(&mut server, &mut client);
    }
    assert_eq!(known(&mut probe, port), (0, 0), "turns");
    let began = probe.clock.unix_ns();
    let stop = AtomicBool::new(false);
    let stopped = || stop.load(Ordering::Relaxed);
    let (asked, questions) = std::sync::mpsc::sync_channel::<()>(4_096);
    let questions = std::sync::Mutex::new(questions);
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    }
    std::thread::scope(|s| {
        let _end = StopAtEnd(&stop);
        let clone = |stream: &TcpStream| stream.try_clone().unwrap();
        let (mut reads, mut hears) = (clone(&server), clone(&client));
        s.spawn(move || {
            let mut words = [0; 30];
            while !stopped() {
                if reads.read_exact(&mut words).is_ok() {
                    asked.send(()).unwrap();
                }
            }
        });
        for seed in 1..=ANSWERING {
            let (mut speaks, mut chance, questions) = (clone(&server), Chance(seed), &questions);
            s.spawn(move || {
                loop {
                    let question = questions.lock().unwrap().recv();
                    if question.is_err() || stopped() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(5) + chance.around(Duration::from_millis(15)));
                    speaks.write_all(&[b'a'; 40]).unwrap();
                }
            });
        }
        s.spawn(move || {
            while !stopped() {
                let _ = hears.read(&mut [0; 4096]);
            }
        });
        let (mut speaks, mut chance) = (clone(&client), Chance(99));
        s.spawn(move || {
            while !stopped() {
                say(&mut speaks, 30);
                std::thread::sleep(chance.around(Duration::from_secs(1) / rate));
            }
        });
        for _ in 0..6_000 {
            probe.drain();
            if (probe.requests(port).multiplexed.connections, probe.calls(port).multiplexed.connections)
                == (1, 1)
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let took = (probe.clock.unix_ns() - began) / 1_000_000;
    assert_eq!(known(&mut probe, port), (1, 1), "{rate} exchanges a second, after {took} ms");
    took
}

#[test]
fn privileged_an_open_loop_that_began_with_turns_is_multiplexed() {
    for rate in [250, 1_000] {
        let took = known_in_an_open_loop(rate);
        println!("{rate} exchanges a second: known after {took} ms");
    }
}

#[test]
fn privileged_data_that_nobody_reads_is_told_of_multiplexed_connections_too() {
    // How long it took has an upper end as well.
    kernel::experiment(
        "data that nobody reads",
        data_that_nobody_reads_is_told_of_multiplexed_connections_too,
    );
}

fn data_that_nobody_reads_is_told_of_multiplexed_connections_too() {
    let mut probe = Probe::attach();
    let (mut client, mut server) = pair();
    let port = server.local_addr().unwrap().port();
    say(&mut client, 100);
    pause();
    say(&mut server, 27);
    hear(&mut client, 27);
    hear(&mut server, 100);
    assert_eq!(known(&mut probe, port).0, 1);
    assert_eq!(probe.requests(port).unread_max, 1, "before the first words were read");
    probe.drain_past_now();
    probe.windows.clear();
    say(&mut client, 30);
    std::thread::sleep(Duration::from_millis(200));
    // The rest of it stays.
    hear(&mut server, 20);
    std::thread::sleep(Duration::from_millis(100));
    hear(&mut server, 10);
    std::thread::sleep(Duration::from_millis(100));
    probe.drain_past_now();
    let requests = probe.requests(port);
    assert_eq!((requests.unread_max, requests.received), (1, 0), "{requests:?}");
    assert!((290_000_000..390_000_000).contains(&requests.unread_ns), "{requests:?}");
    assert_eq!(requests.multiplexed.pieces_read, 2, "{requests:?}");
}
