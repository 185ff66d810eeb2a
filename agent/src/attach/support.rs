//! What this host allows, as data, and what follows from it: a pure function from facts to a plan of hooks, signal by signal.
//! `probe` collects the facts; this file knows no system call.

use crate::config::SignalName;
use crate::name::cgroup::Layout;
use crate::signal::SignalKind;
use std::collections::BTreeSet;

/// What came of trying something.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Attempt {
    /// It works here.
    Works,
    /// The kernel's words.
    Refused(String),
}

impl Attempt {
    /// The kernel's words, if it refused.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Works => None,
            Self::Refused(reason) => Some(reason),
        }
    }
}

/// Capabilities that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[allow(missing_docs, reason = "capabilities(7)")]
pub enum Cap {
    Bpf,
    Perfmon,
    SysAdmin,
    SysPtrace,
    DacReadSearch,
}

/// Everything the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct HostFacts {
    /// As in uname -r.
    pub kernel_release: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Effective capabilities of this process.
    pub capabilities: BTreeSet<Cap>,
    /// Whether `/sys/kernel/btf/vmlinux` can be read.
    pub btf: Attempt,
    /// Typed tracepoints that the kernel has, of those that signals use.
    pub tracepoints: BTreeSet<String>,
    /// Functions that the kernel has, of those that stand for a tracepoint it may lack.
    pub functions: BTreeSet<String>,
    /// Whether the kernel's TCP socket iterator is there.
    pub tcp_iterator: bool,
    /// Whether programs may read the kernel's memory: a kernel that is locked down for confidentiality lets none do so.
    pub kernel_memory: Attempt,
    /// Loading a typed tracepoint program.
    pub tp_btf: Attempt,
    /// Loading a program on the entry of a kernel function.
    pub fentry: Attempt,
    /// Probing a kernel function.
    pub kprobe: Attempt,
    /// How cgroups are mounted.
    pub cgroups: Layout,
    /// The network namespaces' files of other processes can be looked at.
    pub other_processes: Attempt,
}

/// A hook that would tell more, or would serve if the chosen one did not.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Alternative {
    /// E.g. `fentry/tcp_conn_request`.
    pub hook: String,
    /// Why it is not used here.
    pub reason: String,
}

/// How one signal is served on a host.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SignalPlan {
    /// Which signal.
    pub signal: SignalName,
    /// Whether values will be there.
    pub covered: bool,
    /// Whether they are polled, once in a window, in place of a hook.
    pub sampled: bool,
    /// The hooks that serve it; empty if none.
    pub hook: String,
    /// What is missing though it is covered, or why it is not.
    pub limits: Vec<String>,
    /// Hooks that are not used, and why.
    pub alternatives: Vec<Alternative>,
    /// What to do about it.
    pub remedy: Option<String>,
}

struct Need {
    signal: SignalKind,
    /// Tracepoints without which there is no value.
    needs: &'static [&'static str],
    /// Tracepoints that add something, and what is lost without.
    helpful: &'static [(&'static str, &'static str)],
    /// Functions whose entry or exit would tell the same or more.
    functions: &'static [&'static str],
}

const NEEDS: [Need; 8] = [
    Need {
        signal: SignalKind::Cpu,
        // One object has both signals' programs, and is attached as a whole.
        needs: &["sched_switch", "sched_wakeup", "sched_wakeup_new"],
        helpful: &[],
        functions: &["finish_task_switch"],
    },
    Need {
        signal: SignalKind::RunQueue,
        needs: &["sched_switch", "sched_wakeup", "sched_wakeup_new"],
        helpful: &[],
        functions: &["ttwu_do_activate"],
    },
    Need {
        signal: SignalKind::BlockIo,
        needs: &["block_rq_issue", "block_rq_complete"],
        helpful: &[],
        functions: &["blk_account_io_done"],
    },
    Need {
        signal: SignalKind::Memory,
        needs: &[
            "mm_vmscan_direct_reclaim_begin",
            "mm_vmscan_direct_reclaim_end",
            "mm_vmscan_memcg_reclaim_end",
        ],
        helpful: &[
            ("balance_dirty_pages", "dirty-page throttling is not seen"),
            ("mm_vmscan_memcg_reclaim_begin", "reclaim under a cgroup's limit is not seen"),
        ],
        functions: &["do_swap_page"],
    },
    Need {
        signal: SignalKind::AcceptQueue,
        needs: &["inet_sock_set_state"],
        helpful: &[
            ("sk_data_ready", "queue depth is sampled, peaks between samples are missed"),
            ("kfree_skb", "drops at the last ACK of a handshake are not told from the others"),
            ("tcp_retransmit_synack", "SYN-ACK retransmits are not counted"),
            ("consume_skb", "connections that Unix sockets refuse are not counted"),
        ],
        functions: &["tcp_conn_request", "tcp_v4_syn_recv_sock"],
    },
    Need {
        signal: SignalKind::Requests,
        needs: &["inet_sock_set_state", "sock_recv_length", "sock_send_length"],
        helpful: &[],
        functions: &["tcp_recvmsg", "tcp_sendmsg"],
    },
    Need {
        signal: SignalKind::Calls,
        needs: &["inet_sock_set_state", "sock_recv_length", "sock_send_length"],
        helpful: &[],
        functions: &["tcp_recvmsg", "tcp_sendmsg"],
    },
    Need {
        signal: SignalKind::Retransmits,
        needs: &["inet_sock_set_state", "tcp_retransmit_skb"],
        helpful: &[],
        functions: &["tcp_retransmit_skb"],
    },
];

