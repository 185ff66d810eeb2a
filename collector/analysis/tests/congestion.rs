//! The congestion point through the whole pipeline: what an incident says of it, and that arrival order changes nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;
use support::sim::{At, Do, Sim};
use support::{diagnose, inputs};
use tailwater_analysis::{Config, Pipeline};
use tailwater_model::incident::{Resource, Role};
use tailwater_model::window::Input;
use tailwater_model::{CongestionState, CongestionView};

/// Load that swings for 30 s, now and then for 100 ms beyond what the application servers can do; then `act`.
fn swinging(act: Option<Do>) -> Sim {
    let mut sim = Sim { seconds: 34, ..Sim::default() };
    for second in 1..30_u64 {
        let more = [0.7, 1.2, 2.5, 0.4][(second % 4) as usize];
        let length = if second % 4 == 2 { 100 } else { 900 };
        sim.bursts.push((second * 1000..second * 1000 + length, more));
    }
    act.map_or(sim.clone(), |act| sim.act(At::App, 31_000..31_600, act))
}

fn view(inputs: Vec<Input>) -> CongestionView {
    let mut pipeline = Pipeline::new(Config::default());
    inputs.into_iter().for_each(|input| drop(pipeline.feed(input)));
    pipeline.finish();
    pipeline.congestion()
}

#[test]
fn a_pause_is_told_with_the_windows_in_which_the_tier_stood_still() {
    let incidents = diagnose(swinging(Some(Do::Pause)));
    let incident = incidents.iter().find(|i| i.root.resource == Resource::Pause).unwrap();
    let root = incident.hops.iter().find(|h| h.role == Role::Root).unwrap();
    let c = root.congestion.unwrap();
    assert_eq!(c.state, CongestionState::Known, "{c:?}");
    let (point, usual) = (c.congestion_point.unwrap(), c.throughput_usual.unwrap());
    assert!(c.load_max > 10.0 * point && c.throughput < 0.3 * usual, "{c:?}");
    // 600 ms are twelve windows, the first and the last in part.
    assert!((9..=12).contains(&c.windows_frozen.unwrap()), "{c:?}");
    assert!(c.windows_beyond >= c.windows_frozen, "{c:?}");
    assert!(
        incident.root.evidence.contains("more requests than its congestion point"),
        "{}",
        incident.root.evidence
    );
}

#[test]
fn without_congestion_there_is_no_point_and_the_hop_says_why() {
    let incidents = diagnose(Sim::default().act(At::App, 6000..6600, Do::Pause));
    let root = incidents[0].hops.iter().find(|h| h.role == Role::Root).unwrap();
    let c = root.congestion.unwrap();
    assert_ne!(c.state, CongestionState::Known, "{c:?}");
    assert_eq!((c.congestion_point, c.throughput_usual, c.windows_frozen), (None, None, None));
    let json = serde_json::to_value(c).unwrap();
    assert!(
        json["congestion_point"].is_null() && json["windows_beyond"].is_null(),
        "absent, not zero: {json}"
    );
    assert!(!incidents[0].root.evidence.contains("congestion point"));
}

#[test]
fn arrival_order_within_the_bound_changes_no_curve() {
    let trace = swinging(None).run();
    let plain = view(inputs(&trace));
    assert_eq!(plain.listeners.len(), 3, "{plain:#?}");
    // Hosts in the other order within each window, and every second window a window late.
    let mut windows = trace.windows.clone();
    windows.sort_by_key(|w| {
        let late = u64::from(w.index.0 % 2 == 0 && w.host == "app-1");
        (w.index.0 + 2 * late, std::cmp::Reverse(w.host.clone()))
    });
    let mut shuffled = trace.names.clone();
    let first = trace.windows[0].index.0;
    shuffled.push(Input::Tick { unix_ns: first * tailwater_model::window::WINDOW_NS });
    for window in windows {
        let unix_ns = (window.index.0 + 3) * tailwater_model::window::WINDOW_NS;
        shuffled.push(Input::Tick { unix_ns });
        shuffled.push(Input::Window(Arc::new(window)));
    }
    assert_eq!(plain, view(shuffled));
}
