//! The slowest requests of the tiers of an incident, with the way that each took: by the connections that two hosts told the same number of.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::Config;
use tailwater_model::Incident;
use tailwater_model::incident::{Exemplar, Hop};
use tailwater_model::window::{SlowCall, SlowRequest};

const MS: u64 = 1_000_000;
/// On each host of the simulation its listener and its edge to the tier below have this id.
const ID: u32 = 1;

/// On the connection `pair`, so long inside, with calls on these connections that took so long.
fn slow(pair: u64, inside_ms: u64, calls: &[(u64, u64)]) -> SlowRequest {
    let call = |(pair, took_ms): &(u64, u64)| SlowCall {
        edge: ID,
        pair: *pair,
        after_ns: MS,
        took_ns: took_ms * MS,
        connecting: false,
        aborted: false,
    };
    SlowRequest {
        listener: ID,
        pair,
        ended_ago_ns: 20 * MS,
        retried_ns: 0,
        unread_ns: 5 * MS,
        queued: false,
        inside_ns: inside_ms * MS,
        aborted: false,
        calls: Some(calls.iter().map(call).collect()),
        calls_left_out: 0,
    }
}

/// The database stands for 700 ms; `told` are the slow requests of hosts in the windows that end then.
fn incident(told: &[(&str, u64, SlowRequest)]) -> Incident {
    let mut trace: Trace = Sim::default().act(At::Db, 6000..6700, Do::Lock).run();
    let first = trace.windows.iter().map(|w| w.index.0).min().unwrap();
    for window in &mut trace.windows {
        let end_ms = (window.index.0 - first + 1) * 50;
        let of = told.iter().filter(|(host, at, _)| *host == window.host && *at == end_ms);
        window.slow_requests.extend(of.map(|(_, _, request)| request.clone()));
    }
    let all = last_versions(&outputs(&Config::default(), inputs(&trace)));
    all.into_iter().find(|incident| !incident.drops.is_empty()).unwrap()
}

fn hop<'a>(incident: &'a Incident, host: &str) -> &'a Hop {
    incident.hops.iter().find(|hop| hop.host == host).unwrap()
}

/// Depth, host, time as its caller saw it, and inside, of each call.
fn way(of: &Exemplar) -> Vec<(u32, &str, u64, Option<u64>)> {
    of.calls.iter().map(|c| (c.depth, c.host.as_str(), c.took_ms, c.there.map(|t| t.inside_ms))).collect()
}

#[test]
fn a_request_is_followed_through_the_tiers_by_its_connections() {
    let incident = incident(&[
        ("web-1", 6750, slow(1, 900, &[(10, 890)])),
        // Another exchange on the same connection, before; and what ended with the call, told a little late.
        ("app-1", 6150, slow(10, 300, &[])),
        ("app-1", 6800, SlowRequest { ended_ago_ns: 70 * MS, ..slow(10, 880, &[(20, 870)]) }),
        ("db-1", 6750, slow(20, 860, &[])),
        ("db-1", 6750, slow(21, 700, &[])),
    ]);
    let slowest = |host| &hop(&incident, host).slowest;
    let web = &slowest("web-1")[0];
    assert_eq!(way(web), [(1, "app-1", 890, Some(880)), (2, "db-1", 870, Some(860))], "{web:#?}");
    assert_eq!((web.took_ms, web.spent.unread_ms, web.calls_known), (905, 5, true));
    assert_eq!(way(&slowest("app-1")[0]), [(1, "db-1", 870, Some(860))]);
    let db: Vec<u64> = slowest("db-1").iter().map(|of| of.took_ms).collect();
    assert_eq!(db, [865, 705], "slowest first");
    assert_eq!(slowest("app-1").len(), 2);
    let told = web.told();
    assert!(told.contains("890 ms in a call to tomcat10@app-1 (5 ms unread, 880 ms inside)"), "{told}");
}

#[test]
fn what_took_as_long_before_is_none_of_it_and_no_more_than_twenty_are_kept() {
    let mut told = vec![("db-1", 3000, slow(90, 600, &[])), ("db-1", 6750, slow(91, 590, &[]))];
    told.extend((0..30).map(|n| ("web-1", 6750, slow(100 + n, 400 + n, &[]))));
    let incident = incident(&told);
    assert!(hop(&incident, "db-1").slowest.is_empty(), "a report that always takes as long");
    let web: Vec<u64> = hop(&incident, "web-1").slowest.iter().map(|of| of.took_ms).collect();
    assert_eq!(web, (415..435).rev().collect::<Vec<_>>());
    assert_eq!(incident.brief().hops.iter().map(|hop| hop.slowest.len()).max(), Some(1));
}

/// Of the tier below nothing is told: it took less than 200 ms there, or its agent is older.
#[test]
fn a_call_whose_other_end_is_not_told_goes_to_whom_the_address_says() {
    let unknown = SlowRequest { calls: None, ..slow(2, 800, &[]) };
    let incident = incident(&[("web-1", 6750, slow(1, 900, &[(10, 890)])), ("web-1", 6750, unknown)]);
    let [first, second] = &hop(&incident, "web-1").slowest[..] else { panic!("{incident:#?}") };
    assert_eq!(way(first), [(1, "app-1", 890, None)]);
    assert!(!second.calls_known && second.calls.is_empty());
}
