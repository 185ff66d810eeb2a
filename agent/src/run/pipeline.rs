//! From a drained window to the outbox: narrows it to the scope, names what it holds, and gathers windows into batches. Owns when
//! a batch is complete and when the Hello changes; knows no kernel map and no network.

use crate::clock::monotonic_ns;
use crate::config::Late;
use crate::name::scope::{self, Scope};
use crate::name::workload::Entities;
use crate::sample::counters::Counters;
use crate::sample::futexes::Futexes;
use crate::sample::locks::Locks;
use crate::sample::polled::Watched;
use crate::sample::sampler::{Handle, Sink};
use crate::sample::shares::Shares;
use crate::sample::stacks::Outside;
use crate::sample::throttle::Quotas;
use crate::stream::encode::{self, Encoder, HostView, sections};
use crate::stream::outbox::Outbox;
use crate::window::{ListenDrop, RESPONSE_BUCKETS, WINDOW_NS, Window};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tailwater_proto::v1;

/// What may be changed or asked while the pipeline runs on the sampler's thread.
#[derive(Debug, Default)]
pub struct Shared {
    /// Windows per batch; the collector may change it.
    pub windows_per_batch: AtomicU32,
    /// A process whose network namespace is the host's or the scope's.
    pub netns_process: AtomicU32,
    /// Times that something found no id, because there were as many of its kind as the wire has.
    pub unnamed: AtomicU64,
}

/// Who the agent is, apart from coverage and addresses, which change.
#[derive(Debug, Clone)]
pub struct Identity {
    /// All constant fields filled in.
    pub hello: v1::Hello,
}

impl Identity {
    /// Reads what the kernel says of itself and gives this start of the agent a random name.
    pub fn read(host: &str, scope: Option<&str>, cpus: u32, late: Late) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Self {
            hello: v1::Hello {
                host: host.to_owned(),
                boot_id: read("/proc/sys/kernel/random/boot_id"),
                agent_instance: read("/proc/sys/kernel/random/uuid"),
                agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                kernel_release: read("/proc/sys/kernel/osrelease"),
                cpus,
                scope_cgroup: scope.unwrap_or_default().to_owned(),
                window_ns: WINDOW_NS,
                late_ns: u64::from(late.late_ms) * 1_000_000,
                very_late_ns: u64::from(late.very_late_ms) * 1_000_000,
                started_monotonic_ns: monotonic_ns(),
                response_buckets: RESPONSE_BUCKETS as u32,
                ..v1::Hello::default()
            },
        }
    }
}

/// What of the machine is observed, and how it is called.
#[derive(Debug)]
pub struct View {
    /// Names and ids.
    pub entities: Entities,
    scope: Option<Scope>,
    quotas: Quotas,
    watched: Watched,
    shares: Shares,
    counters: Counters,
    locks: Locks,
    futexes: Futexes,
    outside: Option<Outside>,
}

impl View {
    /// `quotas` is where the throttling signal takes its cgroups from, `watched` where those do that are polled.
    pub fn new(entities: Entities, scope: Option<Scope>, quotas: Quotas, watched: Watched) -> Self {
        let root = Path::new("/");
        let (shares, counters) = (Shares::new(root), Counters::new(root));
        let (locks, futexes) = (Locks::default(), Futexes::new(None));
        let outside = None;
        let mut view = Self { entities, scope, quotas, watched, shares, counters, locks, futexes, outside };
        view.look_around();
        view
    }

    /// With databases that are asked for their locks, and servers whose threads are looked at.
    #[must_use]
    pub fn with_locks(self, locks: Locks, futexes: Futexes) -> Self {
        Self { locks, futexes, ..self }
    }

    /// With somebody, if anybody, who is to be told which cgroups are outside of the scope.
    #[must_use]
    pub fn telling(self, outside: Option<Outside>) -> Self {
        let mut view = Self { outside, ..self };
        view.look_around();
        view
    }

    fn look_around(&mut self) {
        if let Some(scope) = &mut self.scope {
            scope.refresh(&self.entities);
        }
        let scope = self.scope.as_ref().map(Scope::path);
        self.quotas.publish(&self.entities, scope);
        self.watched.publish(&self.entities, scope);
        if let Some(outside) = &self.outside {
            outside.publish(&self.entities, scope);
        }
    }

    /// Path of the scope, if there is one.
    pub fn scope_path(&self) -> Option<&str> {
        self.scope.as_ref().map(Scope::path)
    }

    /// A process in the network namespace of the host or scope.
    pub fn netns_process(&self) -> u32 {
        scope::process_to_ask(self.scope.as_ref(), &self.entities)
    }

