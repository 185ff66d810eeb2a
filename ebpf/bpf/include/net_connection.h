/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One connection's state: whose it is, whether it is open, whether a turn is under way. Lives in socket storage and dies with the
 * socket. Owns every change of phase and of the levels that hang on it; knows no hook.
 *
 * Hooks of one socket run on several CPUs at once (a reader, a writer, the softirq that delivers), so phase, unread and role change
 * by atomic exchange only, and whoever made the change books it: no level can be released twice or leak.
 */
#ifndef TAILWATER_NET_CONNECTION_H
#define TAILWATER_NET_CONNECTION_H

enum role {
	ROLE_NEW,
	ROLE_ACCEPTED, /* slot: the listener */
	ROLE_CONNECTED, /* slot: the edge */
	ROLE_LISTENER, /* slot: itself; `cookie` */
	ROLE_UNKNOWN, /* older than the agent, and neither side recognisable: ignored */
};
enum phase {
	PHASE_IDLE,
	PHASE_ACTIVE, /* a request was read, or a call sent, and not yet answered */
	PHASE_MULTIPLEXED, /* directions interleave: counted by connection */
	PHASE_CLOSED,
};
enum unread {
	UNREAD_NONE,
	UNREAD_ACCEPTED,
	UNREAD_QUEUED,
};
enum ended {
	ENDED_ANSWERED,
	ENDED_ABORTED,
};

struct connection {
	__u64 started_ns; /* the turn; before a connect is established, its first SYN */
	__u64 established_ns; /* 0: not seen */
	__u64 cookie;
	__u32 slot;
	__u32 role;
	__u32 phase;
	__u32 unread;
	__u32 worker; /* thread that read the request, 0: not tracked */
	__u32 seen_seq; /* what was written up to where this side's turn began */
	__u8 interleaved; /* score, see turn_began */
	__u8 crossed; /* data came in while data that we sent was not acknowledged */
	__u8 used; /* a read or write was seen */
	__u8 half_closed;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

struct worker_key {
	__u32 tid;
	__u32 slot;
};

/* Requests that a thread holds. User space removes threads that are gone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct worker_key);
	__type(value, __s32);
} workers SEC(".maps");

static __always_inline struct connection *known_connection(const struct sock *sk)
{
	return bpf_sk_storage_get(&connections, (void *)sk, 0, 0);
}

static __always_inline struct connection *new_connection(const struct sock *sk)
{
	struct connection *c = bpf_sk_storage_get(&connections, (void *)sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!c)
		COUNT_LOSS(connections_untracked);
	return c;
}

static __always_inline struct listener_level *listener_level_of(__u32 slot)
{
	return bpf_map_lookup_elem(&listener_levels, &slot);
}

static __always_inline struct edge_level *edge_level_of(__u32 slot)
{
	return bpf_map_lookup_elem(&edge_levels, &slot);
}

/* Only the caller that wins the role counts the connection as open. `slot` may be written by several, all with the same value. */
static __always_inline bool take_role(struct connection *c, __u32 role, __u32 slot)
{
	if (c->role != ROLE_NEW)
		return false;
	c->slot = slot;
	return __sync_val_compare_and_swap(&c->role, ROLE_NEW, role) == ROLE_NEW;
}

static __always_inline void accepted_opened(struct hook *h, __u32 slot, bool arrived)
{
	struct listener_level *level = listener_level_of(slot);
	struct listener_record *rec = listener_now(h, slot);

	if (!level || !rec)
		return;
	/* open_max is taken at pushes and ticks: here the connection is established, but not yet in the accept queue. */
	step_level(&rec->edges[LISTENER_OPEN], &level->levels[LISTENER_OPEN], h, 1);
	if (arrived)
		rec->arrivals++;
}

static __always_inline void connected_opened(struct hook *h, __u32 slot, bool established)
{
	struct edge_level *level = edge_level_of(slot);
	struct edge_record *rec = edge_now(h, slot);
	__u32 open;

	if (!level || !rec)
		return;
	open = step_level(&rec->edges[EDGE_OPEN], &level->levels[EDGE_OPEN], h, 1);
	max_into(rec->open_max, open);
	if (established)
		rec->established++;
}

static __always_inline void unread_began(struct hook *h, struct connection *c, __u32 kind)
{
	__u32 which = kind == UNREAD_QUEUED ? LISTENER_UNREAD_QUEUED : LISTENER_UNREAD;
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);
	__u32 unread;

