/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Frames of HTTP/2 without TLS (RFC 9113, 4.1), of which the header is read and nothing else: nine bytes that say how long a frame is, of which kind, and
 * of which stream. What a frame holds is passed over. Owns the way from header to header along both directions of a connection, by the sequence numbers of what passes, and
 * which of them begin and end a stream; net_streams.h what a stream is worth. The one place where the agent reads what programs sent each other, and only where its
 * configuration says so.
 *
 * A connection counts if its first bytes are those with which a client of HTTP/2 begins (nine of them are compared; 3.4) and the first frame of each side is its
 * settings. Whichever of the two speaks first makes its entry in `followed`. All others are left alone after their first bytes, and never looked into again: TLS,
 * HTTP/1.1, everything that is older than the agent, and what first speaks HTTP/1.1 (an upgrade).
 *
 * A request begins with the first HEADERS frame of a stream that its client opens, and is answered with the first that comes back; whichever side resets the
 * stream before that ends it unanswered. Later ones are trailers, and CONTINUATION goes on with what was begun. An answer that is none yet (1xx) is not
 * told from one, as that stands inside of the frame.
 *
 * Programs at the packets of a cgroup see what comes before the stack has put it in order. Nothing has to be in order but the headers: a segment that has
 * none may come again, late or never. Where one begins behind the next header, that was lost or overtaken, and when it passes at last what is behind it has gone by: there
 * following ends. What goes out passes in its order, and once more where it is sent again, which is old then.
 */
#ifndef TAILWATER_NET_FRAMES_H
#define TAILWATER_NET_FRAMES_H

#define HEADER_BYTES 9
#define HEADER_ROOM 16 /* a power of two: a verifier wants a mask */
#define SETTINGS_MOST 16384 /* bytes of a frame while its receiver has not said otherwise (4.2) */
enum frame_type {
	FRAME_HEADERS = 1,
	FRAME_RST_STREAM = 3,
	FRAME_SETTINGS = 4,
};

/* How many bytes a client begins with before its first frame, and nine of these. */
#define PREFACE 24
#define PREFACE_BEGINS 0x505249202a204854ULL /* "PRI * HT" */
#define PREFACE_NINTH 'T'

/*
 * Looks at one packet, each at a header, or at one byte of a header that the end of a segment parts. Of the smallest frames that is a packet of 4.6 kB; what
 * programs send as one may have 64. A packet with more ends the following of its connection: no more is done for any.
 */
#define FRAMES_MOST 512

struct frame {
	__u32 length;
	__u32 stream;
	__u8 type;
	__u8 flags;
};

/* One direction: where its next header begins, and of that one what came, if a segment ended inside of it. */
struct frames_way {
	__u64 header[HEADER_ROOM / sizeof(__u64)];
	__u32 next; /* a sequence number */
	__u16 have; /* bytes */
	__u16 begun; /* its first frame was seen */
	__u32 last_stream; /* the highest that was opened in it */
	__u32 busy; /* a CPU looks at a packet of it: none is behind another while that one passes, so a second one overtakes */
};

struct followed {
	__u64 cookie; /* of the connection: a socket may have another one later */
	struct frames_way asks; /* from whoever connected */
	struct frames_way answers;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct followed);
} followed SEC(".maps");

/* Both ends of a connection have one number, and may be on one machine. */
struct stream_key {
	__u64 cookie;
	__u32 stream;
	__u32 accepted;
};

/* When a stream began, and how often requests of its connection had been read by then (net_streams.h). */
struct open_stream {
	__u64 began_ns;
	__u32 reads;
	__u32 reserved;
};

/*
 * The open ones. User space makes room where they are wanted. Those of connections that are closed, or not followed any more, stay until others need their place; if one goes
 * that is still open, it stays in flight until its connection is closed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct stream_key);
	__type(value, struct open_stream);
} open_streams SEC(".maps");

/* Nothing stands in it: to go through its elements is the loop that kernels before 5.17 have, and is verified once, however long it is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRAMES_MOST);
	__type(key, __u32);
	__type(value, __u32);
} frames_at_once SEC(".maps");

/* A packet's bytes of one connection, while they are gone through. Small: before 6.12 what is called below it has 512 bytes of stack together with it. */
struct segment {
	struct hook h;
	struct __sk_buff *skb;
	struct connection *connection;
	struct frames_way *way;
	__u32 from; /* sequence number of its first byte … */
	__u32 to; /* … and behind its last */
	__u32 at; /* where its first byte lies in the packet */
	__u32 asks; /* from whoever connected */
};

