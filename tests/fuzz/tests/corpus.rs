//! What the fuzzers found interesting, and all that they ever broke, through the parsers as they are built for everybody. And the seeds, from which
//! the corpora began.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]
#![allow(clippy::disallowed_methods, reason = "an input that hangs its parser is told by the time it takes")]

use prost::Message;
use prost::bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tailwater::clock::Clock;
use tailwater::columns::Kind;
use tailwater::counters::Metrics;
use tailwater::ingest::registry::Registry;
use tailwater::ingest::session::Session;
use tailwater::ingest::tls::Speaker;
use tailwater::live::events::Events;
use tailwater::live::series::Series;
use tailwater::store::{self, Settings};
use tailwater_fuzz::{SPANS_UNIX_NS, TARGETS};
use tailwater_proto::WINDOW_NS;
use tailwater_proto::trace::{MAGIC, TraceReader};
use tailwater_proto::v1::trace_record::Body;
use tailwater_proto::v1::{self, TraceRecord, agent_message::Body as Said, collector_message::Body as Reply};

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

fn inputs(target: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(target)).unwrap_or_else(|e| panic!("corpus of {target}: {e}"));
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn whatever_was_found_once_is_taken_by_its_parser_and_soon() {
    for target in TARGETS {
        let inputs = inputs(target.name);
        assert!(!inputs.is_empty(), "{} has no corpus: `make fuzz TARGET={0}` makes one", target.name);
        for input in inputs {
            let bytes = fs::read(&input).unwrap();
            let begun = Instant::now();
            if std::panic::catch_unwind(|| (target.take)(&bytes)).is_err() {
                panic!("{} of target {} panicked, as said above", input.display(), target.name);
            }
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(10), "{} took {took:?}", input.display());
        }
    }
}

#[test]
fn each_corpus_belongs_to_a_target_and_is_small() {
    let corpora = fs::read_dir(folder("")).unwrap().map(|entry| entry.unwrap());
    let mut bytes = 0;
    for corpus in corpora {
        let name = corpus.file_name().into_string().unwrap();
        assert!(tailwater_fuzz::target(&name).is_some(), "{name} is no target");
        bytes += inputs(&name).iter().map(|input| fs::metadata(input).unwrap().len()).sum::<u64>();
    }
    assert!(bytes < 1 << 20, "{bytes} bytes: minimize them with `make fuzz-minimize`");
}

/// A recording's records, beginning with a Hello.
fn records() -> Vec<TraceRecord> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/nx0-app-cpu.trace.zst");
    let bytes = zstd::decode_all(fs::File::open(file).unwrap()).unwrap();
    TraceReader::new(bytes.as_slice()).unwrap().map(Result::unwrap).collect()
}