	if (!level || !rec || __sync_val_compare_and_swap(&c->unread, UNREAD_NONE, kind) != UNREAD_NONE)
		return;
	unread = step_level(&rec->edges[which], &level->levels[which], h, 1);
	if (kind == UNREAD_ACCEPTED)
		max_into(rec->unread_max, unread);
}

/* Returns what it was. */
static __always_inline __u32 unread_ended(struct hook *h, struct connection *c)
{
	__u32 kind, which;
	struct listener_level *level;
	struct listener_record *rec;

	if (c->unread == UNREAD_NONE)
		return UNREAD_NONE;
	level = listener_level_of(c->slot);
	rec = listener_now(h, c->slot);
	if (!level || !rec)
		return UNREAD_NONE;
	kind = __sync_lock_test_and_set(&c->unread, UNREAD_NONE);
	if (kind == UNREAD_NONE)
		return kind;
	which = kind == UNREAD_QUEUED ? LISTENER_UNREAD_QUEUED : LISTENER_UNREAD;
	step_level(&rec->edges[which], &level->levels[which], h, -1);
	return kind;
}

static __always_inline __s32 *worker_of(__u32 tid, __u32 slot, struct listener_level *level)
{
	struct worker_key key = { .tid = tid, .slot = slot };
	__s32 none = 0, *held = bpf_map_lookup_elem(&workers, &key);

	if (held)
		return held;
	if (!bpf_map_update_elem(&workers, &key, &none, BPF_NOEXIST))
		__sync_fetch_and_add(&level->workers_seen, 1);
	held = bpf_map_lookup_elem(&workers, &key);
	if (!held)
		COUNT_LOSS(workers_untracked);
	return held;
}

/* A request was read, by the running thread. */
static __noinline void request_began(struct hook *h, struct connection *c, __u32 seq)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), now;
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);
	__s32 *held, holds;

	if (!level || !rec)
		return;
	held = worker_of(tid, c->slot, level);
	c->seen_seq = seq;
	c->started_ns = h->mono_ns;
	c->worker = held ? tid : 0;
	if (__sync_val_compare_and_swap(&c->phase, PHASE_IDLE, PHASE_ACTIVE) != PHASE_IDLE)
		return;
	rec->received++;
	now = step_level(&rec->edges[LISTENER_IN_FLIGHT], &level->levels[LISTENER_IN_FLIGHT], h, 1);
	max_into(rec->in_flight_max, now);
	if (!held)
		return;
	holds = __sync_fetch_and_add(held, 1) + 1;
	max_into(rec->shared_max, (__u32)holds);
	if (holds == 1) {
		now = step_level(&rec->edges[LISTENER_BUSY], &level->levels[LISTENER_BUSY], h, 1);
		max_into(rec->busy_max, now);
	}
}

/* An answer after `took` ns, of a request or of a call: both records have these fields. */
#define ANSWERED_INTO(rec, took)                                                                                         \
	({                                                                                                               \
		__u32 _bucket = log2_us(took);                                                                           \
                                                                                                                         \
		(rec)->answered++;                                                                                       \
		(rec)->response_ns += (took);                                                                            \
		max_into((rec)->response_max_ns, took);                                                                  \
		if (_bucket < HIST_BUCKETS)                                                                              \
			(rec)->response_hist[_bucket]++;                                                                 \
	})

/* For whoever took the connection out of PHASE_ACTIVE. */
static __noinline void request_ended(struct hook *h, struct connection *c, __u32 how)
{
	struct worker_key key = { .tid = c->worker, .slot = c->slot };
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);
	__u64 took = h->mono_ns - c->started_ns;
	__s32 *held;

	if (!level || !rec)
		return;
	step_level(&rec->edges[LISTENER_IN_FLIGHT], &level->levels[LISTENER_IN_FLIGHT], h, -1);
	if (how == ENDED_ANSWERED) {
		ANSWERED_INTO(rec, took);
	} else {
		rec->aborted++;
	}
	if (!key.tid)
		return;
	held = bpf_map_lookup_elem(&workers, &key);
	if (held && __sync_fetch_and_add(held, -1) == 1)
		step_level(&rec->edges[LISTENER_BUSY], &level->levels[LISTENER_BUSY], h, -1);
}

