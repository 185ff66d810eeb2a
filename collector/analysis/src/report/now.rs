//! What whoever is on call can do about an incident, in one sentence: where to look, whom to move, what to ask for. Owns its words; what would
//! have prevented it is the sizing's, and is no part of this.

use super::title::Called;
use crate::episode::stopped::THREADS;
use tailwater_model::incident::{Code, Culprit, Incident, Kind, Resource, Root, State};

/// Of an incident whose root, drops and what keeps it alive are known.
pub(super) fn do_now(incident: &Incident, called: &Called<'_>) -> Option<String> {
    let root = &incident.root;
    let name = |host: &str, workload: &str, tier: &str| called.name(host, workload, tier);
    if let Some(kept) = incident.sustained.as_ref().filter(|_| incident.state == State::Open) {
        return Some(format!(
            "send less to {}: it ends {}",
            name(&kept.host, &kept.workload, &kept.listener),
            kept.way_out
        ));
    }
    if incident.kind == Kind::SynFlood {
        return Some(
            "have the network drop these SYNs, or switch net.ipv4.tcp_syncookies on, which keeps no queue for them".to_owned(),
        );
    }
    let at = name(&root.host, &root.workload, &root.tier);
    let host = &root.host;
    let taker = root.culprits.first().filter(|taker| !(taker.comm.is_empty() && taker.workload.is_empty()));
    // Whoever serves requests itself is not to be stopped for another one.
    let serves = |taker: &Culprit| {
        let own = taker.workload == root.workload;
        own || incident.hops.iter().any(|hop| hop.host == *host && hop.workload == taker.workload)
    };
    let who = taker.map(|taker| (whom(taker, host), serves(taker)));
    Some(match root.resource {
        Resource::Cpu => format!(
            "send less to {at}, or add another server of it; look at what its requests cost since then, as after a deploy or with another query plan{}",
            in_code(root).map_or_else(String::new, |code| format!(": {code}"))
        ),
        Resource::CpuNeighbour => match who {
            Some((who, true)) => format!("give {at} and {who} more CPU, or move one of them to another host"),
            Some((who, false)) => {
                format!("stop or move {who}, or give it a smaller weight (CPUWeight=, cpu.weight) or a quota")
            }
            None => format!(
                "look at what else runs on {host}, and give {at} a larger weight (CPUWeight=, cpu.weight)"
            ),
        },
        Resource::CpuThrottled => format!(
            "raise the CPU quota of {at} (CPUQuota=, cpu.max, a container's limit), or have it run with fewer threads; if the quota is right, send it less"
        ),
        Resource::CpuSteal => {
            format!(
                "ask whoever runs the machine that {host} is on: its CPU went to another guest; if it goes on, move {host}"
            )
        }
        Resource::Io => match who {
            Some((who, true)) => format!(
                "look at what {who} writes itself (a checkpoint, a log, a sort on disk), and give it a faster disk or one of its own"
            ),
            Some((who, false)) => {
                format!(
                    "move what {who} writes to another disk or to a quieter hour, or bound it (IOWeight=, io.max)"
                )
            }
            None => format!("look at who writes on {host} (iotop, or pidstat -d), and at the disk itself"),
        },
        Resource::Memory => {
            format!("look at what grew on {host}, and raise the memory limit of {at} or lower its caches")
        }
        Resource::Lock => {
            let session = root.locks.as_ref().and_then(|locks| locks.holder.as_ref());
            let thread = root.lock.as_ref().and_then(|lock| lock.holder.as_ref());
            match (session, thread) {
                (Some(by), _) => format!(
                    "end connection {} of {at} if it does not come back (pg_terminate_backend(), KILL), and have whoever opened it commit sooner",
                    by.connection
                ),
                (None, Some(by)) => format!(
                    "look at what thread {} (`{}`) of {at} does while it holds its lock (its stack: gdb -p, eu-stack), and do that without the lock",
                    by.thread, by.comm
                ),
                (None, None) => match in_code(root) {
                    Some(code) => format!(
                        "find out who holds what {at} waits for, {code}: a thread dump while it lasts names the holder (jstack, eu-stack, gdb -p)"
                    ),
                    None => format!(
                        "have {at} say who holds what while it lasts: a thread dump (jstack), SHOW ENGINE INNODB STATUS, pg_blocking_pids(), or how full its pool of connections is"
                    ),
                },
            }
        }
        Resource::Pause if root.unit == THREADS => {
            format!(
                "find out who stopped the process of {at} by a signal: a debugger, a snapshot, a supervisor, SIGSTOP by hand"
            )
        }
        Resource::Pause => format!(
            "look at the log of {at} for a collection of garbage that stopped everything, and at who may have stopped its process (SIGSTOP, a debugger, a snapshot of the machine)"
        ),
        Resource::EventLoop => match &root.event_loop {
            Some(it) if it.ran_ratio >= 0.5 => {
                format!(
                    "profile thread {} (`{}`) of {at}: a handler computes on the event loop; give that work to a worker",
                    it.thread, it.comm
                )
            }
            Some(it) => format!(
                "find the handler of {at} that waits on thread {} (`{}`) of the event loop{}, and have it wait elsewhere",
                it.thread,
                it.comm,
                if it.slept_in.is_empty() { String::new() } else { format!(", in {}", it.slept_in) }
            ),
            None => {
                format!("find the handler of {at} that keeps its event loop, and move that work to a worker")
            }
        },
        Resource::Dns => {
            let server = root.lookups.as_ref().map_or_else(
                || "its server of names".to_owned(),
                |l| match &l.asked_on {
                    None => format!("the server of names {}", l.server),
                    Some(on) => format!("the server of names {}, or {} behind it,", l.server, on.server),
                },
            );
            format!(
                "find out why {server} does not answer {at} in time (dig, the way there, its own log); until it does have {at} keep the names that it has (a cache such as nscd, unbound or systemd-resolved), or ask another server sooner (options timeout: and attempts: of resolv.conf)"
            )
        }
        Resource::Network => {
            let end = called.other_end(root);
            let hosts =
                root.lost.as_ref().map_or_else(|| host.clone(), |lost| format!("{host} and {}", lost.host));
            format!(
                "look at the way between {at} and {end}: what both hosts dropped (ip -s link, ethtool -S, tc -s qdisc, conntrack -S, nft list ruleset), a link or a bond that failed over, a switch or a firewall between {hosts}; until it is found send {at} elsewhere (another replica of {end}, another path)"
            )
        }
        Resource::Burst => match &root.saturated {
            Some(first) => format!(
                "bound what clients may send to {at}, or give {} more CPU or another server: it was used up first",
                name(&first.host, &first.workload, &first.tier)
            ),
            None => format!(
                "bound what clients may send to {at} at once, or size the pool or queue that overflowed for so many"
            ),
        },
        Resource::Unexplained => return unexplained(root, &at),
    })
}

