/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The socket hooks as they are, compiled for this machine, with what other CPUs do put between their atomic steps: each hook of one connection is
 * run to its end with any two others in any two places. While its streams are followed the levels must be what stands in their word; when the connection is closed at last no
 * level may be left standing, and no more answers may have been counted as late than there were, whatever came between. Owns what the kernel's helpers are here, and the cases; `levels_interleaved.rs` compiles and runs it.
 *
 * On a real machine such a place is some nanoseconds wide, and three CPUs have to meet in it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

/* What libbpf's headers, which these names keep out, have for the kernel. */
#define __BPF_CORE_READ_H__
#define __BPF_ENDIAN__
#define __BPF_HELPERS__
#define __BPF_TRACING_H__
#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, of) typeof(of) *name
#define __noinline __attribute__((noinline))
#define __always_inline inline __attribute__((always_inline))
#define barrier() asm volatile("" ::: "memory")
#define BPF_PROG(name, args...) name(args)
#define BPF_CORE_READ(...) 0
#define bpf_core_read(to, bytes, from) memcpy(to, from, bytes)
#define bpf_probe_read_kernel(to, bytes, from) (memcpy(to, from, bytes), 0)
#define bpf_core_field_exists(...) 1
#define bpf_core_field_offset(type, field) __builtin_offsetof(type, field)
#define bpf_core_enum_value(type, value) (value)
#define bpf_core_enum_value_exists(type, value) 1
#define bpf_htons(v) __builtin_bswap16(v)
#define bpf_ntohs(v) __builtin_bswap16(v)
#define bpf_htonl(v) __builtin_bswap32(v)
#define bpf_ntohl(v) __builtin_bswap32(v)
#define bpf_be64_to_cpu(v) __builtin_bswap64(v)
#define bpf_get_smp_processor_id() 0U
#define bpf_get_current_pid_tgid() 7ULL
#define bpf_get_current_task_btf() (&running_task)
#define bpf_get_socket_cookie(sk) 9ULL
#define bpf_map_update_elem(...) 0L
#define bpf_map_delete_elem(...) 0L
#define bpf_map_push_elem(...) 0L
#define bpf_map_pop_elem(...) -1L
#define bpf_map_peek_elem(...) -1L
#define bpf_for_each_map_elem(...) 0L
#define bpf_seq_write(...) 0L
#define bpf_ringbuf_reserve(...) ((void *)0)
#define bpf_ringbuf_submit(...)
#define bpf_ringbuf_output(...) 0L
#define bpf_timer_init(...) 0L
#define bpf_timer_set_callback(...) 0L
#define bpf_timer_start(...) 0L
#define bpf_skc_to_tcp_sock(sk) ((struct tcp_sock *)(sk))
#define bpf_sk_fullsock(sk) (sk)
#define bpf_skb_load_bytes(...) 0L

/* Of another name than the variable in which the hooks keep what they are told. */
static struct task_struct running_task;

static __u64 bpf_ktime_get_ns(void)
{
	static __u64 ns;

	return ns += 1000;
}

/* Every map is an array of values that begin as zeroes: those that are something else stay empty on the ways that are taken here. */
#define VALUES 64
#define VALUE_BYTES 1536 /* listener_states is the largest */
static struct value {
	const void *map;
	__u32 key;
	_Alignas(64) char bytes[VALUE_BYTES];
} values[VALUES];
static int values_used;

static void *bpf_map_lookup_elem(const void *map, const void *key)
{
	__u32 at;

	memcpy(&at, key, sizeof(at));
	for (int i = 0; i < values_used; i++) {
		if (values[i].map == map && values[i].key == at)
			return values[i].bytes;
	}
	if (values_used == VALUES) {
		fprintf(stderr, "more than %d values\n", VALUES);
		exit(2);
	}
	values[values_used].map = map;
	values[values_used].key = at;
	return values[values_used++].bytes;
}

static void a_step(void);

/* What another CPU can come before, and after. */
#define STEP(operation)                     \
	({                                  \
		a_step();                   \
		__auto_type _is = (operation); \
		a_step();                   \
		_is;                        \
	})
