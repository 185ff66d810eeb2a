/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which of a CPU's ring copies a hook may write when hooks interrupt each other: a program in process context, one in
 * softirq, one in hardirq. Not needed where all hooks of a ring run with interrupts off (the scheduler's).
 *
 * A hook calls nest_enter() once, uses the level it got, and calls nest_exit() once on every path out.
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

/* The nesting level, 0..NEST-1. An interrupt between load and store leaves the counter as it found it. */
static __always_inline __u32 nest_enter(void)
{
	__u32 zero = 0;
	volatile __u32 *depth = bpf_map_lookup_elem(&nesting, &zero);
	__u32 level;

	if (!depth)
		return 0;
	level = *depth;
	*depth = level + 1;
	return level < NEST ? level : NEST - 1;
}

static __always_inline void nest_exit(void)
{
	__u32 zero = 0;
	volatile __u32 *depth = bpf_map_lookup_elem(&nesting, &zero);

	if (depth)
		*depth -= 1;
}
#endif
