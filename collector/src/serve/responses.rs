//! `/api/v1/responses`: what a host, a workload, a listener or a whole tier answered over time, by response time. Owns the JSON shape, and writes
//! it on the thread that reads the windows.

use super::series::points_max;
use super::{App, Problem};
use crate::live::responses::{Answers, Responses, Whose, responses as read};
use crate::lock::lock;
use crate::sla::{self, Sla};
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use tailwater_model::responses::{BUCKETS, Histogram, Quantile, Share, edges_us};
use tailwater_model::topology::NodeView;
use tailwater_model::window::{WINDOW_NS, WindowIndex};

/// Points at the most: each has the counts of every bucket.
const POINTS_MAX: usize = 4000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// This or a tier.
    host: Option<String>,
    /// All hosts and workloads of it.
    tier: Option<String>,
    /// Of the host.
    workload: Option<String>,
    /// Of the host.
    listener: Option<String>,
    start: Option<u64>,
    end: Option<u64>,
    max_points: Option<usize>,
    /// Another threshold than that of `[[sla]]`, ms.
    within_ms: Option<u64>,
}

/// A quantile as it is told. Both are `null`: there was no answer.
#[derive(Debug, Serialize, PartialEq)]
struct Told {
    /// Where it is.
    ms: Option<f64>,
    /// It is this or longer; how much longer was not counted.
    at_least_ms: Option<f64>,
}

impl Told {
    fn of(histogram: &Histogram, q: f64) -> Self {
        match histogram.quantile(q) {
            None => Self { ms: None, at_least_ms: None },
            Some(Quantile::At(ms)) => Self { ms: Some(ms), at_least_ms: None },
            Some(Quantile::Above(ms)) => Self { ms: None, at_least_ms: Some(ms) },
        }
    }
}

#[derive(Serialize)]
struct Part {
    /// Windows behind it, of each member its own.
    windows: u32,
    answers: u64,
    p50: Told,
    p99: Told,
    /// Share of the answers within the threshold; `null`: there was no answer.
    within: Option<Share>,
    /// Answers of which that is known each, as their agent counts by this very threshold, and from the first byte of the request on.
    within_counted: u64,
    /// Answers in each bucket.
    counts: [u64; BUCKETS],
    /// Besides, answers of agents of before that took 524 ms or more: how much more they do not tell.
    at_least_524_ms: u64,
}

impl Part {
    fn of(answers: &Answers) -> Self {
        let histogram = &answers.by_time;
        Self {
            windows: answers.windows,
            answers: histogram.answers(),
            p50: Told::of(histogram, 0.5),
            p99: Told::of(histogram, 0.99),
            within: Share::of(&answers.against.held()),
            within_counted: answers.against.counted,
            counts: histogram.counts,
            at_least_524_ms: histogram.coarse,
        }
    }
}

#[derive(Serialize)]
struct Point {
    start_unix_ns: u64,
    #[serde(flatten)]
    part: Part,
}

/// The share of answers that took as long as an edge between two buckets, or longer.
#[derive(Serialize)]
struct Slower {
    than_ms: f64,
    ratio: f64,
}

/// A host's workload, or all of them.
#[derive(Serialize)]
struct Member {
    host: String,
    workload: Option<String>,
}

#[derive(Serialize)]
struct Answer<'a> {
    tier: Option<&'a str>,
    listener: Option<&'a str>,
    members: &'a [Member],
    window_ns: u64,
    /// Of windows in memory; `null`: there is none.
    oldest_unix_ns: Option<u64>,
    newest_unix_ns: Option<u64>,
    within_ms: u64,
    edges_ms: Vec<f64>,
    whole: Part,
    /// Of the whole span; empty: there was no answer.
    slower: Vec<Slower>,
    points: Vec<Point>,
}

/// A question that can be answered.
struct Asked {
    q: Parameters,
    members: Vec<Member>,
    /// The oldest and the newest window in memory.
    there: Option<(WindowIndex, WindowIndex)>,
    within_ms: u64,
}

fn edges_ms() -> impl Iterator<Item = f64> {
    edges_us().map(|us| us as f64 / 1e3)
}

impl Asked {
    fn whose(&self) -> Vec<Whose<'_>> {
        let listener = self.q.listener.as_deref();
        self.members
            .iter()
            .map(|m| Whose { host: &m.host, workload: m.workload.as_deref(), listener })
            .collect()
    }

    fn written(&self, of: &Responses) -> Result<Bytes, Problem> {
        let within_ms = self.within_ms;
        let whole = Part::of(&of.whole);
        let answers = whole.answers;
        let slower =
            |(than_ms, slower): (f64, u64)| Slower { than_ms, ratio: slower as f64 / answers as f64 };
        let answer = Answer {
            tier: self.q.tier.as_deref(),
            listener: self.q.listener.as_deref(),
            members: &self.members,
            window_ns: WINDOW_NS,
            oldest_unix_ns: self.there.map(|there| there.0.start_unix_ns()),
            newest_unix_ns: self.there.map(|there| there.1.end_unix_ns()),
            within_ms,
            edges_ms: edges_ms().collect(),
            slower: if answers == 0 {
                Vec::new()
            } else {
                edges_ms().zip(of.whole.by_time.slower()).map(slower).collect()
            },
            whole,
            points: of
                .points
                .iter()
                .map(|(first, answers)| Point {
                    start_unix_ns: first.start_unix_ns(),
                    part: Part::of(answers),
                })
                .collect(),
        };
        let json = serde_json::to_vec(&answer).map_err(|e| {
            let text = format!("these response times cannot be written as JSON: {e}");
            Problem(StatusCode::INTERNAL_SERVER_ERROR, text)
        })?;
        // Without the room that it grew into: it is kept for as long as somebody takes to read it.
        Ok(Bytes::from(json.into_boxed_slice()))
    }
}