/// Where a kernel without a tracepoint tells the same: a function's entry or return, by the prefix of such a hook. `sample/net.rs`
/// attaches by the same order.
const STAND_INS: [(&str, &str, &str); 3] = [
    ("sk_data_ready", "fentry", "sock_def_readable"),
    ("sock_recv_length", "fexit", "tcp_recvmsg"),
    ("sock_send_length", "fexit", "tcp_sendmsg"),
];

/// Functions that stand for a tracepoint.
pub fn wanted_functions() -> BTreeSet<&'static str> {
    STAND_INS.iter().map(|(_, _, function)| *function).collect()
}

impl HostFacts {
    /// The hook that serves where a tracepoint would, or why there is none.
    fn hook(&self, tracepoint: &str) -> Result<String, String> {
        if self.tracepoints.contains(tracepoint) {
            return Ok(format!("tp_btf/{tracepoint}"));
        }
        let lacks = format!("kernel {} has no tracepoint {tracepoint}", self.kernel_release);
        let Some((_, kind, function)) = STAND_INS.iter().find(|(name, _, _)| *name == tracepoint) else {
            return Err(lacks);
        };
        match &self.fentry {
            Attempt::Works if self.functions.contains(*function) => Ok(format!("{kind}/{function}")),
            Attempt::Works => Err(format!("{lacks}, nor a function {function} to attach to")),
            Attempt::Refused(reason) => Err(format!("{lacks}, and {kind}/{function} is refused: {reason}")),
        }
    }
}

/// Tracepoints that any signal uses.
pub fn wanted_tracepoints() -> BTreeSet<&'static str> {
    NEEDS.iter().flat_map(|n| n.needs.iter().copied().chain(n.helpful.iter().map(|(t, _)| *t))).collect()
}

/// How every signal is served on a host with these facts.
pub fn plan(facts: &HostFacts) -> Vec<SignalPlan> {
    NEEDS.iter().map(|need| plan_one(need, facts)).chain([throttling(facts)]).collect()
}

fn plan_one(need: &Need, facts: &HostFacts) -> SignalPlan {
    let mut plan = SignalPlan {
        signal: SignalName(need.signal),
        covered: true,
        sampled: false,
        hook: need.needs.iter().filter_map(|t| facts.hook(t).ok()).collect::<Vec<_>>().join(", "),
        limits: Vec::new(),
        alternatives: Vec::new(),
        remedy: None,
    };
    // One that serves as a stand-in is no alternative.
    for function in need.functions.iter().filter(|function| !plan.hook.contains(&format!("/{function}"))) {
        let refused = |kind: &str, attempt: &Attempt| Alternative {
            hook: format!("{kind}/{function}"),
            reason: attempt.refusal().map_or_else(
                || "works here, not needed: tracepoints are stable across kernels and cheaper".to_owned(),
                ToOwned::to_owned,
            ),
        };
        plan.alternatives.push(refused("fentry", &facts.fentry));
        plan.alternatives.push(refused("kprobe", &facts.kprobe));
    }
    if let Some((limit, remedy)) = obstacle(need, facts) {
        plan.covered = false;
        plan.hook = String::new();
        plan.limits.push(limit);
        plan.remedy = Some(remedy);
        return plan;
    }
    for (tracepoint, loss) in need.helpful {
        if let Err(reason) = facts.hook(tracepoint) {
            plan.limits.push(format!("{loss}: {reason}"));
        }
    }
    let sockets = matches!(
        need.signal,
        SignalKind::AcceptQueue | SignalKind::Requests | SignalKind::Calls | SignalKind::Retransmits
    );
    if sockets && !facts.tcp_iterator {
        plan.limits
            .push("sockets older than the agent are known from their traffic only: no iter/tcp".to_owned());
    }
    if sockets && let Some(reason) = facts.other_processes.refusal() {
        plan.limits
            .push(format!("sockets in other network namespaces are known from their traffic only: {reason}"));
        plan.remedy = Some("give the agent CAP_SYS_PTRACE and CAP_SYS_ADMIN".to_owned());
    }
    if facts.cgroups == Layout::None {
        plan.limits.push("no workloads are told apart: no cgroup hierarchy is mounted".to_owned());
        plan.remedy = Some("mount cgroup2 on /sys/fs/cgroup".to_owned());
    }
    plan
}

