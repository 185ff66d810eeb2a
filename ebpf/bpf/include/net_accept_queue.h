/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Listening sockets: their accept queue and their drop counter. Owns the table of them, the timer (or the iterator) that samples it
 * and the drop events; knows no request.
 *
 * A SYN that meets a full accept queue is dropped without any tracepoint; the truth is the socket's own sk_drops, read from
 * the timer. But sk_drops also counts segments that a listener discards in good health: the bare ACK of each handshake under
 * TCP_DEFER_ACCEPT (Apache's default), a SYN that came twice. Those pass kfree_skb with no reason given, and are subtracted.
 *
 * The last ACK of a handshake that meets a full queue is counted twice there (tcp_listendrop, then sk_drops_skbadd), and once if it
 * answers a SYN cookie. A window's `drops` keeps that, beside drops_final_ack and drops_cookie; a drop event also has the packets:
 * each once, as the network namespace's ListenDrops counts them (tcp_listendrop alone raises that).
 *
 * The table holds pointers: before each use the socket must still be in TCP_LISTEN with the cookie it had.
 */
#ifndef TAILWATER_NET_ACCEPT_QUEUE_H
#define TAILWATER_NET_ACCEPT_QUEUE_H

const volatile __u32 cfg_tick_ns = 5000000;
/* Whether this kernel gives programs a timer. Where it does not (PREEMPT_RT), user space reads the iterator net_tick as often. */
const volatile __u32 cfg_timer = 1;

/* A count that may read too high for a moment, and what of it was believed. */
struct believed {
	__u32 told;
	__u32 least; /* since it rose above that */
	__u32 looks; /* since then */
};

struct listen_socket {
	__u64 sk;
	__u32 slot;
	__u32 first_drops; /* sk_drops when the socket was taken in */
	__u32 sk_drops; /* at the look before */
	__u32 discarded; /* counted in sk_drops since, and no drop */
	__u32 twice; /* packets dropped since that sk_drops counts twice */
	struct believed drops;
	struct believed packets;
	__u32 depth;
	__u32 limit;
	__u32 unborn; /* looks at which it did not listen yet */
	__u32 was_full; /* looks for which its queue still counts as full */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* socket cookie */
	__type(value, struct listen_socket);
} listen_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} drop_events SEC(".maps");

struct tick {
	struct bpf_timer timer;
	__u32 started;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tick);
} ticks SEC(".maps");

/* 100 ms: a hypervisor rarely takes a CPU for longer. */
#define LOOKS_FOR_SURE 20

/* What one look at a listening socket saw. */
struct sighting {
	__u32 depth;
	__u32 limit;
	bool pushed; /* at a push into its queue */
};

/* Whether net_dropped is attached, so that `discarded` can be trusted. Set by user space. */
struct net_control {
	__u64 discards_seen;
};
ARRAY_OF(net_control, struct net_control);

/* A rise of the drop counter, as sk_drops counts it and in packets. */
struct rise {
	__u32 count;
	__u32 packets;
};

static __always_inline void report_drop(struct hook *h, __u32 slot, struct rise rise, const struct sighting *seen)
{
	struct drop_event *event = bpf_ringbuf_reserve(&drop_events, sizeof(*event), 0);

	if (!event) {
		COUNT_LOSS(drop_events);
		return;
	}
	event->unix_ns = h->at.unix_ns;
	event->slot = slot;
	event->count = rise.count;
	event->depth = seen->depth;
	event->limit = seen->limit;
	event->packets = rise.packets;
	event->reserved = 0;
	bpf_ringbuf_submit(event, 0);
}

/*
 * Accepted connections beside the requests that workers hold: open ones, and ones with bytes that nobody reads. Their bytes may
 * have come before accept(2), which no hook sees; but no more than `depth` of those can still be in the queue.
 */
