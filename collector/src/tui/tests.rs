//! Screens as text at 80x24 and beyond, drawn from answers as the collector gives them. `TAILWATER_UPDATE_SCREENS=1` writes the
//! screens of `screens/` anew; what they must say is asserted beside.

use super::answers::{Agents, Key, NowAnswer};
use super::signals::{Ask, SIGNALS, Signals, Unit, Values};
use super::state::{Action, Focus, Page, Sort, State, Story, Update, Wish};
use super::view::{Look, draw};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tailwater_model::TopologyView;

const NOW: u64 = 1_794_000_062_500_000_000;
const LOOK: Look = Look { color: true, ascii: false };
const LATER: Duration = Duration::from_secs(100);

fn buffer(state: &State, look: Look, columns: u16, lines: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal
        .draw(|frame| {
            draw(frame.buffer_mut(), state, look, LATER);
        })
        .unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let lines = buffer.content.chunks(usize::from(buffer.area.width));
    let line = |cells: &[ratatui::buffer::Cell]| {
        let all: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", all.trim_end())
    };
    lines.map(line).collect()
}

/// The screen at 80x24, which must be the one that is kept under this name.
fn screen(name: &str, state: &State) -> String {
    let is = text(&buffer(state, LOOK, 80, 24));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/tui/screens/{name}.txt"));
    if std::env::var_os("TAILWATER_UPDATE_SCREENS").is_some() {
        std::fs::write(&path, &is).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(is == kept, "{name} is now\n{is}\nand was\n{kept}");
    is
}

fn agents(hosts: &[(&str, bool, u64)]) -> Update {
    let covered = ["cpu", "run_queue", "accept_queue", "requests", "calls", "retransmits", "memory"];
    let agent = |(host, connected, behind_ms): &(&str, bool, u64)| {
        let mut coverage: Vec<_> = covered
            .iter()
            .map(|s| json!({ "signal": s, "covered": true, "reason": "", "hook": "x" }))
            .collect();
        coverage.push(json!({ "signal": "block_io", "covered": *host != "web-1", "hook": "",
            "reason": "this kernel has no block_io_start" }));
        json!({ "host": host, "connected": connected, "since_unix_ns": NOW - 65_000_000_000_u64, "cpus": 2, "coverage": coverage,
            "newest_window_end_unix_ns": NOW - behind_ms * 1_000_000, "shed_signals": [], "peer": null })
    };
    let all: Vec<_> = hosts.iter().map(agent).collect();
    Update::Agents(serde_json::from_value::<Agents>(json!({ "agents": all })).unwrap().agents)
}

/// Worst windows of a workload: accept queue, its limit, workers, calls, connections, CPU, waits for CPU and disk, drops.
fn workload(host: &str, name: &str, v: [f64; 9]) -> serde_json::Value {
    let worst = |v: f64| json!({ "last": v, "mean": v / 2.0, "max": v, "sum": v });
    // A wave that swells and goes, as long as the look back.
    let waits = v[6] + v[7];
    let saturation: Vec<f64> =
        (0..100).map(|n| (waits * (1.0 - f64::abs(93.0 - f64::from(n)) / 7.0)).max(0.0)).collect();
    json!({ "host": host, "workload": name, "start_unix_ns": NOW, "trail": [], "saturation": saturation, "metrics": {
        "accept_queue_depth": worst(v[0]), "accept_queue_limit": worst(v[1]), "workers_busy": worst(v[2]),
        "calls_in_flight": worst(v[3]), "connections_open": worst(v[4]), "cpu_busy_ratio": worst(v[5]),
        "run_queue_wait_tasks": worst(v[6]), "blocked_io_tasks": worst(v[7]), "drops": worst(v[8]),
        "memory_stall_tasks": worst(0.0), "queued_requests": worst(v[0] + v[2]) } })
}

fn now(workloads: Vec<serde_json::Value>) -> Update {
    let json = json!({ "now_unix_ns": NOW, "window_ns": 50_000_000, "windows": 100, "hosts": [], "workloads": workloads });
    Update::Now(serde_json::from_value::<NowAnswer>(json).unwrap())
}

fn topology(nodes: &[(&str, &str, &str, &str, Option<u32>)]) -> Update {
    let node = |(host, workload, tier, listener, workers): &(&str, &str, &str, &str, Option<u32>)| {
        let listeners: Vec<&str> = listener.split(' ').filter(|l| !l.is_empty()).collect();
        json!({ "host": host, "workload": workload, "tier": tier, "listeners": listeners, "workers_limit": workers })
    };
    let edges = json!([{ "from_host": "web-1", "from_workload": "apache2.service", "remote": "10.0.0.2:8080",
        "to_host": "app-1", "to_workload": "tomcat10.service" }]);
    let nodes: Vec<_> = nodes.iter().map(node).collect();
    Update::Topology(
        serde_json::from_value::<TopologyView>(json!({ "nodes": nodes, "edges": edges })).unwrap(),
    )
}

fn known(updates: Vec<Update>) -> State {
    let mut state = State::new("http://127.0.0.1:4780");
    updates.into_iter().for_each(|update| state.apply(update, Duration::from_secs(1)));
    state
}

/// Three tiers in the second after a neighbour took the application's CPU, and two incidents.
fn three_tiers() -> State {
    let mut closed = crate::fixture::incident("01KAJX3S000000000000000000", 3);
    closed.state = tailwater_model::incident::State::Closed;
    let mut early = crate::fixture::incident("01KAJX4S000000000000000000", 0);
    early.start_unix_ns += 61_500_000_000;
    known(vec![
        topology(&[
            ("db-1", "mariadb.service", "db", "10.0.0.3:3306", None),
            ("web-1", "apache2.service", "web", "10.0.0.1:80", Some(150)),
            ("app-1", "tomcat10.service", "app", "10.0.0.2:8080", Some(150)),
            ("app-1", "checkout-reconciliation-worker.service", "checkout-reconciliation-worker", "", None),
        ]),
        agents(&[("app-1", true, 120), ("db-1", true, 120), ("web-1", true, 120)]),
        now(vec![
            workload("web-1", "apache2.service", [129.0, 128.0, 150.0, 150.0, 150.0, 0.31, 1.0, 0.0, 158.0]),
            workload("app-1", "tomcat10.service", [100.0, 128.0, 150.0, 50.0, 50.0, 1.0, 12.4, 0.0, 0.0]),
            workload("db-1", "mariadb.service", [0.0, 4096.0, 7.0, 0.0, 0.0, 0.08, 0.2, 0.6, 0.0]),
            workload(
                "app-1",
                "checkout-reconciliation-worker.service",
                [0.0, 0.0, 0.0, 1.0, 4.0, 0.01, 0.0, 0.0, 0.0],
            ),
        ]),
        Update::Incidents(vec![closed]),
        Update::Incident(Box::new(early)),
    ])
}

#[test]
fn a_recording_is_not_called_live() {
    let mut state = three_tiers();
    assert!(text(&buffer(&state, LOOK, 80, 24)).starts_with(" tailwater  live "));
    state.now.as_mut().unwrap().recorded = true;
    assert!(text(&buffer(&state, LOOK, 80, 24)).starts_with(" tailwater  replay "));
}

#[test]
fn three_tiers_and_their_incidents_fit_80_by_24() {
    let mut state = three_tiers();
    let screen = screen("overview", &state);
    let line =
        |begin: &str| screen.lines().find(|l| l.trim_start_matches(['>', ' ']).starts_with(begin)).unwrap();
    let web = line("web@web-1");
    for part in ["█████ 129/128", "150/150 150/150", "31%", "1 cpu", "158"] {
        assert!(web.contains(part), "{part} in {web}");
    }
    let app = line("app@app-1");
    assert!(
        app.contains("100/128")
            && app.contains("50/50")
            && app.contains("12 cpu")
            && app.contains("▃▄▅▆▇█▇▆▅▄▃▂"),
        "{app}"
    );
    assert!(line("db@db-1").contains("0/4096  7/?"), "a limit that nobody knows is not invented");
    assert!(line("checkout-…@app-1").contains("1/4"), "a long name is cut visibly");
    assert!(
        screen.contains("3 agents, 1 open of 2 incidents") && screen.contains("worst 50 ms of the last 5 s")
    );
    let early = screen.lines().find(|l| l.contains("open: ")).unwrap();
    assert!(early.contains("apache2@web-1 dropped 118 ← cause not known yet"), "{early}");
    assert!(
        screen.contains("apache2@web-1 dropped 118 ← tomcat10@app-1 cpu neighbour burner 96%\n"),
        "{screen}"
    );
    assert!(screen.lines().all(|l| l.chars().count() <= 80) && screen.lines().count() == 24);
    // Fullest first, and by name on request.
    let place = |screen: &str, name: &str| screen.lines().position(|l| l.contains(name)).unwrap();
    assert!(
        place(&screen, "web@") < place(&screen, "app@app")
            && place(&screen, "app@app") < place(&screen, "db@")
    );
    state.act(Action::Sort);
    assert_eq!(state.sort, Sort::Name);
    let named = text(&buffer(&state, LOOK, 80, 24));
    assert!(place(&named, "app@app") < place(&named, "web@"), "{named}");
}

#[test]
fn without_colour_or_utf8_the_same_is_said() {
    let state = three_tiers();
    let colored = buffer(&state, LOOK, 80, 24);
    assert!(colored.content.iter().any(|c| c.fg == Color::Red));
    let plain = buffer(&state, Look { color: false, ascii: false }, 80, 24);
    assert!(plain.content.iter().all(|c| c.fg == Color::Reset && c.bg == Color::Reset));
    assert!(
        plain.content.iter().any(|c| c.modifier.contains(Modifier::REVERSED)),
        "the cursor is still seen"
    );
    assert_eq!(text(&plain), text(&colored));
    let ascii = text(&buffer(&state, Look { color: false, ascii: true }, 80, 24));
    assert!(ascii.is_ascii(), "{ascii}");
    assert!(
        ascii.contains("##### 129/128")
            && ascii.contains("checkout-~@app-1")
            && ascii.contains(" < tomcat10"),
        "{ascii}"
    );
}

#[test]
fn nothing_known_is_said_and_is_not_zero() {
    let asking = State::new("http://127.0.0.1:4780");
    assert!(text(&buffer(&asking, LOOK, 80, 24)).contains("Asking http://127.0.0.1:4780 …"));
    let empty = known(vec![topology(&[]), agents(&[]), now(vec![]), Update::Incidents(vec![])]);
    let screen = screen("no_agent", &empty);
    assert!(
        screen.contains("No agent has connected. Start `tailwater-agent run --collector URL`"),
        "{screen}"
    );
    assert!(screen.contains("No tier is known.") && screen.contains("None yet."), "{screen}");
    let mut older = State::new("http://127.0.0.1:4780");
    older.apply(Update::Refused("no such path".into()), LATER);
    assert!(text(&buffer(&older, LOOK, 80, 24)).contains("! The collector says: no such path."));
    let quiet = known(vec![topology(&[]), agents(&[("web-1", true, 100)]), now(vec![])]);
    assert!(text(&buffer(&quiet, LOOK, 80, 24)).contains("Nobody listens or calls yet"));
}

#[test]
fn what_is_old_or_gone_is_said_before_any_number() {
    let mut state = three_tiers();
    let silent = json!({ "host": "db-1", "workload": "mariadb.service", "metrics": { "drops": {}, "accept_queue_limit": { "max": 128.0 } }, "trail": [null] });
    let web = workload("web-1", "apache2.service", [1.0, 128.0, 3.0, 2.0, 9.0, 0.2, 0.0, 5.0, 0.0]);
    state.apply(now(vec![silent, web]), LATER);
    state.apply(agents(&[("app-1", true, 12_000), ("db-1", false, 65_000), ("web-1", true, 100)]), LATER);
    state.apply(Update::Away("Connection refused (os error 111)".into()), Duration::from_secs(70));
    state.apply(Update::Away("Connection refused (os error 111)".into()), Duration::from_secs(99));
    let screen = screen("away", &state);
    for part in [
        "tailwater  away",
        "! Away for 30 s, trying again; what is shown is old. Collector",
        "No agent connected: db-1 (for 1 min). Not zero: unknown.",
        "Windows are stale: app-1 is 12 s behind.",
        "2 of 3 agents",
        "no agent connected for 1 min",
        "no windows for 12 s",
    ] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    // The disk signal is not covered on web-1: five waiting tasks that its answer holds are not believed.
    let web = screen.lines().find(|l| l.contains("web@web-1")).unwrap();
    assert!(!web.contains("disk"), "{web}");
    state.apply(now(vec![]), LATER);
    assert!(!text(&buffer(&state, LOOK, 80, 24)).contains("away"), "an answer ends it");
}

#[test]
fn forty_tiers_scroll_and_the_cursor_stays_on_one_of_them() {
    let names: Vec<String> = (0..40).map(|n| format!("tier-{n:02}")).collect();
    let nodes: Vec<_> =
        names.iter().map(|n| ("web-1", n.as_str(), n.as_str(), "10.0.0.1:80", None)).collect();
    let calm = [1.0, 128.0, 1.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0];
    let workloads = |full: &str| {
        let of = |n: &String| workload("web-1", n, if n == full { [128.0; 9] } else { calm });
        names.iter().map(of).collect()
    };
    let ten = (0..10).map(|n| crate::fixture::incident(&format!("01KAJX3S{n}"), 3)).collect();
    let mut state = known(vec![
        topology(&nodes),
        agents(&[("web-1", true, 100)]),
        now(workloads("")),
        Update::Incidents(ten),
    ]);
    let top = screen("forty_tiers", &state);
    assert!(
        top.contains(" 1 to 13 of 40") && top.contains(">tier-00@web-1") && !top.contains("tier-13"),
        "{top}"
    );
    for _ in 0..20 {
        state.act(Action::Down);
    }
    let middle = text(&buffer(&state, LOOK, 80, 24));
    assert!(middle.contains("15 to 27 of 40") && middle.contains(">tier-20@web-1"), "{middle}");
    state.act(Action::Last);
    let end = text(&buffer(&state, LOOK, 80, 24));
    assert!(end.contains("28 to 40 of 40") && end.contains(">tier-39@web-1"), "{end}");
    // It fills up and moves to the top: the cursor goes with it.
    state.apply(now(workloads("tier-39")), LATER);
    let moved = text(&buffer(&state, LOOK, 80, 24));
    assert!(moved.contains(" 1 to 13 of 40") && moved.contains(">tier-39@web-1"), "{moved}");
    // A larger screen shows all of them.
    let large = text(&buffer(&state, LOOK, 200, 60));
    assert!(large.contains("tier-00") && large.contains("tier-38") && !large.contains(" of 40"), "{large}");
    state.act(Action::Down);
    state.apply(topology(&nodes[..1]), LATER);
    assert!(text(&buffer(&state, LOOK, 80, 24)).contains(">tier-00@web-1"), "its tier is gone: the first");
}

fn web() -> Key {
    Key { host: "web-1".into(), workload: "apache2.service".into() }
}

#[test]
fn a_tier_opens_into_its_signals() {
    let mut state = three_tiers();
    state.act(Action::Open);
    assert_eq!(state.page, Page::Tier(web()), "the first line is the fullest tier");
    let ask = Ask { tier: web(), columns: 40, step: 1 };
    assert_eq!(state.wish(40), Wish::Signals(ask.clone()));
    assert!(text(&buffer(&state, LOOK, 80, 24)).contains("Asking for its signals"));
    let values = |n: usize| match SIGNALS[n].metric {
        "accept_queue_depth" => {
            let depth =
                |c: u32| (c != 5).then(|| if (20..26).contains(&c) { 129.0 } else { f64::from(c % 3) });
            Values { worst: (0..40).map(depth).collect(), total: 0.0 }
        }
        "drops" => {
            let drops = |c: u32| Some(if (20..26).contains(&c) { 26.0 } else { 0.0 });
            Values { worst: (0..40).map(drops).collect(), total: 158.0 }
        }
        "cpu_busy_ratio" => Values { worst: vec![Some(0.31); 40], total: 12.4 },
        "cpu_steal_ratio" | "syn_retransmits" | "memory_stall_tasks" | "stopped_threads" => {
            Values { worst: vec![Some(0.0); 40], total: 0.0 }
        }
        // Beyond the last edge between buckets.
        "response_time_ms" if SIGNALS[n].unit == Unit::Quantile => {
            Values { worst: vec![Some(524.288_f64.next_up()); 40], total: 0.0 }
        }
        "response_time_ms" => Values { worst: vec![None; 40], total: 0.0 },
        _ => Values { worst: vec![Some(3.0); 40], total: 120.0 },
    };
    let signals = Signals {
        ask,
        start_unix_ns: NOW - 2_000_000_000,
        column_ns: 50_000_000,
        values: (0..SIGNALS.len()).map(values).collect(),
    };
    state.apply(Update::Signals(signals), LATER);
    let screen = screen("tier", &state);
    let line = |begin: &str| screen.lines().find(|l| l.trim_start().starts_with(begin)).unwrap();
    assert!(screen.contains("apache2.service@web-1") && screen.contains("→ 10.0.0.2:8080"), "{screen}");
    assert!(line("accept queue").contains("129/128") && line("accept queue").contains("·"), "{screen}");
    assert!(line("accept queue").contains("██████"), "{screen}");
    assert!(line("dropped packets").contains("158 all"), "{screen}");
    assert!(line("received").contains("60/s"), "20 windows in a second: {screen}");
    assert!(line("waits for disk").contains("not covered: this kernel has no block_io_start"), "{screen}");
    assert!(line("99 % within").contains(">524 ms"), "no number is made up: {screen}");
    assert!(line("stopped threads").trim_end().ends_with('0'), "{screen}");
    assert!(line("response time").contains("-") && !line("response time").contains(" 0"), "{screen}");
    assert!(
        line("50 ms a column").contains("21:21:00.500") && line("50 ms a column").contains("21:21:02.500")
    );
    // More time per column, at most a minute and a half of it.
    for (times, step) in [(1, 4), (9, 60)] {
        (0..times).for_each(|_| state.act(Action::Wider));
        assert!(matches!(state.wish(40), Wish::Signals(Ask { step: is, .. }) if is == step));
    }
    state.act(Action::Down);
    assert_eq!(state.page, Page::Tier(Key { host: "app-1".into(), workload: "tomcat10.service".into() }));
    assert!(text(&buffer(&state, LOOK, 80, 24)).contains("Asking"), "another tier's values are not shown");
    state.act(Action::Back);
    assert!(text(&buffer(&state, LOOK, 80, 24)).contains(">app@app-1"));
}

#[test]
fn an_incident_opens_into_sentence_chain_and_evidence() {
    let mut state = three_tiers();
    state.act(Action::Other);
    state.act(Action::Down);
    assert_eq!(state.focus, Focus::Incidents);
    state.act(Action::Open);
    let id = "01KAJX3S000000000000000000".to_owned();
    assert_eq!(state.wish(40), Wish::Story { id: id.clone(), version: 3, open: false });
    let incident = state.incidents()[1].clone();
    let timeline = crate::live::timeline::read(&incident, |queries, first, last| {
        let row = |query: &crate::live::view::Query<'_>| {
            let full = query.metric == "accept_queue_depth";
            (0..=last.0 - first.0).map(|n| Some(if full && n > 8 { 129.0 } else { 1.0 })).collect()
        };
        queries.iter().map(row).collect()
    });
    state.apply(Update::Story(Box::new(Story { asked: id.clone(), incident, timeline })), LATER);
    let screen = screen("incident", &state);
    for part in [
        "apache2.service@web-1 dropped 122 connections because burner took the CPU",
        "Root      cpu_neighbour at tomcat10@app-1",
        "ms), confidence 0.97",
        "12 of its tasks waited for a CPU while burner used 96 % of it",
        "Culprit    96 %  burner [7]",
        "Chain     root",
        "-> drop",
        "lines 1 to ",
    ] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    state.act(Action::Last);
    let end = text(&buffer(&state, LOOK, 80, 24));
    assert!(end.contains("Clocks    agree within 0.3 ms") && !end.contains("Root      cpu"), "{end}");
    // What was shown is where scrolling goes on, however far the last key wanted to go.
    let mut drawn = Buffer::empty(ratatui::layout::Rect::new(0, 0, 80, 24));
    state.scroll = draw(&mut drawn, &state, LOOK, LATER);
    assert!(state.scroll < 40, "{}", state.scroll);
    state.act(Action::Up);
    assert_ne!(text(&buffer(&state, LOOK, 80, 24)), end);
    // Asked for under an early alert's id, it comes under its own.
    state.story.as_mut().unwrap().incident.id = "01KAJX3T".into();
    state.act(Action::First);
    assert!(text(&buffer(&state, LOOK, 80, 24)).contains("01KAJX3T  critical"));
    state.apply(Update::Refused("no incident 01KA".into()), LATER);
    assert!(text(&buffer(&state, LOOK, 80, 24)).contains("The collector says: no incident 01KA"));
}

