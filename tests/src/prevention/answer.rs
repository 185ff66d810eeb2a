//! What `GET /api/v1/incidents/{id}/prevention` says, as the laboratory reads it, and what its changes are in the laboratory's terms. Knows
//! the shape of the answer; asks nobody and starts nothing.

use crate::lab::{LabConfig, Limits};
use crate::stack::{Stack, Tier};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

/// One size of one tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `backlog`, `workers`, `pool`, or something that the laboratory cannot do.
    pub what: String,
    /// Host of the tier.
    pub host: String,
    /// As it was.
    pub from: Option<u32>,
    /// As it is to be.
    pub to: Option<u32>,
}

impl Change {
    /// `backlog@web-1=640`, as the API takes it.
    #[must_use]
    pub fn asked(&self) -> String {
        let to = self.to.map_or_else(String::new, |to| to.to_string());
        format!("{}@{}={to}", self.what, self.host)
    }

    /// Whether the laboratory can do it.
    fn can_be_made(&self) -> bool {
        ["backlog", "workers", "pool"].contains(&self.what.as_str()) && self.to.is_some()
    }

    /// Half of the way.
    #[must_use]
    pub fn halved(&self) -> Option<Self> {
        let (from, to) = (self.from?, self.to?);
        let half = from.midpoint(to);
        (half != from && half != to).then(|| Self { to: Some(half), ..self.clone() })
    }
}

/// Changes, and what is said to come of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// All at once.
    pub changes: Vec<Change>,
    /// `prevents`, `slow`, `tight`, `moves`, `lessens` or `nothing`; or `holds`: counted where the model says nothing.
    pub effect: String,
    /// Packets that are dropped then.
    pub dropped: u64,
    /// The same with the margin, if that was worked out.
    pub dropped_with_margin: Option<u64>,
    /// 99 % quantile of the first attempts' times, s; none: more are never answered.
    pub p99_s: Option<f64>,
    /// As a line.
    pub sentence: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Packets that the model drops with nothing changed; none where it says nothing.
    pub predicted: Option<u64>,
    /// The candidates, the most helpful first.
    pub candidates: Vec<Candidate>,
}

impl Answer {
    /// From an answer with this status: what is said, or why nothing is.
    ///
    /// # Errors
    /// An answer that is none: another status, no JSON, a value of the wrong kind; names it.
    pub fn read(status: u16, body: &str) -> Result<Result<Self, String>> {
        if status != 200 {
            bail!("GET prevention: {status}: {}", body.lines().next().unwrap_or_default());
        }
        let json: Value = serde_json::from_str(body).context("GET prevention answers with JSON")?;
        let answer = &json["answer"];
        if answer.is_null() && json["queue"].is_object() {
            return Ok(Ok(Self { predicted: None, candidates: vec![holding(&json["queue"])?] }));
        }
        if answer.is_null() {
            return Ok(Err(json["why"].as_str().context("an answer, or why there is none")?.to_owned()));
        }
        let hosts: Vec<&str> =
            list(&answer["tiers"])?.iter().map(|tier| tier["host"].as_str().unwrap_or_default()).collect();
        let predicted =
            Some(answer["reproduction"]["predicted"].as_u64().context("`reproduction.predicted`")?);
        let candidates = list(&answer["candidates"])?.iter().map(|of| candidate(of, &hosts));
        Ok(Ok(Self { predicted, candidates: candidates.collect::<Result<_>>()? }))
    }
}

impl Answer {
    /// What is said first to prevent it, of what the laboratory can change; or, where nothing does, to leave no drops and be slow, or to hold
    /// all that came.
    #[must_use]
    pub fn preventing(&self) -> Option<&Candidate> {
        let can = |of: &&Candidate| of.changes.iter().all(Change::can_be_made);
        let of = |effect: &str| self.candidates.iter().filter(can).find(|of| of.effect == effect);
        of("prevents").or_else(|| of("slow")).or_else(|| of("holds"))
    }
}

/// The accept queue that would have held all that came.
fn holding(queue: &Value) -> Result<Candidate> {
    let size = |key: &str| queue[key].as_u64().and_then(|size| u32::try_from(size).ok());
    let host = queue["host"].as_str().context("a queue's `host`")?.to_owned();
    let change = Change { what: "backlog".to_owned(), host, from: size("backlog"), to: size("enough") };
    Ok(Candidate {
        changes: vec![change],
        effect: "holds".to_owned(),
        dropped: 0,
        dropped_with_margin: None,
        p99_s: None,
        sentence: queue["sentence"].as_str().unwrap_or_default().to_owned(),
    })
}

fn list(value: &Value) -> Result<&[Value]> {
    value.as_array().map(Vec::as_slice).context("a list")
}