    /// Narrows a window to the scope. Returns whether the cgroup tree or the quotas were read again before it.
    pub fn narrow(&mut self, window: &mut Window) -> bool {
        self.entities.meet(window);
        if self.watched.outdated() {
            self.entities.walk_next();
        }
        let refreshed = self.entities.refresh(window.index.0, self.scope.as_ref().map(Scope::path));
        if refreshed {
            self.look_around();
        }
        self.shares.step(window, &self.entities);
        if let Some(scope) = &mut self.scope {
            scope.narrow(window, &mut self.entities);
        }
        self.counters.step(window, || scope::process_to_ask(self.scope.as_ref(), &self.entities));
        self.locks.step(window);
        self.futexes.step(window);
        refreshed
    }

    /// The drop as a message, if its listener is in the scope.
    pub fn drop_event(&mut self, drop: &ListenDrop) -> Option<v1::DropEvent> {
        let mut drop = *drop;
        let entities = &mut self.entities;
        let ours =
            self.scope.as_mut().is_none_or(|scope| scope.narrow_listener(&mut drop.listener, entities));
        ours.then(|| encode::drop_event(&drop, entities))
    }
}

/// The sampler's sink when a collector is served.
#[derive(Debug)]
pub struct Pipeline {
    identity: Identity,
    view: View,
    encoder: Encoder,
    handle: Handle,
    outbox: Arc<Outbox>,
    shared: Arc<Shared>,
    pending: Vec<Window>,
    lost: u64,
}

impl Pipeline {
    /// Tells the outbox at once who this is.
    pub fn new(
        identity: Identity,
        view: View,
        handle: Handle,
        outbox: Arc<Outbox>,
        shared: Arc<Shared>,
    ) -> Self {
        let pipeline = Self {
            identity,
            view,
            encoder: Encoder::default(),
            handle,
            outbox,
            shared,
            pending: Vec::new(),
            lost: 0,
        };
        pipeline.introduce();
        pipeline
    }

    /// Renews the Hello: coverage and addresses may have changed.
    fn introduce(&self) {
        let process = self.view.netns_process();
        self.shared.netns_process.store(process, Ordering::Relaxed);
        self.shared.unnamed.store(self.view.entities.refused(), Ordering::Relaxed);
        let addresses = self
            .view
            .entities
            .aside()
            .addresses(process)
            .into_iter()
            .map(|a| match a {
                std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
                std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
            })
            .collect();
        let coverage = encode::coverage(&self.handle.coverage());
        self.outbox.set_hello(v1::Hello { coverage, addresses, ..self.identity.hello.clone() });
    }

    /// Hands over what was named or forgotten, ahead of what uses it.
    fn tell_names(&mut self) {
        let changed = self.view.entities.take_changed();
        self.encoder.forget(&changed);
        self.outbox.name(changed);
    }

    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let View { entities, scope, .. } = &mut self.view;
        let host = HostView { cpus: self.identity.hello.cpus, scope: scope.as_ref().map(Scope::path) };
        let coverage = self.handle.coverage();
        let batch = self.encoder.batch(&self.pending, entities, host, &coverage);
        self.pending.clear();
        self.tell_names();
        self.outbox.push(batch, std::mem::take(&mut self.lost));
    }
}

impl Sink for Pipeline {
    fn window(&mut self, mut window: Window) {
        if self.view.narrow(&mut window) {
            self.introduce();
        }
        let belongs = self
            .pending
            .last()
            .is_none_or(|last| last.index.0 + 1 == window.index.0 && sections(last) == sections(&window));
        if !belongs {
            self.flush();
        }
        self.pending.push(window);
        let complete = self.shared.windows_per_batch.load(Ordering::Relaxed).clamp(1, 64);
        if self.pending.len() >= complete as usize {
            self.flush();
        }
    }

    fn lost(&mut self, windows: u64) {
        self.flush();
        self.lost += windows;
    }

    fn drops(&mut self, drops: &[ListenDrop]) {
        let events: Vec<v1::DropEvent> = drops.iter().filter_map(|d| self.view.drop_event(d)).collect();
        if !events.is_empty() {
            self.tell_names();
            self.outbox.drops(events.into_iter());
        }
    }

