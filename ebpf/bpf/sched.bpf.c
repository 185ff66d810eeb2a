// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * CPU, run queue and tasks blocked on I/O, per cgroup and CPU; stopped threads, per process. Owns the scheduler's hooks; knows no
 * device and no socket.
 *
 * All hooks that write run with interrupts off, so a CPU is the only writer of its copies (NEST is 1). Every +1 remembers in
 * task storage or in cpu_state where it was added, and its -1 goes to the same slot: a task that changes its cgroup, or an
 * event that was missed, cannot leave a level behind.
 *
 * Busy time is what the kernel charges to tasks (cpuacct, cpu.stat), without stolen time and without what the scheduler spends
 * when a CPU that runs dry looks for work elsewhere. So each interval on CPU ends with its exact difference to the task's
 * sum_exec_runtime, `uncharged_ns`.
 *
 * Price: one task storage lookup (two when the task that leaves stays runnable), array lookups, and the chain
 * task -> css_set -> cgroup -> kernfs_node for the task that comes. No hash lookup while a task stays in its cgroup.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "price.h"
#include "sched_levels.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The CPU was on `prev` since an earlier window. Comes before any record of the present is opened. */
static __always_inline void long_interval_ends(struct cpu_state *cs, struct task_struct *prev, __u32 cpu, __u64 now,
					       __s64 uncharged_ns)
{
	__u32 zero = 0;
	struct span *span = bpf_map_lookup_elem(&spans, &zero);

	if (!span)
		return;
	span->since_ns = cs->since_ns;
	span->now_ns = now;
	span->uncharged_ns = uncharged_ns;
	span->cpu = cpu;
	span->who.slot = cs->slot;
	span->who.tgid = prev->tgid;
	bpf_probe_read_kernel(span->who.comm, sizeof(span->who.comm), prev->group_leader->comm);
	charge_cpu_windows(span);
}

/* The task runs: whatever it was counted as before ends here. */
static __always_inline void comes_on_cpu(struct task_state *state, struct moment *m, __u64 now)
{
	if (state->waiting)
		waiting_ends(state, m, now);
	if (state->asleep)
		sleep_ends(state, m, now);
}

/*
 * in_iowait alone misses the wait that matters most to a database: fsync sleeps in jbd2_log_wait_commit, uninterruptible but not
 * in io_schedule. So every sleep that counts into the load average is taken (TASK_UNINTERRUPTIBLE without TASK_NOLOAD), and the
 * analysis holds it against the device's queue.
 *
 * in_iowait is a bit field: read by its own relocations (offset, shifts). A plain access relocates the offset alone and takes the
 * bit at the place it has in kernel.h, which on 6.18 is sched_remote_wakeup's.
 */
static __always_inline bool waits_for_io(struct task_struct *task, unsigned int state)
{
	if ((state & TASK_UNINTERRUPTIBLE) && !(state & TASK_NOLOAD))
		return true;
	return BPF_CORE_READ_BITFIELD(task, in_iowait);
}

static __always_inline void leaves_cpu(struct task_struct *task, bool preempt, bool expected, __u32 slot,
				       struct moment *m, __u64 now)
{
	unsigned int why = task->__state;
	bool runnable = preempt || !why;
	bool stopped = why & (__TASK_STOPPED | __TASK_TRACED);
	struct task_state *state;

	if (expected && !runnable && !stopped && !waits_for_io(task, why))
		return;
	state = bpf_task_storage_get(&task_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!state)
		return;
	if (!expected) {
		comes_on_cpu(state, m, now);
		slot = slot_of(task, state);
	}
	if (runnable) {
		waiting_begins(state, slot, m, now);
	} else if (stopped) {
		state->who.tgid = task->tgid;
		state->who.slot = slot;
		stopped_begins(state, m);
	} else if (waits_for_io(task, why)) {
		state->who.tgid = task->tgid;
		bpf_probe_read_kernel(state->who.comm, sizeof(state->who.comm), task->group_leader->comm);
		blocked_begins(state, slot, m, now);
	}
}

