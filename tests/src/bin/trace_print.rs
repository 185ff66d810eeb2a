//! Prints a recorded trace as text, one line per host, window and entity: for looking at what the pipeline was fed.

use anyhow::{Context, Result};
use clap::Parser;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tailwater_proto::columnar::TableValues;
use tailwater_proto::trace::TraceReader;
use tailwater_proto::v1::{EntityKind, Metric, agent_message, trace_record};
use tailwater_tests::console::failure;

/// Prints what a trace holds.
#[derive(Debug, Parser)]
struct Arguments {
    /// The trace.
    file: PathBuf,
    /// Only this host.
    #[arg(long)]
    host: Option<String>,
    /// Only this kind: host, workload, listener, edge, device, or `event_loop` for those that were blocked.
    #[arg(long)]
    kind: Option<String>,
    /// From this Unix time, ms.
    #[arg(long, default_value_t = 0)]
    from_ms: u64,
    /// Up to this Unix time, ms.
    #[arg(long, default_value_t = u64::MAX)]
    to_ms: u64,
}

fn main() -> ExitCode {
    ExitCode::from(failure::run("trace-print", None, work))
}

fn work() -> Result<()> {
    let arguments = Arguments::parse();
    let file = File::open(&arguments.file).with_context(|| format!("open {}", arguments.file.display()))?;
    match print(&arguments, file, &mut std::io::stdout().lock()) {
        // Whoever reads it has seen enough.
        Err(e) if e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) => {
            Ok(())
        }
        printed => printed,
    }
}

fn print(arguments: &Arguments, file: File, out: &mut impl Write) -> Result<()> {
    let wanted = |what: &str| arguments.kind.as_ref().is_none_or(|only| only == what);
    let mut names: BTreeMap<(String, i32, u32), String> = BTreeMap::new();
    for record in TraceReader::new(BufReader::new(file))? {
        let Some(trace_record::Body::Arrival(arrival)) = record?.body else { continue };
        let host = arrival.host;
        match arrival.message.and_then(|message| message.body) {
            Some(agent_message::Body::Entities(entities)) => {
                for w in entities.workloads {
                    names.insert((host.clone(), EntityKind::Workload as i32, w.id), w.name);
                }
                for l in entities.listeners {
                    names.insert(
                        (host.clone(), EntityKind::Listener as i32, l.id),
                        format!(":{} of {}", l.port, l.workload),
                    );
                }
                for e in entities.edges {
                    names.insert(
                        (host.clone(), EntityKind::Edge as i32, e.id),
                        format!("{} to {:?}:{}", e.workload, e.remote_address, e.remote_port),
                    );
                }
            }
            Some(agent_message::Body::Batch(batch)) => {
                if arguments.host.as_ref().is_some_and(|only| *only != host) {
                    continue;
                }
                for table in &batch.tables {
                    let kind = EntityKind::try_from(table.kind).unwrap_or_default();
                    let label = kind.as_str_name().trim_start_matches("ENTITY_KIND_").to_lowercase();
                    if !wanted(&label) {
                        continue;
                    }
                    let values = TableValues::decode(table, batch.window_count)?;
                    for window in 0..batch.window_count {
                        let ms = (batch.first_window + u64::from(window)) * 50;
                        if ms < arguments.from_ms || ms > arguments.to_ms {
                            continue;
                        }
                        for id in &table.entities {
                            let mut line = String::new();
                            for column in &table.columns {
                                let Ok(metric) = Metric::try_from(column.metric) else { continue };
                                let value = values.get(*id, window as usize, metric).unwrap_or(0);
                                if value != 0 && column.bucket == 0 {
                                    let name =
                                        metric.as_str_name().trim_start_matches("METRIC_").to_lowercase();
                                    line += &format!(" {name}={value}");
                                }
                            }
                            let name =
                                names.get(&(host.clone(), table.kind, *id)).cloned().unwrap_or_default();
                            writeln!(out, "{ms} {host} {label} {id} [{name}]{line}")?;
                        }
                    }
                }
                for l in batch.blocked_loops.iter().filter(|_| wanted("event_loop")) {
                    let ms = (batch.first_window + u64::from(l.window_offset)) * 50;
                    if (arguments.from_ms..=arguments.to_ms).contains(&ms) {
                        let (listener, thread, comm) = (l.listener, l.thread, &l.comm);
                        writeln!(
                            out,
                            "{ms} {host} event_loop {listener} [{comm}] thread={thread} silent_ns={} span_ns={} ran_ns={} waited_ns={} slept_in={}",
                            l.silent_ns, l.span_ns, l.ran_ns, l.waited_ns, l.slept_in
                        )?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}
