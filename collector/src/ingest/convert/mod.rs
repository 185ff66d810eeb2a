//! From wire messages to the pipeline's inputs: what makes the one of the other is in this folder. This file owns the mapping of an
//! agent's entity ids to ids that are never used twice for a host, and the shift of window indices when a clock is off by more than half
//! a window; `fields` says which metric is which field, `drop_packets` which counts are packets, `blockings`, `code`, `counts`, `locked`, `lookups`, `loops`, `meetings`, `shares`, `slow` and
//! `states` read what is told beside windows. What a message may hold at all is asked of `limits` and `sanity`, as the stream does too.
//! Knows no clock: offset and error bound come with each message, so that a trace converts the same way again.

mod blockings;
mod code;
mod counts;
mod drop_packets;
mod fields;
mod locked;
mod lookups;
mod loops;
mod meetings;
mod place;
mod shares;
mod slow;
mod states;

use crate::ingest::limits::{self, Excess};
use crate::ingest::sanity::{self, Absurd};
use blockings::BlockingsError;
use code::CodeError;
use counts::CountsError;
use drop_packets::DropPackets;
use locked::LockedError;
use lookups::LookupsError;
use loops::LoopsError;
use place::PlaceError;
use shares::SharesError;
use slow::SlowError;
use states::StatesError;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tailwater_model::names::ENTITIES_PER_HOST_MAX;
use tailwater_model::responses::{BUCKETS, Counts};
use tailwater_model::rows::Rows;
use tailwater_model::window::{
    Coverage, CulpritResource, CulpritSample, DeviceInfo, DropNotice, EdgeInfo, EntityId, Gone, HostInfo,
    HostShares, HostStates, HostWindow, Input, ListenerInfo, PoolSize, SignalSet, WINDOW_NS, WindowIndex,
    WorkloadInfo,
};
use tailwater_proto::columnar::{DecodeError, TableValues, WINDOWS_MAX};
use tailwater_proto::v1::{
    self, EntityKind, Signal, WindowBatch, WindowFlag, agent_message::Body, culprit, culprit::Unit,
};

/// Characters of the place where a pool's size is set: a key and a path.
const SET_BY_MAX: usize = 1000;

/// Bytes of the texts in all names that a host has at a time: some 4,000 of 200 bytes are a large one's. Whoever reads by name has a copy of them.
const NAMES_BYTES_MAX: usize = 8 << 20;

/// Characters of what a Unix socket is bound to (`sun_path`).
const PATH_MAX: usize = 108;