static __always_inline int switched(bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 now, steal_ns = 0, on_cpu_ns;
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *cs = bpf_map_lookup_elem(&cpu_states, &cpu);
	struct machine_ring_copy *machine_copy = bpf_map_lookup_elem(&machine_ring, &cpu);
	struct task_state *state = 0;
	struct machine_record *machine;
	struct task_record *left = 0, *comes = 0;
	struct culprit *fresh;
	__u32 was_busy, was_slot, was_iowait, is_busy = next->pid != 0, slot = SLOT_OTHER, iowait = 0;
	__s64 uncharged_ns = 0;
	struct rq *rq = rq_of(prev);
	bool expected, crossed, stays;
	struct moment m;

	if (!cs || !machine_copy)
		return 0;
	now = now_on(cs, rq);
	if ((__s64)(now - cs->since_ns) < 0)
		now = cs->since_ns; /* the offset was corrected back */
	m = moment_on(cs, now);
	if (rq && bpf_core_field_exists(rq->prev_steal_time_rq))
		steal_ns = rq->prev_steal_time_rq;
	was_busy = cs->running && cs->tgid;
	was_slot = cs->slot;
	was_iowait = cs->iowait;
	expected = cs->running && cs->pid == (__u32)prev->pid;
	on_cpu_ns = now - cs->since_ns;
	crossed = on_cpu_ns > WINDOW_NS - m.left_ns;

	*(volatile __u64 *)&cs->sequence += 1;
	barrier();
	if (expected && was_busy) {
		uncharged_ns = on_cpu_ns - (prev->se.sum_exec_runtime - cs->charged_ns);
		if (crossed)
			long_interval_ends(cs, prev, cpu, now, uncharged_ns);
	}
	machine = machine_ring_open(machine_copy, &m);
	machine->switches++;
	if (cs->running) {
		if (!expected)
			machine->missed++;
		if ((__s64)(steal_ns - cs->steal_ns) > 0)
			machine->stolen_ns += steal_ns - cs->steal_ns;
	}
	if (was_busy)
		left = record_of(cpu, was_slot, &m);
	if (left && expected && !crossed) {
		fresh = charge(machine->cpu, CPU_CULPRITS, prev->tgid, was_slot, on_cpu_ns);
		if (fresh)
			bpf_probe_read_kernel(fresh->comm, sizeof(fresh->comm), prev->group_leader->comm);
		machine->uncharged_ns += uncharged_ns;
		left->uncharged_ns += uncharged_ns;
	}
	if (is_busy) {
		state = bpf_task_storage_get(&task_states, next, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (state)
			slot = slot_of(next, state);
		else
			cs->untracked++;
	}
	stays = left && is_busy && slot == was_slot;
	/* Through with it before another record is opened. */
	if (left && !stays)
		edge(&left->edges[TASK_BUSY], &m, -1);
	if (is_busy) {
		if (state && state->asleep) {
			sleep_ends(state, &m, now);
			left = 0;
		}
		if (state && state->waiting && state->waiting_slot != slot) {
			waiting_ends(state, &m, now);
			left = 0;
		}
		comes = stays && left ? left : record_of(cpu, slot, &m);
		if (comes) {
			comes->switches++;
			if (!stays)
				edge(&comes->edges[TASK_BUSY], &m, 1);
			if (state && state->waiting && state->waiting_slot == slot)
				wait_ends_in(comes, state, &m, now);
		}
	}
	/* As late as this, because the verifier walks what lies between once for each answer. */
	rq = rq_of(prev);
	if (!is_busy && rq)
		iowait = rq->nr_iowait.counter > 0;
	cs->since_ns = now;
	cs->steal_ns = steal_ns;
	cs->charged_ns = next->se.sum_exec_runtime;
	cs->slot = slot;
	cs->pid = next->pid;
	cs->tgid = is_busy ? next->tgid : 0;
	cs->running = 1;
	cs->iowait = iowait;
	barrier();
	*(volatile __u64 *)&cs->sequence += 1;

	if (was_busy != is_busy)
		edge(&machine->edges[MACHINE_BUSY], &m, is_busy ? 1 : -1);
	if (was_iowait != iowait)
		edge(&machine->edges[MACHINE_IOWAIT], &m, iowait ? 1 : -1);
	if (prev->pid)
		leaves_cpu(prev, preempt, expected, was_slot, &m, now);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return PRICED(switched(preempt, prev, next));
}

static __always_inline int woken(struct task_struct *task)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *cs = bpf_map_lookup_elem(&cpu_states, &cpu);
	struct task_state *state;
	struct moment m;
	__u64 now;

	/* Woken before it left its CPU: it never stopped running. */
	if (!cs || task->on_cpu)
		return 0;
	state = bpf_task_storage_get(&task_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!state || state->waiting)
		return 0;
	now = now_on(cs, rq_of(task));
	m = moment_on(cs, now);
	if (state->asleep)
		sleep_ends(state, &m, now);
	waiting_begins(state, slot_of(task, state), &m, now);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	return PRICED(woken(task));
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	return PRICED(woken(task));
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(on_cgroup_rmdir, struct cgroup *cgroup)
{
	cgroup_removed(cgroup);
	return 0;
}
