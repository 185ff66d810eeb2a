//! What was learnt as advice on each listener. Owns how many servers and visits a tier has, what is said where nothing can be, and the way
//! from the models' answers to the API's shapes; the words are in `sentence`. Knows no window.

use super::ceilings::{capped, ceilings};
use super::changed;
use super::ends::Ends;
use super::learned::Learned;
use super::learners::{Key, Learners};
use super::sentence::sentence;
use super::servers::{How, Setting, setting_of};
use super::short;
use super::who::{Server, Who};
use std::collections::BTreeSet;
use tailwater_model::advice::{
    AdviceView, Answer, CostPoint, CurvePoint, Headroom, LeftOut, Little, Pool, Range, Reason, TierAdvice,
    WithoutOne,
};
use tailwater_sizing::concurrency::{Deployment, Model};
use tailwater_sizing::evidence::{Claim, Class, Estimate, PoolRange, Refusal};
use tailwater_sizing::headroom::{self as bears, Present, Standstill};

/// The advice on all listeners.
pub(super) fn view(
    learners: &Learners,
    ends: &Ends,
    who: &Who,
    states: bool,
    now_unix_ns: u64,
) -> AdviceView {
    let told =
        |(key, learned): (&Key, &Learned)| (key.clone(), of(key, learned, learners, ends, who, now_unix_ns));
    let tiers: Vec<(Key, TierAdvice)> = learners.iter().map(told).collect();
    let systems = ends.told(who).into_iter().map(|(front, mut system)| {
        short::tell(&mut system, front, &tiers, learners, who);
        system
    });
    let systems = systems.collect();
    let mut tiers: Vec<TierAdvice> = tiers.into_iter().map(|(_, of)| of).collect();
    tiers.sort_by(|a, b| {
        let by = |of: &TierAdvice| (of.tier.clone(), of.workload.clone(), of.address.clone(), of.port);
        by(a).cmp(&by(b))
    });
    let nothing = tiers.is_empty().then(|| nothing(states).to_owned());
    AdviceView {
        learning_since_unix_ns: learners.iter().map(|(_, learned)| learned.span().0).min(),
        made_unix_ns: Some(now_unix_ns),
        nothing,
        systems,
        stealing: Vec::new(),
        tiers,
        refused_listeners: learners.refused() as u64,
    }
}

/// Why no listener is learnt.
fn nothing(states: bool) -> &'static str {
    if states {
        "no listener had a request whose windows and name are known"
    } else {
        "no agent told how long listeners had how many requests in flight: they are of a version before that, cannot load kernel \
         programs, or saw no request"
    }
}

