//! Windows to the terminal, with no collector: one line per entity and window, for people or as JSON lines. Owns how values are
//! written; takes them from the same encoding that the collector gets, so that what is shown is what would be sent.

use crate::name::workload::Named;
use crate::run::pipeline::View;
use crate::sample::sampler::Sink;
use crate::stream::encode::{self, Encoder, HostView};
use crate::window::{ListenDrop, WINDOW_NS, Window};
use std::collections::HashMap;
use std::io::Write;
use tailwater_proto::columnar::decode_values;
use tailwater_proto::v1::{self, EntityKind};

/// How to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Aligned columns, human units, zeros left out.
    Text,
    /// One object per line, every value.
    Json,
}

/// The sampler's sink of `dump`.
pub struct Dump<W> {
    view: View,
    encoder: Encoder,
    names: HashMap<(i32, u32), String>,
    cpus: u32,
    form: Form,
    left: Option<u64>,
    out: W,
    broken: bool,
}

impl<W> std::fmt::Debug for Dump<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dump").field("form", &self.form).finish_non_exhaustive()
    }
}

impl<W: Write + Send> Dump<W> {
    /// Writes `windows` windows, or without end.
    pub fn new(view: View, cpus: u32, form: Form, windows: Option<u64>, out: W) -> Self {
        Self {
            view,
            encoder: Encoder::default(),
            names: HashMap::new(),
            cpus,
            form,
            left: windows,
            out,
            broken: false,
        }
    }

    fn learn_names(&mut self) {
        let changed = self.view.entities.take_changed();
        self.encoder.forget(&changed);
        for named in changed {
            let (kind, id, name) = match named {
                Named::Workload(w) => (EntityKind::Workload, w.id, w.names.name),
                Named::Device(d) => (EntityKind::Device, d.id, d.name),
                Named::Listener(l) => {
                    let socket =
                        l.path.as_deref().map_or_else(|| socket(l.key.address, l.key.port), str::to_owned);
                    let owner = self.name(EntityKind::Workload, l.workload);
                    (EntityKind::Listener, l.id, format!("{owner} {socket}"))
                }
                Named::Edge(e) => {
                    let at = || socket(e.key.remote_address, e.key.remote_port);
                    let socket = e.path.as_deref().map_or_else(at, str::to_owned);
                    let owner = self.name(EntityKind::Workload, e.workload);
                    (EntityKind::Edge, e.id, format!("{owner} > {socket}"))
                }
                Named::Gone(kind, id) => {
                    self.names.remove(&(encode::entity_kind(kind) as i32, id));
                    continue;
                }
            };
            self.names.insert((kind as i32, id), name);
        }
    }

    fn name(&self, kind: EntityKind, id: u32) -> String {
        match kind {
            EntityKind::Host => "(host)".to_owned(),
            _ => self.names.get(&(kind as i32, id)).cloned().unwrap_or_else(|| "?".to_owned()),
        }
    }

    /// A closed pipe ends the dump; nothing else can be done about it.
    fn line(&mut self, line: &str) {
        self.broken |= writeln!(self.out, "{line}").is_err();
    }

    fn json(&mut self, line: &serde_json::Value) {
        self.line(&plain(&line.to_string()));
    }

