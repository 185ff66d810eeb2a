/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Connections that carry several exchanges at once (HTTP/2, gRPC, WebSocket, brokers): by what they are recognised without a look at what
 * they carry, and what can be said of them. Part of net_connection.h; knows no hook.
 *
 * The order of reads and writes alone says nothing: any order of them can be a request in parts, and an answer in parts. Three things cannot
 * be, or not for long, on a connection that takes turns, as each is something said that did not wait for what the other had said:
 *
 * Crossing. Whoever takes turns has the whole answer before it asks again, so its segment acknowledges the answer. One that does not was
 * sent by somebody who had not waited for it. Between machines that is every exchange that overlaps; on one machine, where an
 * acknowledgement is a matter of microseconds, one of some hundred. Where turns are taken it is never, but for an answer that comes before
 * its request is whole: what then crosses follows what was sent before at once, or comes in full segments.
 *
 * Speaking over. On one machine a sender's softirq hands each segment to the peer's stack before send(2) returns, and an acknowledgement
 * says what that stack has, not what its program has read. A client that asks anew with each answer (HTTP/2 in a closed loop) then looks
 * like one that takes turns: out, in, out, in. But its program, or the server's, now and then speaks while words of the other lie there
 * unread. Whoever takes turns never does, between two turns: who asks again has read the whole answer, and an answer that goes on has no
 * next request behind it. Words that acknowledge what is being sent came after it, whatever the order of hooks, and do not count.
 *
 * Speaking first, both. Of a protocol that takes turns one end opens the conversation and the other waits for it. Where the first words of
 * each were sent before any of the other's had come, or had been read, neither waited (HTTP/2's settings, SSH). Once is enough.
 *
 * Splitting is no evidence, but says how much of it is asked for. Small pieces, apart from each other, with nothing in the other direction
 * between them: several requests before the first answer, several answers before the next request; or a header and then its body, and an answer
 * that is streamed. Both directions in parts, again and again, are how exchanges at will look where nothing of them crosses, and how HTTP/1.1 may
 * look for ever. What the two differ in is that of the former something does cross, now and then: half as many crossings are enough there.
 *
 * An answer that begins before its request is whole crosses the rest of that, too. Where the rest is small and apart from the header, and
 * that is so in each of some exchanges in a row, it looks like a second question, and nothing but the words themselves says that it is none.
 *
 * What one end knows the other one knows as well, where both are on this machine: they find each other by the sequence numbers that they began
 * with (`pairs`).
 *
 * A pipeline whose batch is answered as one, and a poll that waits, are turns. A multiplexed connection that has one exchange at a time is
 * indistinguishable from one that takes turns, and its turns are true. So is one whose client sends a batch of exchanges in one piece, waits for
 * all of them, and gets them in one piece: its turns are true of the batch, and nothing on the wire but the words themselves says how
 * many exchanges were in it.
 */
#ifndef TAILWATER_NET_MULTIPLEXED_H
#define TAILWATER_NET_MULTIPLEXED_H

/* Pieces that follow each other sooner than this (300 us) may be one that was sent in parts: two system calls in a row, or a full link. */
#define APART_NS 300000ULL
/* A segment that is smaller than this ended because its sender had no more to say. */
#define FULL_BYTES 1200
/* A run of pieces that is longer than this is one large message in parts. */
#define RUN_BYTES 16000

enum {
	SEEN_CROSSING = 1,
	SEEN_IN_SPLIT = 2,
	SEEN_OUT_SPLIT = 4,
};

/* Of the last piece that came. */
enum {
	CAME_SMALL = 1,
	CAME_BEFORE = 2, /* it acknowledged nothing that is still being sent: what this side says next, it did not wait for */
};

/*
 * A turn with a crossing weighs as much as so many without one: one in two hundred is enough, and four of them in few turns. Where both directions
 * come in parts, two of them in 264 turns: one alone can be a word that nobody asked for, and such a connection may last for a million turns.
 */
