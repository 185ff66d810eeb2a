/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Turns: a request begins when bytes are read from an idle accepted connection and ends at the first bytes written back (whether
 * that was in time is looked at again with all that is written after them); a call is the mirror image on a connected socket. Owns what an event on a connection means; knows neither listeners' queues
 * nor the maps' layout.
 *
 * The hook of a send runs when the system call ends: by then the peer may have answered, and another thread may have read that
 * answer. What was written is therefore judged by the socket's write_seq, not by the order of hooks.
 */
#ifndef TAILWATER_NET_TURNS_H
#define TAILWATER_NET_TURNS_H

/* When the stack took in the segment that it now tells of: no more than a microsecond ago, and cheaper than a clock of our own. */
static __always_inline __u64 received_ns(struct tcp_sock *tp)
{
	return tp->tcp_clock_cache;
}

/*
 * When what was written went out: the stack's own stamp, where all of it is out. What waits for the peer's window or for a larger
 * segment has no stamp yet, and then the time of the system call counts.
 */
static __always_inline __u64 sent_ns(struct tcp_sock *tp)
{
	return tp->snd_nxt == tp->write_seq ? tp->tcp_clock_cache : bpf_ktime_get_ns();
}

static __always_inline void connect_began(struct hook *h, const struct sock *sk)
{
	struct edge_key key = {};
	struct edge_record *rec;
	struct connection *c = new_connection(sk);
	__u32 slot;

	if (!c)
		return;
	remote_end(&sk->__sk_common, &key, current_cgroup());
	slot = edge_slot_of(&key);
	/* A socket may connect again after a failure. */
	if (c->role == ROLE_CONNECTED) {
		connection_closed(h, c);
		c->slot = slot;
		c->phase = PHASE_IDLE;
		c->established_ns = 0;
		c->half_closed = 0;
	} else if (!take_role(c, ROLE_CONNECTED, slot)) {
		return;
	}
	c->started_ns = h->mono_ns;
	c->caller = (__u32)bpf_get_current_pid_tgid();
	rec = edge_now(h, slot);
	if (rec)
		rec->connects++;
}

static __always_inline void connect_succeeded(struct hook *h, const struct sock *sk)
{
	struct connection *c = known_connection(sk);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock((void *)sk);

	if (!c || !tp || c->role != ROLE_CONNECTED)
		return;
	c->established_ns = h->mono_ns;
	c->seen_seq = tp->write_seq;
	directions_from(&c->directions, tp, true);
	/* Its packets are looked at from when it has its number on. */
	barrier();
	c->cookie = pair_of(tp->write_seq, tp->rcv_nxt);
	met(c, false);
	if (elapsed_ns(c->started_ns, h->mono_ns) >= SLOW_TURN_NS)
		slow_outward(h, c, c->started_ns, SLOW_CONNECT, ENDED_ANSWERED);
	connected_opened(h, c->slot, true);
}

static __always_inline void child_arrived(struct hook *h, const struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock((void *)sk);
	struct listener_key key = {};
	struct connection *c;
	bool found = false;
	__u32 slot;

	if (!tp || known_connection(sk))
		return; /* simultaneous open */
	local_end(&sk->__sk_common, &key);
	slot = listener_slot_of_child(&key, &found);
	if (!found)
		return; /* the push that follows makes its listener known */
	c = new_connection(sk);
	if (!c || !take_role(c, ROLE_ACCEPTED, slot))
		return;
	c->established_ns = h->mono_ns;
	c->started_ns = attempt_succeeded(h, sk, slot);
	directions_from(&c->directions, tp, true);
	/* As of one that was dialled. */
	barrier();
	c->cookie = pair_of(tp->rcv_nxt, tp->write_seq);
	met(c, true);
	accepted_opened(h, slot, true);
}

static __always_inline void fin_sent(struct hook *h, struct connection *c, const struct sock *sk, int state)
{
	/* shutdown(SHUT_WR) behind a request: its answer can still come. */
	if (c->role == ROLE_CONNECTED && state != TCP_CLOSE && sk->sk_shutdown != SHUTDOWN_MASK) {
		c->half_closed = 1;
		return;
	}
	connection_closed(h, c);
}

/* Accepted before the agent came. */
static __always_inline struct connection *accepted_before(struct hook *h, const struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock((void *)sk);
	struct listener_key key = {};
	struct connection *c;
	bool found = false;
	__u32 slot;

	local_end(&sk->__sk_common, &key);
	slot = listener_slot_of_child(&key, &found);
	if (!found || !tp)
		return 0;
	c = new_connection(sk);
	if (c && take_role(c, ROLE_ACCEPTED, slot)) {
		c->used = 1;
		directions_from(&c->directions, tp, false);
		barrier();
		met_before(c, tp, true);
		accepted_opened(h, slot, false);
	}
	return c;
}

