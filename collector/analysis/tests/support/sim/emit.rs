//! What agents would send of the simulated tiers: names, and one window of values per host.

use super::*;

impl Sim {
    pub(super) fn names(&self) -> Vec<Input> {
        let mut names = Vec::new();
        for h in 0..4 {
            if !self.sees(h) {
                continue;
            }
            names.push(Input::Host(HostInfo {
                host: HOSTS[h].into(),
                machine: String::new(),
                agent_instance: format!("instance-{h}"),
                cpus: 2,
                addresses: vec![ADDRESSES[h].parse().unwrap()],
                coverage: Coverage {
                    cpu: true,
                    run_queue: true,
                    block_io: true,
                    accept_queue: true,
                    requests: !self.polled,
                    calls: !self.polled,
                    sampled: if self.polled { sampled() } else { SignalSet::default() },
                    ..Coverage::default()
                },
            }));
            let edge = |id, to: usize| EdgeInfo {
                id,
                workload: SERVER,
                remote_address: ADDRESSES[to].parse().unwrap(),
                remote_port: PORTS[to],
                path: None,
            };
            let edges = match h {
                0 if self.two_apps => vec![edge(1, 1), edge(2, 3)],
                0 => vec![edge(1, 1)],
                1 | 3 => vec![edge(1, 2)],
                _ => vec![],
            };
            let workload = |id, name: &str, comm: &str| WorkloadInfo {
                id,
                cgroup: format!("/system.slice/{name}"),
                name: name.into(),
                comm: comm.into(),
                ..WorkloadInfo::default()
            };
            names.push(Input::Entities {
                host: HOSTS[h].into(),
                workloads: vec![
                    workload(SERVER, UNITS[h], COMMS[h]),
                    workload(OTHER, "burner.service", "burner"),
                ],
                listeners: vec![ListenerInfo {
                    id: 1,
                    workload: SERVER,
                    address: "0.0.0.0".parse().unwrap(),
                    port: PORTS[h],
                    path: None,
                    comm: COMMS[h].into(),
                    pool: None,
                    started_with: 0,
                    pid: 100 + h as u32,
                }],
                edges,
                devices: vec![],
            });
        }
        names
    }