static __always_inline struct frame frame_of(const __u64 *header)
{
	__u64 begins = bpf_be64_to_cpu(header[0]);
	struct frame f = {
		.length = begins >> 40,
		.stream = (begins & 0x7fffff) << 8 | ((const __u8 *)header)[HEADER_BYTES - 1],
		.type = begins >> 32 & 0xff,
		.flags = begins >> 24 & 0xff,
	};

	return f;
}

/* Of the first frame of either side. */
static __always_inline bool are_settings(const struct frame *f)
{
	return f->type == FRAME_SETTINGS && !f->flags && !f->stream && f->length <= SETTINGS_MOST;
}

/* Where an IP header says what comes behind it (RFC 791, 3.1; RFC 8200, 3), and how much of it has to be read for that. */
#define IPV4_PROTOCOL_AT 9
#define IPV6_NEXT_AT 6
#define IPV6_BYTES 40
#define IP_BYTES 10

/*
 * Finds the bytes that a segment carries; false where there are none. A socket's packet with another header in front of that of TCP, or in its place, is none that can be
 * read: what IPsec makes of a segment (on its way out it passes here behind that), one with extension headers. Its connection cannot be followed. A function, for its stack.
 */
static __noinline bool has_bytes(struct segment *s)
{
	const __u8 *bytes;
	__u32 tcp[4], at = 0;
	__u8 ip[IP_BYTES];

	if (bpf_skb_load_bytes(s->skb, 0, ip, sizeof(ip)))
		return false;
	if (ip[0] >> 4 == 4 && ip[IPV4_PROTOCOL_AT] == IPPROTO_TCP)
		at = (ip[0] & 0xf) * 4;
	else if (ip[0] >> 4 == 6 && ip[IPV6_NEXT_AT] == IPPROTO_TCP)
		at = IPV6_BYTES;
	if (!at) {
		s->connection->directions.framed = FRAMES_NONE;
		return false;
	}
	if (bpf_skb_load_bytes(s->skb, at, tcp, sizeof(tcp)))
		return false;
	bytes = (const __u8 *)tcp;
	s->at = at + (bytes[TCP_LENGTH_AT] >> 4) * 4;
	if ((bytes[TCP_FLAGS_AT] & (TCP_FLAG_SYN | TCP_FLAG_RST)) || s->skb->len <= s->at)
		return false;
	s->from = bpf_ntohl(tcp[1]);
	s->to = s->from + (s->skb->len - s->at);
	return true;
}

/* Whether a direction's first segment begins as it does in HTTP/2. Who sends less than nine bytes first is nobody who speaks it. */
static __always_inline bool begins_as_http2(struct segment *s)
{
	__u64 first[HEADER_ROOM / sizeof(__u64)] = {};
	struct frame f;

	if (s->to - s->from < HEADER_BYTES || bpf_skb_load_bytes(s->skb, s->at, first, HEADER_BYTES))
		return false;
	if (s->asks)
		return bpf_be64_to_cpu(first[0]) == PREFACE_BEGINS && ((const __u8 *)first)[HEADER_BYTES - 1] == PREFACE_NINTH;
	f = frame_of(first);
	return are_settings(&f);
}

/* A segment of a direction of which nothing was seen: the connection's entry, if it is followed from here on. */
static __noinline struct followed *followed_from(struct segment *s, struct bpf_sock *sk)
{
	struct connection *c = s->connection;
	__u32 asks = c->cookie >> 32, answers = (__u32)c->cookie, first = s->asks ? asks : answers;
	struct followed new = {
		.cookie = c->cookie,
		.asks = { .next = asks + PREFACE },
		.answers = { .next = answers },
	};
	struct followed *f = 0;

	/* The kernel looks whether a silent peer is there by a byte before the first. */
	if ((__s32)(s->from - first) < 0)
		return 0;
	if (s->from == first && begins_as_http2(s)) {
		f = bpf_sk_storage_get(&followed, sk, &new, BPF_SK_STORAGE_GET_F_CREATE);
		/* The program of the other direction was first. */
		if (!f)
			f = bpf_sk_storage_get(&followed, sk, 0, 0);
	}
	if (!f || f->cookie != c->cookie) {
		c->directions.framed = FRAMES_NONE;
		return 0;
	}
	c->directions.framed = FRAMES_FOLLOWED;
	return f;
}

/*
 * A client opened a stream, or what it says on one that it opened before are trailers. Its entry is there before it counts: if the connection is read between the two, it
 * is taken for one that was, and another one for the one that was not.
 */
static __always_inline void stream_seen(struct segment *s, struct stream_key *key)
{
	struct connection *c = s->connection;
	struct open_stream opened = { .began_ns = s->h.mono_ns, .reads = reads_of(streams_of(c)) };

	if (!(key->stream & 1) || key->stream <= s->way->last_stream)
		return;
	s->way->last_stream = key->stream;
	if (bpf_map_update_elem(&open_streams, key, &opened, BPF_ANY)) {
		COUNT_LOSS(streams_untracked);
		return;
	}
	stream_began(&s->h, c);
}

