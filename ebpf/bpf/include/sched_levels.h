/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The levels of a cgroup's tasks: waiting for a CPU, blocked; and of a process's threads: stopped. Every begin remembers in the task where it was added, and its end
 * goes there. Knows no hook.
 *
 * Functions that take pointers to memory alone are global: the verifier walks them once and not at every call.
 */
#ifndef TAILWATER_SCHED_LEVELS_H
#define TAILWATER_SCHED_LEVELS_H

#include "sched_culprits.h"

__noinline int waiting_begins(struct task_state *state, __u32 slot, struct moment *m, __u64 now)
{
	struct slot_state *all = bpf_map_lookup_elem(&slot_states, &slot);
	struct task_record *record;
	__s32 waiting;

	if (!state || !m || !all || state->waiting)
		return 0;
	record = record_of(bpf_get_smp_processor_id(), slot, m);
	if (!record)
		return 0;
	waiting = __sync_fetch_and_add(&all->waiting, 1) + 1;
	edge(&record->edges[TASK_WAITING], m, 1);
	if (waiting > 0)
		max_into(record->waiting_max, (__u32)waiting);
	state->waiting = 1;
	state->waiting_slot = slot;
	state->waiting_since_ns = now;
	return 0;
}

static __always_inline void wait_ends_in(struct task_record *record, struct task_state *state, struct moment *m, __u64 now)
{
	__u32 slot = state->waiting_slot, bucket;
	struct slot_state *all = bpf_map_lookup_elem(&slot_states, &slot);
	__u64 wait = elapsed_ns(state->waiting_since_ns, now);

	if (!all)
		return;
	__sync_fetch_and_add(&all->waiting, -1);
	edge(&record->edges[TASK_WAITING], m, -1);
	max_into(record->wait_max_ns, wait);
	bucket = log2_us(wait, HIST_BUCKETS);
	if (bucket < HIST_BUCKETS)
		record->wait_hist[bucket]++;
	state->waiting = 0;
}

__noinline int waiting_ends(struct task_state *state, struct moment *m, __u64 now)
{
	struct task_record *record;

	if (!state || !m)
		return 0;
	record = record_of(bpf_get_smp_processor_id(), state->waiting_slot, m);
	if (record)
		wait_ends_in(record, state, m, now);
	return 0;
}

/* Expects `state->who` to name the task. */
__noinline int blocked_begins(struct task_state *state, __u32 slot, struct moment *m, __u64 now)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct slot_state *all = bpf_map_lookup_elem(&slot_states, &slot);
	struct blocked_table *table = bpf_map_lookup_elem(&blocked_tables, &cpu);
	struct task_record *record;
	__s32 blocked;

	if (!state || !m || !all || !table || state->asleep)
		return 0;
	record = record_of(cpu, slot, m);
	if (!record)
		return 0;
	blocked = __sync_fetch_and_add(&all->blocked, 1) + 1;
	edge(&record->edges[TASK_BLOCKED], m, 1);
	if (blocked > 0)
		max_into(record->blocked_max, (__u32)blocked);
	state->asleep = ASLEEP_BLOCKED;
	state->who.slot = slot;
	state->blocked_since_ns = now;
	state->blocked_entry = 0;
	for (__u32 i = 0; i < BLOCKED_NOW; i++) {
		struct blocked_now *entry = &table->tasks[i];

		if (*(volatile __u32 *)&entry->tgid)
			continue;
		entry->since_ns = now;
		entry->slot = slot;
		__builtin_memcpy(entry->comm, state->who.comm, sizeof(entry->comm));
		*(volatile __u32 *)&entry->tgid = state->who.tgid;
		state->blocked_entry = cpu * BLOCKED_NOW + i + 1;
		break;
	}
	return 0;
}

