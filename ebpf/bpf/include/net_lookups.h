/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Lookups of names: queries that went to port 53 by a connected UDP socket, as the resolvers of glibc and Go, of nginx, HAProxy and
 * c-ares send them, and that have no answer yet. Owns since when a socket waits, and for whom; what waits at a moment is told by an
 * iterator over the sockets that are still open (`net_lookups`), since no hook tells that one is closed. No payload is read, so
 * not which name was asked for. A socket that is not connected (musl) does not say here whom it asks, and is not seen; queries over TCP and
 * TLS are calls like others.
 */
#ifndef TAILWATER_NET_LOOKUPS_H
#define TAILWATER_NET_LOOKUPS_H

#define IPPROTO_UDP 17
#define DNS_PORT 53 /* RFC 1035, 4.2.1 */

/*
 * Whoever asked has given up by then, so what the socket asks later is another lookup. A resolver that opens a socket for each lookup asks again
 * on it, as glibc does after 5 s for each server and try; one that had answers on its socket is taken to keep it.
 */
#define LOOKUP_OVER_NS (30ULL * 1000000000)
#define LOOKUP_LOST_NS (5ULL * 1000000000)

struct lookup {
	__u64 since_ns; /* the first query without an answer, CLOCK_MONOTONIC; where one of several was answered, that answer: which it was of is not known */
	__u64 cgroup;	/* of the task that asked */
	__u32 pid;
	__s32 unanswered; /* queries */
	__u64 answered;	  /* since the socket was opened */
	__u64 counted_ns; /* since when queries without an answer are counted: none was before */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct lookup);
} lookups SEC(".maps");

ARRAY_OF(lookup_counts, struct lookup_counts);

static __always_inline bool is_lookup(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return sk->sk_protocol == IPPROTO_UDP && (family == AF_INET || family == AF_INET6) &&
	       sk->__sk_common.skc_dport == bpf_htons(DNS_PORT);
}

/* A task sent a query, in its own system call. */
static __noinline int lookup_asked(struct sock *sk)
{
	struct lookup_counts *counts;
	struct lookup *l;
	__u32 zero = 0;
	__u64 now;

	l = bpf_sk_storage_get(&lookups, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	counts = bpf_map_lookup_elem(&lookup_counts, &zero);
	if (!l || !counts) {
		COUNT_LOSS(lookups_untracked);
		return 0;
	}
	now = bpf_ktime_get_ns();
	if (l->unanswered <= 0 || now - l->since_ns > (l->answered ? LOOKUP_LOST_NS : LOOKUP_OVER_NS)) {
		l->since_ns = now;
		l->cgroup = current_cgroup();
		l->pid = bpf_get_current_pid_tgid() >> 32;
		l->unanswered = 0;
		l->counted_ns = now;
	}
	__sync_fetch_and_add(&l->unanswered, 1);
	__sync_fetch_and_add(&counts->asked, 1);
	return 0;
}

/* A task read from such a socket: an answer, or that there is none (ICMP tells a connected socket that nobody listens there). */
static __noinline int lookup_answered(struct sock *sk, int length)
{
	struct lookup_counts *counts;
	struct lookup *l;
	__u32 zero = 0;
	__u64 now;

	if (length == -EAGAIN || length == -EINTR || length == -ERESTARTSYS)
		return 0;
	l = bpf_sk_storage_get(&lookups, sk, 0, 0);
	counts = bpf_map_lookup_elem(&lookup_counts, &zero);
	/* An answer that comes twice, or too late, is of none. */
	if (!l || !counts || l->unanswered <= 0)
		return 0;
	__sync_fetch_and_add(&l->unanswered, -1);
	now = bpf_ktime_get_ns();
	l->since_ns = now;
	l->answered++;
	/* That answers come and some query never has one is a datagram that was lost, or whoever asked took the first of two answers. */
	if (now - l->counted_ns > LOOKUP_LOST_NS) {
		l->unanswered = 0;
		l->counted_ns = now;
	}
	__sync_fetch_and_add(&counts->answered, 1);
	return 0;
}

/* A function of its own, which has the shape of what is told among the object's types. */
static __noinline void lookup_written(struct seq_file *seq, struct waiting_lookup *told)
{
	bpf_seq_write(seq, told, sizeof(*told));
}

/*
 * Of an open socket, for whoever reads the iterator. Where an answer lies there that nobody read it is whoever asked that does not come: a process that
 * stands, or has no CPU, waits for no server of names.
 */
static __always_inline void lookup_told(struct seq_file *seq, const struct sock *sk, const struct lookup *l)
{
	struct waiting_lookup told = {};

	if (l->unanswered <= 0 || (bpf_core_field_exists(sk->sk_receive_queue.qlen) && sk->sk_receive_queue.qlen))
		return;
	told.since_ns = l->since_ns;
	told.pid = l->pid;
	told.queries = l->unanswered;
	remote_end(&sk->__sk_common, &told.key, l->cgroup);
	lookup_written(seq, &told);
}
#endif