static __always_inline void accepted_maxima(struct listener_record *rec, struct listener_level *level)
{
	__s32 depth = level->levels[LISTENER_DEPTH], open = level->levels[LISTENER_OPEN] - depth;
	__s32 queued = level->levels[LISTENER_UNREAD_QUEUED] - depth, unread = turns_of(level->turns).unread;

	if (queued > 0)
		unread += queued;
	if (unread > 0)
		max_into(rec->unread_max, (__u32)unread);
	if (open > 0)
		max_into(rec->open_max, (__u32)open);
}

static __noinline void listener_sighted(struct hook *h, struct listen_socket *ls, struct sighting *seen)
{
	struct listener_level *level = listener_level_of(ls->slot);
	struct listener_record *rec;
	__u32 depth_was, limit_was, depth;

	if (!level)
		return;
	if (!seen->pushed && seen->depth == ls->depth && seen->limit == ls->limit && !seen->depth &&
	    level->levels[LISTENER_UNREAD_QUEUED] <= 0)
		return;
	rec = listener_now(h, ls->slot);
	if (!rec)
		return;
	limit_was = __sync_lock_test_and_set(&ls->limit, seen->limit);
	if (limit_was != seen->limit)
		__sync_fetch_and_add(&level->limit, seen->limit - limit_was);
	rec->limit = level->limit;
	if (seen->depth >= seen->limit)
		ls->was_full = LOOKS_FOR_SURE;
	depth_was = __sync_lock_test_and_set(&ls->depth, seen->depth);
	depth = step_level(&rec->edges[LISTENER_DEPTH], &level->levels[LISTENER_DEPTH], h, (__s32)(seen->depth - depth_was));
	/* With one socket the queue itself is the truth; several are summed as each was last seen. */
	max_into(rec->depth_max, level->sockets > 1 ? depth : seen->depth);
	accepted_maxima(rec, level);
}

/* What is new and sure of a count that is `now` at this look: the least that it was at so many looks in a row. */
static __always_inline __u32 sure_rise(struct believed *count, __u32 now, __u32 looks)
{
	__u32 was = *(volatile __u32 *)&count->told, least = count->least;

	if ((__s32)(now - was) <= 0) {
		count->looks = 0;
		return 0;
	}
	if (!count->looks || (__s32)(now - least) < 0)
		least = now;
	count->least = least;
	if (++count->looks < looks)
		return 0;
	count->looks = 0;
	/* A listener that closes is looked at beside the timer: one of the two tells of it. */
	return __sync_val_compare_and_swap(&count->told, was, least) == was ? least - was : 0;
}

/*
 * A discarded segment is counted by the socket a moment before kfree_skb tells of it, and reads as a drop until then. So what the
 * socket had counted at the look before is held against what was discarded by now; at the last look nothing is under way any more.
 *
 * A CPU that is taken away in that moment may stay away for longer than from one look to the next. On a listener that discards a segment
 * of each handshake (TCP_DEFER_ACCEPT) that is no rare moment: where its queue was not full lately, a rise has to last.
 */
enum look {
	LOOK_ONE_OF_MANY,
	LOOK_IN_DOUBT,
	LOOK_LAST,
};

static __always_inline enum look look_of_timer(struct listen_socket *ls, bool deferring)
{
	if (ls->was_full)
		ls->was_full--;
	return deferring && !ls->was_full ? LOOK_IN_DOUBT : LOOK_ONE_OF_MANY;
}

/* `sk_drops` was read before this call. */
static __noinline void drops_sighted(struct hook *h, struct listen_socket *ls, struct sighting *seen, __u32 sk_drops,
				     enum look look)
{
	__u32 counted = look == LOOK_ONE_OF_MANY ? ls->sk_drops : sk_drops, looks = look == LOOK_IN_DOUBT ? LOOKS_FOR_SURE : 1;
	__u32 dropped = counted - ls->first_drops - *(volatile __u32 *)&ls->discarded;
	__u32 packets = dropped - *(volatile __u32 *)&ls->twice;
	struct rise rise = {
		.count = sure_rise(&ls->drops, dropped, looks),
		.packets = sure_rise(&ls->packets, packets, looks),
	};
	struct listener_record *rec;