fn of(
    key: &Key,
    learned: &Learned,
    learners: &Learners,
    ends: &Ends,
    who: &Who,
    now_unix_ns: u64,
) -> TierAdvice {
    let server = key.server();
    let servers = who.alike(&server, key.port).len().try_into().unwrap_or(u32::MAX);
    let visits = visits(key, learned, learners, who);
    let deployment = Deployment { servers, visits: visits.unwrap_or(1.0), ..Deployment::default() };
    let limit = learned.limit();
    let setting = setting_of(learned.comm(), &key.workload);
    let held_workers = held(learned, setting);
    // Where connections hold workers, as many requests as there are workers are never in flight.
    let in_flight_limit = limit.filter(|_| held_workers == Held::Nothing).map(|limit| limit.size);
    let mut advice = learned.advise(&deployment, in_flight_limit);
    let is_of_callers = setting.is_some_and(|setting| setting.how == How::OfCallers);
    let between_s = learned.between_calls_s().filter(|_| is_of_callers);
    let held = between_s.and_then(|between_s| advice.for_connections(between_s, &deployment));
    let held = match held_workers {
        Held::For(Open { unused_s, open_s, offered }) => {
            let by_curve = advice.for_held_workers(unused_s, offered, &deployment);
            by_curve.or_else(|| advice.by_open_connections(unused_s, open_s, offered))
        }
        _ => held,
    };
    if (is_of_callers || held_workers != Held::Nothing) && held.is_none() {
        // For how long a connection is held between calls, or a worker between requests, is not known: fewer than are in flight are too few, and as
        // many may be.
        advice.only_raises();
    }
    // A listener's own reason says more.
    if let Some(several) = ends.several(who, &server).filter(|_| advice.pool.value().is_some()) {
        advice.refuse(&several);
    }
    let held = held.filter(|_| advice.pool.value().is_some());
    let mut left_out: Vec<LeftOut> = learned
        .left_out()
        .iter()
        .map(|(taint, seconds)| LeftOut { taint: taint.name().to_owned(), seconds: *seconds as f64 })
        .collect();
    left_out.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let points = learned.points().into_iter().map(|p| CurvePoint {
        in_flight: p.in_flight,
        throughput: p.throughput,
        error: p.error,
    });
    let costs = learned.costs().into_iter().map(|of| CostPoint {
        in_flight: of.in_flight,
        cpu_s: of.cpu_s,
        error_s: of.error_s,
    });
    let idle = match held_workers {
        Held::For(..) => held.unwrap_or(0),
        _ => 0,
    };
    let mut told = TierAdvice {
        tier: format!("{}@{}", who.tier(&server), key.host),
        host: key.host.clone(),
        workload: key.workload.clone(),
        address: key.address.to_string(),
        port: key.port,
        servers,
        visits,
        setting: setting.map(|setting| setting.key.to_owned()),
        limit: limit.map(|limit| limit.size),
        limit_set_by: limit.map(|limit| limit.set_by.clone()),
        learnt_s: learned.clean_s(),
        seen_to: advice.seen_to,
        cpu_s_per_request: learned.cpu_s().as_ref().map(range),
        cpus: learned.cpus(),
        critical: learned.is_critical().then(|| "cpu".to_owned()),
        pool: answer(&advice.pool, pool),
        throughput_max: answer(&advice.throughput_max, range),
        in_flight: answer(&advice.in_flight, range),
        expected_loss: answer(&advice.expected_loss, |loss| *loss),
        limit_loss: advice.limit_loss,
        held_between_calls: held,
        model: model(advice.model).to_owned(),
        headroom: headroom(key, learned, held_workers, learners, who, now_unix_ns),
        ceilings: ceilings(key, learned, setting, idle, learners, who),
        change: learned.last_change().map(|change| changed::told(&change, setting)),
        little: learned.little().map(|(in_flight, by_callers, holds)| Little {
            in_flight,
            by_callers,
            holds,
        }),
        left_out,
        points: points.collect(),
        costs: costs.collect(),
        sentence: String::new(),
    };
    let wanted = advice.pool.decide(told.limit);
    told.sentence = sentence(&told, setting, capped(wanted, told.limit, &told.ceilings));
    told
}

/// What connections without a request hold of a server's workers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Held {
    /// Nothing: a worker is free for the next request once it answered.
    Nothing,
    /// A worker is a connection's, or may be, and it is not known for how long, or not even that.
    Unknown,
    /// A worker for each connection.
    For(Open),
}

/// What is known of connections that hold workers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Open {
    /// For how long one has no request, for each answer, s.
    unused_s: f64,
    /// For how long it is open, for each answer, s.
    open_s: f64,
    /// So many answers a second are to be given at the most.
    offered: f64,
}

/// Of a listener.
fn held(learned: &Learned, setting: Option<Setting>) -> Held {
    let known = learned.open_s().zip(learned.offered_most());
    let known = known.map(|((unused_s, open_s), offered)| Open { unused_s, open_s, offered });
    let said = learned.limit().and_then(|limit| limit.held_by_connection);
    match (said, known) {
        (Some(true), Some(open)) => Held::For(open),
        (Some(true), None) => Held::Unknown,
        (Some(false), _) => Held::Nothing,
        (None, _) if setting.is_none_or(|setting| setting.how != How::IsOfConnections) => Held::Nothing,
        // If it were so it would make no difference.
        (None, Some(of)) if of.unused_s * of.offered < 1.0 => Held::Nothing,
        (None, _) => Held::Unknown,
    }
}

