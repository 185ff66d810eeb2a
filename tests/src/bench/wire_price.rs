//! Bytes per value on the wire, counted in a trace that the collector recorded: whole batch messages against the values in them.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use tailwater_proto::columnar::TableValues;
use tailwater_proto::trace::TraceReader;
use tailwater_proto::v1::{AgentMessage, Arrival, agent_message, trace_record};

/// Totals over a trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct WirePrice {
    /// Batches.
    pub batches: u64,
    /// Their encoded size.
    pub bytes: u64,
    /// Values they carried.
    pub values: u64,
    /// Of those, not zero.
    pub nonzero: u64,
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
impl WirePrice {
    /// Encoded bytes over values.
    #[must_use]
    pub fn bytes_per_value(&self) -> f64 {
        self.bytes as f64 / self.values as f64
    }

    /// Encoded bytes over the values that are not zero: the harder figure.
    #[must_use]
    pub fn bytes_per_nonzero_value(&self) -> f64 {
        self.bytes as f64 / self.nonzero as f64
    }
}

/// Reads the trace at `path`.
pub fn of_trace(path: &Path) -> Result<WirePrice> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut price = WirePrice::default();
    for record in TraceReader::new(BufReader::new(file))? {
        let Some(trace_record::Body::Arrival(Arrival { message: Some(message), .. })) = record?.body else {
            continue;
        };
        add(&mut price, &message)?;
    }
    Ok(price)
}

fn add(price: &mut WirePrice, message: &AgentMessage) -> Result<()> {
    let Some(agent_message::Body::Batch(batch)) = &message.body else {
        return Ok(());
    };
    price.batches += 1;
    price.bytes += u64::try_from(prost::Message::encoded_len(message))?;
    for table in &batch.tables {
        let (values, nonzero) = TableValues::decode(table, batch.window_count)?.count();
        price.values += u64::try_from(values)?;
        price.nonzero += u64::try_from(nonzero)?;
    }
    Ok(())
}
