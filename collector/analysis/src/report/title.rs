//! The one sentence of an incident. Owns its wording.

use crate::episode::event_loop;
use crate::episode::stopped::THREADS;
use tailwater_model::address::is_path;
use tailwater_model::civil::Civil;
use tailwater_model::incident::{
    Also, DropReason, Hop, Incident, Kind, LostPackets, Resource, Role, Root, State,
};
use tailwater_model::place::place;
use tailwater_model::window::carries_several;

/// Clocks that agree within this are as good as clocks are expected to be: then it is the length of windows that leaves an order
/// open, which needs no words in a title.
const CLOCKS_AGREE_NS: u64 = 5_000_000;
/// Drops that go on for longer are told as they were at first and as they are now (10 s).
const LONG_MS: u64 = 10_000;

/// What people call a workload of a host, if that is known.
pub(super) struct Called<'a>(pub(super) &'a dyn Fn(&str, &str) -> Option<&'a str>);

impl Called<'_> {
    /// A tier by what people call it, else by its workload; one without a workload by its own name.
    pub(super) fn name(&self, host: &str, workload: &str, tier: &str) -> String {
        match (self.0)(host, workload).filter(|short| !short.is_empty()) {
            Some(short) => place(short, host).to_string(),
            None if workload.is_empty() => tier.to_owned(),
            None => place(workload, host).to_string(),
        }
    }

    /// The other end of calls whose packets were lost.
    pub(super) fn other_end(&self, root: &Root) -> String {
        let name = |lost: &LostPackets| self.name(&lost.host, &lost.workload, &lost.tier);
        root.lost.as_ref().map_or_else(|| "whom it called".to_owned(), name)
    }
}

/// The sentence.
pub(super) fn title(incident: &Incident, called: &Called<'_>) -> String {
    let name = |host: &str, workload: &str, tier: &str| called.name(host, workload, tier);
    let effect = effect(incident, &name);
    let root = &incident.root;
    let connections_only = incident.hops.iter().any(|h| h.role == Role::Root && h.connections_only);
    let mut at = name(&root.host, &root.workload, &root.tier);
    if let Some(of) = root.replicas {
        let which = if of.hit >= of.members { "all".to_owned() } else { format!("{} of", of.hit) };
        at.push_str(&format!(" ({which} {} replicas)", of.members));
    }
    let mut cause = cause(root, &at, connections_only, called);
    if let Some(first) = &root.saturated {
        let what = if first.resource == Resource::CpuThrottled { "CPU quota" } else { "CPU" };
        let it = if (&first.host, &first.workload) == (&root.host, &root.workload) {
            "its".to_owned()
        } else {
            format!("{}'s", name(&first.host, &first.workload, &first.tier))
        };
        cause.push_str(&format!(", and used up {it} {what}"));
    }
    let cause = match &incident.sustained {
        Some(s) => {
            let verb = if incident.state == State::Open { "kept alive" } else { "were kept alive" };
            format!(
                "drops {verb} by {} since {}; root was: {cause}",
                s.by.name(),
                Civil::of(s.since_unix_ns).time_ms()
            )
        }
        None => cause,
    };
    let through: Vec<String> = incident
        .hops
        .iter()
        .filter(|h| matches!(h.role, Role::Pushback | Role::Batch))
        .map(|h| {
            let seen = if h.observed { pools(h) } else { unpaired(h) };
            format!("{} ({seen})", name(&h.host, &h.workload, &h.tier))
        })
        .collect();
    let through = if through.is_empty() {
        String::new()
    } else {
        format!(", passed on through {}", through.join(", "))
    };
    let also = |other: &Also| {
        let at = name(&other.root.host, &other.root.workload, &other.root.tier);
        format!(
            "; for {:.0} % of what waited {}",
            100.0 * other.share,
            self::cause(&other.root, &at, false, called)
        )
    };
    let also: String = incident.also.iter().map(also).collect();
    // Whoever waits still is not counted yet, only expected.
    let expected = if incident.state == State::Open { incident.vlrt.expected } else { 0 };
    let waiting = match incident.vlrt.all().max(expected) {
        0 => String::new(),
        1 => " 1 client waits 1 s or longer.".to_owned(),
        n => format!(" {n} clients wait 1 s or longer."),
    };
    let order = if incident.order_unknown && incident.clock_error_ns >= CLOCKS_AGREE_NS {
        format!(
            " Order unknown: clocks agree within {:.0} ms only, the flow of requests decides.",
            incident.clock_error_ns as f64 / 1e6
        )
    } else {
        String::new()
    };
    let out = match &incident.sustained {
        Some(s) if incident.state == State::Open => format!(" It ends {}.", s.way_out),
        _ => String::new(),
    };
    format!("{effect}: {cause}{through}{also}. {}.{waiting}{out}{order}", kind(incident.kind))
}