    fn table(&mut self, time: &str, window: &Window, table: &v1::Table) {
        let columns: Vec<(String, Vec<u64>)> = table
            .columns
            .iter()
            .filter_map(|c| {
                let bucket = if c.metric().as_str_name().ends_with("_HIST") {
                    format!("_{}", c.bucket)
                } else {
                    String::new()
                };
                let name = c.metric().as_str_name().trim_start_matches("METRIC_").to_lowercase() + &bucket;
                Some((name, decode_values(c, table.entities.len()).ok()?))
            })
            .collect();
        let kind = table.kind();
        let kind_name = kind.as_str_name().trim_start_matches("ENTITY_KIND_").to_lowercase();
        for (row, id) in table.entities.iter().enumerate() {
            let name = self.name(kind, *id);
            let values = columns.iter().map(|(n, v)| (n.as_str(), v[row]));
            match self.form {
                Form::Text => {
                    let shown: Vec<String> = values.filter_map(|(n, v)| human(n, v)).collect();
                    if !shown.is_empty() {
                        let mark = if window.late { "~" } else { " " };
                        let name = printable(&name);
                        self.line(&format!("{time}{mark} {kind_name:<8} {name:<28} {}", shown.join("  ")));
                    }
                }
                Form::Json => {
                    let values: serde_json::Map<String, serde_json::Value> =
                        values.map(|(n, v)| (n.to_owned(), v.into())).collect();
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS),
                        "late": window.late, "clock_corrected": window.clock_corrected,
                        "kind": kind_name, "id": id, "name": name, "values": values,
                    });
                    self.json(&line);
                }
            }
        }
    }

    fn culprits(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for c in &batch.culprits {
            let (resource, unit) = match (c.resource(), c.unit()) {
                (v1::culprit::Resource::Cpu, _) => ("cpu", "ns"),
                (_, v1::culprit::Unit::Bytes) => ("io", "bytes"),
                _ => ("io", "ns"),
            };
            let workload = self.name(EntityKind::Workload, c.workload);
            match self.form {
                Form::Text => {
                    let amount = in_unit(unit, c.amount);
                    let who = format!("{} ({})", printable(&c.comm), c.pid);
                    let workload = printable(&workload);
                    self.line(&format!("{time}  culprit  {who:<28} {resource} {amount}  in {workload}"));
                }
                Form::Json => {
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "culprit",
                        "resource": resource, "pid": c.pid, "comm": c.comm, "workload": workload,
                        "amount": c.amount, "unit": unit,
                    });
                    self.json(&line);
                }
            }
        }
    }

    fn blocked_loops(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for l in &batch.blocked_loops {
            let listener = self.name(EntityKind::Listener, l.listener);
            match self.form {
                Form::Text => {
                    let who = format!("{} ({})", printable(&l.comm), l.thread);
                    let (ran, waited) = (in_unit("ns", l.ran_ns), in_unit("ns", l.waited_ns));
                    let (span, silent) = (in_unit("ns", l.span_ns), in_unit("ns", l.silent_ns));
                    let asleep = if l.slept_in.is_empty() {
                        String::new()
                    } else {
                        format!(", asleep in {}", printable(&l.slept_in))
                    };
                    let listener = printable(&listener);
                    self.line(&format!(
                        "{time}  loop     {who:<28} read nothing for {silent}: of {span} it ran {ran}, waited for a CPU {waited}{asleep}  at {listener}"
                    ));
                }
                Form::Json => {
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "blocked_loop",
                        "thread": l.thread, "comm": l.comm, "listener": listener, "silent_ns": l.silent_ns,
                        "span_ns": l.span_ns, "ran_ns": l.ran_ns, "waited_ns": l.waited_ns,
                        "uninterruptible": l.uninterruptible, "slept_in": l.slept_in,
                    });
                    self.json(&line);
                }
            }
        }
    }
}

