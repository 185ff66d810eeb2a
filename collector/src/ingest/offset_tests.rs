//! The offset estimator against simulated clocks: whatever the transport does, the truth lies within the stated bound.

use super::*;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;
const MS: i64 = 1_000_000;

/// An agent whose monotonic clock began at 0 at time 0 of the collector's and drifts; its epoch offset makes its Unix time.
struct Agent {
    drift_ppb: i64,
    /// By how much its oscillator wanders about that drift, to and fro in 40 s.
    wander_ppb: f64,
    epoch_ns: i64,
    last_reply: (u64, u64),
}

impl Agent {
    fn unix_ns(&self, true_ns: u64) -> u64 {
        let mono = true_ns.cast_signed() + drifted(true_ns.cast_signed(), self.drift_ppb);
        let turns = std::f64::consts::TAU / 40e9;
        let wandered_ns = self.wander_ppb / 1e9 / turns * (true_ns as f64 * turns).sin();
        (mono + wandered_ns as i64 + self.epoch_ns).unsigned_abs()
    }

    /// The true offset at a true time.
    fn offset_ns(&self, true_ns: u64) -> i64 {
        true_ns.cast_signed() - self.unix_ns(true_ns).cast_signed()
    }

    /// A probe and its reply, `there` and `back` ns on the way.
    fn exchange(&mut self, e: &mut OffsetEstimate, id: u64, sent_ns: u64, there: u64, back: u64) {
        let probe = Probe {
            id,
            agent_unix_ns: self.unix_ns(sent_ns),
            reply_id: self.last_reply.0,
            reply_received_unix_ns: self.last_reply.1,
            epoch_offset_ns: self.epoch_ns,
        };
        e.probe(&probe, sent_ns + there);
        self.last_reply = (id, self.unix_ns(sent_ns + there + back));
    }
}

fn agent(shift_ms: i64, drift_ppm: i64) -> Agent {
    Agent { drift_ppb: drift_ppm * 1000, wander_ppb: 0.0, epoch_ns: shift_ms * MS, last_reply: (0, 0) }
}

#[test]
fn without_probes_nothing_is_claimed() {
    let nothing = Offset { error_ns: UNMEASURED_NS, ..Offset::default() };
    assert_eq!(OffsetEstimate::default().now(), nothing);
}

#[test]
fn a_slow_transport_is_not_taken_for_an_offset_but_a_wrong_clock_is() {
    let one_way = |sent, received| {
        let mut e = OffsetEstimate::default();
        e.probe(&Probe { id: 1, agent_unix_ns: sent, ..Probe::default() }, received);
        e.now()
    };
    assert_eq!(one_way(100 * S, 100 * S + 3_000_000), Offset { error_ns: 3_000_000, ..Offset::default() });
    assert_eq!(one_way(100 * S, 40 * S).offset_ns, -60 * S.cast_signed());
}

#[test]
fn a_reply_is_one_of_the_connection_that_it_is_told_on() {
    let (mut agent, mut e) = (agent(0, 0), OffsetEstimate::default());
    // A connection that lived for seven seconds; after an outage of more than a minute all that it told is too old to count.
    for connection in 0..2 {
        let begun_ns = (100 + connection * 90) * S;
        agent.last_reply = (0, 0);
        for id in 1..8 {
            agent.exchange(&mut e, id, begun_ns + id * S, 1_000_000, 1_000_000);
            if id > 1 {
                assert!(e.now().measured && e.now().error_ns <= 2_000_000, "{:?} at {id}", e.now());
            }
        }
    }
}

#[test]
fn the_report_of_an_older_agent_counts_and_cannot_beat_causality() {
    let mut e = OffsetEstimate::default();
    e.probe(&Probe { id: 1, agent_unix_ns: 100 * S, ..Probe::default() }, 100 * S + 1_000);
    e.report(5_000, 500);
    assert!(!e.now().measured, "an offset above the one-way time is impossible");
    e.report(400, 500);
    assert_eq!(e.now(), Offset { offset_ns: 400, error_ns: 500, measured: true, drift_ppb: 0 });
}

#[test]
fn an_old_fast_round_trip_helps_a_slow_one_as_far_as_clocks_can_drift() {
    let (mut a, mut e) = (agent(70, 0), OffsetEstimate::default());
    a.exchange(&mut e, 1, 100 * S, 50_000, 50_000);
    a.exchange(&mut e, 2, 101 * S, 50_000, 50_000);
    assert!(e.now().error_ns <= 600_000, "{:?}", e.now());
    a.exchange(&mut e, 3, 102 * S, 40_000_000, 40_000_000);
    a.exchange(&mut e, 4, 103 * S, 40_000_000, 40_000_000);
    let now = e.now();
    assert!(now.error_ns <= 1_200_000, "two seconds at 500 ppm, not 40 ms: {now:?}");
    assert!((now.offset_ns + 70 * MS).unsigned_abs() <= now.error_ns);
}

