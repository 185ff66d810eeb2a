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
	ROLE_UNKNOWN, /* accepted before the agent came, by a listener that is not known: ignored until there are others */
};
enum phase {
	PHASE_IDLE,
	PHASE_ACTIVE, /* a request was read, or a call sent, and not yet answered */
	PHASE_MULTIPLEXED, /* several exchanges at once: no turns are told of it, but pieces, bytes and silence (net_multiplexed.h) */
	PHASE_STREAMS, /* several as well, each of which is known by the headers of its frames (net_frames.h): neither turns nor pieces are told */
	PHASE_CLOSED,
};
/* Whether the headers of a connection's frames are read, where they are (net_frames.h). */
enum framed {
	FRAMES_UNKNOWN, /* nothing was seen of it yet */
	FRAMES_FOLLOWED,
	FRAMES_NONE, /* it has none, or some were missed: no packet of it is looked at any more */
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

/* What one direction of a connection did, by the stack's own stamps and numbers. */
struct direction {
	__u64 at_ns; /* its last piece; 0: none yet, 1: before it was seen first */
	__u32 seq; /* up to where */
	__u32 from; /* where the run of pieces began that nothing in the other direction came between */
};
struct directions {
	struct direction in;
	struct direction out;
	__u16 crossings; /* scores, see is_multiplexed */
	__u8 in_split;
	__u8 out_split;
	__u8 seen; /* since the turn began: SEEN_* */
	__u8 out_alone; /* the last piece out was a small one, apart from the one before */
	__u8 came; /* the last piece in: CAME_* */
	__u8 framed; /* FRAMES_*; here because it begins anew with each connection of a socket */
};

struct connection {
	__u64 started_ns; /* the turn; before a connect is established, its first SYN; before an accepted one is used, its last ACK, if that was dropped */
	__u64 established_ns; /* 0: not seen */
	__u64 arrived_ns; /* the first byte of the request that is unread or under way; where that was not seen, when it was read */
	__u64 cookie; /* of a listener; of a connection, the number that both of its ends have (pair_of) */
	__u32 slot;
	__u32 role;
	__u32 phase;
	__u32 unread;
	union {
		__u32 worker; /* accepted: place of the thread that read the request, plus 1; 0: not tracked */
		__u32 caller; /* connected: the thread that dialled, or sent the call */
	};
	__u32 seen_seq; /* what was written up to where this side's turn began */
	__u8 used; /* a read or write was seen */
	__u8 half_closed;
	__u8 unasked; /* the last piece that went out was no part of an answer */
	__u8 waited_as; /* of the request that was read last, or of streams that are read first, how it had been unread: UNREAD_* */
	__u32 looked; /* ROLE_UNKNOWN: listeners_made when its listener was looked for, plus 1; of others, pairs_made when its pair was */
	__u32 unanswered; /* multiplexed: pieces that were asked since there was an answer */
	__u32 bounds; /* of the answer that was given last, those that it has not passed: BOUND_* */
#if STREAMS_ARE_COUNTED
	__u64 streams; /* PHASE_STREAMS: requests and calls that have no answer (net_streams.h) */
#endif
	struct directions directions;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

/* User space frees the entries of threads that are gone. Direct-mapped with a few places to go: no hash on the way of a request. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WORKERS);
	__type(key, __u32);
	__type(value, struct worker);
} workers SEC(".maps");

/* Turns that took long. User space reads them once a window, so that none of them wakes it. */
#define BPF_RB_NO_WAKEUP 1 /* include/uapi/linux/bpf.h */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 128 * 1024);
} slow_turns SEC(".maps");

/*
 * `phase`: of its connection now; one that is no turn any more did not end. `place`: of the thread that read the request, plus 1. Global: a verifier walks it
 * once.
 */
__noinline int slow_turn_told(struct slow_turn *turn, __u32 phase, __u32 place)
{
	__u32 at = place - 1;
	struct worker *worker = bpf_map_lookup_elem(&workers, &at);

	if (!turn || phase == PHASE_MULTIPLEXED)
		return 0;
	if (worker) {
		turn->began_by = (__u32)worker->key;
		turn->shared = worker->held > 1;
	}
	if (bpf_ringbuf_output(&slow_turns, turn, sizeof(*turn), BPF_RB_NO_WAKEUP))
		COUNT_LOSS(slow_turns);
	return 0;
}

/* A call, or a connection that was dialled, has ended. `began_ns`: when that began, as the next one may have begun since. */
static __always_inline void slow_outward(struct hook *h, struct connection *c, __u64 began_ns, __u32 of, __u32 how)
{
	struct slow_turn turn = {
		.cookie = c->cookie,
		.began_ns = began_ns,
		.ended_ns = h->mono_ns,
		.slot = c->slot,
		.began_by = c->caller,
		.ended_by = (__u32)bpf_get_current_pid_tgid(),
		.of = of,
		.aborted = how,
	};

	slow_turn_told(&turn, c->phase, 0);
}

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

/* As tcp_inq(): a received FIN takes one sequence number. */
static __always_inline bool unread_bytes(const struct sock *sk, const struct tcp_sock *tp)
{
	__s32 unread = tp->rcv_nxt - tp->copied_seq;

	if (sk->__sk_common.skc_state == TCP_CLOSE_WAIT)
		unread--;
	return unread > 0;
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

/*
 * Adds to the levels of requests, and to the record what they are worth until its end: one atomic for all three. Returns how many requests
 * are in flight now.
 */
static __always_inline __s32 step_turns(struct hook *h, struct listener_record *rec, struct listener_level *level, __s64 in_flight,
					__s64 unread, __s64 busy)
{
	__s64 step = in_flight + (unread << TURNS_BITS) + (busy << 2 * TURNS_BITS);
	struct turns now;

	if (in_flight)
		edge(&rec->edges[LISTENER_IN_FLIGHT], &h->at, in_flight);
	if (unread)
		edge(&rec->edges[LISTENER_UNREAD], &h->at, unread);
	if (busy)
		edge(&rec->edges[LISTENER_BUSY], &h->at, busy);
	now = turns_of(__sync_fetch_and_add(&level->turns, step) + step);
	if (in_flight > 0 && now.in_flight > 0)
		max_into(rec->in_flight_max, (__u32)now.in_flight);
	if (unread > 0 && now.unread > 0)
		max_into(rec->unread_max, (__u32)now.unread);
	if (busy > 0 && now.busy > 0)
		max_into(rec->busy_max, (__u32)now.busy);
	return now.in_flight;
}

static __always_inline void step_unread(struct hook *h, struct listener_record *rec, struct listener_level *level, __u32 kind,
					__s32 step)
{
	if (kind == UNREAD_QUEUED)
		step_level(&rec->edges[LISTENER_UNREAD_QUEUED], &level->levels[LISTENER_UNREAD_QUEUED], h, step);
	else if (kind == UNREAD_ACCEPTED)
		step_turns(h, rec, level, 0, step, 0);
}

/* What it was; whoever gets another answer than UNREAD_NONE takes it off the level. */
static __always_inline __u32 unread_taken(struct connection *c)
{
	return c->unread == UNREAD_NONE ? UNREAD_NONE : __sync_lock_test_and_set(&c->unread, UNREAD_NONE);
}

/*
 * Whether bytes that come first on a connection were sent before it was there: its last ACK was dropped, and with it whatever its client, for which
 * it existed, sent. That comes again after pauses each of which is twice the one before: no later after the ACK that was taken than that had waited.
 * What comes later was sent later.
 */
static __always_inline bool was_sent_before(const struct connection *c, __u64 now_ns)
{
	return !c->used && c->started_ns && c->established_ns &&
	       elapsed_ns(c->established_ns, now_ns) <= elapsed_ns(c->started_ns, c->established_ns);
}

static __always_inline void unread_began(struct hook *h, struct connection *c, __u32 kind)
{
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);

	if (!level || !rec)
		return;
	if (c->unread == UNREAD_NONE)
		c->arrived_ns = was_sent_before(c, h->mono_ns) ? c->started_ns : h->mono_ns;
	if (__sync_val_compare_and_swap(&c->unread, UNREAD_NONE, kind) == UNREAD_NONE)
		step_unread(h, rec, level, kind, 1);
	/* The reader, or whoever closed it, looked before that. */
	if (c->phase == PHASE_ACTIVE || c->phase == PHASE_CLOSED)
		step_unread(h, rec, level, unread_taken(c), -1);
}

static __always_inline void unread_off(struct hook *h, struct connection *c, __u32 taken)
{
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);