/// What it bears of the present load.
fn headroom(
    key: &Key,
    learned: &Learned,
    held: Held,
    learners: &Learners,
    who: &Who,
    now_unix_ns: u64,
) -> Option<Headroom> {
    let per_second = learned.per_second(now_unix_ns)?;
    let workers = learned.limit().and_then(|limit| match held {
        // Those that connections hold without a request take nothing in; `as` saturates.
        Held::For(of) => Some(limit.size.saturating_sub((per_second * of.unused_s).ceil() as u32)),
        Held::Unknown if limit.held_by_connection == Some(true) => None,
        Held::Unknown | Held::Nothing => Some(limit.size),
    });
    let present = Present {
        rate: per_second,
        cpu_s: learned.cpu_s().map(|of| of.value),
        cpus: learned.cpus(),
        workers,
        backlog: learned.backlog(),
        callers_most: callers_most(key, learners, who),
    };
    let of = bears::headroom(&present, 1.0).ok()?;
    Some(Headroom {
        per_second,
        cpu_ratio: of.cpu_ratio,
        full_at: of.full_at,
        places: of.places,
        overflows_after_s: match of.standstill {
            Standstill::OverflowsAfter(s) => Some(s),
            Standstill::Outlasted | Standstill::Unknown => None,
        },
        outlasted: of.standstill == Standstill::Outlasted,
        without_one: without_one(key, learned, learners, who, now_unix_ns),
    })
}

/// What the other servers of its tier bear in the week's busiest minute when one is away (the utilisation law). `None`: it has no other, or
/// one of them or what a request costs is not known.
fn without_one(
    key: &Key,
    learned: &Learned,
    learners: &Learners,
    who: &Who,
    now_unix_ns: u64,
) -> Option<WithoutOne> {
    let alike = who.alike(&key.server(), key.port);
    let servers = u32::try_from(alike.len()).ok()?.checked_sub(1).filter(|left| *left > 0)?;
    let peak = |of: &Server| learners.at_port(of, key.port, now_unix_ns)?.peak_of_week(now_unix_ns);
    let peaks = alike.iter().map(peak).collect::<Option<Vec<_>>>()?;
    let per_second: f64 = peaks.iter().map(|(per_second, _)| per_second).sum();
    let of_one = per_second / f64::from(servers);
    let present = Present {
        rate: of_one,
        cpu_s: Some(learned.cpu_s()?.value),
        cpus: Some(learned.cpus()?),
        workers: None,
        backlog: None,
        callers_most: None,
    };
    let days = peaks.iter().map(|(_, days)| *days).min()?;
    Some(WithoutOne { servers, per_second, days, cpu_ratio: bears::headroom(&present, 1.0).ok()?.cpu_ratio? })
}

/// Requests that all callers of a listener have at a time, at the most. `None`: others may call it, or of one of them it is not known.
fn callers_most(key: &Key, learners: &Learners, who: &Who) -> Option<u32> {
    let server = key.server();
    if who.fronts(&server).contains(&server) {
        return None;
    }
    let callers: BTreeSet<_> = who.callers(&server).map(|(caller, _)| caller).collect();
    let limit = |caller: &Server| {
        let own = learners.iter().filter(|(key, _)| key.server() == *caller);
        own.map(|(_, learned)| Some(learned.limit()?.size))
            .try_fold(None, |sum: Option<u32>, size| Some(Some(sum.unwrap_or(0).saturating_add(size?))))
    };
    let sizes = callers.into_iter().map(|caller| limit(caller).flatten());
    sizes.reduce(|a, b| Some(a?.saturating_add(b?))).flatten()
}

