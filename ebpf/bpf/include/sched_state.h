/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the scheduler hooks keep between events: the rings, the state of each CPU and task, and how they tell time and find a
 * task's record. Knows no hook and no rule of what counts as what.
 */
#ifndef TAILWATER_SCHED_STATE_H
#define TAILWATER_SCHED_STATE_H

#include "window_log.h"
#include "cgroup.h"
#include "sched_records.h"

LOG(task_log, task_record, 1)
RING(machine_ring, machine_record)
LOG(stopped_log, stopped_record, 1)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

struct blocked_table {
	struct blocked_now tasks[BLOCKED_NOW];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct blocked_table);
} blocked_tables SEC(".maps");

struct stopped_table {
	struct stopped_process processes[STOPPED_PROCESSES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stopped_table);
} stopped_processes SEC(".maps");

/* What a task that is neither on a CPU nor waiting for one is counted as. One word, so that a switch asks once. */
enum {
	NOT_ASLEEP,
	ASLEEP_BLOCKED,
	ASLEEP_STOPPED,
};

struct task_state {
	__u64 cgroup_id;
	__u64 waiting_since_ns;
	__u64 blocked_since_ns;
	__u32 slot; /* of cgroup_id */
	__u32 given_back; /* slots_given_back() when there was none for it */
	__u32 waiting_slot;
	__u32 blocked_entry; /* of a blocked_table: cpu * BLOCKED_NOW + index + 1; 0: none */
	__u32 waiting;
	__u32 asleep; /* ASLEEP_*: a sleep that nobody counts is none */
	__u32 stopped_slot; /* of stopped_processes */
	struct culprit who; /* while blocked or stopped */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} task_states SEC(".maps");

static __always_inline struct rq *rq_of(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->se.cfs_rq))
		return 0; /* kernels without CONFIG_FAIR_GROUP_SCHED: neither steal nor iowait */
	return task->se.cfs_rq->rq;
}

#define CLOCK_CHECK_NS 10000000LL
#define CLOCK_DRIFT_MAX_NS 6000 /* per check: 600 ppm; CLOCK_MONOTONIC is slewed by up to 500 (adjtimex(2)) */

/*
 * CLOCK_MONOTONIC from the run queue's clock, which the scheduler has just updated: reading a clock would be a quarter of this
 * program's price. Measured anew every 10 ms. A measurement is too large by the time since the update, so the smallest
 * counts, and the offset follows a real drift at the rate that it can have. sched_clock is the same on all CPUs where it is
 * stable; where it is not, times differ by what the kernel's own accounts differ.
 */
static __always_inline __u64 now_on(struct cpu_state *cs, struct rq *rq)
{
	__u64 clock = rq ? rq->clock : 0;
	__s64 age = clock - cs->clock_checked_ns;
	__s64 offset;

	if (!clock)
		return bpf_ktime_get_ns();
	/* Another CPU's run queue may be a little behind. */
	if (age > CLOCK_CHECK_NS || age < -CLOCK_CHECK_NS) {
		offset = bpf_ktime_get_ns() - clock;
		if (offset > cs->clock_offset_ns + CLOCK_DRIFT_MAX_NS && age > 0 && age < 64 * CLOCK_CHECK_NS)
			offset = cs->clock_offset_ns + CLOCK_DRIFT_MAX_NS;
		cs->clock_offset_ns = offset;
		cs->clock_checked_ns = clock;
	}
	return clock + cs->clock_offset_ns;
}

/* moment_at() without a division while the CPU stays in its window. */
static __always_inline struct moment moment_on(struct cpu_state *cs, __u64 mono_ns)
{
	__u32 zero = 0;
	struct clock_control *c = bpf_map_lookup_elem(&clock_control, &zero);
	struct moment m = {};
	__u64 into;

	if (!c)
		return m;
	m.unix_ns = mono_ns + c->epoch_offset_ns;
	into = m.unix_ns - cs->window_start_ns;
	if (into >= WINDOW_NS) {
		cs->window = m.unix_ns / WINDOW_NS;
		cs->window_start_ns = cs->window * WINDOW_NS;
		into = m.unix_ns - cs->window_start_ns;
	}
	m.window = cs->window;
	m.left_ns = WINDOW_NS - into;
	return m;
}

static __always_inline struct task_record *record_of(__u32 cpu, __u32 slot, struct moment *m)
{
	return task_log_at(cpu, cpu * cfg_entities + slot, m);
}

/* The slot of a task that has none, or whose cgroup is another now. Global: the verifier walks it once. */
__noinline __u32 slot_anew(struct task_state *state, __u64 id)
{
	__u32 given_back = slots_given_back();

	/* Without a slot of its own it asks again when one has become free: the queue of free ones has a lock. */
	if (!state || (state->cgroup_id == id && state->given_back == given_back))
		return SLOT_OTHER;
	state->given_back = given_back;
	state->cgroup_id = id;
	state->slot = slot_of_cgroup(id);
	return state->slot;
}

static __always_inline __u32 slot_of(struct task_struct *task, struct task_state *state)
{
	__u64 id = cgroup_id_of(task);

	if (state->cgroup_id == id && state->slot != SLOT_OTHER)
		return state->slot;
	return slot_anew(state, id);
}
#endif