#define __sync_fetch_and_add(at, n) STEP(__atomic_fetch_add(at, n, __ATOMIC_SEQ_CST))
#define __sync_fetch_and_or(at, bits) STEP(__atomic_fetch_or(at, bits, __ATOMIC_SEQ_CST))
#define __sync_fetch_and_and(at, bits) STEP(__atomic_fetch_and(at, bits, __ATOMIC_SEQ_CST))
#define __sync_lock_test_and_set(at, value) STEP(__atomic_exchange_n(at, value, __ATOMIC_SEQ_CST))
#define __sync_val_compare_and_swap(at, was, value)                                                                      \
	({                                                                                                               \
		typeof(*(at)) _found = (was);                                                                            \
                                                                                                                         \
		a_step();                                                                                                \
		__atomic_compare_exchange_n(at, &_found, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                  \
		a_step();                                                                                                \
		_found;                                                                                                  \
	})

static void *bpf_sk_storage_get(const void *map, const void *sk, const void *value, __u64 flags);

/* A few steps of the clock. */
#define VERY_LONG_NS 4000ULL
#define STREAMS_ARE_COUNTED 1
#include "net.bpf.c"

_Static_assert(sizeof(struct listener_states) <= VALUE_BYTES && sizeof(struct listener_log_entry) <= VALUE_BYTES, "VALUE_BYTES");

/* The one connection of a case. */
static struct tcp_sock tcp;
static struct sock *const sk = &tcp.inet_conn.icsk_inet.sk;
static struct connection connection;
static struct net net;
static struct css_set groups;
static struct cgroup group;
static struct kernfs_node node;

static void *bpf_sk_storage_get(const void *map, const void *of, const void *value, __u64 flags)
{
	return &connection;
}

/* What happens on a connection; each is a hook, with what the stack did before it. */
static void comes(void)
{
	tcp.rcv_nxt += 30;
	tcp.tcp_clock_cache += 1000000;
	data_ready(sk);
}

static void is_read(void)
{
	tcp.copied_seq = tcp.rcv_nxt;
	received(sk, 30, 0, true);
}

/* So much later that an answer is late with its second piece, and very late with its eighth. */
static void is_written(void)
{
	tcp.write_seq += 400;
	tcp.snd_nxt = tcp.write_seq; /* it went out at once, at the time of this clock */
	tcp.tcp_clock_cache += 400000000;
	sent(sk, 400, true);
}

static void is_shut_down(void)
{
	state_changes(sk, TCP_ESTABLISHED, TCP_FIN_WAIT1);
}

static void is_reset(void)
{
	state_changes(sk, TCP_ESTABLISHED, TCP_CLOSE);
}

static void is_destroyed(void)
{
	destroyed(sk);
}

/*
 * What the headers of frames tell, where they are followed: those of two packets pass at once, one each way. `streams_open`: those that have begun and not ended, each by how
 * often requests had been read when it came.
 */
#define STREAMS_OPEN 8
static __u32 streams_open[STREAMS_OPEN];
static int streams_opened;

static bool passes(void)
{
	return connection.directions.framed == FRAMES_FOLLOWED && connection.phase != PHASE_CLOSED;
}

static void asks_on_a_stream(void)
{
	__u32 reads = reads_of(streams_of(&connection));
	struct hook h;

	if (!passes())
		return;
	hook_enter(&h);
	stream_began(&h, &connection);
	if (streams_opened == STREAMS_OPEN) {
		fprintf(stderr, "more than %d streams\n", STREAMS_OPEN);
		exit(2);
	}
	streams_open[streams_opened++] = reads;
	streams_settled(&h, &connection);
	hook_exit(&h);
}

static void a_stream_ends(__u32 how, int at)
{
	__u32 reads;
	struct hook h;

	if (!passes() || !streams_opened)
		return;
	reads = streams_open[at];
	streams_opened--;
	memmove(&streams_open[at], &streams_open[at + 1], (streams_opened - at) * sizeof(streams_open[0]));
	hook_enter(&h);
	stream_ended(&h, &connection, how, 1000, reads);
	streams_settled(&h, &connection);
	hook_exit(&h);
}

/* The first, which was read if any was. */
static void is_answered_on_a_stream(void)
{
	a_stream_ends(ENDED_ANSWERED, 0);
}

/* The last, which may be unread, and may be read meanwhile. */
static void has_a_stream_reset(void)
{
	a_stream_ends(ENDED_ABORTED, streams_opened ? streams_opened - 1 : 0);
}

static void loses_a_header(void)
{
	struct hook h;

	if (!passes())
		return;
	hook_enter(&h);
	connection.directions.framed = FRAMES_NONE;
	streams_settled(&h, &connection);
	hook_exit(&h);
}

struct event {
	const char *name;
	void (*happens)(void);
};

static const struct event EVENTS[] = {
	{ "comes", comes },		  { "is read", is_read },   { "is written", is_written },
	{ "is shut down", is_shut_down }, { "is reset", is_reset }, { "is destroyed", is_destroyed },
	{ "asks on a stream", asks_on_a_stream },
	{ "is answered on a stream", is_answered_on_a_stream },
	{ "has a stream reset", has_a_stream_reset },
	{ "loses a header", loses_a_header },
};
/* The last four are of streams. */
#define EVENTS_OF_STREAMS (sizeof(EVENTS) / sizeof(EVENTS[0]))
#define EVENTS_OF_TURNS (EVENTS_OF_STREAMS - 4)

/* How a connection is before. */
static void is_new(void)
{
}

static void is_asked(void)
{
	comes();
}

static void is_under_way(void)
{
	comes();
	is_read();
}

/* The hook of the answer has not run, and the next question is there. */
static void is_asked_anew(void)
{
	is_under_way();
	tcp.write_seq += 40;
	comes();
}

/* More of the answer passes the first bound. */
static void is_answered(void)
{
	is_under_way();
	is_written();
}

static void is_multiplexed_already(void)
{
	connection.directions.crossings = CROSSINGS + 9;
	is_under_way();
	comes();
}

/* One came, and none was read. */
static void is_followed_and_unread(void)
{
	connection.phase = PHASE_STREAMS;
	connection.directions.framed = FRAMES_FOLLOWED;
	asks_on_a_stream();
}

/* One of two was read. */
static void is_followed(void)
{
	is_followed_and_unread();
	is_read();
	asks_on_a_stream();
}

static const struct event BEFORE[] = {
	{ "new", is_new },
	{ "asked", is_asked },
	{ "under way", is_under_way },
	{ "asked anew", is_asked_anew },
	{ "answered", is_answered },
	{ "multiplexed", is_multiplexed_already },
	{ "followed", is_followed },
	{ "followed, and unread", is_followed_and_unread },
};
/* The last two have streams. */
#define BEFORE_OF_STREAMS (BEFORE_OF_ALL - 2)
#define BEFORE_OF_ALL (sizeof(BEFORE) / sizeof(BEFORE[0]))

#define SLOT 1

static void begins(const struct event *as, bool to_be_known)
{
	struct hook h;

	memset(values, 0, values_used * sizeof(values[0]));
	values_used = 0;
	memset(&tcp, 0, sizeof(tcp));
	memset(&connection, 0, sizeof(connection));
	streams_opened = 0;
	running_task.cgroups = &groups;
	groups.dfl_cgrp = &group;
	group.kn = &node;
	sk->__sk_common.skc_family = AF_INET;
	sk->__sk_common.skc_state = TCP_ESTABLISHED;
	sk->__sk_common.skc_net.net = &net;
	sk->sk_protocol = IPPROTO_TCP;
	sk->sk_socket = (struct socket *)&tcp;
	tcp.rcv_nxt = tcp.copied_seq = 1000;
	tcp.write_seq = tcp.snd_nxt = tcp.snd_una = 2000;
	tcp.tcp_clock_cache = 1000000000;
	connection.role = ROLE_ACCEPTED;
	connection.slot = SLOT;
	directions_from(&connection.directions, &tcp, true);
	hook_enter(&h);
	accepted_opened(&h, SLOT, true);
	hook_exit(&h);
	as->happens();
	if (to_be_known)
		connection.directions.crossings = CROSSINGS + 9;
}

/* Late answers of all cases. */
static __u64 lates, very_longs;

/* Two events of other CPUs, each at a step of the hook that runs. */
static struct {
	bool armed, inside;
	int steps;
	struct {
		int at;
		const struct event *event;
	} others[2];
} now;

static void a_step(void)
{
	int at;

	if (!now.armed || now.inside)
		return;
	at = now.steps++;
	for (int i = 0; i < 2; i++) {
		if (now.others[i].event && now.others[i].at == at) {
			now.inside = true;
			now.others[i].event->happens();
			now.inside = false;
		}
	}
}

/* Whether more answers were late than there were, or very late than late, or very long. One of two that is late twice is not seen. */
static bool too_many_late(void)
{
	__u64 answered = 0, late = 0, very_late = 0, very_long = 0;

	for (int i = 0; i < values_used; i++) {
		struct listener_record *rec = &((struct listener_log_entry *)values[i].bytes)->record;

		if (values[i].map != &listener_log_entries)
			continue;
		answered += rec->answered;
		late += rec->late;
		very_late += rec->very_late;
		very_long += rec->very_long_retried + rec->very_long_queued + rec->very_long_unread + rec->very_long_inside;
	}
	lates += late;
	very_longs += very_long;
	return late > answered || very_late > late || very_long > answered;
}

/* Whether the levels have what stands in the word of a connection that is followed, and that has what is open. */
static bool levels_are_of_streams(void)
{
	struct turns turns = turns_of(listener_level_of(SLOT)->turns);
	__u64 streams = streams_of(&connection);
	__s32 in_flight = in_flight_of(streams), unread = unread_of(streams);

	if (connection.phase != PHASE_STREAMS)
		return true;
	if (turns.in_flight == in_flight && turns.unread == unread && in_flight + unread == streams_opened)
		return true;
	printf("in flight %d of %d, unread %d of %d, open %d: ", turns.in_flight, in_flight, turns.unread, unread, streams_opened);
	return false;
}

/* What is left standing when all is closed; how many steps the hook had. */
static bool stands(const struct event *as, bool to_be_known, const struct event *runs, int *steps)
{
	struct listener_level *level;
	struct turns turns;
	bool left;

	begins(as, to_be_known);
	now.steps = 0;
	now.armed = true;
	runs->happens();
	now.armed = false;
	*steps = now.steps;
	if (!levels_are_of_streams()) {
		printf("%s, %s; at step %d it %s, at step %d it %s: levels are not what streams are\n", as->name, runs->name, now.others[0].at,
		       now.others[0].event ? now.others[0].event->name : "-", now.others[1].at,
		       now.others[1].event ? now.others[1].event->name : "-");
		return true;
	}
	is_shut_down();
	is_reset();
	is_destroyed();
	level = listener_level_of(SLOT);
	turns = turns_of(level->turns);
	left = level->turns || level->multiplexed || level->levels[LISTENER_OPEN] || level->levels[LISTENER_UNREAD_QUEUED] ||
	       level->levels[LISTENER_UNANSWERED];
	if (too_many_late()) {
		printf("%s, %s; at step %d it %s, at step %d it %s: more answers are late than there were\n", as->name, runs->name, now.others[0].at,
		       now.others[0].event ? now.others[0].event->name : "-", now.others[1].at,
		       now.others[1].event ? now.others[1].event->name : "-");
		return true;
	}
	if (left)
		printf("%s%s, %s; at step %d it %s, at step %d it %s: in flight %d, unread %d, busy %d, open %d, multiplexed %d, queued %d, "
		       "unanswered %d\n",
		       as->name, to_be_known ? " and to be known as multiplexed" : "", runs->name, now.others[0].at,
		       now.others[0].event ? now.others[0].event->name : "-", now.others[1].at,
		       now.others[1].event ? now.others[1].event->name : "-", turns.in_flight, turns.unread, turns.busy,
		       level->levels[LISTENER_OPEN], level->multiplexed, level->levels[LISTENER_UNREAD_QUEUED],
		       level->levels[LISTENER_UNANSWERED]);
	return left;
}

/* Two threads that read one idle connection at once: the one that did not begin the request is still written down as its worker, and the
   other stays busy for good. It is known and left: a connection has one reader wherever threads do not share it without a lock. Here there is
   one thread, which cannot read inside of its own read. */
static bool two_read(const struct event *runs)
{
	return runs->happens == is_read && (now.others[0].event->happens == is_read || now.others[1].event->happens == is_read);
}

int main(void)
{
	long cases = 0, wrong = 0;

	for (unsigned b = 0; b < 2 * BEFORE_OF_ALL; b++) {
		const struct event *as = &BEFORE[b / 2];
		bool to_be_known = b % 2;
		unsigned events = b / 2 >= BEFORE_OF_STREAMS ? EVENTS_OF_STREAMS : EVENTS_OF_TURNS;

		for (unsigned r = 0; r < events; r++) {
			const struct event *runs = &EVENTS[r];
			int steps, ignored;

			memset(now.others, 0, sizeof(now.others));
			wrong += stands(as, to_be_known, runs, &steps);
			cases++;
			for (unsigned e = 0; e < events * events; e++) {
				now.others[0].event = &EVENTS[e / events];
				now.others[1].event = &EVENTS[e % events];
				if (two_read(runs))
					continue;
				for (int i = 0; i < steps; i++) {
					for (int j = i; j < steps; j++) {
						now.others[0].at = i;
						now.others[1].at = j;
						wrong += stands(as, to_be_known, runs, &ignored);
						cases++;
						if (wrong >= 20)
							goto told;
					}
				}
			}
		}
	}
told:
	printf("%ld of %ld cases leave a level standing, or have more late answers than answers; %llu were late, %llu very long\n", wrong, cases, lates, very_longs);
	return wrong || !lates || !very_longs;
}
