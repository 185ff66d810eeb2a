//! What a picture of a known incident shows, its formats, and what is said when there is nothing to draw.

use super::figure::{Style, figure};
use super::*;
use crate::fixture::incident;
use crate::live::timeline::{ResourceRow, TierRow};
use tailwater_model::incident::Role;

fn rise(n: usize, top: f64) -> Vec<Option<f64>> {
    (0..n).map(|k| Some(if k < 4 { 0.0 } else { top })).collect()
}

/// 24 windows around the incident; the second window of every queue is missing.
fn timeline(of: &Incident) -> Timeline {
    let mut queued = rise(24, 279.0);
    queued[1] = None;
    let row = |h: &tailwater_model::incident::Hop| {
        let drops = h.role == Role::Drop;
        TierRow {
            host: h.host.clone(),
            workload: h.workload.clone(),
            tier: h.tier.clone(),
            listener: h.listener.clone(),
            queued_requests: queued.clone(),
            accept_queue_depth: rise(24, 129.0),
            workers_busy: rise(24, 150.0),
            drops: rise(24, if drops { 3.0 } else { 0.0 }),
            calls_in_flight: rise(24, 0.0),
            resource: rise(24, 1.0),
            retried: if drops { rise(24, 2.0) } else { Vec::new() },
        }
    };
    Timeline {
        start_unix_ns: of.start_unix_ns - 200_000_000,
        window_ns: 50_000_000,
        tiers: of.hops.iter().map(row).collect(),
        resource: Some(ResourceRow { metric: "run_queue_wait_tasks".into(), values: rise(24, 12.0) }),
    }
}

#[test]
fn the_three_panels_of_the_paper_share_one_axis() {
    let incident = incident("01A", 1);
    let figure = figure(&incident, &timeline(&incident)).unwrap();
    let titles: Vec<&str> = figure.panels.iter().map(|p| p.title.as_str()).collect();
    let wanted = [
        "Waiting for the CPU per tier",
        "Queued requests per tier",
        "Dropped packets and very long requests",
    ];
    assert_eq!(titles, wanted);
    assert_eq!((figure.windows, figure.window), (24, 0.05));
    let queues = &figure.panels[1];
    let web = queues.rows.iter().find(|r| r.name == "apache2@web-1").unwrap();
    assert_eq!((web.limit, web.detail.as_str()), (Some(278.0), "MaxSysQDepth 278"));
    assert_eq!(web.values[1], None, "a missing window is a gap");
    assert!(figure.notes.iter().any(|n| n.starts_with("Gaps")), "{:?}", figure.notes);
    let drops = &figure.panels[2];
    let styles: Vec<Style> = drops.rows.iter().map(|r| r.style).collect();
    assert_eq!(styles, [Style::Bars, Style::Marks]);
    assert_eq!(drops.rows[0].detail, "60 packets");
    let (from, to, name) = figure.band.as_ref().unwrap();
    assert!(*from == 0.0 && *to > 0.5 && name == "cpu neighbour at tomcat10@app-1", "{from} {to} {name}");
}

#[test]
fn both_formats_are_real_and_the_same_each_time() {
    let incident = incident("01A", 1);
    let t = timeline(&incident);
    let svg = String::from_utf8(bytes(&incident, &t, Format::Svg).unwrap()).unwrap();
    for text in ["<svg", "(b) Queued requests per tier", "MaxSysQDepth 278", "Drops at apache2@web-1"] {
        assert!(svg.contains(text), "missing {text}");
    }
    assert_eq!(svg.as_bytes(), bytes(&incident, &t, Format::Svg).unwrap());
    let drawn = bytes(&incident, &t, Format::Png).unwrap();
    let decoder = png::Decoder::new(std::io::Cursor::new(drawn));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(info.width, 2000);
    let ink = pixels.chunks(3).filter(|p| *p != [255, 255, 255]).count();
    assert!(ink * 100 > pixels.len() / 3, "something is drawn: {ink} pixels");
}

#[test]
fn what_cannot_be_drawn_is_said_with_the_remedy() {
    let incident = incident("01A", 1);
    let nothing = Timeline { tiers: Vec::new(), resource: None, ..timeline(&incident) };
    let told = bytes(&incident, &nothing, Format::Svg).unwrap_err().to_string();
    assert!(told.contains("01A") && told.contains("remedy"), "{told}");
    let t = timeline(&incident);
    let told = to_file(&incident, &t, Path::new("picture.jpeg")).unwrap_err().to_string();
    assert!(told.contains("picture.jpeg") && told.contains(".svg or .png"), "{told}");
    let told = to_file(&incident, &t, Path::new("/nowhere/picture.svg")).unwrap_err().to_string();
    assert!(told.starts_with("write /nowhere/picture.svg"), "{told}");
}

#[test]
fn a_curve_shows_what_was_seen_what_is_advised_and_what_is_set() {
    let advice = |points: usize| -> TierAdvice {
        let told = |value: serde_json::Value| serde_json::json!({ "class": "measured", "value": value });
        let point = |n: usize| serde_json::json!({ "in_flight": n, "throughput": 100.0 * (n as f64).min(9.0), "error": 4.0 });
        serde_json::from_value(serde_json::json!({
            "tier": "tomcat10@app", "host": "app", "workload": "tomcat10.service", "address": "::", "port": 8080, "servers": 2,
            "visits": 2.0, "setting": null, "limit": 200, "limit_set_by": "x", "learnt_s": 600.0, "seen_to": 61.0,
            "cpu_s_per_request": null, "cpus": 1.0, "critical": "cpu",
            "pool": told(serde_json::json!({ "advised": 9, "at_least": 8, "at_most": 33, "seen_to": 61.0 })),
            "throughput_max": told(serde_json::json!({ "value": 900.0, "low": 880.0, "high": 920.0 })),
            "in_flight": told(serde_json::json!({ "value": 9.0, "low": 8.0, "high": 10.0 })),
            "expected_loss": told(serde_json::json!(0.01)), "model": "law",
            "little": { "in_flight": 4.5, "by_callers": 4.6, "holds": true }, "left_out": [],
            "points": (1..=points).map(point).collect::<Vec<_>>(), "sentence": "tomcat10@app:8080: 9 at a time are enough",
        }))
        .unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let (with, without) = (advice(40), advice(1));
    let svg = folder.path().join("curves.svg");
    curves_to_file(&[&with, &without], &svg).unwrap();
    let text = std::fs::read_to_string(svg).unwrap();
    for wanted in [
        "9 at a time are enough",
        "advised 9",
        "set to 200",
        "mean now 4.5",
        "answers/s",
        "Without a curve: tomcat10@app:8080",
    ] {
        assert!(text.contains(wanted), "missing {wanted}");
    }
    let png = folder.path().join("curves.png");
    curves_to_file(&[&with], &png).unwrap();
    assert!(std::fs::metadata(png).unwrap().len() > 5_000);
    let told = curves_to_file(&[&without], &folder.path().join("x.svg")).unwrap_err().to_string();
    assert!(told.contains("none of 1 listeners") && told.contains("remedy"), "{told}");
}