	if (level && rec)
		step_unread(h, rec, level, taken, -1);
}

static __always_inline void unread_ended(struct hook *h, struct connection *c)
{
	unread_off(h, c, unread_taken(c));
}

/* The place of the running thread in the table, plus 1; 0: all its places are taken by others. */
#define WORKER_PLACES 4
#define WORKER_PLACE(tid, slot, i) (((tid) + (slot)*977 + (i)*4099) % WORKERS)
static __always_inline __u32 worker_place(__u32 slot, struct listener_level *level)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), at;
	__u64 key = (__u64)slot << 32 | tid;
	struct worker *w;

	_Pragma("unroll") for (__u32 i = 0; i < WORKER_PLACES; i++)
	{
		at = WORKER_PLACE(tid, slot, i);
		w = bpf_map_lookup_elem(&workers, &at);
		if (w && w->key == key)
			return at + 1;
	}
	_Pragma("unroll") for (__u32 i = 0; i < WORKER_PLACES; i++)
	{
		at = WORKER_PLACE(tid, slot, i);
		w = bpf_map_lookup_elem(&workers, &at);
		if (w && __sync_val_compare_and_swap(&w->key, 0, key) == 0) {
			__sync_fetch_and_add(&level->workers_seen, 1);
			w->connections = 0;
			w->connections_max = 0;
			w->loop_score = 0;
			return at + 1;
		}
	}
	COUNT_LOSS(workers_untracked);
	return 0;
}

