/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the programs of an object cost: user space asks for it now and then, for some milliseconds, and each run that begins then is timed.
 * Between that a run pays one load and a branch that is not taken, where the kernel's own statistics (kernel.bpf_stats_enabled) read
 * the clock twice in every run of every program of the machine.
 *
 * A hook calls price_begins() first and price_ends() last, on every path. Not contained: what the kernel does to get to the hook.
 */
#ifndef TAILWATER_PRICE_H
#define TAILWATER_PRICE_H

/* Hooks that interrupt each other on one CPU, at most; what comes deeper is a part of the hook that it interrupted. */
#define PRICE_DEPTH 4 /* a power of two: older verifiers want a mask */
/* A hook that was away for longer was not running: it was preempted, or the machine stood still. */
#define PRICE_LONGEST_NS 1000000

/* One CPU's sums since the object was loaded. */
struct price {
	__u64 ns;
	__u64 runs;
	__u32 asked;
	__u32 depth;
	__u64 since_ns[PRICE_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct price);
} prices SEC(".maps");

/* Not 0 while runs are timed, and another number each time: what was left over from the time before is known by it. */
volatile __u32 price_asked SEC(".data.price") = 0;

static __noinline int price_run_begins(__u32 asked)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct price *p = bpf_map_lookup_elem(&prices, &cpu);
	__u32 depth;

	if (!p)
		return 0;
	if (p->asked != asked) {
		p->asked = asked;
		p->depth = 0;
	}
	depth = p->depth++;
	if (depth < PRICE_DEPTH)
		p->since_ns[depth & (PRICE_DEPTH - 1)] = bpf_ktime_get_ns();
	return 0;
}

static __noinline int price_run_ends(__u32 asked)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct price *p = bpf_map_lookup_elem(&prices, &cpu);
	__u64 took_ns;
	__u32 depth;

	/* It began before anybody asked. */
	if (!p || p->asked != asked || !p->depth)
		return 0;
	depth = --p->depth;
	if (depth >= PRICE_DEPTH)
		return 0;
	took_ns = bpf_ktime_get_ns() - p->since_ns[depth & (PRICE_DEPTH - 1)];
	if (took_ns > PRICE_LONGEST_NS)
		return 0;
	p->ns += took_ns;
	p->runs++;
	/* The hook that this one interrupted did not run meanwhile. */
	if (depth)
		p->since_ns[(depth - 1) & (PRICE_DEPTH - 1)] += took_ns;
	return 0;
}

static __always_inline void price_begins(void)
{
	__u32 asked = price_asked;

	if (asked)
		price_run_begins(asked);
}

static __always_inline void price_ends(void)
{
	__u32 asked = price_asked;

	if (asked)
		price_run_ends(asked);
}

/* A hook's body, timed where it is asked for. */
#define PRICED(body)            \
	({                      \
		price_begins(); \
		(void)(body);   \
		price_ends();   \
		0;              \
	})
#endif