/// V: answers of the tier on this port for each answer of the front. `None`: not all of them are learnt, or nothing was answered.
fn visits(key: &Key, learned: &Learned, learners: &Learners, who: &Who) -> Option<f64> {
    let server = key.server();
    let now_unix_ns = learned.span().1;
    let fronts = who.fronts(&server);
    if fronts.contains(&server) {
        return Some(1.0);
    }
    let sum = |servers: &BTreeSet<_>, port| -> Option<f64> {
        servers.iter().map(|of| learners.rate(of, port, now_unix_ns)).sum()
    };
    let own = sum(&who.alike(&server, key.port), Some(key.port))?;
    let front = sum(&fronts, None)?;
    (own > 0.0 && front > 0.0).then(|| own / front)
}

fn answer<T, U>(claim: &Claim<T>, of: impl FnOnce(&T) -> U) -> Answer<U> {
    match claim {
        Claim::Told { class, value } => {
            Answer::Told { class: class_name(*class).to_owned(), value: of(value) }
        }
        Claim::Refused { refused } => {
            Answer::Refused { refused: Reason { reason: reason(refused) }, why: refused.to_string() }
        }
    }
}

/// The JSON name of a refusal.
fn reason(refused: &Refusal) -> String {
    let json = serde_json::to_value(refused).unwrap_or_default();
    json["reason"].as_str().unwrap_or("unknown").to_owned()
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Measured => "measured",
        Class::Plateau => "plateau",
        Class::Extrapolated => "extrapolated",
    }
}

fn model(model: Model) -> &'static str {
    match model {
        Model::Law => "law",
        Model::Utilisation => "utilisation",
        Model::Plateau => "plateau",
        Model::Mva => "mva",
        Model::None => "none",
    }
}

fn range(of: &Estimate) -> Range {
    Range { value: of.value, low: of.low, high: of.high }
}