impl<W: Write + Send> Dump<W> {
    fn cpu_shares(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for (of, one) in batch.cpu_shares.iter().flat_map(|of| of.neighbours.iter().map(move |one| (of, one)))
        {
            let [cgroup, server] = [of.workload, one.workload].map(|id| self.name(EntityKind::Workload, id));
            match self.form {
                Form::Text => {
                    let who = if one.comm.is_empty() { &server } else { &one.comm };
                    let [ran, waited, span] =
                        [one.ran_ns, one.waited_ns, of.span_ns].map(|ns| in_unit("ns", ns));
                    let (who, cgroup) = (printable(who), printable(&cgroup));
                    self.line(&format!(
                        "{time}  shares   {who:<28} of {span} its {} threads ran {ran}, waited for a CPU {waited}  in {cgroup}",
                        one.threads
                    ));
                }
                Form::Json => {
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "cpu_share",
                        "workload": cgroup, "server": server, "comm": one.comm, "windows_ago": of.windows_ago,
                        "span_ns": of.span_ns, "ran_ns": one.ran_ns, "waited_ns": one.waited_ns, "threads": one.threads,
                    });
                    self.json(&line);
                }
            }
        }
    }

    /// Both ends of a connection have the same number, whoever sees them.
    fn meetings(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for meeting in &batch.meetings {
            let (how, kind, id) = match meeting.end {
                Some(v1::meeting::End::Listener(id)) => ("accepted", EntityKind::Listener, id),
                Some(v1::meeting::End::Edge(id)) => ("connected", EntityKind::Edge, id),
                None => continue,
            };
            let end = self.name(kind, id);
            match self.form {
                Form::Text => {
                    let end = printable(&end);
                    self.line(&format!("{time}  met      {:012x} {how:<15} {end}", meeting.pair));
                }
                Form::Json => {
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "meeting",
                        "pair": format!("{:012x}", meeting.pair), "how": how, "end": end,
                    });
                    self.json(&line);
                }
            }
        }
    }

    fn locked_threads(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for of in &batch.locked_threads {
            let at = self.name(EntityKind::Listener, of.listener);
            match self.form {
                Form::Text => {
                    let held = of.holder.as_ref().map_or_else(String::new, |by| {
                        let does = if by.runs { "runs" } else { by.slept_in.as_str() };
                        format!(", held by {} ({}): {does}", by.comm, by.tid)
                    });
                    let what =
                        format!("{at}: {} of {} threads wait for one mutex{held}", of.waiting, of.threads);
                    self.line(&format!("{time}  mutex    {}", printable(&what)));
                }
                Form::Json => {
                    let holder = of.holder.as_ref().map(|by| {
                        serde_json::json!({
                            "thread": by.tid, "comm": by.comm, "runs": by.runs, "slept_in": by.slept_in,
                        })
                    });
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "mutex", "listener": at,
                        "windows_ago": of.windows_ago, "waiting": of.waiting, "threads": of.threads, "holder": holder,
                    });
                    self.json(&line);
                }
            }
        }
    }

    fn waiting_lookups(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for of in &batch.waiting_lookups {
            let who = self.name(EntityKind::Workload, of.workload);
            let server = address(&of.server);
            let longest_ms = of.longest_ns / 1_000_000;
            match self.form {
                Form::Text => {
                    let what = format!(
                        "{who}: {} lookups wait for the server of names {server}, {longest_ms} ms at most",
                        of.lookups
                    );
                    self.line(&format!("{time}  names    {}", printable(&what)));
                }
                Form::Json => {
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "names", "workload": who,
                        "server": server, "lookups": of.lookups, "longest_ms": longest_ms,
                    });
                    self.json(&line);
                }
            }
        }
    }

    fn code_paths(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for of in &batch.code_paths {
            let who = self.name(EntityKind::Workload, of.workload);
            let does = if of.doing() == v1::code_path::Doing::Running { "runs" } else { "waits" };
            match self.form {
                Form::Text => {
                    let mut frames = of.frames.join(" < ");
                    if of.cut {
                        frames.push_str(" < …");
                    }
                    let what = format!(
                        "{who} {} [{}] {does}, {} of {}: {frames}",
                        of.comm, of.pid, of.samples, of.of
                    );
                    self.line(&format!("{time}  code     {}", printable(&what)));
                }
                Form::Json => {
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "code", "workload": who,
                        "pid": of.pid, "comm": of.comm, "doing": does, "windows_ago": of.windows_ago,
                        "windows": of.windows, "samples": of.samples, "of": of.of, "frames": of.frames,
                        "cut": of.cut,
                    });
                    self.json(&line);
                }
            }
        }
    }

    fn slow_requests(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for of in &batch.slow_requests {
            let at = self.name(EntityKind::Listener, of.listener);
            let [retried, unread, inside] =
                [of.retried_ns, of.unread_ns, of.inside_ns].map(|ns| ns / 1_000_000);
            let calls: Vec<(String, &v1::SlowCall)> =
                of.calls.iter().map(|call| (self.name(EntityKind::Edge, call.edge), call)).collect();
            match self.form {
                Form::Text => {
                    let how = if of.aborted { "not answered" } else { "answered" };
                    let what = format!("{at}: {how}, {retried} ms retried, {unread} unread, {inside} inside");
                    self.line(&format!("{time}  slow     {}", printable(&what)));
                    for (to, call) in &calls {
                        let what = if call.connecting { "connecting to" } else { "in a call to" };
                        let (after, took) = (call.after_ns / 1_000_000, call.took_ns / 1_000_000);
                        let what = format!("after {after} ms {took} ms {what} {to}");
                        self.line(&format!("{time}  slow       {}", printable(&what)));
                    }
                }
                Form::Json => {
                    let of_call = |(to, call): &(String, &v1::SlowCall)| {
                        serde_json::json!({
                            "edge": to, "pair": format!("{:012x}", call.pair), "after_ns": call.after_ns,
                            "took_ns": call.took_ns, "connecting": call.connecting, "aborted": call.aborted,
                        })
                    };
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "slow", "listener": at,
                        "pair": format!("{:012x}", of.pair), "ended_ago_ns": of.ended_ago_ns, "retried_ns": of.retried_ns,
                        "unread_ns": of.unread_ns, "queued": of.queued, "inside_ns": of.inside_ns, "aborted": of.aborted,
                        "calls": of.calls_known.then(|| calls.iter().map(of_call).collect::<Vec<_>>()),
                        "calls_left_out": of.calls_left_out,
                    });
                    self.json(&line);
                }
            }
        }
    }

    fn blockings(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for of in &batch.blockings {
            let at = self.name(EntityKind::Listener, of.listener);
            match self.form {
                Form::Text => {
                    self.line(&format!("{time}  locks    {}: {} sessions wait", printable(&at), of.waiting));
                    for by in &of.blockers {
                        let how = if by.idle { "asks nothing after" } else { "runs" };
                        let what =
                            format!("{} for {}, which {how} {}", by.waiting, by.connection, by.statement);
                        self.line(&format!("{time}  locks      {}", printable(&what)));
                    }
                }
                Form::Json => {
                    let blockers = of.blockers.iter().map(|by| {
                        serde_json::json!({
                            "connection": by.connection, "waiting": by.waiting, "idle": by.idle, "held_ms": by.held_ms,
                            "statement": by.statement,
                        })
                    });
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "locks", "listener": at,
                        "windows_ago": of.windows_ago, "waiting": of.waiting, "blockers": blockers.collect::<Vec<_>>(),
                    });
                    self.json(&line);
                }
            }
        }
    }

    fn kernel_counts(&mut self, time: &str, window: &Window, batch: &v1::WindowBatch) {
        for of in &batch.kernel_counts {
            let name = of.counter().as_str_name().trim_start_matches("KERNEL_COUNTER_").to_lowercase();
            match self.form {
                Form::Text => {
                    let ms = u64::from(of.windows) * WINDOW_NS / 1_000_000;
                    self.line(&format!("{time}  kernel   {name:<28} {} in {ms} ms", of.count));
                }
                Form::Json => {
                    let line = serde_json::json!({
                        "window_unix_ns": window.index.0.saturating_mul(WINDOW_NS), "kind": "kernel_count", "counter": name,
                        "count": of.count, "windows": of.windows, "windows_ago": of.windows_ago,
                    });
                    self.json(&line);
                }
            }
        }
    }
}