/* It was answered, or reset. Of one that was before, and of those that a server opens, nothing is there. */
static __always_inline void stream_over(struct segment *s, struct stream_key *key, __u32 how)
{
	struct open_stream *opened = bpf_map_lookup_elem(&open_streams, key);
	__u64 took;
	__u32 reads;

	if (!opened)
		return;
	took = elapsed_ns(opened->began_ns, s->h.mono_ns);
	reads = opened->reads;
	if (!bpf_map_delete_elem(&open_streams, key))
		stream_ended(&s->h, s->connection, how, took, reads);
}

/* Takes the next header, or the next byte of one, out of a segment; returns 1 where there is none, or none that can be. */
static long frame_passes(void *map, __u32 *key, __u32 *value, struct segment *s)
{
	struct frames_way *way = s->way;
	__u8 *header = (__u8 *)way->header;
	__u32 have = way->have, next = way->next + have, left = s->to - next, at = s->at + (next - s->from);
	struct frame f;

	if ((__s32)left <= 0)
		return 1;
	if (!have && left >= HEADER_BYTES) {
		if (bpf_skb_load_bytes(s->skb, at, header, HEADER_BYTES))
			return 1;
	} else {
		if (bpf_skb_load_bytes(s->skb, at, header + (have & (HEADER_ROOM - 1)), 1))
			return 1;
		if (have + 1 < HEADER_BYTES) {
			way->have = have + 1;
			return 0;
		}
	}
	f = frame_of(way->header);
	if (!way->begun && !are_settings(&f))
		return 1;
	way->begun = 1;
	way->have = 0;
	way->next += HEADER_BYTES + f.length;
	if (f.type == FRAME_HEADERS || f.type == FRAME_RST_STREAM) {
		struct connection *c = s->connection;
		struct stream_key of = { .cookie = c->cookie, .stream = f.stream, .accepted = c->role == ROLE_ACCEPTED };

		if (f.type == FRAME_HEADERS && s->asks)
			stream_seen(s, &of);
		else
			stream_over(s, &of, f.type == FRAME_HEADERS ? ENDED_ANSWERED : ENDED_ABORTED);
		/* It was one too many, or the other direction gave the connection up. */
		if (c->directions.framed == FRAMES_NONE)
			return 1;
	}
	return 0;
}

/* Whether all headers that begin in a segment were read. */
static __always_inline bool frames_read(struct segment *s)
{
	bool all;

	if (__sync_lock_test_and_set(&s->way->busy, 1))
		return false;
	bpf_for_each_map_elem(&frames_at_once, frame_passes, s, 0);
	all = (__s32)(s->to - (s->way->next + s->way->have)) <= 0;
	__sync_lock_test_and_set(&s->way->busy, 0);
	return all;
}

/* A packet of a connection that is followed, or may be. */
static __noinline int segment_passes(struct __sk_buff *skb, struct bpf_sock *sk, struct connection *c, bool in)
{
	struct segment s = { .skb = skb, .connection = c, .asks = in == (c->role == ROLE_ACCEPTED) };
	bool first = s.asks ? c->phase != PHASE_STREAMS : c->directions.framed == FRAMES_UNKNOWN, begins = first && s.asks;
	struct followed *f = 0;
	__u32 next = 0;

	if (has_bytes(&s))
		f = first ? followed_from(&s, sk) : bpf_sk_storage_get(&followed, sk, 0, 0);
	if (f) {
		s.way = s.asks ? &f->asks : &f->answers;
		next = s.way->next + s.way->have;
		/* All of it is in a frame that was announced, or came before. */
		if (!begins && (__s32)(s.to - next) <= 0)
			return 0;
	} else if (c->directions.framed != FRAMES_NONE || c->phase != PHASE_STREAMS) {
		return 0;
	}
	hook_enter(&s.h);
	if (!f || (begins && !streams_begin(&s.h, c)) || (__s32)(s.from - next) > 0 || !frames_read(&s))
		c->directions.framed = FRAMES_NONE;
	streams_settled(&s.h, c);
	hook_exit(&s.h);
	return 0;
}

/* What runs for each packet: whose socket has no connection that is followed, or may be, is let go here. */
static __always_inline int packet_passes(struct __sk_buff *skb, bool in)
{
	struct bpf_sock *sk = skb->sk;
	struct connection *c;

	if (!sk)
		return 0;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 0;
	c = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!c || c->directions.framed == FRAMES_NONE || c->phase == PHASE_CLOSED || !c->cookie ||
	    (c->role != ROLE_ACCEPTED && c->role != ROLE_CONNECTED))
		return 0;
	return segment_passes(skb, sk, c, in);
}
#endif
