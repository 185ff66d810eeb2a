//! What was learnt as advice on each listener. Owns how many servers and visits a tier has, what is said where nothing can be, and the way
//! from the models' answers to the API's shapes; the words are in `sentence`. Knows no window.

use super::ceilings::{capped, ceilings};
use super::changed;
use super::ends::Ends;
use super::learned::Learned;
use super::learners::{Key, Learners};
use super::sentence::sentence;
use super::servers::{How, setting_of};
use super::who::{Server, Who};
use std::collections::BTreeSet;
use tailwater_model::advice::{
    AdviceView, Answer, CostPoint, CurvePoint, Headroom, LeftOut, Little, Pool, Range, Reason, TierAdvice,
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
    let mut tiers: Vec<TierAdvice> =
        learners.iter().map(|(key, learned)| of(key, learned, learners, ends, who, now_unix_ns)).collect();
    tiers.sort_by(|a, b| {
        let by = |of: &TierAdvice| (of.tier.clone(), of.workload.clone(), of.address.clone(), of.port);
        by(a).cmp(&by(b))
    });
    let nothing = tiers.is_empty().then(|| nothing(states).to_owned());
    AdviceView {
        learning_since_unix_ns: learners.iter().map(|(_, learned)| learned.span().0).min(),
        made_unix_ns: Some(now_unix_ns),
        nothing,
        systems: ends.told(who),
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
    let mut advice = learned.advise(&deployment, limit.map(|limit| limit.size));
    let setting = setting_of(learned.comm(), &key.workload);
    let is_of_callers = setting.is_some_and(|setting| setting.how == How::OfCallers);
    let between_s = learned.between_calls_s().filter(|_| is_of_callers);
    let held = between_s.and_then(|between_s| advice.for_connections(between_s, &deployment));
    if is_of_callers && held.is_none() {
        // For how long callers hold a connection between their calls is not known: fewer connections than calls are too few, and as many may be.
        advice.only_raises();
    }
    // A listener's own reason says more.
    if let Some(several) = ends.several(who, &server).filter(|_| advice.pool.value().is_some()) {
        advice.refuse(&several);
    }
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
        held_between_calls: held.filter(|_| advice.pool.value().is_some()),
        model: model(advice.model).to_owned(),
        headroom: headroom(key, learned, learners, who, now_unix_ns),
        ceilings: ceilings(key, learned, setting, learners, who),
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

/// What it bears of the present load.
fn headroom(
    key: &Key,
    learned: &Learned,
    learners: &Learners,
    who: &Who,
    now_unix_ns: u64,
) -> Option<Headroom> {
    let per_second = learned.per_second(now_unix_ns)?;
    let present = Present {
        rate: per_second,
        cpu_s: learned.cpu_s().map(|of| of.value),
        cpus: learned.cpus(),
        workers: learned.limit().map(|limit| limit.size),
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
    })
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
