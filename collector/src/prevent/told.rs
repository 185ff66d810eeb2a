//! What the model found, in the API's shapes and in sentences. Owns the words; knows no window.

use super::modelled::{Modelled, WITHIN_S};
use super::places::Place;
use tailwater_model::advice::Reason;
use tailwater_model::prevention::{
    Candidate, Change, Goodput, ModelTier, PreventionAnswer, Replayed, Reproduction,
};
use tailwater_model::window::{WINDOW_NS, WindowIndex};
use tailwater_model::{Incident, PreventionView};
use tailwater_sizing::evidence::Refusal;
use tailwater_sizing::prevent::{self as model, Effect, Entry, Knob, MARGIN, Outcome, Prevention, Retries};

/// As it is told.
pub(super) fn view(incident: &Incident, answer: Result<PreventionAnswer, Refusal>) -> PreventionView {
    let (id, version) = (incident.id.clone(), incident.version);
    match answer {
        Ok(answer) => {
            PreventionView { id, version, refused: None, why: None, queue: None, answer: Some(answer) }
        }
        Err(refusal) => {
            let name = serde_json::to_value(&refusal).ok();
            let reason = name.and_then(|v| v["reason"].as_str().map(str::to_owned)).unwrap_or_default();
            let (refused, why) = (Some(Reason { reason }), Some(refusal.to_string()));
            PreventionView { id, version, refused, why, queue: None, answer: None }
        }
    }
}

/// What was found for the chain.
pub(super) fn answer(places: &[Place], modelled: &Modelled, found: &Prevention) -> PreventionAnswer {
    let at = |window: usize| WindowIndex(modelled.first.0 + window as u64).start_unix_ns();
    let chain = modelled.chains.get(found.chain).unwrap_or(&modelled.chains[0]);
    let (retries, other) = retries(found);
    let p99_wanted_s = WITHIN_S[0];
    let tiers =
        places.iter().zip(&chain.tiers).zip(&modelled.seen).map(|((place, tier), dropped)| ModelTier {
            tier: tier.name.clone(),
            host: place.server.host.clone(),
            workload: place.server.workload.clone(),
            listener: place.server.listener.clone(),
            backlog: match tier.entry {
                Entry::AcceptQueue { backlog } => Some(backlog),
                Entry::Open => None,
            },
            workers: tier.workers,
            seen_to: tier.seen_to,
            pool: tier.pool,
            cpus: tier.cpus,
            cpu_s: tier.cpu_s,
            wait_s: tier.wait_s,
            calls: tier.calls,
            dropped: *dropped,
        });
    let names: Vec<&str> = chain.tiers.iter().map(|tier| tier.name.as_str()).collect();
    let dropped = found.harder.dropped();
    let model::Reproduction { predicted, seen, ratio } = found.reproduction;
    PreventionAnswer {
        start_unix_ns: at(0),
        end_unix_ns: at(chain.first_attempts.len()),
        judged_start_unix_ns: at(chain.judged.start),
        judged_end_unix_ns: at(chain.judged.end),
        first_attempts: found.unchanged.judged,
        p99_wanted_s,
        tiers: tiers.collect(),
        overflowed: found.overflowed,
        reproduction: Reproduction { predicted, seen, ratio },
        unchanged: replayed(&found.unchanged),
        attempts_factor: found.attempts_factor,
        harder: replayed(&found.harder),
        retries: retries.map(str::to_owned),
        margin: MARGIN,
        candidates: found.candidates.iter().map(|c| candidate(c, &names, dropped, p99_wanted_s)).collect(),
        untried: found
            .untried
            .iter()
            .map(|(knob, tier)| format!("{} of {}", thing(*knob), names[*tier]))
            .collect(),
        assumed: modelled.assumed.iter().cloned().chain(other).collect(),
    }
}

/// How clients try again, and what the other way would give; none where the two are alike.
fn retries(found: &Prevention) -> (Option<&'static str>, Option<String>) {
    let name = |way: Retries| match way {
        Retries::Linear => ("linear", "after 1, 2, 3, 4, 5 and 7 s, as Linux does since 6.5"),
        Retries::Doubling => ("doubling", "after 1, 3 and 7 s, as RFC 6298 says"),
    };
    let all = || Retries::ALL.into_iter().zip(&found.by_chain).enumerate();
    let is_taken = |(at, _): &(usize, (Retries, &u64))| *at == found.chain;
    let Some((_, (taken, drops))) = all().find(is_taken) else { return (None, None) };
    let Some((_, (other, others))) = all().find(|of| !is_taken(of)).filter(|(_, (_, n))| *n != drops) else {
        return (None, None);
    };
    let sentence = format!(
        "clients try a dropped connection again {}: if they did {}, the model would drop {others} packets and not {drops}",
        name(taken).1,
        name(other).1
    );
    (Some(name(taken).0), Some(sentence))
}

fn replayed(of: &Outcome) -> Replayed {
    Replayed {
        drops: of.drops.clone(),
        given_up: of.given_up,
        p50_s: of.p50_s,
        p99_s: of.p99_s,
        max_s: of.max_s,
        goodput: of
            .goodput
            .iter()
            .map(|g| Goodput { within_s: g.within_s, per_second: g.per_second, ratio: g.ratio })
            .collect(),
        deepest: of.deepest.clone(),
        fullest: of.fullest.clone(),
        first_overflow: of.first_overflow.map(|(tier, _)| tier),
    }
}

