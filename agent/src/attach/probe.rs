//! Collects the facts about this host by trying: loads the smallest possible programs and looks at files. Owns those system
//! calls; what follows from the facts is `support`'s.

use crate::attach::bpf::descriptor;
use crate::attach::btf_names::BtfNames;
use crate::attach::support::{Attempt, Cap, HostFacts, wanted_functions, wanted_tracepoints};
use crate::name::cgroup::{Layout, Mounts};
use caps::{CapSet, Capability};

const BTF_FILE: &str = "/sys/kernel/btf/vmlinux";
/// Documentation/ABI/testing/securityfs: how far the kernel is closed to root.
const LOCKDOWN_FILE: &str = "/sys/kernel/security/lockdown";
const ITERATOR: &str = "bpf_iter_tcp";
/// Any function that every kernel with TCP has.
const PROBED_FUNCTION: &str = "tcp_recvmsg";
const PROBED_TRACEPOINT: &str = "sched_switch";

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_RAW_TP: u32 = 23;
const BPF_TRACE_FENTRY: u32 = 24;

/// `union bpf_attr` of BPF_PROG_LOAD, up to the last field that is used.
#[repr(C)]
#[derive(Default)]
struct ProgramAttributes {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
    attach_prog_fd: u32,
    padding: u32,
}

/// Reads and tries everything once.
pub fn facts(mounts: &Mounts) -> HostFacts {
    let wanted = wanted_tracepoints();
    let stand_ins = wanted_functions();
    let of_interest =
        |n: &str| wanted.contains(n) || stand_ins.contains(n) || n == ITERATOR || n == PROBED_FUNCTION;
    let (btf, names) = match std::fs::read(BTF_FILE) {
        Err(error) => (Attempt::Refused(error.to_string()), BtfNames::default()),
        Ok(bytes) => match BtfNames::parse(&bytes, of_interest) {
            Some(names) => (Attempt::Works, names),
            None => {
                (Attempt::Refused("not in a format that this agent knows".to_owned()), BtfNames::default())
            }
        },
    };
    let try_load = |attach_type, id: Option<&u32>, what: &str| match id {
        Some(id) => load(attach_type, *id),
        None => Attempt::Refused(format!("the kernel's type information has no {what}")),
    };
    HostFacts {
        kernel_release: read_trimmed("/proc/sys/kernel/osrelease"),
        cpus: online_cpus(),
        capabilities: capabilities(),
        kernel_memory: kernel_memory(&read_trimmed(LOCKDOWN_FILE)),
        tp_btf: try_load(BPF_TRACE_RAW_TP, names.tracepoints.get(PROBED_TRACEPOINT), PROBED_TRACEPOINT),
        fentry: try_load(BPF_TRACE_FENTRY, names.functions.get(PROBED_FUNCTION), PROBED_FUNCTION),
        kprobe: kprobe(),
        tcp_iterator: names.functions.contains_key(ITERATOR),
        functions: names.functions.into_keys().collect(),
        tracepoints: names.tracepoints.into_keys().collect(),
        btf,
        cgroups: mounts.layout(),
        other_processes: other_processes(),
    }
}

/// `none integrity [confidentiality]`: what is in brackets holds. A kernel without the file locks nothing.
fn kernel_memory(lockdown: &str) -> Attempt {
    if lockdown.contains("[confidentiality]") {
        Attempt::Refused(
            "this kernel is locked down for confidentiality, and lets no program read its memory".to_owned(),
        )
    } else {
        Attempt::Works
    }
}

/// How cgroups are mounted, for messages.
pub fn layout_in_words(layout: Layout) -> &'static str {
    match layout {
        Layout::V1 => "version 1",
        Layout::V2 => "version 2",
        Layout::Hybrid => {
            "hybrid: version 1 controllers beside a version 2 tree, which workloads are told by"
        }
        Layout::None => "none",
    }
}

/// Online CPUs.
pub fn online_cpus() -> u32 {
    // SAFETY: sysconf takes a plain integer.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1).max(1)
}

fn read_trimmed(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn capabilities() -> std::collections::BTreeSet<Cap> {
    let known = [
        (Capability::CAP_BPF, Cap::Bpf),
        (Capability::CAP_PERFMON, Cap::Perfmon),
        (Capability::CAP_SYS_ADMIN, Cap::SysAdmin),
        (Capability::CAP_SYS_PTRACE, Cap::SysPtrace),
        (Capability::CAP_DAC_READ_SEARCH, Cap::DacReadSearch),
    ];
    let effective = caps::read(None, CapSet::Effective).unwrap_or_default();
    known.iter().filter(|(c, _)| effective.contains(c)).map(|(_, c)| *c).collect()
}

/// Loads `return 0` and forgets it: the kernel says at loading already whether it would let it attach.
fn load(expected_attach_type: u32, attach_btf_id: u32) -> Attempt {
    // r0 = 0; exit
    let program: [u64; 2] = [0xb7, 0x95];
    let mut attributes = ProgramAttributes {
        prog_type: BPF_PROG_TYPE_TRACING,
        insn_cnt: 2,
        insns: program.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        expected_attach_type,
        attach_btf_id,
        ..ProgramAttributes::default()
    };
    // SAFETY: the attributes and what they point to live across the call; the size is the struct's own. Dropping the descriptor
    // unloads the program.
    match unsafe { descriptor(BPF_PROG_LOAD, &mut attributes) } {
        Ok(_) => Attempt::Works,
        Err(error) => Attempt::Refused(format!("refused at loading: {error}")),
    }
}

fn kprobe() -> Attempt {
    const PMU: &str = "/sys/bus/event_source/devices/kprobe/type";
    match std::fs::metadata(PMU) {
        Ok(_) => Attempt::Works,
        Err(error) => {
            Attempt::Refused(format!("{PMU}: {error}; this kernel is built without CONFIG_KPROBE_EVENTS"))
        }
    }
}

/// One process may be locked away for reasons of its own; most of them only without the capability.
fn other_processes() -> Attempt {
    let mut readable = 0_usize;
    let mut refused = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let file = entry.path().join("ns/net");
        if !entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        match std::fs::metadata(&file) {
            Ok(_) => readable += 1,
            // Any other error: the process is gone.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                refused.push(format!("{}: {error}", file.display()));
            }
            Err(_) => {}
        }
    }
    match refused.first() {
        Some(first) if refused.len() > readable => Attempt::Refused(first.clone()),
        _ => Attempt::Works,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_closed_to_programs_by_confidentiality_alone() {
        assert!(kernel_memory("none integrity [confidentiality]").refusal().is_some());
        for open in ["none [integrity] confidentiality", "[none] integrity confidentiality", ""] {
            assert_eq!(kernel_memory(open), Attempt::Works, "{open}");
        }
    }

    #[test]
    fn privileged_the_facts_of_this_machine() {
        let facts = facts(&Mounts::read().unwrap());
        assert_eq!(facts.btf, Attempt::Works);
        assert_eq!(facts.tp_btf, Attempt::Works, "the floor: without it no signal works");
        assert!(facts.tracepoints.contains("sched_switch"));
        assert!(facts.capabilities.contains(&Cap::Bpf));
        assert!(facts.cpus >= 1);
    }
}