static __always_inline struct worker *worker_at(__u32 place)
{
	__u32 at = place - 1;

	return place ? bpf_map_lookup_elem(&workers, &at) : 0;
}

/* A lost step is as good as none: the scores of two threads are written by both. */
static __always_inline void taken_over(struct worker *w)
{
	if (w->loop_score > -LOOP_SCORE_MOST)
		w->loop_score -= LOOP_TAKEN;
}

/* The running thread, `w`, reads a request from a connection that it was the last to read from, or that is its own from now on. */
static __always_inline void read_by(struct connection *c, struct worker *w, __u32 place, __u64 now)
{
	struct worker *before;

	if (c->worker == place) {
		if (w && w->connections > 1 && w->loop_score < LOOP_SCORE_MOST)
			w->loop_score++;
	} else {
		before = worker_at(__sync_lock_test_and_set(&c->worker, place));
		if (before) {
			__sync_fetch_and_add(&before->connections, -1);
			taken_over(before);
		}
		if (w) {
			max_into(w->connections_max, (__u32)(__sync_fetch_and_add(&w->connections, 1) + 1));
			if (before)
				taken_over(w);
		}
	}
	if (w)
		w->read_ns = now;
}

/* A request was read by the running thread, and with it what was unread until now. */
static __noinline void request_began(struct hook *h, struct connection *c, __u32 seq, __u32 unread)
{
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);
	__s32 holds = 0, off = unread == UNREAD_ACCEPTED ? -1 : 0;
	struct worker *worker;
	__u32 place;

	if (!level || !rec)
		return;
	if (unread == UNREAD_QUEUED)
		step_unread(h, rec, level, unread, -1);
	place = worker_place(c->slot, level);
	worker = worker_at(place);
	c->seen_seq = seq;
	c->bounds = 0;
	c->unasked = 0;
	c->waited_as = unread;
	c->started_ns = h->mono_ns;
	if (unread == UNREAD_NONE)
		c->arrived_ns = h->mono_ns;
	read_by(c, worker, place, h->mono_ns);
	if (__sync_val_compare_and_swap(&c->phase, PHASE_IDLE, PHASE_ACTIVE) != PHASE_IDLE) {
		if (off)
			step_turns(h, rec, level, 0, -1, 0);
		return;
	}
	rec->received++;
	if (worker) {
		holds = __sync_fetch_and_add(&worker->held, 1) + 1;
		max_into(rec->shared_max, (__u32)holds);
	}
	state_left(c->slot, level, h->mono_ns, step_turns(h, rec, level, 1, off, holds == 1) - 1, 0);
}