#[test]
fn help_lists_every_key_and_any_key_closes_it() {
    let mut state = three_tiers();
    state.act(Action::Help);
    let screen = screen("help", &state);
    for keys in super::keys::KEYS {
        assert!(screen.contains(keys.names) && screen.contains(keys.does), "{keys:?}");
    }
    assert!(screen.contains("which is not zero"), "{screen}");
    state.act(Action::Down);
    assert!(!state.help);
}

#[test]
fn frozen_is_frozen_and_says_so() {
    let mut state = three_tiers();
    let before = text(&buffer(&state, LOOK, 80, 24));
    state.act(Action::Freeze);
    state.apply(now(vec![]), LATER);
    let frozen = text(&buffer(&state, LOOK, 80, 24));
    assert!(frozen.contains("tailwater  frozen") && frozen.contains("Frozen: space goes on."), "{frozen}");
    assert!(frozen.contains("129/128"), "{frozen}");
    state.act(Action::Freeze);
    assert_eq!(text(&buffer(&state, LOOK, 80, 24)), before);
}

#[test]
fn names_from_elsewhere_cannot_reach_the_terminal_and_small_screens_are_told() {
    let hostile = "a\u{1b}]0;owned\u{7}\u{9b}2Jb";
    let state = known(vec![
        topology(&[("web-1", hostile, hostile, "10.0.0.1:80", None)]),
        agents(&[("web-1", true, 100)]),
        now(vec![workload("web-1", hostile, [1.0; 9])]),
    ]);
    let buffer_ = buffer(&state, LOOK, 120, 30);
    assert!(buffer_.content.iter().all(|c| !c.symbol().chars().any(char::is_control)));
    assert!(text(&buffer_).contains("a?]0;owned??2Jb@web-1"), "{}", text(&buffer_));
    for (columns, lines) in [(79, 24), (80, 23), (10, 2), (1, 1)] {
        let small = text(&buffer(&state, LOOK, columns, lines));
        assert!(
            small.starts_with(if columns > 10 { "80x24 needed" } else { "8" }) || columns == 1,
            "{small}"
        );
    }
    // Any size draws, and nothing of it lies outside.
    for (columns, lines) in [(80, 24), (81, 25), (132, 43), (300, 100)] {
        text(&buffer(&three_tiers(), LOOK, columns, lines));
    }
}
