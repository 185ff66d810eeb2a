/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The hooks of the socket signals: accept queue, requests, calls, retransmits. One object, because they share what they know of
 * a socket, and a loader cannot share socket storage between objects without a BPF file system; still each program is loaded
 * on its own, so a kernel that refuses one loses what that one serves. Owns the hooks; what they do is in include/net_*.h.
 *
 * Typed tracepoints run with preemption off before Linux 7.0, so a hook is interrupted by softirqs and hardirqs only; what may be
 * preempted holds a level of its own (nest.h). Owners come from the socket or from the task inside its own system call, never from
 * the task that a softirq happened to interrupt.
 */
/* Whether streams of HTTP/2 are counted by the headers of their frames: in net_streams.bpf.c, which is this file with that. */
#ifndef STREAMS_ARE_COUNTED
#define STREAMS_ARE_COUNTED 0
#endif

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "nest.h"
#include "price.h"
#include "net_types.h"
#include "window_log.h"
#include "net_records.h"
#include "net_maps.h"
#include "net_connection.h"
#include "net_accept_queue.h"
#include "net_turns.h"
#include "net_unix.h"
#include "net_lookups.h"
#if STREAMS_ARE_COUNTED
#include "net_frames.h"
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct msghdr;
struct page;

static __always_inline int state_changes(const struct sock *sk, const int before, const int now)
{
	struct connection *c;
	struct hook h;

	if (!is_tcp(sk))
		return 0;
	start_sampling();
	if (before == TCP_LISTEN || now == TCP_LISTEN) {
		hook_enter(&h);
		if (now == TCP_LISTEN)
			listener_known(sk, &c, true);
		else
			listener_closes(&h, sk);
		hook_exit(&h);
		return 0;
	}
	if (now == TCP_SYN_SENT || now == TCP_ESTABLISHED) {
		hook_enter(&h);
		if (now == TCP_SYN_SENT)
			connect_began(&h, sk);
		else if (before == TCP_SYN_SENT)
			connect_succeeded(&h, sk);
		else if (before == TCP_SYN_RECV)
			child_arrived(&h, sk);
		hook_exit(&h);
		return 0;
	}
	if (now != TCP_FIN_WAIT1 && now != TCP_LAST_ACK && now != TCP_CLOSE)
		return 0;
	c = known_connection(sk);
	if (!c || c->phase == PHASE_CLOSED)
		return 0;
	hook_enter(&h);
	fin_sent(&h, c, sk, now);
	hook_exit(&h);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(net_state, const struct sock *sk, const int before, const int now)
{
	return PRICED(state_changes(sk, before, now));
}

static __always_inline int destroyed(struct sock *sk)
{
	struct connection *c = known_connection(sk);
	struct hook h;

	if (!c || (c->role != ROLE_ACCEPTED && c->role != ROLE_CONNECTED) || c->phase == PHASE_CLOSED)
		return 0;
	hook_enter(&h);
	connection_closed(&h, c);
	hook_exit(&h);
	return 0;
}

/* The last resort: the hook above cannot run where it interrupts itself. */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(net_destroy, struct sock *sk)
{
	return PRICED(destroyed(sk));
}

static __always_inline int data_ready(const struct sock *sk)
{
	bool multiplexed, waits;
	struct connection *c;
	struct tcp_sock *tp;
	struct hook h;
	__u32 before;

	if (!is_tcp(sk))
		return unix_data_ready(sk);
	if (sk->__sk_common.skc_state == TCP_LISTEN) {
		hook_enter(&h);
		listener_pushed(&h, sk);
		hook_exit(&h);
		return 0;
	}
	c = known_connection(sk);
	if (!c || (c->role != ROLE_ACCEPTED && c->role != ROLE_CONNECTED) || c->phase == PHASE_CLOSED)
		return 0;
	tp = bpf_skc_to_tcp_sock((void *)sk);
	if (!tp || !unread_bytes(sk, tp))
		return 0;
	before = c->directions.in.seq;
	piece_came(c, tp);
	if (has_streams(c)) {
		/* What came is told by its headers, and here, of the first, that it came before accept(2). */
		if (c->role == ROLE_ACCEPTED && !c->used && !sk->sk_socket)
			c->waited_as = UNREAD_QUEUED;
		return 0;
	}
	multiplexed = c->phase == PHASE_MULTIPLEXED;
	waits = c->role == ROLE_ACCEPTED && c->unread == UNREAD_NONE && (multiplexed || c->phase == PHASE_IDLE);
	if (!multiplexed && !waits)
		return 0;
	hook_enter_at(&h, received_ns(tp));
	if (multiplexed)
		multiplexed_moved(&h, c, TOLD_IN, c->directions.in.seq - before);
	if (waits)
		unread_began(&h, c, sk->sk_socket ? UNREAD_ACCEPTED : UNREAD_QUEUED);
	hook_exit(&h);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(net_ready, const struct sock *sk)
{
	return PRICED(data_ready(sk));
}

/* Before 6.3 (40e0b0908142): the function that the tracepoint was put into. */
SEC("fentry/sock_def_readable")
int BPF_PROG(net_ready_entry, struct sock *sk)
{
	return PRICED(data_ready(sk));
}

/* `any`: of any kind of socket, and not of TCP alone. */
static __always_inline int received(struct sock *sk, int length, int flags, const bool any)
{
	struct connection *c;
	struct tcp_sock *tp;
	bool streams;
	struct hook h;

	if (flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	if (!is_tcp(sk))
		return any && is_lookup(sk) ? lookup_answered(sk, length) : unix_received(sk, length);
	if (length <= 0)
		return 0;
	c = known_connection(sk);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	streams = c && has_streams(c);
	if (streams || (c && c->phase == PHASE_MULTIPLEXED)) {
		if (c->role != ROLE_ACCEPTED)
			return 0;
		hook_enter(&h);
		/* Of streams the first bytes are known before anybody reads, so this may be the first use of their connection. */
		if (streams && !c->used)
			first_use(&h, c, c->waited_as == UNREAD_QUEUED);
		if (streams)
			streams_read(&h, c);
		else
			multiplexed_read(&h, c, !unread_bytes(sk, tp));
		hook_exit(&h);
		return 0;
	}
	if (c && read_changes_nothing(c, tp))
		return 0;
	hook_enter(&h);
	data_read(&h, c, sk, tp);
	hook_exit(&h);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(net_recv, struct sock *sk, int length, int flags)
{
	return PRICED(received(sk, length, flags, true));
}

/*
 * Before 6.3 (6e6eda44b939): what TCP returns is what the tracepoint tells. These run with preemption on where the kernel has
 * CONFIG_PREEMPT, so there a task that is preempted inside one can share its copy with another for that moment.
 */
SEC("fexit/tcp_recvmsg")
int BPF_PROG(net_recv_exit, struct sock *sk, struct msghdr *msg, unsigned long size, int flags, int *addr_len, int length)
{
	return PRICED(received(sk, length, flags, false));
}

/* Before 5.19 (ec095263a965) with one parameter more. A kernel without that refuses it, because it reads behind the last. */
SEC("fexit/tcp_recvmsg")
int BPF_PROG(net_recv_exit_before_5_19, struct sock *sk, struct msghdr *msg, unsigned long size, int nonblock, int flags,
	     int *addr_len, int length)
{
	return PRICED(received(sk, length, flags, false));
}

static __always_inline int sent(struct sock *sk, int length, const bool any)
{
	struct connection *c;
	bool unasked = false;
	struct tcp_sock *tp;
	struct hook h;

	if (!is_tcp(sk)) {
		if (!any || !is_lookup(sk))
			return unix_sent(sk, length);
		return length > 0 ? lookup_asked(sk) : 0;
	}
	if (length <= 0)
		return 0;
	c = known_connection(sk);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	if (c) {
		unasked = is_unasked(c, tp, length);
		/* The first piece of an answer may be small, and come after a silence. */
		c->unasked = unasked && c->phase == PHASE_IDLE;
		piece_went(c, sk, tp);
	}
	if (c && c->phase == PHASE_MULTIPLEXED) {
		hook_enter_at(&h, sent_ns(tp));
		multiplexed_moved(&h, c, TOLD_OUT, length);
		hook_exit(&h);
		return 0;
	}
	if (c && write_changes_nothing(c, tp, unasked))
		return 0;
	hook_enter_at(&h, sent_ns(tp));
	data_written(&h, c, sk, tp);
	hook_exit(&h);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(net_send, struct sock *sk, int length, int flags)
{
	return PRICED(sent(sk, length, true));
}

SEC("fexit/tcp_sendmsg")
int BPF_PROG(net_send_exit, struct sock *sk, struct msghdr *msg, unsigned long size, int length)
{
	return PRICED(sent(sk, length, false));
}

/* sendfile(2) before 6.5 (dc97391e6610). */
SEC("fexit/tcp_sendpage")
int BPF_PROG(net_sendpage_exit, struct sock *sk, struct page *page, int offset, unsigned long size, int flags, int length)
{
	return PRICED(sent(sk, length, false));
}

/* As the two tracepoints of data, for queries of names: what UDP sends and gives. IPv4 alone, as IPv6 has functions of its own. */
static __always_inline int datagram_sent(struct sock *sk, int length)
{
	return length > 0 && is_lookup(sk) ? lookup_asked(sk) : 0;
}

SEC("fexit/udp_sendmsg")
int BPF_PROG(net_lookup_sent, struct sock *sk, struct msghdr *msg, unsigned long size, int length)
{
	return PRICED(datagram_sent(sk, length));
}

static __always_inline int datagram_received(struct sock *sk, int length, int flags)
{
	if (flags & (MSG_PEEK | MSG_ERRQUEUE) || !is_lookup(sk))
		return 0;
	return lookup_answered(sk, length);
}

SEC("fexit/udp_recvmsg")
int BPF_PROG(net_lookup_answered, struct sock *sk, struct msghdr *msg, unsigned long size, int flags, int *addr_len, int length)
{
	return PRICED(datagram_received(sk, length, flags));
}

/* Before 5.19, as net_recv_exit_before_5_19. */
SEC("fexit/udp_recvmsg")
int BPF_PROG(net_lookup_answered_before_5_19, struct sock *sk, struct msghdr *msg, unsigned long size, int nonblock, int flags,
	     int *addr_len, int length)
{
	return PRICED(datagram_received(sk, length, flags));
}

static __always_inline int resent(const struct sock *sk)
{
	struct hook h;

	hook_enter(&h);
	segment_resent(&h, sk);
	hook_exit(&h);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(net_resent, const struct sock *sk)
{
	return PRICED(resent(sk));
}

static __always_inline int synack_resent(const struct sock *sk)
{
	struct connection *c = known_connection(sk);
	struct listener_record *rec;
	struct hook h;

	if (!c || c->role != ROLE_LISTENER)
		return 0;
	hook_enter(&h);
	rec = listener_now(&h, c->slot);
	if (rec)
		rec->syn_ack_retransmits++;
	hook_exit(&h);
	return 0;
}

SEC("tp_btf/tcp_retransmit_synack")
int BPF_PROG(net_resent_synack, const struct sock *sk)
{
	return PRICED(synack_resent(sk));
}

#define REASON_IS(name)                                                                \
	(bpf_core_enum_value_exists(enum skb_drop_reason, SKB_DROP_REASON_##name) && \
	 reason == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_##name))

/*
 * What a listener discards without counting it (tcp_v4_do_rcv, cookie_v4_check): a broken checksum, an ACK that belongs to nothing, and
 * what no route or key goes with.
 */
static __always_inline bool uncounted(const struct sk_buff *skb, enum skb_drop_reason reason)
{
	__u8 flags = 0;

	if (REASON_IS(TCP_CSUM) || REASON_IS(IP_OUTNOROUTES) || REASON_IS(PSP_INPUT))
		return true;
	if (!REASON_IS(TCP_FLAGS))
		return false;
	bpf_probe_read_kernel(&flags, sizeof(flags),
			      BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, transport_header) + TCP_FLAGS_AT);
	return flags & TCP_FLAG_ACK;
}

/*
 * Segments that a listener discards: with LISTEN_OVERFLOW (since 6.15) the last ACK of a handshake that met a full queue, with NO_SOCKET
 * (cookie_v4_check) one that answered a SYN cookie. What is no loss goes by sk_drops_skbadd, whatever its reason: mostly none (out of
 * tcp_check_req), or that of the filter, policy or missing signature that keeps it from the listener. ListenDrops does not count it
 * either. Kernels tell the socket since 6.11 (commit 2def9ff4c9ce).
 */
static __always_inline int listener_discards(const struct sk_buff *skb, enum skb_drop_reason reason, const struct sock *sk)
{
	enum discarded discarded = NO_LOSS;
	struct hook h;

	if (REASON_IS(TCP_LISTEN_OVERFLOW))
		discarded = OVERFLOW_AT_LAST_ACK;
	else if (REASON_IS(NO_SOCKET))
		discarded = OVERFLOW_AT_COOKIE;
	else if (uncounted(skb, reason))
		return 0;
	hook_enter(&h);
	segment_discarded(&h, sk, skb, discarded);
	hook_exit(&h);
	return 0;
}

/*
 * The segment that net_dropped took last on this CPU, until net_dropped_again saw it too. That one may miss it, and another segment get
 * its address: that has another sequence number, which comes first in `cb`.
 */
struct taken {
	__u64 skb;
	__u64 sequence;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct taken);
} dropped_taken SEC(".maps");

/* Where the segment of a listener is noted; none for that of another socket. */
static __always_inline struct taken *dropped_taken_of(const struct sock *sk)
{
	__u32 zero = 0;

	if (!sk || sk->__sk_common.skc_state != TCP_LISTEN)
		return 0;
	return bpf_map_lookup_elem(&dropped_taken, &zero);
}

static __always_inline __u32 sequence_of(const struct sk_buff *skb)
{
	__u32 sequence = 0;

	bpf_core_read(&sequence, sizeof(sequence), &skb->cb);
	return sequence;
}

static __always_inline int dropped(struct sk_buff *skb, enum skb_drop_reason reason, struct sock *sk)
{
	struct taken *taken = dropped_taken_of(sk);

	if (!taken)
		return 0;
	taken->skb = (__u64)skb;
	taken->sequence = sequence_of(skb);
	return listener_discards(skb, reason, sk);
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(net_dropped, struct sk_buff *skb, void *location, enum skb_drop_reason reason, struct sock *sk)
{
	return PRICED(dropped(skb, reason, sk));
}

static __always_inline int dropped_again(struct sk_buff *skb, enum skb_drop_reason reason, struct sock *sk)
{
	struct taken *taken = dropped_taken_of(sk);

	if (!taken)
		return 0;
	if (taken->skb == (__u64)skb && taken->sequence == sequence_of(skb)) {
		taken->skb = 0;
		return 0;
	}
	return listener_discards(skb, reason, sk);
}

/*
 * The kernel skips a program that would interrupt itself. An interrupt that meets net_dropped at some other packet lets in a whole wave
 * of connections, whose discarded segments it would miss and that would read as drops. It cannot meet both programs at once: this one
 * takes what the other has not.
 */
SEC("tp_btf/kfree_skb")
int BPF_PROG(net_dropped_again, struct sk_buff *skb, void *location, enum skb_drop_reason reason, struct sock *sk)
{
	return PRICED(dropped_again(skb, reason, sk));
}

/* What was there before the agent: listeners, then (the kernel walks them later) accepted connections. */
SEC("iter/tcp")
int net_existing(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct connection *c;
	struct tcp_sock *tp;
	struct sock *sk;
	struct hook h;

	if (!skc)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	sk = &tp->inet_conn.icsk_inet.sk;
	if (skc->skc_state == TCP_LISTEN) {
		if (!listener_known(sk, &c, false) && c) {
			hook_enter(&h);
			listener_again(&h, sk, c);
			hook_exit(&h);
		}
		if (c)
			listener_found(c->slot, sk);
	} else if (skc->skc_state == TCP_ESTABLISHED || skc->skc_state == TCP_CLOSE_WAIT) {
		if (known_connection(sk))
			return 0;
		hook_enter(&h);
		accepted_before(&h, sk);
		hook_exit(&h);
	}
	return 0;
}

/*
 * What the timer does, where there is none: user space reads this iterator over `listen_sockets` every 5 ms. It runs in that reader's
 * context, with preemption on: a hook that interrupts it takes the next copy (nest.h).
 */
SEC("iter/bpf_map_elem")
int net_tick(struct bpf_iter__bpf_map_elem *ctx)
{
	struct listen_socket *ls;
	__u64 *key = ctx->key, cookie;
	struct hook h;

	if (!key) {
		COUNT_LOSS(ticks);
		return 0;
	}
	cookie = *key;
	ls = bpf_map_lookup_elem(&listen_sockets, &cookie);
	if (!ls)
		return 0;
	hook_enter(&h);
	sample_listener(0, &cookie, ls, &h);
	hook_exit(&h);
	return 0;
}

/* Connections that Unix listeners refused: their buffers are consumed, on kernels of before (6.12 is one) dropped. */
SEC("tp_btf/consume_skb")
int BPF_PROG(net_unix_refused, struct sk_buff *skb)
{
	return unix_buffer_freed(skb);
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(net_unix_refused_before, struct sk_buff *skb)
{
	return unix_buffer_freed(skb);
}

/* The open sockets of which queries for names have no answer yet: what user space reads of it. */
SEC("iter/bpf_sk_storage_map")
int net_lookups(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	const struct lookup *l = ctx->value;
	const struct sock *sk = ctx->sk;

	if (l && sk)
		lookup_told(ctx->meta->seq, sk, l);
	return 0;
}

/* As net_tick, over the listeners of Unix sockets. */
SEC("iter/bpf_map_elem")
int net_unix_tick(struct bpf_iter__bpf_map_elem *ctx)
{
	struct unix_listener *ul;
	__u64 *key = ctx->key, addr;
	struct hook h;

	if (!key)
		return 0;
	addr = *key;
	ul = bpf_map_lookup_elem(&unix_listeners, &addr);
	if (!ul)
		return 0;
	hook_enter(&h);
	sample_unix_listener(0, &addr, ul, &h);
	hook_exit(&h);
	return 0;
}

/* The connections that Unix listeners accepted, every second: no hook tells that one is closed. */
SEC("iter/bpf_map_elem")
int net_unix_walk(struct bpf_iter__bpf_map_elem *ctx)
{
	struct unix_connection *u;
	__u64 *key = ctx->key, at;
	struct hook h;

	if (!key)
		return 0;
	at = *key;
	u = bpf_map_lookup_elem(&unix_connections, &at);
	if (!u)
		return 0;
	hook_enter(&h);
	unix_connection_looked_at(&h, at, u);
	hook_exit(&h);
	return 0;
}

#if STREAMS_ARE_COUNTED
/*
 * Packets of TCP as they come, and as they go: attached to the root of cgroups where the configuration wants the streams of HTTP/2 counted, and never else. They
 * run for every packet of the machine, of which most end at the first look at their socket; all of them pass.
 */
SEC("cgroup_skb/ingress")
int net_frames_in(struct __sk_buff *skb)
{
	(void)PRICED(packet_passes(skb, true));
	return 1;
}

SEC("cgroup_skb/egress")
int net_frames_out(struct __sk_buff *skb)
{
	(void)PRICED(packet_passes(skb, false));
	return 1;
}
#endif