/* An answer after `took` ns, of a request or of a call: both records have these fields. */
#define ANSWERED_INTO(rec, took)                                                                                         \
	({                                                                                                               \
		__u32 _bucket = log2_us(took, RESPONSE_BUCKETS);                                                         \
                                                                                                                         \
		(rec)->answered++;                                                                                       \
		(rec)->response_ns += (took);                                                                            \
		max_into((rec)->response_max_ns, took);                                                                  \
		if (_bucket < RESPONSE_BUCKETS)                                                                          \
			(rec)->response_hist[_bucket]++;                                                                 \
	})

/* How long an answer may take, from the first byte of its request to its own last one. */
#define BOUND_LATE 1
#define BOUND_VERY_LATE 2
#define BOUND_VERY_LONG 4
#define BOUNDS_ALL (BOUND_LATE | BOUND_VERY_LATE | BOUND_VERY_LONG)

/* What is called very long everywhere: a client whose SYN was dropped waits that long at least. */
#ifndef VERY_LONG_NS
#define VERY_LONG_NS 1000000000ULL
#endif

/* 1 if `took` is more than `most`, without a branch: what the verifier has to follow here doubles with each. */
static __always_inline __u32 is_over(__u64 took, __u64 most)
{
	return (most - took) >> 63;
}

/* Of these bounds, those that are not over after `took`. */
static __always_inline __u32 bounds_kept(__u32 bounds, __u64 took)
{
	return bounds & ~(is_over(took, cfg_late_us * 1000ULL) * BOUND_LATE | is_over(took, cfg_very_late_us * 1000ULL) * BOUND_VERY_LATE |
			  is_over(took, VERY_LONG_NS - 1) * BOUND_VERY_LONG);
}

/*
 * When a request was where: to be taken before its answer is counted, because the next request may be read on another CPU as soon as it is.
 */
struct stations {
	__u64 established_ns;
	__u64 arrived_ns;
	__u64 read_ns;
	__u32 waited_as;
};
#define STATIONS_OF(c) {(c)->established_ns, (c)->arrived_ns, (c)->started_ns, (c)->waited_as}

/* Counts an answer that took very long, `now_ns`, by where most of that time went. */
static __always_inline void very_long_into(struct listener_record *rec, const struct stations *at, __u64 now_ns)
{
	__u64 inside = elapsed_ns(at->read_ns, now_ns), waited = elapsed_ns(at->arrived_ns, at->read_ns), retried = 0;

	/* What came before the connection was there, see was_sent_before(). */
	if (at->established_ns && elapsed_ns(at->established_ns, at->read_ns))
		retried = elapsed_ns(at->arrived_ns, at->established_ns);
	waited = elapsed_ns(retried, waited);
	if (inside >= waited && inside >= retried)
		rec->very_long_inside++;
	else if (retried > waited)
		rec->very_long_retried++;
	else if (at->waited_as == UNREAD_QUEUED)
		rec->very_long_queued++;
	else
		rec->very_long_unread++;
}

/* The last thing that is done with an answer. */
static __always_inline void bounds_passed(struct listener_record *rec, __u32 passed, const struct stations *at, __u64 now_ns)
{
	rec->late += passed & BOUND_LATE;
	rec->very_late += (passed & BOUND_VERY_LATE) / BOUND_VERY_LATE;
	if (passed & BOUND_VERY_LONG)
		very_long_into(rec, at, now_ns);
}

/* Whether an answer that was still in time when it began is not any more, `now_ns`. What came since then is another request, of another time. */
static __always_inline bool passes_a_bound(const struct connection *c, __u64 now_ns)
{
	return c->bounds && c->unread == UNREAD_NONE &&
	       bounds_kept(c->bounds, elapsed_ns(c->arrived_ns, now_ns)) != c->bounds;
}

/* More of an answer was written. Each bound is counted once, by whoever takes it off. */
static __noinline void answer_went_on(struct hook *h, struct connection *c)
{
	struct listener_record *rec = listener_now(h, c->slot);
	struct stations at = STATIONS_OF(c);
	__u32 before = c->bounds, kept;

	if (!rec || !passes_a_bound(c, h->mono_ns))
		return;
	kept = bounds_kept(before, elapsed_ns(c->arrived_ns, h->mono_ns));
	if (__sync_val_compare_and_swap(&c->bounds, before, kept) == before)
		bounds_passed(rec, before & ~kept, &at, h->mono_ns);
}

