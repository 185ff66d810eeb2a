//! What comes over the wire or lies in a recording of it: columns of a table, an agent's whole stream, a trace.

use crate::messages::next;
use prost::Message;
use std::io::BufReader;
use std::sync::Arc;
use tailwater::counters::Metrics;
use tailwater::ingest::registry::Registry;
use tailwater::ingest::session::Session;
use tailwater::ingest::tls::Speaker;
use tailwater_proto::WINDOW_NS;
use tailwater_proto::columnar::{TableValues, decode_values, encode_values};
use tailwater_proto::v1::{AgentMessage, Column, Hello, Table, agent_message::Body};
use tonic::codegen::Bytes;

/// The codec: a table as it comes, and one column of as many values as its first byte says.
pub(crate) fn columns(bytes: &[u8]) {
    if let Some((first, rest)) = bytes.split_first() {
        let want = usize::from(*first);
        let column = Column { metric: 1, bucket: 0, values: rest.to_vec() };
        if let Ok(values) = decode_values(&column, want) {
            assert_eq!(values.len(), want, "as many as were asked for");
            let again = Column { metric: 1, bucket: 0, values: encode_values(&values) };
            assert_eq!(decode_values(&again, want).as_ref(), Ok(&values), "what is written is read");
        }
        if let Ok(table) = Table::decode(rest)
            && let Ok(values) = TableValues::decode(&table, u32::from(*first))
        {
            let _ = values.count();
            values.rows().for_each(drop);
        }
    }
}

/// A stream: eight bytes of the moment at which it comes, then messages with their lengths, through everything that judges them before the
/// analysis. One that does not begin with a Hello is given one.
pub(crate) fn stream(bytes: &[u8]) {
    let Some((moment, rest)) = bytes.split_first_chunk() else { return };
    let now = u64::from_le_bytes(*moment);
    let mut messages = rest;
    let (registry, metrics) = (Registry::new(2), Arc::new(Metrics::default()));
    let speaker = Speaker::default();
    let mut open = |raw: &Bytes| Session::open(raw, &registry, &metrics, ("fuzz", &speaker), now).ok();
    let mut session = match next(&mut messages).as_ref().and_then(&mut open) {
        Some((session, ..)) => session,
        None => {
            messages = rest;
            let hello = Hello {
                host: "fuzz".into(),
                agent_instance: "fuzz".into(),
                protocol_min: 1,
                protocol_max: 1,
                window_ns: WINDOW_NS,
                ..Hello::default()
            };
            let raw = AgentMessage { body: Some(Body::Hello(hello)) }.encode_to_vec();
            open(&raw.into()).expect("a Hello in order is taken").0
        }
    };
    let mut at = now;
    while let Some(raw) = next(&mut messages) {
        let reaction = session.message(raw, at);
        if let Some(taken) = reaction.commit {
            session.commit(taken);
        }
        at = at.saturating_add(2 * WINDOW_NS);
    }
    let _ = registry.view();
}

/// `tailwater replay`, the analysis with it.
pub(crate) fn recording(bytes: &[u8]) {
    drop(tailwater::run::replay::replay(BufReader::new(bytes), None, None, false));
}
