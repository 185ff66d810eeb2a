//! By how much what comes at a front is more than what the hardware that ends its throughput answers: what no size of a pool helps against. Owns that
//! comparison and its words; knows no window, and no model.

use super::learners::{Key, Learners};
use super::who::{Server, Who};
use tailwater_model::advice::{Short, SystemAdvice, TierAdvice};

/// Times what it answers from which more is offered: what is offered in a minute is known within a twentieth, and of 20 requests a second comes so many
/// more by chance in one minute of a hundred.
const OFFERED_FROM: f64 = 1.1;
/// Times what it answers from which more is offered than clients make who are to be served: a flood is no reason for more servers.
const OFFERED_TO: f64 = 5.0;
/// Part of a front's answers that one of its listeners must have: the busiest minutes of several are not the same ones.
const ONE_PART: f64 = 0.99;

/// Adds to the advice on a front's throughput what it is short of, if one tier's CPU ends it, that tier's best throughput is known, and more was offered.
pub(super) fn tell(
    system: &mut SystemAdvice,
    front: &Server,
    tiers: &[(Key, TierAdvice)],
    learners: &Learners,
    who: &Who,
) {
    let Some(tier) = ended_by(system).map(str::to_owned) else { return };
    // Of a tier that another front asks as well, this one's part is not known.
    let behind = tiers.iter().filter(|(key, _)| {
        let server = key.server();
        who.tier(&server) == tier && who.fronts(&server).iter().eq([front])
    });
    let answers = behind.filter_map(|(_, of)| Some((best(of)?, of.servers)));
    let Some((answers, servers)) = answers.min_by(|a, b| a.0.total_cmp(&b.0)) else { return };
    let Some(offered) = offered(front, learners) else { return };
    let Some(short) = short(offered, answers, servers) else { return };
    system.sentence = format!(
        "{}; up to {offered:.0} requests/s came in the busiest minute and {answers:.0} can be answered, which no pool changes: short by {:.1} servers of \
         {tier}, or shed above {answers:.0}/s at {}",
        system.sentence, short.servers, system.front
    );
    system.short = Some(short);
}

/// The tier whose CPU ends throughput.
fn ended_by(system: &SystemAdvice) -> Option<&str> {
    let tier = system.critical.as_deref()?.strip_prefix("CPU of ")?;
    system.resources.iter().any(|of| of.what == "cpu" && of.tier == tier).then_some(tier)
}

/// Requests a second at a front in its busiest minute; `None`: not known, or more than one of its listeners has them.
fn offered(front: &Server, learners: &Learners) -> Option<f64> {
    let own = || learners.iter().filter(|(key, _)| key.server() == *front).map(|(_, learned)| learned);
    let newest = own().map(|of| of.span().1).max()?;
    let all: f64 = own().map(|of| of.rate_at(newest)).sum();
    own().find(|of| of.rate_at(newest) >= ONE_PART * all)?.offered_in_a_minute()
}

/// The most requests of the system per second that a tier allows, if that was seen.
fn best(of: &TierAdvice) -> Option<f64> {
    of.visits?;
    let most = of.throughput_max.value().filter(|_| of.throughput_max.class() != "extrapolated")?;
    (most.value > 0.0).then_some(most.value)
}

fn short(offered: f64, answers: f64, servers: u32) -> Option<Short> {
    let over = offered / answers;
    (OFFERED_FROM..OFFERED_TO).contains(&over).then(|| Short {
        offered_per_second: offered,
        answered_per_second: answers,
        servers: f64::from(servers) * (over - 1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::ends::Ends;
    use crate::sizing::learners::tests::second;
    use crate::sizing::told;
    use crate::sizing::who::tests::{server, three_tiers};
    use tailwater_model::advice::{Answer, Range, ResourceUse};

    fn system(critical: Option<&str>) -> SystemAdvice {
        let cpu =
            ResourceUse { tier: "mariadb".into(), what: "cpu".into(), used_ratio: 1.0, full_ratio: 1.0 };
        SystemAdvice {
            front: "apache2@web".into(),
            seconds: 100.0,
            critical: critical.map(str::to_owned),
            resources: vec![cpu],
            short: None,
            sentence: "apache2@web: throughput ends".into(),
        }
    }

    #[test]
    fn what_is_offered_beyond_what_the_critical_tier_answers_is_told_as_servers_and_as_a_rate() {
        let (mut learners, mut who) = (Learners::default(), Who::default());
        who.update(&three_tiers());
        for at in 0..200 {
            learners.learn(&second(&server("web", "apache2.service"), 80, 256, at * 1_000_000_000));
            learners.learn(&second(&server("db", "mariadb.service"), 3306, 512, at * 1_000_000_000));
        }
        let view = told::view(&learners, &Ends::default(), &who, true, 7);
        let tiers = |class: &str, most: f64| -> Vec<(Key, TierAdvice)> {
            let all = learners.iter().zip(&view.tiers).map(|((key, _), _)| {
                let of = view.tiers.iter().find(|of| of.port == key.port).unwrap();
                let value = Range { value: most, low: most, high: most };
                let throughput_max = Answer::Told { class: class.into(), value };
                (key.clone(), TierAdvice { throughput_max, servers: 2, ..of.clone() })
            });
            all.collect()
        };
        let front = server("web", "apache2.service");
        let told = |critical, class, most| {
            let mut system = system(critical);
            tell(&mut system, &front, &tiers(class, most), &learners, &who);
            system
        };
        let of = told(Some("CPU of mariadb"), "plateau", 160.0);
        let short = of.short.unwrap_or_else(|| panic!("{}", of.sentence));
        assert!((short.offered_per_second / 256.0 - 1.0).abs() < 0.05, "{short:?}");
        assert!((short.servers / (2.0 * (short.offered_per_second / 160.0 - 1.0)) - 1.0).abs() < 1e-9);
        assert_eq!(
            of.sentence,
            "apache2@web: throughput ends; up to 256 requests/s came in the busiest minute and 160 can be answered, which no pool changes: short by 1.2 \
             servers of mariadb, or shed above 160/s at apache2@web"
        );
        for (critical, class, most) in [
            (Some("CPU of mariadb"), "plateau", 250.0),
            (Some("CPU of mariadb"), "plateau", 50.0),
            (Some("CPU of mariadb"), "extrapolated", 160.0),
            (Some("disk of mariadb"), "plateau", 160.0),
            (Some("CPU of tomcat10"), "plateau", 160.0),
            (None, "plateau", 160.0),
        ] {
            assert_eq!(told(critical, class, most), system(critical), "{critical:?} {class} {most}");
        }
        // Another listener of the front has a part of what comes.
        let mut several = Learners::default();
        for at in 0..200 {
            several.learn(&second(&front, 80, 256, at * 1_000_000_000));
            several.learn(&second(&front, 443, 20, at * 1_000_000_000));
        }
        assert_eq!((offered(&front, &several), offered(&front, &Learners::default())), (None, None));
        assert!(offered(&front, &learners).is_some());
    }
}