impl<W: Write + Send> Sink for Dump<W> {
    fn window(&mut self, mut window: Window) {
        if self.done() {
            return;
        }
        self.view.narrow(&mut window);
        let scope = self.view.scope_path().map(ToOwned::to_owned);
        let host = HostView { cpus: self.cpus, scope: scope.as_deref() };
        let batch = self.encoder.batch(std::slice::from_ref(&window), &mut self.view.entities, host, &[]);
        self.learn_names();
        let time = time_of_day(window.index.0.saturating_mul(WINDOW_NS));
        for table in &batch.tables {
            self.table(&time, &window, table);
        }
        self.culprits(&time, &window, &batch);
        self.blocked_loops(&time, &window, &batch);
        self.cpu_shares(&time, &window, &batch);
        self.meetings(&time, &window, &batch);
        self.kernel_counts(&time, &window, &batch);
        self.blockings(&time, &window, &batch);
        self.locked_threads(&time, &window, &batch);
        self.waiting_lookups(&time, &window, &batch);
        self.slow_requests(&time, &window, &batch);
        self.code_paths(&time, &window, &batch);
        self.broken |= self.out.flush().is_err();
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    fn lost(&mut self, windows: u64) {
        match self.form {
            Form::Text => self.line(&format!("-- {windows} windows lost: the agent did not get to run")),
            Form::Json => self.json(&serde_json::json!({"kind": "lost", "windows": windows})),
        }
    }

    fn drops(&mut self, drops: &[ListenDrop]) {
        for drop in drops {
            let Some(event) = self.view.drop_event(drop) else { continue };
            self.learn_names();
            let name = self.name(EntityKind::Listener, event.listener);
            match self.form {
                Form::Text => {
                    let (time, name) = (time_of_day(event.unix_ns), printable(&name));
                    self.line(&format!(
                        "{time}! drop     {name:<28} {} dropped, queue {}/{}",
                        event.packets.unwrap_or(event.count),
                        event.depth,
                        event.limit
                    ));
                }
                Form::Json => {
                    let line = serde_json::json!({
                        "unix_ns": event.unix_ns, "kind": "drop", "id": event.listener, "name": name,
                        "count": event.packets, "sk_drops": event.count, "depth": event.depth, "limit": event.limit,
                    });
                    self.json(&line);
                }
            }
        }
    }

    fn finish(&mut self) {
        // Reported already, or the pipe is closed.
        let _ = self.out.flush();
    }

    fn done(&self) -> bool {
        self.broken || self.left == Some(0)
    }
}

/// Whoever may name a process or a cgroup may not write to the operator's terminal: control characters are shown, not sent.
fn printable(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The same of JSON, which escapes the control characters below the space (RFC 8259, 7) and none of the others: terminals may take those for
/// the beginning of a command, too. They stand in strings only, where this writes them in the other way that JSON has.
fn plain(json: &str) -> String {
    use std::fmt::Write as _;
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// An address as it is on the wire.
fn address(bytes: &[u8]) -> String {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::Ipv4Addr::from(bytes).to_string());
    let v6 = || <[u8; 16]>::try_from(bytes).map(|bytes| std::net::Ipv6Addr::from(bytes).to_string());
    v4.or_else(|_| v6()).unwrap_or_else(|_| "?".to_owned())
}

fn socket(address: std::net::Ipv6Addr, port: u16) -> String {
    match address.to_ipv4_mapped() {
        Some(v4) => format!("{v4}:{port}"),
        None if address.is_unspecified() => format!("*:{port}"),
        None => format!("[{address}]:{port}"),
    }
}

/// `HH:MM:SS.mmm`, UTC.
fn time_of_day(unix_ns: u64) -> String {
    let ms = unix_ns / 1_000_000;
    let (s, ms) = (ms / 1_000, ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3_600 % 24, s / 60 % 60, s % 60)
}

/// `name value` with a unit; `None` for what is not worth the space: zeros, histograms, and absolute times.
fn human(name: &str, value: u64) -> Option<String> {
    if value == 0 || name.contains("_hist_") || name.ends_with("_unix_ns") {
        return None;
    }
    let (short, unit) = if let Some(short) = name.strip_suffix("_max_ns") {
        (format!("{short}_max"), "ns")
    } else if let Some(short) = name.strip_suffix("_in_flight_ns").or_else(|| name.strip_suffix("_depth_ns"))
    {
        // Integrals of a count: its mean over the window says more.
        let stem = &name[short.len() + 1..name.len() - 3];
        let mean = value as f64 / WINDOW_NS as f64;
        return Some(format!("{short}_{stem}_mean {mean:.1}"));
    } else if let Some(short) = name.strip_suffix("_ns") {
        (short.to_owned(), "ns")
    } else if name.ends_with("_bytes") {
        (name.to_owned(), "bytes")
    } else {
        (name.to_owned(), "")
    };
    Some(format!("{short} {}", in_unit(unit, value)))
}

fn in_unit(unit: &str, value: u64) -> String {
    let v = value as f64;
    match unit {
        "ns" if value >= 1_000_000_000 => format!("{:.2}s", v / 1e9),
        "ns" if value >= 1_000_000 => format!("{:.1}ms", v / 1e6),
        "ns" => format!("{:.0}us", v / 1e3),
        "bytes" if value >= 1 << 20 => format!("{:.1}MiB", v / f64::from(1 << 20)),
        "bytes" if value >= 1 << 10 => format!("{:.1}KiB", v / f64::from(1 << 10)),
        "bytes" => format!("{value}B"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::name::cgroup::Mounts;
    use crate::name::workload::Entities;
    use crate::sample::polled::Watched;
    use crate::sample::throttle::Quotas;
    use crate::window::{CulpritResource, CulpritSample, TaskSample, WindowIndex};

    #[test]
    fn a_name_writes_nothing_to_the_terminal() {
        // As the kernel takes it: the beginning of a command in one character, which JSON alone would leave as it is.
        const NAME: &str = "b\u{9b}2J\u{7f}é\n";
        for form in [Form::Text, Form::Json] {
            let (text, _) = dumped_by(form, NAME);
            assert!(!text.lines().any(|line| line.contains(char::is_control)), "{text:?}");
            assert_eq!(text.lines().count(), 3, "{text:?}");
        }
        let (text, _) = dumped_by(Form::Json, NAME);
        let culprit: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(culprit["comm"], NAME);
        assert_eq!(printable("db\u{1b}[2Jé"), "db\\u{1b}[2Jé");
    }

    fn dumped(form: Form) -> (String, bool) {
        dumped_by(form, "burn")
    }

    fn dumped_by(form: Form, comm: &str) -> (String, bool) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("system.slice/db.service")).unwrap();
        let mounts = Mounts { unified: Some(folder.path().to_owned()), ..Mounts::default() };
        let entities = Entities::new(mounts, folder.path());
        let db = entities.tree().id("/system.slice/db.service").unwrap();
        let view = View::new(entities, None, Quotas::default(), Watched::default());
        let mut out = Vec::new();
        let mut dump = Dump::new(view, 2, form, Some(1), &mut out);
        let task =
            TaskSample { busy_ns: 12_345_678, wait_ns: 900_000, waiting_max: 3, ..TaskSample::default() };
        let culprit = CulpritSample {
            resource: CulpritResource::Cpu,
            pid: 77,
            comm: comm.to_owned(),
            workload: db,
            amount: 40_000_000,
        };
        // 1970-01-01 14:03:07.350
        let window = Window {
            index: WindowIndex(50_587_350 / 50),
            tasks: Some(vec![(db, task)]),
            culprits: vec![culprit],
            ..Window::default()
        };
        dump.window(window.clone());
        dump.window(window);
        let done = dump.done();
        drop(dump);
        (String::from_utf8(out).unwrap(), done)
    }

    #[test]
    fn text_is_one_line_per_entity_in_human_units() {
        let (text, done) = dumped(Form::Text);
        assert!(done, "one window was asked for");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("14:03:07.350  host     (host) "), "{text}");
        assert_eq!(
            lines[1],
            "14:03:07.350  workload db.service                   cpu_busy 12.3ms  run_queue_wait 900us  run_queue_waiting_max 3  cpu_capacity 100.0ms"
        );
        assert_eq!(lines[2], "14:03:07.350  culprit  burn (77)                    cpu 40.0ms  in db.service");
    }

    #[test]
    fn json_is_one_object_per_line_with_every_value() {
        let (text, _) = dumped(Form::Json);
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines[1]["name"], "db.service");
        assert_eq!(lines[1]["values"]["cpu_busy_ns"], 12_345_678);
        assert_eq!(lines[1]["values"]["run_queue_switches"], 0);
        assert_eq!(lines[2]["kind"], "culprit");
    }

    #[test]
    fn units() {
        assert_eq!(human("cpu_busy_ns", 0), None);
        assert_eq!(human("requests_in_flight_ns", 150_000_000).unwrap(), "requests_in_flight_mean 3.0");
        assert_eq!(human("accept_queue_depth_ns", 25_000_000).unwrap(), "accept_queue_depth_mean 0.5");
        assert_eq!(human("response_time_max_ns", 1_234_000_000).unwrap(), "response_time_max 1.23s");
        assert_eq!(human("io_bytes", 3 << 20).unwrap(), "io_bytes 3.0MiB");
        assert_eq!(human("run_queue_wait_hist_3", 9), None);
        assert_eq!(human("listen_drops", 9).unwrap(), "listen_drops 9");
    }
}
