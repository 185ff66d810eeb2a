/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Workload identity: the cgroup of a task, and the dense slot that rings index it by. Knows no signal.
 *
 * The kernel takes a slot from `free_slots` at a cgroup's first event; user space fills that queue, and puts a slot back when its
 * cgroup is gone (`removed`) and its records are older than the ring. Ids of cgroups are never reused, so a slot that a task
 * caches beside the id stays right. Slot 0 takes what found no free slot.
 */
#ifndef TAILWATER_CGROUP_H
#define TAILWATER_CGROUP_H

#include <bpf/bpf_core_read.h>

#define SLOT_OTHER 0

/* A cache line of its own: `waiting` and `blocked` are written at every switch, by whichever CPU the cgroup's tasks are on. */
struct slot_state {
	__u64 cgroup_id;
	__u32 removed; /* of SLOT_OTHER: slots that user space gave back so far */
	__u32 overflows; /* of SLOT_OTHER: lookups that found no free slot */
	__s32 waiting; /* tasks of all CPUs, now */
	__s32 blocked;
	__u64 reserved[5];
};

/* 0: the unified hierarchy; else the v1 hierarchy of the cpu controller, where no cgroup2 is in use. */
const volatile __u32 cfg_cgroup_hierarchy = 0;
const volatile __u32 cfg_entities = 1;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(__u32));
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_state);
} slot_states SEC(".maps");

static __noinline __u64 v1_cgroup_id(struct task_struct *task)
{
	struct css_set *set = task->cgroups;
	struct cgroup_subsys_state *state = 0;
	__u32 at = bpf_core_field_offset(struct css_set, subsys) +
		   bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id) * sizeof(void *);

	if (bpf_probe_read_kernel(&state, sizeof(state), (void *)set + at))
		return 0;
	return BPF_CORE_READ(state, cgroup, kn, id);
}

static __always_inline __u64 cgroup_id_of(struct task_struct *task)
{
	if (cfg_cgroup_hierarchy)
		return v1_cgroup_id(task);
	return task->cgroups->dfl_cgrp->kn->id;
}

/* The slot of a cgroup; takes a free one at first sight. Global: the verifier walks it once. */
__noinline __u32 slot_of_cgroup(__u64 id)
{
	__u32 *known = bpf_map_lookup_elem(&slots, &id);
	__u32 other = SLOT_OTHER, fresh = 0;
	struct slot_state *state;

	if (known)
		return *known;
	if (!bpf_map_pop_elem(&free_slots, &fresh)) {
		if (!bpf_map_update_elem(&slots, &id, &fresh, BPF_NOEXIST)) {
			state = bpf_map_lookup_elem(&slot_states, &fresh);
			if (state)
				*(volatile __u64 *)&state->cgroup_id = id;
			return fresh;
		}
		/* Another CPU was first. */
		bpf_map_push_elem(&free_slots, &fresh, BPF_ANY);
		known = bpf_map_lookup_elem(&slots, &id);
		if (known)
			return *known;
	}
	state = bpf_map_lookup_elem(&slot_states, &other);
	if (state)
		__sync_fetch_and_add(&state->overflows, 1);
	return SLOT_OTHER;
}

/* How many slots were given back so far: whoever found none asks again when there are more. */
static __always_inline __u32 slots_given_back(void)
{
	__u32 other = SLOT_OTHER;
	struct slot_state *state = bpf_map_lookup_elem(&slot_states, &other);

	return state ? *(volatile __u32 *)&state->removed : 0;
}

/* Tells user space that no task can bring this cgroup back. */
static __always_inline void cgroup_removed(struct cgroup *cgroup)
{
	__u64 id = cgroup->kn->id;
	struct slot_state *state;
	__u32 *slot;

	/* Ids are unique within one hierarchy only. */
	if ((__u32)cgroup->root->hierarchy_id != cfg_cgroup_hierarchy)
		return;
	slot = bpf_map_lookup_elem(&slots, &id);
	if (!slot)
		return;
	state = bpf_map_lookup_elem(&slot_states, slot);
	if (state)
		*(volatile __u32 *)&state->removed = 1;
}
#endif
