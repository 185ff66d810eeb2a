/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The 50 ms windows that every signal writes: which record an event falls into, what a record's edges are, and the ring of records
 * for what is one per CPU. Of what there are many, window_log.h keeps the records. Knows no signal. Include vmlinux/kernel.h and
 * bpf/bpf_helpers.h before it.
 *
 * A *copy* is one writer's ring for one entity: WINDOWS records behind the index of the newest. A writer is a CPU at one
 * nesting level (nest.h), so no event takes a lock or an atomic for what it adds, and user space reads closed windows with
 * no system call. Copies sit in one mmapable array at cpu * NEST + nest.
 *
 * Integrals over time (busy ns, tasks waiting, requests in flight) are kept as *edges*: a step of +1 or -1 at time t adds
 * step * (end - t) to the integral of its window and step to its `carry`, the change of the level at the window's end. With
 * the level at the window's start, which each record holds for its own copy, the window's integral is
 *     level_start * WINDOW_NS + integral_ns
 * and a window without a record had no edge: its level is that after the last record. The result is exact however long no
 * event comes: a task that runs for 300 ms, a request that waits for 2 s and an idle CPU need neither an event nor a settling
 * pass per window. One copy's level may be negative (a task wakes on one CPU and runs on another); the sum over copies is
 * what counts. As each record carries its own start, a reader that missed windows, or an edge written after its window
 * was read, repairs itself at the next record: levels cannot drift.
 */
#ifndef TAILWATER_WINDOW_H
#define TAILWATER_WINDOW_H

#define WINDOW_NS 50000000ULL
#define WINDOWS 64
#define WINDOW_BEING_RESET (~0ULL)

/* One step function, in one window, as one copy saw it. */
struct edge_sum {
	__s64 integral_ns;
	__s32 carry;
	__s32 level_start;
};

/* Written by user space alone: epoch minus CLOCK_MONOTONIC. */
struct clock_control {
	__s64 epoch_offset_ns;
};

#ifdef __bpf__
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock_control);
} clock_control SEC(".maps");

struct moment {
	__u64 unix_ns;
	__u64 window; /* index since the epoch */
	__u64 left_ns; /* until the window's end */
};

/* What began on another CPU may be a little ahead of this hook's clock: it took no time then, and never 585 years. */
static __always_inline __u64 elapsed_ns(__u64 from_ns, __u64 to_ns)
{
	return (__s64)(to_ns - from_ns) < 0 ? 0 : to_ns - from_ns;
}

static __always_inline struct moment moment_at(__u64 mono_ns)
{
	struct moment m = {};
	__u32 zero = 0;
	struct clock_control *c = bpf_map_lookup_elem(&clock_control, &zero);

	if (!c)
		return m;
	m.unix_ns = mono_ns + c->epoch_offset_ns;
	m.window = m.unix_ns / WINDOW_NS;
	m.left_ns = (m.window + 1) * WINDOW_NS - m.unix_ns;
	return m;
}

/* To the start of a window. */
static __always_inline void move_to_window(struct moment *m, __u64 window)
{
	m->unix_ns = window * WINDOW_NS;
	m->window = window;
	m->left_ns = WINDOW_NS;
}

static __always_inline void edge(struct edge_sum *e, const struct moment *m, __s32 step)
{
	e->integral_ns += step * (__s64)m->left_ns;
	e->carry += step;
}

#define max_into(field, value)                                                                                           \
	({                                                                                                               \
		typeof(field) _v = (value);                                                                              \
		if (_v > (field))                                                                                        \
			(field) = _v;                                                                                    \
	})

/*
 * RING(name, record) declares the map `name`, its `struct name_copy`, and
 *     struct record *name_open(struct name_copy *copy, struct moment *m)
 * which returns the record of the moment, recycled if it held an older window. A record begins with `__u64 window` and
 * `struct edge_sum edges[N]` (N may be 0). When the epoch phase was corrected backwards over a boundary, the moment is moved
 * to the start of the newest window, so that a copy's windows never go back and no level is lost.
 *
 * Recycling is a sequence lock: readers take a record only when its index reads the same before and after. The exchanges
 * are full barriers; they run once per copy and window.
 */
#define RING(name, record)                                                                                               \
	struct name##_copy {                                                                                             \
		__u64 newest;                                                                                            \
		struct record ring[WINDOWS];                                                                             \
	};                                                                                                               \
	struct {                                                                                                         \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                        \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                       \
		__uint(max_entries, 1);                                                                                  \
		__type(key, __u32);                                                                                      \
		__type(value, struct name##_copy);                                                                       \
	} name SEC(".maps");                                                                                             \
	static __noinline __u64 name##_turn(struct name##_copy *copy, __u64 window)                                      \
	{                                                                                                                \
		enum { EDGES = sizeof(copy->ring[0].edges) / sizeof(struct edge_sum) };                                  \
		__u64 newest = copy->newest;                                                                             \
		struct record *from = &copy->ring[newest % WINDOWS];                                                     \
		struct record *to = &copy->ring[window % WINDOWS];                                                       \
		__s32 level[EDGES + 1];                                                                                  \
                                                                                                                         \
		if (newest > window && newest - window < WINDOWS)                                                        \
			return newest;                                                                                   \
		_Pragma("unroll") for (int i = 0; i < EDGES; i++) level[i] =                                             \
			from->edges[i].level_start + from->edges[i].carry;                                               \
		__sync_lock_test_and_set(&to->window, WINDOW_BEING_RESET);                                               \
		__builtin_memset((char *)to + sizeof(__u64), 0, sizeof(*to) - sizeof(__u64));                            \
		_Pragma("unroll") for (int i = 0; i < EDGES; i++) to->edges[i].level_start = level[i];                   \
		__sync_lock_test_and_set(&to->window, window);                                                           \
		*(volatile __u64 *)&copy->newest = window;                                                               \
		return window;                                                                                           \
	}                                                                                                                \
	static __always_inline struct record *name##_open(struct name##_copy *copy, struct moment *m)                    \
	{                                                                                                                \
		if (copy->newest != m->window) {                                                                         \
			__u64 opened = name##_turn(copy, m->window);                                                     \
                                                                                                                         \
			if (opened != m->window)                                                                         \
				move_to_window(m, opened);                                                               \
		}                                                                                                        \
		return &copy->ring[m->window % WINDOWS];                                                                 \
	}
#endif
#endif