	ls->sk_drops = sk_drops;
	if (!rise.count && !rise.packets)
		return;
	rec = listener_now(h, ls->slot);
	if (!rec)
		return;
	rec->drops += rise.count;
	report_drop(h, ls->slot, rise, seen);
}

static __always_inline void sight(const struct sock *sk, struct sighting *seen, bool pushed)
{
	seen->depth = sk->sk_ack_backlog;
	seen->limit = sk->sk_max_ack_backlog;
	seen->pushed = pushed;
}

/* Puts a listening socket into the table; false where it is full, or another CPU was first. */
static __always_inline bool listener_enters(const struct sock *sk, __u64 cookie, __u32 slot)
{
	struct listen_socket fresh = {};
	struct listener_level *level;

	fresh.sk = (__u64)sk;
	fresh.slot = slot;
	fresh.first_drops = sk->sk_drops.counter;
	fresh.sk_drops = fresh.first_drops;
	if (bpf_map_update_elem(&listen_sockets, &cookie, &fresh, BPF_NOEXIST))
		return false;
	level = listener_level_of(slot);
	if (level)
		__sync_fetch_and_add(&level->sockets, 1);
	return true;
}

/* Takes a listening socket into the table; returns whether it was new. */
static __always_inline bool listener_known(const struct sock *sk, struct connection **as, bool from_listen)
{
	struct connection *c = known_connection(sk);
	struct listener_key key = {};
	__u32 slot;

	*as = c;
	if (c && c->role == ROLE_LISTENER)
		return false;
	local_end(&sk->__sk_common, &key);
	if (!key.port)
		return false; /* listen(2) without bind(2): the port comes later; its first push finds it */
	c = new_connection(sk);
	*as = c;
	if (!c)
		return false;
	c->cookie = bpf_get_socket_cookie((void *)sk);
	slot = listener_slot_of_listener(&key);
	if (!take_role(c, ROLE_LISTENER, slot))
		return false;
	if (!listener_enters(sk, c->cookie, slot)) {
		COUNT_LOSS(listen_sockets_untracked);
		return false;
	}
	if (from_listen)
		listener_owned_by_current(slot, true);
	return true;
}

static __always_inline void listener_gone(struct hook *h, __u64 cookie, struct listen_socket *ls)
{
	struct listener_level *level = listener_level_of(ls->slot);
	struct listener_record *rec = listener_now(h, ls->slot);
	__u32 limit, depth;

	/* Whoever deletes it books it. */
	if (bpf_map_delete_elem(&listen_sockets, &cookie) || !level || !rec)
		return;
	limit = __sync_lock_test_and_set(&ls->limit, 0);
	depth = __sync_lock_test_and_set(&ls->depth, 0);
	__sync_fetch_and_add(&level->limit, -limit);
	__sync_fetch_and_add(&level->sockets, -1);
	step_level(&rec->edges[LISTENER_DEPTH], &level->levels[LISTENER_DEPTH], h, -(__s32)depth);
}

/*
 * A listener for which there was no room when it began. Seen by the walk, whose reader holds its lock: it comes in, if there is room now.
 * What it dropped before is not counted; the counters of loss told that it was left out.
 */
static __always_inline void listener_again(struct hook *h, const struct sock *sk, struct connection *c)
{
	__u64 cookie = c->cookie;
	struct listen_socket *ls;
	__u32 free;

	if (c->role != ROLE_LISTENER)
		return;
	ls = bpf_map_lookup_elem(&listen_sockets, &cookie);
	if (!ls && !listener_enters(sk, cookie, c->slot))
		return;
	if (c->slot != SLOT_OTHER || bpf_map_peek_elem(&listener_free, &free))
		return;
	ls = bpf_map_lookup_elem(&listen_sockets, &cookie);
	if (!ls)
		return;
	/* Connections that it took before stay with the rest, where they were counted. */
	listener_gone(h, cookie, ls);
	c->role = ROLE_NEW;
	listener_known(sk, &c, false);
}

