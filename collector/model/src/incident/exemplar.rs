//! The slowest requests of a tier in an incident, each with the way that it took. Owns their JSON shape and their words; knows no cause.

use crate::civil::Civil;
use crate::place::{Place, place};
use crate::window::Host;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// One request of a tier that took 200 ms or longer. One after the other: without a connection, unread, inside of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exemplar {
    /// When its answer began, or it ended without one.
    pub end_unix_ns: u64,
    /// From its first byte, or its client's first try, to then.
    pub took_ms: u64,
    /// Where that time went.
    #[serde(flatten)]
    pub spent: Spent,
    /// It was not answered. Left out if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// Whether it is known what its thread waited for. Not where that had several requests at the same time and nothing says whose a call was.
    pub calls_known: bool,
    /// The calls of 200 ms or longer that it waited for, in order of time, each followed by those of the tier that was called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallLeg>,
    /// Such calls that had no room. Left out if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub calls_left_out: u32,
}

/// Where the time of a request went in one tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Before its connection was there: its last ACK was dropped.
    pub retried_ms: u64,
    /// Until it was read, …
    pub unread_ms: u64,
    /// … since before its connection was accepted.
    pub queued: bool,
    /// From when it was read.
    pub inside_ms: u64,
}

/// A call on the way of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLeg {
    /// 1: of the tier itself, 2: of the one that it called, and so on.
    pub depth: u32,
    /// Who was called: its host, or the address of one that nobody observes.
    pub host: Host,
    /// Name of the workload; empty: not known.
    pub workload: String,
    /// Name of its tier.
    pub tier: String,
    /// From when the request was read to when the call was sent.
    pub after_ms: u64,
    /// As its caller saw it.
    pub took_ms: u64,
    /// No call: it took so long until the connection was there. Left out if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connecting: bool,
    /// There was no answer, or no connection. Left out if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// Where its time went in the tier that was called; `None`: it took less than 200 ms there, or nobody saw it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub there: Option<Spent>,
    /// What it waited for there is not known, as of a request with `calls_known` false: the way may go on. Left out if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub calls_unknown: bool,
}

impl CallLeg {
    /// Who was called.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        place(&self.workload, &self.host)
    }
}

impl Spent {
    /// In words, those that there are.
    #[must_use]
    pub fn told(&self) -> String {
        let unread = if self.queued { "unread since before it was accepted" } else { "unread" };
        let parts = [("before its connection was there", self.retried_ms), (unread, self.unread_ms)];
        let mut told: Vec<String> =
            parts.iter().filter(|(_, ms)| *ms > 0).map(|(what, ms)| format!("{ms} ms {what}")).collect();
        told.push(format!("{} ms inside", self.inside_ms));
        told.join(", ")
    }
}

impl Exemplar {
    /// The whole way, in words: a sentence without its full stop.
    #[must_use]
    pub fn told(&self) -> String {
        let how = if self.aborted { "ended without an answer" } else { "answered" };
        let mut out = format!(
            "{} ms, {how} at {}: {}",
            self.took_ms,
            Civil::of(self.end_unix_ns).time_ms(),
            self.spent.told()
        );
        for call in &self.calls {
            // Writing to a String does not fail.
            let _ = write!(out, "; {}", call.told());
        }
        if !self.calls_known {
            out.push_str("; its thread had others at the same time, and whose calls those were is not known");
        }
        match self.calls_left_out {
            0 => {}
            1 => out.push_str("; one call more"),
            more => _ = write!(out, "; {more} calls more"),
        }
        out
    }
}

impl CallLeg {
    fn told(&self) -> String {
        let whom = self.place().short();
        match (self.connecting, self.aborted) {
            (true, true) => return format!("{} ms of dialling {whom} in vain", self.took_ms),
            (true, false) => return format!("{} ms until a connection to {whom} was there", self.took_ms),
            (false, _) => {}
        }
        let end = if self.aborted { ", without an answer" } else { "" };
        let there = self.there.map_or_else(String::new, |spent| format!(" ({})", spent.told()));
        let below = if self.depth > 1 { "there " } else { "" };
        let on = if self.calls_unknown { ", and from there on it is not known" } else { "" };
        format!("{below}{} ms in a call to {whom}{there}{end}{on}", self.took_ms)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_of_a_request_is_told_in_order() {
        let leg = CallLeg {
            depth: 1,
            host: "app-1".into(),
            workload: "tomcat.service".into(),
            tier: "tomcat".into(),
            after_ms: 1,
            took_ms: 1_200,
            connecting: false,
            aborted: false,
            there: Some(Spent { unread_ms: 30, inside_ms: 1_165, ..Spent::default() }),
            calls_unknown: false,
        };
        let below = CallLeg {
            calls_unknown: true,
            depth: 2,
            host: "db-1".into(),
            workload: "mariadb.service".into(),
            there: None,
            ..leg.clone()
        };
        let one = Exemplar {
            end_unix_ns: 1_500_000_000,
            took_ms: 1_640,
            spent: Spent { retried_ms: 400, unread_ms: 20, queued: true, inside_ms: 1_220 },
            aborted: false,
            calls_known: true,
            calls: vec![leg.clone(), below],
            calls_left_out: 0,
        };
        assert_eq!(
            one.told(),
            "1640 ms, answered at 00:00:01.500: 400 ms before its connection was there, 20 ms unread since before it was accepted, \
             1220 ms inside; 1200 ms in a call to tomcat@app-1 (30 ms unread, 1165 ms inside); there 1200 ms in a call to mariadb@db-1, and from there on it is not known"
        );
        let dialled = CallLeg { connecting: true, aborted: true, there: None, ..leg };
        let other =
            Exemplar { aborted: true, calls_known: false, calls: vec![dialled], calls_left_out: 2, ..one };
        let told = other.told();
        assert!(told.contains("1200 ms of dialling tomcat@app-1 in vain"), "{told}");
        assert!(told.contains("ended without an answer") && told.ends_with("; 2 calls more"), "{told}");
    }
}