    fn finish(&mut self) {
        self.flush();
        self.outbox.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::cgroup::Mounts;
    use crate::window::{CgroupId, ListenerKey, TaskSample, WindowIndex};
    use std::collections::BTreeSet;
    use tailwater_proto::v1::agent_message::Body;

    struct World {
        folder: tempfile::TempDir,
        outbox: Arc<Outbox>,
        pipeline: Pipeline,
    }

    fn world(scope: Option<&str>) -> World {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("lab/web")).unwrap();
        let mounts = Mounts { unified: Some(folder.path().to_owned()), ..Mounts::default() };
        let outbox = Arc::new(Outbox::new(100));
        let shared = Arc::new(Shared::default());
        shared.windows_per_batch.store(2, Ordering::Relaxed);
        let pipeline = Pipeline::new(
            Identity::read("web-1", scope, 2, Late::default()),
            View::new(
                Entities::new(mounts, folder.path()),
                scope.map(Scope::new),
                Quotas::default(),
                Watched::default(),
            ),
            Handle::new(BTreeSet::new()).unwrap(),
            outbox.clone(),
            shared,
        );
        World { folder, outbox, pipeline }
    }

    fn window(index: u64, tasks: Option<Vec<(CgroupId, TaskSample)>>) -> Window {
        Window { index: WindowIndex(index), tasks, ..Window::default() }
    }

    /// First window, number of windows and losses of each batch.
    fn batches(outbox: &Outbox) -> Vec<(u64, u32, u64)> {
        std::iter::from_fn(|| outbox.next())
            .filter_map(|body| match body {
                Body::Batch(b) => Some((b.first_window, b.window_count, b.windows_lost)),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn batches_end_where_windows_lack_or_gaps_are() {
        let mut world = world(None);
        let some = || Some(vec![]);
        for (index, tasks) in [(1, some()), (2, some()), (3, some()), (4, None), (5, some()), (9, some())] {
            world.pipeline.window(window(index, tasks));
        }
        world.pipeline.lost(7);
        world.pipeline.window(window(17, some()));
        world.pipeline.finish();
        let expect = [(1, 2, 0), (3, 1, 0), (4, 1, 0), (5, 1, 0), (9, 1, 0), (17, 1, 7)];
        assert_eq!(batches(&world.outbox), expect);
        drop(world.folder);
    }

    #[test]
    fn names_precede_the_batch_and_the_drop_that_use_them() {
        let mut world = world(None);
        let web = world.pipeline.view.entities.tree().id("/lab/web").unwrap();
        world.pipeline.window(window(1, Some(vec![(web, TaskSample::default())])));
        world.pipeline.finish();
        let key =
            ListenerKey { netns: 1, address: std::net::Ipv6Addr::UNSPECIFIED, port: 80, owner: web, pid: 0 };
        world.pipeline.drops(&[ListenDrop {
            listener: key,
            unix_ns: 1,
            count: 3,
            packets: 2,
            depth: 2,
            limit: 1,
            read_unix_ns: 2,
        }]);
        let sent: Vec<&str> = std::iter::from_fn(|| world.outbox.next())
            .map(|body| match body {
                Body::Hello(h) => {
                    assert_eq!((h.host.as_str(), h.cpus, h.window_ns), ("web-1", 2, WINDOW_NS));
                    assert_eq!(h.agent_instance.len(), 36);
                    "hello"
                }
                Body::Entities(e) => {
                    assert_eq!(e.workloads[0].name, "web");
                    assert_eq!(e.listeners[0].workload, e.workloads[0].id);
                    "names"
                }
                Body::Drop(_) => "drop",
                Body::Batch(_) => "batch",
                _ => "other",
            })
            .collect();
        assert_eq!(sent, ["hello", "names", "drop", "batch"]);
    }

    #[test]
    fn drops_outside_the_scope_are_not_ours() {
        let mut world = world(Some("/lab/web"));
        let key = |owner| ListenerKey {
            netns: 1,
            address: std::net::Ipv6Addr::UNSPECIFIED,
            port: 80,
            owner,
            pid: 0,
        };
        let tree = world.pipeline.view.entities.tree();
        let (inside, outside) = (tree.id("/lab/web").unwrap(), tree.id("/lab").unwrap());
        let drop_of = |owner, count| ListenDrop {
            listener: key(owner),
            unix_ns: 1,
            count,
            packets: count,
            depth: 0,
            limit: 0,
            read_unix_ns: 2,
        };
        world.pipeline.drops(&[drop_of(outside, 1), drop_of(inside, 2)]);
        let counts: Vec<u64> = std::iter::from_fn(|| world.outbox.next())
            .filter_map(|body| match body {
                Body::Drop(d) => Some(d.count),
                _ => None,
            })
            .collect();
        assert_eq!(counts, [2]);
    }
}