/* For whoever took the connection out of PHASE_ACTIVE. */
static __noinline void request_ended(struct hook *h, struct connection *c, __u32 how)
{
	__u64 took = elapsed_ns(c->started_ns, h->mono_ns), waited = elapsed_ns(c->arrived_ns, h->mono_ns);
	struct stations at = STATIONS_OF(c);
	struct listener_record *rec;
	struct listener_level *level;
	__u32 place = c->worker, at_place = place - 1;
	struct worker *worker;
	__s32 left;

	/* First: what a verifier has to follow from here on is the same then, whether it took long or not. */
	if (waited >= SLOW_TURN_NS) {
		struct slow_turn turn = {
			.cookie = c->cookie,
			.established_ns = at.established_ns,
			.arrived_ns = at.arrived_ns,
			.began_ns = at.read_ns,
			.ended_ns = h->mono_ns,
			.slot = c->slot,
			.ended_by = (__u32)bpf_get_current_pid_tgid(),
			.of = SLOW_REQUEST,
			.aborted = how,
			.waited_as = at.waited_as,
		};

		slow_turn_told(&turn, c->phase, place);
	}
	level = listener_level_of(c->slot);
	rec = listener_now(h, c->slot);
	/* As worker_at(), with a way less for a verifier to follow: none is at the place before the first. */
	worker = bpf_map_lookup_elem(&workers, &at_place);
	if (!level || !rec)
		return;
	left = step_turns(h, rec, level, -1, 0, worker && __sync_fetch_and_add(&worker->held, -1) == 1 ? -1 : 0);
	state_left(c->slot, level, bpf_ktime_get_ns(), left + 1, how == ENDED_ANSWERED);
	if (how == ENDED_ANSWERED) {
		__u32 kept = bounds_kept(BOUNDS_ALL, waited);

		ANSWERED_INTO(rec, took);
		c->bounds = kept;
		bounds_passed(rec, BOUNDS_ALL & ~kept, &at, h->mono_ns);
	} else {
		rec->aborted++;
	}
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
	c->caller = (__u32)bpf_get_current_pid_tgid();
	if (__sync_val_compare_and_swap(&c->phase, PHASE_IDLE, PHASE_ACTIVE) != PHASE_IDLE)
		return;
	rec->started++;
	now = step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, 1);
	max_into(rec->in_flight_max, now);
}

static __noinline void call_ended(struct hook *h, struct connection *c, __u32 how)
{
	__u64 began_ns = c->started_ns, took = elapsed_ns(began_ns, h->mono_ns);
	struct edge_record *rec;
	struct edge_level *level;

	if (took >= SLOW_TURN_NS)
		slow_outward(h, c, began_ns, SLOW_CALL, how);
	level = edge_level_of(c->slot);
	rec = edge_now(h, c->slot);
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

#include "net_multiplexed.h"
#include "net_streams.h"
#include "net_meetings.h"

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
	else if (before == PHASE_MULTIPLEXED)
		multiplexed_ended(h, c);
	else if (STREAMS_ARE_COUNTED && before == PHASE_STREAMS)
		streams_dropped(h, c);
	meeting_noted(c->cookie, c->slot, c->role == ROLE_ACCEPTED, true);
	if (c->role == ROLE_ACCEPTED) {
		struct listener_level *level = listener_level_of(c->slot);
		struct worker *reader = worker_at(c->worker);
		struct listener_record *rec;

		if (reader)
			__sync_fetch_and_add(&reader->connections, -1);
		unread_ended(h, c);
		rec = listener_now(h, c->slot);
		if (!level || !rec)
			return;
		step_level(&rec->edges[LISTENER_OPEN], &level->levels[LISTENER_OPEN], h, -1);
	} else if (c->established_ns) {
		struct edge_level *level = edge_level_of(c->slot);
		struct edge_record *rec = edge_now(h, c->slot);

		if (level && rec)
			step_level(&rec->edges[EDGE_OPEN], &level->levels[EDGE_OPEN], h, -1);
	} else if (elapsed_ns(c->started_ns, h->mono_ns) >= SLOW_TURN_NS) {
		slow_outward(h, c, c->started_ns, SLOW_CONNECT, ENDED_ABORTED);
	}
}
#endif