static __noinline void call_began(struct hook *h, struct connection *c, __u32 seq)
{
	struct edge_level *level = edge_level_of(c->slot);
	struct edge_record *rec = edge_now(h, c->slot);
	__u32 now;

	if (!level || !rec)
		return;
	c->seen_seq = seq;
	c->started_ns = h->mono_ns;
	if (__sync_val_compare_and_swap(&c->phase, PHASE_IDLE, PHASE_ACTIVE) != PHASE_IDLE)
		return;
	rec->started++;
	now = step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, 1);
	max_into(rec->in_flight_max, now);
}

static __noinline void call_ended(struct hook *h, struct connection *c, __u32 how)
{
	struct edge_level *level = edge_level_of(c->slot);
	struct edge_record *rec = edge_now(h, c->slot);
	__u64 took = h->mono_ns - c->started_ns;

	if (!level || !rec)
		return;
	step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, -1);
	if (how == ENDED_ANSWERED) {
		ANSWERED_INTO(rec, took);
	} else {
		rec->aborted++;
	}
}

static __always_inline void turn_ended(struct hook *h, struct connection *c, __u32 how)
{
	if (c->role == ROLE_ACCEPTED)
		request_ended(h, c, how);
	else
		call_ended(h, c, how);
}

static __noinline void step_multiplexed(struct hook *h, __u32 slot, __s32 step)
{
	struct listener_level *level = listener_level_of(slot);
	struct listener_record *rec = listener_now(h, slot);

	if (level && rec)
		step_level(&rec->edges[LISTENER_MULTIPLEXED], &level->levels[LISTENER_MULTIPLEXED], h, step);
}

/*
 * Directions interleave when data comes in before what we sent was acknowledged: in a request/response protocol the peer has
 * received the whole answer before it sends the next request, and its segment says so. Score 2 for a turn where it happened,
 * -1 for a clean one: an early answer to an upload or a late session ticket does not make a connection multiplexed. Returns
 * whether the connection became so.
 */
#define INTERLEAVED 8
static __always_inline bool interleaves(struct hook *h, struct connection *c)
{
	__u32 before;

	if (!c->crossed) {
		if (c->interleaved)
			c->interleaved--;
		return false;
	}
	c->crossed = 0;
	c->interleaved += 2;
	if (c->interleaved < INTERLEAVED)
		return false;
	c->interleaved = 0;
	before = __sync_lock_test_and_set(&c->phase, PHASE_MULTIPLEXED);
	if (before == PHASE_CLOSED) {
		c->phase = PHASE_CLOSED;
		return true;
	}
	if (before == PHASE_ACTIVE)
		turn_ended(h, c, ENDED_ABORTED);
	if (before != PHASE_MULTIPLEXED && c->role == ROLE_ACCEPTED)
		step_multiplexed(h, c->slot, 1);
	return true;
}

/* This side sent its FIN, or the connection is gone. Any number of calls count once. */
static __noinline void connection_closed(struct hook *h, struct connection *c)
{
	__u32 before;

	if (c->role != ROLE_ACCEPTED && c->role != ROLE_CONNECTED)
		return;
	before = __sync_lock_test_and_set(&c->phase, PHASE_CLOSED);
	if (before == PHASE_CLOSED)
		return;
	if (before == PHASE_ACTIVE)
		turn_ended(h, c, ENDED_ABORTED);
	if (c->role == ROLE_ACCEPTED) {
		struct listener_level *level = listener_level_of(c->slot);
		struct listener_record *rec;

		unread_ended(h, c);
		rec = listener_now(h, c->slot);
		if (!level || !rec)
			return;
		step_level(&rec->edges[LISTENER_OPEN], &level->levels[LISTENER_OPEN], h, -1);
		if (before == PHASE_MULTIPLEXED)
			step_multiplexed(h, c->slot, -1);
	} else if (c->established_ns) {
		struct edge_level *level = edge_level_of(c->slot);
		struct edge_record *rec = edge_now(h, c->slot);

		if (level && rec)
			step_level(&rec->edges[EDGE_OPEN], &level->levels[EDGE_OPEN], h, -1);
	}
}
#endif