/// Who is asked for.
fn members(app: &App, q: &Parameters) -> Result<Vec<Member>, Problem> {
    match (&q.host, &q.tier) {
        (Some(host), None) => Ok(vec![Member { host: host.clone(), workload: q.workload.clone() }]),
        (None, Some(tier)) if q.workload.is_none() && q.listener.is_none() => {
            let view = Arc::clone(&lock(&app.shown.topology));
            let members = of_tier(&view.nodes, tier);
            if members.is_empty() {
                let text = format!("no tier \"{tier}\"; see /api/v1/topology");
                return Err(Problem(StatusCode::NOT_FOUND, text));
            }
            Ok(members)
        }
        (None, Some(_)) => {
            let text = "workload and listener are of a host; a tier is asked for as a whole";
            Err(Problem(StatusCode::BAD_REQUEST, text.into()))
        }
        _ => Err(Problem(StatusCode::BAD_REQUEST, "ask for a host or for a tier".into())),
    }
}

/// The members of a tier, each once: a server that was started again, or whose agent was, is there under both of its ids, and is read by name.
fn of_tier(nodes: &[NodeView], tier: &str) -> Vec<Member> {
    let of = nodes.iter().filter(|node| node.tier == tier);
    let names: BTreeSet<(&str, &str)> = of.map(|node| (node.host.as_str(), node.workload.as_str())).collect();
    let member = |(host, workload): (&str, &str)| Member {
        host: host.to_owned(),
        workload: Some(workload.to_owned()),
    };
    names.into_iter().map(member).collect()
}

/// The threshold that `[[sla]]` sets for them, ms.
fn promised(rules: &[Sla], nodes: &[NodeView], members: &[Member], listener: Option<&str>) -> u64 {
    let own: BTreeSet<(&str, Option<&str>)> =
        members.iter().map(|member| (member.host.as_str(), member.workload.as_deref())).collect();
    // Who only calls answers nothing, and who does not listen where it is asked about, nothing there.
    let listens = |node: &NodeView| match listener {
        None => !node.listeners.is_empty(),
        Some(at) => node.listeners.iter().any(|own| own == at || same_port(own, at)),
    };
    let is_member = |node: &&NodeView| {
        let host = node.host.as_str();
        (own.contains(&(host, None)) || own.contains(&(host, Some(node.workload.as_str())))) && listens(node)
    };
    let nodes: Vec<&NodeView> = nodes.iter().filter(is_member).collect();
    let tiers: Vec<&str> = nodes.iter().map(|node| node.tier.as_str()).collect();
    let of_nodes = nodes.iter().flat_map(|node| &node.listeners).map(String::as_str);
    let listeners: Vec<&str> = listener.map_or_else(|| of_nodes.collect(), |one| vec![one]);
    // The path of a Unix socket has no port, so no rule of a port is of all of them.
    let ports = listeners.iter().map(|place| sla::port(place)).collect::<Option<Vec<u16>>>();
    sla::within_ms(rules, &tiers, &ports.unwrap_or_default())
}

/// Whether both are of the same port: one may be said with the wildcard address, the other with the one that is called.
fn same_port(a: &str, b: &str) -> bool {
    sla::port(a).is_some() && sla::port(a) == sla::port(b)
}

