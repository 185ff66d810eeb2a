/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Streams: the requests and calls of a connection of HTTP/2 whose frames are followed by their headers (net_frames.h). What turns are (net_turns.h), told of
 * several at once: a request lies unread from when its header comes until its connection is read the next time, and is in flight from then on until the
 * header of its answer goes out; a call is in flight from when its header goes out until that of its answer comes. How long a request took counts from when it came, as
 * which read it was in is not known of each. Owns the levels that hang on them; part of net_connection.h, knows no frame and no hook.
 *
 * Each that stands in a level stands in one word of its connection as well, and whoever takes it off the one takes it off the other. So what is left
 * when the connection is closed, or when it is not followed any more, is what this word says, whatever comes between.
 */
#ifndef TAILWATER_NET_STREAMS_H
#define TAILWATER_NET_STREAMS_H

#if STREAMS_ARE_COUNTED

static __always_inline bool has_streams(const struct connection *c)
{
	return c->phase == PHASE_STREAMS;
}

/*
 * What is open of a connection, in `streams` of it: requests that were read, or calls, in the lowest part; requests that nobody has read; and how often
 * any of these were read. It is added to and exchanged as one word, and taken from by comparing: so a step from one part to the other is one step for whoever
 * looks, and no part is ever below zero. Nor does one run over into the next: STREAMS_MOST is far from what it holds.
 */
#define STREAMS_PART 0xffff
#define STREAM_UNREAD (1ULL << 16)
#define STREAMS_READ (1ULL << 32)
#define STREAM_IN_FLIGHT 1ULL

/* How often a step is tried, where another CPU was in between each time. */
#define STREAM_TRIES 4

/*
 * A client may open as many as it likes, whatever its server says, and wait for none: a connection with more than this open is not followed any more, nor is one that
 * would bring those of its listener beyond what that one's level has room for.
 */
#define STREAMS_MOST 4096
#define STREAMS_OF_LISTENER_MOST (1 << (TURNS_BITS - 2))

static __always_inline __u64 streams_of(const struct connection *c)
{
	return *(const volatile __u64 *)&c->streams;
}

static __always_inline __u32 in_flight_of(__u64 streams)
{
	return streams & STREAMS_PART;
}

static __always_inline __u32 unread_of(__u64 streams)
{
	return streams / STREAM_UNREAD & STREAMS_PART;
}

static __always_inline __u32 reads_of(__u64 streams)
{
	return streams / STREAMS_READ;
}

/*
 * All that are unread were read; returns what there was before, and 0 where none was. Where others came between each time they stay unread until the next read, or
 * until they end.
 */
static __noinline __u64 streams_taken_up(struct connection *c)
{
	_Pragma("unroll") for (__u32 i = 0; i < STREAM_TRIES; i++)
	{
		__u64 were = streams_of(c), came = unread_of(were);

		if (!came)
			return 0;
		if (__sync_val_compare_and_swap(&c->streams, were, were - came * STREAM_UNREAD + came * STREAM_IN_FLIGHT + STREAMS_READ) == were)
			return were;
	}
	return 0;
}

/*
 * Takes one off, of those that came when the unread ones had been read `reads` times: it was read if any were since then. Returns which part it was in, or 0 where
 * none is left: whoever took all of them took this one, too. One that cannot be taken off would stay in flight, so its connection is given up.
 */
static __noinline __u64 stream_taken(struct connection *c, __u32 reads)
{
	_Pragma("unroll") for (__u32 i = 0; i < STREAM_TRIES; i++)
	{
		__u64 were = streams_of(c), one = STREAM_IN_FLIGHT;

		if (!in_flight_of(were) && !unread_of(were))
			return 0;
		if (unread_of(were) && (!in_flight_of(were) || reads_of(were) == reads))
			one = STREAM_UNREAD;
		if (__sync_val_compare_and_swap(&c->streams, were, were - one) == were)
			return one;
	}
	COUNT_LOSS(streams_untracked);
	c->directions.framed = FRAMES_NONE;
	return 0;
}