/// Why a message could not become an input. The text goes back to the agent.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// A table's columns do not decode.
    #[error("table of kind {kind}: {source}")]
    Table {
        /// `EntityKind` number.
        kind: i32,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// The same kind twice in one batch.
    #[error("two tables of kind {kind} in one batch")]
    RepeatedTable {
        /// `EntityKind` number.
        kind: i32,
    },
    /// No windows, or more than the kernel side keeps.
    #[error("{count} windows in one batch: it must be 1 to {WINDOWS_MAX}")]
    WindowCount {
        /// Windows declared.
        count: u32,
    },
    /// An address that is neither IPv4 nor IPv6.
    #[error("{what}: an address of {bytes} bytes; it must be 4 or 16")]
    Address {
        /// Whose address.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A port above 65535.
    #[error("{what}: port {port}")]
    Port {
        /// Whose port.
        what: &'static str,
        /// The number sent.
        port: u32,
    },
    /// A value that no machine can have measured.
    #[error(transparent)]
    Absurd(#[from] Absurd),
    /// Time in state that cannot be.
    #[error(transparent)]
    States(#[from] StatesError),
    /// Blocked event loops that cannot be.
    #[error(transparent)]
    Loops(#[from] LoopsError),
    /// In no window of its batch, or more than an agent tells.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Answers about locks that cannot be.
    #[error(transparent)]
    Blockings(#[from] BlockingsError),
    /// Locks inside of servers that cannot be.
    #[error(transparent)]
    Locked(#[from] LockedError),
    /// Lookups of names that cannot be.
    #[error(transparent)]
    Lookups(#[from] LookupsError),
    /// Requests that took long, as none does.
    #[error(transparent)]
    Slow(#[from] SlowError),
    /// Places in code that cannot be.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// Counts of the kernel that cannot be.
    #[error(transparent)]
    Counts(#[from] CountsError),
    /// Shares of a CPU that cannot be.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// More than one message may hold.
    #[error(transparent)]
    Excess(#[from] Excess),
}

impl ConvertError {
    /// For counters and for logging once per kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Absurd(absurd) | Self::States(StatesError::Absurd(absurd)) => absurd.kind(),
            Self::Excess(_) => "beyond_limit",
            _ => "undecodable",
        }
    }
}

/// Fresh ids for one kind of entity.
#[derive(Debug, Default)]
struct Ids {
    now: HashMap<u32, EntityId>,
    /// What those that are gone were called: an agent tells them again on its next connection, as what it told on the last one may have found no
    /// room. Emptied when it is full.
    gone: HashMap<u32, EntityId>,
    last: EntityId,
    refused: u64,
    /// Bytes of the names of those that have one, and of all of them.
    texts: HashMap<u32, usize>,
    texts_bytes: usize,
}

impl Ids {
    /// The id for `theirs`; 0 stays 0, which means "unknown". `None`: the host has too many.
    fn get(&mut self, theirs: u32) -> Option<EntityId> {
        if theirs == 0 {
            return Some(0);
        }
        if let Some(id) = self.now.get(&theirs) {
            return Some(*id);
        }
        if self.now.len() >= ENTITIES_PER_HOST_MAX {
            self.refused += 1;
            return None;
        }
        // Ids are not used twice: whoever has used them all gets no more.
        let Some(next) = self.last.checked_add(1) else {
            self.refused += 1;
            return None;
        };
        self.last = next;
        self.now.insert(theirs, self.last);
        // It is something else from now on.
        self.gone.remove(&theirs);
        Some(self.last)
    }

    /// What their ids were called here, of those that were known: they leave room for others. The same comes again when it is asked for again.
    fn forget(&mut self, theirs: &[u32]) -> Vec<EntityId> {
        let mut ours = Vec::new();
        for theirs in theirs {
            self.texts_bytes -= self.texts.remove(theirs).unwrap_or(0);
            if let Some(id) = self.now.remove(theirs) {
                if self.gone.len() >= ENTITIES_PER_HOST_MAX {
                    self.gone.clear();
                }
                self.gone.insert(*theirs, id);
            }
            ours.extend(self.gone.get(theirs));
        }
        ours
    }

    /// Takes a name of so many bytes into account; says whether there is room for it.
    fn name(&mut self, theirs: u32, bytes: usize) -> bool {
        let before = self.texts.get(&theirs).copied().unwrap_or(0);
        let all = self.texts_bytes - before + bytes;
        if all > NAMES_BYTES_MAX {
            self.refused += 1;
            return false;
        }
        self.texts.insert(theirs, bytes);
        self.texts_bytes = all;
        true
    }

    /// Another run of the agent counts anew. What is gone with the one before.
    fn begin_anew(&mut self) -> Vec<EntityId> {
        self.gone.clear();
        self.texts.clear();
        self.texts_bytes = 0;
        let mut gone: Vec<EntityId> = self.now.drain().map(|(_, ours)| ours).collect();
        gone.sort_unstable();
        gone
    }
}

/// As the model and the interfaces call a signal of the wire: `run_queue`.
#[must_use]
pub fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(
        |_| format!("signal_{number}"),
        |s| s.as_str_name().trim_start_matches("SIGNAL_").to_ascii_lowercase(),
    )
}

/// Converts the messages of one host, in their order.
#[derive(Debug, Default)]
pub struct Converter {
    info: HostInfo,
    covered: BTreeSet<i32>,
    uncovered: BTreeSet<i32>,
    sampled: SignalSet,
    /// When an answer is late and very late for this agent, ms; 0: not told.
    late_ms: [u32; 2],
    /// Its response times have all the buckets that there are here, and not those of before.
    all_buckets: bool,
    workloads: Ids,
    listeners: Ids,
    edges: Ids,
    devices: Ids,
    packets: DropPackets,
    /// What that was before the batch of this sequence: one that found no room is sent again, and must be counted as it was before.
    packets_before: Option<(u64, DropPackets)>,
    /// Windows to add to the agent's index to get the collector's.
    shift: i64,
}

/// Puts each into a list of its window in the batch.
fn put<T>(windows: &mut [HostWindow], told: Vec<(u32, T)>, list: impl Fn(&mut HostWindow) -> &mut Vec<T>) {
    for (offset, one) in told {
        if let Some(window) = windows.get_mut(offset as usize) {
            list(window).push(one);
        }
    }
}

impl Converter {
    /// For a host of this name.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self { info: HostInfo { host: host.to_owned(), ..HostInfo::default() }, ..Self::default() }
    }

    /// The same, whose ids begin above one that was used for a host of this name before.
    #[must_use]
    pub fn with_ids_above(mut self, used: EntityId) -> Self {
        for ids in [&mut self.workloads, &mut self.listeners, &mut self.edges, &mut self.devices] {
            ids.last = used;
        }
        self
    }

    /// The highest id that was given out, of all kinds.
    #[must_use]
    pub fn highest_id(&self) -> EntityId {
        [&self.workloads, &self.listeners, &self.edges, &self.devices]
            .map(|ids| ids.last)
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    /// Rows left out because the host has too many entities.
    #[must_use]
    pub fn rows_refused(&self) -> u64 {
        self.workloads.refused + self.listeners.refused + self.edges.refused + self.devices.refused
    }

    /// Windows that are added to the agent's index now.
    #[must_use]
    pub fn window_shift(&self) -> i64 {
        self.shift
    }

    /// Takes the shift that a recording says was in use.
    pub fn adopt_window_shift(&mut self, shift: i64) {
        self.shift = shift;
    }

    /// Converts one message. `offset_ns` is collector minus agent; `error_ns` bounds how wrong it is.
    pub fn message(
        &mut self,
        body: &Body,
        offset_ns: i64,
        error_ns: u64,
    ) -> Result<Vec<Input>, ConvertError> {
        match body {
            Body::Hello(hello) => self.hello(hello),
            Body::Entities(entities) => self.entities(entities),
            Body::Batch(batch) => self.batch(batch, offset_ns, error_ns),
            Body::Drop(drop) => Ok(self.drop_event(drop, offset_ns).into_iter().collect()),
            Body::ClockProbe(_) | Body::Status(_) => Ok(Vec::new()),
        }
    }

    fn hello(&mut self, hello: &v1::Hello) -> Result<Vec<Input>, ConvertError> {
        limits::hello(hello)?;
        let addresses = addresses(hello)?;
        let mut inputs = Vec::new();
        if self.info.agent_instance != hello.agent_instance {
            // The next run names anew what there is still, and has other ids for it.
            let gone = Gone {
                workloads: self.workloads.begin_anew(),
                listeners: self.listeners.begin_anew(),
                edges: self.edges.begin_anew(),
                devices: self.devices.begin_anew(),
            };
            if gone != Gone::default() {
                inputs.push(Input::Gone { host: self.info.host.clone(), gone });
            }
            self.packets = DropPackets::default();
            self.packets_before = None;
        }
        self.covered = hello.coverage.iter().filter(|c| c.covered).map(|c| c.signal).collect();
        self.uncovered.clear();
        let sampled = hello.coverage.iter().filter(|c| c.covered && c.sampled);
        let names: Vec<String> = sampled.map(|c| signal_name(c.signal)).collect();
        self.sampled = SignalSet::of(names.iter().map(String::as_str));
        self.all_buckets = hello.response_buckets as usize >= BUCKETS;
        // Agents of before count answers that began later: that is no exact share of answers that took longer.
        self.late_ms =
            if self.all_buckets { [hello.late_ns, hello.very_late_ns].map(whole_ms) } else { [0; 2] };
        self.info = HostInfo {
            host: std::mem::take(&mut self.info.host),
            machine: hello.boot_id.clone(),
            agent_instance: hello.agent_instance.clone(),
            cpus: hello.cpus,
            addresses,
            coverage: self.coverage(),
        };
        inputs.push(Input::Host(self.info.clone()));
        Ok(inputs)
    }

    fn coverage(&self) -> Coverage {
        let has = |signal: Signal| {
            self.covered.contains(&(signal as i32)) && !self.uncovered.contains(&(signal as i32))
        };
        Coverage {
            cpu: has(Signal::Cpu),
            run_queue: has(Signal::RunQueue),
            block_io: has(Signal::BlockIo),
            memory: has(Signal::Memory),
            accept_queue: has(Signal::AcceptQueue),
            requests: has(Signal::Requests),
            calls: has(Signal::Calls),
            retransmits: has(Signal::Retransmits),
            throttling: has(Signal::Throttling),
            sampled: self.sampled,
        }
    }

    fn entities(&mut self, entities: &v1::Entities) -> Result<Vec<Input>, ConvertError> {
        limits::entities(entities)?;
        let mut workloads = Vec::new();
        for w in &entities.workloads {
            let Some(id) = self.workloads.get(w.id) else { continue };
            if !self.workloads.name(w.id, w.cgroup.len() + w.name.len() + w.comm.len()) {
                continue;
            }
            workloads.push(WorkloadInfo {
                id,
                cgroup: w.cgroup.clone(),
                name: w.name.clone(),
                comm: w.comm.clone(),
                cpu_quota_ns: w.cpu_quota_ns,
                shares: self.workloads.get(w.shares).unwrap_or(0),
            });
        }
        let mut listeners = Vec::new();
        for l in &entities.listeners {
            let (Some(id), Some(workload)) = (self.listeners.get(l.id), self.workloads.get(l.workload))
            else {
                continue;
            };
            let set_by = l.pool.as_ref().map_or(0, |pool| pool.set_by.len().min(SET_BY_MAX));
            if !self.listeners.name(l.id, l.path.len().min(PATH_MAX) + l.comm.len() + set_by) {
                continue;
            }
            listeners.push(ListenerInfo {
                id,
                workload,
                address: address("Listener.address", &l.address)?,
                port: port("Listener.port", l.port)?,
                path: path(&l.path),
                comm: l.comm.clone(),
                pool: l.pool.as_ref().filter(|pool| pool.size > 0).map(|pool| PoolSize {
                    size: pool.size,
                    set_by: pool.set_by.chars().take(SET_BY_MAX).collect(),
                    open_files: pool.open_files,
                    memory_limit_bytes: pool.memory_limit_bytes,
                    memory_used_bytes: pool.memory_used_bytes,
                    processes: pool.processes.filter(|n| *n > 0),
                    held_by_connection: pool.held_by_connection,
                }),
                started_with: l.started_with,
                pid: l.pid,
            });
        }
        let mut edges = Vec::new();
        for e in &entities.edges {
            let (Some(id), Some(workload)) = (self.edges.get(e.id), self.workloads.get(e.workload)) else {
                continue;
            };
            edges.push(EdgeInfo {
                id,
                workload,
                remote_address: address("Edge.remote_address", &e.remote_address)?,
                remote_port: port("Edge.remote_port", e.remote_port)?,
                path: path(&e.path),
            });
        }
        let mut devices = Vec::new();
        for d in &entities.devices {
            let Some(id) = self.devices.get(d.id) else { continue };
            devices.push(DeviceInfo { id, name: d.name.clone() });
        }
        let host = self.info.host.clone();
        let gone = Gone {
            workloads: self.workloads.forget(&entities.gone_workloads),
            listeners: self.listeners.forget(&entities.gone_listeners),
            edges: self.edges.forget(&entities.gone_edges),
            devices: self.devices.forget(&entities.gone_devices),
        };
        let mut inputs = vec![Input::Entities { host: host.clone(), workloads, listeners, edges, devices }];
        // It may come twice. Whoever reads it takes out what is there still, or keeps the first of two moments: the analysis (`frame::history`),
        // sizing (`names`) and the windows in memory (`live::series`). A recording keeps messages, not this.
        if gone != Gone::default() {
            inputs.push(Input::Gone { host, gone });
        }
        Ok(inputs)
    }

    fn batch(
        &mut self,
        batch: &WindowBatch,
        offset_ns: i64,
        error_ns: u64,
    ) -> Result<Vec<Input>, ConvertError> {
        let count = batch.window_count;
        if count == 0 || count > WINDOWS_MAX {
            return Err(ConvertError::WindowCount { count });
        }
        limits::batch(batch)?;
        let mut tables: BTreeMap<i32, TableValues> = BTreeMap::new();
        for table in &batch.tables {
            let kind = table.kind;
            // A later version's: of no use here, and each would take memory of its own.
            if EntityKind::try_from(kind).is_err() {
                continue;
            }
            let values =
                TableValues::decode(table, count).map_err(|source| ConvertError::Table { kind, source })?;
            sanity::check_values(&values)?;
            if tables.insert(kind, values).is_some() {
                return Err(ConvertError::RepeatedTable { kind });
            }
        }
        for culprit in &batch.culprits {
            place::in_batch("a culprit", culprit.window_offset, count)?;
        }
        let mut told = Vec::new();
        for states in &batch.in_flight_states {
            let listeners = states::listeners(states, count, |id| self.listeners.get(id))?;
            told.push((u64::from(states.window_offset), states.windows, listeners));
        }
        let blocked = loops::blocked(&batch.blocked_loops, count, |id| self.listeners.get(id))?;
        let (listeners, edges) = (&mut self.listeners, &mut self.edges);
        let met = meetings::met(&batch.meetings, count, |id| listeners.get(id), |id| edges.get(id))?;
        let blockings = blockings::told(&batch.blockings, count, |id| listeners.get(id))?;
        let locked = locked::told(&batch.locked_threads, count, |id| listeners.get(id))?;
        let lookups = lookups::told(&batch.waiting_lookups, count, |id| self.workloads.get(id))?;
        let paths = code::told(&batch.code_paths, count, |id| self.workloads.get(id))?;
        let (listeners, edges) = (&mut self.listeners, &mut self.edges);
        let slow = slow::told(&batch.slow_requests, count, |id| listeners.get(id), |id| edges.get(id))?;
        let counted = counts::told(&batch.kernel_counts, count)?;
        let shares = shares::of_cgroups(&batch.cpu_shares, count, |id| self.workloads.get(id))?;
        let mut inputs = Vec::new();
        // Coverage that changes from batch to batch is told to the pipeline as what it is: another coverage of the host.
        let signals = batch.uncovered.iter().copied().filter(|signal| Signal::try_from(*signal).is_ok());
        let uncovered: BTreeSet<i32> = signals.collect();
        if uncovered != self.uncovered {
            self.uncovered = uncovered;
            self.info.coverage = self.coverage();
            inputs.push(Input::Host(self.info.clone()));
        }
        let unmeasured = SignalSet::uncovered(self.info.coverage);
        let phase_ns = self.settle_shift(offset_ns);
        let mut windows: Vec<HostWindow> = (0..u64::from(count))
            .zip(batch.flags.iter().copied().chain(std::iter::repeat(0)))
            .map(|(n, flags)| HostWindow {
                host: self.info.host.clone(),
                index: WindowIndex(batch.first_window.saturating_add(n).saturating_add_signed(self.shift)),
                phase_ns,
                clock_error_ns: error_ns,
                clock_corrected: flags & WindowFlag::ClockCorrected as u32 != 0,
                lost_before: if n == 0 { batch.windows_lost } else { 0 },
                uncovered: unmeasured,
                sampled: self.info.coverage.sampled,
                late_ms: self.late_ms,
                ..HostWindow::default()
            })
            .collect();
        self.fill(&mut windows, &tables);
        match &self.packets_before {
            Some((sequence, before)) if *sequence == batch.sequence => self.packets = before.clone(),
            _ => self.packets_before = Some((batch.sequence, self.packets.clone())),
        }
        windows.iter_mut().for_each(|window| self.packets.count(window));
        put(&mut windows, blocked, |window| &mut window.blocked_loops);
        put(&mut windows, met, |window| &mut window.meetings);
        put(&mut windows, blockings, |window| &mut window.blockings);
        put(&mut windows, locked, |window| &mut window.locked_threads);
        put(&mut windows, lookups, |window| &mut window.waiting_lookups);
        put(&mut windows, slow, |window| &mut window.slow_requests);
        put(&mut windows, paths, |window| &mut window.code_paths);
        put(&mut windows, counted, |window| &mut window.kernel_counts);
        for c in &batch.culprits {
            let resource = match (c.resource(), c.unit()) {
                (culprit::Resource::Cpu, _) => CulpritResource::Cpu,
                (culprit::Resource::Io, Unit::Ns) => CulpritResource::IoBlocked,
                (culprit::Resource::Io, Unit::Bytes) => CulpritResource::IoBytes,
                (culprit::Resource::Unspecified, _) => continue,
            };
            let workload = self.workloads.get(c.workload).unwrap_or(0);
            if let Some(window) = windows.get_mut(c.window_offset as usize) {
                let (pid, comm, amount) = (c.pid, c.comm.clone(), c.amount);
                window.culprits.push(CulpritSample { resource, pid, comm, workload, amount });
            }
        }
        let first = WindowIndex(batch.first_window.saturating_add_signed(self.shift));
        inputs.extend(windows.into_iter().map(|w| Input::Window(Arc::new(w))));
        inputs.extend(told.into_iter().map(|(offset, windows, listeners)| {
            let (host, last) = (self.info.host.clone(), WindowIndex(first.0.saturating_add(offset)));
            Input::States(Box::new(HostStates { host, last, windows, listeners }))
        }));
        inputs.extend(shares.into_iter().map(|(offset, ago, shares)| {
            let told = first.0.saturating_add(u64::from(offset));
            let (host, last) = (self.info.host.clone(), WindowIndex(told.saturating_sub(u64::from(ago))));
            Input::Shares(Box::new(HostShares { host, last, ..shares }))
        }));
        Ok(inputs)
    }

    fn fill(&mut self, windows: &mut [HostWindow], tables: &BTreeMap<i32, TableValues>) {
        let table = |kind: EntityKind| tables.get(&(kind as i32));
        if let Some(table) = table(EntityKind::Host)
            && table.covers(v1::Metric::CpuBusyNs)
        {
            for (_, row) in table.rows().take(1) {
                for (n, window) in windows.iter_mut().enumerate() {
                    let mut cpu = tailwater_model::window::HostCpu::default();
                    for (metric, _, values) in table.columns() {
                        fields::host(&mut cpu, metric, value(values, row, table.windows(), n));
                    }
                    window.cpu = Some(cpu);
                }
            }
        }
        if let Some(table) = table(EntityKind::Workload) {
            each(table, &mut self.workloads, windows, |window| &mut window.workloads, fields::workload);
        }
        if let Some(table) = table(EntityKind::Listener) {
            let known =
                each(table, &mut self.listeners, windows, |window| &mut window.listeners, fields::listener);
            responses(table, &known, windows, self.all_buckets);
        }
        if let Some(table) = table(EntityKind::Edge) {
            each(table, &mut self.edges, windows, |window| &mut window.edges, fields::edge);
        }
        if let Some(table) = table(EntityKind::Device) {
            each(table, &mut self.devices, windows, |window| &mut window.devices, fields::device);
        }
    }

    fn drop_event(&mut self, drop: &v1::DropEvent, offset_ns: i64) -> Option<Input> {
        let phase_ns = self.settle_shift(offset_ns);
        let listener = self.listeners.get(drop.listener)?;
        if drop.packets == Some(0) {
            return None; // the socket's second count of packets that were told
        }
        Some(Input::Drop(DropNotice {
            host: self.info.host.clone(),
            listener,
            unix_ns: drop.unix_ns.saturating_add_signed(self.shift.saturating_mul(WINDOW_NS as i64)),
            phase_ns,
            count: drop.packets.unwrap_or(drop.count),
            sk_drops: drop.count,
            depth: drop.depth,
            limit: drop.limit,
        }))
    }

    /// Moves the shift to the nearest whole window once the offset is clearly nearer to it: an estimate that wanders around
    /// half a window must not duplicate or skip windows. Returns what of the offset the shift leaves: the windows' phase.
    fn settle_shift(&mut self, offset_ns: i64) -> i64 {
        let window = WINDOW_NS as i64;
        let residual = offset_ns.saturating_sub(self.shift.saturating_mul(window));
        let within = if self.shift == 0 { window / 2 } else { window * 3 / 4 };
        if residual.abs() > within {
            self.shift = (offset_ns as f64 / window as f64).round() as i64;
        }
        offset_ns.saturating_sub(self.shift.saturating_mul(window))
    }
}

/// A time in ms; 0 where it has a part of one, or is none that an agent would be set to.
fn whole_ms(ns: u64) -> u32 {
    if ns.is_multiple_of(1_000_000) { u32::try_from(ns / 1_000_000).unwrap_or(0) } else { 0 }
}

fn value(values: &[u64], row: usize, windows: usize, n: usize) -> u64 {
    values.get(row * windows + n).copied().unwrap_or(0)
}

/// Fills the rows of one kind, an entity after the other: each is looked up once, however many values it has. Returns those that were filled,
/// by our ids, with their rows in the table.
fn each<T: Default>(
    table: &TableValues,
    ids: &mut Ids,
    windows: &mut [HostWindow],
    rows_of: impl Fn(&mut HostWindow) -> &mut Rows<T>,
    set: impl Fn(&mut T, i32, u64),
) -> Vec<(EntityId, usize)> {
    // Of histograms, only the listeners' response times are part of the model: see `responses`.
    let columns: Vec<(i32, &[u64])> = table
        .columns()
        .filter(|(_, bucket, _)| *bucket == 0)
        .map(|(metric, _, values)| (metric, values))
        .collect();
    if columns.is_empty() {
        return Vec::new();
    }
    let known: Vec<(EntityId, usize)> =
        table.rows().filter_map(|(theirs, row)| Some((ids.get(theirs)?, row))).collect();
    for (n, window) in windows.iter_mut().enumerate() {
        let rows = rows_of(window);
        *rows = Rows::with_capacity(known.len());
        for (id, row) in &known {
            let one = rows.entry(*id).or_default();
            for (metric, values) in &columns {
                set(one, *metric, value(values, *row, table.windows(), n));
            }
        }
    }
    known
}

/// How many answers each of these listeners gave at which response time. A bucket that this version does not have lies beyond its last one, which
/// is open; so however many a message tells, no listener has more than there are, and all take at most half as much again as its values did.
fn responses(
    table: &TableValues,
    known: &[(EntityId, usize)],
    windows: &mut [HostWindow],
    all_buckets: bool,
) {
    let add = if all_buckets { Counts::add } else { Counts::add_coarse };
    let columns: Vec<(usize, &[u64])> = table
        .columns()
        .filter(|(metric, _, _)| *metric == v1::Metric::ResponseTimeHist as i32)
        .map(|(_, bucket, values)| (usize::try_from(bucket).unwrap_or(usize::MAX), values))
        .collect();
    if columns.is_empty() {
        return;
    }
    // What comes in order is appended.
    let mut in_order = known.to_vec();
    in_order.sort_unstable();
    for (id, row) in in_order {
        for (bucket, values) in &columns {
            for (n, window) in windows.iter_mut().enumerate() {
                add(&mut window.responses, id, *bucket, value(values, row, table.windows(), n));
            }
        }
    }
    windows.iter_mut().for_each(|window| window.responses.shrink_to_fit());
}

/// Where a host says that it is.
pub fn addresses(hello: &v1::Hello) -> Result<Vec<IpAddr>, ConvertError> {
    let told = hello.addresses.iter().take(limits::ADDRESSES_MAX);
    told.map(|told| address("Hello.addresses", told)).collect()
}

fn address(what: &'static str, bytes: &[u8]) -> Result<IpAddr, ConvertError> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ok(Ipv4Addr::from(v4).into());
    }
    match <[u8; 16]>::try_from(bytes) {
        Ok(v6) => Ok(IpAddr::from(Ipv6Addr::from(v6)).to_canonical()),
        Err(_) => Err(ConvertError::Address { what, bytes: bytes.len() }),
    }
}

/// What a Unix socket is bound to, as far as it is text.
fn path(told: &str) -> Option<String> {
    (!told.is_empty()).then(|| told.chars().filter(|c| !c.is_control()).take(PATH_MAX).collect())
}

fn port(what: &'static str, port: u32) -> Result<u16, ConvertError> {
    u16::try_from(port).map_err(|_| ConvertError::Port { what, port })
}

#[cfg(test)]
mod tests;
