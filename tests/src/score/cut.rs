//! Cuts a recorded trace to the seconds around an event: everything that arrived in between, preceded by the names that were told
//! before. Knows the trace format; pure over its records.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write};
use tailwater_proto::trace::{MAGIC, TraceError, TraceReader, encode_record};
use tailwater_proto::v1::{
    AgentMessage, Arrival, Entities, EntityKind, TraceRecord, agent_message::Body as Said, trace_record::Body,
};

/// Names of one agent's run.
#[derive(Debug, Default, Clone)]
struct Names {
    arrival: Arrival,
    hello: Option<Said>,
    entities: Entities,
}

/// Copies what arrived in `[from_unix_ns, to_unix_ns)` from `input` to `out`, with the header and the names that it needs before it.
/// Entities that occur in no window of the cut are left out. Returns how many records were written.
pub fn cut(input: impl BufRead, out: &mut impl Write, from_unix_ns: u64, to_unix_ns: u64) -> Result<u64> {
    let mut header = None;
    let mut names: BTreeMap<String, Names> = BTreeMap::new();
    let mut inside: Vec<TraceRecord> = Vec::new();
    let mut now = 0;
    for record in TraceReader::new(input)? {
        let record = match record {
            // The recorder may still be writing.
            Err(TraceError::TornTail { .. }) => break,
            other => other?,
        };
        now = match &record.body {
            Some(Body::TickUnixNs(at)) => now.max(*at),
            Some(Body::Arrival(arrival)) => now.max(arrival.arrival_unix_ns),
            _ => now,
        };
        match record.body {
            Some(Body::Header(_)) => header = Some(record),
            _ if now >= to_unix_ns => break,
            Some(Body::Arrival(arrival)) if now < from_unix_ns => remember(&mut names, arrival),
            _ if now >= from_unix_ns => inside.push(record),
            _ => {}
        }
    }
    let header = header.context("the trace has no header")?;
    let used = used(&inside);
    let mut records = vec![header];
    for (host, known) in &mut names {
        retain(&mut known.entities, host, &used);
        let told = [known.hello.clone(), Some(Said::Entities(known.entities.clone()))];
        for body in told.into_iter().flatten() {
            let message = Some(AgentMessage { body: Some(body) });
            let arrival = Arrival { message, arrival_unix_ns: from_unix_ns, ..known.arrival.clone() };
            records.push(TraceRecord { body: Some(Body::Arrival(arrival)) });
        }
    }
    records.extend(inside);
    out.write_all(MAGIC)?;
    records.iter().try_for_each(|record| out.write_all(&encode_record(record)))?;
    Ok(records.len() as u64)
}

fn remember(names: &mut BTreeMap<String, Names>, arrival: Arrival) {
    let known = names.entry(arrival.host.clone()).or_default();
    if known.arrival.agent_instance != arrival.agent_instance {
        *known = Names::default();
    }
    let message = arrival.message.clone().and_then(|message| message.body);
    known.arrival = Arrival { message: None, ..arrival };
    match message {
        Some(hello @ Said::Hello(_)) => known.hello = Some(hello),
        Some(Said::Entities(new)) => {
            // A later word on an entity replaces the earlier one.
            let all = &mut known.entities;
            all.workloads.retain(|old| new.workloads.iter().all(|n| n.id != old.id));
            all.listeners.retain(|old| new.listeners.iter().all(|n| n.id != old.id));
            all.edges.retain(|old| new.edges.iter().all(|n| n.id != old.id));
            all.devices.retain(|old| new.devices.iter().all(|n| n.id != old.id));
            all.workloads.extend(new.workloads);
            all.listeners.extend(new.listeners);
            all.edges.extend(new.edges);
            all.devices.extend(new.devices);
        }
        _ => {}
    }
}

