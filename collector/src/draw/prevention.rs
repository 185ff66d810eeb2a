//! What would have prevented an incident, below its explanation: the answer or why there is none, in 80 columns. Pure: the answer in, text out.

use super::explain::{labelled, wrap};
use crate::text::lines;
use tailwater_model::PreventionView;

const INDENT: &str = "          ";

/// The whole text.
#[must_use]
pub fn text(view: &PreventionView) -> String {
    let mut out = String::new();
    let Some(answer) = &view.answer else {
        let why = view.why.as_deref().unwrap_or("the collector does not say why");
        labelled(&mut out, "Prevent", &format!("not said: {why}"));
        if let Some(queue) = &view.queue {
            wrap(&mut out, &format!("By count alone: {}", queue.sentence), INDENT);
        }
        return lines(&out);
    };
    let of = &answer.reproduction;
    let span_ms = answer.judged_end_unix_ns.saturating_sub(answer.judged_start_unix_ns) / 1_000_000;
    let head = format!(
        "{} first attempts of {span_ms} ms, replayed with other sizes. With none changed the model drops {} where {} were \
         dropped ({:.2} of it).",
        answer.first_attempts, of.predicted, of.seen, of.ratio
    );
    labelled(&mut out, "Prevent", &head);
    if answer.attempts_factor > 1.0 {
        let more = format!(
            "Sizes stand {:.2} times as many: with so many the model drops what was dropped.",
            answer.attempts_factor
        );
        wrap(&mut out, &more, INDENT);
    }
    if answer.margin > 1.0 {
        let margin = format!(
            "What is called prevention also stands {:.0} % more of them, and a stall that is {:.0} % longer.",
            (answer.margin - 1.0) * 100.0,
            (answer.margin - 1.0) * 100.0
        );
        wrap(&mut out, &margin, INDENT);
    }
    for candidate in &answer.candidates {
        let mark = if candidate.effect == "prevents" { "+ " } else { "- " };
        let mut block = String::new();
        wrap(&mut block, &candidate.sentence, &format!("{INDENT}  "));
        out.push_str(INDENT);
        out.push_str(mark);
        out.push_str(block.trim_start());
    }
    for what in &answer.untried {
        wrap(&mut out, &format!("not tried, for want of time: {what}"), INDENT);
    }
    for what in &answer.assumed {
        wrap(&mut out, &format!("assumed: {what}"), INDENT);
    }
    lines(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_line_for_each_change_and_a_refusal_its_reason() {
        let replayed = serde_json::json!({
            "drops": [0], "given_up": 0, "p50_s": 0.2, "p99_s": 0.7, "max_s": 0.8, "goodput": [], "deepest": [400],
            "fullest": [550],
            "first_overflow": null,
        });
        let answer = serde_json::json!({
            "id": "01", "version": 2, "refused": null, "why": null, "queue": null,
            "answer": {
                "start_unix_ns": 0, "end_unix_ns": 9, "judged_start_unix_ns": 1_000_000_000_u64,
                "judged_end_unix_ns": 1_750_000_000_u64, "first_attempts": 849, "p99_wanted_s": 0.5, "tiers": [], "overflowed": 0,
                "reproduction": { "predicted": 313, "seen": 343, "ratio": 0.9125 }, "unchanged": replayed, "attempts_factor": 1.1, "harder": replayed, "retries": null, "margin": 1.2,
                "candidates": [{
                    "changes": [{ "what": "backlog", "tier": 0, "from": 128, "to": 450 }], "change": "x", "effect": "slow", "moves_to": null, "beyond_at": null, "tight_at": null,
                    "replayed": replayed, "with_margin": replayed,
                    "sentence": "accept queue of apache2@web-1 128 → 450: no drops, p99 700 ms; not prevention: more than 500 ms",
                }],
                "untried": [], "assumed": ["db@db-1 is event-driven: no limit of workers is modelled"],
            },
        });
        let view: PreventionView = serde_json::from_value(answer.clone()).unwrap();
        assert_eq!(serde_json::to_value(&view).unwrap(), answer, "what is read is what was told");
        let expect = "\
Prevent   849 first attempts of 750 ms, replayed with other sizes. With none
          changed the model drops 313 where 343 were dropped (0.91 of it).
          Sizes stand 1.10 times as many: with so many the model drops what was
          dropped.
          What is called prevention also stands 20 % more of them, and a stall
          that is 20 % longer.
          - accept queue of apache2@web-1 128 → 450: no drops, p99 700 ms; not
            prevention: more than 500 ms
          assumed: db@db-1 is event-driven: no limit of workers is modelled
";
        assert_eq!(text(&view), expect, "{}", text(&view));
        let refused: PreventionView = serde_json::from_value(serde_json::json!({
            "id": "01", "version": 2, "refused": { "reason": "not_over" }, "why": "the incident is not over yet", "answer": null,
        }))
        .unwrap();
        assert_eq!(text(&refused), "Prevent   not said: the incident is not over yet\n");
        let counted: PreventionView = serde_json::from_value(serde_json::json!({
            "id": "01", "version": 2, "refused": { "reason": "not_reproduced" }, "why": "the model drops 0 packets where 262 were dropped",
            "queue": {
                "tier": "db@db-1", "host": "db-1", "workload": "db", "listener": "10.0.0.3:3306", "backlog": 24, "held": 262, "enough": 320,
                "sentence": "accept queue of db@db-1 24 → 320: would have held the 262 connections that waited at most",
            },
            "answer": null,
        }))
        .unwrap();
        let expect = "\
Prevent   not said: the model drops 0 packets where 262 were dropped
          By count alone: accept queue of db@db-1 24 → 320: would have held the
          262 connections that waited at most
";
        assert_eq!(text(&counted), expect, "{}", text(&counted));
    }
}
