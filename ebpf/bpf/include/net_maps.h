/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The maps that all socket programs share, and how a listener or an edge gets its slot. Owns slots, levels and window rings of
 * listeners and edges; knows no hook.
 */
#ifndef TAILWATER_NET_MAPS_H
#define TAILWATER_NET_MAPS_H

const volatile __u32 cfg_listener_entities = 65; /* slots, with SLOT_OTHER */
const volatile __u32 cfg_edge_entities = 129;
const volatile __u32 cfg_cgroup_hierarchy = 0; /* 0: the unified one; else workloads are cgroups of the v1 cpu controller */

/* Answers that take longer than this, from the first byte of the request to the last one of the answer, are late, and very late; us. */
const volatile __u32 cfg_late_us = 500000;
const volatile __u32 cfg_very_late_us = 3000000;

/* Listeners that became known so far: a connection of none is looked up again when there are others. */
static __u32 listeners_made;

LOG(listener_log, listener_record, NEST)
LOG(edge_log, edge_record, NEST)

#define ARRAY_OF(name, value_type)                                                                                       \
	struct {                                                                                                         \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                        \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                       \
		__uint(max_entries, 1);                                                                                  \
		__type(key, __u32);                                                                                      \
		__type(value, value_type);                                                                               \
	} name SEC(".maps")

ARRAY_OF(listener_levels, struct listener_level);
ARRAY_OF(edge_levels, struct edge_level);
ARRAY_OF(listener_states, struct listener_states);
ARRAY_OF(listener_names, struct listener_name);
ARRAY_OF(edge_names, struct edge_name);
ARRAY_OF(net_losses, struct net_losses);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct listener_key);
	__type(value, __u32);
} listener_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct edge_key);
	__type(value, __u32);
} edge_slots SEC(".maps");

/* Free slots; user space fills them before attaching and returns those of listeners and edges long gone. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(__u32));
} listener_free SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(__u32));
} edge_free SEC(".maps");

/* When a hook runs and which copies of the rings are its own. */
struct hook {
	__u64 mono_ns;
	__u32 writer;
	struct moment at;
};

static __always_inline void hook_enter_at(struct hook *h, __u64 mono_ns)
{
	h->writer = nest_enter();
	h->mono_ns = mono_ns;
	h->at = moment_at(mono_ns);
}

static __always_inline void hook_enter(struct hook *h)
{
	hook_enter_at(h, bpf_ktime_get_ns());
}

static __always_inline void hook_exit(const struct hook *h)
{
	nest_exit(h->writer);
}

static __always_inline void count_loss(__u32 offset)
{
	__u32 zero = 0;
	struct net_losses *losses = bpf_map_lookup_elem(&net_losses, &zero);

	if (losses && offset < sizeof(*losses))
		__sync_fetch_and_add((__u64 *)((char *)losses + offset), 1);
}
#define COUNT_LOSS(field) count_loss(__builtin_offsetof(struct net_losses, field))

static __always_inline struct listener_record *listener_now(struct hook *h, __u32 slot)
{
	return listener_log_at(h->writer, h->writer * cfg_listener_entities + slot, &h->at);
}

static __always_inline struct edge_record *edge_now(struct hook *h, __u32 slot)
{
	return edge_log_at(h->writer, h->writer * cfg_edge_entities + slot, &h->at);
}

/* Steps a level in this copy's record and over all CPUs; returns the latter. */
static __always_inline __u32 step_level(struct edge_sum *e, __s32 *level, struct hook *h, __s32 step)
{
	__s32 now;

	edge(e, &h->at, step);
	now = __sync_fetch_and_add(level, step) + step;
	return now > 0 ? now : 0;
}

struct turns {
	__s32 in_flight;
	__s32 unread;
	__s32 busy;
};

/* A negative part borrowed from the one above it: each is read off, and taken off, as a signed number. */
static __always_inline struct turns turns_of(__s64 sum)
{
	struct turns t = {};
	__s64 low = sum << (64 - TURNS_BITS) >> (64 - TURNS_BITS);

	t.in_flight = low;
	sum = (sum - low) >> TURNS_BITS;
	low = sum << (64 - TURNS_BITS) >> (64 - TURNS_BITS);
	t.unread = low;
	t.busy = (sum - low) >> TURNS_BITS;
	return t;
}