/// The files of a segment of half a second of one host of the recording, through all that a collector does with an agent's messages, in the
/// order of `Kind::ALL`.
fn segment(records: &[TraceRecord]) -> Vec<Vec<u8>> {
    let (registry, metrics, speaker) = (Registry::new(2), Arc::new(Metrics::default()), Speaker::default());
    let mut session = None;
    let (mut inputs, mut batches) = (Vec::new(), 0);
    for record in records {
        let Some(Body::Arrival(arrival)) = &record.body else { continue };
        if !arrival.host.contains("app") || batches == 5 {
            continue;
        }
        let (mut message, at) = (arrival.message.clone().unwrap(), arrival.arrival_unix_ns);
        if let Some(Said::Hello(hello)) = &mut message.body {
            // A recording has no handshake: that was agreed on before it begins.
            (hello.protocol_min, hello.protocol_max, hello.window_ns) = (1, 1, WINDOW_NS);
            (hello.host, hello.agent_instance) = (arrival.host.clone(), "a".to_owned());
        }
        batches += u32::from(matches!(message.body, Some(Said::Batch(_))));
        let raw: Bytes = message.encode_to_vec().into();
        match &mut session {
            None => {
                let opened = Session::open(&raw, &registry, &metrics, ("seed", &speaker), at);
                let Ok((opened, _, delivery)) = opened else { panic!("its first message is a Hello") };
                inputs.extend(delivery.inputs);
                session = Some(opened);
            }
            Some(session) => {
                inputs.extend(session.message(raw, at).delivery.into_iter().flat_map(|d| d.inputs))
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        folder: folder.path().to_owned(),
        incidents_max: 1,
        segment_seconds: 60,
        windows_hours: 10_000_000,
        windows_mib_max: 100,
        kept_mib_max: 1,
    };
    let series = Arc::new(Mutex::new(Series::new(10, 1 << 24)));
    let (topology, live, clock) = (Arc::default(), Events::default(), Clock::default());
    let opened = store::open(settings, Arc::clone(&series), topology, live, metrics, clock).unwrap();
    for input in &inputs {
        let kept = series.lock().unwrap().saw(input);
        kept.into_iter().for_each(|window| opened.past.queue.window(window));
    }
    opened.store.lock().unwrap().close();
    opened.thread.join().unwrap();
    let segment = fs::read_dir(folder.path().join("windows")).unwrap().next().unwrap().unwrap().path();
    Kind::ALL.iter().map(|kind| fs::read(segment.join(kind.file())).unwrap()).collect()
}

/// What a collector says to an agent in its order, of every kind.
fn answers() -> Vec<u8> {
    let welcome = |protocol, last_sequence| {
        let collector_version = "0.1.0".to_owned();
        Reply::Welcome(v1::Welcome { protocol, collector_version, last_sequence })
    };
    let clock = |id, at| {
        let (collector_receive_unix_ns, collector_send_unix_ns) = (at + 70_000, at + 90_000);
        let agent_unix_ns = at;
        Reply::ClockReply(v1::ClockReply {
            id,
            agent_unix_ns,
            collector_receive_unix_ns,
            collector_send_unix_ns,
        })
    };
    let ack = |sequence| Reply::Ack(v1::Ack { sequence });
    let at = 1_795_271_400_000_000_000;
    let said = [
        welcome(1, 0),
        clock(1, at),
        ack(1),
        ack(2),
        Reply::Configuration(v1::Configuration { version: 1, windows_per_batch: 4, disabled: vec![3, 9] }),
        Reply::BatchRefused(v1::BatchRefused { sequence: 3, reason: "window 1 is in the future".to_owned() }),
        ack(4),
        Reply::Refusal(v1::Refusal {
            reason: "the collector is stopping".to_owned(),
            retry: true,
            join: false,
        }),
        welcome(1, 4),
        clock(2, at + 350_000_000),
        ack(6),
    ];
    let message = |body| v1::CollectorMessage { body: Some(body) }.encode_length_delimited_to_vec();
    said.into_iter().flat_map(message).collect()
}

/// A certificate of the target's key, as an authority answers with it.
fn enrolled() -> Vec<u8> {
    let key = rcgen::KeyPair::from_pem(&tailwater_fuzz::key()).unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["fuzz".to_owned()]).unwrap().self_signed(&key).unwrap();
    let certificate = certificate.der().to_vec();
    v1::Enrolled { certificate, issued_unix_s: 1_795_271_400, expires_unix_s: 1_797_863_400 }.encode_to_vec()
}

fn keep(target: &str, name: &str, bytes: &[u8]) {
    fs::create_dir_all(folder(target)).unwrap();
    fs::write(folder(target).join(name), bytes).unwrap();
}

/// An `ExportTraceServiceRequest` of one service with a slow span, a fast one and one that failed.
fn spans() -> Vec<u8> {
    let field = |tag: u32, value: &[u8]| {
        let mut out = Vec::new();
        encode_key(tag, WireType::LengthDelimited, &mut out);
        encode_varint(value.len() as u64, &mut out);
        out.extend(value);
        out
    };
    let number = |tag: u32, value: u64| {
        let mut out = Vec::new();
        encode_key(tag, WireType::Varint, &mut out);
        encode_varint(value, &mut out);
        out
    };
    let time = |tag: u32, unix_ns: u64| {
        let mut out = Vec::new();
        encode_key(tag, WireType::SixtyFourBit, &mut out);
        out.extend(unix_ns.to_le_bytes());
        out
    };
    let text =
        |key: &str, value: &str| [field(1, key.as_bytes()), field(2, &field(1, value.as_bytes()))].concat();
    let span = |id: u8, ns: u64, status: u64| {
        let ids = [field(1, &[id; 16]), field(2, &[id; 8]), field(4, &[9; 8])].concat();
        let times = [time(7, SPANS_UNIX_NS - ns), time(8, SPANS_UNIX_NS)].concat();
        let rest = [field(9, &text("http.route", "/cart")), field(15, &number(3, status))].concat();
        field(2, &[ids, field(5, b"GET /cart"), number(6, 2), times, rest].concat())
    };
    let resource = [field(1, &text("service.name", "shop")), field(1, &text("host.name", "web-1"))].concat();
    let scope = [span(1, 900_000_000, 0), span(2, 5_000_000, 0), span(3, 5_000_000, 2)].concat();
    field(1, &[field(1, &resource), field(2, &scope)].concat())
}

/// Run once for a new target: `cargo test --workspace --locked --test corpus -- --ignored`.
#[test]
#[ignore = "writes the seeds of the corpora"]
fn seeds_are_written() {
    let records = records();
    let mut few = Vec::new();
    let (mut moment, mut stream, mut batches) = (0, Vec::new(), 0);
    let host = records.iter().find_map(|record| match &record.body {
        Some(Body::Arrival(arrival)) => Some(arrival.host.clone()),
        _ => None,
    });
    for record in &records {
        match &record.body {
            Some(Body::Arrival(arrival)) => {
                let message = arrival.message.as_ref().unwrap();
                if Some(&arrival.host) == host.as_ref() && batches < 8 {
                    moment = if moment == 0 { arrival.arrival_unix_ns } else { moment };
                    stream.extend(message.encode_length_delimited_to_vec());
                    if let Some(Said::Batch(batch)) = &message.body {
                        batches += 1;
                        if batches == 3 {
                            for (n, table) in batch.tables.iter().enumerate() {
                                let count = batch.window_count as u8;
                                let bytes = [&[count][..], &table.encode_to_vec()].concat();
                                keep("columns", &format!("seed-{n}"), &bytes);
                            }
                        }
                    }
                }
                few.push(record);
            }
            Some(_) => few.push(record),
            None => {}
        }
    }
    keep("wire", "seed", &[&moment.to_le_bytes()[..], &stream].concat());
    let mut bytes = MAGIC.to_vec();
    for record in few.iter().take(60) {
        bytes.extend(record.encode_length_delimited_to_vec());
    }
    keep("recording", "seed", &bytes);
    for (kind, file) in segment(&records).iter().enumerate() {
        keep("segments", &format!("seed-{kind}"), &[&[kind as u8][..], file].concat());
    }
    keep("replies", "seed-stream", &[&[0b0011_0111][..], &answers()].concat());
    keep("replies", "seed-enrolled", &[&[0x80][..], &enrolled()].concat());

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (target, file) in
        [("agent_configuration", "tailwater-agent.toml"), ("collector_configuration", "tailwater.toml")]
    {
        let text = fs::read_to_string(root.join("deploy").join(file)).unwrap();
        keep(target, "seed", text.as_bytes());
        // The example's settings are comments: without their mark they are settings.
        let set: Vec<&str> = text.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        let set: Vec<&str> =
            set.into_iter().filter(|line| line.contains(" = ") || line.starts_with('[')).collect();
        keep(target, "seed-set", set.join("\n").as_bytes());
    }
    let hash = "0".repeat(64);
    let token = format!(
        "[[token]]\nname = \"a\"\nrole = \"read\"\nmade_unix_s = 1\nexpires_unix_s = 2\nsha256 = \"{hash}\"\n"
    );
    keep("tokens", "seed", token.as_bytes());
    keep("spans", "seed", &[&[0][..], &spans()].concat());
    let mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
        31 22 0:27 / /sys/fs/cgroup/cpu\\040acct rw shared:5 master:2 - cgroup cgroup rw,cpu,cpuacct\n";
    keep("mounts", "seed", mounts.as_bytes());

    // One type of each kind that has a tail, a function, a tracepoint.
    let strings = b"\0int\0tcp_recvmsg\0btf_trace_sched_switch\0";
    let kinds: [(u32, u32, usize); 6] = [(1, 1, 4), (2, 0, 0), (4, 1, 0), (3, 0, 12), (12, 5, 0), (8, 17, 0)];
    let mut types = Vec::new();
    for (kind, name, tail) in kinds {
        types.extend([name, kind << 24, 0].into_iter().flat_map(u32::to_le_bytes));
        types.extend(vec![0; tail]);
    }
    let length = types.len() as u32;
    let mut btf = vec![0x9f, 0xeb, 1, 0];
    btf.extend([24, 0, length, length, strings.len() as u32].into_iter().flat_map(u32::to_le_bytes));
    btf.extend(types);
    btf.extend(strings);
    keep("btf", "seed", &btf);

    let limits = "Max open files            1024                 4096                 files\n";
    let servers: [(&str, &str, [&str; 2]); 6] = [
        (
            "/usr/sbin/apache2\0-k\0start",
            "",
            [
                "ServerRoot \"/etc/apache2\"\nDefine W 300\nIncludeOptional mods-enabled/*.load\n<IfModule mpm_event_module>\nThreadsPerChild 25\nMaxRequestWorkers ${W}\n</IfModule>\n",
                "LoadModule mpm_event_module /usr/lib/mpm_event.so\n",
            ],
        ),
        (
            "/usr/bin/python3\0/usr/bin/gunicorn\0-c\0/etc/g.py\0app",
            "WEB_CONCURRENCY=3\0GUNICORN_CMD_ARGS=--threads 4",
            ["workers = 3\n", "workers = 2\nthreads = 4\nworker_class = 'gthread'\n"],
        ),
        (
            "php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)",
            "",
            ["include=/etc/php/8.2/fpm/pool.d/*.conf\n", "[www]\nlisten = 80\npm.max_children = 7\n"],
        ),
        (
            "/usr/sbin/mariadbd\0--max-connections=9",
            "",
            [
                "[mysqld]\n!includedir /etc/mysql/conf.d/\nmax_connections=5\n",
                "[server]\nmax_connections = 7\n",
            ],
        ),
        (
            "/usr/lib/postgresql/15/bin/postgres\0-D\0/data",
            "PGDATA=/data",
            ["max_connections = 50\ninclude_if_exists 'postgresql.auto.conf'\n", "max_connections='70'\n"],
        ),
        (
            "/usr/bin/java\0-Dcatalina.base=/srv/tomcat\0-Dthreads=4\0-Dserver.tomcat.threads.max=9",
            "SERVER_TOMCAT_THREADS_MAX=3",
            [
                "<Server><Service><Executor name=\"pool\" maxThreads=\"${threads:-40}\"/><Connector port=\"80\" executor=\"pool\"/></Service></Server>",
                "threads=7\n",
            ],
        ),
    ];
    for (which, (line, environment, files)) in servers.into_iter().enumerate() {
        let parts = [line, environment, limits, files[0], files[1]].map(str::as_bytes).join(&0xff);
        keep("pools", &format!("seed-{which}"), &[&[which as u8][..], &parts].concat());
    }
    let asked = [
        "GET /api/v1/incidents?from=now-1h&to=now&limit=5\naccept: application/json\n\n",
        "GET /api/v1/incidents/2026/timeline\n\n",
        "GET /api/v1/series?host=web&metric=cpu_busy_ns&from=0&to=9999999999999999999\n\n",
        "GET /api/v1/now?host=web&workload=a&windows=20\n\n",
        "GET /api/v1/inventory?kind=listener&host=web\n\n",
        "GET /api/v1/hosts/web\n\n",
        "GET /api/v1/advice\n\n",
        "POST /api/v1/silences\ncontent-type: application/json\n\n{\"host\":\"web\",\"seconds\":60,\"reason\":\"a\"}",
        "GET /metrics\naccept: application/openmetrics-text\n\n",
        "POST /api/v1/record?seconds=1\n\n",
    ];
    for (n, text) in asked.into_iter().enumerate() {
        keep("http", &format!("seed-{n}"), text.as_bytes());
    }
}