fn candidate(of: &model::Candidate, names: &[&str], dropped: u64, p99_wanted_s: f64) -> Candidate {
    let moves_to = match of.effect {
        Effect::Moves { to } => Some(to),
        _ => None,
    };
    let beyond_at = match of.effect {
        Effect::BeyondSeen { at } => Some(at),
        _ => None,
    };
    let tight_at = match of.effect {
        Effect::Tight { at } => Some(at),
        _ => None,
    };
    let change = change(of, names);
    let changes = of.changes.iter().map(|change| Change {
        what: what(change.knob).to_owned(),
        tier: change.tier,
        from: change.from,
        to: change.to,
    });
    Candidate {
        changes: changes.collect(),
        effect: match of.effect {
            Effect::Prevents => "prevents",
            Effect::Slow => "slow",
            Effect::BeyondSeen { .. } => "beyond_seen",
            Effect::Tight { .. } => "tight",
            Effect::Moves { .. } => "moves",
            Effect::Lessens => "lessens",
            Effect::Nothing => "nothing",
        }
        .to_owned(),
        moves_to,
        beyond_at,
        tight_at,
        sentence: format!("{change}: {}", effect(of, names, dropped, p99_wanted_s)),
        change,
        replayed: replayed(&of.outcome),
        with_margin: of.with_margin.as_ref().map(replayed),
    }
}

/// For programs.
pub(super) fn what(knob: Knob) -> &'static str {
    match knob {
        Knob::Backlog => "backlog",
        Knob::Workers => "workers",
        Knob::Pool => "pool",
        Knob::Servers => "servers",
        Knob::EventDriven => "event_driven",
    }
}

/// For people.
fn thing(knob: Knob) -> &'static str {
    match knob {
        Knob::Backlog => "accept queue",
        Knob::Workers => "workers",
        Knob::Pool => "connections to the next tier",
        Knob::Servers => "servers",
        Knob::EventDriven => "event-driven workers",
    }
}

fn change(of: &model::Candidate, names: &[&str]) -> String {
    let one = |c: &model::Change| {
        let name = names.get(c.tier).copied().unwrap_or_default();
        match (c.knob, c.from, c.to) {
            (Knob::EventDriven, ..) => format!("{name} event-driven"),
            // The largest that was tried.
            (knob, Some(from), Some(to)) if of.effect == Effect::Nothing => {
                format!("{} of {name} {from} → up to {to}", thing(knob))
            }
            (knob, Some(from), Some(to)) => format!("{} of {name} {from} → {to}", thing(knob)),
            (knob, ..) => format!("{} of {name}", thing(knob)),
        }
    };
    of.changes.iter().map(one).collect::<Vec<_>>().join(" and ")
}

/// What comes of it.
fn effect(of: &model::Candidate, names: &[&str], dropped: u64, p99_wanted_s: f64) -> String {
    let name = |at: usize| names.get(at).copied().unwrap_or_default();
    let times = |outcome: &Outcome| {
        let p99 = outcome.p99_s.map_or_else(
            || "p99 has no end (more than 1 % are never answered)".to_owned(),
            |p99_s| format!("p99 {}", seconds(p99_s)),
        );
        // Rounded down: what is not all is not told as 100 %.
        let in_time = outcome.goodput.iter().find(|g| g.within_s >= p99_wanted_s);
        let in_time = in_time.map_or_else(String::new, |g| {
            format!(", {:.0} % within {}", (g.ratio * 100.0).floor(), seconds(g.within_s))
        });
        p99 + &in_time
    };
    let (now, dropped_now) = (times(&of.outcome), of.outcome.dropped());
    let spare = (MARGIN - 1.0) * 100.0;
    let up_to = of.with_margin.as_ref().filter(|with| with.dropped() > dropped_now);
    let up_to =
        up_to.map_or_else(String::new, |with| format!(" (with {spare:.0} % more {})", with.dropped()));
    match of.effect {
        Effect::Prevents => format!("prevents it, with {spare:.0} % to spare: no drops, {now}"),
        Effect::Slow => format!("no drops, with {spare:.0} % to spare, {now}; not prevention"),
        Effect::BeyondSeen { at } => format!(
            "not known: {} would have {} requests at a time, more than it was ever seen to have, and its limit is not known",
            name(at),
            of.outcome.fullest.get(at).copied().unwrap_or_default()
        ),
        Effect::Tight { at } => format!(
            "no drops if the same comes again, {now}; with {spare:.0} % more or for longer {} drops {} packets; not prevention",
            name(at),
            of.with_margin.as_ref().map_or(0, |with| with.drops.get(at).copied().unwrap_or_default())
        ),
        Effect::Moves { to } => format!(
            "the queue moves to {}, which drops {} packets{up_to}; {now}",
            name(to),
            of.outcome.drops.get(to).copied().unwrap_or_default()
        ),
        Effect::Lessens => format!("still {dropped_now} of {dropped} packets dropped{up_to}, {now}"),
        Effect::Nothing => {
            format!("does not help: {dropped_now} packets dropped in place of {dropped}, {now}")
        }
    }
}

/// Milliseconds below a second.
fn seconds(of: f64) -> String {
    if of < 0.9995 { format!("{:.0} ms", of * 1000.0) } else { format!("{of:.1} s") }
}

/// How long a window is in the answer's terms.
const _: () = assert!(WINDOW_NS == 50_000_000, "the model's window is 50 ms");