/*
 * Whether what this listener counted may be the bare ACK of a healthy handshake, which TCP_DEFER_ACCEPT discards: on a kernel that
 * tells nothing of discards only a full queue surely dropped.
 */
static __always_inline bool may_be_deferred(__u8 deferring, const struct sighting *seen)
{
	__u32 zero = 0;
	struct net_control *control = bpf_map_lookup_elem(&net_control, &zero);

	return deferring && control && !control->discards_seen && seen->depth <= seen->limit;
}

/* The last look, while the socket is still whole. */
static __always_inline void listener_closes(struct hook *h, const struct sock *sk)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct connection *c = known_connection(sk);
	struct listen_socket *ls;
	struct sighting seen;
	__u8 deferring;
	__u64 cookie;

	if (!c || c->role != ROLE_LISTENER)
		return;
	cookie = c->cookie;
	/* The socket may listen again, elsewhere. */
	c->role = ROLE_NEW;
	ls = bpf_map_lookup_elem(&listen_sockets, &cookie);
	if (!ls)
		return;
	sight(sk, &seen, false);
	listener_sighted(h, ls, &seen);
	deferring = BPF_CORE_READ(icsk, icsk_accept_queue.rskq_defer_accept);
	if (!may_be_deferred(deferring, &seen))
		drops_sighted(h, ls, &seen, sk->sk_drops.counter, LOOK_LAST);
	listener_gone(h, cookie, ls);
}

static __always_inline void listener_pushed(struct hook *h, const struct sock *sk)
{
	struct connection *c;
	bool fresh = listener_known(sk, &c, false);
	struct listen_socket *ls;
	struct sighting seen;
	__u64 cookie;

	if (!c || c->role != ROLE_LISTENER)
		return;
	cookie = c->cookie;
	ls = bpf_map_lookup_elem(&listen_sockets, &cookie);
	if (!ls)
		return;
	if (fresh) {
		/* The connection came before its listener was known. */
		struct listener_record *rec = listener_now(h, ls->slot);

		if (rec)
			rec->arrivals++;
	}
	sight(sk, &seen, true);
	listener_sighted(h, ls, &seen);
}

/* inet_sk_state_store() tells of listening a moment before it is so: a look between the two, or some more where that CPU is away. */
#define LOOKS_UNBORN 200
#define BORN (LOOKS_UNBORN + 1)

static long sample_listener(void *map, __u64 *cookie, struct listen_socket *ls, struct hook *h)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)ls->sk;
	struct sock *sk = (struct sock *)ls->sk;
	struct sighting seen = {};
	__u8 state = 0, deferring = 0;
	__u32 sk_drops = 0;
	__u64 cookie_now = 0;

	bpf_core_read(&sk_drops, sizeof(sk_drops), &sk->sk_drops.counter);
	bpf_core_read(&seen.depth, sizeof(seen.depth), &sk->sk_ack_backlog);
	bpf_core_read(&seen.limit, sizeof(seen.limit), &sk->sk_max_ack_backlog);
	bpf_core_read(&deferring, sizeof(deferring), &icsk->icsk_accept_queue.rskq_defer_accept);
	bpf_core_read(&state, sizeof(state), &sk->__sk_common.skc_state);
	/* Last: the reads count only if the socket was the same to their end. */
	bpf_core_read(&cookie_now, sizeof(cookie_now), &sk->__sk_common.skc_cookie.counter);
	if (cookie_now == *cookie && state == TCP_CLOSE && ls->unborn < LOOKS_UNBORN) {
		ls->unborn++;
		return 0;
	}
	if (state != TCP_LISTEN || cookie_now != *cookie) {
		listener_gone(h, *cookie, ls);
		return 0;
	}
	ls->unborn = BORN;
	listener_sighted(h, ls, &seen);
	if (may_be_deferred(deferring, &seen)) {
		ls->first_drops = sk_drops - ls->drops.told;
		ls->sk_drops = sk_drops;
		return 0;
	}
	drops_sighted(h, ls, &seen, sk_drops, look_of_timer(ls, deferring));
	return 0;
}

