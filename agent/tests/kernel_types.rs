//! The kernel programs against other kernels' type information, of x86-64 and arm64, without booting them: each field is there or asked
//! for first, each hook has the arguments that are read, each helper is known. `tests/kernels/kernel_types.py` says where the files come from.
//! The kernels that `make kernel-matrix` boots say more; what cannot be booted here (5.15, arm64) has this alone.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use aya::{Btf, Endianness};
use aya_obj::generated::bpf_insn;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use tailwater_agent::attach::support::{Attempt, Cap, HostFacts, plan, wanted_functions};
use tailwater_agent::name::cgroup::Layout;
use tailwater_ebpf::objects;

const OBJECTS: [(&str, &[u8]); 5] = [
    ("block", objects::BLOCK),
    ("memory", objects::MEMORY),
    ("net", objects::NET),
    ("net_streams", objects::NET_STREAMS),
    ("sched", objects::SCHED),
];
/// The kernel that lacks what all programs need (timers, atomics that fetch): it is polled.
const POLLED: &str = "5.10-x86_64";
const REMEDY: &str = "run `make kernel-types`";

/// Tells the socket since 6.11; before, the kernel refuses the program, and its signal does without.
const DROPS: &str = "tracepoint kfree_skb";

/// What programs read of a hook's arguments, which is how they begin, whatever is `const` in them.
const READ: [(&str, &str); 19] = [
    ("tracepoint sched_switch", "bool, struct task_struct *, struct task_struct *"),
    ("tracepoint sched_wakeup", "struct task_struct *"),
    ("tracepoint sched_wakeup_new", "struct task_struct *"),
    ("tracepoint cgroup_rmdir", "struct cgroup *"),
    ("tracepoint block_io_start", "struct request *"),
    ("tracepoint block_io_done", "struct request *"),
    ("tracepoint block_rq_issue", "struct request *"),
    ("tracepoint block_rq_complete", "struct request *"),
    ("tracepoint block_rq_merge", "struct request *"),
    ("tracepoint inet_sock_set_state", "struct sock *, int, int"),
    ("tracepoint tcp_destroy_sock", "struct sock *"),
    ("tracepoint sk_data_ready", "struct sock *"),
    ("tracepoint sock_recv_length", "struct sock *, int, int"),
    ("tracepoint sock_send_length", "struct sock *, int, int"),
    ("tracepoint tcp_retransmit_skb", "struct sock *"),
    ("tracepoint tcp_retransmit_synack", "struct sock *"),
    ("tracepoint consume_skb", "struct sk_buff *"),
    (DROPS, "struct sk_buff *, void *, enum skb_drop_reason, struct sock *"),
    ("function sock_def_readable", "struct sock *"),
];

/// One kernel, as the files tell of it.
struct Kernel {
    name: String,
    btf: PathBuf,
    release: String,
    helpers_below: i32,
    map_kinds_below: u32,
    /// `tracepoint NAME` or `function NAME` to its arguments.
    hooks: BTreeMap<String, String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/kernels/types")
}

fn kernels() -> Vec<Kernel> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut kernels: Vec<Kernel> = files
        .filter(|path| path.extension().is_some_and(|e| e == "offers"))
        .map(|path| kernel(&path))
        .collect();
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(kernels.len() >= 10, "{} kernels", kernels.len());
    kernels
}

fn kernel(offers: &Path) -> Kernel {
    let text = std::fs::read_to_string(offers).unwrap();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    Kernel {
        name: offers.file_stem().unwrap().to_str().unwrap().to_owned(),
        btf: offers.with_extension("btf"),
        release: value("release ").to_owned(),
        helpers_below: value("helpers_below ").parse().unwrap(),
        map_kinds_below: value("map_kinds_below ").parse().unwrap(),
        hooks: text
            .lines()
            .filter_map(|line| line.strip_suffix(')')?.split_once('('))
            .map(|(hook, arguments)| (hook.to_owned(), arguments.to_owned()))
            .collect(),
    }
}

/// What is asked of a kernel's types by a program: how (`byte_off`, `field_exists`, …), and for what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    /// A program's section, `.text` for what several call.
    program: String,
    kind: String,
    what: String,
    answered: bool,
}