fn pool(of: &PoolRange) -> Pool {
    Pool { advised: of.advised, at_least: of.at_least, at_most: of.at_most, seen_to: of.seen_to }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::learners::tests::second;
    use crate::sizing::who::tests::{server, three_tiers};
    use tailwater_model::window::PoolSize;

    #[test]
    fn what_is_left_of_a_tier_must_bear_its_busiest_minute() {
        let (mut learners, mut who) = (Learners::default(), Who::default());
        who.update(&three_tiers());
        let tier =
            [("app-1", 400), ("app-2", 200)].map(|(host, most)| (server(host, "tomcat10.service"), most));
        for (of, most) in &tier {
            // A minute of more, among others; what a request costs is known of both.
            for at in 0..600_u64 {
                let answered = if at / 60 == 3 { *most } else { 100 + at % 40 };
                learners.learn(&second(of, 8080, answered, (at + 1) * 1_000_000_000));
            }
        }
        let told = |learners: &Learners| {
            let view = view(learners, &Ends::default(), &who, true, 600_000_000_000);
            view.tiers.iter().map(|of| of.headroom.unwrap().without_one).collect::<Vec<_>>()
        };
        for of in told(&learners) {
            let of = of.unwrap();
            assert_eq!((of.servers, of.days), (1, 1));
            assert!((of.per_second / 600.0 - 1.0).abs() < 1e-3, "{of:?}");
            // A millisecond each, of two CPUs.
            assert!((of.cpu_ratio / 0.3 - 1.0).abs() < 0.05, "{of:?}");
        }
        let mut alone = Learners::default();
        (0..600).for_each(|at| alone.learn(&second(&tier[0].0, 8080, 100, (at + 1) * 1_000_000_000)));
        assert_eq!(told(&alone), [None], "of the other it is not known");
    }

    #[test]
    fn visits_are_answers_of_all_servers_of_a_tier_for_each_of_the_front() {
        let (mut learners, mut who) = (Learners::default(), Who::default());
        who.update(&three_tiers());
        let advice = |learners: &Learners, who: &Who| {
            let view = view(learners, &Ends::default(), who, true, 7);
            view.tiers.into_iter().map(|of| (of.tier, of.servers, of.visits)).collect::<Vec<_>>()
        };
        learners.learn(&second(&server("db", "mariadb.service"), 3306, 300, 0));
        assert_eq!(advice(&learners, &who), [("mariadb@db".into(), 1, None)], "its front is not learnt");
        learners.learn(&second(&server("web", "apache2.service"), 80, 100, 0));
        learners.learn(&second(&server("app-1", "tomcat10.service"), 8080, 60, 0));
        let of_app = |learners: &Learners| {
            advice(learners, &who).into_iter().filter(|of| of.0.starts_with("tomcat")).collect::<Vec<_>>()
        };
        assert_eq!(of_app(&learners), [("tomcat10@app-1".into(), 2, None)], "of one of two it is not known");
        learners.learn(&second(&server("app-2", "tomcat10.service"), 8080, 40, 0));
        let told = advice(&learners, &who);
        assert_eq!(
            told,
            [
                ("apache2@web".into(), 1, Some(1.0)),
                ("mariadb@db".into(), 1, Some(3.0)),
                ("tomcat10@app-1".into(), 2, Some(1.0)),
                ("tomcat10@app-2".into(), 2, Some(1.0)),
            ]
        );
    }

    #[test]
    fn workers_are_held_where_the_agent_says_so_and_by_guess_nothing_is_lowered() {
        let told = |comm: &str, held_by_connection, open_s| {
            let mut learners = Learners::default();
            for n in 0..70 {
                let mut of = second(&server("web", "apache2.service"), 80, 100, n * 1_000_000_000);
                of.owned.comm = comm.into();
                of.owned.pool = Some(PoolSize { size: 150, held_by_connection, ..PoolSize::default() });
                of.open_s = open_s;
                learners.learn(&of);
            }
            let (key, learned) = learners.iter().next().unwrap();
            let held = held(learned, setting_of(comm, "x"));
            let present = headroom(key, learned, held, &learners, &Who::default(), 70_000_000_000);
            (held, present.unwrap().places)
        };
        // 2 s of requests, and 50 of connections, for 100 answers a second: half a second for each of them.
        let (held, places) = told("apache2", Some(true), 52.0);
        let Held::For(of) = held else { panic!("{held:?}") };
        assert!((of.unused_s - 0.5).abs() < 1e-6 && (of.open_s - 0.52).abs() < 1e-6, "{of:?}");
        assert!((of.offered / 100.0 - 1.0).abs() < 0.05, "{of:?}");
        assert_eq!(places, Some(150 - 50 + 128 + 1), "less those that are held");
        for (comm, said, open_s, expect) in [
            ("apache2", Some(false), 52.0, Held::Nothing),
            ("apache2", None, 52.0, Held::Unknown),
            ("apache2", None, 2.5, Held::Nothing),
            ("java", None, 52.0, Held::Nothing),
        ] {
            assert_eq!(told(comm, said, open_s), (expect, Some(150 + 128 + 1)), "{comm} {said:?} {open_s}");
        }
    }

    #[test]
    fn nothing_is_said_with_its_reason() {
        let view = |states| view(&Learners::default(), &Ends::default(), &Who::default(), states, 7);
        let (without, with) = (view(false), view(true));
        assert!(
            without.nothing.unwrap().contains("no agent told") && without.learning_since_unix_ns.is_none()
        );
        assert!(with.nothing.unwrap().contains("no listener"));
        let mut learners = Learners::default();
        learners.learn(&second(&server("web", "apache2.service"), 80, 100, 5));
        let view = super::view(&learners, &Ends::default(), &Who::default(), true, 7);
        assert_eq!((view.nothing, view.learning_since_unix_ns, view.made_unix_ns), (None, Some(5), Some(7)));
        let told = &view.tiers[0];
        assert_eq!(
            (told.pool.class(), told.model.as_str(), told.tier.as_str()),
            ("refused", "none", "apache2.service@web")
        );
        assert!(told.sentence.contains("no size: "), "{}", told.sentence);
    }
}