/* net_unix.h, which knows this file. */
static __always_inline void sample_unix_listeners(struct hook *h);

static int sample_listeners(void *map, int *key, struct tick *tick)
{
	struct hook h = {};

	hook_enter(&h);
	COUNT_LOSS(ticks);
	bpf_for_each_map_elem(&listen_sockets, sample_listener, &h, 0);
	sample_unix_listeners(&h);
	hook_exit(&h);
	bpf_timer_start(&tick->timer, cfg_tick_ns, 0);
	return 0;
}

/* Attempts whose last ACK was dropped: such a connection exists for its client, whose data then comes again and again. */
#define SLOW_NS 500000000ULL	  /* dropped for so long, the next try comes when more than a second is over: 0.2, 0.4, 0.8 s ... */
#define ATTEMPT_PAUSE_NS 2000000000ULL
#define ATTEMPT_NS 30000000000ULL /* after so long, the same port is another attempt */
#define ETH_P_IP 0x0800

struct attempt_key {
	__u8 address[16];
	__u32 slot;
	__u16 port;
	__u16 reserved;
};

struct attempt {
	__u64 first_ns;
	__u64 last_ns;
	__u32 slow;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct attempt_key);
	__type(value, struct attempt);
} dropped_attempts SEC(".maps");

/* When a last ACK was dropped last: where that was long ago, no connection that is made is looked for. */
static __u64 attempt_dropped_ns;

/* Remembers by its client whose last ACK was dropped. */
static __always_inline void attempt_dropped(const struct hook *h, const struct sk_buff *skb, __u32 slot,
					    struct listener_record *rec)
{
	bool v4 = BPF_CORE_READ(skb, protocol) == bpf_htons(ETH_P_IP);
	unsigned char *head = BPF_CORE_READ(skb, head);
	unsigned char *network = head + BPF_CORE_READ(skb, network_header);
	struct attempt_key key = { .slot = slot };
	struct attempt *a, new = { .first_ns = h->mono_ns, .last_ns = h->mono_ns };

	/* The source address is the 13th byte of an IPv4 header, the 9th of an IPv6 one; the source port comes first in TCP. */
	if (bpf_probe_read_kernel(key.address, v4 ? 4 : 16, network + (v4 ? 12 : 8)) ||
	    bpf_probe_read_kernel(&key.port, 2, head + BPF_CORE_READ(skb, transport_header)))
		return;
	attempt_dropped_ns = h->mono_ns;
	a = bpf_map_lookup_elem(&dropped_attempts, &key);
	if (!a || h->mono_ns - a->last_ns > ATTEMPT_NS) {
		bpf_map_update_elem(&dropped_attempts, &key, &new, BPF_ANY);
		return;
	}
	a->last_ns = h->mono_ns;
	rec->drops_repeated++;
	if (!a->slow && h->mono_ns - a->first_ns >= SLOW_NS) {
		a->slow = 1;
		rec->drops_slow++;
	}
}

/*
 * A connection is there: when its last ACK was dropped first, if it was; else 0. Its client has it since then, give or take the way of a packet.
 */