/// Where in its code most of it was, if somebody looked and found functions.
fn in_code(root: &Root) -> Option<String> {
    root.code.first().filter(|code| !code.frames.is_empty()).map(Code::told)
}

/// A culprit with its place.
fn whom(culprit: &Culprit, host: &str) -> String {
    match (culprit.comm.as_str(), culprit.workload.as_str()) {
        ("", workload) => format!("{workload} on {host}"),
        (comm, workload) if workload.is_empty() || workload == comm => format!("`{comm}` on {host}"),
        (comm, workload) => format!("`{comm}` ({workload} on {host})"),
    }
}

fn unexplained(root: &Root, at: &str) -> Option<String> {
    root.workload.is_empty().then(|| {
        format!("install an agent at {at}, or ask whoever runs it what happened then: its callers waited for it, and nobody sees inside")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_model::incident::{EventLoop, Saturated, Severity, Sustained, SustainedBy, Vlrt};
    use tailwater_model::window::Doing;

    fn incident(resource: Resource) -> Incident {
        let root = Root {
            host: "db-1".into(),
            workload: "mariadb.service".into(),
            tier: "mariadb".into(),
            resource,
            start_unix_ns: 0,
            end_unix_ns: 1,
            peak: 1.0,
            unit: "ratio".into(),
            culprits: Vec::new(),
            event_loop: None,
            lookups: None,
            lost: None,
            locks: None,
            lock: None,
            replicas: None,
            saturated: None,
            code: Vec::new(),
            evidence: String::new(),
        };
        Incident {
            id: String::new(),
            version: 1,
            state: State::Open,
            kind: Kind::UpstreamCtqo,
            severity: Severity::Critical,
            confidence: 0.9,
            title: String::new(),
            start_unix_ns: 0,
            end_unix_ns: 1,
            clock_error_ns: 0,
            order_unknown: false,
            root,
            hops: Vec::new(),
            drops: Vec::new(),
            vlrt: Vlrt::default(),
            sustained: None,
            alternatives: Vec::new(),
            context: Vec::new(),
            also: Vec::new(),
            do_now: None,
            against: Vec::new(),
            numbers: Vec::new(),
        }
    }

    fn said(incident: &Incident) -> Option<String> {
        do_now(incident, &Called(&|_, _| None))
    }

    #[test]
    fn of_every_resource_it_is_said_where_to_look_and_of_nothing_known_nothing() {
        for resource in Resource::ALL {
            let mut incident = incident(resource);
            match said(&incident) {
                Some(now) => assert!(now.contains("db-1") && !now.ends_with('.'), "{resource:?}: {now}"),
                None => assert_eq!(resource, Resource::Unexplained),
            }
            incident.root.culprits =
                vec![Culprit { pid: 7, comm: "stress".into(), workload: "batch".into(), share: 0.9 }];
            let names_whom = said(&incident).is_some_and(|now| now.contains("`stress` (batch on db-1)"));
            assert_eq!(names_whom, matches!(resource, Resource::CpuNeighbour | Resource::Io), "{resource:?}");
            // Who serves requests itself is not to be stopped.
            incident.root.culprits[0].workload = "mariadb.service".into();
            let own = said(&incident).unwrap_or_default();
            assert!(!own.starts_with("stop") && !own.starts_with("move"), "{resource:?}: {own}");
        }
        let mut kept = incident(Resource::Io);
        kept.sustained = Some(Sustained {
            by: SustainedBy::Retries,
            since_unix_ns: 0,
            until_unix_ns: 1,
            retry_share: 0.8,
            attempts_per_second: 1.0,
            first_attempts_per_second: 1.0,
            capacity_per_second: 1.0,
            usual_per_second: None,
            host: "web-1".into(),
            workload: "apache2.service".into(),
            listener: "10.0.0.1:80".into(),
            queue_needed: 1,
            load_below_per_second: 1.0,
            load_below_for_s: 1,
            way_out: "below 880 requests/s for 5 s".into(),
            evidence: String::new(),
        });
        assert!(said(&kept).unwrap().ends_with("web-1: it ends below 880 requests/s for 5 s"));
        kept.state = State::Closed;
        assert!(!said(&kept).unwrap().contains("it ends"));
        let mut unseen = incident(Resource::Unexplained);
        unseen.root.workload.clear();
        assert!(said(&unseen).unwrap().contains("an agent at mariadb"));
    }

    #[test]
    fn where_the_code_is_known_it_is_what_to_look_at() {
        let of = |resource, doing| {
            let mut it = incident(resource);
            let frames = ["lll_lock_wait", "serve"].map(str::to_owned).to_vec();
            it.root.code = vec![Code {
                doing,
                pid: 7,
                comm: "mariadbd".into(),
                percent: 89,
                samples: 16,
                frames,
                cut: false,
            }];
            said(&it).unwrap()
        };
        let lock = of(Resource::Lock, Doing::Waiting);
        assert!(lock.contains("89 % of its waiting threads in `lll_lock_wait`, called by `serve`"), "{lock}");
        let cpu = of(Resource::Cpu, Doing::Running);
        assert!(cpu.ends_with("89 % of its CPU samples in `lll_lock_wait`, called by `serve`"), "{cpu}");
    }

    #[test]
    fn a_loop_that_ran_is_profiled_and_one_that_slept_is_looked_for_where_it_slept() {
        let mut it = incident(Resource::EventLoop);
        let slept = EventLoop {
            thread: 42,
            comm: "node".into(),
            blocked_ms: 700,
            ran_ratio: 0.1,
            slept_in: "futex_wait_queue".into(),
        };
        it.root.event_loop = Some(slept.clone());
        assert!(
            said(&it).unwrap().contains("waits on thread 42 (`node`) of the event loop, in futex_wait_queue")
        );
        it.root.event_loop = Some(EventLoop { ran_ratio: 0.9, ..slept });
        assert!(said(&it).unwrap().starts_with("profile thread 42"));
    }

    #[test]
    fn a_burst_says_what_it_used_up_first_and_a_flood_is_the_networks() {
        let mut it = incident(Resource::Burst);
        let first = Saturated {
            host: "app-1".into(),
            workload: "tomcat10.service".into(),
            tier: "tomcat10".into(),
            resource: Resource::Cpu,
            start_unix_ns: 0,
        };
        it.root.saturated = Some(first);
        assert!(said(&it).unwrap().contains("app-1"), "{:?}", said(&it));
        it.kind = Kind::SynFlood;
        assert!(said(&it).unwrap().contains("tcp_syncookies"));
    }
}
