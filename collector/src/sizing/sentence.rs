//! Advice as a line to act on. Owns the words; knows no learner and computes nothing.

use super::servers::{How, Setting};
use crate::text::span;
use tailwater_model::advice::{Answer, Pool, TierAdvice};
use tailwater_sizing::evidence::Decision;

/// The line: which pool, the size, what it costs elsewhere, what it rests on and what is critical. `decision`: what follows for the pool as
/// it is set now.
pub(super) fn sentence(of: &TierAdvice, setting: Option<Setting>, decision: Decision) -> String {
    let name = of.name();
    let learnt = format!("{} of traffic", span(of.learnt_s));
    let (class, pool) = match &of.pool {
        Answer::Refused { why, .. } => return format!("{name}: no size: {why}; {learnt}{}", left_out(of)),
        Answer::Told { class, value } => (class, value),
    };
    let mut parts = vec![format!(
        "{name}: {}{}",
        size(class, pool, of.held_between_calls.filter(|n| *n > 0 && !is_of_callers(setting))),
        words(of, setting, pool, decision)
    )];
    if of.servers > 1 {
        parts.push(format!("in each of {} servers", of.servers));
    }
    let seen = if of.seen_to < 0.5 { String::new() } else { format!(", up to {:.0} in flight", of.seen_to) };
    parts.push(format!("{class}, {learnt}{seen}"));
    parts.push(match of.critical.as_deref() {
        Some("cpu") => "CPU is critical".to_owned(),
        Some(other) => format!("{other} is critical"),
        None => "no hardware was seen full".to_owned(),
    });
    parts.push(match (of.limit, &of.limit_set_by) {
        (Some(limit), Some(set_by)) => format!("it is {limit} now, by {set_by}"),
        (Some(limit), None) => format!("it is {limit} now"),
        (None, _) => "limit unknown".to_owned(),
    });
    // A ceiling above what is advised bites nobody.
    for ceiling in of.ceilings.iter().filter(|ceiling| bites(ceiling.most, of.limit, pool)) {
        parts.push(ceiling.sentence.clone());
    }
    // What is within the range is no reason to change anything.
    if let Some(loss) = of.limit_loss.filter(|_| matches!(decision, Decision::Lower(_))) {
        parts.push(format!("all of it in use costs {:.0} % of the best throughput", loss * 100.0));
    }
    parts.join("; ")
}

/// Whether fewer are let in than are advised, and not as many as there are now.
fn bites(most: u32, limit: Option<u32>, pool: &Pool) -> bool {
    most < pool.advised && limit.is_none_or(|now| now < pool.advised)
}

/// From what it is set to now to what it should be, if that differs.
fn change(limit: Option<u32>, decision: Decision, advised: u32) -> String {
    match (limit, decision) {
        (Some(limit), Decision::Keep) => format!("may stay at {limit}"),
        (Some(limit), Decision::Raise(size) | Decision::Lower(size)) => format!("{limit} → {size}"),
        _ => advised.to_string(),
    }
}

/// The size, with what more and fewer cost.
fn size(class: &str, pool: &Pool, held: Option<u32>) -> String {
    let held = held
        .map(|n| format!(", {n} of them for connections that are kept without a request"))
        .unwrap_or_default();
    let Pool { advised, at_least, at_most, seen_to } = pool;
    match at_most {
        _ if class == "extrapolated" => format!("at least {at_least} at a time{held} (a lower bound)"),
        Some(at_most) => format!("{advised} at a time are enough{held} ({at_least} to {at_most} cost ≤ 2 %)"),
        None => format!("{advised} at a time are enough{held} (more cost nothing up to {seen_to:.0})"),
    }
}

/// Whether what is held is said with the callers' pools.
fn is_of_callers(setting: Option<Setting>) -> bool {
    setting.is_some_and(|setting| setting.how == How::OfCallers)
}

/// Where that size is set.
fn words(of: &TierAdvice, setting: Option<Setting>, pool: &Pool, decision: Decision) -> String {
    let Some(Setting { key, how }) = setting else { return String::new() };
    let all = u64::from(pool.advised) * u64::from(of.servers);
    let change = change(of.limit, decision, pool.advised);
    match how {
        How::Is | How::IsOfConnections => format!(": {key} {change}"),
        How::Make => format!(": {key} = {change}"),
        How::OfCallers => {
            let held = of.held_between_calls.map(|held| u64::from(held) * u64::from(of.servers));
            let held = match held {
                None => " and what they hold between calls".to_owned(),
                Some(0) => String::new(),
                Some(held) => format!(", {held} of them for what they hold between calls"),
            };
            format!(": its callers' pools together {all}{held}, and {key} above that")
        }
        How::PerBackend => format!(": it has no workers; {key}"),
    }
}

