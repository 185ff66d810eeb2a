/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which of a CPU's writers a hook is when hooks interrupt each other: a program in process context, one in softirq, one in hardirq. Not
 * needed where all hooks of a log run with interrupts off (the scheduler's).
 *
 * A hook calls nest_enter() once, is the writer that it got, and calls nest_exit() once on every path out.
 */
#ifndef TAILWATER_NEST_H
#define TAILWATER_NEST_H

#define NEST 3

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} nesting SEC(".maps");

/*
 * Whether a task's hook can be parted by another task's on its CPU: since Linux 7.0 a tracepoint does not keep its programs from being
 * preempted, nor does an iterator under PREEMPT_RT. Then they do not end in the order opposite to that in which they began, and each
 * has to hold a level of its own. Elsewhere counting is enough, and cheaper.
 */
const volatile __u32 cfg_preempted = 0;

static __always_inline __u32 nest_level(void)
{
	__u32 zero = 0;
	__u32 *taken = bpf_map_lookup_elem(&nesting, &zero);
	volatile __u32 *depth = taken;
	__u32 level;

	if (!taken)
		return 0;
	if (cfg_preempted) {
		_Pragma("unroll") for (level = 0; level < NEST - 1; level++) {
			if (!(__sync_fetch_and_or(taken, 1U << level) & (1U << level)))
				return level;
		}
		/* The last one is shared, if it must be, and given back by whoever ends first: nothing is left behind. */
		__sync_fetch_and_or(taken, 1U << (NEST - 1));
		return NEST - 1;
	}
	/* An interrupt between load and store leaves the counter as it found it. */
	level = *depth;
	*depth = level + 1;
	return level < NEST ? level : NEST - 1;
}

/* The writer: cpu * NEST + level. */
static __always_inline __u32 nest_enter(void)
{
	return bpf_get_smp_processor_id() * NEST + nest_level();
}

static __always_inline void nest_exit(__u32 writer)
{
	__u32 zero = 0;
	__u32 *taken = bpf_map_lookup_elem(&nesting, &zero);
	volatile __u32 *depth = taken;

	if (!taken)
		return;
	if (cfg_preempted)
		__sync_fetch_and_and(taken, ~(1U << writer % NEST));
	else
		*depth -= 1;
}
#endif
