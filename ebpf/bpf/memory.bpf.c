// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory stalls per cgroup: time in direct reclaim (global and memcg) and pauses of tasks that dirtied pages too fast. Owns the
 * reclaim and writeback hooks; knows no device. All of them run in the stalled task's own context.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "nest.h"
#include "price.h"
#include "rest.h"
#include "window_log.h"
#include "cgroup.h"
#include "memory_records.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Writers of a CPU. All hooks run in a task's context: where that is not preempted one is enough, for a third of the memory. */
#define MEMORY_NEST (cfg_preempted ? NEST : 1)

LOG(memory_log, memory_record, MEMORY_NEST)

/* Length of the kernel's tick: the unit of a pause. */
const volatile __u32 cfg_tick_ns = 4000000;

struct stall_state {
	__u32 depth;
	__u32 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stall_state);
} stall_states SEC(".maps");

static __always_inline struct memory_record *record_of(__u32 writer, __u32 slot, struct moment *m)
{
	return memory_log_at(writer, writer * cfg_entities + slot, m);
}

static __always_inline __u32 writer_begins(void)
{
	return cfg_preempted ? nest_enter() : bpf_get_smp_processor_id();
}

static __always_inline void writer_ends(__u32 writer)
{
	if (cfg_preempted)
		nest_exit(writer);
}

static __always_inline void reclaim_steps(__u32 slot, struct moment *m, __s32 step)
{
	__u32 writer = writer_begins();
	struct memory_record *record = record_of(writer, slot, m);

	if (record)
		edge(&record->edges[MEMORY_RECLAIM], m, step);
	writer_ends(writer);
}

static __always_inline int reclaim_begins(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct stall_state *state;
	struct moment m;

	if (resting)
		return 0;
	state = bpf_task_storage_get(&stall_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	m = moment_at(bpf_ktime_get_ns());
	/* kswapd and its like reclaim for a living. */
	if (!state || task->flags & PF_KTHREAD || state->depth++)
		return 0;
	state->slot = slot_of_cgroup(cgroup_id_of(task));
	reclaim_steps(state->slot, &m, 1);
	return 0;
}

static __always_inline int reclaim_ends(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct stall_state *state = bpf_task_storage_get(&stall_states, task, 0, 0);
	struct moment m;

	if (!state || !state->depth || --state->depth)
		return 0;
	m = moment_at(bpf_ktime_get_ns());
	reclaim_steps(state->slot, &m, -1);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(on_direct_begin)
{
	return PRICED(reclaim_begins());
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(on_direct_end)
{
	return PRICED(reclaim_ends());
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(on_memcg_begin)
{
	return PRICED(reclaim_begins());
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(on_memcg_end)
{
	return PRICED(reclaim_ends());
}

static __always_inline int paused(__s64 ticks)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct moment m;
	struct memory_record *record;
	__u64 pause_ns;
	__u32 slot, writer;

	if (ticks <= 0 || resting)
		return 0;
	m = moment_at(bpf_ktime_get_ns());
	slot = slot_of_cgroup(cgroup_id_of(task));
	writer = writer_begins();
	record = record_of(writer, slot, &m);
	pause_ns = record ? (__u64)ticks * cfg_tick_ns : 0;
	for (int k = 0; record && k < PAUSE_WINDOWS; k++) {
		__u64 room = k ? WINDOW_NS : m.left_ns;
		__u64 part = pause_ns < room ? pause_ns : room;

		record->pause_ns[k] += part;
		pause_ns -= part;
	}
	writer_ends(writer);
	return 0;
}

/* Arguments since 6.17: wb, dtc, dirty_ratelimit, task_ratelimit, dirtied, period, pause, start_time. */
SEC("tp_btf/balance_dirty_pages")
int on_pause(__u64 *ctx)
{
	return PRICED(paused(ctx[6]));
}

/* Before: wb, thresh, bg_thresh, dirty, bdi_thresh, bdi_dirty, dirty_ratelimit, task_ratelimit, dirtied, period, pause, start. */
SEC("tp_btf/balance_dirty_pages")
int on_pause_before_6_17(__u64 *ctx)
{
	return PRICED(paused(ctx[10]));
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(on_cgroup_rmdir, struct cgroup *cgroup)
{
	cgroup_removed(cgroup);
	return 0;
}