#define CROSSING 512
#define CROSSINGS 2000
#define CROSSINGS_IN_PARTS 760

/* Adds a piece of `direction` that reaches up to `seq`; returns whether it was small, and apart from the one before. */
static __always_inline bool piece_added(struct directions *d, struct direction *to, const struct direction *other, __u64 at_ns,
					__u32 seq, __u8 split)
{
	bool apart = at_ns - to->at_ns >= APART_NS, alone = apart && seq - to->seq < FULL_BYTES;

	if (to->at_ns <= other->at_ns)
		to->from = to->seq;
	else if (apart && seq - to->from < RUN_BYTES)
		d->seen |= split;
	to->at_ns = at_ns;
	to->seq = seq;
	return alone;
}

/*
 * Pairs of initial sequence numbers, of connections that one end has found to be multiplexed. Direct-mapped: who is overwritten before its other
 * end looked is found by that end's own rules, or not at all. `pairs_made` spares that look where nothing was found since.
 */
#define PAIRS 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PAIRS);
	__type(key, __u32);
	__type(value, __u64);
} pairs SEC(".maps");

__u32 pairs_made;

static __always_inline __u64 pair_of(__u32 connected_seq, __u32 accepted_seq)
{
	return (__u64)connected_seq << 32 | accepted_seq;
}

/* Both numbers are random; of the map's own size there are many. */
static __always_inline __u32 pair_place(__u64 pair)
{
	return (__u32)(pair ^ pair >> 32) % PAIRS;
}

static __always_inline bool other_end_knows(struct connection *c)
{
	__u32 made = pairs_made, at;
	__u64 *known;

	if (c->looked == made || !c->cookie)
		return false;
	c->looked = made;
	at = pair_place(c->cookie);
	known = bpf_map_lookup_elem(&pairs, &at);
	return known && *known == c->cookie;
}

static __always_inline void other_end_may_know(const struct connection *c)
{
	__u32 at = pair_place(c->cookie);
	__u64 *known = bpf_map_lookup_elem(&pairs, &at);

	if (!known || !c->cookie)
		return;
	*known = c->cookie;
	__sync_fetch_and_add(&pairs_made, 1);
}

/* Where both directions stand when a connection is first seen; `begins`: neither has spoken yet. */
static __always_inline void directions_from(struct directions *d, const struct tcp_sock *tp, bool begins)
{
	__builtin_memset(d, 0, sizeof(*d));
	d->in.seq = d->in.from = tp->rcv_nxt;
	d->out.seq = d->out.from = tp->write_seq;
	d->in.at_ns = d->out.at_ns = !begins;
	/* Where its first header was is known of none that has begun. */
	d->framed = begins ? FRAMES_UNKNOWN : FRAMES_NONE;
}

static __always_inline void both_spoke_first(struct directions *d)
{
	d->crossings += CROSSINGS;
	d->seen |= SEEN_CROSSING;
}

static __always_inline void piece_came(struct connection *c, struct tcp_sock *tp)
{
	struct directions *d = &c->directions;
	__u32 acknowledged = tp->snd_una;
	bool first = !d->in.at_ns, alone;

	d->came = (tp->rcv_nxt - d->in.seq < FULL_BYTES ? CAME_SMALL : 0) |
		  ((__s32)(acknowledged - d->out.seq) <= 0 ? CAME_BEFORE : 0);
	/* How far it reaches is written behind what it is: see piece_went(). */
	barrier();
	alone = piece_added(d, &d->in, &d->out, tp->tcp_clock_cache, tp->rcv_nxt, SEEN_IN_SPLIT);
	if (acknowledged == tp->write_seq || c->half_closed)
		return;
	/* Who accepted sees whether what came was sent too early; who connected, whether what it sent was too late to be answered by it. */
	if (c->role == ROLE_ACCEPTED ? alone : d->out_alone)
		d->seen |= SEEN_CROSSING;
	if (first && acknowledged == d->out.from)
		both_spoke_first(d);
}

