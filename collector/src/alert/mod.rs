//! Alerts: which versions of an incident are told to whom, in what form, and how they get there. The pipeline's thread hands a version
//! to one worker per hook and goes on; each worker decides, sends, and keeps what its receiver has yet to take, also over a restart.
//! Owns the wiring; a receiver that hangs delays nobody else.

pub mod api;
pub mod config;
pub mod group;
pub mod latency;
pub mod message;
pub mod outbox;
pub mod queue;
pub mod receiver;
pub mod rules;
pub mod silence;
pub mod silences;
pub mod stats;
pub mod worker;

use crate::clock::Clock;
use crate::moments::Moments;
use crate::verdict::Verdict;
use outbox::{Outbox, Restored, State as Fate};
use receiver::Receiver;
use silences::Silences;
use stats::Stats;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tailwater_model::Incident;
use tailwater_model::incident::Severity;
use tokio::sync::mpsc;
use worker::{Event, Input, Parts, Worker};

/// Versions between the pipeline and one worker.
const INBOX_MAX: usize = 1024;
/// Incidents remembered for what was told of them last.
const TOLD_MAX: usize = 4096;
/// Versions that change nothing but numbers go to the workers this far apart, for reminders.
const NUMBERS_EVERY_NS: u64 = 5_000_000_000;