#[test]
fn a_steady_drift_is_learned_and_carried_to_windows_that_come_late() {
    let (mut a, mut e) = (agent(-200, 200), OffsetEstimate::default());
    for i in 1..=60 {
        a.exchange(&mut e, i, 100 * S + i * S, 100_000, 100_000);
    }
    let now = e.now();
    assert!((now.drift_ppb + 200_000).abs() <= 30_000, "{now:?}");
    assert!(now.error_ns < 200_000, "{now:?}");
    // A batch that waited 40 s for the connection.
    let then = 120 * S;
    let late = e.at(a.unix_ns(then));
    assert!((late.offset_ns - a.offset_ns(then)).unsigned_abs() <= late.error_ns, "{late:?}");
    assert!((late.offset_ns - a.offset_ns(then)).abs() < 2 * MS, "{late:?}");
    // The connection is gone for 30 s: the error grows with what is not known of the drift, not with the drift.
    let later = e.at(a.unix_ns(190 * S));
    assert!((later.offset_ns - a.offset_ns(190 * S)).unsigned_abs() <= later.error_ns, "{later:?}");
    assert!(later.error_ns < 2_000_000, "{later:?}");
}

#[test]
fn a_drift_that_wanders_as_oscillators_do_stays_known() {
    let (a, mut e) = (agent(35, 200), OffsetEstimate::default());
    let mut a = Agent { wander_ppb: 10_000.0, ..a };
    for i in 1..=120 {
        // Round trips so short that they tell the drift of one second from another's.
        a.exchange(&mut e, i, 100 * S + i * S, 10_000, 10_000);
        let (now, truth) = (e.now(), a.offset_ns(100 * S + i * S));
        assert!(i < 20 || (now.drift_ppb + 200_000).abs() <= 40_000, "{i}: {now:?}");
        assert!((now.offset_ns - truth).unsigned_abs() <= now.error_ns, "{i}: {now:?} {truth}");
    }
}

#[test]
fn a_clock_that_is_set_is_followed_at_once() {
    let (mut a, mut e) = (agent(0, 0), OffsetEstimate::default());
    for i in 1..=10 {
        a.exchange(&mut e, i, 100 * S + i * S, 100_000, 100_000);
    }
    // The agent's: its epoch offset says so, and what is known of its oscillator stays.
    a.epoch_ns += 3_000 * MS;
    a.last_reply = (0, 0);
    a.exchange(&mut e, 11, 111 * S, 100_000, 100_000);
    let now = e.now();
    assert!(now.measured && (now.offset_ns + 3_000 * MS).unsigned_abs() <= now.error_ns, "{now:?}");
    // The collector's, forward by a second: nobody says so, the bounds contradict each other.
    for i in 12..=14 {
        let reply = a.last_reply;
        let probe = Probe {
            id: i,
            agent_unix_ns: a.unix_ns(100 * S + i * S),
            reply_id: reply.0,
            reply_received_unix_ns: reply.1,
            epoch_offset_ns: a.epoch_ns,
        };
        e.probe(&probe, 100 * S + i * S + 100_000 + S);
        a.last_reply = (i, a.unix_ns(100 * S + i * S + 200_000));
    }
    let now = e.now();
    assert!(now.measured && (now.offset_ns + 2_000 * MS).abs() < 2 * MS, "{now:?}");
}

proptest! {
    #[test]
    fn the_truth_lies_within_the_bound(
        shift_ms in -200i64..200,
        drift_ppm in -400i64..400,
        ways in proptest::collection::vec((20_000u64..30_000_000, 20_000u64..30_000_000), 3..90),
    ) {
        let (mut a, mut e) = (agent(shift_ms, drift_ppm), OffsetEstimate::default());
        for (i, (there, back)) in ways.iter().enumerate() {
            let sent = 1_000 * S + i as u64 * S;
            a.exchange(&mut e, i as u64 + 1, sent, *there, *back);
            let now = e.now();
            prop_assert!(i == 0 || now.measured);
            if i > 0 {
                prop_assert!((now.offset_ns - a.offset_ns(sent)).unsigned_abs() <= now.error_ns + 1, "{i}: {now:?}");
            }
        }
    }

    #[test]
    fn nonsense_does_not_panic(probes in proptest::collection::vec(any::<(u64, u64, u64, u64, i64, u64)>(), 1..30), at: u64) {
        let mut e = OffsetEstimate::default();
        for (id, agent_unix_ns, reply_id, reply_received_unix_ns, epoch_offset_ns, received) in probes {
            let id = id % 4;
            e.probe(&Probe { id, agent_unix_ns, reply_id: reply_id % 4, reply_received_unix_ns, epoch_offset_ns }, received);
            e.report(epoch_offset_ns, received);
            let _ = e.at(at);
        }
        let _ = e.now();
    }
}
