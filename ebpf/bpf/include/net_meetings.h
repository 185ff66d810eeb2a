/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Connections by what both of their ends have in common, so that whoever hears of both ends knows who dialled whom. The address that was dialled
 * says it only where nothing translates it on the way; the sequence numbers that a connection began with (RFC 9293, 3.4.1) stay as they are behind
 * a virtual address, a published port, IPVS and a redirection to a sidecar. What a proxy forwards is another connection, and a SYN proxy in the kernel (nf_synproxy_core)
 * gives the server other numbers. Owns where they are noted; part of net_connection.h, knows no hook.
 */
#ifndef TAILWATER_NET_MEETINGS_H
#define TAILWATER_NET_MEETINGS_H

/*
 * Direct-mapped by the hash of both numbers, so that both ends lose the same ones where more begin in a second than there is room for; two places for
 * each, as both ends may be on one machine. One word, that it is written at once: the upper 47 bits of the hash, whether this end accepted it, whether it is
 * closed, and the slot of its listener or edge.
 */
#define MEETINGS 4096
#define MEETING_PLACE_SHIFT 53
#define MEETING_ACCEPTED (1ULL << 16)
#define MEETING_CLOSED (1ULL << 15)
#define MEETING_SLOT_MAX 0x7fff
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MEETINGS);
	__type(key, __u32);
	__type(value, __u64);
} meetings SEC(".maps");

/*
 * Notes a connection, or that it is closed: told once, if it was not yet, and not again. Nothing of one that has no number, or no slot of its own.
 * Not static, so that a verifier walks it once, and not for each place that it is called from.
 */
__noinline int meeting_noted(__u64 cookie, __u32 slot, __u32 accepted, __u32 closed)
{
	__u64 hash = cookie * 0x9e3779b97f4a7c15ULL; /* 2^64 by the golden ratio (Knuth, 6.4) */
	__u32 place = hash >> MEETING_PLACE_SHIFT << 1 | !!accepted;
	__u64 word = (hash & ~(2 * MEETING_ACCEPTED - 1)) | (accepted ? MEETING_ACCEPTED : 0) | slot;
	__u64 *noted = bpf_map_lookup_elem(&meetings, &place);

	if (!noted || !cookie || slot == SLOT_OTHER || slot > MEETING_SLOT_MAX)
		return 0;
	if (!closed)
		*(volatile __u64 *)noted = word;
	else if (*(volatile __u64 *)noted == word)
		*(volatile __u64 *)noted = word | MEETING_CLOSED;
	return 0;
}

/* Its number, slot and role are known. */
static __always_inline void met(const struct connection *c, bool accepted)
{
	meeting_noted(c->cookie, c->slot, accepted, false);
}

/*
 * Of a connection that was there before: it began as many bytes ago as have come and gone. Who connected has its SYN among those that were
 * acknowledged (tcp_rcv_synsent_state_process), who accepted has not (tcp_create_openreq_child).
 */
static __always_inline void met_before(struct connection *c, const struct tcp_sock *tp, bool accepted)
{
	__u32 received, acked, in, out;

	/* Since 4.1 (commits bdd1f9edacb5, 0df48c26d841). */
	if (!bpf_core_field_exists(tp->bytes_received) || !bpf_core_field_exists(tp->bytes_acked))
		return;
	received = *(volatile __u32 *)&tp->rcv_nxt;
	acked = *(volatile __u32 *)&tp->snd_una;
	in = received - (__u32)tp->bytes_received;
	out = acked - (__u32)tp->bytes_acked;
	barrier();
	/* Not every hook holds the socket: what came meanwhile may be in one of two numbers. */
	if ((received ^ *(volatile __u32 *)&tp->rcv_nxt) | (acked ^ *(volatile __u32 *)&tp->snd_una))
		return;
	c->cookie = accepted ? pair_of(in, out) : pair_of(out + 1, in);
	met(c, accepted);
}
#endif
