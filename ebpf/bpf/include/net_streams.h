/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Streams: the requests and calls of a connection of HTTP/2 whose frames are followed by their headers (net_frames.h). What turns are (net_turns.h), told of
 * several at once: a request lies unread from when its header comes until its connection is read the next time, and is in flight from then on until the
 * header of its answer goes out; a call is in flight from when its header goes out until that of its answer comes. How long a request took counts from when it came, as
 * which read it was in is not known of each. Owns the levels that hang on them; part of net_connection.h, knows no frame and no hook.
 *
 * Each that stands in a level stands in one of two numbers of its connection as well, and whoever takes it off the one takes it off the other. So what is left
 * when the connection is closed, or when it is not followed any more, is what these two numbers say, whatever comes between.
 */
#ifndef TAILWATER_NET_STREAMS_H
#define TAILWATER_NET_STREAMS_H

/* Whether they are counted at all. Known when a program is verified: where they are not, what follows of it is not looked at. */
#ifndef STREAMS_ARE_COUNTED
#define STREAMS_ARE_COUNTED 0
#endif
const volatile __u32 cfg_frame_headers = STREAMS_ARE_COUNTED;

static __always_inline bool has_streams(const struct connection *c)
{
	return cfg_frame_headers && c->phase == PHASE_STREAMS;
}

/* Takes one off, if there is one. Who took all of them at once took this one, too. */
static __always_inline bool stream_taken(__u32 *of)
{
	if ((__s32)__sync_fetch_and_add(of, -1) > 0)
		return true;
	__sync_fetch_and_add(of, 1);
	return false;
}

/* The answers to those that are left will not be known: the connection is closed, or not followed any more. */
static __noinline void streams_dropped(struct hook *h, struct connection *c)
{
	__s32 open = __sync_lock_test_and_set(&c->streams, 0), unread = __sync_lock_test_and_set(&c->unread_streams, 0);

	/* Below zero for a moment, see stream_taken(). */
	open = open > 0 ? open : 0;
	unread = unread > 0 ? unread : 0;
	if (!(open | unread))
		return;
	if (c->role == ROLE_ACCEPTED) {
		struct listener_level *level = listener_level_of(c->slot);
		struct listener_record *rec = listener_now(h, c->slot);

		if (!level || !rec)
			return;
		state_left(c->slot, level, h->mono_ns, step_turns(h, rec, level, -open, -unread, 0) + open, 0);
		rec->aborted += open;
	} else {
		struct edge_level *level = edge_level_of(c->slot);
		struct edge_record *rec = edge_now(h, c->slot);

		if (!level || !rec)
			return;
		step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, -open);
		rec->aborted += open;
	}
}

/* A request came, or a call went out. */
static __noinline void stream_began(struct hook *h, struct connection *c)
{
	if (c->role == ROLE_ACCEPTED) {
		struct listener_level *level = listener_level_of(c->slot);
		struct listener_record *rec = listener_now(h, c->slot);

		if (!level || !rec)
			return;
		__sync_fetch_and_add(&c->unread_streams, 1);
		step_turns(h, rec, level, 0, 1, 0);
	} else {
		struct edge_level *level = edge_level_of(c->slot);
		struct edge_record *rec = edge_now(h, c->slot);
		__u32 now;

		if (!level || !rec)
			return;
		__sync_fetch_and_add(&c->streams, 1);
		rec->started++;
		now = step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, 1);
		max_into(rec->in_flight_max, now);
	}
	/* Whoever closed it looked before that. */
	if (c->phase != PHASE_STREAMS)
		streams_dropped(h, c);
}

/*
 * The running thread read from it, and has what came until now. Who works at it is not known, but that one thread was given several: `shared_max` says so, as
 * of an event loop.
 */