/// Entities that occur in batches: host, kind, id.
fn used(records: &[TraceRecord]) -> BTreeSet<(String, i32, u32)> {
    let mut used = BTreeSet::new();
    for record in records {
        let Some(Body::Arrival(arrival)) = &record.body else { continue };
        let Some(Said::Batch(batch)) = arrival.message.as_ref().and_then(|message| message.body.as_ref())
        else {
            continue;
        };
        for table in &batch.tables {
            used.extend(table.entities.iter().map(|id| (arrival.host.clone(), table.kind, *id)));
        }
        let culprits = batch.culprits.iter().map(|culprit| culprit.workload);
        used.extend(culprits.map(|id| (arrival.host.clone(), EntityKind::Workload as i32, id)));
    }
    used
}

fn retain(entities: &mut Entities, host: &str, used: &BTreeSet<(String, i32, u32)>) {
    let is = |kind: EntityKind, id: u32| used.contains(&(host.to_owned(), kind as i32, id));
    entities.listeners.retain(|listener| is(EntityKind::Listener, listener.id));
    entities.edges.retain(|edge| is(EntityKind::Edge, edge.id));
    entities.devices.retain(|device| is(EntityKind::Device, device.id));
    let mut owners: BTreeSet<u32> = entities.listeners.iter().map(|listener| listener.workload).collect();
    owners.extend(entities.edges.iter().map(|edge| edge.workload));
    entities
        .workloads
        .retain(|workload| is(EntityKind::Workload, workload.id) || owners.contains(&workload.id));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_proto::v1::{Hello, Table, TraceHeader, WindowBatch, Workload};

    fn arrival(at: u64, instance: &str, body: Said) -> TraceRecord {
        TraceRecord {
            body: Some(Body::Arrival(Arrival {
                host: "web-1".into(),
                agent_instance: instance.into(),
                arrival_unix_ns: at,
                message: Some(AgentMessage { body: Some(body) }),
                ..Arrival::default()
            })),
        }
    }

    fn workloads(names: &[(u32, &str)]) -> Said {
        let workloads = names
            .iter()
            .map(|(id, name)| Workload { id: *id, name: (*name).into(), ..Workload::default() })
            .collect();
        Said::Entities(Entities { workloads, ..Entities::default() })
    }

    fn batch(entities: &[u32]) -> Said {
        let table =
            Table { kind: EntityKind::Workload as i32, entities: entities.to_vec(), ..Table::default() };
        Said::Batch(WindowBatch { tables: vec![table], ..WindowBatch::default() })
    }

    fn cut_records(records: &[TraceRecord], from: u64, to: u64) -> Vec<TraceRecord> {
        let mut file = MAGIC.to_vec();
        records.iter().for_each(|record| file.extend(encode_record(record)));
        let mut out = Vec::new();
        cut(file.as_slice(), &mut out, from, to).unwrap();
        TraceReader::new(out.as_slice()).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn a_cut_has_the_names_of_before_and_what_arrived_inside() {
        let header = TraceRecord { body: Some(Body::Header(TraceHeader::default())) };
        let tick = |at| TraceRecord { body: Some(Body::TickUnixNs(at)) };
        let records = [
            header.clone(),
            arrival(1, "a", Said::Hello(Hello { host: "old run".into(), ..Hello::default() })),
            arrival(2, "b", Said::Hello(Hello { host: "web-1".into(), ..Hello::default() })),
            arrival(3, "b", workloads(&[(1, "x"), (2, "unused"), (3, "y")])),
            arrival(4, "b", workloads(&[(1, "x renamed")])),
            arrival(5, "b", batch(&[9])),
            tick(6),
            tick(10),
            arrival(11, "b", batch(&[1, 3])),
            tick(20),
        ];
        let cut = cut_records(&records, 10, 20);
        assert_eq!(cut.len(), 5, "{cut:#?}");
        assert_eq!(cut[0], header);
        let host = Hello { host: "web-1".into(), ..Hello::default() };
        assert_eq!(cut[1], arrival(10, "b", Said::Hello(host)));
        assert_eq!(cut[2], arrival(10, "b", workloads(&[(3, "y"), (1, "x renamed")])));
        assert_eq!(cut[3..], [tick(10), records[8].clone()]);
    }
}