/* The bin of a number of requests in flight; collector/sizing/src/curve/bins.rs has the same. */
static __always_inline __u32 state_bin(__u32 in_flight)
{
	__u32 octave, bin;

	if (in_flight < STATE_EXACT)
		return in_flight;
	octave = log2_of(in_flight);
	/* Of 16 to 31 the octave is 4. */
	bin = STATE_EXACT + ((octave - 4) << 3) + ((in_flight >> (octave - 3)) & 7);
	return bin < STATE_BINS ? bin : STATE_BINS - 1;
}

/*
 * A listener had `in_flight` requests until now; `answered`: one of them just was. Now is when the number changes, not when the answer went
 * out: hooks of two connections run in another order than their answers went, and what is booked is the order of hooks.
 */
static __always_inline void state_left(__u32 slot, struct listener_level *level, __u64 now_ns, __s32 in_flight, __u32 answered)
{
	__u64 since_ns = __sync_lock_test_and_set(&level->changed_ns, now_ns);
	struct listener_states *states;
	struct state_cell *cell;
	__u32 bin;

	if (in_flight <= 0 || !since_ns)
		return;
	states = bpf_map_lookup_elem(&listener_states, &slot);
	bin = state_bin((__u32)in_flight);
	if (!states || bin >= STATE_BINS)
		return;
	cell = &states->cells[bin];
	__sync_fetch_and_add(&cell->time_ns, now_ns - since_ns);
	if (answered)
		__sync_fetch_and_add(&cell->answered, 1);
}

/* The workload of the running task: only for hooks that run in the task's own system call. */
static __always_inline __u64 current_cgroup(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct css_set *set = task->cgroups;
	struct cgroup_subsys_state *state = 0;
	__u32 at;

	if (!cfg_cgroup_hierarchy)
		return set->dfl_cgrp->kn->id;
	at = bpf_core_field_offset(struct css_set, subsys) +
	     bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id) * sizeof(void *);
	if (bpf_probe_read_kernel(&state, sizeof(state), (void *)set + at))
		return 0;
	return BPF_CORE_READ(state, cgroup, kn, id);
}

static __always_inline bool is_tcp(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return sk->sk_protocol == IPPROTO_TCP && (family == AF_INET || family == AF_INET6);
}

static __always_inline void v4_mapped(__u32 *address, __be32 v4)
{
	address[0] = 0;
	address[1] = 0;
	address[2] = bpf_htonl(0xffff);
	address[3] = v4;
}

static __always_inline void local_end(const struct sock_common *skc, struct listener_key *key)
{
	key->netns = skc->skc_net.net->ns.inum;
	key->port = skc->skc_num;
	key->reserved = 0;
	if (skc->skc_family == AF_INET6) {
		key->address[0] = skc->skc_v6_rcv_saddr.in6_u.u6_addr32[0];
		key->address[1] = skc->skc_v6_rcv_saddr.in6_u.u6_addr32[1];
		key->address[2] = skc->skc_v6_rcv_saddr.in6_u.u6_addr32[2];
		key->address[3] = skc->skc_v6_rcv_saddr.in6_u.u6_addr32[3];
	} else {
		v4_mapped(key->address, skc->skc_rcv_saddr);
	}
}

static __always_inline void remote_end(const struct sock_common *skc, struct edge_key *key, __u64 cgroup)
{
	key->cgroup = cgroup;
	key->netns = skc->skc_net.net->ns.inum;
	key->port = bpf_ntohs(skc->skc_dport);
	key->reserved = 0;
	if (skc->skc_family == AF_INET6) {
		key->address[0] = skc->skc_v6_daddr.in6_u.u6_addr32[0];
		key->address[1] = skc->skc_v6_daddr.in6_u.u6_addr32[1];
		key->address[2] = skc->skc_v6_daddr.in6_u.u6_addr32[2];
		key->address[3] = skc->skc_v6_daddr.in6_u.u6_addr32[3];
	} else {
		v4_mapped(key->address, skc->skc_daddr);
	}
}