/// All questions of all programs, as libbpf sees them: it shares no code with the loader of the agent.
fn questions(kernel: &Kernel) -> Vec<Question> {
    let scratch = tempfile::tempdir().unwrap();
    OBJECTS
        .iter()
        .flat_map(|(name, bytes)| {
            let object = scratch.path().join(format!("{name}.bpf.o"));
            std::fs::write(&object, bytes).unwrap();
            let output = Command::new("bpftool")
                .args(["-d", "gen", "min_core_btf"])
                .args([&kernel.btf, &scratch.path().join("out"), &object])
                .output()
                .expect("bpftool runs; install the Debian package bpftool");
            let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}, {name}: {said}", kernel.name);
            let questions = parsed(&said);
            assert!(!questions.is_empty(), "{}, {name}: bpftool tells nothing", kernel.name);
            questions
        })
        .collect()
}

/// `libbpf: prog 'tp_btf/x': relo #4: <byte_off> [118] struct task_struct.pid (0:3 @ offset 12)`, and where there is none
/// `libbpf: prog 'tp_btf/x': relo #4: no matching targets found`.
fn parsed(said: &str) -> Vec<Question> {
    let mut found: BTreeMap<(String, String), Question> = BTreeMap::new();
    for line in said.lines() {
        let Some((program, rest)) =
            line.strip_prefix("libbpf: prog '").and_then(|l| l.split_once("': relo #"))
        else {
            continue;
        };
        let Some((number, rest)) = rest.split_once(": ") else { continue };
        let key = (program.to_owned(), number.to_owned());
        if rest.starts_with("no matching") {
            found.get_mut(&key).unwrap().answered = false;
        } else if let Some((kind, what)) = rest.strip_prefix('<').and_then(|r| r.split_once("> ")) {
            let what = what.split_once("] ").map_or(what, |(_, name)| name);
            let what = what.split(" (").next().unwrap_or(what).split(" = ").next().unwrap_or(what).to_owned();
            let question = Question { program: key.0.clone(), kind: kind.to_owned(), what, answered: true };
            found.insert(key, question);
        }
    }
    found.into_values().collect()
}

#[test]
fn the_files_were_made_for_what_programs_ask_today() {
    let newest = kernels().pop().unwrap();
    let asked: BTreeSet<String> = questions(&newest).into_iter().map(|q| q.what).collect();
    let made_for = std::fs::read_to_string(folder().join("asked")).unwrap();
    let made_for: BTreeSet<String> = made_for.lines().map(ToOwned::to_owned).collect();
    assert_eq!(asked, made_for, "{REMEDY}");
}

#[test]
fn each_field_is_there_or_asked_for_first() {
    for kernel in kernels().iter().filter(|kernel| kernel.name != POLLED) {
        let questions = questions(kernel);
        let asked_first = |missing: &Question| {
            questions.iter().any(|q| {
                q.kind.ends_with("_exists")
                    && !q.answered
                    && q.program == missing.program
                    && q.what == missing.what
            })
        };
        for missing in questions.iter().filter(|q| !q.answered && !q.kind.ends_with("_exists")) {
            assert!(asked_first(missing), "{}: {missing:?}", kernel.name);
        }
        // What the agent itself loads with has to agree.
        let btf = Btf::parse_file(&kernel.btf, Endianness::Little).unwrap();
        for (name, bytes) in OBJECTS {
            let mut object = aya_obj::Object::parse(bytes).unwrap();
            object.relocate_btf(&btf).unwrap_or_else(|error| panic!("{}, {name}: {error}", kernel.name));
        }
    }
}

#[test]
fn a_field_that_no_kernel_has_is_noticed() {
    let said = "libbpf: prog 'tp_btf/x': relo #1: <field_exists> [1] struct a.b (0:1 @ offset 8)\n\
                libbpf: prog 'tp_btf/x': relo #1: no matching targets found\n\
                libbpf: prog 'tp_btf/x': relo #2: <enumval_value> [1] enum e::V = 1\n";
    let question = |kind: &str, what: &str, answered| Question {
        program: "tp_btf/x".to_owned(),
        kind: kind.to_owned(),
        what: what.to_owned(),
        answered,
    };
    assert_eq!(
        parsed(said),
        [question("field_exists", "struct a.b", false), question("enumval_value", "enum e::V", true)]
    );
}