__noinline int blocked_ends(struct task_state *state, struct moment *m, __u64 now)
{
	__u32 cpu = bpf_get_smp_processor_id(), slot, zero = 0;
	struct machine_ring_copy *machine = bpf_map_lookup_elem(&machine_ring, &cpu);
	struct span *span = bpf_map_lookup_elem(&spans, &zero);
	struct slot_state *all;
	struct task_record *record;

	if (!state || !m || !span)
		return 0;
	slot = state->who.slot;
	all = bpf_map_lookup_elem(&slot_states, &slot);
	record = record_of(cpu, slot, m);
	if (!machine || !all || !record)
		return 0;
	__sync_fetch_and_add(&all->blocked, -1);
	edge(&record->edges[TASK_BLOCKED], m, -1);
	state->asleep = NOT_ASLEEP;
	machine_ring_open(machine, m);
	span->since_ns = state->blocked_since_ns;
	span->now_ns = now;
	span->cpu = cpu;
	span->who = state->who;
	charge_io_windows(span);
	if (state->blocked_entry) {
		__u32 entry = state->blocked_entry - 1, home = entry / BLOCKED_NOW;
		struct blocked_table *table = bpf_map_lookup_elem(&blocked_tables, &home);

		if (table)
			*(volatile __u32 *)&table->tasks[entry % BLOCKED_NOW].tgid = 0;
	}
	return 0;
}

/* Looks through the whole table: stops are rare, and a hash would have to be emptied by somebody. */
__noinline __u32 stopped_slot_of(__u64 process)
{
	__u32 zero = 0;
	struct stopped_table *table = bpf_map_lookup_elem(&stopped_processes, &zero);
	__u64 found;

	if (!table)
		return 0;
	for (__u32 i = 1; i < STOPPED_PROCESSES; i++)
		if (*(volatile __u64 *)&table->processes[i].process == process)
			return i;
	/*
	 * Threads of one process stop on several CPUs in the same microsecond: what another CPU took since the first look is asked
	 * for its owner again, or the process would get two slots and be told with a part of its threads.
	 */
	for (__u32 i = 1; i < STOPPED_PROCESSES; i++) {
		found = *(volatile __u64 *)&table->processes[i].process;
		if (!found)
			found = __sync_val_compare_and_swap(&table->processes[i].process, 0, process);
		if (!found || found == process)
			return i;
	}
	return 0;
}

static __always_inline struct stopped_record *stopped_record_of(__u32 slot, struct moment *m)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return stopped_log_at(cpu, cpu * STOPPED_PROCESSES + slot, m);
}

/* Expects `state->who` to name the process and its cgroup's slot. */
__noinline int stopped_begins(struct task_state *state, struct moment *m)
{
	__u32 zero = 0, slot;
	struct stopped_table *table = bpf_map_lookup_elem(&stopped_processes, &zero);
	struct stopped_record *record;
	__s32 stopped;

	if (!state || !m || !table || state->asleep)
		return 0;
	slot = stopped_slot_of((__u64)state->who.slot << 32 | state->who.tgid);
	if (slot >= STOPPED_PROCESSES)
		return 0;
	record = stopped_record_of(slot, m);
	if (!record)
		return 0;
	stopped = __sync_fetch_and_add(&table->processes[slot].stopped, 1) + 1;
	edge(&record->edges[0], m, 1);
	if (stopped > 0)
		max_into(record->stopped_max, (__u32)stopped);
	state->asleep = ASLEEP_STOPPED;
	state->stopped_slot = slot;
	return 0;
}

__noinline int stopped_ends(struct task_state *state, struct moment *m)
{
	__u32 zero = 0, slot;
	struct stopped_table *table = bpf_map_lookup_elem(&stopped_processes, &zero);
	struct stopped_record *record;

	if (!state || !m || !table)
		return 0;
	slot = state->stopped_slot;
	if (slot >= STOPPED_PROCESSES)
		return 0;
	record = stopped_record_of(slot, m);
	if (!record)
		return 0;
	__sync_fetch_and_add(&table->processes[slot].stopped, -1);
	edge(&record->edges[0], m, -1);
	state->asleep = NOT_ASLEEP;
	return 0;
}

static __always_inline void sleep_ends(struct task_state *state, struct moment *m, __u64 now)
{
	if (state->asleep == ASLEEP_STOPPED)
		stopped_ends(state, m);
	else
		blocked_ends(state, m, now);
}
#endif
