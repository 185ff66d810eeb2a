// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Block I/O: requests in flight and their latency per device, what each cgroup and process submitted. Owns the block layer's
 * hooks; knows no task state (tasks that wait for I/O: sched.bpf.c) and no file.
 *
 * A request is in flight from block_io_start, when it was made, to block_io_done; a kernel without these (before 6.5) tells
 * from block_rq_issue to the block_rq_complete of its last byte. The first of each pair that fires counts. Request structures
 * are reused with their tag: an end that nobody told is found at the next start, so in-flight cannot drift.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "window_log.h"
#include "nest.h"
#include "price.h"
#include "rest.h"
#include "cgroup.h"
#include "block_records.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

LOG(device_log, device_record, NEST)
LOG(io_log, io_record, NEST)
RING(submitters_ring, submitters_record)

#define DEVICE_OTHER 0

const volatile __u32 cfg_devices = 1;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} device_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct device_state);
} device_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct block_losses);
} losses SEC(".maps");

static volatile __u32 devices_used;

struct request_state {
	__u64 since_ns;
	__u32 device;
	__u32 issued;
	struct submitter who;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct request_state);
} requests SEC(".maps");

struct event {
	struct moment m;
	__u64 now;
	__u32 writer; /* cpu * NEST + level */
};

static __always_inline struct event event_begins(void)
{
	struct event e = {};

	e.now = bpf_ktime_get_ns();
	e.m = moment_at(e.now);
	e.writer = nest_enter();
	return e;
}

static __always_inline struct device_record *device_record_of(struct event *e, __u32 device)
{
	return device_log_at(e->writer, e->writer * cfg_devices + device, &e->m);
}

static __always_inline struct io_record *io_record_of(struct event *e, __u32 slot)
{
	return io_log_at(e->writer, e->writer * cfg_entities + slot, &e->m);
}

/* Devices are few and come rarely; a slot is never given back. */
__noinline __u32 slot_of_device(__u32 device)
{
	__u32 *known = bpf_map_lookup_elem(&device_slots, &device);
	struct device_state *state;
	__u32 slot;

	if (known)
		return *known;
	slot = __sync_fetch_and_add(&devices_used, 1) + 1;
	if (slot >= cfg_devices) {
		__sync_fetch_and_add(&devices_used, -1);
		return DEVICE_OTHER;
	}
	if (bpf_map_update_elem(&device_slots, &device, &slot, BPF_NOEXIST)) {
		/* Another CPU was first: one slot of few is wasted. */
		known = bpf_map_lookup_elem(&device_slots, &device);
		return known ? *known : DEVICE_OTHER;
	}
	state = bpf_map_lookup_elem(&device_states, &slot);
	if (state)
		*(volatile __u32 *)&state->device = device;
	return slot;
}

static __always_inline void count_loss(bool stale)
{
	__u32 zero = 0;
	struct block_losses *all = bpf_map_lookup_elem(&losses, &zero);

	if (all)
		__sync_fetch_and_add(stale ? &all->stale : &all->untracked, 1);
}

static __always_inline bool is_flush(unsigned int flags)
{
	return (flags & REQ_OP_MASK) == REQ_OP_FLUSH ||
	       flags & (1U << bpf_core_enum_value(enum req_flag_bits, __REQ_PREFLUSH));
}

/* The cgroup that the I/O is for. Writeback runs in a kernel thread: then the bio says whose pages they were. */
static __always_inline __u32 slot_of_submitter(struct request *rq, struct task_struct *task)
{
	struct bio *bio = rq->bio;

	if (task->flags & PF_KTHREAD && bio && bpf_core_field_exists(bio->bi_blkg)) {
		struct cgroup *cgroup = BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup);
		__u64 id = BPF_CORE_READ(cgroup, kn, id);

		/* Where the io controller is mounted elsewhere (v1), its ids say nothing here. */
		if (id && (__u32)BPF_CORE_READ(cgroup, root, hierarchy_id) == cfg_cgroup_hierarchy)
			return slot_of_cgroup(id);
	}
	return slot_of_cgroup(cgroup_id_of(task));
}

static __noinline int request_ends(__u64 key, struct event *e, bool told)
{
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	struct device_state *all;
	struct device_record *record;
	__u32 device;
	__u64 latency;

	if (!e || !state)
		return 0;
	device = state->device;
	latency = e->now - state->since_ns;
	/* Two hooks may tell the same end on two CPUs: whoever deletes it counts. */
	if (bpf_map_delete_elem(&requests, &key))
		return 0;
	all = bpf_map_lookup_elem(&device_states, &device);
	record = device_record_of(e, device);
	if (!all || !record)
		return 0;
	__sync_fetch_and_add(&all->in_flight, -1);
	edge(&record->edges[DEVICE_IN_FLIGHT], &e->m, -1);
	if (told && (__s64)latency >= 0) {
		record->completed++;
		record->latency_ns += latency;
		max_into(record->latency_max_ns, latency);
	}
	return 0;
}