static __noinline void streams_read(struct hook *h, struct connection *c)
{
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);
	__s32 came, now;
	__u32 place;

	if (!level || !rec)
		return;
	place = worker_place(c->slot, level);
	read_by(c, worker_at(place), place, h->mono_ns);
	came = __sync_lock_test_and_set(&c->unread_streams, 0);
	if (came <= 0)
		return;
	now = __sync_fetch_and_add(&c->streams, came) + came;
	if (now > 0)
		max_into(rec->shared_max, (__u32)now);
	rec->received += came;
	state_left(c->slot, level, h->mono_ns, step_turns(h, rec, level, came, -came, 0) - came, 0);
	if (c->phase != PHASE_STREAMS)
		streams_dropped(h, c);
}

/*
 * One is over, `took` ns after it began. A request that no hook has seen anybody read is over as well: its client took it back before, or whoever read it did
 * so by other ways than a system call.
 */
static __noinline void stream_ended(struct hook *h, struct connection *c, __u32 how, __u64 took)
{
	if (c->role == ROLE_ACCEPTED) {
		bool read = stream_taken(&c->streams), answered = how == ENDED_ANSWERED;
		struct listener_level *level;
		struct listener_record *rec;
		__s32 left;

		if (!read && !stream_taken(&c->unread_streams))
			return;
		level = listener_level_of(c->slot);
		rec = listener_now(h, c->slot);
		if (!level || !rec)
			return;
		left = step_turns(h, rec, level, -(__s64)read, (__s64)read - 1, 0);
		state_left(c->slot, level, h->mono_ns, left + read, answered);
		if (answered) {
			__u32 passed = BOUNDS_ALL & ~bounds_kept(BOUNDS_ALL, took);

			ANSWERED_INTO(rec, took);
			rec->received += !read;
			rec->late += passed & BOUND_LATE;
			rec->very_late += (passed & BOUND_VERY_LATE) / BOUND_VERY_LATE;
			/* Where it was meanwhile is not known. */
			rec->very_long_inside += (passed & BOUND_VERY_LONG) / BOUND_VERY_LONG;
		} else {
			rec->aborted += read;
		}
	} else {
		struct edge_level *level = edge_level_of(c->slot);
		struct edge_record *rec = edge_now(h, c->slot);

		if (!level || !rec || !stream_taken(&c->streams))
			return;
		step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, -1);
		if (how == ENDED_ANSWERED) {
			ANSWERED_INTO(rec, took);
		} else {
			rec->aborted++;
		}
	}
}

/* The connection begins as HTTP/2 does: returns whether its streams count from now on. Not where a turn of it was answered before that. */
static __always_inline bool streams_begin(struct hook *h, struct connection *c)
{
	__u32 before = __sync_val_compare_and_swap(&c->phase, PHASE_IDLE, PHASE_STREAMS);

	if (before != PHASE_ACTIVE || c->role != ROLE_CONNECTED)
		return before == PHASE_IDLE;
	/* What was written waited to be sent (TCP_CORK, a full queue), so its hook was first and took it for a call. */
	if (__sync_val_compare_and_swap(&c->phase, PHASE_ACTIVE, PHASE_STREAMS) != PHASE_ACTIVE)
		return false;
	__sync_fetch_and_add(&c->streams, 1);
	stream_ended(h, c, ENDED_ABORTED, 0);
	return true;
}

/*
 * The header of a frame was missed, and with it the way to those behind it: from now on nothing is known of it but pieces. Who closes it meanwhile finds it multiplexed, and
 * takes off what is added here last.
 */
static __noinline void streams_lost(struct hook *h, struct connection *c)
{
	c->directions.framed = FRAMES_NONE;
	if (__sync_val_compare_and_swap(&c->phase, PHASE_STREAMS, PHASE_MULTIPLEXED) != PHASE_STREAMS)
		return;
	streams_dropped(h, c);
	tell(h, c, TOLD_CONNECTIONS, 1);
	COUNT_LOSS(connections_unfollowed);
}
#endif
