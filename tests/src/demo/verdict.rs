//! What was named, held against what was injected: two lines a person can compare, and every difference in words. Pure; what is right
//! about an incident is the score's to say ([`crate::score::judge`]).

use crate::programs::reported::root;
use crate::score::model::{Expectation, Plan, Row};

/// What was injected, in the words of an incident.
#[must_use]
pub fn injected(wanted: &Expectation) -> String {
    root(&wanted.workload, &wanted.host, &wanted.resource, wanted.culprit.as_deref())
}

/// What was named as its root, and how sure.
#[must_use]
pub fn named(row: &Row) -> String {
    match &row.reported {
        None => "nothing".to_owned(),
        Some(said) => {
            // A pause or a squeeze has no culprit to name; a candidate that is told beside it is not held against anything.
            let culprit = said.culprit.as_deref().filter(|_| row.expected.culprit.is_some());
            let root = root(&said.workload, &said.host, &said.resource, culprit);
            format!("{root}, confidence {:.2}", said.confidence)
        }
    }
}

/// Every way in which it differs; none: it was named as it was injected, and nothing else was.
#[must_use]
pub fn differences(row: &Row) -> Vec<String> {
    match row.plan {
        Plan::NotInduced => {
            return vec!["no queue overflowed: the injection did nothing on this machine".to_owned()];
        }
        Plan::DroppedElsewhere => {
            return vec![drops(row, "the drops were at another tier than they should be")];
        }
        Plan::DroppedUnexpectedly => return vec![drops(row, "packets were dropped where none should be")],
        Plan::AsPlanned => {}
    }
    let Some(said) = &row.reported else { return vec!["nothing was named".to_owned()] };
    let mut found = Vec::new();
    let mut note = |right: bool, text: String| {
        if !right {
            found.push(text);
        }
    };
    let wanted = &row.expected;
    note(
        row.root_right,
        format!("root {} on {}, not {} on {}", said.workload, said.host, wanted.workload, wanted.host),
    );
    note(row.resource_right, format!("{}, not {}", said.resource, wanted.resource));
    let culprit = |of: &Option<String>| of.clone().unwrap_or_else(|| "nobody".to_owned());
    note(
        row.culprit_right != Some(false),
        format!("by {}, not by {}", culprit(&said.culprit), culprit(&wanted.culprit)),
    );
    note(row.kind_right, format!("called {}, not {}", said.kind, wanted.kind));
    note(row.drops_right, "the drops were told of another tier than the kernel's".to_owned());
    note(row.extra.is_empty(), format!("told as {} incidents, not as one", 1 + row.extra.len()));
    found
}

fn drops(row: &Row, what: &str) -> String {
    let places = row.truth.places.iter().filter(|place| place.dropped > 0);
    let places: Vec<String> = places.map(|place| format!("{} {}", place.host, place.dropped)).collect();
    format!("{what} (the kernel counted: {})", places.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::cells;
    use crate::programs::reported::Reported;
    use crate::score::judge::judge;
    use crate::score::model::Injection;
    use crate::score::plan::expectation;
    use crate::truth::{PlaceTruth, TruthRecord};

    /// The verdict on `app-cpu`, of which web-1 dropped 40 packets, when `told` was said.
    fn row(told: &[Reported]) -> Row {
        let cell = cells::find("app-cpu").unwrap();
        let place =
            PlaceTruth { tier: "web".into(), host: "web-1".into(), dropped: 40, ..PlaceTruth::default() };
        let truth = TruthRecord {
            start_unix_ns: 100,
            end_unix_ns: 200,
            to_unix_ns: 1000,
            places: vec![place],
            ..TruthRecord::default()
        };
        let injection = Injection { expected: expectation(cell), truth, ..Injection::default() };
        judge(&[injection], told, &[]).rows.remove(0)
    }

    fn right() -> Reported {
        Reported {
            id: "A".into(),
            kind: "upstream_ctqo".into(),
            severity: "critical".into(),
            confidence: 0.8,
            host: "app-1".into(),
            workload: "tomcat".into(),
            resource: "cpu_neighbour".into(),
            culprit: Some("burner".into()),
            drop_hosts: vec!["web-1".into()],
            dropped: 40,
            first_drop_unix_ns: Some(300),
            ..Reported::default()
        }
    }

    #[test]
    fn what_was_named_as_injected_does_not_differ() {
        let row = row(&[right()]);
        assert_eq!(differences(&row), Vec::<String>::new());
        assert_eq!(injected(&row.expected), "tomcat on app-1, cpu_neighbour by burner");
        assert_eq!(named(&row), "tomcat on app-1, cpu_neighbour by burner, confidence 0.80");
    }

    #[test]
    fn each_difference_is_said() {
        // What a run on another machine really told: the database instead of the neighbour.
        let masked = Reported {
            host: "db-1".into(),
            workload: "mariadb".into(),
            resource: "cpu_self".into(),
            culprit: Some("mariadbd".into()),
            ..right()
        };
        assert_eq!(
            differences(&row(&[masked])),
            [
                "root mariadb on db-1, not tomcat on app-1",
                "cpu_self, not cpu_neighbour",
                "by mariadbd, not by burner"
            ]
        );
        let twice = [right(), Reported { id: "B".into(), dropped: 3, ..right() }];
        assert_eq!(differences(&row(&twice)), ["told as 2 incidents, not as one"]);
        assert_eq!(differences(&row(&[])), ["nothing was named"]);
        let local = Reported { kind: "local_overflow".into(), drop_hosts: vec!["app-1".into()], ..right() };
        assert_eq!(differences(&row(&[local])).len(), 2);
        let mut elsewhere = row(&[right()]);
        elsewhere.plan = Plan::DroppedElsewhere;
        assert_eq!(
            differences(&elsewhere),
            ["the drops were at another tier than they should be (the kernel counted: web-1 40)"]
        );
    }
}