/* What one client does at once may be more than the record has room for. */
static __always_inline void aborted_into(struct listener_record *rec, __u32 n)
{
	__u32 aborted = rec->aborted + n;

	rec->aborted = aborted < 0xffff ? aborted : 0xffff;
}

/*
 * Functions return a number, as what is left in the register of one that returns nothing may be a pointer to the stack, which no verifier lets out. The compiler
 * makes one whose number nobody asks for return nothing again, unless somebody it does not see may call it.
 */
#define RETURNS __attribute__((used))

/*
 * The answers to those that are left will not be known: the connection is closed, or not followed any more. Of the latter none is known to have ended without an
 * answer, and `connections_unfollowed` tells of it.
 */
static __noinline RETURNS int streams_dropped(struct hook *h, struct connection *c)
{
	__u64 were = __sync_lock_test_and_set(&c->streams, 0);
	__s32 in_flight = in_flight_of(were), unread = unread_of(were);
	__u32 aborted = c->phase == PHASE_CLOSED ? in_flight : 0;

	if (!(in_flight | unread))
		return 0;
	if (c->role == ROLE_ACCEPTED) {
		struct listener_level *level = listener_level_of(c->slot);
		struct listener_record *rec = listener_now(h, c->slot);

		if (!level || !rec)
			return 0;
		state_left(c->slot, level, h->mono_ns, step_turns(h, rec, level, -in_flight, -unread, 0) + in_flight, 0);
		aborted_into(rec, aborted);
	} else {
		struct edge_level *level = edge_level_of(c->slot);
		struct edge_record *rec = edge_now(h, c->slot);

		if (!level || !rec)
			return 0;
		step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, -in_flight);
		rec->aborted += aborted;
	}
	return 0;
}

/* A request came, or a call went out. Where there are too many it is not counted, and its connection given up. */
static __noinline RETURNS int stream_began(struct hook *h, struct connection *c)
{
	__u64 open = streams_of(c);

	if (in_flight_of(open) + unread_of(open) >= STREAMS_MOST) {
		c->directions.framed = FRAMES_NONE;
		return 0;
	}
	if (c->role == ROLE_ACCEPTED) {
		struct listener_level *level = listener_level_of(c->slot);
		struct listener_record *rec = listener_now(h, c->slot);
		struct turns turns;

		if (!level || !rec)
			return 0;
		turns = turns_of(level->turns);
		if (turns.in_flight + turns.unread >= STREAMS_OF_LISTENER_MOST) {
			c->directions.framed = FRAMES_NONE;
			return 0;
		}
		__sync_fetch_and_add(&c->streams, STREAM_UNREAD);
		step_turns(h, rec, level, 0, 1, 0);
	} else {
		struct edge_level *level = edge_level_of(c->slot);
		struct edge_record *rec = edge_now(h, c->slot);
		__u32 now;

		if (!level || !rec)
			return 0;
		__sync_fetch_and_add(&c->streams, STREAM_IN_FLIGHT);
		rec->started++;
		now = step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, 1);
		max_into(rec->in_flight_max, now);
	}
	return 0;
}

/*
 * The running thread read from it, and has what came until now. Who works at it is not known, but that one thread was given several: `shared_max` says so, as
 * of an event loop.
 */
static __noinline RETURNS int streams_read(struct hook *h, struct connection *c)
{
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);
	__s32 came;
	__u64 were;
	__u32 place;

	if (!level || !rec)
		return 0;
	place = worker_place(c->slot, level);
	read_by(c, worker_at(place), place, h->mono_ns);
	were = streams_taken_up(c);
	came = unread_of(were);
	if (!came)
		return 0;
	max_into(rec->shared_max, in_flight_of(were) + came);
	rec->received += came;
	state_left(c->slot, level, h->mono_ns, step_turns(h, rec, level, came, -came, 0) - came, 0);
	return 0;
}