/// Of a refusal, what most of the time was left out for.
fn left_out(of: &TierAdvice) -> String {
    of.left_out.first().map_or_else(String::new, |most| {
        format!(", and {} left out ({})", span(most.seconds), most.taint.replace('_', " "))
    })
}

#[cfg(test)]
mod tests {
    use super::super::servers::setting_of;
    use super::*;
    use tailwater_model::advice::{LeftOut, Reason};
    use tailwater_sizing::evidence::{Claim, Class, PoolRange};

    /// The line with what follows for the pool as it is set.
    fn line(of: &TierAdvice, setting: Option<Setting>) -> String {
        let decision = of.pool.value().map_or(Decision::Keep, |pool| {
            let class = match of.pool.class() {
                "measured" => Class::Measured,
                "plateau" => Class::Plateau,
                _ => Class::Extrapolated,
            };
            let Pool { advised, at_least, at_most, seen_to } = *pool;
            Claim::Told { class, value: PoolRange { advised, at_least, at_most, seen_to } }.decide(of.limit)
        });
        sentence(of, setting, decision)
    }

    fn advice(class: &str, at_most: Option<u32>) -> TierAdvice {
        let refused = || Answer::Refused { refused: Reason { reason: "x".into() }, why: "x".into() };
        TierAdvice {
            tier: "tomcat10@app".into(),
            host: "app".into(),
            workload: "tomcat10.service".into(),
            address: "::".into(),
            port: 8080,
            servers: 1,
            visits: None,
            setting: None,
            limit: None,
            limit_set_by: None,
            learnt_s: 11_531.0,
            seen_to: 61.0,
            cpu_s_per_request: None,
            cpus: None,
            critical: Some("cpu".into()),
            pool: Answer::Told {
                class: class.into(),
                // A lower bound advises itself.
                value: Pool {
                    advised: if class == "extrapolated" { 24 } else { 26 },
                    at_least: 24,
                    at_most,
                    seen_to: 61.0,
                },
            },
            throughput_max: refused(),
            in_flight: refused(),
            expected_loss: Answer::Refused { refused: Reason { reason: "x".into() }, why: "x".into() },
            limit_loss: None,
            held_between_calls: None,
            costs: Vec::new(),
            headroom: None,
            change: None,
            ceilings: Vec::new(),
            model: "law".into(),
            little: None,
            left_out: vec![LeftOut { taint: "not_measured".into(), seconds: 75.0 }],
            points: Vec::new(),
            sentence: String::new(),
        }
    }

    #[test]
    fn a_line_says_what_to_set_and_why() {
        let tomcat = setting_of("java", "tomcat10.service");
        assert_eq!(
            line(&advice("measured", Some(33)), tomcat),
            "tomcat10@app:8080: 26 at a time are enough (24 to 33 cost ≤ 2 %): maxThreads of the Connector in \
             server.xml 26; measured, 3 h 12 min of traffic, up to 61 in flight; CPU is critical; limit unknown"
        );
        let two = TierAdvice { servers: 2, limit: Some(200), ..advice("plateau", None) };
        assert_eq!(
            line(&two, setting_of("mariadbd", "")),
            "tomcat10@app:8080: 26 at a time are enough (more cost nothing up to 61): its callers' pools together \
             52 and what they hold between calls, and max_connections above that; in each of 2 servers; plateau, 3 h 12 min of traffic, up to 61 in \
             flight; CPU is critical; it is 200 now"
        );
        let held = TierAdvice { held_between_calls: Some(2), ..two.clone() };
        let told = line(&held, setting_of("mariadbd", ""));
        assert!(
            told.contains(
                "pools together 52, 4 of them for what they hold between calls, and max_connections"
            ),
            "{told}"
        );
        let none = line(&TierAdvice { held_between_calls: Some(0), ..two }, setting_of("mariadbd", ""));
        assert!(none.contains("pools together 52, and max_connections above that"), "{none}");
        let apache = setting_of("apache2", "");
        let kept = TierAdvice { held_between_calls: Some(20), limit: Some(61), ..advice("plateau", None) };
        let told = line(&kept, apache);
        assert!(
            told.contains(
                ": 26 at a time are enough, 20 of them for connections that are kept without a request (more cost \
                 nothing up to 61): MaxRequestWorkers may stay at 61;"
            ),
            "{told}"
        );
        let none = line(&TierAdvice { held_between_calls: Some(0), ..kept }, apache);
        assert!(none.contains(": 26 at a time are enough (more cost"), "{none}");
        let bound = TierAdvice { critical: None, ..advice("extrapolated", None) };
        assert_eq!(
            line(&bound, None),
            "tomcat10@app:8080: at least 24 at a time (a lower bound); extrapolated, 3 h 12 min of traffic, up to \
             61 in flight; no hardware was seen full; limit unknown"
        );
    }

