//! What `doctor` prints: signal by signal, the hook that serves it here, what it lacks, and why better hooks were refused. Owns
//! joining the plan with what attaching really did; pure apart from that, and knows no kernel map.

use crate::attach::probe::layout_in_words;
use crate::attach::support::{Cap, HostFacts, SignalPlan, plan};
use crate::run::attached::POLL_ONLY;
use crate::signal::Coverage;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Everything there is to say.
#[derive(Debug, serde::Serialize)]
pub struct Report {
    /// The host.
    pub facts: HostFacts,
    /// The signals.
    pub signals: Vec<SignalPlan>,
    /// Whether the collector answered; absent if none was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector: Option<Collector>,
    /// What measuring for a while showed; absent if it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    /// Ports at which UDP is bound beside a TCP listener: QUIC or DNS, which no signal sees.
    pub unseen_udp_ports: Vec<u16>,
}

/// Some seconds of measuring.
#[derive(Debug, serde::Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Live {
    pub seconds: u64,
    pub windows: u64,
    pub windows_lost: u64,
    pub windows_late: u64,
    /// As in `tailwater_agent_losses_total`; also those that are zero.
    pub losses: BTreeMap<&'static str, u64>,
}

/// A try to reach the collector.
#[derive(Debug, serde::Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Collector {
    pub url: String,
    pub reachable: bool,
    pub reason: String,
}

impl Report {
    /// The plan for the facts, corrected by what attaching did: the kernel has the last word.
    pub fn new(
        facts: HostFacts,
        attached: &[Coverage],
        collector: Option<Collector>,
        live: Option<Live>,
    ) -> Self {
        let mut signals = plan(&facts);
        for planned in &mut signals {
            let Some(real) = attached.iter().find(|c| c.signal == planned.signal.0) else { continue };
            if real.covered {
                planned.hook.clone_from(&real.hook);
            } else if planned.covered {
                planned.hook.clear();
                let remedy = match real.reason.as_str() {
                    POLL_ONLY => "leave poll_only out",
                    _ => "send this report to the maintainers",
                };
                planned.remedy.get_or_insert_with(|| remedy.to_owned());
            }
            (planned.covered, planned.sampled) = (real.covered, real.sampled);
            if !real.reason.is_empty() && !planned.limits.contains(&real.reason) {
                planned.limits.push(real.reason.clone());
            }
        }
        Self { facts, signals, collector, live, unseen_udp_ports: Vec::new() }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let f = &self.facts;
        writeln!(out, "kernel        {} ({} CPUs)", f.kernel_release, f.cpus)?;
        writeln!(out, "cgroups       {}", layout_in_words(f.cgroups))?;
        let caps: Vec<&str> = f.capabilities.iter().map(|c| name(*c)).collect();
        let caps = if caps.is_empty() { "none of those that matter".to_owned() } else { caps.join(" ") };
        writeln!(out, "capabilities  {caps}")?;
        let sampled = self.signals.iter().filter(|s| s.sampled).count();
        let covered = self.signals.iter().filter(|s| s.covered).count() - sampled;
        let sampled = if sampled == 0 { String::new() } else { format!(", {sampled} sampled") };
        writeln!(out, "signals       {covered} of {} covered{sampled}", self.signals.len())?;
        if let Some(c) = &self.collector {
            let state = if c.reachable { "reachable" } else { "NOT REACHABLE" };
            writeln!(out, "collector     {} {state} {}", c.url, c.reason)?;
        }
        if let Some(live) = &self.live {
            let Live { seconds, windows, windows_lost, windows_late, losses } = live;
            writeln!(
                out,
                "live          {windows} windows in {seconds} s, {windows_lost} lost, {windows_late} late"
            )?;
            let lost: Vec<String> =
                losses.iter().filter(|(_, n)| **n > 0).map(|(what, n)| format!("{what} {n}")).collect();
            let lost = if lost.is_empty() { "nothing".to_owned() } else { lost.join(", ") };
            writeln!(out, "not kept      {lost} (of {} counters)", losses.len())?;
        }
        if !self.unseen_udp_ports.is_empty() {
            let ports: Vec<String> = self.unseen_udp_ports.iter().map(ToString::to_string).collect();
            let about = "beside TCP listeners: QUIC (HTTP/3) and DNS by UDP are in no signal";
            writeln!(out, "unseen        UDP {} {about}", ports.join(" "))?;
        }
        for s in &self.signals {
            let state = match (s.covered, s.limits.is_empty()) {
                _ if s.sampled => "SAMPLED",
                (true, true) => "ok",
                (true, false) => "limited",
                (false, _) => "NOT COVERED",
            };
            writeln!(out, "\n{:<13} {state}", s.signal)?;
            if !s.hook.is_empty() {
                writeln!(out, "  served by   {}", s.hook)?;
            }
            for limit in &s.limits {
                let because = s.sampled || !s.covered;
                writeln!(out, "  {:<11} {limit}", if because { "because" } else { "limit" })?;
            }
            for a in &s.alternatives {
                writeln!(out, "  not used    {}: {}", a.hook, a.reason)?;
            }
            if let Some(remedy) = &s.remedy {
                writeln!(out, "  what to do  {remedy}")?;
            }
        }
        Ok(())
    }
}