/*
 * Whether a listener made this socket. sk_clone_lock() copies the listener's limit and nothing clears it; a socket that connects has none.
 * A port says nothing: servers listen at ports that are given to connecting sockets, too. Wrong for listen(2) with a limit of 0.
 */
static __always_inline bool was_accepted(const struct sock *sk)
{
	return sk->sk_max_ack_backlog != 0;
}

/* Without a listener, and another has become known since it was looked for. */
static __always_inline bool worth_another_look(const struct connection *c)
{
	return c->role == ROLE_UNKNOWN && c->looked != listeners_made + 1;
}

/*
 * A connection seen first in the middle: accepted through a listener, or connected by the workload that uses it now. Where the agent may
 * not look into the connection's network namespace, its listener is known from the next connection that it takes.
 */
static __noinline struct connection *connection_before(struct hook *h, struct sock *sk)
{
	struct connection *c = known_connection(sk);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	__u8 state = sk->__sk_common.skc_state;
	__u32 looked = listeners_made + 1;
	struct edge_key key = {};
	__u32 slot;

	if (!tp || (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT))
		return 0;
	if (c)
		__sync_val_compare_and_swap(&c->role, ROLE_UNKNOWN, ROLE_NEW);
	c = accepted_before(h, sk);
	if (c)
		return c;
	c = new_connection(sk);
	if (!c)
		return 0;
	if (was_accepted(sk)) {
		if (!c->looked)
			COUNT_LOSS(connections_unknown);
		c->looked = looked;
		take_role(c, ROLE_UNKNOWN, 0);
		return c;
	}
	remote_end(&sk->__sk_common, &key, current_cgroup());
	slot = edge_slot_of(&key);
	if (take_role(c, ROLE_CONNECTED, slot)) {
		c->established_ns = h->mono_ns;
		directions_from(&c->directions, tp, false);
		barrier();
		met_before(c, tp, false);
		connected_opened(h, slot, false);
	}
	return c;
}

static __always_inline void first_use(struct hook *h, struct connection *c, bool waited)
{
	struct listener_level *level = listener_level_of(c->slot);
	struct listener_record *rec = listener_now(h, c->slot);

	c->used = 1;
	listener_owned_by_current(c->slot, false);
	if (!level || !rec)
		return;
	accepted_maxima(rec, level);
	/* The depth was last seen up to a tick ago, but this connection left the queue. */
	max_into(rec->open_max, 1U);
	if (waited && c->established_ns)
		max_into(rec->wait_max_ns, h->mono_ns - c->established_ns);
}

/* The common cases that need neither the time nor a record: more of a request, more of an answer, nothing to follow. */
static __always_inline bool read_changes_nothing(struct connection *c, struct tcp_sock *tp)
{
	if (c->phase > PHASE_ACTIVE || c->role == ROLE_UNKNOWN)
		return !worth_another_look(c);
	if (c->role == ROLE_ACCEPTED)
		return c->phase == PHASE_ACTIVE && c->unread == UNREAD_NONE && tp->write_seq == c->seen_seq;
	return c->role == ROLE_CONNECTED && c->phase == PHASE_IDLE && (tp->write_seq == c->seen_seq || c->half_closed);
}

/*
 * A few bytes after a silence are no part of an answer: the alert with which TLS ends an idle connection, a ping, a farewell at a time-out (the
 * longest that is known, MySQL's, has 150). To be asked before piece_went().
 */
#define UNASKED_BYTES 256
#define UNASKED_NS 500000000ULL
static __always_inline bool is_unasked(const struct connection *c, const struct tcp_sock *tp, int length)
{
	/* A farewell may take two writes: what the server says, and TLS' alert behind it. */
	return length < UNASKED_BYTES && (c->unasked || elapsed_ns(c->directions.out.at_ns, tp->tcp_clock_cache) > UNASKED_NS);
}

static __always_inline bool write_changes_nothing(struct connection *c, struct tcp_sock *tp, bool unasked)
{
	if (c->phase > PHASE_ACTIVE || c->role == ROLE_UNKNOWN)
		return !worth_another_look(c);
	if (c->role == ROLE_ACCEPTED)
		return c->phase == PHASE_IDLE && c->used && (!c->bounds || unasked || !passes_a_bound(c, sent_ns(tp)));
	if (c->role != ROLE_CONNECTED || c->phase == PHASE_IDLE)
		return false;
	c->seen_seq = tp->write_seq; /* more of the same call */
	return true;
}

