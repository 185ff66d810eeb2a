/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which processes used a CPU, or waited for I/O: a small table per CPU and window, and intervals that crossed windows. Knows no
 * level.
 */
#ifndef TAILWATER_SCHED_CULPRITS_H
#define TAILWATER_SCHED_CULPRITS_H

#include "sched_state.h"

/* Adds `ns` to the entry of a process, which may take the place of the smallest; then the caller names the newcomer. */
static __always_inline struct culprit *charge(struct culprit *table, __u32 entries, __u32 tgid, __u32 slot, __u64 ns)
{
	struct culprit *least = &table[0];

#pragma unroll
	for (__u32 i = 0; i < entries; i++) {
		if (table[i].tgid == tgid) {
			table[i].ns += ns;
			return 0;
		}
		if (table[i].ns < least->ns)
			least = &table[i];
	}
	least->over_ns = least->ns;
	least->ns += ns;
	least->tgid = tgid;
	least->slot = slot;
	return least;
}

static __always_inline void charge_named(struct culprit *table, __u32 entries, const struct culprit *who, __u64 ns)
{
	struct culprit *fresh = charge(table, entries, who->tgid, who->slot, ns);

	if (fresh)
		__builtin_memcpy(fresh->comm, who->comm, sizeof(fresh->comm));
}

/* An interval that crossed windows. */
struct span {
	__u64 since_ns;
	__u64 now_ns;
	__s64 uncharged_ns;
	__u32 cpu;
	__u32 io;
	struct culprit who;
};

/* Gives the window at `since_ns` its part; returns how long that was. */
__noinline int charge_window(const struct span *span)
{
	struct machine_ring_copy *machine;
	struct machine_record *record;
	struct task_record *own;
	struct moment m;
	__u64 ns, part;
	__s64 uncharged;
	__u32 cpu;

	if (!span || span->since_ns >= span->now_ns)
		return 0;
	cpu = span->cpu;
	machine = bpf_map_lookup_elem(&machine_ring, &cpu);
	if (!machine)
		return 0;
	m = moment_at(span->since_ns);
	ns = span->now_ns - span->since_ns;
	if (ns > m.left_ns)
		ns = m.left_ns;
	if (span->io) {
		/* This CPU may have had no switch in the window: then it has no record, and none is opened in the past. */
		record = &machine->ring[m.window % WINDOWS];
		if (record->window == m.window)
			charge_named(record->io, IO_CULPRITS, &span->who, ns);
		return ns;
	}
	/* Its part of the correction; there is no signed division. */
	part = span->uncharged_ns < 0 ? -span->uncharged_ns : span->uncharged_ns;
	part = part * (ns / 1000) / (span->who.ns / 1000 + 1);
	uncharged = span->uncharged_ns < 0 ? -(__s64)part : (__s64)part;
	record = machine_ring_open(machine, &m);
	record->uncharged_ns += uncharged;
	charge_named(record->cpu, CPU_CULPRITS, &span->who, ns);
	own = record_of(cpu, span->who.slot, &m);
	if (own)
		own->uncharged_ns += uncharged;
	return ns;
}

/* Someone was on CPU, or asleep for I/O, since an earlier window: every window that was crossed gets its part. */
__noinline int charge_windows(struct span *span)
{
	if (!span)
		return 0;
	span->who.ns = span->now_ns - span->since_ns;
	if (span->who.ns > (WINDOWS - 1) * WINDOW_NS)
		span->since_ns = span->now_ns - (WINDOWS - 1) * WINDOW_NS;
	for (int i = 0; i < WINDOWS; i++) {
		int ns = charge_window(span);

		if (ns <= 0)
			break;
		span->since_ns += ns;
	}
	return 0;
}
#endif
