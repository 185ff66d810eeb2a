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
	struct culprit who;
};

/*
 * One for each CPU, because two frames that hold one would take the deepest chain of calls over the 512 bytes of stack that a
 * program has. The hooks run with interrupts off, and each is through with it before it returns.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct span);
} spans SEC(".maps");

static __always_inline __u64 part_in_window(const struct span *span, const struct moment *m)
{
	__u64 ns = span->now_ns - span->since_ns;

	return ns > m->left_ns ? m->left_ns : ns;
}

/* Gives the window at `since_ns` its part of an interval on CPU; returns how long that was. */
__noinline int charge_cpu_window(const struct span *span)
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
	ns = part_in_window(span, &m);
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

/* The same for an interval asleep. */
__noinline int charge_io_window(const struct span *span)
{
	struct machine_ring_copy *machine;
	struct machine_record *record;
	struct moment m;
	__u64 ns;
	__u32 cpu;

	if (!span || span->since_ns >= span->now_ns)
		return 0;
	cpu = span->cpu;
	machine = bpf_map_lookup_elem(&machine_ring, &cpu);
	if (!machine)
		return 0;
	m = moment_at(span->since_ns);
	ns = part_in_window(span, &m);
	/* This CPU may have had no switch in the window: then it has no record, and none is opened in the past. */
	record = &machine->ring[m.window % WINDOWS];
	if (record->window == m.window)
		charge_named(record->io, IO_CULPRITS, &span->who, ns);
	return ns;
}

/* Every window that an interval crossed gets its part. */
#define CHARGE_WINDOWS(charge_window, span)                                                                              \
	do {                                                                                                             \
		(span)->who.ns = (span)->now_ns - (span)->since_ns;                                                      \
		if ((span)->who.ns > (WINDOWS - 1) * WINDOW_NS)                                                          \
			(span)->since_ns = (span)->now_ns - (WINDOWS - 1) * WINDOW_NS;                                   \
		for (int i = 0; i < WINDOWS; i++) {                                                                      \
			int ns = charge_window(span);                                                                    \
                                                                                                                         \
			if (ns <= 0)                                                                                     \
				break;                                                                                   \
			(span)->since_ns += ns;                                                                          \
		}                                                                                                        \
	} while (0)

/* Someone was on CPU since an earlier window. */
__noinline int charge_cpu_windows(struct span *span)
{
	if (!span)
		return 0;
	CHARGE_WINDOWS(charge_cpu_window, span);
	return 0;
}

/* Someone was asleep for I/O since some time. */
__noinline int charge_io_windows(struct span *span)
{
	if (!span)
		return 0;
	CHARGE_WINDOWS(charge_io_window, span);
	return 0;
}
#endif