/* Before the turn that this piece may begin, or end. */
static __always_inline void piece_went(struct connection *c, const struct sock *sk, struct tcp_sock *tp)
{
	struct directions *d = &c->directions;
	/*
	 * The hook of a send holds no lock, and the answer may come while it runs, on another CPU: its bytes are in the socket some hundred
	 * nanoseconds before its own hook says what came. So unread is only what that hook has seen, and it is asked before what that was.
	 */
	bool unread = (__s32)(*(volatile __u32 *)&d->in.seq - tp->copied_seq) > 0 && unread_bytes(sk, tp);

	barrier();
	if (c->phase == PHASE_IDLE && (d->came & CAME_BEFORE) && unread) {
		if (!d->out.at_ns)
			both_spoke_first(d);
		/* Large pieces may be parts of one message, which can be answered before it is whole. */
		else if (c->role == ROLE_ACCEPTED ? d->came & CAME_SMALL : tp->write_seq - d->out.seq < FULL_BYTES)
			d->seen |= SEEN_CROSSING;
	}
	d->out_alone = piece_added(d, &d->out, &d->in, tp->tcp_clock_cache, tp->write_seq, SEEN_OUT_SPLIT);
}

/* More pieces than this that one connection left unanswered are a stream that wants no answers. */
#define UNANSWERED_MOST 1024

enum told {
	TOLD_CONNECTIONS, /* a step of these two levels */
	TOLD_UNANSWERED,
	TOLD_IN, /* a piece of so many bytes */
	TOLD_OUT,
};

/* Both records and both levels have these fields. */
#define TOLD_INTO(h, rec, level, unanswered, what, n)                                                                    \
	({                                                                                                               \
		__s32 _was, _now;                                                                                        \
                                                                                                                         \
		if ((what) == TOLD_CONNECTIONS) {                                                                        \
			_was = __sync_fetch_and_add(&(level)->multiplexed, n);                                           \
			_now = _was + (n) > _was ? _was + (n) : _was;                                                    \
			max_into((rec)->multiplexed_max, _now > 0 ? (__u32)_now : 0);                                    \
		} else if ((what) == TOLD_UNANSWERED) {                                                                  \
			_now = step_level(&(rec)->edges[unanswered], &(level)->levels[unanswered], h, n);                \
			max_into((rec)->unanswered_max, (__u32)_now);                                                    \
		} else if ((what) == TOLD_IN) {                                                                          \
			(rec)->pieces_in++;                                                                              \
			(rec)->bytes_in += (__u32)(n);                                                                   \
		} else if ((what) == TOLD_OUT) {                                                                         \
			(rec)->pieces_out++;                                                                             \
			(rec)->bytes_out += (__u32)(n);                                                                  \
		}                                                                                                        \
	})

/* A function for each, as every place that opens a record is a kilobyte of program. */
static __noinline void told_of_listener(struct hook *h, __u32 slot, __u32 what, __s32 n)
{
	struct listener_level *level = listener_level_of(slot);
	struct listener_record *rec = listener_now(h, slot);

	if (level && rec)
		TOLD_INTO(h, rec, level, LISTENER_UNANSWERED, what, n);
}

static __noinline void told_of_edge(struct hook *h, __u32 slot, __u32 what, __s32 n)
{
	struct edge_level *level = edge_level_of(slot);
	struct edge_record *rec = edge_now(h, slot);

	if (level && rec)
		TOLD_INTO(h, rec, level, EDGE_UNANSWERED, what, n);
}

static __always_inline void tell(struct hook *h, const struct connection *c, __u32 what, __s32 n)
{
	if (c->role == ROLE_ACCEPTED)
		told_of_listener(h, c->slot, what, n);
	else
		told_of_edge(h, c->slot, what, n);
}