fn tells_sockets_of_drops(kernel: &Kernel) -> bool {
    !["5.10", "5.15", "6.1"].contains(&kernel.name.split('-').next().unwrap())
}

#[test]
fn each_hook_has_the_arguments_that_are_read() {
    let mut met = BTreeSet::new();
    for kernel in kernels().iter().filter(|kernel| kernel.name != POLLED) {
        for (hook, read) in READ {
            let Some(arguments) = kernel.hooks.get(hook) else { continue };
            if hook == DROPS && !tells_sockets_of_drops(kernel) {
                continue;
            }
            met.insert(hook);
            assert!(
                arguments.replace("const ", "").starts_with(read),
                "{}: {hook}({arguments}), read as ({read})",
                kernel.name
            );
        }
    }
    assert_eq!(met.len(), READ.len(), "a hook that no kernel has: {met:?}");
}

/// `call` of a helper by number: neither of a function of the program (source 1) nor of the kernel (2).
fn helper(instruction: &bpf_insn) -> Option<i32> {
    const CALL: u8 = 0x85;
    (instruction.code == CALL && instruction.src_reg() == 0).then_some(instruction.imm)
}

#[test]
fn each_helper_and_kind_of_map_is_known() {
    for kernel in kernels().iter().filter(|kernel| kernel.name != POLLED) {
        for (name, bytes) in OBJECTS {
            let object = aya_obj::Object::parse(bytes).unwrap();
            let unknown: Vec<(&str, i32)> = object
                .functions
                .values()
                .flat_map(|f| {
                    f.instructions.iter().filter_map(helper).map(|number| (f.name.as_str(), number))
                })
                .filter(|(_, number)| *number >= kernel.helpers_below)
                .collect();
            assert!(unknown.is_empty(), "{}, {name}: helpers {unknown:?}", kernel.name);
            for (map, what) in &object.maps {
                assert!(what.map_type() < kernel.map_kinds_below, "{}, {name}: map {map}", kernel.name);
            }
        }
    }
}

fn facts(kernel: &Kernel) -> HostFacts {
    let of_kind = |kind: &str| -> BTreeSet<String> {
        kernel.hooks.keys().filter_map(|hook| hook.strip_prefix(kind)).map(ToOwned::to_owned).collect()
    };
    let mut functions = of_kind("function ");
    // The types of 5.15 come without functions; those that matter are in the kernels on both sides of it.
    if functions.is_empty() {
        functions.extend(wanted_functions().into_iter().map(ToOwned::to_owned));
        functions.insert("bpf_iter_tcp".to_owned());
    }
    let mut tracepoints = of_kind("tracepoint ");
    if !tells_sockets_of_drops(kernel) {
        tracepoints.remove(DROPS.strip_prefix("tracepoint ").unwrap());
    }
    HostFacts {
        kernel_release: kernel.release.clone(),
        cpus: 2,
        capabilities: [Cap::Bpf, Cap::Perfmon, Cap::SysPtrace, Cap::DacReadSearch, Cap::SysAdmin].into(),
        btf: Attempt::Works,
        tracepoints,
        tcp_iterator: functions.contains("bpf_iter_tcp"),
        functions,
        kernel_memory: Attempt::Works,
        tp_btf: Attempt::Works,
        fentry: Attempt::Works,
        kprobe: Attempt::Works,
        cgroups: Layout::V2,
        other_processes: Attempt::Works,
    }
}

#[test]
fn what_each_kernel_serves() {
    for kernel in kernels() {
        for signal in plan(&facts(&kernel)) {
            assert!(signal.covered, "{}: {signal:?}", kernel.name);
            let limits =
                usize::from(signal.signal.to_string() == "accept_queue" && !tells_sockets_of_drops(&kernel));
            assert_eq!(signal.limits.len(), limits, "{}: {signal:?}", kernel.name);
        }
    }
}