static __always_inline void data_read(struct hook *h, struct connection *c, struct sock *sk, struct tcp_sock *tp)
{
	bool fresh = !c || c->role == ROLE_NEW || c->role == ROLE_UNKNOWN;
	__u32 written;

	if (fresh)
		c = connection_before(h, sk);
	if (!c || c->phase > PHASE_ACTIVE)
		return;
	written = tp->write_seq;
	if (c->role == ROLE_ACCEPTED) {
		__u32 unread = unread_taken(c);

		if (!c->used)
			first_use(h, c, unread == UNREAD_QUEUED);
		if (c->phase == PHASE_ACTIVE) {
			if (written == c->seen_seq) {
				unread_off(h, c, unread);
				return; /* more of the same request */
			}
			/* Answered, although the hook of that send has not run yet. */
			if (__sync_val_compare_and_swap(&c->phase, PHASE_ACTIVE, PHASE_IDLE) == PHASE_ACTIVE)
				request_ended(h, c, ENDED_ANSWERED);
		}
		if (becomes_multiplexed(h, c))
			unread_off(h, c, unread);
		else
			request_began(h, c, written, unread);
		return;
	}
	if (c->role != ROLE_CONNECTED)
		return;
	if (fresh) {
		c->seen_seq = written; /* the answer to a call that was not seen */
		return;
	}
	if (c->phase == PHASE_IDLE && written != c->seen_seq && !c->half_closed)
		call_began(h, c, written); /* the hook of that send has not run yet */
	if (__sync_val_compare_and_swap(&c->phase, PHASE_ACTIVE, PHASE_IDLE) != PHASE_ACTIVE)
		return; /* the server speaks unasked, or goes on */
	c->seen_seq = written;
	call_ended(h, c, ENDED_ANSWERED);
	becomes_multiplexed(h, c);
}

static __always_inline void data_written(struct hook *h, struct connection *c, struct sock *sk, struct tcp_sock *tp)
{
	bool fresh = !c || c->role == ROLE_NEW || c->role == ROLE_UNKNOWN;
	__u32 written;

	if (fresh)
		c = connection_before(h, sk);
	if (!c || c->phase > PHASE_ACTIVE)
		return;
	written = tp->write_seq;
	if (c->role == ROLE_ACCEPTED) {
		if (!c->used)
			first_use(h, c, true); /* the server speaks first */
		if (c->phase != PHASE_ACTIVE) {
			answer_went_on(h, c);
			return;
		}
		if (written == c->seen_seq)
			return;
		if (__sync_val_compare_and_swap(&c->phase, PHASE_ACTIVE, PHASE_IDLE) != PHASE_ACTIVE)
			return;
		request_ended(h, c, ENDED_ANSWERED);
		if (unread_bytes(sk, tp))
			unread_began(h, c, UNREAD_ACCEPTED);
		return;
	}
	if (c->role != ROLE_CONNECTED)
		return;
	if (c->phase == PHASE_IDLE) {
		if (fresh || written != c->seen_seq)
			call_began(h, c, written);
	} else {
		c->seen_seq = written; /* more of the same call */
	}
}

static __always_inline void segment_resent(struct hook *h, const struct sock *sk)
{
	struct connection *c = known_connection(sk);
	struct edge_record *rec;

	if (!c || c->role != ROLE_CONNECTED)
		return;
	rec = edge_now(h, c->slot);
	if (!rec)
		return;
	if (sk->__sk_common.skc_state == TCP_SYN_SENT) {
		__u64 first = h->at.unix_ns - (h->mono_ns - c->started_ns);

		rec->syn_retransmits++;
		if (!rec->first_try_unix_ns || first < rec->first_try_unix_ns)
			rec->first_try_unix_ns = first;
	} else {
		rec->data_retransmits++;
	}
}

/* A listener that was there before: its owner is the cgroup that made the socket (cgroup v2 alone keeps that). */
static __always_inline void listener_found(__u32 slot, struct sock *sk)
{
	struct listener_name *name = bpf_map_lookup_elem(&listener_names, &slot);

	if (slot == SLOT_OTHER || !name || name->owner_cgroup || cfg_cgroup_hierarchy ||
	    !bpf_core_field_exists(sk->sk_cgrp_data))
		return;
	__sync_fetch_and_add(&name->generation, 1);
	name->owner_cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id);
	__sync_fetch_and_add(&name->generation, 1);
}
#endif