fn effect(incident: &Incident, name: &dyn Fn(&str, &str, &str) -> String) -> String {
    let Some(most) = incident.drops.iter().max_by_key(|d| d.count) else {
        let start = Civil::of(incident.start_unix_ns).time_ms();
        let Some(hop) = incident.hops.first() else { return start };
        let at = name(&hop.host, &hop.workload, &hop.tier);
        let what = if hop.connections_only { "left" } else { "queued" };
        let of = if hop.connections_only { "pieces of data unanswered" } else { "requests" };
        return format!("{start} {at} {what} {} {of} ({})", hop.queued_max, pools(hop));
    };
    let at = name(&most.host, &most.workload, &most.tier);
    let at = match most.listener.rsplit_once(':').filter(|_| !is_path(&most.listener)) {
        Some((_, port)) => format!("{at}:{port}"),
        None => format!("{at} {}", most.listener),
    };
    let hop = incident.hops.iter().find(|h| h.host == most.host && h.workload == most.workload);
    let ms = most.last_unix_ns.saturating_sub(most.first_unix_ns) / 1_000_000;
    let others = match incident.drops.len() {
        1 => String::new(),
        2 => " (and one other listener dropped too)".to_owned(),
        n => format!(" (and {} other listeners dropped too)", n - 1),
    };
    let long = ms >= LONG_MS;
    let now = hop.filter(|_| long && incident.state == State::Open).and_then(now);
    let state = match (hop.map(state), now) {
        (None, _) => String::new(),
        (Some(onset), None) if !long => format!("{onset}, "),
        (Some(onset), None) => format!("{onset} at the onset, "),
        (Some(onset), Some(now)) => format!("{onset} at the onset; {now} now; "),
    };
    let lost = match most.reason {
        DropReason::Refused => format!("refused {} connections", most.connections),
        _ => format!("dropped {} connections in {} packets", most.connections, most.count),
    };
    format!("{} {at} {lost} ({state}{}){others}", Civil::of(most.first_unix_ns).time_ms(), length(ms))
}