static __always_inline __u64 attempt_succeeded(const struct hook *h, const struct sock *sk, __u32 slot)
{
	const struct sock_common *skc = &sk->__sk_common;
	__u64 dropped_ns = attempt_dropped_ns, first_ns;
	struct attempt_key key = { .slot = slot, .port = skc->skc_dport };
	__u32 *to = (__u32 *)key.address;
	struct edge_key remote = {};
	struct attempt *a;

	if (!dropped_ns || elapsed_ns(dropped_ns, h->mono_ns) > ATTEMPT_NS)
		return 0;
	remote_end(skc, &remote, 0);
	/* As its packets have it. */
	if (!remote.address[0] && !remote.address[1] && remote.address[2] == bpf_htonl(0xffff)) {
		to[0] = remote.address[3];
	} else {
		to[0] = remote.address[0];
		to[1] = remote.address[1];
		to[2] = remote.address[2];
		to[3] = remote.address[3];
	}
	a = bpf_map_lookup_elem(&dropped_attempts, &key);
	/* Its tries come after pauses that double, the first after a second at most: what comes later with the same port is another connection. */
	if (!a || elapsed_ns(a->last_ns, h->mono_ns) > elapsed_ns(a->first_ns, a->last_ns) + ATTEMPT_PAUSE_NS)
		return 0;
	first_ns = a->first_ns;
	bpf_map_delete_elem(&dropped_attempts, &key);
	return first_ns;
}

/* As sk_drops_skbadd counts a packet: several segments that came as one are several. */
static __always_inline __u32 segments_of(const struct sk_buff *skb)
{
	unsigned char *end = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end);
	__u16 segments = BPF_CORE_READ((struct skb_shared_info *)end, gso_segs);

	return segments ? segments : 1;
}

/* Why the kernel discarded a segment that came to a listener. */
enum discarded {
	NO_LOSS,	      /* in good health, or by a filter; counted in sk_drops just before */
	OVERFLOW_AT_LAST_ACK, /* counted twice: tcp_listendrop, sk_drops_skbadd */
	OVERFLOW_AT_COOKIE,   /* the last ACK answers a SYN cookie; counted once: tcp_listendrop */
};

static __always_inline void segment_discarded(struct hook *h, const struct sock *sk, const struct sk_buff *skb,
					      enum discarded why)
{
	struct connection *c = known_connection(sk);
	struct listener_record *rec;
	struct listen_socket *ls;
	__u32 segments;
	__u64 cookie;

	if (!c || c->role != ROLE_LISTENER)
		return;
	if (why != NO_LOSS) {
		rec = listener_now(h, c->slot);
		if (rec) {
			rec->drops_final_ack++;
			rec->drops_cookie += why == OVERFLOW_AT_COOKIE;
			attempt_dropped(h, skb, c->slot, rec);
		}
	}
	cookie = c->cookie;
	ls = bpf_map_lookup_elem(&listen_sockets, &cookie);
	if (!ls || why == OVERFLOW_AT_COOKIE)
		return;
	/* A dropped last ACK stays counted twice, also where it came with data of several segments. */
	segments = segments_of(skb);
	if (why == NO_LOSS || segments > 1)
		__sync_fetch_and_add(&ls->discarded, why == NO_LOSS ? segments : segments - 1);
	if (why == OVERFLOW_AT_LAST_ACK)
		__sync_fetch_and_add(&ls->twice, 1);
}

/* Programs alone can start a timer: the first socket that changes state does, and user space sees to it that one does. */
static __always_inline void start_sampling(void)
{
	__u32 zero = 0;
	struct tick *tick;

	/* Known when the program is verified: what follows is not looked at by a kernel that would refuse it. */
	if (!cfg_timer)
		return;
	tick = bpf_map_lookup_elem(&ticks, &zero);
	if (!tick || tick->started || __sync_lock_test_and_set(&tick->started, 1))
		return;
	if (bpf_timer_init(&tick->timer, &ticks, CLOCK_MONOTONIC) ||
	    bpf_timer_set_callback(&tick->timer, sample_listeners) || bpf_timer_start(&tick->timer, cfg_tick_ns, 0))
		tick->started = 0;
}
#endif