/// Why alerting cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    /// A hook.
    #[error("hook \"{name}\": {source}")]
    Hook {
        /// Which.
        name: String,
        /// Why.
        source: crate::send::http::HookError,
    },
    /// A silence; checked with the configuration.
    #[error("[[silence]] {0}: {1}")]
    Silence(&'static str, String),
    /// The outbox's thread.
    #[error("outbox: {0}")]
    Outbox(#[from] std::io::Error),
}

/// How an incident goes on that a run of the collector before this one told.
#[derive(Debug)]
struct Before {
    /// The newest version that the outbox has.
    newest: u64,
    /// Added to the versions of this run; `None` until the first comes.
    added: Option<u64>,
}

/// The pipeline's side of alerting.
#[derive(Debug)]
pub struct Alerts {
    told: BTreeMap<String, (Verdict, u64)>,
    /// Incidents of before, as many as the outbox had at the start.
    before: BTreeMap<String, Before>,
    workers: Vec<mpsc::Sender<Input>>,
    least: Severity,
    stats: Arc<Stats>,
}

/// What others may ask of alerting.
#[derive(Debug, Clone, Default)]
pub struct Handle {
    outbox: Option<Outbox>,
    workers: Vec<(Arc<str>, mpsc::WeakSender<Input>)>,
    /// `None`: a recording is shown, and nobody is told of it.
    silences: Option<Arc<Silences>>,
}

/// Starts one worker for each hook, which tells what `silences` let through, with what `data`/outbox.db remembers. The task ends when [`Alerts`] is dropped and what could be
/// sent at once is sent; the rest is in the outbox. `open_before`: incidents that were open when the collector died.
pub fn start(
    hooks: &[config::Hook],
    silences: &Arc<Silences>,
    bounds: config::Outbox,
    data: &Path,
    open_before: &[Arc<Incident>],
    stats: &Arc<Stats>,
    clock: Clock,
) -> Result<(Alerts, Handle, tokio::task::JoinHandle<()>), AlertError> {
    let least = hooks.iter().map(|hook| hook.min_severity).min().unwrap_or(Severity::Critical);
    let mut alerts = Alerts { least, ..Alerts::nobody(stats) };
    if hooks.is_empty() {
        let handle = Handle { silences: Some(Arc::clone(silences)), ..Handle::default() };
        return Ok((alerts, handle, tokio::spawn(async {})));
    }
    let mut named = Vec::new();
    for (hook, name) in hooks.iter().zip(config::names(hooks)) {
        let receiver =
            Receiver::new(hook).map_err(|source| AlertError::Hook { name: name.clone(), source })?;
        named.push((Arc::<str>::from(name), hook, receiver));
    }
    let outbox::Opened { outbox, restored, heard, newest, mut late, thread: _ } =
        Outbox::open(data, bounds, Arc::clone(stats), open_before)?;
    alerts.before = before(newest);
    let life = message::life();
    let mut handle =
        Handle { outbox: Some(outbox.clone()), workers: Vec::new(), silences: Some(Arc::clone(silences)) };
    let mut by_hook = by_hook(restored);
    let mut tasks = tokio::task::JoinSet::new();
    for (name, hook, receiver) in named {
        let (inbox, inputs) = mpsc::channel(INBOX_MAX);
        handle.workers.push((Arc::clone(&name), inbox.downgrade()));
        alerts.workers.push(inbox);
        let parts = Parts {
            stats: stats.hook(&name),
            hook: hook.clone(),
            manners: receiver.manners(),
            silences: Arc::clone(silences),
            outbox: outbox.clone(),
            clock,
            life: Arc::clone(&life),
            name: Arc::clone(&name),
            all: Arc::clone(stats),
        };
        let unheard = unheard(&name, heard.as_ref(), open_before);
        let worker = Worker::new(parts, by_hook.remove(name.as_ref()).unwrap_or_default(), &unheard);
        tasks.spawn(worker.run(receiver, inputs));
    }
    by_hook.into_iter().for_each(|(hook, rows)| give_up(&outbox, hook, rows));
    let workers = handle.workers.clone();
    let task = tokio::spawn(async move {
        loop {
            tokio::select! {
                rows = async { late.as_mut()?.await.ok() }, if late.is_some() => {
                    late = None;
                    hand_out(rows.unwrap_or_default(), &workers, &outbox).await;
                }
                ended = tasks.join_next() => if ended.is_none() { break },
            }
        }
        outbox.flush().await;
    });
    Ok((alerts, handle, task))
}

/// Of the incidents that were open when the collector died, those that the outbox has nothing of for this hook. None if nobody could ask it.
fn unheard(
    hook: &str,
    heard: Option<&BTreeSet<(String, String)>>,
    open_before: &[Arc<Incident>],
) -> Vec<Arc<Incident>> {
    let Some(heard) = heard else { return Vec::new() };
    open_before.iter().filter(|i| !heard.contains(&(hook.to_owned(), i.id.clone()))).cloned().collect()
}

/// What the outbox knows of versions, as the pipeline's side needs it.
fn before(newest: BTreeMap<String, u64>) -> BTreeMap<String, Before> {
    newest.into_iter().map(|(id, newest)| (id, Before { newest, added: None })).collect()
}

fn by_hook(rows: Vec<Restored>) -> BTreeMap<String, Vec<Restored>> {
    let mut by_hook: BTreeMap<String, Vec<Restored>> = BTreeMap::new();
    for one in rows {
        by_hook.entry(one.hook.clone()).or_default().push(one);
    }
    by_hook
}

/// What waits for a hook that is gone.
fn give_up(outbox: &Outbox, hook: String, rows: Vec<Restored>) {
    let name = Arc::<str>::from(hook);
    for row in rows.into_iter().filter(|row| row.waiting) {
        let why = "no hook of this name is configured any more";
        outbox.mark(&name, &Arc::new(row.message), Fate::Dead, row.tries, why);
    }
}

/// What the outbox could not say at the start.
async fn hand_out(rows: Vec<Restored>, workers: &[(Arc<str>, mpsc::WeakSender<Input>)], outbox: &Outbox) {
    for (hook, rows) in by_hook(rows) {
        let Some((_, worker)) = workers.iter().find(|(name, _)| **name == *hook) else {
            give_up(outbox, hook, rows);
            continue;
        };
        // A worker that ended leaves them for the next start.
        if let Some(worker) = worker.upgrade() {
            let _ = worker.send(Input::Restored(rows)).await;
        }
    }
}

impl Alerts {
    /// Tells nobody.
    #[must_use]
    pub fn nobody(stats: &Arc<Stats>) -> Self {
        Self {
            told: BTreeMap::new(),
            before: BTreeMap::new(),
            workers: Vec::new(),
            least: Severity::Critical,
            stats: Arc::clone(stats),
        }
    }

    /// A new version of an incident, which replaces these early alerts. Told where its meaning changed; never waits. `early`: it is an
    /// early alert, which came this way.
    pub fn incident(&mut self, incident: &Arc<Incident>, replaces: &[String], early: Option<Moments>) {
        if self.workers.is_empty() {
            return;
        }
        let verdict = Verdict::of(incident);
        let before = self.told.get(&incident.id);
        // With the same meaning only the numbers are new.
        let same = before.is_some_and(|(told, at_unix_ns)| {
            *told == verdict && incident.end_unix_ns.saturating_sub(*at_unix_ns) < NUMBERS_EVERY_NS
        });
        if replaces.is_empty() && (same || (before.is_none() && incident.severity < self.least)) {
            return;
        }
        self.told.insert(incident.id.clone(), (verdict, incident.end_unix_ns));
        while self.told.len() > TOLD_MAX {
            self.told.pop_first(); // ids sort by time
        }
        let incident = self.behind_before(incident);
        let event = Arc::new(Event { incident, replaces: replaces.to_vec(), early });
        for worker in &self.workers {
            if worker.try_send(Input::Event(Arc::clone(&event))).is_err() {
                self.stats.events_dropped.inc();
            }
        }
    }

    /// What receivers hear of an incident goes on behind what a run before this one told them last, and behind an end that a worker may give
    /// it after the start: the store counts it from the start again where it was killed before it wrote what was told.
    fn behind_before(&mut self, incident: &Arc<Incident>) -> Arc<Incident> {
        let Some(before) = self.before.get_mut(&incident.id) else { return Arc::clone(incident) };
        let least = before.newest.saturating_add(2);
        let added = *before.added.get_or_insert(least.saturating_sub(incident.version));
        if added == 0 {
            return Arc::clone(incident);
        }
        let mut behind = incident.as_ref().clone();
        behind.version = behind.version.saturating_add(added);
        Arc::new(behind)
    }
}

impl Handle {
    /// The newest messages, newest first; only dead letters if `dead`.
    pub async fn list(&self, dead: bool) -> Result<Vec<outbox::Listed>, String> {
        match &self.outbox {
            Some(outbox) => outbox.list(dead).await,
            None => Ok(Vec::new()),
        }
    }

    /// Sends dead letters again: all, or those whose id begins with `id`. Returns how many.
    pub async fn resend(&self, id: Option<String>) -> Result<usize, String> {
        let Some(outbox) = &self.outbox else { return Ok(0) };
        let mut sent = 0;
        for (hook, letters) in by_hook(outbox.dead(id).await?) {
            let worker = self.workers.iter().find(|(name, _)| **name == *hook).and_then(|(_, w)| w.upgrade());
            let Some(worker) = worker else { continue };
            let n = letters.len();
            if worker.try_send(Input::Resend(letters)).is_err() {
                return Err(format!("hook \"{hook}\" is behind; try again later"));
            }
            sent += n;
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
pub(crate) mod tests;