static __always_inline int request_begins(struct request *rq, struct event *e)
{
	__u64 key = (__u64)rq;
	struct task_struct *task = bpf_get_current_task_btf();
	struct request_state state = { .since_ns = e->now };
	struct gendisk *disk = rq->q->disk;
	struct device_state *all;
	struct device_record *record;
	struct io_record *io;
	__s32 in_flight;

	if (!disk)
		return 0;
	state.device = slot_of_device((__u32)disk->major << 20 | (__u32)disk->first_minor);
	state.who.slot = slot_of_submitter(rq, task);
	state.who.tgid = task->tgid;
	bpf_probe_read_kernel(state.who.comm, sizeof(state.who.comm), task->group_leader->comm);
	all = bpf_map_lookup_elem(&device_states, &state.device);
	record = device_record_of(e, state.device);
	if (!all || !record)
		return 0;
	if (bpf_map_update_elem(&requests, &key, &state, BPF_NOEXIST)) {
		count_loss(false);
		return 0;
	}
	in_flight = __sync_fetch_and_add(&all->in_flight, 1) + 1;
	edge(&record->edges[DEVICE_IN_FLIGHT], &e->m, 1);
	if (in_flight > 0)
		max_into(record->in_flight_max, (__u32)in_flight);
	io = io_record_of(e, state.who.slot);
	if (io) {
		io->requests++;
		io->flushes += is_flush(rq->cmd_flags);
	}
	return 0;
}

__noinline int submitted(const struct request_state *state, struct event *e, __u32 bytes)
{
	struct submitters_ring_copy *copy;
	struct submitters_record *record;
	struct submitter *least;
	struct io_record *io;
	__u32 index;

	if (!state || !e || !bytes)
		return 0;
	io = io_record_of(e, state->who.slot);
	if (io)
		io->bytes += bytes;
	index = e->writer;
	copy = bpf_map_lookup_elem(&submitters_ring, &index);
	if (!copy)
		return 0;
	record = submitters_ring_open(copy, &e->m);
	least = &record->submitters[0];
#pragma unroll
	for (int i = 0; i < IO_SUBMITTERS; i++) {
		struct submitter *s = &record->submitters[i];

		/* One process submits for several cgroups: writeback of theirs, or metadata of a file system for the root. */
		if (s->tgid == state->who.tgid && s->slot == state->who.slot) {
			s->bytes += bytes;
			/* It may have become another program since its first request in this window, which read that program. */
			__builtin_memcpy(s->comm, state->who.comm, sizeof(s->comm));
			return 0;
		}
		if (s->bytes < least->bytes)
			least = s;
	}
	least->over_bytes = least->bytes;
	least->bytes += bytes;
	least->tgid = state->who.tgid;
	least->slot = state->who.slot;
	__builtin_memcpy(least->comm, state->who.comm, sizeof(least->comm));
	return 0;
}

static __always_inline int io_starts(struct request *rq)
{
	struct event e = event_begins();
	__u64 key = (__u64)rq;

	if (bpf_map_lookup_elem(&requests, &key)) {
		count_loss(true);
		request_ends(key, &e, false);
	}
	if (!resting)
		request_begins(rq, &e);
	nest_exit(e.writer);
	return 0;
}

SEC("tp_btf/block_io_start")
int BPF_PROG(on_io_start, struct request *rq)
{
	return PRICED(io_starts(rq));
}

static __always_inline int issued(struct request *rq)
{
	struct event e = event_begins();
	__u64 key = (__u64)rq;
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	struct device_record *record;

	if (!state && !resting) {
		request_begins(rq, &e);
		state = bpf_map_lookup_elem(&requests, &key);
	}
	if (state && !state->issued) {
		/* Not again when the driver was busy and the request comes back. Its size is final: merging is over. */
		state->issued = 1;
		record = device_record_of(&e, state->device);
		if (record) {
			record->issued++;
			record->flushes += is_flush(rq->cmd_flags);
		}
		submitted(state, &e, rq->__data_len);
	}
	nest_exit(e.writer);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_issue, struct request *rq)
{
	return PRICED(issued(rq));
}

static __always_inline int completed(struct request *rq, unsigned int bytes)
{
	struct event e = event_begins();
	__u64 key = (__u64)rq;
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	struct device_record *record;

	if (state) {
		record = device_record_of(&e, state->device);
		if (record)
			record->bytes += bytes;
		if (bytes >= rq->__data_len)
			request_ends(key, &e, true);
	}
	nest_exit(e.writer);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_complete, struct request *rq, int error, unsigned int bytes)
{
	return PRICED(completed(rq, bytes));
}

static __always_inline int io_ends(struct request *rq)
{
	struct event e = event_begins();

	request_ends((__u64)rq, &e, true);
	nest_exit(e.writer);
	return 0;
}

SEC("tp_btf/block_io_done")
int BPF_PROG(on_io_done, struct request *rq)
{
	return PRICED(io_ends(rq));
}

/* The request became part of another one and ends without a word. */
static __always_inline int merged(struct request *rq)
{
	struct event e = event_begins();

	request_ends((__u64)rq, &e, false);
	nest_exit(e.writer);
	return 0;
}

SEC("tp_btf/block_rq_merge")
int BPF_PROG(on_merge, struct request *rq)
{
	return PRICED(merged(rq));
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(on_cgroup_rmdir, struct cgroup *cgroup)
{
	cgroup_removed(cgroup);
	return 0;
}