pub(super) async fn responses(
    State(app): State<App>,
    Query(q): Query<Parameters>,
) -> Result<Response, Problem> {
    if q.within_ms == Some(0) {
        return Err(Problem(StatusCode::BAD_REQUEST, "within_ms must be 1 or more".into()));
    }
    let members = members(&app, &q)?;
    let there = {
        let series = lock(&app.shown.series);
        let spans = members.iter().filter_map(|member| series.span(&member.host));
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    };
    // What is only on disk has no such counts; that is another answer than one of what there never was.
    if there.is_none()
        && let Some(host) = q.host.clone()
    {
        let wanted = host.clone();
        if !app.past(move |past| past.knows(&wanted)).await? {
            let text = format!("no windows of host \"{host}\"; see /api/v1/inventory");
            return Err(Problem(StatusCode::NOT_FOUND, text));
        }
    }
    // Moments, not windows, from the outside; what is not there is left out. Without any window: a span in which none can be.
    let (oldest, newest) = there.unwrap_or((WindowIndex(1), WindowIndex(0)));
    let first = q.start.map_or(oldest, WindowIndex::at).max(oldest);
    let last = q.end.map_or(newest, WindowIndex::at).min(newest);
    let max_points = points_max(q.max_points).min(POINTS_MAX);
    let within_ms = q.within_ms.unwrap_or_else(|| {
        let view = Arc::clone(&lock(&app.shown.topology));
        promised(&app.sla, &view.nodes, &members, q.listener.as_deref())
    });
    let asked = Asked { q, members, there, within_ms };
    let json = app
        .memory(move |series| {
            let within_ns = asked.within_ms.saturating_mul(1_000_000);
            asked.written(&read(series, &asked.whose(), (first, last), max_points, within_ns))
        })
        .await??;
    Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use tailwater_model::responses::Count;

    fn node(workload: &str, tier: &str, listeners: &[&str]) -> NodeView {
        NodeView {
            host: "web-1".into(),
            workload: workload.into(),
            tier: tier.into(),
            listeners: listeners.iter().map(|place| (*place).to_owned()).collect(),
            ..NodeView::default()
        }
    }

    #[test]
    fn a_server_that_was_started_again_is_asked_once() {
        let again = [node("nginx", "web", &["10.0.0.1:80"]), node("nginx", "web", &["10.0.0.1:80"])];
        let members = of_tier(&again, "web");
        assert_eq!(members.len(), 1);
        assert_eq!((members[0].host.as_str(), members[0].workload.as_deref()), ("web-1", Some("nginx")));
        assert!(of_tier(&again, "app").is_empty());
    }

    #[test]
    fn who_answers_nothing_has_no_say_in_which_threshold_holds() {
        let rule = |port, within_ms| Sla { tier: Some("web".into()), port, within_ms };
        let rules = [rule(Some(80), 100), rule(None, 200)];
        let nodes = [
            node("nginx", "web", &["10.0.0.1:80"]),
            node("cron", "cron", &[]),
            node("mariadb", "db", &["10.0.0.1:3306"]),
        ];
        let all = [Member { host: "web-1".into(), workload: None }];
        let ms = |nodes: &[NodeView], listener| promised(&rules, nodes, &all, listener);
        assert_eq!(ms(&nodes[..2], None), 100, "a workload that only calls");
        assert_eq!(ms(&nodes, Some("0.0.0.0:80")), 100, "another listener of the host");
        assert_eq!(ms(&nodes, None), 500, "no rule is of both tiers");
    }

    #[test]
    fn an_answer_has_a_bound_where_there_is_no_number_and_an_interval_where_there_is_no_edge() {
        let q = Parameters {
            host: Some("web-1".into()),
            tier: None,
            workload: None,
            listener: None,
            start: None,
            end: None,
            max_points: None,
            within_ms: None,
        };
        let members = vec![Member { host: "web-1".into(), workload: None }];
        let asked = Asked { q, members, there: Some((WindowIndex(100), WindowIndex(199))), within_ms: 500 };
        let mut answers = Answers { windows: 1, ..Answers::default() };
        for (bucket, count) in [(12, 8), (18, 1), (24, 1)] {
            let counts = [Count { listener: 1, bucket, answers: count }];
            answers.by_time.add(&counts);
            answers.against.add(&counts, None, 500_000_000);
        }
        let silence = Answers { windows: 1, ..Answers::default() };
        let points = vec![(WindowIndex(100), answers), (WindowIndex(101), silence)];
        let Ok(json) = asked.written(&Responses { whole: answers, points }) else { panic!("it is written") };
        let told: Value = serde_json::from_slice(&json).unwrap();
        let point = &told["points"][0];
        assert_eq!(point["start_unix_ns"], json!(100 * WINDOW_NS));
        assert_eq!(told["newest_unix_ns"], json!(200 * WINDOW_NS));
        assert_eq!((&point["answers"], &point["counts"][12]), (&json!(10), &json!(8)));
        assert_eq!(point["p50"], json!({ "ms": 6.656, "at_least_ms": null }));
        assert_eq!(point["p99"], json!({ "ms": null, "at_least_ms": 524.288 }), "no number is made up");
        assert_eq!(
            (&point["within"], &told["within_ms"]),
            (&json!({ "least": 0.8, "most": 0.9 }), &json!(500))
        );
        let silent = &told["points"][1];
        assert_eq!(silent["p50"], json!({ "ms": null, "at_least_ms": null }));
        assert_eq!((&silent["within"], &silent["windows"]), (&Value::Null, &json!(1)));
        assert_eq!((&point["at_least_524_ms"], &point["within_counted"]), (&json!(1), &json!(0)));
        assert_eq!(
            (told["edges_ms"].as_array().unwrap().len(), &told["edges_ms"][22]),
            (23, &json!(8388.608))
        );
        assert_eq!(told["slower"][18], json!({ "than_ms": 524.288, "ratio": 0.1 }));
        assert_eq!(told["whole"]["counts"], point["counts"]);
        let Ok(json) = asked.written(&Responses { whole: silence, points: vec![] }) else { panic!("it is") };
        let told: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&told["slower"], &told["points"]), (&json!([]), &json!([])), "no answer has no share");
    }
}