fn candidate(of: &Value, hosts: &[&str]) -> Result<Candidate> {
    let change = |change: &Value| -> Result<Change> {
        let place = change["tier"].as_u64().context("a change's `tier`")?;
        let host = hosts.get(usize::try_from(place)?).context("a change's tier is one of `tiers`")?;
        let size = |key: &str| change[key].as_u64().and_then(|size| u32::try_from(size).ok());
        Ok(Change {
            what: change["what"].as_str().context("a change's `what`")?.to_owned(),
            host: (*host).to_owned(),
            from: size("from"),
            to: size("to"),
        })
    };
    let sum = |drops: &[Value]| drops.iter().filter_map(Value::as_u64).sum();
    let with_margin = of["with_margin"]["drops"].as_array();
    Ok(Candidate {
        changes: list(&of["changes"])?.iter().map(change).collect::<Result<_>>()?,
        effect: of["effect"].as_str().context("a candidate's `effect`")?.to_owned(),
        dropped: sum(list(&of["replayed"]["drops"])?),
        dropped_with_margin: with_margin.map(|drops| sum(drops)),
        p99_s: of["replayed"]["p99_s"].as_f64(),
        sentence: of["sentence"].as_str().unwrap_or_default().to_owned(),
    })
}

/// A lab with these changes.
///
/// # Errors
/// A change that this laboratory cannot make, by name.
pub fn changed(stack: Stack, config: &LabConfig, changes: &[Change]) -> Result<LabConfig> {
    let mut config = config.clone();
    for change in changes {
        let tier = stack.tiers().iter().find(|tier| tier.host() == change.host);
        let limits = tier.and_then(|tier| limits(&mut config, *tier));
        match (limits, change.what.as_str(), change.to) {
            (Some(limits), "backlog", Some(to)) => limits.backlog = to,
            (Some(limits), "workers", Some(to)) => limits.workers = to,
            (Some(limits), "pool", Some(to)) => limits.pool = to,
            _ => bail!("the laboratory does not change {}", change.asked()),
        }
    }
    Ok(config)
}

/// Of a tier that is one server.
fn limits(config: &mut LabConfig, tier: Tier) -> Option<&mut Limits> {
    match tier {
        Tier::Web => Some(&mut config.web),
        Tier::App => Some(&mut config.app),
        Tier::Db => Some(&mut config.db),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"id":"01A","version":3,"refused":null,"why":null,"answer":{
        "tiers":[{"host":"web-1"},{"host":"app-1"}],"reproduction":{"predicted":310,"seen":300,"ratio":1.03},
        "candidates":[
          {"changes":[{"what":"backlog","tier":0,"from":128,"to":640}],"effect":"slow","sentence":"slower","replayed":{"drops":[0,0],"p99_s":1.9},"with_margin":{"drops":[0,7],"p99_s":2.0}},
          {"changes":[{"what":"event_driven","tier":0,"from":null,"to":null}],"effect":"moves","replayed":{"drops":[0,40],"p99_s":null}}
        ]}}"#;

    #[test]
    fn an_answer_is_read_and_made() {
        let answer = Answer::read(200, ANSWER).unwrap().unwrap();
        let first = &answer.candidates[0];
        assert_eq!(first.dropped_with_margin, Some(7));
        assert_eq!((answer.predicted, first.effect.as_str(), first.dropped), (Some(310), "slow", 0));
        assert_eq!(answer.preventing(), Some(first), "nothing prevents it, and this leaves no drops");
        assert_eq!((first.p99_s, first.changes[0].asked().as_str()), (Some(1.9), "backlog@web-1=640"));
        assert_eq!(first.changes[0].halved().unwrap().to, Some(384));
        let lab = LabConfig::of(Stack::Nx0);
        let made = changed(Stack::Nx0, &lab, &first.changes).unwrap();
        assert_eq!((made.web.backlog, made.app), (640, lab.app));
        let second = &answer.candidates[1];
        assert_eq!((second.dropped, second.changes[0].halved()), (40, None));
        let why = changed(Stack::Nx0, &lab, &second.changes).unwrap_err().to_string();
        assert!(why.contains("event_driven@web-1"), "{why}");
    }

    #[test]
    fn a_refusal_is_its_reason_and_anything_else_an_error() {
        let refused =
            r#"{"id":"01A","version":3,"refused":{"reason":"x"},"why":"too little is known","answer":null}"#;
        assert_eq!(Answer::read(200, refused).unwrap(), Err("too little is known".to_owned()));
        let counted = r#"{"id":"01A","version":3,"refused":{"reason":"x"},"why":"too little is known","answer":null,
            "queue":{"host":"db-1","backlog":24,"enough":320,"sentence":"all of them"}}"#;
        let counted = Answer::read(200, counted).unwrap().unwrap();
        let holds = counted.preventing().unwrap();
        assert_eq!((counted.predicted, holds.changes[0].asked().as_str()), (None, "backlog@db-1=320"));
        for (status, body) in
            [(404, "no such incident"), (200, "no JSON"), (200, "{}"), (200, r#"{"answer":{}}"#)]
        {
            assert!(Answer::read(status, body).is_err(), "{status} {body}");
        }
    }
}