static __noinline void answers_settled(struct hook *h, struct connection *c)
{
	__u32 settled = c->unanswered ? __sync_lock_test_and_set(&c->unanswered, 0) : 0;

	if (settled)
		tell(h, c, TOLD_UNANSWERED, -(__s32)settled);
}

/* For whoever took the connection out of PHASE_MULTIPLEXED. */
static __noinline void multiplexed_ended(struct hook *h, struct connection *c)
{
	answers_settled(h, c);
	tell(h, c, TOLD_CONNECTIONS, -1);
}

/* A piece went by: what asks (in where we accepted, out where we connected) is unanswered until something goes the other way. */
static __noinline void multiplexed_moved(struct hook *h, struct connection *c, __u32 what, __u32 bytes)
{
	tell(h, c, what, (__s32)bytes);
	if ((what == TOLD_IN) != (c->role == ROLE_ACCEPTED)) {
		answers_settled(h, c);
		return;
	}
	if (c->unanswered >= UNANSWERED_MOST)
		return;
	__sync_fetch_and_add(&c->unanswered, 1);
	tell(h, c, TOLD_UNANSWERED, 1);
	if (c->phase == PHASE_CLOSED)
		answers_settled(h, c);
}

/*
 * The running thread read from it, and left nothing behind if `all`. As of turns, data that nobody reads is unread, and whoever reads is a
 * loop that comes back: how many exchanges were in it does not matter to either.
 */
static __noinline void multiplexed_read(struct hook *h, struct connection *c, bool all)
{
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);
	__u32 place;

	if (!level || !rec)
		return;
	rec->pieces_read++;
	place = worker_place(c->slot, level);
	read_by(c, worker_at(place), place, h->mono_ns);
	if (all)
		step_unread(h, rec, level, unread_taken(c), -1);
}

/* A turn with a split weighs as much as so many without: a quarter of the turns. It takes eight in a row. */
#define SPLIT 3
#define SPLITS 24

static __always_inline __u8 split_score(__u8 score, bool split)
{
	if (split)
		return score < 2 * SPLITS ? score + SPLIT : score;
	return score ? score - 1 : 0;
}

/* At the beginning of each turn of who accepted, and at the end of each of who connected; it counts what was seen since the one before. */
static __always_inline bool is_multiplexed(struct directions *d)
{
	__u8 seen = d->seen;
	bool in_parts;

	d->seen = 0;
	if (seen & SEEN_CROSSING)
		d->crossings += CROSSING;
	else if (d->crossings)
		d->crossings--;
	d->in_split = split_score(d->in_split, seen & SEEN_IN_SPLIT);
	d->out_split = split_score(d->out_split, seen & SEEN_OUT_SPLIT);
	in_parts = d->in_split >= SPLITS && d->out_split >= SPLITS;
	return d->crossings >= (in_parts ? CROSSINGS_IN_PARTS : CROSSINGS);
}

/*
 * Returns whether the connection has become multiplexed, or was closed meanwhile. It stays so until it is closed: a phase that was closed is never
 * left again, not for a moment either, as whoever closes it next would take that moment's phase off the levels once more.
 */
static __always_inline bool becomes_multiplexed(struct hook *h, struct connection *c)
{
	__u32 before;

	if (!is_multiplexed(&c->directions) && !other_end_knows(c))
		return false;
	before = __sync_val_compare_and_swap(&c->phase, PHASE_IDLE, PHASE_MULTIPLEXED);
	if (before == PHASE_ACTIVE) {
		/* Another thread began a turn. If that is over by now, the next one tells as much as this. */
		before = __sync_val_compare_and_swap(&c->phase, PHASE_ACTIVE, PHASE_MULTIPLEXED);
		if (before == PHASE_IDLE)
			return false;
		if (before == PHASE_ACTIVE)
			turn_ended(h, c, ENDED_ABORTED);
	}
	if (before <= PHASE_ACTIVE) {
		tell(h, c, TOLD_CONNECTIONS, 1);
		other_end_may_know(c);
	}
	return true;
}
#endif