    #[test]
    fn what_is_set_already_is_held_against_what_should_be() {
        let tomcat = setting_of("java", "tomcat10.service");
        let at = |class: &str, at_most, limit| {
            let set_by = Some("maxThreads in /srv/conf/server.xml".to_owned());
            line(&TierAdvice { limit: Some(limit), limit_set_by: set_by, ..advice(class, at_most) }, tomcat)
        };
        let change =
            |line: String| line.split(';').next().unwrap().rsplit("server.xml ").next().unwrap().to_owned();
        let line = at("measured", Some(33), 200);
        assert!(
            line.ends_with("CPU is critical; it is 200 now, by maxThreads in /srv/conf/server.xml"),
            "{line}"
        );
        let costs =
            |limit| TierAdvice { limit: Some(limit), limit_loss: Some(0.17), ..advice("plateau", Some(33)) };
        let told = super::tests::line(&costs(200), tomcat);
        assert!(
            told.ends_with("it is 200 now; all of it in use costs 17 % of the best throughput"),
            "{told}"
        );
        let told = super::tests::line(&costs(30), tomcat);
        assert!(told.ends_with("it is 30 now"), "within the range: {told}");
        assert_eq!(change(line), "200 → 26");
        for (class, at_most, limit, expect) in [
            ("measured", Some(33), 30, "may stay at 30"),
            ("measured", Some(33), 20, "20 → 26"),
            ("plateau", None, 61, "may stay at 61"),
            ("plateau", None, 150, "150 → 26"),
            ("extrapolated", None, 150, "may stay at 150"),
            ("extrapolated", None, 4, "4 → 24"),
        ] {
            assert_eq!(change(at(class, at_most, limit)), expect, "{class} {limit}");
        }
    }

    #[test]
    fn a_ceiling_that_bites_first_is_told_and_caps_a_raise() {
        let tomcat = setting_of("java", "tomcat10.service");
        let ceiling = |most| {
            let sentence = format!("100 connections of mariadb@db:3306 let in {most}");
            tailwater_model::advice::Ceiling { what: "connections".into(), most, limit: 100, sentence }
        };
        let with = |limit, most| {
            let of = TierAdvice {
                limit: Some(limit),
                ceilings: vec![ceiling(most)],
                ..advice("measured", Some(33))
            };
            let decision = Claim::Told {
                class: Class::Measured,
                value: PoolRange { advised: 26, at_least: 24, at_most: Some(33), seen_to: 61.0 },
            };
            sentence(
                &of,
                tomcat,
                super::super::ceilings::capped(decision.decide(of.limit), of.limit, &of.ceilings),
            )
        };
        let told = with(10, 20);
        assert!(
            told.contains("server.xml 10 → 20;")
                && told.ends_with("; 100 connections of mariadb@db:3306 let in 20"),
            "{told}"
        );
        let told = with(20, 15);
        assert!(told.contains("server.xml may stay at 20;") && told.ends_with("let in 15"), "{told}");
        let told = with(10, 50);
        assert!(told.contains("10 → 26;") && !told.contains("let in"), "{told}");
        let told = with(200, 15);
        assert!(told.contains("200 → 26;") && !told.contains("let in"), "it goes down: {told}");
    }

    #[test]
    fn a_refusal_says_why_and_what_was_left_out() {
        let pool = Answer::Refused {
            refused: Reason { reason: "no_plateau".into() },
            why: "no plateau of throughput was seen".into(),
        };
        let refused = TierAdvice { pool, learnt_s: 17.0, ..advice("", None) };
        assert_eq!(
            line(&refused, None),
            "tomcat10@app:8080: no size: no plateau of throughput was seen; 17 s of traffic, and 1 min 15 s left out \
             (not measured)"
        );
    }
}