/*
 * One is over, `took` ns after it began; `reads` as of stream_taken(). A request that no hook has seen anybody read is over as well: its client took it back before, or
 * whoever read it did so by other ways than a system call.
 */
static __noinline RETURNS int stream_ended(struct hook *h, struct connection *c, __u32 how, __u64 took, __u32 reads)
{
	__u64 one = stream_taken(c, reads);

	if (!one)
		return 0;
	if (c->role == ROLE_ACCEPTED) {
		bool read = one == STREAM_IN_FLIGHT, answered = how == ENDED_ANSWERED;
		struct listener_level *level = listener_level_of(c->slot);
		struct listener_record *rec = listener_now(h, c->slot);
		__s32 left;

		if (!level || !rec)
			return 0;
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
			aborted_into(rec, read);
		}
	} else {
		struct edge_level *level = edge_level_of(c->slot);
		struct edge_record *rec = edge_now(h, c->slot);

		if (!level || !rec)
			return 0;
		step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, -1);
		if (how == ENDED_ANSWERED) {
			ANSWERED_INTO(rec, took);
		} else {
			rec->aborted++;
		}
	}
	return 0;
}

/* What was taken for a call is none, and has no end. */
static __noinline RETURNS int call_was_none(struct hook *h, struct connection *c)
{
	struct edge_level *level = edge_level_of(c->slot);
	struct edge_record *rec = edge_now(h, c->slot);

	if (level && rec)
		step_level(&rec->edges[EDGE_IN_FLIGHT], &level->levels[EDGE_IN_FLIGHT], h, -1);
	return 0;
}

/* The connection begins as HTTP/2 does: returns whether its streams count from now on. Not where a turn of it was answered before that. */
static __always_inline bool streams_begin(struct hook *h, struct connection *c)
{
	__u32 before = __sync_val_compare_and_swap(&c->phase, PHASE_IDLE, PHASE_STREAMS);

	/* What was written waited to be sent (TCP_CORK, a full queue), so its hook was first and took it for a call. */
	if (before == PHASE_ACTIVE && c->role == ROLE_CONNECTED) {
		before = __sync_val_compare_and_swap(&c->phase, PHASE_ACTIVE, PHASE_STREAMS);
		if (before == PHASE_ACTIVE)
			call_was_none(h, c);
		return before == PHASE_ACTIVE || before == PHASE_STREAMS;
	}
	/* Its first segment may pass on two CPUs at once. */
	return before == PHASE_IDLE || before == PHASE_STREAMS;
}

/*
 * The header of a frame was missed, and with it the way to those behind it, or one more is more than is counted: from now on nothing is known of the connection but pieces.
 * Who closes it meanwhile finds it multiplexed, and takes off what is added here last.
 */
static __noinline RETURNS int streams_lost(struct hook *h, struct connection *c)
{
	c->directions.framed = FRAMES_NONE;
	if (__sync_val_compare_and_swap(&c->phase, PHASE_STREAMS, PHASE_MULTIPLEXED) != PHASE_STREAMS)
		return 0;
	streams_dropped(h, c);
	tell(h, c, TOLD_CONNECTIONS, 1);
	COUNT_LOSS(connections_unfollowed);
	return 0;
}

/*
 * For whoever had streams begin or end, when that is done: the connection may have been closed meanwhile, or given up (here, or at a packet of the other
 * direction), by somebody who looked before.
 */
static __always_inline void streams_settled(struct hook *h, struct connection *c)
{
	if (c->directions.framed == FRAMES_NONE)
		streams_lost(h, c);
	if (c->phase != PHASE_STREAMS)
		streams_dropped(h, c);
}

#else

/* No connection has any, and nothing of the rest is in the object. */
static __always_inline bool has_streams(const struct connection *c)
{
	return false;
}

static __always_inline int streams_read(struct hook *h, struct connection *c)
{
	return 0;
}

static __always_inline int streams_dropped(struct hook *h, struct connection *c)
{
	return 0;
}

#endif
#endif