fn name(cap: Cap) -> &'static str {
    match cap {
        Cap::Bpf => "CAP_BPF",
        Cap::Perfmon => "CAP_PERFMON",
        Cap::SysAdmin => "CAP_SYS_ADMIN",
        Cap::SysPtrace => "CAP_SYS_PTRACE",
        Cap::DacReadSearch => "CAP_DAC_READ_SEARCH",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::support::{Attempt, wanted_tracepoints};
    use crate::name::cgroup::Layout;
    use crate::signal::SignalKind;

    #[test]
    fn the_kernel_has_the_last_word_over_the_plan() {
        let facts = HostFacts {
            kernel_release: "6.18.0".to_owned(),
            cpus: 2,
            capabilities: [Cap::Bpf, Cap::Perfmon].into(),
            btf: Attempt::Works,
            tracepoints: wanted_tracepoints().into_iter().map(ToOwned::to_owned).collect(),
            functions: std::collections::BTreeSet::new(),
            tcp_iterator: true,
            kernel_memory: Attempt::Works,
            tp_btf: Attempt::Works,
            fentry: Attempt::Refused("Operation not permitted".to_owned()),
            kprobe: Attempt::Works,
            cgroups: Layout::V2,
            other_processes: Attempt::Works,
        };
        let attached = [
            Coverage {
                signal: SignalKind::Cpu,
                covered: false,
                sampled: false,
                hook: String::new(),
                reason: "verifier: back-edge".to_owned(),
            },
            Coverage {
                signal: SignalKind::Requests,
                covered: true,
                sampled: false,
                hook: "tp_btf/sock_recv_length".to_owned(),
                reason: String::new(),
            },
        ];
        let live = Live {
            seconds: 5,
            windows: 99,
            windows_lost: 1,
            windows_late: 0,
            losses: BTreeMap::from([("net_edges_folded", 3), ("sched_runs_skipped", 0)]),
        };
        let report = Report::new(facts, &attached, None, Some(live));
        assert!(!report.text().contains("unseen"), "{}", report.text());
        let text = Report { unseen_udp_ports: vec![443], ..report }.text();
        assert!(text.contains("\nunseen        UDP 443 beside TCP listeners"), "{text}");
        assert!(text.contains("\nlive          99 windows in 5 s, 1 lost, 0 late\n"), "{text}");
        assert!(text.contains("\nnot kept      net_edges_folded 3 (of 2 counters)\n"), "{text}");
        assert!(text.contains("signals       8 of 9 covered"), "{text}");
        assert!(text.contains("\ncpu           NOT COVERED\n  because     verifier: back-edge\n"), "{text}");
        assert!(text.contains("\nrequests      ok\n  served by   tp_btf/sock_recv_length\n"), "{text}");
        assert!(text.contains("not used    fentry/tcp_recvmsg: Operation not permitted"), "{text}");
    }
}