/// The first thing that keeps a signal from being served, and what to do about it.
fn obstacle(need: &Need, facts: &HostFacts) -> Option<(String, String)> {
    if let Some(reason) = facts.btf.refusal() {
        let remedy =
            "run a kernel built with CONFIG_DEBUG_INFO_BTF=y (6.1 or later of any large distribution)";
        return Some((format!("/sys/kernel/btf/vmlinux: {reason}"), remedy.to_owned()));
    }
    let may = |cap| facts.capabilities.contains(&cap) || facts.capabilities.contains(&Cap::SysAdmin);
    let missing: Vec<&str> = [(Cap::Bpf, "CAP_BPF"), (Cap::Perfmon, "CAP_PERFMON")]
        .iter()
        .filter(|(cap, _)| !may(*cap))
        .map(|(_, name)| *name)
        .collect();
    if !missing.is_empty() {
        let missing = missing.join(" and ");
        let remedy = format!("run as root, or with {missing} (systemd: AmbientCapabilities=)");
        return Some((format!("this process has no {missing}"), remedy));
    }
    if let Some(reason) = facts.kernel_memory.refusal() {
        let remedy =
            "boot with lockdown=integrity or without lockdown: no program measures on this kernel otherwise";
        return Some((reason.to_owned(), remedy.to_owned()));
    }
    if let Some(reason) = facts.tp_btf.refusal() {
        let remedy = "allow BPF to this process: kernel lockdown, seccomp and LSM policies can forbid it";
        return Some((format!("typed tracepoints: {reason}"), remedy.to_owned()));
    }
    let limit = need.needs.iter().find_map(|t| facts.hook(t).err())?;
    Some((limit, "run a newer kernel; the other signals are not affected".to_owned()))
}

