//! A change of a server's set-up in the API's shape and as a line. Owns the words; compares nothing.

use super::servers::Setting;
use super::setup::{Change, Changed};
use crate::text::{minute, span};
use tailwater_model::advice::{Range, SetUpChange, SizeChange};
use tailwater_sizing::compare::Verdict;

/// As it is told.
pub(super) fn told(of: &Change, setting: Option<Setting>) -> SetUpChange {
    let compared = of.compared;
    SetUpChange {
        at_unix_ns: of.at_unix_ns,
        sizes: of
            .sizes
            .iter()
            .map(|size| SizeChange { what: size.what.to_owned(), from: size.from, to: size.to })
            .collect(),
        verdict: match compared.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Alike => "alike",
            Verdict::Uncertain => "uncertain",
            Verdict::TooLittle => "too_little",
        }
        .to_owned(),
        ratio: compared.ratio.map(|(value, low, high)| Range { value, low, high }),
        before_s: compared.took_s.map(|(before, _)| before),
        after_s: compared.took_s.map(|(_, after)| after),
        load_from: compared.loads.map(|(from, _)| from),
        load_to: compared.loads.map(|(_, to)| to),
        common_s: compared.common_s,
        needed_s: compared.needed_s,
        seconds_before: of.seconds.0,
        drops_before: of.drops.0,
        seconds_after: of.seconds.1,
        drops_after: of.drops.1,
        sentence: sentence(of, setting),
    }
}

fn sentence(of: &Change, setting: Option<Setting>) -> String {
    let thing = |what: &str| match what {
        "backlog" => "accept queue",
        "servers" => "servers",
        _ => setting.map_or("requests at a time", |setting| setting.key),
    };
    let all = |one: fn(&Changed) -> String| {
        let sizes = of.sizes.iter().map(|size| format!("{} {}", thing(size.what), one(size)));
        sizes.collect::<Vec<_>>().join(" and ")
    };
    let changed =
        format!("{} since {}", all(|size| format!("{} → {}", size.from, size.to)), minute(of.at_unix_ns));
    let mut line = format!("{changed}: {}", verdict(of));
    if of.compared.verdict == Verdict::Worse {
        line.push_str(&format!("; to restore: {}", all(|size| size.from.to_string())));
    }
    let (before, after) = of.drops;
    if before > 0.0 || after > 0.0 {
        line.push_str(&format!(
            "; {before:.0} packets dropped in {} before, {after:.0} in {} since",
            span(of.seconds.0),
            span(of.seconds.1)
        ));
    }
    line
}

fn verdict(of: &Change) -> String {
    let compared = of.compared;
    let (Some((ratio, low, high)), Some((before_s, after_s)), Some((from, to))) =
        (compared.ratio, compared.took_s, compared.loads)
    else {
        return "not enough traffic yet: none at the same loads".to_owned();
    };
    let common = span(compared.common_s);
    let took = format!(
        "a request takes {} in place of {} at {from:.0} to {to:.0} requests/s ({ratio:.2} times, {low:.2} to {high:.2})",
        milliseconds(after_s),
        milliseconds(before_s)
    );
    match compared.verdict {
        Verdict::Better => format!("better: {took}"),
        Verdict::Worse => format!("worse: {took}"),
        Verdict::Alike => format!("no difference: {took}"),
        Verdict::Uncertain => {
            format!(
                "not certain after {common} at the same loads: a request takes {low:.2} to {high:.2} times what it took"
            )
        }
        Verdict::TooLittle => {
            format!("not enough traffic yet: {common} of {} at the same loads", span(compared.needed_s))
        }
    }
}

fn milliseconds(s: f64) -> String {
    if s < 0.1 { format!("{:.1} ms", s * 1000.0) } else { format!("{:.0} ms", s * 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::super::servers::setting_of;
    use super::*;
    use tailwater_sizing::compare::Compared;

    #[test]
    fn a_change_is_told_with_what_came_of_it_and_what_to_restore() {
        let compared = Compared {
            verdict: Verdict::Worse,
            ratio: Some((1.5, 1.42, 1.58)),
            took_s: Some((0.020, 0.030)),
            loads: Some((640.3, 905.2)),
            common_s: 300.0,
            needed_s: 120.0,
        };
        let of = Change {
            at_unix_ns: 1_794_000_000_000_000_000,
            sizes: vec![
                Changed { what: "pool", from: 26, to: 200 },
                Changed { what: "servers", from: 1, to: 2 },
            ],
            compared,
            seconds: (10_920.0, 600.0),
            drops: (0.0, 0.0),
        };
        let line = |of: &Change| sentence(of, setting_of("java", "tomcat10.service"));
        assert_eq!(
            line(&of),
            "maxThreads of the Connector in server.xml 26 → 200 and servers 1 → 2 since 2026-11-06 21:20 UTC: worse: a request takes 30.0 ms in \
             place of 20.0 ms at 640 to 905 requests/s (1.50 times, 1.42 to 1.58); to restore: maxThreads of the Connector in server.xml 26 and \
             servers 1"
        );
        let with = |verdict, drops| {
            line(&Change {
                compared: Compared { verdict, ..compared },
                drops,
                sizes: of.sizes[1..].to_vec(),
                ..of.clone()
            })
        };
        let told = with(Verdict::Better, (312.0, 0.0));
        assert!(
            told.ends_with("1.58); 312 packets dropped in 3 h 2 min before, 0 in 10 min 0 s since"),
            "{told}"
        );
        assert!(told.starts_with("servers 1 → 2 since ") && !told.contains("restore"), "{told}");
        let told = with(Verdict::Uncertain, (0.0, 0.0));
        assert!(told.ends_with("not certain after 5 min 0 s at the same loads: a request takes 1.42 to 1.58 times what it took"), "{told}");
        let told = with(Verdict::TooLittle, (0.0, 0.0));
        assert!(
            told.ends_with(": not enough traffic yet: 5 min 0 s of 2 min 0 s at the same loads"),
            "{told}"
        );
        let nothing = Compared {
            ratio: None,
            took_s: None,
            loads: None,
            common_s: 0.0,
            verdict: Verdict::TooLittle,
            ..compared
        };
        let none = super::told(&Change { compared: nothing, ..of }, None);
        assert!(
            none.sentence.starts_with("requests at a time 26 → 200 and servers 1 → 2"),
            "{}",
            none.sentence
        );
        assert!(
            none.sentence.ends_with("not enough traffic yet: none at the same loads"),
            "{}",
            none.sentence
        );
        assert_eq!((none.verdict.as_str(), none.ratio, none.sizes.len()), ("too_little", None, 2));
    }
}