    pub(super) fn measure(&self, jobs: &[Job], queues: &[VecDeque<usize>; 4], acc: &mut [HostWindow; 4]) {
        let mut active = [0u32; 4];
        let mut unread = [0u32; 4];
        let mut calls: BTreeMap<(usize, u32), u32> = BTreeMap::new();
        for job in jobs {
            let app = job.app;
            match job.stage {
                Stage::WebSyn(..) | Stage::WebQueue | Stage::Done => continue,
                _ => active[0] += 1,
            }
            let to_app = (0, if app == 3 { 2 } else { 1 });
            if !matches!(job.stage, Stage::WebPre | Stage::AppSyn(..)) {
                *calls.entry(to_app).or_default() += 1;
            }
            match job.stage {
                Stage::App | Stage::Pool | Stage::DbSyn(..) => active[app] += 1,
                Stage::DbLost(_) | Stage::DbUnread | Stage::Db | Stage::DbAnswered => {
                    active[app] += 1;
                    *calls.entry((app, 1)).or_default() += 1;
                    match job.stage {
                        Stage::Db => active[2] += 1,
                        Stage::DbUnread if self.db_workers.is_none() => unread[2] += 1,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        for host in 0..4 {
            let l: &mut ListenerWindow = acc[host].listeners.entry(1).or_default();
            let workers = match host {
                0 => self.web_workers,
                2 => self.db_workers.or(Some(self.pool)),
                _ => self.app_workers,
            };
            let depth = queues[host].len() as u32;
            l.limit = self.backlogs[if host == 3 { 1 } else { host }];
            l.depth_last = depth;
            l.depth_max = l.depth_max.max(depth);
            l.depth_ns += u64::from(depth) * MS;
            l.in_flight_last = active[host];
            l.in_flight_max = l.in_flight_max.max(active[host]);
            l.in_flight_ns += u64::from(active[host]) * MS;
            l.unread_max = l.unread_max.max(unread[host]);
            l.unread_ns += u64::from(unread[host]) * MS;
            let busy = if workers.is_some() { active[host] } else { active[host].min(2) };
            l.workers_busy_max = l.workers_busy_max.max(busy);
            l.workers_seen = workers.unwrap_or(2) as u32;
            l.worker_shared_max = l.worker_shared_max.max(if workers.is_some() {
                u32::from(active[host] > 0)
            } else {
                active[host].div_ceil(2)
            });
        }
        for ((host, edge), count) in calls {
            let pooled = host != 0 && self.db_workers.is_none();
            let e: &mut EdgeWindow = acc[host].edges.entry(edge).or_default();
            e.in_flight_last = count;
            e.in_flight_max = e.in_flight_max.max(count);
            e.in_flight_ns += u64::from(count) * MS;
            e.open_max = if pooled { self.pool as u32 } else { e.open_max.max(count) };
        }
    }

    /// Closes a host's window; `own` is its index by the host's clock, which is put on the collector's axis as `convert` does:
    /// whole windows, and what they leave as phase.
    pub(super) fn cut(
        &self,
        host: usize,
        own: i64,
        t: u64,
        acc: &mut [HostWindow; 4],
        windows: &mut Vec<HostWindow>,
    ) {
        {
            let mut window = std::mem::take(&mut acc[host]);
            let clock = self.clock(host);
            let offset_ms = clock.wrong_ms - clock.ahead_ms;
            let shift = (offset_ms as f64 / 50.0).round() as i64;
            window.host = HOSTS[host].into();
            window.index = WindowIndex(self.first_window.saturating_add_signed(own + shift));
            window.phase_ns = (offset_ms - shift * 50) * MS as i64;
            window.clock_error_ns = clock.bound_ns;
            let busy = |w: Option<&WorkloadWindow>| w.map_or(0, |w| w.busy_ns);
            let cpu = window.cpu.unwrap_or_default();
            if cpu.busy_ns * 100 >= cpu.capacity_ns * 90 {
                for (id, pid, comm) in [(SERVER, 100 + host as u32, COMMS[host]), (OTHER, 4242, "burner")] {
                    let amount = busy(window.workloads.get(&id));
                    if amount > 0 {
                        window.culprits.push(CulpritSample {
                            resource: CulpritResource::Cpu,
                            pid,
                            comm: comm.into(),
                            workload: id,
                            amount,
                        });
                    }
                }
            }
            let bytes = window.workloads.get(&OTHER).map_or(0, |w| w.io_bytes);
            if bytes > 0 {
                window.culprits.push(CulpritSample {
                    resource: CulpritResource::IoBytes,
                    pid: 777,
                    comm: "flusher".into(),
                    workload: OTHER,
                    amount: bytes,
                });
                window.culprits.push(CulpritSample {
                    resource: CulpritResource::IoBytes,
                    pid: 102,
                    comm: "mariadbd".into(),
                    workload: SERVER,
                    amount: bytes / 20,
                });
            }
            let lost = self.gaps.iter().any(|(at, during)| Self::host_of(*at) == host && during.contains(&t));
            if self.polled {
                only_what_is_polled(&mut window);
            }
            if self.sees(host) && !lost {
                windows.push(window);
            }
        }
        debug_assert_eq!(WINDOW_NS, 50 * MS);
    }
}

fn sampled() -> SignalSet {
    SignalSet::of(["cpu", "run_queue", "block_io", "accept_queue"])
}

/// Takes out what only hooks tell.
fn only_what_is_polled(window: &mut HostWindow) {
    window.uncovered = SignalSet::of(["memory", "requests", "calls", "retransmits"]);
    window.sampled = sampled();
    for l in window.listeners.values_mut() {
        *l = ListenerWindow {
            depth_last: l.depth_last,
            depth_max: l.depth_max,
            depth_ns: l.depth_ns,
            limit: l.limit,
            drops: l.drops,
            drops_syn: l.drops,
            sk_drops: l.sk_drops,
            ..ListenerWindow::default()
        };
    }
    for e in window.edges.values_mut() {
        *e = EdgeWindow { open_last: e.open_max, ..EdgeWindow::default() };
    }
    for w in window.workloads.values_mut() {
        w.wait_max_ns = 0;
        // Pressure says for how long somebody was blocked, not how many.
        w.blocked_io_ns = w.blocked_io_ns.min(WINDOW_NS);
        w.stopped_ns = None;
    }
    window.culprits.retain(|c| c.resource == CulpritResource::Cpu);
}
