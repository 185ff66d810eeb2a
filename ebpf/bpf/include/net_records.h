/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the socket hooks leave for user space: window records, absolute levels, names of slots, drop events. The one source of
 * their layout (ebpf/src/net.rs mirrors it); knows no hook.
 */
#ifndef TAILWATER_NET_RECORDS_H
#define TAILWATER_NET_RECORDS_H

#include "histogram.h"
#define SLOT_OTHER 0 /* where everything beyond the caps is folded, "~other" */

/* Step functions of a listener. */
enum {
	LISTENER_DEPTH, /* connections in the accept queue, as last seen (at each push, and by the sampling timer) */
	LISTENER_UNREAD_QUEUED, /* bytes arrived before the connection was accepted, and nobody read them yet */
	LISTENER_OPEN, /* established, accepted or not */
	LISTENER_UNANSWERED, /* pieces that came on multiplexed connections since these last spoke */
	LISTENER_IN_FLIGHT, /* from here on: in listener_level.turns */
	LISTENER_UNREAD, /* bytes nobody read arrived on an idle, accepted connection */
	LISTENER_BUSY, /* threads that hold a request */
	LISTENER_EDGES,
	LISTENER_LEVELS = LISTENER_IN_FLIGHT,
};

struct listener_record {
	__u64 window;
	struct edge_sum edges[LISTENER_EDGES];
	__u64 wait_max_ns;
	__u64 response_ns;
	__u64 response_max_ns;
	__u64 bytes_in; /* of multiplexed connections; these four too */
	__u64 bytes_out;
	__u32 pieces_in;
	__u32 pieces_read;
	__u32 pieces_out;
	__u32 unanswered_max;
	__u32 multiplexed_max; /* connections, before and after each step */
	__u32 arrivals;
	__u32 drops;
	__u32 drops_final_ack;
	__u32 drops_cookie; /* of those, of handshakes by SYN cookie: sk_drops counts them once, the others twice */
	__u32 drops_repeated; /* of those at the last ACK, of connections that were dropped there before */
	__u32 drops_slow; /* connections dropped there for so long that they wait longer than a second */
	__u32 received;
	__u32 answered;
	__u32 depth_max;
	__u32 in_flight_max;
	__u32 unread_max;
	__u32 busy_max;
	__u32 shared_max;
	__u32 open_max; /* accepted ones, at pushes, sampling ticks and first reads or writes */
	__u32 limit;
	/* From here on what happens less than 65,536 times in a window on a CPU. */
	/*
	 * Of the answers, those of which something was written later than cfg_late_us after the first byte of their request, or after the
	 * connection's last ACK was dropped first, where that is known. Counted when that was written: that an answer which began in time
	 * ends late is known in a later window than the one that has the answer.
	 */
	__u16 late;
	__u16 very_late; /* of those, later than cfg_very_late_us */
	/* The same of VERY_LONG_NS, by where most of that time went: before the connection was there (its last ACK was dropped), … */
	__u16 very_long_retried;
	__u16 very_long_queued; /* … unread, on a connection that was not accepted yet when the first byte came, … */
	__u16 very_long_unread; /* … unread on an accepted one, … */
	__u16 very_long_inside; /* … or read */
	__u16 aborted;
	__u16 syn_ack_retransmits;
	__u32 response_hist[RESPONSE_BUCKETS];
};

/* Step functions of an edge (a workload's connections to one remote address and port). */
enum {
	EDGE_IN_FLIGHT,
	EDGE_OPEN,
	EDGE_UNANSWERED, /* pieces that were sent on multiplexed connections since anything came back */
	EDGE_EDGES,
};

struct edge_record {
	__u64 window;
	struct edge_sum edges[EDGE_EDGES];
	__u64 response_ns;
	__u64 response_max_ns;
	__u64 first_try_unix_ns; /* of the connections that resent a SYN, the earliest first SYN */
	__u64 bytes_in; /* of multiplexed connections; these three too */
	__u64 bytes_out;
	__u32 pieces_in;
	__u32 pieces_out;
	__u32 unanswered_max;
	__u32 multiplexed_max; /* connections, before and after each step */
	__u32 started;
	__u32 answered;
	__u32 aborted;
	__u32 connects;
	__u32 established;
	__u32 in_flight_max;
	__u32 open_max;
	__u32 syn_retransmits;
	__u32 data_retransmits;
	__u32 reserved;
	__u32 response_hist[RESPONSE_BUCKETS];
};

/*
 * Levels over all CPUs, for maxima. A cache line of its own per slot. What changes together with each request is one word, so that a
 * request costs the contended line once: requests in flight + unread << 21 + busy threads << 42, each signed, as a sum.
 */
#define TURNS_BITS 21
struct listener_level {
	__u64 turns;
	__s32 levels[LISTENER_LEVELS];
	__s32 multiplexed; /* connections; no step function, as each of those stands in the heads of every CPU */
	__u32 limit; /* sum over the listening sockets of the slot */
	__u32 sockets; /* listening now */
	__u32 aligned; /* what is below begins with a word of 64 bits */
	__u32 workers_seen; /* user space takes off the dead, by 64 bits: what follows stays zero */
	__u32 reserved;
	__u64 changed_ns; /* when the requests in flight last changed; 0: never. In the line that each such change writes anyway */
	__u32 reserved_too[2];
};
struct edge_level {
	__s32 levels[EDGE_EDGES];
	__s32 multiplexed;
	__u32 reserved[12];
};