/* 0.0.0.0 and :: are one wildcard. */
static __always_inline void fold_wildcard(struct listener_key *key)
{
	if (!key->address[0] && !key->address[1] && !key->address[3])
		key->address[2] = 0;
}

/* The slot of the listener that a connection with this local end came through, or SLOT_OTHER with *found = false. */
static __noinline __u32 listener_slot_of_child(struct listener_key *key, bool *found)
{
	__u32 *slot = bpf_map_lookup_elem(&listener_slots, key);

	if (!slot) {
		__builtin_memset(key->address, 0, sizeof(key->address));
		slot = bpf_map_lookup_elem(&listener_slots, key);
	}
	*found = slot != 0;
	return slot ? *slot : SLOT_OTHER;
}

static __noinline __u32 listener_slot_of_listener(struct listener_key *key)
{
	__u32 *known, slot = SLOT_OTHER;
	struct listener_name *name;

	fold_wildcard(key);
	known = bpf_map_lookup_elem(&listener_slots, key);
	if (known)
		return *known;
	if (bpf_map_pop_elem(&listener_free, &slot) || slot >= cfg_listener_entities) {
		COUNT_LOSS(listeners_folded);
		return SLOT_OTHER;
	}
	if (bpf_map_update_elem(&listener_slots, key, &slot, BPF_NOEXIST)) {
		/* Another CPU was first. */
		bpf_map_push_elem(&listener_free, &slot, BPF_ANY);
		known = bpf_map_lookup_elem(&listener_slots, key);
		return known ? *known : SLOT_OTHER;
	}
	__sync_fetch_and_add(&listeners_made, 1);
	name = bpf_map_lookup_elem(&listener_names, &slot);
	if (name) {
		__sync_fetch_and_add(&name->generation, 1);
		name->owner_cgroup = 0;
		name->owner_pid = 0;
		name->owner_from_listen = 0;
		name->key = *key;
		__sync_fetch_and_add(&name->generation, 1);
	}
	return slot;
}

static __noinline __u32 edge_slot_of(struct edge_key *key)
{
	__u32 *known = bpf_map_lookup_elem(&edge_slots, key), slot = SLOT_OTHER;
	struct edge_name *name;

	if (known)
		return *known;
	if (bpf_map_pop_elem(&edge_free, &slot) || slot >= cfg_edge_entities) {
		COUNT_LOSS(edges_folded);
		return SLOT_OTHER;
	}
	if (bpf_map_update_elem(&edge_slots, key, &slot, BPF_NOEXIST)) {
		bpf_map_push_elem(&edge_free, &slot, BPF_ANY);
		known = bpf_map_lookup_elem(&edge_slots, key);
		return known ? *known : SLOT_OTHER;
	}
	name = bpf_map_lookup_elem(&edge_names, &slot);
	if (name) {
		__sync_fetch_and_add(&name->generation, 1);
		name->key = *key;
		__sync_fetch_and_add(&name->generation, 1);
	}
	return slot;
}

/*
 * Whose listener it is: the task's that calls listen(2), unless a task of another cgroup is the first to read from a connection of it.
 * Then that one serves, and who listened only held the socket for it (socket activation).
 */
static __always_inline void listener_owned_by_current(__u32 slot, bool from_listen)
{
	struct listener_name *name = bpf_map_lookup_elem(&listener_names, &slot);
	__u64 cgroup;

	if (slot == SLOT_OTHER || !name || (name->owner_pid && !from_listen && !name->owner_from_listen))
		return;
	cgroup = current_cgroup();
	if (!from_listen && name->owner_from_listen && name->owner_cgroup == cgroup)
		return;
	__sync_fetch_and_add(&name->generation, 1);
	name->owner_cgroup = cgroup;
	name->owner_pid = bpf_get_current_pid_tgid() >> 32;
	name->owner_from_listen = from_listen;
	__sync_fetch_and_add(&name->generation, 1);
}
#endif