fn throttling(facts: &HostFacts) -> SignalPlan {
    let hook = match facts.cgroups {
        Layout::V1 | Layout::Hybrid => "cpu.stat throttled_time (cgroup v1)",
        Layout::V2 => "cpu.stat throttled_usec (cgroup v2)",
        Layout::None => "",
    };
    let covered = facts.cgroups != Layout::None;
    SignalPlan {
        signal: SignalName(SignalKind::Throttling),
        covered,
        sampled: false,
        hook: hook.to_owned(),
        limits: if covered { vec![] } else { vec!["no cgroup hierarchy is mounted".to_owned()] },
        alternatives: vec![],
        remedy: (!covered).then(|| "mount cgroup2 on /sys/fs/cgroup".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> HostFacts {
        HostFacts {
            kernel_release: "6.18.0".to_owned(),
            cpus: 2,
            capabilities: [Cap::Bpf, Cap::Perfmon, Cap::SysPtrace, Cap::DacReadSearch, Cap::SysAdmin].into(),
            btf: Attempt::Works,
            tracepoints: wanted_tracepoints().into_iter().map(ToOwned::to_owned).collect(),
            functions: wanted_functions().into_iter().map(ToOwned::to_owned).collect(),
            tcp_iterator: true,
            kernel_memory: Attempt::Works,
            tp_btf: Attempt::Works,
            fentry: Attempt::Refused("Operation not permitted (os error 1)".to_owned()),
            kprobe: Attempt::Works,
            cgroups: Layout::V2,
            other_processes: Attempt::Works,
        }
    }

    fn covered(facts: &HostFacts) -> String {
        plan(facts).iter().filter(|p| p.covered).map(|p| p.signal.to_string()).collect::<Vec<_>>().join(" ")
    }

    const ALL: &str = "cpu run_queue block_io memory accept_queue requests calls retransmits throttling";

    #[test]
    fn a_host_with_everything_has_every_signal_without_limits() {
        let facts = everything();
        assert_eq!(covered(&facts), ALL);
        for p in plan(&facts) {
            assert_eq!(p.limits, [""; 0], "{}", p.signal);
            assert_eq!(p.remedy, None);
        }
    }

    #[test]
    fn taking_one_thing_away() {
        type Change = Box<dyn Fn(&mut HostFacts)>;
        let without =
            |name: &'static str| move |f: &mut HostFacts| assert!(f.tracepoints.remove(name), "{name}");
        let cases: Vec<(&str, Change, &str, &str)> = vec![
            (
                "btf",
                Box::new(|f: &mut HostFacts| f.btf = Attempt::Refused("No such file".to_owned())),
                "throttling",
                "CONFIG_DEBUG_INFO_BTF",
            ),
            (
                "CAP_PERFMON",
                Box::new(|f: &mut HostFacts| f.capabilities = [Cap::Bpf].into()),
                "throttling",
                "with CAP_PERFMON (systemd",
            ),
            (
                "all capabilities",
                Box::new(|f: &mut HostFacts| f.capabilities.clear()),
                "throttling",
                "CAP_BPF and CAP_PERFMON",
            ),
            (
                "loading",
                Box::new(|f: &mut HostFacts| f.tp_btf = Attempt::Refused("EPERM".to_owned())),
                "throttling",
                "lockdown",
            ),
            (
                "the kernel's memory",
                Box::new(|f: &mut HostFacts| f.kernel_memory = Attempt::Refused("locked down".to_owned())),
                "throttling",
                "lockdown=integrity",
            ),
            (
                "cgroups",
                Box::new(|f: &mut HostFacts| f.cgroups = Layout::None),
                "cpu run_queue block_io memory accept_queue requests calls retransmits",
                "mount cgroup2",
            ),
            (
                "sched_switch",
                Box::new(without("sched_switch")),
                "block_io memory accept_queue requests calls retransmits throttling",
                "newer kernel",
            ),
            (
                "sched_wakeup",
                Box::new(without("sched_wakeup")),
                "block_io memory accept_queue requests calls retransmits throttling",
                "newer kernel",
            ),
            (
                "sock_send_length",
                Box::new(without("sock_send_length")),
                "cpu run_queue block_io memory accept_queue retransmits throttling",
                "newer kernel",
            ),
            (
                "tcp_retransmit_skb",
                Box::new(without("tcp_retransmit_skb")),
                "cpu run_queue block_io memory accept_queue requests calls throttling",
                "newer kernel",
            ),
        ];
        for (what, change, expect, remedy) in cases {
            let mut facts = everything();
            change(&mut facts);
            assert_eq!(covered(&facts), expect, "without {what}");
            let remedies: Vec<String> = plan(&facts).into_iter().filter_map(|p| p.remedy).collect();
            assert!(remedies.iter().any(|r| r.contains(remedy)), "without {what}: {remedies:?}");
        }
    }

    #[test]
    fn a_function_stands_for_a_tracepoint_where_the_kernel_lets_programs_on_functions() {
        let mut facts = everything();
        for name in ["sock_send_length", "sock_recv_length", "sk_data_ready"] {
            assert!(facts.tracepoints.remove(name), "{name}");
        }
        let limits = |facts: &HostFacts| {
            plan(facts)
                .iter()
                .map(|p| p.limits.join("; "))
                .filter(|l| !l.is_empty())
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert!(
            limits(&facts).contains("fexit/tcp_recvmsg is refused: Operation not permitted"),
            "{}",
            limits(&facts)
        );
        facts.fentry = Attempt::Works;
        assert_eq!(covered(&facts), ALL);
        assert_eq!(limits(&facts), "");
        let plans = plan(&facts);
        let requests = plans.iter().find(|p| p.signal.0 == SignalKind::Requests).unwrap();
        assert_eq!(requests.hook, "tp_btf/inet_sock_set_state, fexit/tcp_recvmsg, fexit/tcp_sendmsg");
        facts.functions.clear();
        assert!(limits(&facts).contains("nor a function tcp_recvmsg"), "{}", limits(&facts));
    }

    #[test]
    fn what_is_merely_helpful_limits_and_does_not_uncover() {
        let mut facts = everything();
        facts.tracepoints.remove("sk_data_ready");
        facts.tcp_iterator = false;
        facts.other_processes = Attempt::Refused("Permission denied".to_owned());
        assert_eq!(covered(&facts), ALL);
        let plans = plan(&facts);
        let accept = plans.iter().find(|p| p.signal.0 == SignalKind::AcceptQueue).unwrap();
        assert_eq!(accept.limits.len(), 3, "{:?}", accept.limits);
        assert!(accept.remedy.as_ref().unwrap().contains("CAP_SYS_PTRACE"));
    }

    #[test]
    fn alternatives_carry_the_kernels_words() {
        let plans = plan(&everything());
        let requests = plans.iter().find(|p| p.signal.0 == SignalKind::Requests).unwrap();
        let reason = |hook: &str| {
            let found = requests.alternatives.iter().find(|a| a.hook == hook).unwrap();
            found.reason.clone()
        };
        assert_eq!(reason("fentry/tcp_recvmsg"), "Operation not permitted (os error 1)");
        assert!(reason("kprobe/tcp_recvmsg").starts_with("works here, not needed"));
    }
}