/*
 * Time in state: for each number of requests in flight, by bins, how long a listener had it and how many answers ended it, since the slot
 * was made. One copy per listener: whoever changes the number books the time since the change before, by one exchange of `changed_ns`. Two
 * CPUs that change it at once may book each other's time to the neighbouring number; the sum over all numbers is exact. Time without a
 * request is not booked: it is the rest.
 * Numbers below 16 have a bin each, above that there are eight to a doubling; the last one is open.
 */
#define STATE_BINS 80
#define STATE_EXACT 16
struct listener_states {
	struct state_cell {
		__u64 time_ns; /* a sum of signed steps: clocks of two CPUs may differ */
		__u64 answered;
	} cells[STATE_BINS];
};

/* Addresses are in network order, IPv4 as v4-mapped; the wildcard of both families is all zero. Ports: host order. */
struct listener_key {
	__u32 netns;
	__u16 port;
	__u16 reserved;
	__u32 address[4];
};
struct edge_key {
	__u64 cgroup;
	__u32 netns;
	__u16 port;
	__u16 reserved;
	__u32 address[4];
};

/* Who a slot is. `generation` is odd while the rest is being written, and 0 before the first use. */
struct listener_name {
	__u64 generation;
	__u64 owner_cgroup;
	__u32 owner_pid;
	__u32 owner_from_listen; /* else from the first task that read from a child */
	struct listener_key key;
};
struct edge_name {
	__u64 generation;
	struct edge_key key;
};

/*
 * A thread that reads requests of a listener, and how many it holds. Found by its key, slot << 32 | thread id; 0: free.
 *
 * Whether it is an event loop: a thread that reads from several open connections, to each of which it comes back. Where a pool's threads
 * take turns at connections, each one that another thread had read before weighs for both of them as much as LOOP_TAKEN that came back.
 */
#define WORKERS 16384
#define LOOP_TAKEN 4
#define LOOP_SCORE_MOST 64
struct worker {
	__u64 key;
	__s32 held;
	__s32 connections; /* open ones that it was the last to read from */
	__u64 read_ns; /* when it last read a request, or from a multiplexed connection */
	__s32 loop_score; /* requests on connections that it came back to while it had others, less those taken over; within +-LOOP_SCORE_MOST */
	__u32 connections_max;
};

struct drop_event {
	__u64 unix_ns;
	__u32 slot;
	__u32 count; /* by sk_drops */
	__u32 depth;
	__u32 limit;
	__u32 packets; /* by ListenDrops: a dropped last ACK is one, not two */
	__u32 reserved;
};

/* Queries for names, since the object was loaded: as many are without an answer, or their sockets were closed, as one has more than the other. */
struct lookup_counts {
	__u64 asked;
	__u64 answered;
};

/* An open socket of which queries for names have no answer yet. The port is that of the server. */
struct waiting_lookup {
	struct edge_key key;
	__u64 since_ns; /* CLOCK_MONOTONIC */
	__u32 pid;
	__u32 queries;
};

/*
 * A turn that took so long, as it ended: a request since its first byte came, a call, or a connection until it was there. What is shorter than four
 * windows makes nobody slow. Times are of CLOCK_MONOTONIC.
 */
#define SLOW_TURN_NS 200000000ULL
enum slow {
	SLOW_REQUEST,
	SLOW_CALL,
	SLOW_CONNECT,
};
struct slow_turn {
	__u64 cookie;	      /* the number that both ends of its connection have; 0: not known */
	__u64 established_ns; /* of a request: when its connection was there; 0: not known */
	__u64 arrived_ns;     /* of a request: as that of its connection */
	__u64 began_ns;	      /* it was read, sent or dialled */
	__u64 ended_ns;
	__u32 slot;
	__u32 began_by; /* the thread that did; 0: not known */
	__u32 ended_by; /* the one that ran then */
	__u8 of;	/* SLOW_* */
	__u8 aborted;
	__u8 waited_as; /* of a request: how it had been unread */
	__u8 shared;	/* of a request: its thread had others when it ended */
};

/* What could not be kept. */
struct net_losses {
	__u64 listeners_folded; /* new listeners beyond the cap */
	__u64 edges_folded;
	__u64 listen_sockets_untracked;
	__u64 drop_events; /* ring buffer full */
	__u64 workers_untracked;
	__u64 connections_untracked; /* no socket storage */
	__u64 connections_unknown; /* older than the agent, and neither side recognisable */
	__u64 ticks; /* of the sampling timer: not a loss, but the proof that it runs */
	__u64 unix_refusals_unnamed; /* by one of several full Unix listeners */
	__u64 lookups_untracked; /* no socket storage */
	__u64 slow_turns; /* ring buffer full */
	__u64 connections_unfollowed; /* whose frames were followed, until the header of one was missed */
	__u64 streams_untracked; /* no place in the table of open ones, or other CPUs were faster each time that one was to be taken off */
};
#endif