fn length(ms: u64) -> String {
    match ms {
        ..LONG_MS => format!("{ms} ms"),
        LONG_MS..600_000 => format!("{:.1} s", ms as f64 / 1e3),
        600_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

/// How a tier stands in the newest window.
fn now(hop: &Hop) -> Option<String> {
    let now = hop.life?.now?;
    let of =
        |value: u32, limit: Option<u32>| limit.map_or_else(|| value.to_string(), |l| format!("{value}/{l}"));
    if hop.requests_unknown || hop.connections_only {
        return Some(of(now.accept_queue, hop.accept_queue_limit));
    }
    Some(format!(
        "{} and {}",
        of(now.accept_queue, hop.accept_queue_limit),
        of(now.workers_busy, hop.workers_limit)
    ))
}

fn state(hop: &Hop) -> String {
    let accept = match hop.accept_queue_limit {
        Some(limit) => format!("accept queue {}/{limit}", hop.accept_queue_max),
        None => format!("accept queue {}", hop.accept_queue_max),
    };
    format!("{accept}, {}", workers(hop))
}

fn workers(hop: &Hop) -> String {
    if hop.requests_unknown {
        return "requests not measured".to_owned();
    }
    if hop.connections_only {
        return "connections only".to_owned();
    }
    match hop.workers_limit {
        Some(limit) => format!("{}/{limit} workers busy", hop.workers_busy_max),
        None => format!("{} workers busy", hop.workers_busy_max),
    }
}

fn pools(hop: &Hop) -> String {
    match (hop.pool_in_flight_max, hop.pool_open) {
        (Some(in_flight), Some(open)) if carries_several(in_flight, open) => {
            format!("{}, {in_flight} calls on {open} connections", workers(hop))
        }
        (Some(in_flight), Some(open)) if in_flight > 0 => {
            format!("{}, {in_flight}/{open} connections in use", workers(hop))
        }
        _ => workers(hop),
    }
}

fn unpaired(hop: &Hop) -> String {
    match hop.queued_max {
        0 => "unpaired: no agent sees its other end".to_owned(),
        calls => format!("unpaired: no agent sees its other end, {calls} calls to it in flight"),
    }
}

fn cause(root: &Root, at: &str, connections_only: bool, called: &Called<'_>) -> String {
    let [from, to] = [root.start_unix_ns, root.end_unix_ns].map(|unix_ns| Civil::of(unix_ns).time_ms());
    let when = format!("from {from} to {to}");
    let who = root.culprits.first().map(|c| {
        let name = if c.comm.is_empty() { &c.workload } else { &c.comm };
        format!("`{name}`, {:.0} %", 100.0 * c.share)
    });
    let by = |what: &str| who.as_ref().map_or_else(String::new, |w| format!(" ({what}{w})"));
    match root.resource {
        Resource::Cpu => format!("{at} used up its CPU itself {when}{}", by("")),
        Resource::CpuNeighbour => {
            format!("{at} waited for the CPU {when}, taken by another workload{}", by(""))
        }
        Resource::CpuThrottled => format!("{at} was held back by its CPU quota {when}"),
        Resource::CpuSteal => format!("{at} waited {when} for a CPU that was taken outside its host"),
        Resource::Io => format!("{at} waited for disk {when}{}", by("I/O of ")),
        Resource::Memory => format!("{at} waited for memory {when}{}", by("")),
        Resource::Lock if connections_only => format!("{at} read on and wrote nothing {when}"),
        Resource::Lock => {
            format!("{at} took requests on and answered none {when}, its threads waiting on one another")
        }
        Resource::Pause if root.unit == THREADS => match root.peak {
            1.0 => format!("{at} stood still {when}: its thread was stopped by a signal (SIGSTOP)"),
            threads => format!(
                "{at} stood still {when}: its {threads:.0} threads were stopped by a signal (SIGSTOP)"
            ),
        },
        Resource::Pause => format!("{at} stood still {when}"),
        Resource::EventLoop => {
            let what = root.event_loop.as_ref().map(|l| format!(": {}", event_loop::words(l)));
            format!("{at}: its event loop was blocked {when}{}", what.unwrap_or_default())
        }
        Resource::Dns => {
            let what = root.lookups.as_ref().map(|l| format!(": {}", l.told()));
            format!("{at} waited for names to be resolved {when}{}", what.unwrap_or_default())
        }
        Resource::Network => {
            let end = called.other_end(root);
            let what = root.lost.as_ref().map_or_else(String::new, |lost| format!(": {}", lost.told()));
            format!("{at} waited for packets that were lost between it and {end} {when}{what}")
        }
        Resource::Burst if connections_only => {
            format!("{:.1} times the usual data came to {at} {when}{}", root.peak, by("from "))
        }
        Resource::Burst => {
            format!("{:.1} times the usual requests came to {at} {when}{}", root.peak, by("from "))
        }
        Resource::Unexplained if root.workload.is_empty() => {
            format!("the cause at {at} is not determined, as no agent observes it")
        }
        Resource::Unexplained => format!("the cause at {at} is not determined"),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::UpstreamCtqo => "Upstream CTQO",
        Kind::DownstreamCtqo => "Downstream CTQO",
        Kind::LocalOverflow => "Local overflow",
        Kind::Millibottleneck => "Millibottleneck",
        Kind::PersistentBottleneck => "Persistent bottleneck",
        Kind::SynFlood => "SYN flood",
        Kind::NearOverflow => "Near overflow",
    }
}
